"""What the command line does by itself: waiting, the daemon's life, copies of several files, the end of an output."""
import datetime
import os
import tempfile
import time
import unittest
from pathlib import Path

from ripcord_test import TestCase, alive, wait_until

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


class Daemon(TestCase):
    def test_status_starts_nothing(self):
        done = self.assert_exit(self.root.run("daemon", "status", "--json"), 3)
        self.assertEqual(done.json(), {"running": False, "unit": None})
        self.assertEqual(self.assert_exit(self.root.run("daemon", "status"), 3).text, "state:   not running\n")
        self.assertIsNone(self.root.daemon_pid())
        self.root.start()
        doc = self.root.ok("daemon", "status", "--json").json()
        self.assertEqual((doc["running"], doc["pid"], doc["run_dir"]), (True, self.root.daemon_pid(), str(self.root.path / "run")))
        self.assertIn(f"pid:     {self.root.daemon_pid()}\n", self.root.ok("daemon", "status").text)

    def test_stop_and_restart_leave_commands_alone(self):
        self.root.ok("up", "a")
        running = self.root.ok("exec", "a", "-d", "--", "sh", "-c", "sleep 3; echo done").text.strip()
        first = self.root.daemon_pid()
        self.assertIn("has ended", self.root.ok("daemon", "stop").text)
        self.assertFalse(alive(first))
        self.assertEqual(self.root.ok("daemon", "stop").text, "the daemon does not run\n")
        self.assertFalse(self.root.accepts())
        self.root.ok("ls")  # starts the next one
        self.assertIsNone(self.root.exec_info("a", running)["end"])
        second = self.root.daemon_pid()
        self.assertEqual(self.root.ok("daemon", "restart", "--json").json(), {"restarted": True})
        self.assertNotIn(self.root.daemon_pid(), (first, second))
        self.assertFalse(alive(second))
        self.assert_exit(self.root.run("wait", "a", running), 0)
        self.assertEqual(self.root.ok("logs", "a", running).out, b"done\n")

    def test_restart_starts_a_daemon_where_none_runs(self):
        self.root.ok("daemon", "restart")
        self.assertTrue(self.root.accepts())

    def test_a_daemon_with_options_of_its_own_is_not_restarted(self):
        with self.root.popen("daemon", "--log-level", "error") as p:
            wait_until(self.root.accepts, 20, "the daemon")
            done = self.assert_exit(self.root.run("daemon", "restart"), 4)
            self.assertIn(b"was started with options of its own", done.err)
            self.assertIsNone(p.poll())
            self.root.ok("daemon", "stop")
            self.assertEqual(p.wait(20), 0)

    def test_actions_that_do_not_exist(self):
        for words, error in ((["stauts"], "Did you mean 'ripcord daemon status'?"), (["now"], "unknown action 'now'"),
                             (["stop", "--listen", "x"], "unknown option '--listen'"), (["status", "all"], "unexpected argument 'all'")):
            self.assertIn(error, self.assert_exit(self.root.run("daemon", *words), 2).err.decode())
        self.assertIn("daemon restart", self.root.ok("daemon", "stop", "--help").text)
        self.assertIsNone(self.root.daemon_pid())


