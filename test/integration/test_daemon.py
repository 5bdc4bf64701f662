"""The daemon: starts when needed, one per root, and its end harms no sandbox."""
import os
import signal
import socket
import stat
import subprocess
import time
import unittest
from pathlib import Path

from ripcord_test import Config, TestCase, alive, alone, describe, wait_until


class NoTcp(TestCase):
    """The daemon listens on no address by default; test_listen.py tests configured ones."""

    def listening(self):
        """Inodes of the listening TCP sockets of this network namespace."""
        found = set()
        for name in ("tcp", "tcp6"):
            for line in Path(f"/proc/net/{name}").read_text(encoding="ascii").splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A":
                    found.add(f"socket:[{fields[9]}]")
        return found

    def sockets(self, pid):
        return {os.readlink(p) for p in Path(f"/proc/{pid}/fd").iterdir() if p.is_symlink()}

    def test_no_process_of_ours_listens(self):
        self.root.start()
        with socket.create_server(("127.0.0.1", 0)):  # the search finds what there is
            self.assertTrue(self.listening() & self.sockets(os.getpid()))
        self.root.ok("up", "a", "--network", "packages")
        held = set.union(*[self.sockets(p) for p in (self.root.daemon_pid(), self.root.packages_pid()) if p])
        self.assertEqual(self.listening() & held, set())


class InputOfTheDead(TestCase):
    """When the daemon dies, input that it had not passed on is lost, and the record says so."""

    def test_truncated_input_is_reported(self):
        """The record says it too, even if the kernel closes the dead daemon's pipe long before its connection."""
        self.root.ok("up", "a")
        for _ in range(10):
            self.assertIn("input was truncated", self.cut()["message"] or "")

    def cut(self):
        with self.root.popen("exec", "a", "-i", "--", "sh", "-c", "cat; echo end", stdin=subprocess.PIPE) as p:
            p.stdin.write(b"first\n")
            p.stdin.flush()
            self.assertEqual(p.stdout.readline(), b"first\n")
            self.root.kill_daemon()
            p.stdin.close()
            out, err = p.stdout.read(), p.stderr.read()
        self.assertEqual((out, p.returncode), (b"end\n", 0))
        self.assertRegex(err, b"the input was truncated|input ends here")
        return self.root.exec_info("a")["end"]

    def test_input_that_had_arrived_is_whole(self):
        self.root.start().ok("up", "a")
        with self.root.popen("exec", "a", "-i", "--", "sh", "-c", "cat; cat /tmp/go; echo end", stdin=subprocess.PIPE) as p:
            self.root.ok("exec", "a", "--", "mkfifo", "/tmp/go")
            p.stdin.write(b"all\n")
            p.stdin.close()
            self.assertEqual(p.stdout.readline(), b"all\n")
            wait_until(lambda: "cat /tmp/go" in self.inside(), 10, "the end of its input")
            self.root.kill_daemon()
            self.root.ok("exec", "a", "--", "sh", "-c", "echo > /tmp/go")
            out, err = p.stdout.read(), p.stderr.read()
        self.assertEqual((out, err, p.returncode), (b"\nend\n", b"", 0))

    def inside(self):
        return [describe(p).partition(" ")[2].strip() for p in self.root.inside()]


