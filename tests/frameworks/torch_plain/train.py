# After "Saving and loading a general checkpoint in PyTorch" (pytorch.org/tutorials/recipes).
import argparse
import os
import time

import torch
import torch.nn as nn
import torch.optim as optim


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(64, 256)
        self.fc2 = nn.Linear(256, 256)
        self.fc3 = nn.Linear(256, 10)

    def forward(self, x):
        return self.fc3(torch.relu(self.fc2(torch.relu(self.fc1(x)))))


def main():
    parser = argparse.ArgumentParser(description="PyTorch training")
    parser.add_argument("--epochs", type=int, default=45, help="number of total epochs to run")
    parser.add_argument("--checkpoint-dir", default="checkpoints", help="where checkpoints are written")
    args = parser.parse_args()

    torch.manual_seed(0)
    features, labels = torch.randn(2048, 64), torch.randint(0, 10, (2048,))
    net = Net()
    optimizer = optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    start_epoch = 0

    os.makedirs(args.checkpoint_dir, exist_ok=True)
    path = os.path.join(args.checkpoint_dir, "checkpoint.pt")
    if os.path.exists(path):
        checkpoint = torch.load(path, weights_only=True)
        net.load_state_dict(checkpoint["model_state_dict"])
        optimizer.load_state_dict(checkpoint["optimizer_state_dict"])
        start_epoch = checkpoint["epoch"] + 1
        print(f"resumed from {path} at epoch {start_epoch}")
    else:
        print("training from scratch")

    for epoch in range(start_epoch, args.epochs):
        running_loss = 0.0
        for i in range(0, len(features), 64):
            optimizer.zero_grad()
            loss = criterion(net(features[i : i + 64]), labels[i : i + 64])
            loss.backward()
            optimizer.step()
            running_loss += loss.item()
            time.sleep(0.03)
        print(f"epoch {epoch + 1}/{args.epochs} loss {running_loss / 32:.4f}")
        torch.save(
            {
                "epoch": epoch,
                "model_state_dict": net.state_dict(),
                "optimizer_state_dict": optimizer.state_dict(),
                "loss": loss,
            },
            path,
        )

    torch.save(net.state_dict(), "model.pt")
    print("Finished Training")


if __name__ == "__main__":
    main()
