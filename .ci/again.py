#!/usr/bin/env python3
"""Runs the failed tests of a `cargo test --no-fail-fast` again, each alone: `.ci/again.py LOG SKIPPED`.

A test that fails beside others and passes alone found a slow machine, and not a fault of the change. Then a landing is not lost. Each
such test is written into SKIPPED, which the gate shows at its end. It is to be mended or removed on the same day.

It fails if a test fails again, if more than MANY failed, or if the log does not tell every failure by name: a crash, a build, a test of
the documentation.
"""

import re
import subprocess
import sys

MANY = 4


def failures(log):
    """Pairs of the target's words for cargo and the test's name; None if a failure has no name."""
    log = re.sub(r"\x1b\[[0-9;]*m", "", log)
    target, named, told = None, set(), 0
    for line in log.splitlines():
        if at := re.match(r"\s+Running (unittests )?(\S+) \(", line):
            path = at[2]
            if path == "src/lib.rs":
                target = ("--lib",)
            elif at[1]:
                target = None
            else:
                parts = path.split("/")
                target = ("--test", parts[-2] if parts[-1] == "main.rs" else parts[-1].removesuffix(".rs"))
        elif line.startswith("   Doc-tests"):
            target = None
        elif at := re.match(r"test (\S+) \.\.\. FAILED$", line):
            named.add((target, at[1]))
        elif at := re.match(r"test result: FAILED\. .* (\d+) failed;", line):
            told += int(at[1])
        elif line.startswith("error: could not compile"):
            return None
    targets = re.search(r"^error: (\d+) targets? failed:", log, re.M)
    has_result = len(re.findall(r"^test result: FAILED", log, re.M))
    complete = targets and int(targets[1]) == has_result and told == len(named)
    return sorted(named) if complete and all(target for target, _ in named) else None


def main():
    log, skipped = sys.argv[1:]
    with open(log, encoding="utf-8", errors="replace") as file:
        named = failures(file.read())
    if named is None:
        sys.exit("a failure above has no name, so nothing is run again")
    print(f"\nfailed beside other tests: {', '.join(name for _, name in named)}")
    if len(named) > MANY:
        sys.exit(f"more than {MANY} failed, so none is run again")
    for target, name in named:
        print(f"\nagain, alone: {name}", flush=True)
        command = ["cargo", "test", "--locked", *target, "--", "--exact", name]
        again = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
        print(again.stdout, flush=True)
        if again.returncode != 0 or "test result: ok. 1 passed;" not in again.stdout:
            sys.exit(f"{name} failed again")
        with open(skipped, "a", encoding="utf-8") as file:
            file.write(f"TO MEND TODAY: {name} failed beside other tests, and passed alone\n")


if __name__ == "__main__":
    main()
