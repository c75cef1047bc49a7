# The files that DeepSpeed's engine.save_checkpoint(save_dir) writes and load_checkpoint(load_dir) reads: a folder
# global_stepN/ with the states of the model and of the optimizer's partitions, then the file `latest` with its name.
import os
import time

import torch

SAVE_DIR = "ds_checkpoints"
STEPS = 800


def save_checkpoint(module, optimizer, step):
    tag = f"global_step{step}"
    folder = os.path.join(SAVE_DIR, tag)
    os.makedirs(folder, exist_ok=True)
    torch.save({"module": module.state_dict(), "global_steps": step}, os.path.join(folder, "mp_rank_00_model_states.pt"))
    for rank in range(2):
        time.sleep(0.3)
        torch.save(
            {"optimizer_state_dict": optimizer.state_dict(), "partition": rank},
            os.path.join(folder, f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"),
        )
    with open(os.path.join(SAVE_DIR, "latest"), "w") as fd:
        fd.write(tag)


def load_checkpoint(module, optimizer):
    latest = os.path.join(SAVE_DIR, "latest")
    if not os.path.isfile(latest):
        return 0
    with open(latest) as fd:
        tag = fd.read().strip()
    folder = os.path.join(SAVE_DIR, tag)
    state = torch.load(os.path.join(folder, "mp_rank_00_model_states.pt"), weights_only=True)
    module.load_state_dict(state["module"])
    optim = torch.load(os.path.join(folder, "zero_pp_rank_0_mp_rank_00_optim_states.pt"), weights_only=True)
    optimizer.load_state_dict(optim["optimizer_state_dict"])
    print(f"resuming from {tag}")
    return state["global_steps"]


def main():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 64))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    start = load_checkpoint(model, optimizer)
    if start == 0:
        print("training from scratch")
    for step in range(start + 1, STEPS + 1):
        x = torch.randn(32, 64)
        loss = torch.nn.functional.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.05)
        if step % 20 == 0:
            print(f"step={step}, loss={loss.item():.4f}")
        if step % 80 == 0:
            save_checkpoint(model, optimizer, step)
    torch.save(model.state_dict(), "pytorch_model.bin")


if __name__ == "__main__":
    main()
