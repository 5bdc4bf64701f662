"""What if the n-th system call or allocation of the daemon, a shim or pid 1 fails, or is its last? Whatever n is: no false success,
nothing is left behind, and the next daemon goes on. A few n in every run, taken anew each time; in the soak every n of every
operation, which takes days on one machine. It goes on where the last soak of the same programs was ended, and says how far it got:

    RIPCORD_MEDDLE_PICK="malloc up"  test/integration/run.py --soak -k test_fault_inject    (a part: what it finds in "KIND OPERATION NAME")
    RIPCORD_MEDDLE_SECONDS=600       ends after so long, with what was covered
    RIPCORD_MEDDLE_STEP=10           every tenth only, counted apart
    RIPCORD_MEDDLE_SITES=1           one for each place in the programs that it happens at (test/helpers/site.h), not for each time
"""
import hashlib
import io
import json
import os
import platform
import random
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest
from pathlib import Path

from ripcord_test import Config, Process, Root, TestCase, alive, copy_program, describe, descriptors, only_on, serial, wait_until

NAMES = ("ripcordd", "ripcord-shim", "ripcord-init")
FEW = int(os.environ.get("RIPCORD_MEDDLE", "0"))  # in each test, instead of the usual few
ONLY = os.environ.get("RIPCORD_MEDDLE_ONLY", "")  # "KIND OPERATION NAME N": this one alone
PICK = os.environ.get("RIPCORD_MEDDLE_PICK", "")
SECONDS = float(os.environ.get("RIPCORD_MEDDLE_SECONDS", "inf"))
STEP = int(os.environ.get("RIPCORD_MEDDLE_STEP", "1"))
SITES = os.environ.get("RIPCORD_MEDDLE_SITES", "") == "1"
MOST = 30000
IN_A_ROW = 8  # that were not reached: then there are no more
SPARES = 4  # folders of each kind that a daemon keeps ready (src/daemon/engine/native/prewarmed.c)
TEXT = b"kept\n" * 2000
SINCE = time.monotonic()


def possible():
    return platform.machine() == "x86_64" and os.geteuid() == 0 and (Config.bin / "test" / "unit" / "fault-inject").exists()


def is_whole(done):
    """The status is the command's own. Lost input or output is reported beside it."""
    return done.code == 0 and not any(words in done.err for words in (b"input was truncated", b"input ends here", b"output were lost"))


class Covered:
    """How far the sweep over one kind, operation and process has come, in a file beside the programs."""

    def __init__(self, kind, operation, name):
        self.what = f"{kind} {operation} {name}"
        self.file = Config.bin / "fault-inject" / f"{kind}-{operation}-{name}-{'sites' if SITES else STEP}.json"
        self.sites = self.file.with_suffix(".txt")
        programs = [Config.bin / p for p in ("ripcordd", "ripcord-shim", "test/unit/ripcordd-alloc", "test/unit/ripcord-shim-alloc")]
        stamps = "".join(f"{p.stat().st_size} {p.stat().st_mtime_ns} " for p in programs if p.exists())
        self.state = {"programs": hashlib.sha256(stamps.encode()).hexdigest(), "n": 1, "reached": 0, "missed": 0, "failed": []}
        try:
            old = json.loads(self.file.read_text(encoding="utf-8"))
            if old["programs"] == self.state["programs"]:
                self.state = old
        except (OSError, ValueError, KeyError):
            pass
        if self.state["n"] == 1:
            self.sites.unlink(missing_ok=True)  # of other programs
        self.file.parent.mkdir(exist_ok=True)

    def goes_on(self):
        return self.state["n"] <= MOST and self.state["missed"] < IN_A_ROW and time.monotonic() - SINCE < SECONDS

    def next(self):
        return f"@{self.sites}" if SITES else self.state["n"]

    def note(self, reached, failure=None):
        state = self.state
        if reached:
            state["reached"] = state["n"]
        state["missed"] = 0 if reached else state["missed"] + 1
        state["failed"] += [failure] if failure else []
        state["n"] += STEP
        self.file.write_text(json.dumps(state), encoding="utf-8")

    def __str__(self):
        last, whole = self.state["reached"], self.state["missed"] >= IN_A_ROW
        how = f"every {'one' if STEP == 1 else f'{STEP}th'} of 1 to {last}"
        if SITES:
            how = f"{len(self.sites.read_text(encoding='ascii').split()) if self.sites.exists() else 0} places"
        return f"fault-inject: {self.what}: {how}{', all there are' if whole else ', not ended'}; {len(self.state['failed'])} failed"


