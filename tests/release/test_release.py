"""A release, as `.ci/release` makes it: what is in it, its sums, and what each program is made of.

    LAMP_TEST_PROGRAMS=FOLDER python3 -m unittest -v tests/release/test_release.py

FOLDER has `lamp` and `lamp-agent-x86_64`, of whatever profile: this is about what is made of them. It takes git and
cargo-cyclonedx; `.ci/run` brings them along.
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

TREE = Path(__file__).resolve().parent.parent.parent
PROGRAMS = Path(os.environ["LAMP_TEST_PROGRAMS"]).resolve()
# The compression of a release takes a minute.
FAST = "--fast --compress-type gz --compress-system"
FEATURES = {"lamp": [], "lamp-agent": ["--no-default-features", "--features", "agent"]}


def run(*words, cwd=TREE, **more):
    done = subprocess.run([str(word) for word in words], cwd=cwd, capture_output=True, text=True, **more)
    if done.returncode != 0:
        raise AssertionError(f"{words} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def made(folder):
    """Runs the script, and gives the folder of the release."""
    run(TREE / ".ci" / "release", "--built", PROGRAMS, env={**os.environ, "CARGO_TARGET_DIR": str(folder), "LAMP_DEB_OPTIONS": FAST})
    (release,) = folder.glob("release-*")
    return release


def sums(release):
    """By name; the check itself is sha256sum's, which is what a user types."""
    return dict(reversed(line.split("  ", 1)) for line in (release / "SHA256SUMS").read_text().splitlines())


def holds(release):
    words = ["sha256sum", "--check", "--ignore-missing", "SHA256SUMS"]
    return subprocess.run(words, cwd=release, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})


def linked(features):
    """What cargo itself says goes into a program, or builds it, as (name, version)."""
    words = ["--target", "x86_64-unknown-linux-gnu", "--prefix", "none", "--format", "{p}", "--edges", "normal,build"]
    tree = run("cargo", "tree", "--locked", *words, *features)
    return {(name, version) for name, version in re.findall(r"^(\S+) v(\S+)", tree, re.M) if name != "lamplighter"}


class Release(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="lamp-release-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.release = made(cls.folder / "first")
        (cls.archive,) = cls.release.glob("*.tar.gz")
        (cls.folder / "unpacked").mkdir()
        run("tar", "-xzf", cls.archive, cwd=cls.folder / "unpacked")
        (cls.unpacked,) = (cls.folder / "unpacked").iterdir()
        cls.version = re.search(r'^version = "(.*)"', (TREE / "Cargo.toml").read_text(), re.M)[1]
        fields = re.findall(r'\[\[package\]\]\nname = "(.*)"\nversion = "(.*)"\n(?:source = .*\n)?(?:checksum = "(.*)")?', (TREE / "Cargo.lock").read_text())
        cls.locked = {(name, version): checksum for name, version, checksum in fields}

    def bill(self, program):
        (path,) = self.release.glob(f"{program}-[0-9]*.cdx.json")
        return json.loads(path.read_text())

    def test_the_sums_name_all_that_there_is_and_hold(self):
        there = {path.name for path in self.release.iterdir()} - {"SHA256SUMS"}
        self.assertEqual(set(sums(self.release)), there)
        # Two packages where cargo-deb is; test_packages.py looks into them.
        self.assertEqual(len(there), 5 if shutil.which("cargo-deb") else 3)
        self.assertEqual(holds(self.release).returncode, 0)

    def test_one_byte_that_another_has_changed_is_found(self):
        for name in sums(self.release):
            with self.subTest(name):
                copy = Path(tempfile.mkdtemp(dir=self.folder))
                shutil.copytree(self.release, copy, dirs_exist_ok=True)
                data = bytearray((copy / name).read_bytes())
                data[len(data) // 2] ^= 1
                (copy / name).write_bytes(data)
                told = holds(copy)
                self.assertNotEqual(told.returncode, 0)
                self.assertIn(f"{name}: FAILED", told.stdout)
                shutil.rmtree(copy)

    def test_the_same_commit_and_programs_give_the_same_release(self):
        self.assertEqual(sums(made(self.folder / "second")), sums(self.release))

    def test_its_programs_run_and_are_of_the_version_that_it_is_named_by(self):
        self.assertIn(self.version, self.archive.name)
        for program in ("lamp", "lamp-agent-x86_64"):
            self.assertIn(self.version, run(self.unpacked / program, "--version", cwd=self.unpacked))

    def test_all_that_its_readme_leads_to_is_in_it(self):
        leads = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", (self.unpacked / "README.md").read_text())
        self.assertGreater(len(leads), 20)
        self.assertEqual([path for path in leads if not (self.unpacked / path).exists()], [])

    def test_each_program_is_told_to_be_made_of_what_cargo_links_into_it(self):
        for program, features in FEATURES.items():
            with self.subTest(program):
                bill = self.bill(program)
                self.assertEqual((bill["bomFormat"], bill["specVersion"]), ("CycloneDX", "1.5"))
                told = {(part["name"], part["version"]) for part in bill["components"]}
                self.assertEqual(told, linked(features))
        self.assertLess(len(self.bill("lamp-agent")["components"]), len(self.bill("lamp")["components"]))

    def test_each_crate_has_the_sum_of_the_lock_file_and_a_licence(self):
        for program in FEATURES:
            for part in self.bill(program)["components"]:
                with self.subTest(f"{program}: {part['name']}"):
                    told = {entry["alg"]: entry["content"] for entry in part["hashes"]}
                    self.assertEqual(told, {"SHA-256": self.locked[part["name"], part["version"]]})
                    self.assertTrue(part["licenses"])

    def test_no_page_and_no_list_says_where_it_was_made(self):
        for path in [*self.release.glob("*.json"), *self.unpacked.rglob("*")]:
            if path.is_file() and path.name not in ("lamp", "lamp-agent-x86_64"):
                self.assertNotIn(str(TREE).encode(), path.read_bytes(), path)


if __name__ == "__main__":
    unittest.main()