class Start(TestCase):
    @alone
    def test_twenty_runs_from_a_cold_start(self):
        running = [self.root.popen("run", "--", "true") for _ in range(20)]
        results = []
        for p in running:
            out, err = p.communicate(timeout=180)
            results.append((p.returncode, out, err))
        self.assertEqual(results, [(0, b"", b"")] * 20, self.root.log_tail())
        daemon = self.root.daemon_pid()
        self.assertEqual(self.root.wait_clean(), {})
        self.assertEqual(self.root.processes(), [daemon])
        wait_until(lambda: not any(f.startswith("state/trash/") for f in self.root.files()), 30, "an empty delete queue")
        first = self.root.snapshot()
        running = [self.root.popen("run", "--", "true") for _ in range(20)]
        self.assertEqual([p.wait(180) for p in running], [0] * 20)
        for p in running:
            p.communicate()
        self.assertEqual(self.root.wait_clean(), {})
        wait_until(lambda: self.root.snapshot() == first, 10, f"all as before: {first} now {self.root.snapshot()}")

    def test_a_second_daemon_refuses(self):
        self.root.start()
        pid = self.root.daemon_pid()
        p = subprocess.run([Config.bin / "ripcordd", "--root", self.root.path], env=self.root.env(), timeout=60,
                           capture_output=True, check=False)
        self.assertNotEqual(p.returncode, 0)
        self.assertRegex(p.stderr, b"another daemon|already")
        self.assertIn(str(self.root.path).encode(), p.stderr)
        self.assertEqual(self.root.daemon_pid(), pid)

    def test_daemon_in_the_foreground(self):
        with self.root.popen("daemon") as p:
            wait_until(lambda: self.root.daemon_pid() is not None, 30, "the daemon to answer")
            self.assertEqual(self.root.daemon_pid(), p.pid)
            self.assertEqual(self.root.ok("run", "--", "echo", "x").text, "x\n")
            p.send_signal(signal.SIGTERM)
            self.assertEqual(p.wait(30), 0)

    def test_daemon_holds_nothing_of_its_caller(self):
        with self.root.popen("ls") as p:
            out, _ = p.communicate(timeout=60)  # would hang if the daemon held the pipe
        self.assertEqual(p.returncode, 0, out)
        pid = self.root.daemon_pid()
        self.assertEqual(os.readlink(f"/proc/{pid}/cwd"), "/")
        self.assertNotEqual(os.getsid(pid), os.getsid(0))
        self.assertEqual(os.readlink(f"/proc/{pid}/fd/0"), "/dev/null")

    def test_failure_to_start_gives_the_daemon_s_last_words(self):
        (self.root.path / "ripcord.yaml").write_text("no_such_key: 1\n")
        r = self.root.run("ls")
        self.assertNotEqual(r.code, 0)
        self.assertIn(b"no_such_key", r.err)
        (self.root.path / "ripcord.yaml").unlink()

    def test_root_by_option_and_by_variable_are_the_same(self):
        self.root.ok("up", "a")
        env = {**self.root.env(), "RIPCORD_ROOT": ""}
        p = subprocess.run([Config.bin / "ripcord", "--root", self.root.path, "exec", "a", "--", "echo", "hi"], env=env,
                           capture_output=True, timeout=60, check=False)
        self.assertEqual((p.returncode, p.stdout), (0, b"hi\n"), p.stderr)

    def test_two_roots_never_see_each_other(self):
        other = self.new_root()
        self.root.ok("up", "a")
        other.ok("up", "a")
        self.root.ok("exec", "a", "--", "touch", "mine")
        self.assertEqual(other.ok("exec", "a", "--", "ls").text, "")
        other.ok("rm", "a")
        self.assertEqual(self.root.ok("exec", "a", "--", "ls").text, "mine\n")
        self.assertNotEqual(self.root.daemon_pid(), other.daemon_pid())

    def test_a_root_with_a_very_long_path(self):
        deep = self.root.path / ("d" * 120) / ("e" * 120)
        deep.mkdir(parents=True)
        env = {**self.root.env(), "RIPCORD_ROOT": str(deep)}
        p = subprocess.run([Config.bin / "ripcord", "run", "--", "echo", "far"], env=env, capture_output=True,
                           timeout=60, check=False)
        version = subprocess.run([Config.bin / "ripcord", "version", "--json"], env=env, capture_output=True,
                                 timeout=60, check=False)
        for pid in self.root.processes():
            os.kill(pid, signal.SIGTERM)
        self.assertEqual((p.returncode, p.stdout), (0, b"far\n"), (p.stderr, version))
        wait_until(lambda: not self.root.processes(), 20, "the daemon to end")


