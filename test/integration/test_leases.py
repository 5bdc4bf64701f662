"""Leases: how long sandboxes stay up and are kept."""
import time

from ripcord_test import TestCase, wait_until


class Leases(TestCase):
    def state(self, name):
        return self.root.sandbox(name)["state"]

    def names(self):
        return [s["name"] for s in self.root.sandboxes()]

    def test_each_lease_in_turn(self):
        """max_life ends it with its command and removes nothing; rm_after does, when it has been stopped for so long."""
        self.root.ok("up", "a", "--max-life", "2s", "--rm-after", "3s")
        x = self.root.ok("exec", "a", "--detach", "--", "sleep", "1000").text.split()[0]
        box = self.root.sandbox("a")
        self.assertEqual((box["expires"]["action"], box["expires"]["by"]), ("stop", "max_life"))
        self.assertLessEqual(box["expires"]["in_ms"], 2000)
        self.assertGreater(box["expires"]["at"], box["since"])
        wait_until(lambda: self.state("a") == "stopped", 30, "the end of its life")
        box = self.root.sandbox("a")
        self.assertEqual(box["reason"], "reached its max life of 2s")
        self.assertEqual(self.root.exec_info("a", x)["end"]["cause"], "sandbox_stopped")
        self.assertEqual((box["expires"]["action"], box["expires"]["by"]), ("remove", "rm_after"))
        self.root.kill_daemon()  # its clock goes on
        wait_until(lambda: "a" not in self.names() if self.root.daemon_pid() else self.root.ok("ls") is None, 30,
                   "the removal")
        self.assertIn(b'"reason":"stopped for 3s"', self.root.ok("events", "--sandbox", "a").out)

    def test_idle_time_is_counted_across_daemons(self):
        self.root.ok("up", "a", "--idle-stop", "3s")
        self.root.ok("exec", "a", "--", "true")
        begin = time.monotonic()
        for _ in range(20):  # a daemon that counts anew does not live to see the end
            end = time.monotonic() + 1.6
            while self.state("a") != "stopped" and time.monotonic() < end:
                time.sleep(0.05)
            if self.state("a") == "stopped":
                break
            self.root.kill_daemon()
            self.root.ok("ls")
        self.assertGreater(time.monotonic() - begin, 2.5)
        self.assertEqual(self.root.sandbox("a")["reason"], "idle for 3s")

    def test_changed_on_a_sandbox_that_is_there(self):
        self.root.ok("up", "a", "--idle-stop", "1h")
        self.shell("a", "touch /tmp/kept")
        before = self.root.sandbox("a")
        self.root.ok("lease", "a", "--idle-stop", "2h", "--max-life", "3h")
        for action in ("changed", "unchanged"):
            self.assertEqual(self.root.ok("up", "a", "--rm-after", "4h", "--json").json()["action"], action)
        box = self.root.sandbox("a")
        self.assertEqual((box["id"], box["hash"], box["since"]), (before["id"], before["hash"], before["since"]))
        self.assertEqual([box["spec"][k] // 3600000 for k in ("idle_stop_ms", "max_life_ms", "rm_after_ms")], [2, 3, 4])
        self.assertEqual(self.shell("a", "ls /tmp"), "kept\n")
        self.root.ok("stop", "a")
        self.root.ok("lease", "a", "--rm-after", "0s")
        self.assertEqual((self.state("a"), self.root.sandbox("a")["expires"]), ("stopped", None))
        self.assert_exit(self.root.run("lease", "a"), 2)
        self.assert_exit(self.root.run("lease", "nobody", "--idle-stop", "1h"), 3)
        self.assert_refused(self.root.http("PATCH", "/v1/sandboxes/a", {"memory": 1}), 400, "invalid", "memory")
        self.assert_refused(self.root.http("PATCH", "/v1/sandboxes/a", {"rm_after_ms": 2**62}), 400, "invalid", "must be between")
