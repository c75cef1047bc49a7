#!/usr/bin/env python3
"""Trains a network that reads handwritten digits, and can be interrupted at any moment.

The data are the 1,797 real digits that scikit-learn brings along (8 x 8 pixels); a fifth of them is held out. Every
epoch shows the network each digit several times, each time shifted, turned and scaled a little. That is real work: about
half a second an epoch on two cores, and 60 epochs read about 99 % of the held-out digits.

It runs by itself (`python train.py`) and says more when Lamplighter runs it:

    LAMP_CHECKPOINT_DIR   where checkpoints go and are looked for        (default: checkpoints)
    LAMP_OUTPUT_DIR       where the model and its figures go             (default: outputs)
    LAMP_PROGRESS         a file that gets one JSON object a line        (default: none)

    SIGUSR1               save a checkpoint and go on
    SIGTERM               save a checkpoint and exit with code 143

A run that was interrupted goes on where its newest complete checkpoint stands, with the weights, the optimiser's
moments and the random numbers of that moment: it ends with the same weights as a run that nobody disturbed.
`test_train.py` holds it to that.
"""

import signal

# What the signals asked for. A handler only takes note; the training loop looks between two steps. They are set before
# the slow imports, because SIGUSR1 ends a process that has no handler for it yet.
WISHES = set()
for number in (signal.SIGUSR1, signal.SIGTERM):
    signal.signal(number, lambda number, _frame: WISHES.add(number))

import argparse  # noqa: E402
import hashlib  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import pickle  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
from pathlib import Path  # noqa: E402

import numpy as np  # noqa: E402
from scipy.ndimage import affine_transform  # noqa: E402
from sklearn.datasets import load_digits  # noqa: E402
from sklearn.metrics import accuracy_score, log_loss  # noqa: E402
from sklearn.model_selection import train_test_split  # noqa: E402
from sklearn.neural_network import MLPClassifier  # noqa: E402

# Raised when what a checkpoint holds changes its meaning; one with another number is not resumed from.
CHECKPOINT_FORMAT = 1
# One to go on from, and one to fall back to should the newest turn out to be damaged.
CHECKPOINTS_KEPT = 2
# Often enough for a smooth estimate of the time left, seldom enough to cost nothing.
STEPS_PER_PROGRESS_LINE = 10
# What a shell reports for a process that ended by SIGTERM: the work is not done, so it must not look like success.
EXIT_ON_SIGTERM = 128 + signal.SIGTERM


class Checkpoints:
    """A folder in which a file either is complete or does not exist.

    A file is written under another name, flushed to the disk and then renamed, which is one step. It begins with the
    SHA-256 of the rest, so that a file that was damaged later is found out and the one before it is taken.
    """

    def __init__(self, folder):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)

    def save(self, state):
        for leftover in self.folder.glob(".tmp-*"):  # Of a run that was killed in the middle of this function.
            leftover.unlink()
        body = pickle.dumps(state)
        path = self.folder / f"step-{state['step']:08d}.ckpt"
        tmp = self.folder / f".tmp-{path.name}"
        with open(tmp, "wb") as file:
            file.write(hashlib.sha256(body).digest() + body)
            file.flush()
            os.fsync(file.fileno())
        os.replace(tmp, path)
        for old in self._complete()[:-CHECKPOINTS_KEPT]:
            old.unlink()
        return path

    def newest(self):
        """The state in the newest checkpoint that is whole, or None."""
        for path in reversed(self._complete()):
            data = path.read_bytes()
            digest, body = data[:32], data[32:]
            if hashlib.sha256(body).digest() != digest:
                say(f"{path} is damaged, looking for the one before it")
                continue
            state = pickle.loads(body)  # Pickle can run code: only ever load checkpoints that you made yourself.
            if state["format"] != CHECKPOINT_FORMAT:
                say(f"{path} has format {state['format']}, this script reads {CHECKPOINT_FORMAT}: not resuming from it")
                continue
            return state
        return None

    def _complete(self):
        return sorted(self.folder.glob("step-*.ckpt"))


