"""Runs a program as a unit of systemd would, where no systemd is: `sandboxed.py UNIT PROGRAM [WORD]...`, as root.

Of the unit it takes SystemCallFilter (an allow list, what it takes away and puts back; EPERM for the rest),
CapabilityBoundingSet, NoNewPrivileges and MemoryDenyWriteExecute. Not the device policy and not the mounts, which take a
control group and namespaces. What the groups of system calls hold is in syscalls.txt, as systemd 252 has them
(`systemd-analyze syscall-filter`).
"""

import ctypes
import os
import sys
from pathlib import Path

PR_SET_NO_NEW_PRIVS, PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, PR_CAPBSET_DROP = 38, 65, 1, 24
CAPABILITIES = {"CAP_DAC_READ_SEARCH": 2, "CAP_FOWNER": 3, "CAP_KILL": 5, "CAP_SYS_PTRACE": 19, "CAP_SYS_BOOT": 22}
CAPABILITY_LAST = 40
SCMP_ACT_ALLOW, SCMP_ACT_EPERM = 0x7FFF0000, 0x00050001


def settings(unit):
    lines = [line.split("=", 1) for line in Path(unit).read_text().splitlines() if "=" in line and not line.startswith("#")]
    return lambda name: [value for key, value in lines if key == name]


def groups():
    found, name = {}, None
    for line in (Path(__file__).parent / "syscalls.txt").read_text().splitlines():
        if line.startswith("@"):
            name = line.strip()
            found[name] = []
        elif line.strip() and not line.strip().startswith("#"):
            found[name].append(line.strip())
    return found


def spread(word, known):
    return set().union(*(spread(part, known) for part in known[word])) if word.startswith("@") else {word}


def allowed(filters):
    known, calls = groups(), set()
    for line in filters:
        words = line.removeprefix("~").split()
        named = set().union(*(spread(word, known) for word in words))
        calls = calls - named if line.startswith("~") else calls | named
    return calls


def prctl(*words):
    if ctypes.CDLL(None, use_errno=True).prctl(*(ctypes.c_ulong(word) for word in (*words, *[0] * (5 - len(words))))) != 0:
        sys.exit(f"prctl{words}: {os.strerror(ctypes.get_errno())}")


def main():
    unit, *words = sys.argv[1:]
    get = settings(unit)
    kept = {CAPABILITIES[name] for name in get("CapabilityBoundingSet")[0].split()}
    for capability in range(CAPABILITY_LAST + 1):
        if capability not in kept:
            prctl(PR_CAPBSET_DROP, capability)
    assert get("NoNewPrivileges") == get("MemoryDenyWriteExecute") == ["yes"], "the unit has changed"
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    seccomp = ctypes.CDLL("libseccomp.so.2")
    seccomp.seccomp_init.restype = ctypes.c_void_p
    filtered = ctypes.c_void_p(seccomp.seccomp_init(SCMP_ACT_EPERM))
    for call in sorted(allowed(get("SystemCallFilter"))):
        number = seccomp.seccomp_syscall_resolve_name(call.encode())
        if number >= 0:
            seccomp.seccomp_rule_add(filtered, SCMP_ACT_ALLOW, number, 0)
    prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN)
    if seccomp.seccomp_load(filtered) != 0:
        sys.exit("the filter of system calls cannot be loaded")
    os.execv(words[0], words)


if __name__ == "__main__":
    main()
