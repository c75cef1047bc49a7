"""Holds `train.py` to its promise: interrupted at the moments below, it ends with the weights of an undisturbed run.

    .venv/bin/python -m unittest -v        (after `sh setup.sh`; about twenty seconds)
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
# Small enough for a test, long enough to be caught in the middle.
OPTIONS = ["--epochs", "8", "--copies", "2", "--hidden", "64", "--batch-size", "50", "--save-every", "3", "--learning-rate", "0.01"]
STEPS_PER_EPOCH = 1437 * 2 // 50
TOTAL = 8 * STEPS_PER_EPOCH
# Only for a machine that hangs: nothing here waits for a length of time.
PATIENCE_SECS = 120


class Run:
    """The script in a folder of its own; `start` may be called again, to resume."""

    def __init__(self, folder, options=OPTIONS, lamp=True):
        self.folder, self.options = Path(folder), options
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("LAMP_")}
        # The sums of one thread are the same every time; those of several may not be on every machine.
        self.env.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
        self.progress_file = self.folder / "progress.jsonl"
        if lamp:
            self.env.update(LAMP_CHECKPOINT_DIR=str(self.checkpoints), LAMP_PROGRESS=str(self.progress_file))
            self.env.update(LAMP_OUTPUT_DIR=str(self.folder / "outputs"))
        self.process = None

    @property
    def checkpoints(self):
        return self.folder / "checkpoints"

    def start(self):
        command = [sys.executable, str(SCRIPT), *self.options]
        self.process = subprocess.Popen(command, cwd=self.folder, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return self

    def progress(self):
        if not self.progress_file.exists():
            return []
        whole_lines = self.progress_file.read_text().split("\n")[:-1]
        return [json.loads(line) for line in whole_lines]

    def wait_until(self, what, condition):
        deadline = time.monotonic() + PATIENCE_SECS
        while not condition():
            if self.process.poll() is not None:
                raise AssertionError(f"ended before {what}:\n{self.process.communicate()[0]}")
            if time.monotonic() > deadline:
                raise AssertionError(f"waited {PATIENCE_SECS} s for {what}")
            time.sleep(0.005)

    def at_step(self, step):
        self.wait_until(f"step {step}", lambda: any(line.get("step", 0) >= step for line in self.progress()))

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
        """The run that nobody disturbs, without Lamplighter."""
        with tempfile.TemporaryDirectory() as folder:
            code, output = Run(folder, lamp=False).start().end()
            assert code == 0, output
            cls.undisturbed = Run(folder).metrics()

    def run_in_new_folder(self, **options):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        run = Run(folder.name, **options)
        self.addCleanup(run.kill)
        return run

    def assert_ends_like_the_undisturbed(self, run):
        code, output = run.start().end()
        self.assertEqual(code, 0, output)
        metrics = run.metrics()
        self.assertGreater(metrics["resumed_from_step"], 0, output)
        self.assertEqual(metrics["weights_sha256"], self.undisturbed["weights_sha256"], output)
        self.assertEqual(metrics["history"], self.undisturbed["history"])
        return metrics

    def test_learns_to_read(self):
        self.assertGreater(self.undisturbed["accuracy"], 0.9)
        self.assertEqual(self.undisturbed["steps"], TOTAL)

    def test_sigterm_saves_and_exits_and_the_next_start_goes_on(self):
        run = self.run_in_new_folder().start()
        run.at_step(STEPS_PER_EPOCH + 10)
        run.process.send_signal(signal.SIGTERM)
        code, output = run.end()
        self.assertEqual(code, 143, output)
        saved = [line for line in run.progress() if "checkpoint" in line][-1]
        metrics = self.assert_ends_like_the_undisturbed(run)
        self.assertEqual(metrics["resumed_from_step"], saved["step"])
        self.assertTrue(run.progress()[-1]["done"])

    def test_sigusr1_saves_and_goes_on(self):
        run = self.run_in_new_folder().start()
        run.at_step(10)
        run.process.send_signal(signal.SIGUSR1)
        run.wait_until("the checkpoint", lambda: any("checkpoint" in line for line in run.progress()))
        code, output = run.end()
        self.assertEqual(code, 0, output)
        self.assertIn("(asked to save)", output)
        self.assertEqual(run.metrics()["weights_sha256"], self.undisturbed["weights_sha256"], "saving changed the training")

    def test_after_sigkill_it_goes_on_from_the_last_complete_checkpoint(self):
        run = self.run_in_new_folder().start()
        run.at_step(3 * STEPS_PER_EPOCH + 20)
        run.process.kill()
        run.end()
        metrics = self.assert_ends_like_the_undisturbed(run)
        self.assertEqual(metrics["resumed_from_step"] % (3 * STEPS_PER_EPOCH), 0)

    def test_a_damaged_checkpoint_is_passed_over(self):
        run = self.run_in_new_folder().start()
        run.at_step(6 * STEPS_PER_EPOCH + 10)
        run.process.send_signal(signal.SIGTERM)
        run.end()
        older, newest = sorted(run.checkpoints.glob("step-*.ckpt"))
        newest.write_bytes(newest.read_bytes()[:-1000])
        (run.checkpoints / ".tmp-step-99999999.ckpt").write_bytes(b"half")
        metrics = self.assert_ends_like_the_undisturbed(run)
        self.assertEqual(metrics["resumed_from_step"], int(older.stem.split("-")[1]))
        self.assertEqual(list(run.checkpoints.glob(".tmp-*")), [])

    def test_other_options_are_not_mixed_into_a_checkpoint(self):
        run = self.run_in_new_folder().start()
        run.at_step(10)
        run.process.send_signal(signal.SIGTERM)
        run.end()
        run.options = [*OPTIONS, "--seed", "1"]
        code, output = run.start().end()
        self.assertEqual(code, 1)
        self.assertIn("hint:", output)


if __name__ == "__main__":
    unittest.main()
