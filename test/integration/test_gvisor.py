"""What is different with gVisor, a runtime with a kernel of its own: `run.py --engine gvisor` runs this beside other modules."""

from ripcord_test import TestCase, only_on, wait_until

HOG = "hog = bytearray({} << 20)\nfor i in range(0, len(hog), 4096): hog[i] = 1"
# A command that looks for the guests of other execs, and of its own, and tries to read their memory or to trace them.
SPY = """
import ctypes, os
libc, seen, got = ctypes.CDLL(None, use_errno=True), set(), []
while len(seen) < 5:
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            words = open(f'/proc/{pid}/cmdline', 'rb').read()
        except OSError:
            continue
        if not words.startswith(b'/.ripcord/guest'):
            continue
        seen.add(pid)
        try:
            os.close(os.open(f'/proc/{pid}/mem', os.O_RDONLY))
            got.append((pid, 'mem'))
        except OSError:
            pass
        if libc.ptrace(16, int(pid), 0, 0) == 0:
            got.append((pid, 'ptrace'))
print(got)
"""


@only_on("gvisor")
class Gvisor(TestCase):
    def setUp(self):
        super().setUp()
        self.root.ok("up", "a", "--memory", "256M", "--pids", "200")

    def end(self):
        return self.root.exec_info("a")["end"]

    def test_commands_see_its_kernel(self):
        self.assertIn("Starting gVisor", self.shell("a", "dmesg"))
        self.assertEqual(self.root.sandbox("a")["spec"]["runtime"], "runsc")

    def test_the_package_cache_is_reached_through_the_guest(self):
        wait_until(lambda: self.root.get("/v1/sandboxes/a").get("package_cache") == "stream", 10, "the package cache to be served")

    def test_the_memory_limit_ends_the_sandbox(self):
        """The victim of the machine's kernel is gVisor's: the cause is true, and the next command starts the sandbox again."""
        self.shell("a", "echo kept > file")
        done = self.assert_exit(self.root.run("exec", "a", "--", "python3", "-c", HOG.format(600)), 137)
        self.assertIn("out of memory: the sandbox ended at its limit of 256 MiB", done.err.decode())
        self.assertEqual((self.end()["cause"], self.end()["oom_kills"]), ("oom", 1), self.end())
        self.assertEqual(self.shell("a", "cat file"), "kept\n")

    def test_the_process_limit_ends_the_sandbox(self):
        self.root.ok("up", "a", "--memory", "1G", "--pids", "100")
        self.shell("a", "echo kept > file")
        self.assert_exit(self.root.run("exec", "a", "--", "sh", "-c", "while :; do sleep 1000 & done"), 137)
        self.assertEqual(self.end()["cause"], "sandbox_stopped", self.end())
        self.assertEqual(self.shell("a", "cat file"), "kept\n")

    def test_limits_too_low_for_its_kernel(self):
        done = self.assert_exit(self.root.run("up", "low", "--memory", "64M", "--pids", "20"), 8)
        self.assertIn("Use at least --memory 128M and --pids 100", done.err.decode())
        self.root.ok("up", "least", "--memory", "128M", "--pids", "100")
        self.assertEqual(self.shell("least", "echo runs"), "runs\n")

    def test_figures(self):
        """The peak is that of the command's largest process: gVisor has no counter of the sandbox."""
        self.assert_exit(self.root.run("exec", "a", "--", "python3", "-c", HOG.format(100)), 0)
        end = self.end()
        self.assertTrue(100 << 20 < end["memory_peak"] < 200 << 20, end)
        self.assertGreater(end["cpu_ms"], 0)

    def test_pause(self):
        self.root.ok("exec", "a", "--detach", "--", "sh", "-c", "while :; do echo x >> ticks; sleep 0.05; done")
        wait_until(lambda: self.ticks(), 10, "the first tick")
        self.root.ok("pause", "a")
        self.assertEqual(self.root.sandbox("a")["state"], "paused")
        self.root.ok("resume", "a")
        before = self.ticks()
        wait_until(lambda: self.ticks() > before, 10, "more ticks")

    def ticks(self):
        return int(self.shell("a", "cat ticks 2>/dev/null | wc -l"))

    def test_network_open_has_its_own_stack(self):
        self.root.ok("up", "net", "--network", "open")
        self.assertIn("eth0:", self.shell("net", "cat /proc/net/dev"))

    def test_the_guest_is_out_of_reach(self):
        """Its program is readable here. What keeps others from its memory is that only an ancestor may trace (decision 037)."""
        with self.root.popen("exec", "a", "--", "python3", "-c", SPY) as spy:
            while spy.poll() is None:
                self.root.ok("exec", "a", "--", "true")
            out, err = spy.communicate()
        self.assertEqual((out, err), (b"[]\n", b""))
