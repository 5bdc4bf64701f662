"""Sandboxes that stop by themselves, and those that a reboot has stopped."""
import os
import shutil
import signal
import time

from ripcord_test import TestCase, alive, needs, smoke, wait_until


class IdleStop(TestCase):
    @smoke
    def test_an_idle_sandbox_stops_and_the_next_exec_starts_it(self):
        self.root.ok("up", "a", "--idle-stop", "1s")
        self.shell("a", "echo kept > file")
        wait_until(lambda: self.root.sandbox("a")["state"] == "stopped", 30, "the idle stop")
        self.assertEqual(self.root.sandbox("a")["reason"], "idle for 1s")
        self.assertEqual(self.root.cgroups(), [])
        self.assertEqual(self.shell("a", "cat file"), "kept\n")

    def test_a_live_exec_keeps_it_up(self):
        self.root.ok("up", "a", "--idle-stop", "1s")
        self.root.ok("up", "never")
        x = self.root.ok("exec", "a", "--detach", "--", "sleep", "1000").text.split()[0]
        time.sleep(2.5)
        self.assertEqual(self.root.sandbox("a")["state"], "running")
        self.root.ok("kill", "a", x, "--signal", "KILL")
        wait_until(lambda: self.root.sandbox("a")["state"] == "stopped", 30, "the idle stop after its end")
        self.assertEqual(self.root.sandbox("never")["state"], "running")

    def test_it_is_remembered_by_the_next_daemon(self):
        self.root.ok("up", "a", "--idle-stop", "1s")
        self.root.kill_daemon()
        self.root.ok("ls")
        wait_until(lambda: self.root.sandbox("a")["state"] == "stopped", 30, "the idle stop")


@needs("own kernel objects")
class Reboot(TestCase):
    def kill_all(self):
        """Again and again: a client that follows an exec starts a daemon when the first has gone."""
        living = [pid for pid in self.root.processes() if alive(pid)]
        for pid in living:
            self.root.end(pid)
        return not living

    def power_off(self):
        """All processes of this root, then what a reboot empties."""
        wait_until(self.kill_all, 30, "all processes to be gone")
        shutil.rmtree(self.root.path / "run")
        for folder in reversed(self.root.cgroups()):
            for path, _, _ in os.walk(folder, topdown=False):
                try:
                    os.rmdir(path)
                except OSError:
                    pass

    def test_exec_starts_it_again_with_its_files(self):
        self.root.start()
        self.root.ok("up", "a")
        self.root.ok("up", "b")
        self.shell("a", "echo kept > file; echo gone > /tmp/file")
        x = self.root.ok("exec", "a", "--detach", "--", "sh", "-c", "echo before; sleep 1000").text.split()[0]
        wait_until(lambda: self.root.ok("logs", "a", x).out == b"before\n", 30, "its output")
        with self.root.popen("run", "--", "sleep", "1000"):
            wait_until(lambda: len(self.root.sandboxes()) == 3, 30, "the run")
            self.power_off()
        self.assertEqual(self.shell("a", "cat file; ls /tmp"), "kept\n")
        self.assertEqual(self.root.exec_info("a", x)["end"]["cause"], "engine_lost")
        self.assertEqual(self.root.ok("logs", "a", x).out, b"before\n", "what was written before is there")
        wait_until(lambda: {s["name"]: s["state"] for s in self.root.sandboxes()}
                   == {"a": "running", "b": "stopped"}, 30, "the states of the others")
        self.assertEqual(self.shell("b", "echo works"), "works\n")
