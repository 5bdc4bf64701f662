"""The tests' own means: whom they kill, and what they say of a command that somebody else kills."""
import os
import shutil
import signal
import subprocess
import unittest

import engines
import kill_trace
from ripcord_test import Root, TestCase, alive, kill_if, only_on, wait_until


@only_on("native")
class Kills(unittest.TestCase):
    def test_engines_do_not_share_a_name(self):
        """An engine that stops kills what holds its name; no other engine's name may hold it."""
        names = [engines.Docker().name for _ in range(120)]
        for name in names:
            self.assertEqual([other for other in names if name in other], [name])

    def test_a_pid_that_belongs_to_somebody_else_is_spared(self):
        with subprocess.Popen(["sleep", "1000"]) as foreign:
            try:
                kill_if(foreign.pid, lambda proc: b"ripcord" in (proc / "cmdline").read_bytes())
                self.assertTrue(alive(foreign.pid))
            finally:
                kill_if(foreign.pid, lambda _: True)
        self.assertEqual(foreign.returncode, -signal.SIGKILL)

    def test_a_child_that_has_not_executed_yet_is_spared(self):
        """It has the descriptors of every test that runs meanwhile."""
        root = Root()
        self.addCleanup(shutil.rmtree, root.path)
        go_on, tell = os.pipe()
        with open(root.path / "file", "wb") as of_the_root:
            child = os.fork()
            if child == 0:
                os.read(go_on, 1)
                os._exit(0)
            program = subprocess.Popen(["sleep", "1000"], stdout=of_the_root)
        try:
            wait_until(lambda: program.pid in root.processes(), 10, "the program to be found")
            self.assertNotIn(child, root.processes())
        finally:
            program.kill()
            program.wait()
            os.write(tell, b"x")
            os.waitpid(child, 0)
            os.close(go_on)
            os.close(tell)


@only_on("native")
class Killer(TestCase):
    def test_it_is_named(self):
        if kill_trace.TRACE.missing:
            self.skipTest(kill_trace.TRACE.missing)
        self.root.bin = self.root.path
        program = self.root.path / "ripcord"
        program.write_text("#!/bin/sh\nkill -9 $$\n", encoding="ascii")
        program.chmod(0o755)
        result = self.root.run("logs", "a")
        self.assertEqual(result.code, -signal.SIGKILL)
        self.assertIn("gave -9 (killed by ripcord (pid ", repr(result))