@serial("fault-inject")
@only_on("native")
class FaultInject(TestCase):
    def setUp(self):
        super().setUp()
        if not possible():
            raise unittest.SkipTest("needs root on x86-64, and the test helpers beside the programs")
        if Config.sanitized:
            raise unittest.SkipTest("a sanitizer has system calls of its own")
        self.injector = self.kind = None
        self.begin_root(None)

    def begin_root(self, bin):
        self.root.bin = bin
        self.file = self.root.path / "text"
        self.file.write_bytes(TEXT)
        self.root.start()  # its id is a mark of what is ours

    # ---- operations: what comes first, `yield`, what is put at fault and may fail but not lie, `yield`, what is true then ----

    def op_run(self):
        yield
        done = self.root.run("run", "--", "echo", "said")
        yield
        self.assertEqual(done.out, b"said\n" if is_whole(done) else done.out, done)
        self.assert_ours(done)

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
        self.assert_ours(done)
        if is_whole(done):
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
        self.assertEqual(done.out, TEXT if is_whole(done) else done.out, (down, done))
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
        sleeper = self.orphan()
        yield [str((self.root.bin or Config.bin) / "ripcordd"), "--root", str(self.root.path)]
        # Else the command would start another daemon, and the watched one would find it and end.
        wait_until(lambda: self.root.accepts() or self.injector.poll() is not None, 60, "the daemon to answer, or to be put at fault")
        listed = self.root.run("ls", "--json")
        yield
        self.assertTrue(alive(sleeper), listed)
        if listed.code == 0:
            self.assertEqual([s["state"] for s in self.root.sandboxes()], ["running"], listed)

    def op_adopt(self):
        """The same, seen by the shim and pid 1 that were there before the daemon."""
        sleeper = self.orphan()
        yield ["+" + str(self.shim_of(sleeper))]
        listed = self.root.run("ls", "--json")
        yield
        # One that ended last is missed in a moment.
        wait_until(lambda: [s["state"] == "running" for s in self.root.sandboxes()] == [alive(sleeper)], 10, f"the truth: {listed}")
        self.assertEqual(self.root.ok("exec", "m", "--", "echo", "here").out, b"here\n")
        self.assertTrue(self.kind != "fault" or alive(sleeper), listed)

    def orphan(self):
        """A command that runs in a sandbox, without a daemon."""
        self.root.ok("up", "m")
        self.root.ok("exec", "m", "-d", "--", "sleep", "1000")
        wait_until(self.sleepers, 10, "the command to run")
        sleeper = self.sleepers()[0]
        self.root.kill_daemon()
        return sleeper

    def shim_of(self, pid):
        """The first of its ancestors that is one."""
        while Path(f"/proc/{pid}/comm").read_text(encoding="utf-8") != "ripcord-shim\n":
            pid = int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
        return pid

    def assert_ours(self, done):
        """The command ends with 0: any other status would be invented."""
        self.assertFalse(0 < done.code < 125, done)

    def sleepers(self):
        """Compares command lines first: finding the root of a process takes long, and there may be hundreds."""
        pids = [int(p) for p in os.listdir("/proc") if p.isdigit()]
        return [p for p in pids if describe(p) == f"{p} sleep 1000 " and self.root.owns(Path(f"/proc/{p}"))]

    def content(self, name):
        return self.root.ok("exec", "m", "--", "cat", name).out

    # ---- one of them ----

    def begin(self, kind, n, name, argv):
        """The injector watches the daemon from here on."""
        if not argv:
            self.revive()
        # In the soak the spare shims, too, which are there already and do most of the work.
        argv = argv or [("+" if Config.soak else "") + str(self.root.daemon_pid())]
        injector = Process([str(Config.bin / "test" / "unit" / "fault-inject"), kind, str(n), name, *argv], stdout=-1, stderr=subprocess.DEVNULL)
        self.assertEqual(injector.stdout.readline(), b"ready\n")
        self.injector, self.kind = injector, kind
        return injector

    def revive(self):
        if self.root.daemon_pid() is None:
            self.root.start()

    def linger(self, injector=None):
        """Waits until the daemon has finished the work after an answer: deleting, and preparing the next sandboxes."""
        end = time.monotonic() + 2  # a spare that could not be made is tried again at the next taking, not before
        while (not injector or injector.poll() is None) and time.monotonic() < end and not self.is_idle():
            time.sleep(0.01)

    def is_idle(self):
        spares = [self.names(folder) for folder in ("state/spares/boxes", "state/spares/execs", "run/spares")]
        return not self.names("state/trash") and all(len(names) == SPARES for names in spares)

    def names(self, folder):
        try:
            return os.listdir(self.root.path / folder)
        except FileNotFoundError:
            return []

    def residue(self):
        """Folders of removed sandboxes."""
        folders = ("state/sandboxes", "state/execs", "state/trash", "run/sandboxes")
        return {folder: self.names(folder) for folder in folders if self.names(folder)}

    def settle(self, before):
        """Nothing is left; by a daemon that has lived through it, no descriptor either."""
        self.revive()
        self.root.run("rm", "-f", "m")
        self.assertEqual(self.root.wait_clean(20), {})
        self.assertEqual(self.root.ok("run", "--", "echo", "well").text, "well\n")
        wait_until(lambda: not self.residue(), 10, f"folders to be removed: {self.residue()}")
        if before and before[0] == self.root.daemon_pid():
            wait_until(lambda: len(self.descriptors()) <= len(before[1]), 10,
                       f"descriptors to be closed: {before[1]}, now {self.descriptors()}")

    def descriptors(self):
        """But for the database's: SQLite opens more of them when it needs them, and keeps them."""
        return [d for d in descriptors(self.root.daemon_pid()) if "ripcord.db" not in d]

    def one(self, kind, n, name, operation):
        """True when the fault was injected."""
        steps = getattr(self, f"op_{operation}")()
        what = b""
        try:
            argv = next(steps)
            if not argv:
                self.linger()
            before = None if argv else (self.root.daemon_pid(), self.descriptors() if self.root.accepts() else [])
            with self.begin(kind, n, name, argv) as injector:
                next(steps)
                self.linger(injector)  # that counts, too
                injector.kill()
                what = injector.stdout.read()
            self.revive()
            for _ in steps:
                pass
            self.settle(before)
        except AssertionError as e:
            raise AssertionError(f"{operation}: {kind} {n} of {name}, {what}: {e}") from None
        return what.startswith(b"done")

    def every(self, kind, operation, name):
        """All failures of a sweep, each in a root that is given up with it."""
        covered = Covered(kind, operation, name)
        while covered.goes_on():
            try:
                covered.note(self.one(kind, covered.next(), name, operation))
            except AssertionError as e:
                covered.note(True, str(e)[:4000])
                print(f"fault-inject: {str(e)[:1500]}", file=sys.stderr, flush=True)
                self.root.close()
                bin, self.root = self.root.bin, Root()
                self.begin_root(bin)
        print(covered, file=sys.stderr, flush=True)
        return covered.state["failed"]

    def some(self, kind, most, few):
        for name, operation in random.sample([(n, o) for n in most for o in self.operations()], FEW or few):
            self.one(kind, random.randint(1, most[name]), name, operation)

    def operations(self):
        return sorted(o[3:] for o in dir(self) if o.startswith("op_"))

    def sweep(self, kind, most, few=5):
        if ONLY:
            only, operation, name, n = ONLY.split()
            if only == kind:
                self.one(kind, int(n), name, operation)
        elif Config.soak:
            parts = [(o, n) for o in self.operations() for n in NAMES if re.search(PICK, f"{kind} {o} {n}")]
            failed = [f for operation, name in parts for f in self.every(kind, operation, name)]
            self.assertEqual(failed, [])
        else:
            self.some(kind, most, few)

    def test_a_call_that_is_the_last(self):
        self.sweep("kill", {"ripcordd": 250, "ripcord-shim": 200, "ripcord-init": 200})

    def test_a_call_that_fails(self):
        self.sweep("fault", {"ripcordd": 60, "ripcord-shim": 100, "ripcord-init": 120})

    def test_an_allocation_that_fails(self):
        """In programs whose allocations the injector sees (test/helpers/alloc.c)."""
        place = Path(tempfile.mkdtemp(prefix="ripcord-alloc-"))
        self.addCleanup(shutil.rmtree, place)
        for program in Config.bin.glob("ripcord*"):
            special = Config.bin / "test" / "unit" / f"{program.name}-alloc"
            if program.is_file() and os.access(program, os.X_OK):
                copy_program(special if special.exists() else program, place / program.name)
        self.root.kill_daemon()
        self.begin_root(place)
        self.sweep("malloc", {"ripcordd": 1500, "ripcord-shim": 60, "ripcord-init": 20}, 3)
