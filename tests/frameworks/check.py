#!/usr/bin/env python3
"""Runs stock scripts of real frameworks under `lamp`: `just frameworks`. It needs a built `lamp` and what the frameworks need (6 GB).

    python3 tests/frameworks/check.py [--lamp target/debug/lamp] [--only NAME,NAME] [--jobs 4] [--write docs/frameworks.md]

Each folder here is one script, as its framework's own documentation shows it. For each, five things must hold:

    init       `lamp init` writes a job file that is used as it is; it names the folder, the outputs and the progress.
    run        `lamp run` ends in order, nothing is judged idle or stalled, and `lamp logs -f` shows a line while the job still runs.
    notice     it is interrupted by a notice, and the second attempt goes on from a whole checkpoint, by the script's own words.
    cut        the same without a notice.
    rehearse   `lamp rehearse` proves both.

The last line counts them; the exit code is 1 if one failed. What must never live here: a limit of time that a busy machine would fail.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
TREE = HERE.parent.parent
CASES = ["init", "run", "notice", "cut", "rehearse"]

# Longer than any case needs, on a machine that does much else: what still runs then is a failure, and is ended.
PATIENCE_SECS = 480


@dataclass
class Framework:
    name: str
    environment: str
    packages: list
    path: str
    resumed: str
    """What the script prints when it goes on; the group is where."""
    begins: str
    """What it prints when it begins from nothing, or that it began at all."""
    outputs: tuple = ()
    pattern: str = None
    after: str = "20s"
    """How long it runs before it is interrupted: three saves or more."""
    label: str = ""


FRAMEWORKS = [
    Framework("sklearn_joblib", "light", ["scikit-learn", "joblib"], "models", r"resumed at epoch (\d+)", "starting from scratch", ("digits.joblib",), r"Epoch (\d+)", "12s", "scikit-learn with joblib"),
    Framework("xgboost_checkpoint", "light", ["xgboost-cpu"], "checkpoints", r"resuming from model_(\d+)", "training from scratch", ("model.json",), r"^\[(\d+)\]", "14s", "XGBoost, TrainingCheckPoint"),
    Framework("torch_plain", "torch", ["torch"], "checkpoints", r"resumed from \S+ at epoch (\d+)", "training from scratch", ("model.pt",), r"epoch (\d+)", label="PyTorch, torch.save"),
    Framework("hf_trainer", "torch", ["transformers", "accelerate"], "results", r"resuming from \S+checkpoint-(\d+)", "training from scratch", ("results/model.safetensors",), None, "30s", "Hugging Face Trainer, save_total_limit=2"),
    Framework("lightning_fit", "torch", ["lightning"], "lightning_logs", r"training begins at epoch \d+, step ([1-9]\d*)", "training begins at epoch", ("autoencoder.ckpt",), None, "30s", "Lightning, lightning_logs and save_last"),
    Framework("accelerate_launch", "torch", ["accelerate"], "output/checkpoints", r"resumed from checkpoint_(\d+)", "training from scratch", ("model",), None, "30s", "Accelerate, accelerate launch"),
    Framework("torchrun_ddp", "torch", ["torch"], "checkpoints", r"Resuming training from snapshot at Epoch (\d+)", "Epoch", ("snapshot.pt",), r"Epoch (\d+)", "35s", "torchrun, two processes with gloo"),
    Framework("ultralytics_yolo", "torch", ["ultralytics"], "runs", r"Resuming training \S+ from epoch (\d+)", "training from scratch", ("runs/detect/train/weights/best.pt",), None, "30s", "Ultralytics"),
    Framework("deepspeed_layout", "torch", ["torch"], "ds_checkpoints", r"resuming from global_step(\d+)", "training from scratch", ("pytorch_model.bin",), r"step=(\d+)", "25s", "DeepSpeed's layout, latest"),
    Framework("safetensors_shards", "torch", ["transformers", "safetensors"], "output", r"loading step_(\d+)", "training from scratch", (), None, "30s", "safetensors in shards"),
    Framework("wandb_tensorboard", "torch", ["wandb", "tensorboard"], "exp/run1", r"resumed from epoch_(\d+)", "training from scratch", (), r"Epoch: (\d+)", "25s", "wandb and TensorBoard among the checkpoints"),
    Framework("keras_backup", "keras", ["keras", "jax"], "backup", r"training begins at epoch (?!1\b)(\d+)", "training begins at epoch 1", ("model.keras",), r"^Epoch (\d+)/\d+", "25s", "Keras, BackupAndRestore"),
    Framework("orbax_manager", "keras", ["orbax-checkpoint", "jax"], "checkpoints", r"restored step (\d+)", "starting from scratch", (), r"step (\d+)", "20s", "Orbax, CheckpointManager"),
]


class Wrong(Exception):
    """What did not hold, in a sentence."""


def check(holds, text):
    if not holds:
        raise Wrong(text)


def environments():
    """Where the environments are made and kept: with the build, unless a folder is named that has them."""
    return Path(os.environ.get("LAMP_TEST_FRAMEWORKS") or Path(os.environ.get("CARGO_TARGET_DIR", TREE / "target")) / "frameworks")


def environment(kind):
    """The folder with the programs of an environment; made if it is not there."""
    place = environments() / kind
    done = place / "made-for"
    wanted = (HERE / f"requirements-{kind}.txt").read_text()
    if os.environ.get("LAMP_TEST_FRAMEWORKS") or (done.is_file() and done.read_text() == wanted):
        return place / "bin"
    shutil.rmtree(place, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
    pip = [str(place / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "-r", str(HERE / f"requirements-{kind}.txt")], check=True)
    done.write_text(wanted)
    return place / "bin"


def versions(bin_folder, packages):
    code = "import importlib.metadata as m, json, sys; print(json.dumps([m.version(n) for n in sys.argv[1:]]))"
    said = subprocess.run([str(bin_folder / "python"), "-c", code, *packages], capture_output=True, text=True)
    return " ".join(f"{n} {v}" for n, v in zip(packages, json.loads(said.stdout))) if said.returncode == 0 else "?"


class Bench:
    """One case of one framework: its script in a folder, and a state of its own."""

    def __init__(self, lamp, framework, root):
        self.lamp_program, self.framework, self.root = lamp, framework, root
        self.work = root / "work"
        shutil.copytree(HERE / framework.name, self.work, ignore=shutil.ignore_patterns("__pycache__"))
        bin_folder = environment(framework.environment)
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("LAMP_") and name != "PYTHONUNBUFFERED"}
        # An environment that was activated, as people have it; and one thread for each process, so that many run side by side.
        self.environment |= {"PATH": f"{bin_folder}:{os.environ['PATH']}", "VIRTUAL_ENV": str(bin_folder.parent), "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
        self.environment |= {"HOME": str(root / "home"), "TMPDIR": str(root / "tmp"), "LAMP_LOG": "info"}
        for variable in ("STATE", "CACHE", "CONFIG"):
            self.environment[f"XDG_{variable}_HOME"] = str(root / variable.lower())
        for folder in ("home", "tmp"):
            (root / folder).mkdir()

    def lamp(self, *words, within=PATIENCE_SECS):
        """Gives the exit code and all that was printed, to both."""
        process = self.start(*words)
        try:
            out, err = process.communicate(timeout=within)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            raise Wrong(f"`lamp {' '.join(words)}` still ran after {within} s: {tail(out + err)}") from None
        return process.returncode, out, err

    def start(self, *words):
        return subprocess.Popen([self.lamp_program, *words], cwd=self.work, env=self.environment, text=True, errors="replace",
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip

    def jobs(self):
        folder = self.root / "state" / "lamplighter" / "jobs"
        return sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime) if folder.is_dir() else []

    def job(self):
        jobs = [path for path in self.jobs() if path.is_dir() and (path / "spec.json").is_file()]
        return jobs[-1] if jobs else None

    def events(self, attempt):
        events = []
        for path in sorted((self.job() / "attempts" / f"{attempt:04}" / "events").glob("**/*")):
            if path.is_file():
                text = path.read_bytes()
                if path.suffix == ".zst":
                    continue
                events += [json.loads(line) for line in text.decode(errors="replace").splitlines() if line.startswith("{")]
        return events

    def log(self, attempt):
        code, out, err = self.lamp("logs", self.job().name, "--attempt", str(attempt))
        return out + err

    def end(self):
        """Nothing of a case stays behind, even if it failed."""
        for path in self.jobs():
            if path.is_dir() and not (path / "receipt.json").is_file():
                self.start("cancel", path.name).communicate(timeout=60)


def tail(text, lines=12):
    return "\n      ".join(["", *text.replace("\r", "\n").splitlines()[-lines:]])


def init(bench):
    framework = bench.framework
    code, out, err = bench.lamp("init")
    check(code == 0, f"`lamp init` ended with {code}: {tail(out + err)}")
    code, out, err = bench.lamp("check", "-o", "json")
    check(code == 0, f"`lamp check` ended with {code}: {tail(out + err)}")
    spec = json.loads(out)["spec"]
    path = (spec.get("checkpoint") or {}).get("path")
    check(path == framework.path, f"checkpoint.path is {path!r}, not {framework.path!r}")
    for output in framework.outputs:
        check(any(matches(pattern, output) for pattern in spec["outputs"]), f"outputs are {spec['outputs']}, without {output}")
    pattern = spec["watch"].get("log_pattern")
    check(pattern == framework.pattern, f"log_pattern is {pattern!r}, not {framework.pattern!r}")
    return f"path {path}"


def matches(pattern, path):
    as_regex = re.escape(pattern).replace(r"\*\*/", "(.*/)?").replace(r"\*", "[^/]*")
    return re.fullmatch(as_regex, path) is not None


def calm(bench, attempts):
    """No verdict of idleness or stall was ever told."""
    for attempt in range(1, attempts + 1):
        for event in bench.events(attempt):
            reason = event.get("reason") or {}
            check(reason.get("verdict") not in ("idle", "stalled"), f"it was judged: {reason}")


def run(bench):
    init(bench)
    code, out, err = bench.lamp("run", "-d")
    check(code == 0, f"`lamp run -d` ended with {code}: {tail(out + err)}")
    name = bench.job().name
    seen = threading.Event()
    lines, early = [], []
    follow = bench.start("logs", "-f", name)

    def read():
        for line in follow.stdout:
            lines.append(line)
            if re.search(bench.framework.begins, line) and not seen.is_set():
                # It is worth something only while the job still runs.
                early.append(not (bench.job() / "receipt.json").is_file())
                seen.set()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    receipt = bench.job() / "receipt.json"
    until = time.monotonic() + PATIENCE_SECS
    while not receipt.is_file() and time.monotonic() < until:
        time.sleep(0.5)
    reader.join(timeout=60)
    follow.kill()
    follow.communicate()
    check(receipt.is_file(), f"the job still ran after {PATIENCE_SECS} s: {tail(''.join(lines))}")
    receipt = json.loads(receipt.read_text())
    check(receipt["outcome"] == "succeeded", f"the receipt says {receipt['outcome']}: {tail(''.join(lines))}")
    check(len(receipt["attempts"]) == 1, f"it took {len(receipt['attempts'])} attempts")
    check(early == [True], f"`lamp logs -f` showed no line while the job ran, {len(lines)} in all")
    calm(bench, 1)
    return "succeeded"


def rehearsed(bench, notice):
    """Gives the exit code, the report and what was said. Later again, while a busy machine has kept no save by the interruption."""
    after = int(bench.framework.after.removesuffix("s"))
    for secs in (after, 2 * after, 4 * after):
        code, out, err = bench.lamp("rehearse", "--interrupt-after", f"{secs}s", "--notice", notice, "--to-end", "-o", "json")
        try:
            report = json.loads(out)
        except ValueError:
            raise Wrong(f"`lamp rehearse` ended with {code}: {tail(out + err)}") from None
        if not any("found no checkpoint" in check["text"] for check in report["checks"]):
            break
    return code, report, err


def interrupted(bench, notice):
    """Gives whether the rehearsal proved it, and where the script's own words say that it went on."""
    init(bench)
    code, report, err = rehearsed(bench, notice)
    failed = [f"{c['name']}: {c['text']}" for c in report["checks"] if not c["passed"]]
    receipt = report.get("receipt") or {}
    attempts = receipt.get("attempts") or []
    check(len(attempts) >= 2, f"there was no second attempt: {failed} {tail(err)}")
    second = bench.log(2)
    where = re.search(bench.framework.resumed, second)
    check(where, f"the second attempt did not go on: {failed} {tail(second, 8)}")
    check(receipt["outcome"] == "succeeded", f"the receipt says {receipt['outcome']}: {tail(second)}")
    check(attempts[1].get("resumed_from"), "the receipt names no checkpoint")
    calm(bench, 2)
    proof = next((c["text"] for c in report["checks"] if c["name"] == "went_on"), "")
    return (code == 0, failed, proof), f"from {where.group(1)}"