class Place(TestCase):
    """Variables, working folders and mounts, as people write them."""

    def setUp(self):
        super().setUp()
        work = tempfile.TemporaryDirectory(prefix="ripcord-place-")
        self.addCleanup(work.cleanup)
        self.here = Path(work.name).resolve()
        self.here.chmod(0o777)

    def test_a_variable_is_passed_on(self):
        env = {"PASSED": "a b=c", "EMPTY": ""}
        script = 'echo "[$PASSED] [${EMPTY-unset}] [${ABSENT_HERE-unset}] [$GIVEN]"'
        done = self.root.ok("run", "-e", "PASSED", "--env", "EMPTY", "-e", "ABSENT_HERE", "-e", "GIVEN=x", "--", "sh", "-c", script, env=env)
        self.assertEqual(done.out, b"[a b=c] [] [unset] [x]\n")
        self.root.ok("up", "a", "-e", "PASSED", "-e", "ABSENT_HERE", env=env)
        self.assertEqual(self.root.sandbox("a")["spec"]["env"], {"PASSED": "a b=c"})
        self.root.ok("up", "a", "-e", "PASSED")  # not set here: no change
        self.assertEqual(self.shell("a", "echo $PASSED"), "a b=c\n")
        for bad in ("1A", "A B", "", "=x"):
            self.assert_exit(self.root.run("run", "-e", bad, "--", "true"), 125)

    def test_a_relative_folder_is_below_the_working_folder(self):
        self.root.ok("up", "a")
        self.shell("a", "mkdir -p src/deep /tmp/src")
        self.assertEqual(self.root.ok("exec", "a", "-w", "src/deep", "--", "pwd").out, b"/home/agent/src/deep\n")
        self.assertEqual(self.root.ok("exec", "a", "--cwd", "src", "--", "pwd").out, b"/home/agent/src\n")
        done = self.assert_exit(self.root.run("exec", "a", "-w", "missing", "--", "pwd"), 125)
        self.assertIn(b"working folder '/home/agent/missing'", done.err)
        self.root.ok("up", "a", "--workdir", "/tmp")
        self.shell("a", "mkdir -p src")
        self.assertEqual(self.root.ok("exec", "a", "-w", "src", "--", "pwd").out, b"/tmp/src\n")
        done = self.assert_exit(self.root.run("up", "a", "--workdir", "src"), 2)
        self.assertIn(b"is not an absolute path", done.err)
        done = self.assert_exit(self.root.run("exec", "a", "-w", ".", "--", "pwd"), 125)
        self.assertIn(b"--mount . --workdir", done.err)

    def test_a_folder_at_its_own_path(self):
        (self.here / "file").write_text("there", encoding="utf-8")
        for value in (".", str(self.here), f"{self.here}:{self.here}", ".:ro"):
            done = self.root.ok("run", "-v", value, "-w", str(self.here), "--", "sh", "-c", "pwd; cat file; touch new 2>/dev/null || echo ' ro'",
                                cwd=self.here)
            self.assertEqual(done.text, f"{self.here}\nthere" + (" ro\n" if value.endswith(":ro") else ""))
            self.assertEqual((self.here / "new").exists(), not value.endswith(":ro"))
            (self.here / "new").unlink(missing_ok=True)
        for bad in (".:rx", ".:a:ro", "", ":", f".:{self.here}:rw:x"):
            self.assert_exit(self.root.run("run", "-v", bad, "--", "true", cwd=self.here), 125)
        done = self.assert_exit(self.root.run("run", "-v", "volume:/data", "--", "true", cwd=self.here), 125)
        self.assertIn(b"no named volumes", done.err)


