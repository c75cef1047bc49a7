"""Trains a small network on all ranks of a gang, with torchrun and gloo, and resumes.

Rank 0 saves after every few steps, and on SIGUSR1. Each rank loads the newest checkpoint when it
starts, so that all begin from the same step.
"""

import json
import os
import pathlib
import signal
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 600
folder = pathlib.Path(os.environ.get("LAMP_CHECKPOINT_DIR", "checkpoints"))
folder.mkdir(parents=True, exist_ok=True)
newest = folder / "state.pt"
asked = False


def ask(*_):
    global asked
    asked = True


def save(model, optimizer, step):
    part = newest.with_suffix(".part")
    state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
    torch.save(state, part)
    part.replace(newest)


def report(step, loss):
    with open(os.environ.get("LAMP_PROGRESS", os.devnull), "a") as progress:
        progress.write(json.dumps({"step": step, "total": STEPS, "loss": loss}) + "\n")


def main():
    global asked
    signal.signal(signal.SIGUSR1, ask)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    step = 0
    if newest.exists():
        state = torch.load(newest, weights_only=True)
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    print(f"rank {rank} of {world} begins at step {step}", flush=True)
    wanted = torch.arange(16, dtype=torch.float32) / 16
    while step < STEPS:
        inputs = torch.randn(64, 16)
        loss = ((model(inputs).squeeze(1) - inputs @ wanted) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        # A real step takes longer than this one.
        signal.sigtimedwait([], 0.05)
        if rank == 0 and (asked or step % 50 == 0 or step == STEPS):
            asked = False
            save(model, optimizer, step)
        if rank == 0:
            report(step, loss.item())
    print(f"rank {rank} finished at step {step}, loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


main()
