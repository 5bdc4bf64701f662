"""What if the n-th system call of the daemon, a shim or pid 1 fails, or is its last? Whatever n is: no false success, nothing is
left behind, and the next daemon goes on. A few n in every run, taken anew each time; every n of every operation in the soak."""
import io
import os
import platform
import random
import tarfile
import unittest

from ripcord_test import Config, Process, TestCase, alive, describe, only_on, serial, wait_until

NAMES = ("ripcordd", "ripcord-shim", "ripcord-init")
FEW = int(os.environ.get("RIPCORD_MEDDLE", "0"))  # in each test, instead of the usual few
ONLY = os.environ.get("RIPCORD_MEDDLE_ONLY", "")  # "OPERATION NAME N": this one alone
MOST = 3000
IN_A_ROW = 3  # that were not reached: then there are no more
TEXT = b"kept\n" * 2000


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
        self.file = self.root.path / "text"
        self.file.write_bytes(TEXT)
        self.root.start()  # its id is a mark of what is ours

    # ---- operations: what comes first, `yield`, what is meddled with and may fail but not lie, `yield`, what is true then ----

    def op_run(self):
        yield
        done = self.root.run("run", "--", "echo", "said")
        yield
        self.assertEqual(done.out, b"said\n" if done.code == 0 else done.out, done)

    def op_up(self):
        yield
        done = self.root.run("up", "m")
        yield
        if done.code == 0:
            self.assertEqual(self.root.ok("exec", "m", "--", "echo", "here").out, b"here\n")

    def op_exec(self):
        self.root.ok("up", "m")
        yield
        done = self.root.run("exec", "m", "-i", "--", "sh", "-c", "tee f; echo last", stdin=TEXT)
        yield
        if done.code != 0 or any(words in done.err for words in (b"input was cut", b"input ends here", b"output are lost")):
            return  # the status is the command's own, and what did not come in or out is told
        self.assertEqual(done.out, TEXT + b"last\n", done)
        self.assertEqual(self.content("f"), TEXT)

    def op_cp_in(self):
        self.root.ok("up", "m")
        yield
        done = self.root.run("cp", self.file, "m:in")
        yield
        if done.code == 0:
            self.assertEqual(self.content("in"), TEXT, done)

    def op_cp_out(self):
        self.root.ok("up", "m")
        self.root.ok("cp", self.file, "m:f")
        yield
        done = self.root.run("cp", "m:f", "-")
        yield
        if done.code == 0:
            with tarfile.open(fileobj=io.BytesIO(done.out)) as tar:
                self.assertEqual(tar.extractfile("f").read(), TEXT)

    def op_restart(self):
        """Of a sandbox: down, and up again by the next command."""
        self.root.ok("up", "m")
        self.root.ok("cp", self.file, "m:f")
        yield
        down = self.root.run("stop", "m")
        done = self.root.run("exec", "m", "--", "cat", "f")
        yield
        self.assertEqual(done.out, TEXT if done.code == 0 else done.out, (down, done.code))
        self.assertEqual(self.content("f"), TEXT, "what it has written is there whatever happens")

    def op_rm(self):
        self.root.ok("up", "m")
        yield
        done = self.root.run("rm", "-f", "m")
        yield
        if done.code == 0:
            self.assertEqual(self.root.run("show", "m").code, 3, done)
            self.assertEqual(self.root.wait_clean(20), {}, done)

    def op_daemon(self):
        """Of the daemon, while a command runs that has nothing to do with it."""
        self.root.ok("up", "m")
        self.root.ok("exec", "m", "-d", "--", "sleep", "1000")
        wait_until(self.sleepers, 10, "the command to run")
        sleeper = self.sleepers()[0]
        self.root.kill_daemon()
        yield [str(Config.bin / "ripcordd"), "--root", str(self.root.path)]
        listed = self.root.run("ls", "--json")
        yield
        self.assertTrue(alive(sleeper), listed)
        if listed.code == 0:
            self.assertEqual([s["state"] for s in self.root.sandboxes()], ["running"], listed)

    def sleepers(self):
        return [p for p in self.root.inside() if describe(p) == f"{p} sleep 1000 "]

    def content(self, name):
        return self.root.ok("exec", "m", "--", "cat", name).out

    # ---- one of them ----

    def begin(self, kind, n, name, argv):
        """The meddler watches the daemon from here on."""
        if not argv and self.root.daemon_pid() is None:
            self.root.start()
        # In the soak the spare shims, too, which are there already and do most of the work.
        argv = argv or [("+" if Config.soak else "") + str(self.root.daemon_pid())]
        meddler = Process([str(Config.bin / "test" / "unit" / "meddle"), kind, str(n), name, *argv], stdout=-1)
        self.assertEqual(meddler.stdout.readline(), b"ready\n")
        return meddler

    def settle(self, before):
        """Nothing is left; by a daemon that has lived through it, no descriptor either."""
        self.root.start()
        self.root.run("rm", "-f", "m")
        self.assertEqual(self.root.wait_clean(20), {})
        self.assertEqual(self.root.ok("run", "--", "echo", "well").text, "well\n")
        if before and before[0] == self.root.daemon_pid():
            wait_until(lambda: len(self.descriptors()) <= len(before[1]), 10,
                       f"descriptors to be closed: {before[1]}, now {self.descriptors()}")

    def descriptors(self):
        """But for the database's: SQLite opens more of them when it needs them, and keeps them."""
        return [d for d in self.root.snapshot()["daemon descriptors"] if "ripcord.db" not in d]

    def one(self, kind, n, name, operation):
        """True when it came to meddling."""
        steps = getattr(self, f"op_{operation}")()
        what = b""
        try:
            argv = next(steps)
            before = None if argv else (self.root.daemon_pid(), self.descriptors() if self.root.accepts() else [])
            with self.begin(kind, n, name, argv) as meddler:
                next(steps)
                meddler.kill()
                what = meddler.stdout.read()
            self.root.start()
            for _ in steps:
                pass
            self.settle(before)
        except AssertionError as e:
            raise AssertionError(f"{operation}: {kind} {n} of {name}, {what}: {e}") from None
        return what.startswith(b"done")

    def every(self, kind, operation):
        for name in NAMES:
            n = missed = 0
            while n < MOST and missed < IN_A_ROW:
                n += 1
                missed = 0 if self.one(kind, n, name, operation) else missed + 1

    def some(self, kind, most):
        operations = sorted(o[3:] for o in dir(self) if o.startswith("op_"))
        for name, operation in random.sample([(n, o) for n in NAMES for o in operations], FEW or 5):
            self.one(kind, random.randint(1, most[name]), name, operation)

    def sweep(self, kind, most):
        if ONLY:
            operation, name, n = ONLY.split()
            self.one(kind, int(n), name, operation)
        elif Config.soak:
            for operation in sorted(o[3:] for o in dir(self) if o.startswith("op_")):
                self.every(kind, operation)
        else:
            self.some(kind, most)

    def test_a_call_that_is_the_last(self):
        self.sweep("kill", {"ripcordd": 250, "ripcord-shim": 200, "ripcord-init": 200})

    def test_a_call_that_fails(self):
        self.sweep("fault", {"ripcordd": 60, "ripcord-shim": 100, "ripcord-init": 120})
