"""The packages of `.ci/packages`: installed, tried, removed and purged on a machine of their own.

    LAMP_TEST_PROGRAMS=FOLDER python3 -m unittest -v tests/release/test_packages.py

FOLDER has `lamp` and `lamp-agent-x86_64`, of whatever profile. It takes git and cargo-deb; the machine takes root and
systemd-nspawn. What is not here is skipped, with a word. lintian judges the packages where it is installed.
"""

import gzip
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

TREE = Path(__file__).resolve().parent.parent.parent
PROGRAMS = Path(os.environ["LAMP_TEST_PROGRAMS"]).resolve()
# The compression of a release takes a minute. That the packages are the same each time is test_release.py's.
FAST = ["--fast", "--compress-type", "gz", "--compress-system"]
# A boot and its work take seconds; a machine that hangs ends the test.
WAIT_S = 300

# What the machine does, as root; each line of /said is a word and what it found. It must not stop at a failure.
SCRIPT = r"""
exec >/said 2>/errors </dev/null
say() { echo "$1 $2"; }
files() { find /etc /root /usr /var -xdev \( -path /var/lib/dpkg -o -path /var/cache/man -o -path /var/log \) -prune -o -print | sort; }
files >/before
units() { systemctl list-units --all --no-legend --plain 'lamp-*' | wc -l; }
dpkg --install /packages/*.deb >/installed 2>&1; say install $?
say units "$(units)"
say enabled "$(systemctl list-unit-files --no-legend 'lamp-*' | awk '$2 ~ /^enabled/' | wc -l)"
say version "$(lamp --version)"
say agent "$(lamp-agent --version)"
for page in lamp lamp-run lamp-agent lamp.toml; do
    warnings=$(MANWIDTH=80 man --warnings -E UTF-8 $page 2>&1 >/page)
    say "man-$page" "$(grep -c . /page) $warnings"
done
say bash "$(bash -c '. /usr/share/bash-completion/completions/lamp && complete -p lamp')"
systemd-analyze verify /usr/lib/systemd/system/lamp-agent.service /usr/lib/systemd/system/lamp-deadman.timer \
    /usr/lib/systemd/system/lamp-boot.service /usr/lib/systemd/system/lamp-controller-cloud@root.service >/verified 2>&1
say verify "$?"
mkdir -p /run/user/0
XDG_RUNTIME_DIR=/run/user/0 systemd-analyze verify --user /usr/lib/systemd/user/lamp-controller.service /usr/lib/systemd/user/lamp-sweep.timer >>/verified 2>&1
say verify-user "$?"
mkdir /work && cd /work && export HOME=/root
printf 'name = "packaged"\ncommand = ["sh", "-c", "echo hello from the package"]\n' >lamp.toml
lamp run >/ran 2>&1; say run $?
say hello "$(grep -c '^hello from the package' /ran)"
cd / && rm -rf /work /root/.local /root/.cache
dpkg --remove lamplighter lamp-agent >/removed 2>&1; say remove $?
dpkg --purge lamplighter lamp-agent >>/removed 2>&1; say purge $?
say known "$(dpkg-query --show lamplighter lamp-agent 2>/dev/null | wc -l)"
files >/after
"""
UNIT = """[Unit]
After=basic.target
Requires=basic.target
[Service]
Type=oneshot
ExecStart=-/bin/bash /script
ExecStopPost=/usr/bin/systemctl poweroff
TimeoutStartSec=280
"""


