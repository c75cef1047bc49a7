"""A training script like a real one, without the training: it steps, saves, resumes and is watched.

Told by its environment: STEPS (0: until the test writes `go`), STEP_SECS, SAVE_EVERY (steps; 0: only when asked), EXIT,
ASKED (what SIGUSR1 or SIGTERM does: save, ignored, default), SAVE_SECS, FROM_ZERO (looks at no checkpoint), FAIL_TIMES.
It takes a lock that only one of its kind can hold and leaves the file `twice` when it does not get it.
"""

import fcntl
import json
import os
import signal
import sys
import time

bench, saves = os.environ["E2E_BENCH"], os.environ["LAMP_CHECKPOINT_DIR"]
steps, step_secs, save_every = int(os.environ.get("STEPS", "0")), float(os.environ.get("STEP_SECS", "0.1")), int(os.environ.get("SAVE_EVERY", "0"))
asked = None


def ask(number, _frame):
    global asked
    asked = number


def note(name, text):
    with open(os.path.join(bench, name), "a") as file:
        file.write(text + "\n")


def say(**what):
    with open(os.environ["LAMP_PROGRESS"], "a") as file:
        file.write(json.dumps(what) + "\n")


def save(step):
    os.makedirs(saves, exist_ok=True)
    path = os.path.join(saves, "state.json")
    with open(path + ".tmp", "w") as file:
        json.dump({"step": step}, file)
        file.flush()
        time.sleep(float(os.environ.get("SAVE_SECS", "0")))
    os.replace(path + ".tmp", path)
    say(checkpoint="state.json", step=step)


lock = open(os.path.join(bench, "lock"), "w")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    note("twice", f"attempt {os.environ['LAMP_ATTEMPT']}")
    sys.exit("two of us at once")

reaction = os.environ.get("ASKED", "save")
if reaction == "save":
    signal.signal(signal.SIGUSR1, ask)
    signal.signal(signal.SIGTERM, ask)
elif reaction == "ignored":
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)

step = 0
if not os.environ.get("FROM_ZERO") and os.path.exists(os.path.join(saves, "state.json")):
    with open(os.path.join(saves, "state.json")) as file:
        step = json.load(file)["step"]
note("begins", f"{os.environ['LAMP_ATTEMPT']} {os.getpid()} {step}")
print("begin at", step, flush=True)

with open(os.path.join(bench, "begins")) as file:
    if len(file.readlines()) <= int(os.environ.get("FAIL_TIMES", "0")):
        sys.exit("not yet")

while step < steps if steps else not os.path.exists(os.path.join(bench, "go")):
    time.sleep(step_secs)
    step += 1
    print("step", step, flush=True)
    say(step=step, **({"total": steps} if steps else {}))
    if asked or (save_every and step % save_every == 0):
        save(step)
    if asked == signal.SIGTERM:
        sys.exit(0)
    asked = None

with open("metrics.json", "w") as file:
    json.dump({"steps": step}, file)
os.makedirs(os.environ["LAMP_OUTPUT_DIR"], exist_ok=True)
with open(os.path.join(os.environ["LAMP_OUTPUT_DIR"], "model.txt"), "w") as file:
    file.write(f"trained {step} steps\n")
print("done", flush=True)
sys.exit(int(os.environ.get("EXIT", "0")))
