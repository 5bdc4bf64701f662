"""A sandbox that prepares its own files, its neighbours and its next start against us: the machine stays untouched."""
import fcntl
import os
import stat
import subprocess
import threading
import time
from pathlib import Path

from ripcord_test import Config, TestCase, needs, only_on

F_GET_SEALS, SEALED = 1034, 0xF  # seal, shrink, grow, write


def contents(folder):
    """Names, kinds and bytes of a tree, to compare."""
    found = {}
    for path in sorted(Path(folder).rglob("*")):
        found[str(path)] = path.read_bytes() if path.is_file() and not path.is_symlink() else stat.S_IFMT(path.lstat().st_mode)
    return found


@only_on("native")
class Roots(TestCase):
    """What a hostile image, or a root of an earlier run, may hold where we are about to mount, write or look."""
    PLACES = ("dev", "proc", "sys", "etc", "tmp", "run", "scratch", "cache", "home", "home/agent", "usr", "etc/resolv.conf", "etc/hosts",
              "etc/passwd")

    def setUp(self):
        super().setUp()
        self.canary = Path(self.root.path / "canary")
        self.canary.mkdir()
        (self.canary / "file").write_text("host")
        (self.canary / "null").write_text("host")
        self.root.ok("up", "a")
        self.root.ok("stop", "a")
        self.upper = self.root.path / "state" / "sandboxes" / self.root.sandbox("a")["id"] / "root" / "upper"

    def kinds(self):
        up = "../" * 12
        return {"link": lambda p: p.symlink_to(self.canary), "link up": lambda p: p.symlink_to(up + str(self.canary)[1:]),
                "link to a file": lambda p: p.symlink_to(self.canary / "file"),
                "FIFO": os.mkfifo, "device": lambda p: os.mknod(p, 0o666 | stat.S_IFCHR, os.makedev(1, 3)), "file": Path.touch}

    def attempt(self, place, kind, put):
        """Starts the sandbox with this one thing in its root."""
        target = self.upper / place
        aside = target.with_name(target.name + ".aside")
        if os.path.lexists(target):
            target.rename(aside)
        target.parent.mkdir(exist_ok=True)
        put(target)
        since = time.monotonic()
        done = self.root.run("exec", "a", "--", "sh", "-c", "test -c /dev/null && test -d /proc/1 && echo whole")
        self.assertLess(time.monotonic() - since, 20, f"{kind} at /{place}: it hangs")
        self.root.ok("stop", "a")
        if done.code == 0:
            self.assertEqual(done.text, "whole\n", f"{kind} at /{place}")
        subprocess.run(["rm", "-rf", str(target)], check=True)
        if aside.exists():
            aside.rename(target)
        return done.code

    def test_no_planted_file_leads_out(self):
        before = contents(self.canary)
        for place in self.PLACES:
            for kind, put in self.kinds().items():
                self.attempt(place, kind, put)
                self.assertEqual(contents(self.canary), before, f"{kind} at /{place}")
        self.assertEqual(self.root.ok("exec", "a", "--", "echo", "fine").text, "fine\n")


@only_on("native")
class Mounts(TestCase):
    def test_a_target_that_changes_under_us(self):
        """CVE-2021-30465: a neighbour swaps a folder of a shared mount for a link while we mount below it."""
        shared, canary = self.root.path / "shared", self.root.path / "canary"
        (shared / "a").mkdir(parents=True)
        (shared / "a").chmod(0o777)
        canary.mkdir()
        (canary / "secret").write_text("host")
        (shared / "b").symlink_to(canary)
        self.root.configure(f"mounts.roots: [{shared}]\n")
        self.root.start()
        stop = threading.Event()

        def swap():
            while not stop.is_set():
                os.rename(shared / "a", shared / "c")
                os.rename(shared / "b", shared / "a")
                os.rename(shared / "a", shared / "b")
                os.rename(shared / "c", shared / "a")
        swapper = threading.Thread(target=swap)
        swapper.start()
        try:
            for _ in range(300 if Config.soak else 15):
                done = self.root.run("up", "m", "--mount", f"{shared}:/v", "--mount", f"{shared}:/v/a/deep")
                if done.code == 0:
                    got = self.root.run("exec", "m", "--", "cat", "/v/a/secret", "/v/b/secret", f"{canary}/secret")
                    self.assertNotIn(b"host", got.out)
                self.root.run("rm", "-f", "m")
        finally:
            stop.set()
            swapper.join()
        self.assertEqual(sorted(p.name for p in canary.iterdir()), ["secret"])

    def test_working_folders_that_are_descriptors(self):
        self.root.ok("up", "a")
        for n in range(24):
            done = self.root.run("exec", "a", "--workdir", f"/proc/self/fd/{n}", "--", "pwd")
            self.assertEqual(done.code, 125, done)
        self.root.ok("exec", "a", "--", "ln", "-s", "/proc/self/fd/3", "/home/agent/w")
        self.assertEqual(self.root.run("exec", "a", "--workdir", "/home/agent/w", "--", "pwd").code, 125)


