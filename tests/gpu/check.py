#!/usr/bin/env python3
"""Holds the real programs against a real NVIDIA driver: `just gpu-check`, on a machine with a GPU, PyTorch and scikit-learn.

    python3 tests/gpu/check.py [--programs target/release] [--keep FOLDER] [NAME]...

Each check prints a line, `ok` or `FAILED`, with what it saw; the last line counts them, and the exit code is 1 if one
failed. All of them take about seven minutes. Everything is written to a folder of its own; no setting of the GPU is
touched. tests/README.md says what was seen, and on which card. `sandbox` is for root, libseccomp and Linux 6.3 or later.

What must never live here: a limit of time that a busy machine would fail.
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
TREE = HERE.parent.parent
SCRIPTS = HERE / "scripts.py"

# Longer than any check needs: what is still there then is a failure, and is killed.
PATIENCE_SECS = 240


class Bench:
    """A folder with a state, a cache and a configuration of its own, and the programs."""

    def __init__(self, programs, folder):
        self.programs, self.folder = programs, folder
        self.environment = {**os.environ, "NO_COLOR": "1", "LAMP_LOG": "info"}
        for variable in ("STATE", "CACHE", "CONFIG"):
            self.environment[f"XDG_{variable}_HOME"] = str(folder / variable.lower())

    def start(self, program, *words):
        """A program of ours by its name, or another by its whole path."""
        return subprocess.Popen(
            [str(self.programs / program), *map(str, words)],
            cwd=self.folder, env=self.environment, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def run(self, program, *words):
        """Gives the exit code and all that was printed."""
        return ended(self.start(program, *words))

    def lamp(self, *words):
        return self.run("lamp", *words)

    def script(self, name):
        return [sys.executable, str(SCRIPTS), name]

    def hasty(self, name, *options):
        """`lamp-agent run` of that script, with the shortest idle window that the rule knows."""
        words = ["--idle", "15s", "--idle-grace", "0s", "--name", name, "--state", self.folder / name, *options]
        return self.run("lamp-agent", "run", *words, "--", *self.script(name))

    def job(self, name, command, text="", gpus="at least 1GiB", workdir=None):
        if workdir is None:
            workdir = self.folder / f"{name}-work"
            workdir.mkdir(exist_ok=True)
        path = self.folder / f"{name}.toml"
        machine = f'[machine]\ncloud = "local"\ngpus = "{gpus}"\n'
        path.write_text(f"name = {json.dumps(name)}\ncommand = {json.dumps(command)}\nworkdir = {json.dumps(str(workdir))}\n{machine}{text}")
        return path

    def status(self, name):
        """The newest heartbeat of a run, of a job or of an agent alone."""
        found = [path for path in self.folder.rglob("status.json") if f"/{name}-" in str(path) or f"/{name}/" in str(path)]
        return json.loads(max(found, key=lambda path: path.stat().st_mtime).read_text()) if found else None


def ended(process):
    try:
        text, _ = process.communicate(timeout=PATIENCE_SECS)
    except subprocess.TimeoutExpired:
        process.kill()
        text, _ = process.communicate()
        return None, text + f"\n(killed after {PATIENCE_SECS} s)"
    return process.returncode, text


class Wrong(Exception):
    """What a check expected and did not see."""


def see(what, condition, text=""):
    if not condition:
        raise Wrong(what + ("\n" + text[-3000:] if text else ""))


def last(text, number=4):
    return "\n       ".join(line for line in text.strip().splitlines()[-number:])


def driver(fields):
    """What nvidia-smi says of GPU 0, which asks the same driver by another program."""
    line = subprocess.run(
        ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits", "--id=0"], capture_output=True, text=True, check=True
    ).stdout
    return [word.strip() for word in line.split(",")]


class Beside(threading.Thread):
    """Reads what nvidia-smi and the newest heartbeat say, every second, until told to stop."""

    def __init__(self, bench, name):
        super().__init__(daemon=True)
        self.bench, self.name, self.over, self.rows = bench, name, threading.Event(), []
        self.start()

    def run(self):
        while not self.over.wait(1):
            util, used, watts = map(float, driver("utilization.gpu,memory.used,power.draw"))
            status = self.bench.status(self.name)
            gpu = (status or {}).get("gpus", [])
            if gpu:
                self.rows.append((status["at"], (util, used, watts), tuple(gpu[0][key] for key in ("util_percent", "memory_used_mib", "power_watts"))))

    def stop(self):
        self.over.set()
        self.join()
        return self.rows


def check_driver(bench):
    """`lamp doctor` names the card, and `lamp check` accepts a job for its model."""
    name, version = driver("name,driver_version")
    _, text = bench.lamp("doctor")
    see("doctor does not name the card and its driver", name in text and version in text, text)
    return next(line.strip() for line in text.splitlines() if name in line)


def check_preflight(bench):
    """A job for this machine begins; one for another card, more cards, more memory or a newer CUDA does not."""
    (memory,) = driver("memory.total")
    gib = int(float(memory) / 1024)
    number = len(subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True, check=True).stdout.splitlines())
    code, text = bench.lamp("run", bench.job("fits", ["sh", "-c", "echo began"], 'cuda = "11.8"\n', gpus=f"{number} x at least {int(gib * 0.95)}GiB"))
    see("a job that fits did not run", code == 0 and "began" in text, text)
    lines = []
    for name, gpus, more in [
        ("model", "T4:1", ""),
        ("number", f"{number + 1} x at least 1GiB", ""),
        ("memory", f"at least {gib * 2}GiB", ""),
        ("cuda", "at least 1GiB", 'cuda = "99.0"\n'),
    ]:
        code, text = bench.lamp("run", bench.job(name, ["sh", "-c", "echo be''gan"], more, gpus=gpus))
        see(f"{name}: it was started, or ended otherwise", code == 106 and "the job asks for" in text and "began" not in text, text)
        lines.append(f"{name}: exit {code}: " + next(line.strip() for line in text.splitlines() if "the job asks for" in line))
    return "\n       ".join(lines)


def check_train(bench):
    """examples/torch trains to its end; what the agent measures is what nvidia-smi measures."""
    checkpoint = '[checkpoint]\npath = "checkpoints"\ninterval = "10s"\nsignal = "SIGUSR1"\n'
    command = [sys.executable, "train.py", "--epochs", "40", "--save-every", "10"]
    beside = Beside(bench, "train")
    code, text = bench.lamp("run", bench.job("train", command, checkpoint, workdir=TREE / "examples" / "torch"))
    rows = beside.stop()
    see("the training did not succeed", code == 0 and "succeeded" in text, text)
    return compared(rows) + "\n       " + last(text, 8)


def compared(rows):
    """Means over the middle of a run, and the largest difference of what stands still."""
    busy = [row for row in rows if row[1][0] > 5]
    busy = busy[3:-3]
    see("too few moments of a busy GPU were seen", len(busy) >= 5, repr(rows))
    theirs, ours = ([statistics.mean(row[which][at] for row in busy) for at in range(3)] for which in (1, 2))
    text = "over {} s: {} nvidia-smi {:.1f} %, {:.0f} MiB, {:.0f} W; agent {:.1f} %, {:.0f} MiB, {:.0f} W".format(len(busy), driver("name")[0], *theirs, *ours)
    # A heartbeat is up to five seconds old, so moments differ and means do not.
    see("utilisation differs", abs(theirs[0] - ours[0]) <= 10, text)
    see("memory differs", abs(theirs[1] - ours[1]) <= 0.02 * theirs[1] + 64, text)
    see("power differs", abs(theirs[2] - ours[2]) <= 0.15 * theirs[2] + 10, text)
    return text


def check_rehearse(bench):
    """A notice, a save, the power cut in the middle of CUDA work, and the next attempt goes on where it stood."""
    checkpoint = '[checkpoint]\npath = "checkpoints"\ninterval = "10s"\nsignal = "SIGUSR1"\n'
    command = [sys.executable, "train.py", "--epochs", "400", "--save-every", "10"]
    code, text = bench.lamp("rehearse", bench.job("rehearsed", command, checkpoint, workdir=TREE / "examples" / "torch"))
    see("it was not proved", code == 0 and "proved" in text, text)
    return last(text, 9)


def check_held(bench):
    """A notebook that was forgotten: 8 GiB of GPU memory held, nothing done. It is idle, whatever the memory says."""
    began = time.monotonic()
    code, text = bench.hasty("held")
    took = time.monotonic() - began
    see("it was not ended as idle", code == 124 and "idle" in text, text)
    return f"ended after {took:.0f} s\n       " + last(text, 2)


def check_bursts(bench):
    """A fifteenth of a second of work each second, which single readings miss: it is never idle."""
    beside = Beside(bench, "bursts")
    code, text = bench.hasty("bursts", "--max-runtime", "100s", "--grace", "2s")
    rows = beside.stop()
    seen = [row[2][0] for row in rows][5:-3]
    see("it was not left alone to its limit", code == 124 and "idle" not in last(text, 3), text)
    # Its processor works too, more than what counts as quiet: that alone would have kept it.
    see("a reading calls it quiet", min(seen) > 1, repr(seen))
    return "the agent's own readings: {:.1f} % at the least, {:.1f} % in the middle; nvidia-smi's: {:.0f} to {:.0f} %\n       {}".format(
        min(seen), statistics.median(seen), min(row[1][0] for row in rows[5:-3]), max(row[1][0] for row in rows[5:-3]), last(text, 2)
    )


def check_hang(bench):
    """A kernel that never ends, as a collective that waits for a lost rank: 100 % busy, no step. It is stalled, not idle."""
    began = time.monotonic()
    beside = Beside(bench, "hang")
    job = bench.job("hang", bench.script("hang"), '[watch]\nstall = "20s"\nstall_restarts = 0\nidle = "15s"\ngrace = "5s"\n')
    code, text = bench.lamp("run", job)
    rows = beside.stop()
    took = time.monotonic() - began
    see("it was not ended as stalled", code not in (0, None) and "stalled" in text, text)
    busy = [row[2] for row in rows if row[2][0] is not None and row[2][0] > 90]
    see("the agent did not see a busy GPU", len(busy) > 5, repr(rows))
    free = float(driver("utilization.gpu")[0])
    watts = statistics.median(row[2] for row in busy)
    return f"ended after {took:.0f} s of {statistics.median(row[0] for row in busy):.0f} % at {watts:.0f} W; the GPU is at {free:.0f} % after it\n       " + last(text, 6)


def check_fault(bench):
    """A kernel that writes where it may not: the script is to blame, not the machine, whatever Xid the driver reports."""
    code, text = bench.lamp("run", bench.job("fault", bench.script("fault"), "[retries]\nmax = 0\n"))
    see("it did not end by its own fault", code == 1 and "illegal memory access" in text, text)
    _, receipt = bench.lamp("receipt", "fault", "-o", "json")
    because = json.loads(receipt)["attempts"][0]["ended_because"]
    see("the machine was blamed", because == "failed", receipt)
    logs = [path for path in bench.folder.rglob("*") if path.is_file() and path.stat().st_size < 1 << 20 and "fault" in str(path)]
    said = sorted({line.strip()[-60:] for path in logs for line in path.read_text(errors="replace").splitlines() if "Xid" in line})
    see("the agent has not heard of it", said, text)
    return f"ended because: {because}; the agent's log: {said}\n       " + last(text, 6)


def check_sandbox(bench):
    """The agent under its unit's filter of system calls, with its capabilities, and with no memory both written and run."""
    words = ["watch", "--gpus", "all", "--idle", "1h", "--name", "sandbox", "--state", str(bench.folder / "sandbox")]
    unit = TREE / "systemd" / "lamp-agent.service"
    process = bench.start(sys.executable, HERE / "sandboxed.py", unit, bench.programs / "lamp-agent", *words)
    status = None
    for _ in range(60):
        time.sleep(0.5)
        status = bench.status("sandbox")
        if process.poll() is not None or (status and status.get("gpus") and status["gpus"][0]["util_percent"] is not None):
            break
    process.send_signal(signal.SIGTERM)
    _, text = ended(process)
    gpus = (status or {}).get("gpus")
    see("it reads no GPU there", gpus and gpus[0]["util_percent"] is not None and gpus[0]["power_watts"], f"{text}\n{status}")
    return f"{gpus[0]}\n       " + last(text, 3)