class Copies(TestCase):
    def setUp(self):
        super().setUp()
        work = tempfile.TemporaryDirectory(prefix="ripcord-cp-")
        self.addCleanup(work.cleanup)
        self.here = Path(work.name)
        (self.here / "d").mkdir()
        for name in ("one", "two", "d/three"):
            (self.here / name).write_text(name, encoding="utf-8")
        self.root.ok("up", "a")
        self.shell("a", "mkdir into")

    def cp(self, *words):
        return self.root.run("cp", *words, cwd=self.here)

    def test_several_sources_go_into_a_folder(self):
        done = self.assert_exit(self.cp("one", "two", "d", "a:into", "--json"), 0)
        self.assertEqual(done.json(), {"entries": 4, "bytes": 13, "skipped": 0})
        self.assertEqual(self.shell("a", "cd into; cat one two d/three"), "onetwod/three")
        (self.here / "back").mkdir()
        self.assert_exit(self.cp("a:into/one", "a:into/d", "back"), 0)
        self.assertEqual(sorted(str(p.relative_to(self.here)) for p in (self.here / "back").rglob("*")), ["back/d", "back/d/three", "back/one"])
        self.root.ok("up", "b")
        self.assert_exit(self.cp("a:into/two", "one", "b:"), 0)
        self.assertEqual(self.shell("b", "cat one two"), "onetwo")

    def test_one_failure_does_not_stop_the_others(self):
        done = self.assert_exit(self.cp("one", "missing", "two", "a:into"), 3)
        self.assertEqual(done.err, b"ripcord: no file or folder 'missing'\n")
        self.assertEqual(self.shell("a", "ls into"), "one\ntwo\n")
        (self.here / "back").mkdir()
        self.assert_exit(self.cp("a:into/one", "a:into/missing", "a:into/two", "back"), 3)
        self.assertEqual(sorted(os.listdir(self.here / "back")), ["one", "two"])

    def test_the_target_of_several_must_be_a_folder(self):
        self.shell("a", "echo old >file")
        for target in ("a:file", "a:missing"):
            self.assertNotEqual(self.cp("one", "two", target).code, 0)
        self.assertEqual(self.shell("a", "cat file; ls"), "old\nfile\ninto\n")
        self.assert_exit(self.cp("one", "two", "a:made", "--parents"), 0)
        self.assertEqual(self.shell("a", "ls made"), "one\ntwo\n")

    def test_archives_are_copied_alone(self):
        for words in (("one", "-", "a:into"), ("a:into", "a:into", "-")):
            self.assertIn(b"'-'", self.assert_exit(self.cp(*words), 2).err)


class Tail(TestCase):
    def setUp(self):
        super().setUp()
        self.root.ok("up", "a")

    def test_the_last_lines_of_each_stream(self):
        self.shell("a", "seq 100000; seq 5 >&2")
        done = self.root.run("logs", "a", "--tail", "2")
        self.assertEqual((done.out, done.err), (b"99999\n100000\n", b"4\n5\n"))
        everything = self.root.run("logs", "a")
        for lines in (0, 1, 4, 5, 9000, 20000, 99999, 100000, 100001, 1000000):
            done = self.root.run("logs", "a", "-n", str(lines))
            keep = [b"".join(part.splitlines(True)[-lines:] if lines else []) for part in (everything.out, everything.err)]
            self.assertEqual([done.out, done.err], keep, lines)

    def test_odd_ends(self):
        for text, lines, tail in (("a\\nb", 1, b"b"), ("a\\nb", 2, b"a\nb"), ("\\n\\n\\n", 2, b"\n\n"), ("", 3, b""), ("x", 1, b"x")):
            self.shell("a", f"printf '{text}'")
            self.assertEqual(self.root.ok("logs", "a", "--tail", str(lines)).out, tail)

    def test_of_a_running_command_and_followed(self):
        running = self.root.ok("exec", "a", "-d", "--", "sh", "-c", "seq 1000; until [ -e go ]; do sleep 0.1; done; echo more").text.strip()
        wait_until(lambda: self.root.run("logs", "a", "-n", "1").out == b"1000\n", 20, "the output")
        with self.root.popen("logs", "a", running, "--tail", "3", "-f") as p:
            self.assertEqual([p.stdout.readline() for _ in range(3)], [b"998\n", b"999\n", b"1000\n"])
            self.shell("a", "touch go")
            self.assertEqual(p.communicate(timeout=20)[0], b"more\n")

    def test_numbers_out_of_range(self):
        for value in ("-1", "1000001", "all"):
            self.assertIn(b"--tail", self.assert_exit(self.root.run("logs", "a", "--tail", value), 2).err)


