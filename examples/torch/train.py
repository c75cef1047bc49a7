#!/usr/bin/env python3
"""Trains a residual network that reads handwritten digits, on a GPU if there is one, and can be interrupted at any moment.

The shape is the one to copy for your own PyTorch script: mixed precision, a checkpoint that holds everything (model,
optimiser, schedule, gradient scaler, random numbers), saved whole or not at all, on a signal or by the clock. The data
are the 1,797 real digits that scikit-learn brings along, enlarged to 32 x 32 pixels and distorted anew in every epoch, on
the GPU.

It runs by itself (`python train.py`) and says more when Lamplighter runs it:

    LAMP_CHECKPOINT_DIR   where checkpoints go and are looked for        (default: checkpoints)
    LAMP_OUTPUT_DIR       where the model and its figures go             (default: outputs)
    LAMP_PROGRESS         a file that gets one JSON object a line        (default: none)

    SIGUSR1               save a checkpoint and go on
    SIGTERM               save a checkpoint and exit with code 143
"""

import signal

# What the signals asked for. A handler only takes note; the training loop looks between two steps. They are set before
# the slow imports, because SIGUSR1 ends a process that has no handler for it yet.
WISHES = set()
for number in (signal.SIGUSR1, signal.SIGTERM):
    signal.signal(number, lambda number, _frame: WISHES.add(number))

import argparse  # noqa: E402
import json  # noqa: E402
import math  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
from pathlib import Path  # noqa: E402

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from sklearn.datasets import load_digits  # noqa: E402
from sklearn.model_selection import train_test_split  # noqa: E402
from torch import nn  # noqa: E402

CHECKPOINT_FORMAT = 1
# One to go on from, and one to fall back to should the newest turn out to be damaged.
CHECKPOINTS_KEPT = 2
# Often enough for a smooth estimate of the time left, seldom enough to cost nothing: reading the loss waits for the GPU.
STEPS_PER_PROGRESS_LINE = 10
# What a shell reports for a process that ended by SIGTERM: the work is not done, so it must not look like success.
EXIT_ON_SIGTERM = 128 + signal.SIGTERM


