# Checkpoints with the folders of wandb (offline) and TensorBoard among them, as many repositories have it.
import os
import time

os.environ.setdefault("WANDB_MODE", "offline")
import torch
import wandb
from torch.utils.tensorboard import SummaryWriter

SAVE_DIR = "exp/run1"
EPOCHS = 14


def main():
    os.makedirs(SAVE_DIR, exist_ok=True)
    torch.manual_seed(0)
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    start = 0
    found = sorted(name for name in os.listdir(SAVE_DIR) if name.startswith("epoch_"))
    if found:
        state = torch.load(os.path.join(SAVE_DIR, found[-1]), weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        start = state["epoch"] + 1
        print(f"resumed from {found[-1]}")
    else:
        print("training from scratch")
    run = wandb.init(project="demo", dir=SAVE_DIR)
    writer = SummaryWriter(os.path.join(SAVE_DIR, "tensorboard"))
    for epoch in range(start, EPOCHS):
        for i in range(60):
            x = torch.randn(32, 64)
            loss = torch.nn.functional.mse_loss(model(x), x)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.log({"loss": loss.item()})
            writer.add_scalar("loss", loss.item(), epoch * 60 + i)
            time.sleep(0.05)
        print(f"Epoch: {epoch} loss: {loss.item():.4f}")
        state = {"epoch": epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(state, os.path.join(SAVE_DIR, f"epoch_{epoch:03d}.pt"))
    writer.close()
    run.finish()


if __name__ == "__main__":
    main()
