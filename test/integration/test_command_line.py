"""What the command line does by itself: waiting, the daemon's life, copies of several files, the end of an output."""
import time
import unittest

from ripcord_test import TestCase

SLEEP = ("sleep", "1000")


class Wait(TestCase):
    def setUp(self):
        super().setUp()
        self.root.ok("up", "a")

    def start(self, script):
        return self.root.ok("exec", "a", "--detach", "--", "sh", "-c", script).text.strip()

    def test_the_status_is_that_of_the_command(self):
        for script, status in (("exit 7", 7), ("sleep 0.5; exit 3", 3), ("kill -9 $$", 137)):
            self.assert_exit(self.root.run("wait", "a", self.start(script)), status)
        done = self.assert_exit(self.root.run("wait", "a", "last", "--json"), 137)
        self.assertEqual(done.json()["exec"]["end"]["signal"], "KILL")
        self.assertEqual((done.out.count(b"\n"), done.err), (1, b""))

    def test_the_cause_is_told_as_exec_does(self):
        self.root.run("exec", "a", "--timeout", "100ms", "--", *SLEEP)
        done = self.assert_exit(self.root.run("wait", "a", "last"), 137)
        self.assertIn(b"timeout: the command was killed", done.err)
        self.assertEqual(done.out, b"")

    def test_our_own_failures_are_125(self):
        running = self.start("sleep 1000")
        done = self.assert_exit(self.root.run("wait", "a", running, "--timeout", "200ms"), 125)
        self.assertIn(f"exec '{running}' of sandbox 'a' has not ended after 200ms", done.err.decode())
        self.assertIsNone(self.root.exec_info("a", running)["end"])
        for words in (("a", "0123456789abcdef"), ("nobody", "last"), ("a", "last", "--state", "stopped"), ("a", "x/y")):
            self.assert_exit(self.root.run("wait", *words), 125)

    def test_a_restart_of_the_daemon_does_not_end_the_wait(self):
        running = self.start("sleep 2; exit 5")
        with self.root.popen("wait", "a", running) as p:
            time.sleep(0.3)
            self.root.kill_daemon()
            self.assertEqual(p.wait(30), 5, p.stderr.read())

    def test_the_state_of_a_sandbox(self):
        self.root.ok("wait", "a", "--state", "running", "--timeout", "20s")
        with self.root.popen("wait", "a") as p:
            time.sleep(0.3)
            self.assertIsNone(p.poll())
            self.root.ok("stop", "a")
            self.assertEqual((p.wait(20), p.stdout.read(), p.stderr.read()), (0, b"", b""))
        self.assertEqual(self.root.ok("wait", "a", "--json").json()["sandbox"]["state"], "stopped")
        done = self.assert_exit(self.root.run("wait", "a", "--state", "running", "--state", "paused", "--timeout", "200ms"), 9)
        self.assertIn(b"sandbox 'a' is still stopped after 200ms", done.err)

    def test_a_removed_sandbox_ends_the_wait(self):
        with self.root.popen("wait", "a") as other, self.root.popen("wait", "a", "--state", "removed", "--json") as p:
            time.sleep(0.3)
            self.root.ok("rm", "a")
            self.assertEqual((p.wait(20), p.stdout.read()), (0, b'{"removed":true}\n'))
            self.assertIn(other.wait(20), (0, 3))  # it may have seen the stop before the removal

    def test_states_that_do_not_exist(self):
        done = self.assert_exit(self.root.run("wait", "a", "--state", "runing"), 2)
        self.assertIn(b"Did you mean 'running'?", done.err)


if __name__ == "__main__":
    unittest.main()