class Death(TestCase):
    SCRIPT = "for i in $(seq 100); do echo $i; sleep 0.02; done; exit 3"

    def test_kill_9_in_the_middle_of_an_exec(self):
        self.root.ok("up", "a")
        with self.root.popen("exec", "a", "--", "sh", "-c", self.SCRIPT) as p:
            for _ in range(10):
                p.stdout.readline()
            self.root.kill_daemon()
            p.communicate(timeout=60)
        wait_until(lambda: self.root.run("logs", "a").out.count(b"\n") == 100, 30, "all 100 lines")
        self.root.run("logs", "a", "-f")
        self.assertEqual(self.root.ok("logs", "a").text, "".join(f"{i}\n" for i in range(1, 101)))
        end = self.root.exec_info("a")["end"]
        self.assertEqual((end["cause"], end["exit_code"]), ("exited", 3), end)

    def test_everything_is_as_it_was_after_kill_9(self):
        self.root.ok("up", "a")
        self.root.ok("up", "b")
        self.root.ok("stop", "b")
        self.shell("a", "echo kept > /tmp/f")
        exec_id = self.root.ok("exec", "a", "--detach", "--", "sleep", "300").text.split()[0]
        before = {s["name"]: (s["id"], s["state"]) for s in self.root.sandboxes()}
        self.root.kill_daemon()
        self.root.ok("ls")
        self.assertEqual({s["name"]: (s["id"], s["state"]) for s in self.root.sandboxes()}, before)
        self.assertEqual(self.root.exec_info("a", exec_id)["state"], "running")
        self.assertEqual(self.shell("a", "cat /tmp/f"), "kept\n")
        self.root.ok("kill", "a", exec_id, "--signal", "KILL")
        wait_until(lambda: self.root.exec_info("a", exec_id)["state"] == "ended", 20, "the exec to end")

    def test_sigterm_keeps_sandboxes(self):
        self.root.ok("up", "a")
        self.shell("a", "echo kept > /tmp/f")
        exec_id = self.root.ok("exec", "a", "--detach", "--", "sh", "-c", "sleep 2; echo end").text.split()[0]
        since = time.monotonic()
        self.root.kill_daemon(signal.SIGTERM)
        self.assertLess(time.monotonic() - since, 10)
        self.assertTrue(self.root.processes(), "the sandbox must live on")
        self.assertEqual(self.shell("a", "cat /tmp/f"), "kept\n")
        wait_until(lambda: self.root.exec_info("a", exec_id)["state"] == "ended", 30, "the exec to end")
        self.assertEqual(self.root.ok("logs", "a", exec_id).text, "end\n")

    def test_run_goes_away_after_kill_9_too(self):
        with self.root.popen("run", "--", "sh", "-c", "echo up; sleep 300") as p:
            p.stdout.readline()
            self.root.kill_daemon()
            self.assertNotEqual(p.wait(30), 0)
        self.root.ok("ls")
        self.assertEqual(self.root.wait_clean(20), {})

    def test_a_killed_supervisor_is_not_shown_as_running(self):
        """A sandbox whose supervisor is killed is not listed as running."""
        self.root.ok("up", "a")
        daemon = self.root.daemon_pid()
        for pid in self.root.processes():
            if pid != daemon and alive(pid):
                self.root.end(pid)
        wait_until(lambda: self.root.sandbox("a")["state"] != "running", 10, "the state to be told")
        self.assertEqual(self.root.ok("exec", "a", "--", "echo", "again").text, "again\n")


class Socket(TestCase):
    def test_socket_and_folders_are_private(self):
        self.root.start()
        sock = (self.root.path / "run" / "ripcord.sock").stat()
        self.assertTrue(stat.S_ISSOCK(sock.st_mode))
        self.assertEqual(stat.S_IMODE(sock.st_mode), 0o600)
        for folder in ("run", "state"):
            self.assertEqual(stat.S_IMODE((self.root.path / folder).stat().st_mode), 0o700, folder)

    def test_another_uid_is_refused(self):
        if os.geteuid() != 0:
            raise unittest.SkipTest("needs root to become somebody else")
        self.root.start()
        for path in (self.root.path, self.root.path / "run"):
            path.chmod(0o755)
        (self.root.path / "run" / "ripcord.sock").chmod(0o666)  # so that only the peer check is left
        pid = os.fork()
        if pid == 0:
            os._exit(self.ask_as_nobody())
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        self.assertEqual(status, 0, "a stranger got an answer")

    def ask_as_nobody(self):
        try:
            os.setgroups([])
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)
            reply = self.root.raw(b"GET /v1/version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", timeout=10)
            return 1 if b" 200 " in reply.split(b"\r\n")[0] else 0
        except PermissionError:
            return 2
        except (ConnectionError, socket.timeout):
            return 0

    def test_stale_socket_is_replaced(self):
        self.root.start()
        self.root.kill_daemon()
        self.assertTrue((self.root.path / "run" / "ripcord.sock").exists())
        self.root.ok("ls")

    def test_a_foreign_run_folder_is_refused(self):
        if os.geteuid() != 0:
            raise unittest.SkipTest("needs root to give a folder away")
        run = self.root.path / "run"
        run.mkdir()
        os.chown(run, 65534, 65534)
        r = self.root.run("ls")
        os.chown(run, 0, 0)
        self.assertNotEqual(r.code, 0)
        self.assertIn(str(run).encode(), r.err)