@only_on("native")
class Programs(TestCase):
    def test_pid_1_is_a_sealed_copy(self):
        """CVE-2019-5736: no program that enters a sandbox or runs in it is a file of the machine, and none can be written."""
        self.root.ok("up", "a")
        pids = [p for p in self.root.inside() if Path(f"/proc/{p}/comm").read_text() in ("ripcord-init\n", "ripcord-shim\n")]
        self.assertGreaterEqual(len(pids), 1)
        for pid in pids:
            with open(f"/proc/{pid}/exe", "rb") as exe:
                self.assertEqual(fcntl.fcntl(exe, F_GET_SEALS) & SEALED, SEALED)
        self.assertNotEqual(self.root.run("exec", "a", "--user", "0", "--", "cat", "/proc/1/exe").code, 0)

    def test_set_user_id_programs_give_nothing(self):
        self.root.ok("up", "a")
        done = self.root.run("exec", "a", "--user", "0", "--", "sh", "-c",
                             "cp /usr/bin/id /tmp/id /scratch/id 2>/dev/null; cp /usr/bin/id /tmp/id; cp /usr/bin/id /home/agent/id; "
                             "chmod 4755 /tmp/id /home/agent/id")
        self.assertEqual(done.code, 0, done)
        for path in ("/tmp/id", "/home/agent/id", "/usr/bin/su -c id", "/usr/bin/passwd -S"):
            self.assertNotIn("uid=0", self.root.run("exec", "a", "--", *path.split()).text, path)
        self.assertEqual(self.shell("a", "/tmp/id -u; /home/agent/id -u"), "1000\n1000\n")


TALK = "import ctypes, os, socket, sys, time\nlibc = ctypes.CDLL(None, use_errno=True)\n"


class Neighbours(TestCase):
    """Two sandboxes on one machine share a kernel, and nothing else."""

    def setUp(self):
        super().setUp()
        for name in ("a", "b"):
            self.root.ok("up", name)

    def python(self, name, code):
        return self.root.ok("exec", name, "--", "/usr/bin/python3", "-c", TALK + code).text

    def keep(self, name, code):
        """Runs on until the sandbox goes."""
        p = self.root.popen("exec", name, "--", "/usr/bin/python3", "-uc", TALK + code + "\nprint('ready'); time.sleep(300)")
        self.addCleanup(p.wait)
        self.addCleanup(p.kill)
        self.assertEqual(p.stdout.readline(), b"ready\n")

    def test_abstract_sockets(self):
        self.keep("a", "s = socket.socket(socket.AF_UNIX); s.bind('\\0ripcord'); s.listen()")
        code = "print(socket.socket(socket.AF_UNIX).connect_ex('\\0ripcord'))"
        self.assertEqual(self.python("a", code), "0\n")
        self.assertEqual(self.python("b", code), "111\n")  # ECONNREFUSED

    def test_shared_memory_and_queues(self):
        self.keep("a", "open('/dev/shm/x', 'w').close(); assert libc.shmget(7, 4096, 0o1666) >= 0; "
                  "assert libc.msgget(7, 0o1666) >= 0; assert libc.semget(7, 1, 0o1666) >= 0")
        look = "print(os.path.exists('/dev/shm/x'), libc.shmget(7, 0, 0) >= 0, libc.msgget(7, 0) >= 0, libc.semget(7, 0, 0) >= 0)"
        self.assertEqual(self.python("a", look), "True True True True\n")
        self.assertEqual(self.python("b", look), "False False False False\n")

    @needs("own kernel objects")
    def test_what_is_counted_by_user(self):
        """Watches are counted by uid: one sandbox at its limit leaves the other one's alone."""
        self.keep("a", "while libc.inotify_init1(0) >= 0: pass")
        self.assertEqual(self.python("b", "print(libc.inotify_init1(0) >= 0)"), "True\n")

    @needs("own kernel objects")
    def test_own_ids(self):
        maps = {self.shell(name, "cat /proc/self/uid_map").split()[1] for name in ("a", "b")}
        self.assertEqual(len(maps), 2 if os.geteuid() == 0 else 1)
        self.assertTrue(all(int(first) >= 100000 for first in maps) or os.geteuid() != 0)

    @needs("host image")
    def test_links_to_what_is_shared(self):
        r = self.root.run("exec", "a", "--user", "0", "--", "ln", "/usr/bin/true", "/home/agent/true")
        self.assertIn(b"cross-device", r.err.lower())
