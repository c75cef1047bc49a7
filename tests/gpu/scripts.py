"""What check.py has run on the GPU: `python3 scripts.py NAME`. Each is the smallest script that shows one thing."""

import sys
import time

import torch


def held():
    """Memory, and nothing else, as a notebook leaves it."""
    kept = torch.zeros(2 << 30, dtype=torch.float32, device="cuda")
    torch.cuda.synchronize()
    print("holds", kept.numel() * 4 >> 30, "GiB", flush=True)
    time.sleep(3600)


def bursts():
    """A fifteenth of each second."""
    matrix = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    print("bursts", flush=True)
    while True:
        begun = time.monotonic()
        while time.monotonic() - begun < 1 / 15:
            matrix @ matrix
            torch.cuda.synchronize()
        time.sleep(1 - 1 / 15)


def hang():
    """Five steps, then a kernel that is still there in an hour."""
    for step in range(5):
        torch.randn(1024, 1024, device="cuda").sum().item()
        print("step", step, flush=True)
        time.sleep(0.5)
    for _ in range(100_000):
        torch.cuda._sleep(1 << 40)
    torch.cuda.synchronize()


def fault():
    """Writes far outside of what it was given."""
    import triton
    import triton.language as tl

    @triton.jit
    def stray(pointer, far):
        tl.store(pointer + far, 1.0)

    block = torch.zeros(16, device="cuda")
    stray[(1,)](block, 1 << 40)
    torch.cuda.synchronize()
    print("nobody minded", flush=True)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