class Times(TestCase):
    def setUp(self):
        super().setUp()
        self.root.ok("up", "a")

    @staticmethod
    def parse(line):
        """Seconds since the epoch, and the rest of the line."""
        stamp, _, text = line.partition(" ")
        return datetime.datetime.strptime(stamp, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=datetime.timezone.utc).timestamp(), text

    def test_each_line_has_the_time_of_its_writing(self):
        before = time.time()
        self.root.run("exec", "a", "--", "sh", "-c", "echo one; sleep 1; printf tw; sleep 1; echo o; echo three >&2")
        after = time.time()
        done = self.root.run("logs", "a", "--timestamps")
        (one, first), (two, second) = [self.parse(line) for line in done.text.splitlines()]
        three, third = self.parse(done.err.decode().rstrip("\n"))
        self.assertEqual((first, second, third), ("one", "two", "three"))
        self.assertLessEqual(before - 0.1, one)  # the start may be a moment before the first output
        self.assertGreaterEqual(two - one, 0.9)
        self.assertGreaterEqual(three - two, 0.9)
        self.assertLessEqual(three, after + 0.01)

    def test_since(self):
        self.root.run("exec", "a", "--", "sh", "-c", "echo old; sleep 1.5; echo new; echo bad >&2")
        new = self.parse(self.root.run("logs", "a", "-t").text.splitlines()[1])[0]
        moment = datetime.datetime.fromtimestamp(new - 0.5, datetime.timezone.utc)
        for text in (moment.isoformat(), moment.isoformat().replace("+00:00", "Z"),
                     moment.astimezone(datetime.timezone(datetime.timedelta(hours=-5, minutes=-30))).isoformat()):
            done = self.root.run("logs", "a", "--since", text)
            self.assertEqual((done.out, done.err), (b"new\n", b"bad\n"), text)
        done = self.root.run("logs", "a", "--since", "1h")
        self.assertEqual((done.out, done.err), (b"old\nnew\n", b"bad\n"))
        time.sleep(0.2)
        done = self.root.run("logs", "a", "--since", "100ms")
        self.assertEqual((done.out, done.err), (b"", b""))
        self.assertEqual(self.root.run("logs", "a", "--since", "1h", "--tail", "1").out, b"new\n")

    def test_followed_lines_have_the_time_of_their_arrival(self):
        self.root.ok("exec", "a", "-d", "--", "sh", "-c", "echo first; until [ -e go ]; do sleep 0.1; done; echo second")
        wait_until(lambda: self.root.run("logs", "a").out == b"first\n", 20, "the output")
        with self.root.popen("logs", "a", "-f", "-t") as p:
            first = self.parse(p.stdout.readline().decode())
            asked = time.time()
            self.shell("a", "touch go")
            second = self.parse(p.communicate(timeout=20)[0].decode())
        self.assertEqual((first[1], second[1]), ("first\n", "second\n"))
        self.assertGreaterEqual(second[0], asked - 0.001)
        self.assertLess(first[0], asked)

    def test_the_bytes_stay_the_same(self):
        self.root.ok("exec", "a", "--", "sh", "-c", "seq 200000; printf '\\n\\n\\377x\\r\\nend'")
        stamped = self.root.run("logs", "a", "-t").out
        self.assertEqual(b"".join(line.partition(b" ")[2] for line in stamped.splitlines(True)), self.root.run("logs", "a").out)

    def test_a_short_command_stores_no_times(self):
        self.root.ok("exec", "a", "--", "true")
        self.assertEqual(self.root.get("/v1/sandboxes/a/execs/last/times"), {"stdout": [], "stderr": []})

    def test_times_that_do_not_exist(self):
        for text in ("yesterday", "2026-02-30T00:00:00Z", "2026-11-19T10:00:00", "2026-11-19", "2026-11-19T10:00:00Zx", "2026-11-19T10:00:00+1:00", ""):
            self.assertIn(b"--since", self.assert_exit(self.root.run("logs", "a", "--since", text), 2).err, text)
        self.assert_exit(self.root.run("logs", "a", "-t", "--json"), 2)


if __name__ == "__main__":
    unittest.main()
