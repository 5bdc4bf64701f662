"""What if the n-th system call of the daemon, a shim or pid 1 fails, or is its last? Whatever n is: no false success, nothing is
left behind, and the next daemon goes on. A few n in every run, taken anew each time; all of them in the soak."""
import os
import platform
import random
import signal
import unittest

from ripcord_test import Config, Process, TestCase, only_on, serial

NAMES = ("ripcordd", "ripcord-shim", "ripcord-init")
FEW = int(os.environ.get("RIPCORD_MEDDLE", "0"))  # of each process, instead of the usual few
MOST = 3000


def possible():
    return platform.machine() == "x86_64" and os.geteuid() == 0 and (Config.bin / "test" / "unit" / "meddle").exists()


@serial("meddle")
@only_on("native")
class Meddle(TestCase):
    def setUp(self):
        super().setUp()
        if not possible():
            raise unittest.SkipTest("needs root on x86-64, and the test helpers beside the programs")
        if Config.sanitized:
            raise unittest.SkipTest("a sanitizer has system calls of its own")

    def begin(self, kind, n, name):
        """The meddler watches the daemon from here on."""
        if self.root.daemon_pid() is None:
            self.root.start()
        argv = [str(Config.bin / "test" / "unit" / "meddle"), kind, str(n), name, str(self.root.daemon_pid())]
        meddler = Process(argv, stdout=-1)
        self.assertEqual(meddler.stdout.readline(), b"ready\n")
        return meddler

    def work(self):
        """Each step may fail, and may not lie."""
        done = self.root.run("run", "--", "echo", "said")
        self.assertEqual(done.out, b"said\n" if done.code == 0 else done.out, done)
        if self.root.run("up", "m").code == 0:
            done = self.root.run("exec", "m", "--", "sh", "-c", "echo kept > f; cat f")
            self.assertEqual(done.out, b"kept\n" if done.code == 0 else done.out, done)
            done = self.root.run("cp", "m:/home/agent/f", "-")
            self.assertIn(b"kept", done.out if done.code == 0 else b"kept")
        self.root.run("rm", "-f", "m")

    def one(self, kind, n, name):
        """True when it came to meddling."""
        with self.begin(kind, n, name) as meddler:
            self.work()
            meddler.kill()
            what = meddler.stdout.read()
        if self.root.daemon_pid() is not None:
            self.root.kill_daemon(signal.SIGKILL)
        self.root.start()
        self.root.run("rm", "-f", "m")
        left = self.root.wait_clean(20)
        self.assertEqual(left, {}, f"{kind} {n} of {name}, call {what}")
        self.assertEqual(self.root.ok("run", "--", "echo", "well").text, "well\n")
        return what.startswith(b"done")

    def sweep(self, kind, most):
        for name in NAMES:
            if Config.soak:
                n = 1
                while n < MOST and self.one(kind, n, name):
                    n += 1
            else:
                for n in random.sample(range(1, most[name]), FEW or (3 if name == "ripcordd" else 1)):
                    self.one(kind, n, name)

    def test_a_call_that_is_the_last(self):
        self.sweep("kill", {"ripcordd": 400, "ripcord-shim": 300, "ripcord-init": 200})

    def test_a_call_that_fails(self):
        self.sweep("fault", {"ripcordd": 150, "ripcord-shim": 120, "ripcord-init": 120})