def run(*words, **more):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, **more)
    if done.returncode != 0:
        raise AssertionError(f"{words} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def machine_missing():
    """Why no machine can be booted here; empty: it can."""
    if os.geteuid() != 0:
        return "this is not root"
    missing = [name for name in ("systemd-nspawn", "dpkg", "man", "groff") if not shutil.which(name)]
    return f"{' and '.join(missing)} missing" if missing else ""


def laid_out(disk, packages):
    """The disk of a machine: this /usr below a layer of its own, and what the package manager knows."""
    for folder in ("usr", "layer", "proc", "sys", "dev", "run", "tmp", "root", "packages", "var/log", "var/cache", "var/tmp"):
        (disk / folder).mkdir(parents=True, exist_ok=True)
    for link in ("bin", "sbin", "lib", "lib64"):
        if Path("/", link).is_symlink():
            (disk / link).symlink_to(os.readlink(f"/{link}"))
    units = disk / "etc/systemd/system"
    units.mkdir(parents=True)
    for folder in ("etc/dpkg", "etc/alternatives", "etc/ld.so.conf.d", "etc/groff"):
        shutil.copytree(Path("/", folder), disk / folder, symlinks=True)
    for file in ("ld.so.cache", "ld.so.conf", "os-release", "manpath.config", "passwd", "group"):
        if Path("/etc", file).exists():
            shutil.copy(Path("/etc", file), disk / "etc" / file)
    # An image of a container leaves pages out.
    for file in (disk / "etc/dpkg/dpkg.cfg.d").glob("*"):
        if "path-exclude" in file.read_text():
            file.unlink()
    (disk / "etc/machine-id").write_text("")
    shutil.copytree("/var/lib/dpkg", disk / "var/lib/dpkg", symlinks=True)
    (disk / "script").write_text(SCRIPT)
    (units / "script.service").write_text(UNIT)
    (units / "default.target").write_text("[Unit]\nRequires=basic.target script.service\nAfter=basic.target\n")
    for package in packages:
        shutil.copy(package, disk / "packages")


def booted(disk):
    """Boots it until it has powered itself off."""
    name = re.sub("[^a-z0-9]", "", disk.parent.name.lower())
    trees = [tree for tree in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd") if Path(tree, "cgroup.procs").exists()]
    groups = [Path(tree, name) for tree in trees]

    def enter():
        # A control group of its own: two machines below one would share the groups of units.
        for group in groups:
            group.mkdir(exist_ok=True)
            (group / "cgroup.procs").write_text(str(os.getpid()))

    words = ["systemd-nspawn", "--quiet", "--boot", f"--directory={disk}", f"--machine={name}", "--register=no", "--keep-unit"]
    words += ["--resolv-conf=off", "--timezone=off", "--link-journal=no", "--console=pipe", "--private-network"]
    words += [f"--overlay=/usr:{disk}/layer:/usr"]
    try:
        return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=WAIT_S, preexec_fn=enter)
    finally:
        for group in groups:
            subprocess.run(["find", group, "-depth", "-type", "d", "-delete"], capture_output=True)


class Packages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not shutil.which("cargo-deb"):
            raise unittest.SkipTest("cargo-deb is not here: `cargo install cargo-deb`")
        cls.folder = Path(tempfile.mkdtemp(prefix="lamp-packages-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        run(TREE / ".ci" / "packages", PROGRAMS, cls.folder / "made", *FAST)
        cls.packages = sorted((cls.folder / "made").iterdir())
        cls.version = re.search(r'^version = "(.*)"', (TREE / "Cargo.toml").read_text(), re.M)[1]

    def test_each_verb_has_a_page_and_no_unit_names_a_home(self):
        out = self.folder / "unpacked"
        for package in self.packages:
            run("dpkg-deb", "--extract", package, out)
        told = run(PROGRAMS / "lamp", "--help")
        verbs = re.findall(r"^  ([a-z]+)  +[A-Z]", told, re.M)
        self.assertGreater(len(verbs), 25)
        pages = {path.name for path in (out / "usr/share/man/man1").iterdir()}
        self.assertEqual({f"lamp-{verb}.1.gz" for verb in verbs} - pages, set())
        units = [*(out / "usr/lib/systemd").rglob("lamp-*")]
        self.assertGreater(len(units), 9)
        for unit in units:
            starts = re.findall(r"^ExecStart=(\S+)", unit.read_text(), re.M)
            self.assertFalse([word for word in starts if ".cargo" in word or "local" in word], unit.name)
        self.assertIn("idle", gzip.decompress((out / "usr/share/man/man5/lamp.toml.5.gz").read_bytes()).decode())

    def test_no_package_has_a_script_that_runs_at_its_installation(self):
        for package in self.packages:
            control = self.folder / "control" / package.name
            control.parent.mkdir(exist_ok=True)
            run("dpkg-deb", "--control", package, control)
            self.assertEqual({path.name for path in control.iterdir()} - {"control", "md5sums"}, set())

    def test_lintian_finds_no_error(self):
        if not shutil.which("lintian"):
            self.skipTest("lintian is not here")
        # It reads each byte: small programs stand in for ours, which print the pages.
        small = self.folder / "small"
        small.mkdir()
        (small / "lamp").write_text(f'#!/bin/sh\nexec {PROGRAMS}/lamp "$@"\n')
        (small / "lamp").chmod(0o755)
        shutil.copy("/bin/true", small / "lamp-agent-x86_64")
        run(TREE / ".ci" / "packages", small, self.folder / "judged", *FAST)
        words = ["lintian", "--tag-display-limit=0", *(self.folder / "judged").iterdir()]
        said = subprocess.run([*map(str, words)], capture_output=True, text=True).stdout
        self.assertEqual([line for line in said.splitlines() if line.startswith("E:")], [], said)

    def test_they_are_installed_used_and_purged_on_a_machine(self):
        if why := machine_missing():
            self.skipTest(f"no machine can be had: {why}")
        disk = self.folder / "disk"
        laid_out(disk, self.packages)
        ended = booted(disk)
        if not (disk / "said").exists():
            self.skipTest(f"systemd-nspawn cannot boot a machine here: {ended.stdout}{ended.stderr}")

        def text(name):
            return (disk / name).read_text(errors="replace") if (disk / name).exists() else ""

        said = dict(line.split(" ", 1) for line in text("said").splitlines())
        told = text("said") + "".join(text(name) for name in ("errors", "installed", "verified", "ran", "removed"))
        expected = {"install": "0", "units": "0", "enabled": "0", "verify": "0", "verify-user": "0", "run": "0", "hello": "1"}
        expected |= {"remove": "0", "purge": "0", "known": "0", "version": f"lamp {self.version}", "agent": f"lamp-agent {self.version}"}
        self.assertEqual({key: said.get(key) for key in expected}, expected, told)
        for page in ("lamp", "lamp-run", "lamp-agent", "lamp.toml"):
            self.assertRegex(said[f"man-{page}"], r"^[1-9]\d+ $", told)
        self.assertIn("_lamp_jobs", said["bash"])
        self.assertEqual(set(text("after").splitlines()) - set(text("before").splitlines()), set(), told)


if __name__ == "__main__":
    unittest.main()
