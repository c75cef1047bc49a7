"""Holds `train.py` to its promise: interrupted at any moment, it goes on where it stood. Runs on the CPU.

    .venv/bin/python -m unittest -v        (after `sh setup.sh`; about half a minute)
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent / "train.py"
OPTIONS = ["--epochs", "6", "--copies", "2", "--pixels", "12", "--width", "6", "--save-every", "0"]
STEPS_PER_EPOCH = 1437 * 2 // 256
# Only for a machine that hangs: nothing here waits for a length of time.
PATIENCE_SECS = 300


class Run:
    """The script in a folder of its own; `start` may be called again, to resume."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.progress_file = self.folder / "progress.jsonl"
        self.checkpoints = self.folder / "checkpoints"
        # The sums of one thread are the same every time; those of several may not be on every machine.
        self.env = dict(os.environ, OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="", LAMP_PROGRESS=str(self.progress_file))
        self.env.update(LAMP_CHECKPOINT_DIR=str(self.checkpoints), LAMP_OUTPUT_DIR=str(self.folder / "outputs"))
        self.process = None

    def start(self):
        command = [sys.executable, str(SCRIPT), *OPTIONS]
        self.process = subprocess.Popen(command, cwd=self.folder, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return self

    def step(self):
        text = self.progress_file.read_text() if self.progress_file.exists() else ""
        return max([json.loads(line)["step"] for line in text.split("\n")[:-1]], default=0)

    def at_step(self, step):
        deadline = time.monotonic() + PATIENCE_SECS
        while self.step() < step:
            if self.process.poll() is not None:
                raise AssertionError(f"ended before step {step}:\n{self.process.communicate()[0]}")
            if time.monotonic() > deadline:
                raise AssertionError(f"waited {PATIENCE_SECS} s for step {step}")
            time.sleep(0.01)

    def end(self):
        output, _ = self.process.communicate(timeout=PATIENCE_SECS)
        return self.process.returncode, output

    def metrics(self):
        return json.loads((self.folder / "outputs" / "metrics.json").read_text())

    def kill(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


class TrainTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            code, output = Run(folder).start().end()
            assert code == 0, output
            cls.undisturbed = Run(folder).metrics()

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.run_ = Run(folder.name)
        self.addCleanup(self.run_.kill)

    def assert_ends_like_the_undisturbed(self):
        code, output = self.run_.start().end()
        self.assertEqual(code, 0, output)
        metrics = self.run_.metrics()
        self.assertGreater(metrics["resumed_from_step"], 0, output)
        self.assertEqual(metrics["history"], self.undisturbed["history"])
        return metrics

    def test_sigterm_saves_and_exits_and_the_next_start_goes_on(self):
        self.run_.start().at_step(STEPS_PER_EPOCH + 5)
        self.run_.process.send_signal(signal.SIGTERM)
        code, output = self.run_.end()
        self.assertEqual(code, 143, output)
        stopped_at = self.run_.step()
        self.assertEqual(self.assert_ends_like_the_undisturbed()["resumed_from_step"], stopped_at)

    def test_after_sigkill_and_a_damaged_checkpoint_it_goes_on_from_the_one_before(self):
        self.run_.start().at_step(3 * STEPS_PER_EPOCH + 5)
        self.run_.process.kill()
        self.run_.end()
        older, newest = sorted(self.run_.checkpoints.glob("step-*.pt"))
        newest.write_bytes(newest.read_bytes()[:-1000])
        self.assertEqual(self.assert_ends_like_the_undisturbed()["resumed_from_step"], int(older.stem.split("-")[1]))


if __name__ == "__main__":
    unittest.main()