class Block(nn.Module):
    """Two convolutions around a shortcut."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, images):
        inner = F.relu(self.first_norm(self.first(images)))
        return F.relu(self.second_norm(self.second(inner)) + self.shortcut(images))


def network(width, dropout):
    blocks = [Block(1, width, 1), Block(width, 2 * width, 2), Block(2 * width, 4 * width, 2), Block(4 * width, 4 * width, 2)]
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(dropout), nn.Linear(4 * width, 10))


class Digits:
    """The real digits on the device, and the distorted ones that each epoch is made of."""

    def __init__(self, args, device):
        self.args, self.device = args, device
        digits = load_digits()
        split = train_test_split(digits.images / 16.0, digits.target, test_size=0.2, stratify=digits.target, random_state=args.seed)
        images, test_images, labels, test_labels = (torch.as_tensor(part, device=device) for part in split)
        self.images, self.test_images = enlarged(images, args.pixels), enlarged(test_images, args.pixels)
        self.labels, self.test_labels = labels.long(), test_labels.long()
        # The last batch of an epoch would be a smaller one: it is left out, as is usual.
        self.steps_per_epoch = len(self.labels) * args.copies // args.batch_size
        if self.steps_per_epoch == 0:
            sys.exit(f"error: --batch-size {args.batch_size} is more than an epoch has ({len(self.labels) * args.copies})")

    def epoch(self, number, skip):
        """The batches of one epoch after the first `skip`. They follow from the seed and the epoch alone."""
        # A generator of the CPU gives the same numbers on every device.
        random = torch.Generator().manual_seed(self.args.seed * 1_000_003 + number)
        order = torch.randperm(len(self.labels) * self.args.copies, generator=random)
        for step in range(self.steps_per_epoch):
            rows = order[step * self.args.batch_size : (step + 1) * self.args.batch_size] % len(self.labels)
            moves = torch.rand(4, len(rows), generator=random) * 2 - 1
            if step >= skip:
                rows = rows.to(self.device)
                yield distorted(self.images[rows], moves.to(self.device)), self.labels[rows]


def enlarged(images, pixels):
    return F.interpolate(images.float().unsqueeze(1), size=(pixels, pixels), mode="bilinear", align_corners=False)


def distorted(images, moves):
    """Every image turned by up to 15 degrees, scaled by up to 10 % and shifted by up to an eighth of its size."""
    angles, scales = moves[0] * math.radians(15), 1 + 0.1 * moves[1]
    cos, sin = angles.cos() * scales, angles.sin() * scales
    matrices = torch.stack([torch.stack([cos, -sin, moves[2] / 4], 1), torch.stack([sin, cos, moves[3] / 4], 1)], 1)
    return F.grid_sample(images, F.affine_grid(matrices, images.shape, align_corners=False), align_corners=False)


class Training:
    """The loop, and everything that goes into a checkpoint."""

    def __init__(self, args):
        self.args = args
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.checkpoints = Path(os.environ.get("LAMP_CHECKPOINT_DIR") or "checkpoints")
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        progress = os.environ.get("LAMP_PROGRESS")
        self.progress = open(progress, "a", encoding="utf-8", buffering=1) if progress else None

        torch.manual_seed(args.seed)
        torch.backends.cudnn.benchmark = True
        self.digits = Digits(args, self.device)
        self.total = args.epochs * self.digits.steps_per_epoch
        self.model = network(args.width, args.dropout).to(self.device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=args.learning_rate, weight_decay=0.01)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, args.learning_rate, total_steps=self.total + 1)
        # Half precision needs a GPU; bfloat16, where the GPU has it, needs no scaling of the gradients.
        self.amp = self.device.type == "cuda"
        self.half = torch.bfloat16 if self.amp and torch.cuda.is_bf16_supported() else torch.float16
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.amp and self.half == torch.float16)
        self.step, self.seconds, self.history = 0, 0.0, []
        self.began_at = self.resume()

    def state(self):
        cuda = torch.cuda.get_rng_state_all() if self.amp else []
        return {
            "format": CHECKPOINT_FORMAT,
            "settings": settings(self.args),
            "step": self.step,
            "seconds": self.seconds,
            "history": self.history,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            "scaler": self.scaler.state_dict(),
            "random": {"cpu": torch.get_rng_state(), "cuda": cuda},
        }

    def resume(self):
        """Takes up the newest checkpoint that can be read, and gives its step; 0 when there is none."""
        for path in sorted(self.checkpoints.glob("step-*.pt"), reverse=True):
            try:
                state = torch.load(path, map_location="cpu", weights_only=True)
            except Exception as error:  # A damaged file raises one of many.
                say(f"{path} cannot be read ({error.__class__.__name__}), looking for the one before it")
                continue
            if state["format"] != CHECKPOINT_FORMAT:
                say(f"{path} has format {state['format']}, this script reads {CHECKPOINT_FORMAT}: not resuming from it")
                continue
            if state["settings"] != settings(self.args):
                sys.exit(
                    f"error: {path} was made with {state['settings']}, not with {settings(self.args)}\n"
                    f"hint: use the same options, or another LAMP_CHECKPOINT_DIR"
                )
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.schedule.load_state_dict(state["schedule"])
            if self.scaler.is_enabled() and state["scaler"]:
                self.scaler.load_state_dict(state["scaler"])
            torch.set_rng_state(state["random"]["cpu"])
            # A checkpoint of a machine with another number of GPUs, or with none, is as good; only dropout then differs.
            if self.amp and len(state["random"]["cuda"]) == torch.cuda.device_count():
                torch.cuda.set_rng_state_all(state["random"]["cuda"])
            self.step, self.seconds, self.history = state["step"], state["seconds"], state["history"]
            return self.step
        return 0

    def save(self, why):
        for leftover in self.checkpoints.glob(".tmp-*"):  # Of a run that was killed in the middle of this function.
            leftover.unlink()
        path = self.checkpoints / f"step-{self.step:08d}.pt"
        tmp = self.checkpoints / f".tmp-{path.name}"
        with open(tmp, "wb") as file:
            torch.save(self.state(), file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(tmp, path)
        for old in sorted(self.checkpoints.glob("step-*.pt"))[:-CHECKPOINTS_KEPT]:
            old.unlink()
        self.tell(checkpoint=path.name)
        say(f"saved {path.name} ({why})")

    def obey(self):
        if signal.SIGTERM in WISHES:
            self.save("asked to stop")
            say("stopped; start again to go on from here")
            sys.exit(EXIT_ON_SIGTERM)
        if signal.SIGUSR1 in WISHES:
            WISHES.discard(signal.SIGUSR1)
            self.save("asked to save")

    def run(self):
        where = torch.cuda.get_device_name() if self.amp else f"the CPU, {torch.get_num_threads()} threads"
        parameters = sum(weight.numel() for weight in self.model.parameters())
        say(f"{len(self.digits.labels)} digits to learn from, {self.total} steps, {parameters:,} parameters, on {where}")
        first, done_of_first = divmod(self.began_at, self.digits.steps_per_epoch)
        say(f"resuming at step {self.began_at}, in epoch {first + 1}" if self.began_at else "starting from the beginning")
        self.tell(message="resumed" if self.began_at else "started")
        self.obey()
        saved = time.monotonic()
        for epoch in range(first, self.args.epochs):
            self.one_epoch(epoch, skip=done_of_first if epoch == first else 0)
            self.obey()
            if time.monotonic() - saved >= self.args.save_every and epoch + 1 < self.args.epochs:
                self.save(f"every {self.args.save_every:g} s")
                saved = time.monotonic()
        self.save("the end")

    def one_epoch(self, epoch, skip):
        clock = time.monotonic()
        self.model.train()
        for images, labels in self.digits.epoch(epoch, skip):
            self.obey()
            with torch.autocast(self.device.type, dtype=self.half, enabled=self.amp):
                loss = F.cross_entropy(self.model(images), labels)
            self.optimizer.zero_grad(set_to_none=True)
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.schedule.step()
            self.step += 1
            now = time.monotonic()
            self.seconds, clock = self.seconds + now - clock, now
            if self.step % STEPS_PER_PROGRESS_LINE == 0:
                self.tell(loss=round(loss.item(), 5))
        accuracy, loss = self.evaluate()
        self.history.append({"epoch": epoch + 1, "loss": loss, "accuracy": accuracy})
        self.tell(loss=round(loss, 5), message=f"epoch {epoch + 1}/{self.args.epochs}, accuracy {accuracy:.3f}")
        say(f"epoch {epoch + 1:3}/{self.args.epochs}  loss {loss:.4f}  accuracy {accuracy:.4f}  ({self.seconds:.1f} s)")

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        with torch.autocast(self.device.type, dtype=self.half, enabled=self.amp):
            answers = self.model(self.digits.test_images)
        right = (answers.argmax(1) == self.digits.test_labels).float().mean().item()
        return right, F.cross_entropy(answers.float(), self.digits.test_labels).item()

    def tell(self, **fields):
        if self.progress:
            self.progress.write(json.dumps({"step": self.step, "total": self.total, **fields}) + "\n")

    def write_outputs(self, folder):
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        torch.save(self.model.state_dict(), folder / "model.pt")
        metrics = {
            **self.history[-1],
            "steps": self.step,
            "training_seconds": round(self.seconds, 3),
            "resumed_from_step": self.began_at,
            "device": str(self.device),
            "history": self.history,
        }
        (folder / "metrics.json").write_text(json.dumps(metrics, indent=2) + "\n", encoding="utf-8")
        self.tell(done=True)
        say(f"done: {metrics['accuracy']:.2%} of {len(self.digits.test_labels)} held-out digits read correctly")


def settings(args):
    """What has to be equal for a checkpoint to be worth going on from. The schedule ends with the epochs."""
    return {name: value for name, value in vars(args).items() if name != "save_every"}


def say(text):
    print(text, flush=True)


def arguments():
    parser = argparse.ArgumentParser(description="Trains a residual network that reads handwritten digits.")
    parser.add_argument("--epochs", type=int, default=60, help="passes over the training digits (default: %(default)s)")
    parser.add_argument("--copies", type=int, default=16, help="distorted copies of each digit in an epoch (default: %(default)s)")
    parser.add_argument("--pixels", type=int, default=32, help="height and width that the digits are enlarged to (default: %(default)s)")
    parser.add_argument("--width", type=int, default=64, help="channels of the first layer (default: %(default)s)")
    parser.add_argument("--dropout", type=float, default=0.1, help="(default: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=256, help="digits in a step (default: %(default)s)")
    parser.add_argument("--learning-rate", type=float, default=3e-3, help="the highest of the schedule (default: %(default)s)")
    parser.add_argument("--save-every", type=float, default=60, metavar="SECONDS", help="between checkpoints (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the split, the weights and the distortions (default: %(default)s)")
    args = parser.parse_args()
    for name in ("epochs", "copies", "pixels", "width", "batch_size"):
        if getattr(args, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1")
    return args


def main():
    training = Training(arguments())
    training.run()
    training.write_outputs(os.environ.get("LAMP_OUTPUT_DIR") or "outputs")


if __name__ == "__main__":
    main()