class Progress:
    """Tells whoever watches how far we are: one JSON object a line, appended to the file named by LAMP_PROGRESS."""

    def __init__(self, path):
        self.file = open(path, "a", encoding="utf-8", buffering=1) if path else None

    def tell(self, **fields):
        if self.file:
            self.file.write(json.dumps(fields) + "\n")


class Digits:
    """The real digits, and the distorted ones that each epoch is made of."""

    def __init__(self, args):
        self.args = args
        digits = load_digits()
        split = train_test_split(digits.images / 16.0, digits.target, test_size=0.2, stratify=digits.target, random_state=args.seed)
        self.images, test_images, self.labels, self.test_labels = split
        self.test_pixels = test_images.reshape(len(test_images), -1)
        # The last batch of an epoch would be a smaller one: it is left out, as is usual.
        self.steps_per_epoch = len(self.images) * args.copies // args.batch_size
        if self.steps_per_epoch == 0:
            sys.exit(f"error: --batch-size {args.batch_size} is more than an epoch has ({len(self.images) * args.copies})")

    def epoch(self, number):
        """The batches of one epoch. They follow from the seed and the epoch alone, so a resumed run sees the same."""
        rng = np.random.default_rng([self.args.seed, number])
        pixels = distorted(np.repeat(self.images, self.args.copies, axis=0), rng)
        labels = np.repeat(self.labels, self.args.copies)
        order = rng.permutation(len(labels))
        size = self.args.batch_size
        return [(pixels[rows], labels[rows]) for rows in (order[i * size : (i + 1) * size] for i in range(self.steps_per_epoch))]


def distorted(images, rng):
    """Every image shifted by up to a pixel, turned by up to 15 degrees and scaled by up to 10 %; one row of pixels each."""
    angles = np.deg2rad(rng.uniform(-15, 15, len(images)))
    scales = rng.uniform(0.9, 1.1, len(images))
    shifts = rng.uniform(-1, 1, (len(images), 2))
    centre = (np.array(images.shape[1:]) - 1) / 2
    result = np.empty_like(images)
    for i, image in enumerate(images):
        cos, sin = np.cos(angles[i]) * scales[i], np.sin(angles[i]) * scales[i]
        matrix = np.array([[cos, -sin], [sin, cos]])
        result[i] = affine_transform(image, matrix, centre - matrix @ centre + shifts[i], order=1)
    return result.reshape(len(images), -1)


