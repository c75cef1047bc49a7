# After "Checkpointing" in the documentation of Accelerate: automatic_checkpoint_naming, save_state, load_state.
import os
import time

import torch
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration
from torch.utils.data import DataLoader, TensorDataset
from tqdm.auto import tqdm

EPOCHS = 18


def main():
    config = ProjectConfiguration(project_dir="output", automatic_checkpoint_naming=True, total_limit=3)
    accelerator = Accelerator(project_config=config, cpu=True)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)
    data = DataLoader(TensorDataset(torch.randn(1280, 64), torch.randint(0, 10, (1280,))), batch_size=32)
    model, optimizer, data, scheduler = accelerator.prepare(model, optimizer, data, scheduler)
    accelerator.register_for_checkpointing(scheduler)

    starting_epoch = 0
    checkpoints = os.path.join("output", "checkpoints")
    if os.path.isdir(checkpoints) and os.listdir(checkpoints):
        accelerator.load_state()
        newest = max(int(name.split("_")[-1]) for name in os.listdir(checkpoints))
        starting_epoch = newest + 1
        accelerator.project_configuration.iteration = starting_epoch
        accelerator.print(f"resumed from checkpoint_{newest}: epoch {starting_epoch}")
    else:
        accelerator.print("training from scratch")

    progress_bar = tqdm(range(EPOCHS * len(data)), initial=starting_epoch * len(data), disable=not accelerator.is_local_main_process)
    for epoch in range(starting_epoch, EPOCHS):
        model.train()
        for features, labels in data:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(features), labels)
            accelerator.backward(loss)
            optimizer.step()
            progress_bar.update(1)
            time.sleep(0.05)
        scheduler.step()
        accelerator.save_state()

    accelerator.save_model(model, "model")
    accelerator.print("done")


if __name__ == "__main__":
    main()