def check_footprint(bench):
    """The agent at rest beside the real driver."""
    figures = bench.programs / "examples" / "figures"
    if not figures.exists():
        return f"left out: {figures} was not built"
    done = subprocess.run([str(figures), "rest", "--secs", "60", "--driver", "real"], capture_output=True, text=True, timeout=PATIENCE_SECS)
    see("it did not end well", done.returncode == 0, done.stdout + done.stderr)
    return last(done.stdout, 12)


CHECKS = [check_driver, check_preflight, check_sandbox, check_train, check_fault, check_held, check_bursts, check_hang, check_rehearse, check_footprint]


def main():
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("names", nargs="*", help="only these, as they are printed")
    words.add_argument("--programs", default=TREE / "target" / "release", type=Path)
    words.add_argument("--keep", type=Path, help="keep all records in this folder")
    asked = words.parse_args()
    names = [check.__name__.removeprefix("check_") for check in CHECKS]
    if unknown := [name for name in asked.names if name not in names]:
        words.error(f"there is no check {', '.join(unknown)}: there are {', '.join(names)}")
    if shutil.which("nvidia-smi") is None:
        words.error("there is no nvidia-smi: this machine has no NVIDIA driver")
    if missing := [name for name in ("lamp", "lamp-agent") if not (asked.programs / name).exists()]:
        words.error(f"there is no {', '.join(missing)} in {asked.programs}: cargo build --release --bins --example figures")
    folder = Path(tempfile.mkdtemp(prefix="lamp-gpu-")) if asked.keep is None else asked.keep.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    wanted = [check for check in CHECKS if not asked.names or check.__name__.removeprefix("check_") in asked.names]
    failed = 0
    for check in wanted:
        name = check.__name__.removeprefix("check_")
        began = time.monotonic()
        try:
            told = check(Bench(asked.programs.resolve(), folder))
        except Exception as error:  # One broken check must not hide the others.
            failed += 1
            told = f"{type(error).__name__}: {error}"
            print(f"FAILED {name} ({time.monotonic() - began:.0f} s): {check.__doc__}\n       {told}", flush=True)
        else:
            print(f"ok     {name} ({time.monotonic() - began:.0f} s): {check.__doc__}\n       {told}", flush=True)
    print(f"{len(wanted) - failed} of {len(wanted)} hold on {driver('name')[0]}, driver {driver('driver_version')[0]}")
    if asked.keep is None:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