class Training:
    """The loop, and the state that goes into a checkpoint."""

    def __init__(self, args):
        self.args = args
        self.checkpoints = Checkpoints(os.environ.get("LAMP_CHECKPOINT_DIR") or "checkpoints")
        self.progress = Progress(os.environ.get("LAMP_PROGRESS"))
        self.digits = Digits(args)
        self.total = args.epochs * self.digits.steps_per_epoch
        self.state = self.checkpoints.newest() or self.new_state()
        if self.state["settings"] != settings(args):
            sys.exit(
                f"error: the checkpoint in {self.checkpoints.folder} was made with {self.state['settings']}, not with {settings(args)}\n"
                f"hint: use the same options, or another LAMP_CHECKPOINT_DIR"
            )
        self.began_at = self.state["step"]

    def new_state(self):
        model = MLPClassifier(
            hidden_layer_sizes=tuple(self.args.hidden),
            learning_rate_init=self.args.learning_rate,
            batch_size=self.args.batch_size,
            # An object and not a number: scikit-learn seeds anew with a number at each step, but goes on with an
            # object, which the checkpoint then holds together with the weights and the optimiser.
            random_state=np.random.RandomState(self.args.seed),
        )
        return {"format": CHECKPOINT_FORMAT, "settings": settings(self.args), "step": 0, "model": model, "history": [], "seconds": 0.0}

    def run(self):
        say(f"{len(self.digits.labels)} digits to learn from, {len(self.digits.test_labels)} held out, {self.total} steps")
        first, done_of_first = divmod(self.began_at, self.digits.steps_per_epoch)
        say(f"resuming at step {self.began_at}, in epoch {first + 1}" if self.began_at else "starting from the beginning")
        self.tell(message="resumed" if self.began_at else "started")
        self.obey()
        for epoch in range(first, self.args.epochs):
            self.one_epoch(epoch, skip=done_of_first if epoch == first else 0)
            self.obey()
            if (epoch + 1) % self.args.save_every == 0 and epoch + 1 < self.args.epochs:
                self.save("every %d epochs" % self.args.save_every)
        self.save("the end")

    def one_epoch(self, epoch, skip):
        clock = time.monotonic()
        model = self.state["model"]
        for pixels, labels in self.digits.epoch(epoch)[skip:]:
            self.obey()
            model.partial_fit(pixels, labels, classes=np.arange(10))
            self.state["step"] += 1
            now = time.monotonic()
            self.state["seconds"] += now - clock
            clock = now
            if self.state["step"] % STEPS_PER_PROGRESS_LINE == 0:
                self.tell(loss=round(float(model.loss_), 5))
        probabilities = model.predict_proba(self.digits.test_pixels)
        accuracy = float(accuracy_score(self.digits.test_labels, probabilities.argmax(axis=1)))
        loss = float(log_loss(self.digits.test_labels, probabilities))
        self.state["history"].append({"epoch": epoch + 1, "loss": loss, "accuracy": accuracy})
        self.tell(loss=round(loss, 5), message=f"epoch {epoch + 1}/{self.args.epochs}, accuracy {accuracy:.3f}")
        say(f"epoch {epoch + 1:3}/{self.args.epochs}  loss {loss:.4f}  accuracy {accuracy:.4f}  ({self.state['seconds']:.1f} s)")

    def obey(self):
        if signal.SIGTERM in WISHES:
            self.save("asked to stop")
            say("stopped; start again to go on from here")
            sys.exit(EXIT_ON_SIGTERM)
        if signal.SIGUSR1 in WISHES:
            WISHES.discard(signal.SIGUSR1)
            self.save("asked to save")

    def save(self, why):
        path = self.checkpoints.save(self.state)
        self.tell(checkpoint=path.name)
        say(f"saved {path.name} ({why})")

    def tell(self, **fields):
        self.progress.tell(step=self.state["step"], total=self.total, **fields)

    def write_outputs(self, folder):
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "model.pickle").write_bytes(pickle.dumps(self.state["model"]))
        metrics = {
            **self.state["history"][-1],
            "steps": self.state["step"],
            "training_seconds": round(self.state["seconds"], 3),
            "resumed_from_step": self.began_at,
            "weights_sha256": weights_sha256(self.state["model"]),
            "history": self.state["history"],
        }
        (folder / "metrics.json").write_text(json.dumps(metrics, indent=2) + "\n", encoding="utf-8")
        self.tell(done=True)
        say(f"done: {metrics['accuracy']:.2%} of {len(self.digits.test_labels)} held-out digits read correctly")


def settings(args):
    """What has to be equal for a checkpoint to be worth going on from. `--epochs` may be raised."""
    return {name: value for name, value in vars(args).items() if name not in ("epochs", "save_every")}


def weights_sha256(model):
    digest = hashlib.sha256()
    for array in model.coefs_ + model.intercepts_:
        digest.update(array.tobytes())
    return digest.hexdigest()


def say(text):
    print(text, flush=True)


def arguments():
    parser = argparse.ArgumentParser(description="Trains a network that reads handwritten digits.")
    parser.add_argument("--epochs", type=int, default=60, help="passes over the training digits (default: %(default)s)")
    parser.add_argument("--copies", type=int, default=8, help="distorted copies of each digit in an epoch (default: %(default)s)")
    parser.add_argument("--hidden", type=int, nargs="+", default=[512, 256], help="sizes of the hidden layers (default: 512 256)")
    parser.add_argument("--batch-size", type=int, default=200, help="digits in a step (default: %(default)s)")
    parser.add_argument("--learning-rate", type=float, default=1e-3, help="(default: %(default)s)")
    parser.add_argument("--save-every", type=int, default=5, metavar="EPOCHS", help="epochs between checkpoints (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the split, the weights and the distortions (default: %(default)s)")
    args = parser.parse_args()
    for name in ("epochs", "copies", "batch_size", "save_every"):
        if getattr(args, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1")
    return args


def main():
    training = Training(arguments())
    training.run()
    training.write_outputs(os.environ.get("LAMP_OUTPUT_DIR") or "outputs")


if __name__ == "__main__":
    main()
