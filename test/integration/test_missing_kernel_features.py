"""Kernels that lack something: it works without, or it is refused in the kernel's own words. Never less of a sandbox."""
import os
import unittest

from ripcord_test import Config, Process, Result, TestCase, only_on

DISPENSABLE = ("pidfd_open", "pidfd_send_signal", "landlock", "keyctl", "statx", "renameat2", "copy_file_range")
NEEDED = ("openat2", "clone3", "close_range", "memfd_create", "fsopen", "open_tree", "move_mount", "mount_setattr", "setns", "seccomp")


@only_on("native")
class Missing(TestCase):
    def setUp(self):
        super().setUp()
        self.helper = Config.bin / "test" / "unit" / "deny-syscall"
        if not self.helper.exists() or os.geteuid() != 0:
            raise unittest.SkipTest("needs root, and the test helpers beside the programs")
        if Config.sanitized:
            raise unittest.SkipTest("a sanitizer needs some of these itself")

    def run_without(self, call, *args):
        """A command line whose daemon, and all that it starts, live on such a kernel."""
        if self.root.daemon_pid() is not None:
            self.root.kill_daemon()
        argv = [str(self.helper), call, "--", *self.root.argv(*args)]
        with Process(argv, env=self.root.env(), stdin=-3, stdout=-1, stderr=-1) as p:
            out, err = p.communicate(timeout=60)
        return Result(argv, p.returncode, out, err)

    def test_what_can_be_done_without(self):
        for call in DISPENSABLE:
            done = self.run_without(call, "run", "--", "grep", "-E", "Seccomp:|NoNewPrivs:|CapBnd:", "/proc/self/status")
            self.assertEqual((done.code, done.text), (0, "CapBnd:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\n"), done)

    def test_confined_is_refused_without_landlock(self):
        done = self.run_without("landlock", "run", "--isolation", "confined", "--", "echo", "ran")
        self.assertEqual((done.code, done.out), (125, b""), done)
        self.assertIn(b"does not support isolation 'confined' on this machine: Landlock of this kernel is too old (ABI 0, needs 6)", done.err)
        self.assertIn(b"hint: Use Linux 6.12 or newer, with 'landlock' in the 'lsm=' list", done.err)
        report = self.run_without("landlock", "doctor", "--json").json()
        line = next(line for line in report["checks"] if line["name"] == "confined isolation")
        self.assertEqual((report["ok"], line["status"]), (True, "warn"), report)
        self.assertIn("Landlock of this kernel is too old", line["detail"])
        self.assertIn("Use Linux 6.12 or newer", line["fix"])

    def test_what_is_needed_is_named(self):
        for call in NEEDED:
            done = self.run_without(call, "run", "--", "echo", "ran")
            self.assertEqual((done.code, done.out), (125, b""), done)
            self.assertIn(b"Function not implemented", done.err, done)
