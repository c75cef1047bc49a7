# After "Lightning in 15 minutes" and "Saving and loading checkpoints" (lightning.ai/docs): the default root, the default
# logger, a ModelCheckpoint that also keeps the last one, and ckpt_path= the newest of them: each run has its own version_N.
import glob
import os
import time

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn, optim, utils


class LitAutoEncoder(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(28 * 28, 64), nn.ReLU(), nn.Linear(64, 3))
        self.decoder = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 28 * 28))

    def training_step(self, batch, batch_idx):
        (x,) = batch
        loss = nn.functional.mse_loss(self.decoder(self.encoder(x)), x)
        self.log("train_loss", loss)
        time.sleep(0.05)
        return loss

    def on_train_start(self):
        print(f"training begins at epoch {self.current_epoch}, step {self.global_step}")

    def configure_optimizers(self):
        return optim.Adam(self.parameters(), lr=1e-3)


def main():
    L.seed_everything(0)
    dataset = utils.data.TensorDataset(torch.rand(640, 28 * 28))
    train_loader = utils.data.DataLoader(dataset, batch_size=16)
    checkpoint = ModelCheckpoint(save_top_k=2, monitor="train_loss", save_last=True)
    trainer = L.Trainer(max_epochs=18, accelerator="cpu", callbacks=[checkpoint], log_every_n_steps=10)
    last = max(glob.glob("lightning_logs/version_*/checkpoints/last.ckpt"), key=os.path.getmtime, default=None)
    trainer.fit(LitAutoEncoder(), train_loader, ckpt_path=last)
    trainer.save_checkpoint("autoencoder.ckpt")


if __name__ == "__main__":
    main()
