"""ripcord-relay alone, on a real engine: how commands end, guests that a command kills or stops, and an engine that dies."""
import io
import os
import signal
import socket
import tarfile
import threading
import time
import unittest

import engines
import relay_fixture
from ripcord_test import Config, only_on, serial

KILL_GUEST = "for p in /proc/[0-9]*; do case $(tr '\\0' ' ' <$p/cmdline) in '/.ripcord/guest exec '*) kill -%s ${p#/proc/};; esac; done"


def settle(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


class Case(unittest.TestCase):
    def sandbox(self, **kwargs):
        sandbox = relay_fixture.Sandbox(kwargs.pop("engine", Config.backend), Config.bin, **kwargs)
        sandbox.__enter__()
        self.addCleanup(sandbox.__exit__)
        return sandbox

    def assert_end(self, end, cause, **fields):
        self.assertEqual({"cause": end["cause"], **{k: end.get(k) for k in fields}}, {"cause": cause, **fields}, end)


@only_on("docker", "podman")
class Execs(Case):
    def test_exact_streams_and_status(self):
        sandbox = self.sandbox()
        x = sandbox.exec("sh", "-c", "echo out; echo err >&2; echo $BASE $OWN; pwd; exit 3", env=["OWN=2"], cwd="/tmp")
        self.assertIn("pid", x.started())
        self.assert_end(x.end(), "exited", exit_code="3", drained="1", stdout_bytes=str(len(x.read())))
        self.assertEqual((x.read(), x.read("err")), (b"out\n1 2\n/tmp\n", b"err\n"))

    def test_large_output_is_whole(self):
        sandbox = self.sandbox()
        x = sandbox.exec("python3", "-c", "import sys,os\nfor i in range(2000): os.write(1, b'%08d' % i * 1000)")
        self.assert_end(x.end(), "exited", stdout_bytes="16000000")
        self.assertEqual(x.read(), b"".join(b"%08d" % i * 1000 for i in range(2000)))

    def test_stdin_with_half_close(self):
        sandbox = self.sandbox()
        x = sandbox.exec("sh", "-c", "sleep 0.2; sha256sum; echo done", stdin=True)
        x.started()
        data = os.urandom(1 << 20)
        os.set_blocking(x.stdin, True)
        view = memoryview(data)
        while view:
            view = view[os.write(x.stdin, view):]
        os.close(x.stdin)
        self.assert_end(x.end(), "exited", exit_code="0")
        import hashlib
        self.assertEqual(x.read(), hashlib.sha256(data).hexdigest().encode() + b"  -\ndone\n")

    def test_unread_stdin_does_not_delay_a_kill(self):
        sandbox = self.sandbox()
        x = sandbox.exec("sleep", "100", stdin=True)
        x.started()
        os.set_blocking(x.stdin, False)
        for _ in range(20):
            try:
                os.write(x.stdin, bytes(65536))
            except BlockingIOError:
                time.sleep(0.02)
        begun = time.monotonic()
        x.request(relay_fixture.KILL)
        self.assert_end(x.end(), "killed", signal="9")
        self.assertLess(time.monotonic() - begun, 30)

    def test_terminal(self):
        sandbox = self.sandbox()
        x = sandbox.exec("sh", "-c", "stty size; read a; echo got $a; stty size; cat", tty=True)
        x.started()
        settle(lambda: b"24 80" in x.read())
        x.request(relay_fixture.RESIZE, ("rows", 50), ("cols", 132))
        os.write(x.stdin, b"word\n")
        settle(lambda: b"50 132" in x.read())
        x.request(relay_fixture.STDIN_CLOSE)
        self.assert_end(x.end(), "exited", exit_code="0")
        self.assertIn(b"got word\r\n50 132\r\n", x.read())

    def test_start_failures_say_why(self):
        sandbox = self.sandbox()
        for argv, kw, words in ((["/nosuch"], {}, "not found"), (["true"], {"cwd": "/nosuch"}, "/nosuch"),
                                (["true"], {"user": "nobodyhere"}, "nobodyhere")):
            x = sandbox.exec(*argv, **kw)
            self.assertIn(words, str(x.started()))
            self.assert_end(x.end(), "start_failed", exit_code=None)

    def test_signal_and_kill(self):
        sandbox = self.sandbox()
        x = sandbox.exec("sh", "-c", "trap 'echo usr1; exit 5' USR1; echo up; while :; do sleep 0.05; done")
        x.started()
        settle(lambda: x.read())
        x.request(relay_fixture.SIGNAL, ("signal", int(signal.SIGUSR1)))
        self.assert_end(x.end(), "exited", exit_code="5")
        x = sandbox.exec("sh", "-c", "setsid sleep 1000 & sleep 1000")
        x.started()
        x.request(relay_fixture.KILL)
        self.assert_end(x.end(), "killed", signal="9", exit_code=None)
        self.assertTrue(settle(lambda: not sandbox.processes()), sandbox.processes())

    def test_timeouts(self):
        sandbox = self.sandbox()
        x, y = sandbox.exec("sleep", "100", timeout=4), sandbox.exec("sh", "-c", "echo a; sleep 100", idle=4)
        self.assert_end(x.end(), "timeout", signal="9")
        self.assert_end(y.end(), "idle_timeout", signal="9")
        self.assertTrue(settle(lambda: not sandbox.processes()), sandbox.processes())

    def test_many_at_once(self):
        sandbox = self.sandbox()
        execs = [sandbox.exec("sh", "-c", f"echo {i}; exit {i}") for i in range(40)]
        for i, x in enumerate(execs):
            self.assert_end(x.end(), "exited", exit_code=str(i))
            self.assertEqual(x.read(), b"%d\n" % i)

    def test_out_of_memory(self):
        sandbox = self.sandbox(memory=64 << 20)
        x = sandbox.exec("python3", "-c", "x = bytearray(200 << 20)")
        end = x.end()
        self.assert_end(end, "oom", signal="9", memory_limit=str(64 << 20))
        self.assertGreater(int(end["oom_kills"]), 0)
        self.assertGreater(int(end["memory_peak"]), 32 << 20)
        self.assert_end(sandbox.exec("sh", "-c", "kill -9 $$").end(), "signaled", signal="9")

    def test_pids_limit(self):
        sandbox = self.sandbox(pids=20)
        end = sandbox.exec("python3", "-c", "import os,time\nfor i in range(100):\n  if os.fork() == 0: time.sleep(100)").end()
        self.assert_end(end, "pids_limit")

    def test_a_slow_reader_delays_the_command_when_the_budget_is_used_up(self):
        sandbox = self.sandbox(budget=32 << 20)
        connection = sandbox.connect()
        connection.send(relay_fixture.EXEC, ("exec", "slow"), ("flags", relay_fixture.WANT_OUTPUT), ("arg", "head"), ("arg", "-c"), ("arg", "200000000"),
                  ("arg", "/dev/zero"))
        sizes = lambda: sum(p.stat().st_size for p in sandbox.execs.joinpath("slow").glob("out.*"))
        self.assertTrue(settle(lambda: sizes() >= 32 << 20))
        time.sleep(1)
        self.assertLess(sizes(), 40 << 20)
        x = relay_fixture.Exec(sandbox, connection, "slow", 2)
        self.assert_end(x.end(), "exited", exit_code="0", stdout_bytes="200000000")


@only_on("docker", "podman")
class AttackedGuest(Case):
    """The guest runs as the sandbox's user, so a command may kill or stop it: the end record is true and no process is left."""

    def test_guest_killed(self):
        sandbox = self.sandbox()
        other = sandbox.exec("sh", "-c", "read x; echo $x", stdin=True)
        other.started()
        x = sandbox.exec("sh", "-c", "setsid sleep 1000 & kill -9 $PPID; sleep 1000")
        self.assert_end(x.end(), "signaled", signal="9", exit_code=None)
        self.assertTrue(settle(lambda: not any("1000" in p for p in sandbox.processes())), sandbox.processes())
        os.write(other.stdin, b"fine\n")
        self.assert_end(other.end(), "exited", exit_code="0")
        self.assertEqual(other.read(), b"fine\n")

    def test_guest_ended_by_other_signals(self):
        sandbox = self.sandbox()
        for sig in ("TERM", "INT", "SEGV", "ABRT", "USR1", "PIPE"):
            end = sandbox.exec("sh", "-c", f"setsid sleep 1000 & kill -{sig} $PPID; sleep 0.5; exit 3").end()
            self.assertIn((end["cause"], end.get("exit_code"), end.get("signal")),
                          (("exited", "3", None), ("signaled", None, "9")), (sig, end))
            if end["cause"] == "signaled":
                self.assertTrue(settle(lambda: not any("1000" in p for p in sandbox.processes())), (sig, sandbox.processes()))

    def test_guest_stopped(self):
        sandbox = self.sandbox()
        x = sandbox.exec("sh", "-c", "kill -STOP $PPID; sleep 1000", timeout=4)
        begun = time.monotonic()
        self.assert_end(x.end(), "timeout", signal="9")
        self.assertLess(time.monotonic() - begun, 18)
        self.assertTrue(settle(lambda: not sandbox.processes()), sandbox.processes())

    def test_a_missing_guest_is_named_by_the_engines_error(self):
        sandbox = self.sandbox()
        self.assert_end(sandbox.exec("rm", "-f", "/.ripcord/guest", user="root").end(), "exited")
        x = sandbox.exec("true")
        self.assertIn("guest", str(x.started()))
        self.assert_end(x.end(), "start_failed")


@only_on("docker", "podman")
class OtherRequests(Case):
    def test_dial(self):
        sandbox = self.sandbox()
        server = ("import socket\ns=socket.socket(); s.bind(('127.0.0.1',8080)); s.listen(); print('up',flush=True)\n"
                  "c,_=s.accept(); d=b''\nwhile (p:=c.recv(65536)): d+=p\nc.sendall(d[::-1]); c.close()")
        x = sandbox.exec("python3", "-c", server)
        settle(lambda: x.read())
        _, _, fields, fd = sandbox.connection.ask(relay_fixture.DIAL, ("port", 8080))
        self.assertNotIn("err_msg", fields)
        data = os.urandom(3 << 20)
        with socket.socket(fileno=fd) as s:
            s.settimeout(30)
            t = threading.Thread(target=lambda: (s.sendall(data), s.shutdown(socket.SHUT_WR)))
            t.start()
            got = b""
            while part := s.recv(65536):
                got += part
            t.join()
        self.assertEqual(got, data[::-1])
        self.assertIn("nothing listens", sandbox.connection.ask(relay_fixture.DIAL, ("port", 9))[2]["err_msg"])

    def test_copy(self):
        sandbox = self.sandbox()
        data = os.urandom(5 << 20)
        tar = io.BytesIO()
        with tarfile.open(fileobj=tar, mode="w") as t:
            info = tarfile.TarInfo("file")
            info.size = len(data)
            t.addfile(info, io.BytesIO(data))
        r, w = os.pipe()
        t = threading.Thread(target=lambda: (os.fdopen(w, "wb").write(tar.getvalue())))
        t.start()
        seq = sandbox.connection.send(relay_fixture.COPY, ("path", "/home/agent"), ("direction", 1), fd=r)
        os.close(r)
        t.join()
        fields = sandbox.connection.until(lambda m: m[1] == seq)[2]
        self.assertNotIn("err_msg", fields)
        self.assertIn("entries=1", fields["stat"])
        r, w = os.pipe()
        seq = sandbox.connection.send(relay_fixture.COPY, ("path", "/home/agent/file"), ("direction", 0), fd=w)
        os.close(w)
        back = os.fdopen(r, "rb").read()
        fields = sandbox.connection.until(lambda m: m[1] == seq)[2]
        self.assertNotIn("err_msg", fields)
        with tarfile.open(fileobj=io.BytesIO(back)) as t:
            self.assertEqual(t.extractfile("file").read(), data)
        r, w = os.pipe()
        self.assertIn("/nosuch", sandbox.connection.ask(relay_fixture.COPY, ("path", "/nosuch"), ("direction", 0), fd=w)[2]["err_msg"])

    def test_pause_resume_stats(self):
        sandbox = self.sandbox()
        x = sandbox.exec("sh", "-c", "while :; do echo a; sleep 0.05; done")
        x.started()
        settle(lambda: x.read())

        def grown():
            before = len(x.read())
            time.sleep(0.5)
            return len(x.read()) - before

        self.assertNotIn("err_msg", sandbox.connection.ask(relay_fixture.PAUSE)[2])
        self.assertTrue(settle(lambda: grown() == 0), "output still comes from a paused sandbox")
        size = len(x.read())
        time.sleep(0.3)
        self.assertEqual(len(x.read()), size)
        self.assertIn("paused", str(sandbox.exec("true").started()))
        self.assertNotIn("err_msg", sandbox.connection.ask(relay_fixture.PAUSE)[2])
        self.assertNotIn("err_msg", sandbox.connection.ask(relay_fixture.RESUME)[2])
        self.assertTrue(settle(lambda: len(x.read()) > size))
        stats = dict(s.split("=") for s in sandbox.connection.ask(relay_fixture.STATS)[2]["stat"])
        self.assertGreater(int(stats["memory"]), 0)
        self.assertGreaterEqual(int(stats["pids"]), 2)
        self.assertEqual(stats["execs"], "1")


@only_on("docker", "podman")
class Ends(Case):
    def stopped(self, sandbox):
        sandbox.connection.until(lambda m: m[0] == relay_fixture.STOPPED)
        sandbox.relay.wait(10)
        self.assertFalse((sandbox.run / "shim.sock").exists())
        self.assertFalse(sandbox.engine.api("GET", f"/containers/{sandbox.id}/json").json()["State"]["Running"])

    def test_stop_with_grace(self):
        sandbox = self.sandbox()
        x = sandbox.exec("sh", "-c", "trap 'echo bye; exit 7' TERM; echo up; while :; do sleep 0.05; done")
        y = sandbox.exec("sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.05; done")
        settle(lambda: x.read() and y.read())
        sandbox.connection.ask(relay_fixture.STOP, ("grace", 1000000))
        self.assert_end(x.end(), "sandbox_stopped", exit_code="7")
        self.assert_end(y.end(), "sandbox_stopped", signal="9")
        self.stopped(sandbox)
        self.assertIn(b"bye", x.read())

    def test_stop_of_a_paused_sandbox(self):
        sandbox = self.sandbox()
        x = sandbox.exec("sleep", "100")
        x.started()
        sandbox.connection.ask(relay_fixture.PAUSE)
        sandbox.connection.ask(relay_fixture.STOP, ("grace", 2000000))
        self.assertEqual(x.end()["cause"], "sandbox_stopped")
        self.stopped(sandbox)

    def test_container_stopped_from_outside(self):
        sandbox = self.sandbox()
        x = sandbox.exec("sleep", "100")
        x.started()
        sandbox.engine.api("POST", f"/containers/{sandbox.id}/kill")
        self.assert_end(x.end(), "sandbox_stopped", signal="9")
        self.stopped(sandbox)

    def test_container_started_again_by_somebody_else(self):
        sandbox = self.sandbox()
        x = sandbox.exec("sleep", "100")
        x.started()
        sandbox.engine.api("POST", f"/containers/{sandbox.id}/restart?t=0")
        self.assert_end(x.end(), "sandbox_stopped", signal="9")
        sandbox.connection.until(lambda m: m[0] == relay_fixture.STOPPED)

    def test_ephemeral_ends_with_its_command(self):
        sandbox = self.sandbox(ephemeral=True)
        x = sandbox.exec("sh", "-c", "setsid sleep 1000 & exit 4")
        self.assert_end(x.end(), "exited", exit_code="4")
        self.stopped(sandbox)

    def test_a_later_daemon_takes_over(self):
        sandbox = self.sandbox()
        x = sandbox.exec("sh", "-c", "read x; echo $x; sleep 1; echo end", stdin=True)
        x.started()
        sandbox.connection.sock.close()
        os.write(x.stdin, b"word\n")
        sandbox.connection = x.connection = sandbox.connect()
        hello = sandbox.connection.until(lambda m: m[0] == relay_fixture.HELLO)
        self.assertEqual(hello[2]["sandbox"], "0123456789abcdef")
        self.assert_end(x.end(), "exited", exit_code="0")
        self.assertEqual(x.read(), b"word\nend\n")


@only_on("docker", "podman")
@serial("engines that die")
class EngineLost(Case):
    def engine(self, **kwargs):
        e = type(Config.backend)(**kwargs)
        e.__enter__()
        self.addCleanup(e.__exit__)
        return e

    def test_killed_engine_that_comes_back(self):
        """An exec ends as engine_lost, never with a made-up status. The sandbox continues if its container does."""
        docker = isinstance(Config.backend, engines.Docker)
        e = self.engine(flags=["--live-restore"] if docker else [])
        sandbox = self.sandbox(engine=e)
        x = sandbox.exec("sh", "-c", "setsid sleep 1000 & echo a; sleep 1000")
        x.started()
        settle(lambda: x.read())
        e.kill()
        self.assert_end(x.end(), "engine_lost", exit_code=None, signal=None)
        e.restart()
        self.assertTrue(settle(lambda: "the engine answers again" in sandbox.log(), 90), sandbox.log())
        self.assertTrue(settle(lambda: not sandbox.processes()), sandbox.processes())
        y = sandbox.exec("echo", "again")
        self.assert_end(y.end(), "exited", exit_code="0")

    def test_hung_engine(self):
        e = self.engine()
        sandbox = self.sandbox(engine=e)
        x = sandbox.exec("sh", "-c", "echo a; sleep 1000", timeout=2)
        x.started()
        e.kill(signal.SIGSTOP)
        y = sandbox.exec("true")
        y.request(relay_fixture.KILL)
        self.assertIn("before the engine started it", str(y.started()))
        self.assert_end(y.end(), "start_failed")
        self.assertEqual(x.end(90)["cause"], "engine_lost")
        e.kill(signal.SIGCONT)
        self.assertTrue(settle(lambda: not sandbox.processes(), 30), sandbox.processes())
        self.assert_end(sandbox.exec("true").end(), "exited", exit_code="0")
