"""One sandbox that takes all it can get: the daemon still answers, and its neighbour does not notice."""
import os
import resource
import time
from pathlib import Path

from ripcord_test import TestCase, alone, full_run_only, needs, only_on, wait_until

HOGS = {
    "fork bomb": ["sh", "-c", "f() { f | f & }; f; sleep 1000"],
    "zombies": ["python3", "-c", """
import os, time
try:
    while True:
        if os.fork() == 0:
            os._exit(0)
except OSError:
    print("full", flush=True)
time.sleep(1000)
"""],
    "descriptors": ["python3", "-c", """
import os, time
held = []
while True:
    try:
        held.append(os.pipe())
    except OSError:
        if os.fork() == 0:
            held = []
            continue
        time.sleep(1000)
"""],
    "ptys": ["python3", "-c", """
import os, time
held = []
try:
    while True:
        held.append(os.openpty())
except OSError as e:
    print(len(held), e, flush=True)
time.sleep(1000)
"""],
    "output": ["sh", "-c", "yes & yes >&2"],
    "files": ["python3", "-c", """
i = 0
while True:
    try:
        open(f"/tmp/{i}", "w").close()
    except OSError as e:
        print(i, e, flush=True)
        break
    i += 1
"""],
}


@alone
class Hogs(TestCase):
    def setUp(self):
        super().setUp()
        self.root.configure("journal.budget: 16M\nstop_grace: 1s\n")
        self.root.start()
        self.root.ok("up", "victim")
        self.shell("victim", "echo mine > /home/agent/file; echo tmp > /tmp/file")
        self.root.ok("up", "hog", "--memory", "128M", "--pids", "100", "--cpus", "1")

    def start_hog(self, *argv):
        return self.root.ok("exec", "hog", "--detach", "--", *argv).text.split()[0]

    def check_unharmed(self, what):
        for _ in range(5):
            since = time.monotonic()
            self.root.ok("ls")
            took = time.monotonic() - since
            self.assertLess(took, 10, f"ls under {what}")
            self.assertEqual(self.shell("victim", "cat /home/agent/file /tmp/file"), "mine\ntmp\n", what)
            time.sleep(0.05)

    def check_gone(self, what):
        since = time.monotonic()
        self.root.ok("stop", "hog")
        self.assertLess(time.monotonic() - since, 40, f"stop under {what}")
        self.root.ok("up", "hog")

    @full_run_only
    def test_each_hog_alone_harms_no_neighbour(self):
        for what, argv in HOGS.items():
            with self.subTest(what):
                self.start_hog(*argv)
                time.sleep(0.5)
                self.check_unharmed(what)
                self.check_gone(what)

    def test_tmpfs_is_bounded(self):
        """A full /tmp is ENOSPC at its size; /scratch beyond the memory limit is the kernel's OOM: never the host."""
        r = self.root.run("exec", "victim", "--", "sh", "-c", "head -c 400M /dev/zero > /tmp/big; ls -l /tmp/big")
        self.assertIn(b"No space left", r.err, r)
        self.assertIn(str(128 << 20), self.shell("victim", "du -b /tmp | cut -f1; stat -c %s /tmp/big; echo; df -B1 /tmp"))
        self.shell("victim", "rm /tmp/big")
        r = self.root.run("exec", "hog", "--", "sh", "-c", "head -c 400M /dev/zero > /scratch/big")
        self.assertNotEqual(r.code, 0)
        self.assertGreaterEqual(self.root.exec_info("hog")["end"]["oom_kills"], 1)
        self.check_unharmed("a full tmpfs")

    @needs("own kernel objects")  # a devpts with a limit of its own
    def test_ptys_and_descriptors_end(self):
        x = self.start_hog(*HOGS["ptys"])
        wait_until(lambda: self.root.ok("logs", "hog", x).out, 30, "the end of ptys")
        count = int(self.root.ok("logs", "hog", x).text.split()[0])
        self.assertLess(count, 1024)
        self.assertEqual(self.root.ok("exec", "victim", "-t", "--", "echo", "tty").code, 0)
        self.assertEqual(self.root.ok("exec", "hog", "--", "echo", "still").text, "still\n")


class Descriptors(TestCase):
    """A daemon that runs out of descriptors says so to new work, and finishes what it has."""
    LIMIT = 160

    def test_new_work_is_refused_in_time(self):
        self.root.ok("up", "a", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (self.LIMIT, self.LIMIT)))
        with self.root.popen("exec", "a", "-i", "--", "cat", stdin=-1) as p:
            held = []
            while (reply := self.exec_once()).status == 201 and len(held) < self.LIMIT:
                held += [self.root.connect() for _ in range(5)]
            self.assertEqual((reply.status, reply.code), (429, "limit"), reply)
            self.assertIn("descriptors in use", reply.json()["error"]["message"])
            self.assertEqual(self.root.sandbox("a")["state"], "running")
            out, _ = p.communicate(b"still served", timeout=30)
            self.assertEqual((p.returncode, out), (0, b"still served"))
            for s in held:
                s.close()
        wait_until(lambda: self.exec_once().status == 201, 20, "new work to be taken again")

    def exec_once(self):
        return self.root.http("POST", "/v1/sandboxes/a/execs", {"argv": ["true"]})


@alone
@only_on("native")
class Remains(TestCase):
    ROUNDS = 20

    def memory_cgroups(self):
        """All that the kernel has, also those that are held by a descriptor and no longer visible."""
        table = [line.split() for line in Path("/proc/cgroups").read_text().splitlines()]
        return next(int(row[2]) for row in table if row[0] == "memory")

    def test_the_kernel_keeps_nothing_of_those_that_have_gone(self):
        """Blocks of the disk that were touched for a mount stay in memory, and hold the cgroup that paid for them."""
        self.root.ok("run", "--", "true")
        os.sync()
        try:
            Path("/proc/sys/vm/drop_caches").write_text("1", encoding="ascii")  # else others have touched them before
        except OSError as e:
            self.skipTest(f"the caches cannot be dropped: {e}")
        before = self.memory_cgroups()
        for _ in range(self.ROUNDS):
            self.root.ok("run", "--", "true")
        wait_until(lambda: self.memory_cgroups() - before < self.ROUNDS / 2, 20, "cgroups to go")
