"""What the gate runs again (`.ci/again.py`): failed tests that have a name, and nothing else."""

import importlib.util
import unittest
from pathlib import Path

spec = importlib.util.spec_from_file_location("again", Path(__file__).parents[2] / ".ci" / "again.py")
again = importlib.util.module_from_spec(spec)
spec.loader.exec_module(again)

LIB = """     Running unittests src/lib.rs (target/debug/deps/lamplighter-9a22)
test job::spec ... ok
test market::bid ... FAILED
test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.21s
"""
CLI = """     Running tests/cli/main.rs (target/debug/deps/cli-a26a)
test top::opens has been running for over 60 seconds
test top::opens ... \x1b[31mFAILED\x1b[0m
test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.19s
"""
PASSED = """     Running tests/architecture.rs (target/debug/deps/architecture-5d4e)
test result: ok. 21 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
"""


class Again(unittest.TestCase):
    def test_failures_are_told_with_their_targets(self):
        log = LIB + PASSED + CLI + "error: 2 targets failed:\n    `--lib`\n    `--test cli`\n"
        wanted = [(("--lib",), "market::bid"), (("--test", "cli"), "top::opens")]
        self.assertEqual(again.failures(log), wanted)

    def test_a_crash_is_not_run_again(self):
        crash = "     Running tests/web/main.rs (target/debug/deps/web-1)\ntest pages::one ... ok\n"
        self.assertIsNone(again.failures(LIB + crash + "error: 2 targets failed:\n    `--lib`\n    `--test web`\n"))

    def test_a_failure_without_a_name_is_not_run_again(self):
        garbled = CLI.replace("test top::opens ... ", "words of a program test top::opens ... ")
        self.assertIsNone(again.failures(garbled + "error: 1 target failed:\n    `--test cli`\n"))
        doc = LIB.replace("     Running unittests src/lib.rs (target/debug/deps/lamplighter-9a22)", "   Doc-tests lamplighter")
        self.assertIsNone(again.failures(doc + "error: 1 target failed:\n    `--doc`\n"))
        self.assertIsNone(again.failures("error: could not compile `lamplighter`\n"))


if __name__ == "__main__":
    unittest.main()