PLAYED = {"init": init, "run": run}


def play(lamp, framework, keep):
    """All cases of one framework; gives its row."""
    row = {"framework": framework.label or framework.name, "name": framework.name, "version": versions(environment(framework.environment), framework.packages)}
    proofs = []

    def case(name, act):
        root = Path(tempfile.mkdtemp(prefix=f"{framework.name}-{name}-", dir=keep))
        bench = Bench(lamp, framework, root)
        try:
            row[name] = f"ok: {act(bench)}"
        except Wrong as wrong:
            row[name] = f"FAILED: {wrong}"
        except Exception:
            row[name] = f"FAILED: {traceback.format_exc(limit=3)}"
        finally:
            bench.end()
        print(f"{framework.name:20} {name:9} {row[name]}", flush=True)

    def ended(notice):
        def act(bench):
            proof, where = interrupted(bench, notice)
            proofs.append((notice, proof))
            return where
        return act

    case("init", init)
    if row["init"].startswith("ok"):
        case("run", run)
        case("notice", ended("30s"))
        case("cut", ended("0s"))
    else:
        row |= {name: "FAILED: there is no job file" for name in ("run", "notice", "cut")}
    unproved = [f"--notice {notice}: {failed}" for notice, (proved, failed, _) in proofs if not proved]
    if len(proofs) == 2 and not unproved:
        row["rehearse"] = f"ok: {proofs[0][1][2]}"
    else:
        row["rehearse"] = f"FAILED: {'; '.join(unproved) or 'there was nothing to prove'}"
    print(f"{framework.name:20} {'rehearse':9} {row['rehearse']}", flush=True)
    return row


def table(rows):
    lines = ["|Framework|Version|init|run|notice|no notice|rehearse|", "|---|---|---|---|---|---|---|"]
    for row in rows:
        cells = ["ok" if row[name].startswith("ok") else "**no**" for name in CASES]
        lines.append("|" + "|".join([row["framework"], row["version"], *cells]) + "|")
    return "\n".join(lines)


def write(page, rows):
    begin, end = "<!-- frameworks: written by `just frameworks` -->", "<!-- end -->"
    text = page.read_text()
    before, rest = text.split(begin)
    page.write_text(f"{before}{begin}\n\n{table(rows)}\n\n{end}{rest.split(end)[1]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lamp", default=str(Path(os.environ.get("CARGO_TARGET_DIR", TREE / "target")) / "debug" / "lamp"))
    parser.add_argument("--only", default="", help="names of folders, parted by commas")
    parser.add_argument("--jobs", type=int, default=3, help="frameworks side by side")
    parser.add_argument("--write", type=Path, help="the page whose table is written anew")
    parser.add_argument("--json", type=Path, help="where the results go as JSON")
    parser.add_argument("--keep", type=Path, help="a folder for all that the cases leave")
    args = parser.parse_args()
    names = [name for name in args.only.split(",") if name]
    chosen = [framework for framework in FRAMEWORKS if not names or framework.name in names]
    if unknown := set(names) - {framework.name for framework in chosen}:
        sys.exit(f"error: no framework {', '.join(sorted(unknown))}")
    for kind in dict.fromkeys(framework.environment for framework in chosen):
        environment(kind)
    if args.keep:
        args.keep.mkdir(parents=True, exist_ok=True)
    keep = args.keep or Path(tempfile.mkdtemp(prefix="frameworks-"))
    lamp = str(Path(args.lamp).resolve())
    with ThreadPoolExecutor(args.jobs) as pool:
        rows = list(pool.map(lambda framework: play(lamp, framework, keep), chosen))
    if not args.keep:
        shutil.rmtree(keep, ignore_errors=True)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=2) + "\n")
    if args.write:
        write(args.write, rows)
    print(table(rows))
    results = [row[name].startswith("ok") for row in rows for name in CASES]
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
