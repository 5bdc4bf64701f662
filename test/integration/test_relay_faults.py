"""ripcord-relay against an engine and a guest that misbehave (fake_engine.py): the relay never makes up a status and never
hangs, and a bad connection does not disturb the others."""
import os
import random
import socket
import struct
import tempfile
import threading
import time
import unittest

import fake_engine as fe
import relay_fixture
from fake_engine import FakeEngine, Guest
from ripcord_test import Config, only_on


class FakeSandbox(relay_fixture.Sandbox):
    def make_container(self):
        self.id = "c0ffee" * 8

    def __exit__(self, *_):
        self.engine.api = lambda *_: None
        self.engine.close()
        super().__exit__()


@only_on("native")
class Faults(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="ripcord-fake-")
        self.addCleanup(self.folder.cleanup)
        self.engine = FakeEngine(self.folder.name)
        self.sandbox = FakeSandbox(self.engine, Config.bin)
        self.sandbox.__enter__()
        self.addCleanup(self.sandbox.__exit__)

    def guest(self, script):
        """script(guest): what the next guest does after it has received its spec."""
        def run(conn, _):
            g = Guest(conn)
            g.say(fe.hello())
            g.until(fe.RUN)
            script(g)
        self.engine.on_exec = run

    def end_of(self, script, **kwargs):
        self.guest(script)
        return self.sandbox.exec("true", **kwargs).end()

    def test_a_correct_guest(self):
        end = self.end_of(lambda g: g.say(fe.started(), fe.frame(fe.STDOUT, b"hello"), fe.exited(3 << 8, 5)))
        self.assertEqual((end["cause"], end["exit_code"], end["stdout_bytes"]), ("exited", "3", "5"))

    def test_frames_that_arrive_byte_by_byte(self):
        whole = fe.mux(fe.hello()), fe.mux(fe.started() + fe.frame(fe.STDOUT, b"abc")), fe.mux(b"", 2), fe.mux(fe.exited(0, 3))

        def drip(conn, _):
            for byte in b"".join(whole):
                conn.sendall(bytes([byte]))
                time.sleep(0.0005)
        self.engine.on_exec = drip
        x = self.sandbox.exec("true")
        self.assertEqual(x.end()["cause"], "exited")
        self.assertEqual(x.read(), b"abc")

    def test_a_connection_that_closes_inside_a_frame(self):
        """Only the engine's exit status of the guest then decides how the command ended."""
        def cut(g):
            g.conn.sendall(fe.mux(fe.started() + fe.frame(fe.STDOUT, b"half")) + fe.mux(fe.exited(0, 4))[:20])
            g.conn.close()
        for status, cause, signal in ((137, "signaled", "9"), (0, "engine_lost", None), (1, "engine_lost", None),
                                      (None, "engine_lost", None)):
            self.engine.exec_status = status
            end = self.end_of(cut)
            self.assertEqual((end["cause"], end.get("signal"), end.get("exit_code"), end["stdout_bytes"]),
                             (cause, signal, None, "4"), end)
        self.assertIn(["reap", "7"], self.engine.execs.values())

    def test_engine_text_in_place_of_hello(self):
        for stream in (1, 2):
            self.engine.on_exec = lambda conn, _, s=stream: conn.sendall(fe.mux(b"OCI runtime exec failed: \x1b[31mno\r\n", s))
            end = self.sandbox.exec("true").end()
            self.assertEqual((end["cause"], "OCI runtime exec failed" in end["message"]), ("start_failed", True), end)
            self.assertNotIn("\x1b", end["message"])

    def test_silence_instead_of_a_guest(self):
        self.engine.on_exec = lambda conn, _: conn.close()
        self.assertEqual(self.sandbox.exec("true").end()["cause"], "start_failed")

    def test_engine_refuses(self):
        self.engine.create_status = 500
        end = self.sandbox.exec("true").end()
        self.assertEqual(end["cause"], "start_failed")
        self.assertIn("the fake engine refuses", end["message"])

    def test_guests_that_break_the_protocol(self):
        """Each such guest loses its connection and its command; the relay does not believe its exit status."""
        lies = {
            "output before it started": [fe.frame(fe.STDOUT, b"x")],
            "exit before it started": [fe.exited()],
            "hello twice": [fe.started(), fe.hello()],
            "started twice": [fe.started(), fe.started()],
            "failed after started": [fe.started(), fe.frame(fe.FAILED, struct.pack(">IIH", 1, 0, 1) + b"x")],
            "a frame of the relay": [fe.started(), fe.frame(fe.STDIN, b"x")],
            "an unknown type": [fe.started(), fe.frame(0xff)],
            "a frame too large": [fe.started(), struct.pack(">BI", fe.STDOUT, 1 << 30)],
            "more stdin taken than given": [fe.started(), fe.frame(fe.STDIN_ACK, struct.pack(">I", 1 << 20))],
            "a short exit": [fe.started(), fe.frame(fe.EXIT, b"xx")],
            "an impossible status": [fe.started(), fe.exited(0x7f)],
            "done": [fe.started(), fe.done()],
        }
        self.engine.exec_status = 0
        for what, frames in lies.items():
            with self.subTest(what):
                end = self.end_of(lambda g, f=frames: (g.say(*f), g.until(None)))
                self.assertIn(end["cause"], ("engine_lost", "start_failed"), end)
                self.assertIsNone(end.get("exit_code"), end)
        end = self.end_of(lambda g: g.say(fe.started(), fe.exited(0)))
        self.assertEqual(end["cause"], "exited")

    def test_random_bytes(self):
        rng = random.Random(1)
        self.engine.exec_status = 0
        for _ in range(100):
            noise = bytes(rng.choice((0, 1, 2, 0x81, 0x86, rng.randrange(256))) for _ in range(rng.randrange(1, 200)))
            self.engine.on_exec = lambda conn, _, n=noise: conn.sendall(
                fe.mux(fe.hello() + (fe.started() if n[0] % 2 else b"")) * (n[0] % 3 > 0) + n)
            self.assertIn(self.sandbox.exec("true").end()["cause"], ("engine_lost", "start_failed"))
        self.test_a_correct_guest()

    def test_a_guest_that_does_not_answer_to_kill(self):
        self.engine.exec_status = 137
        end = self.end_of(lambda g: (g.say(fe.started()), g.until(None)), timeout=0.5)
        self.assertEqual((end["cause"], end["signal"]), ("timeout", "9"))
        self.assertGreater(int(end["wall_usec"]), 5000000)

    def test_stdin_waits_for_acknowledgements(self):
        taken = threading.Event()
        got = []

        def slow(g):
            g.say(fe.started())
            total = 0
            while total < 65536:
                total += len(g.until(fe.STDIN)[1])
            g.conn.settimeout(0.5)
            try:
                got.append(g.next())
            except TimeoutError:
                got.append("nothing")
            g.conn.settimeout(30)
            g.say(fe.frame(fe.STDIN_ACK, struct.pack(">I", 1000)))
            got.append(len(g.until(fe.STDIN)[1]))
            taken.set()
            g.say(fe.frame(fe.STDIN_CLOSED), fe.exited())
        self.guest(slow)
        x = self.sandbox.exec("cat", stdin=True)
        x.started()
        os.set_blocking(x.stdin, True)

        def write():
            try:
                while True:
                    os.write(x.stdin, bytes(10000))
            except BrokenPipeError:
                pass
        t = threading.Thread(target=write)
        t.start()
        self.assertEqual(x.end()["cause"], "exited")
        t.join(10)
        self.assertEqual(got, ["nothing", 1000])

    def test_a_hung_engine_delays_no_running_exec(self):
        go = threading.Event()
        self.guest(lambda g: (g.say(fe.started()), go.wait(30), g.say(fe.frame(fe.STDOUT, b"x" * 1000), fe.exited(0, 1000))))
        x = self.sandbox.exec("true")
        x.started()
        self.engine.hung.set()
        others = [self.sandbox.exec("true") for _ in range(20)]
        go.set()
        self.assertEqual(x.end(5)["cause"], "exited")
        for y in others:
            y.request(relay_fixture.KILL)
        for y in others:
            self.assertEqual(y.end(10)["cause"], "start_failed")

    def test_engine_gone(self):
        self.guest(lambda g: (g.say(fe.started()), self.engine.close(), os.unlink(self.engine.path), g.conn.close()))
        end = self.sandbox.exec("true").end()
        self.assertEqual((end["cause"], end.get("exit_code"), end.get("signal")), ("engine_lost", None, None), end)

    def test_engine_gone_under_many_execs(self):
        down = threading.Event()
        self.guest(lambda g: (g.say(fe.started(), fe.frame(fe.STDOUT, b"x" * 100)), down.wait(30)))
        execs = [self.sandbox.exec("true") for _ in range(100)]
        for x in execs:
            x.started()
        self.engine.close()
        os.unlink(self.engine.path)
        down.set()
        for x in execs:
            end = x.end(20)
            self.assertEqual((end["cause"], end.get("exit_code"), end["stdout_bytes"]), ("engine_lost", None, "100"), end)

    def test_stop(self):
        self.guest(lambda g: (g.say(fe.started()), self.engine.gone.wait(30)))
        x = self.sandbox.exec("true")
        x.started()
        self.sandbox.connection.ask(relay_fixture.STOP, ("grace", 100000))
        self.assertEqual((x.end()["cause"]), "sandbox_stopped")
        self.sandbox.connection.until(lambda m: m[0] == relay_fixture.STOPPED)
        self.assertEqual(self.sandbox.relay.wait(10), 0)


@only_on("native")
class PackagesListener(unittest.TestCase):
    """The listener for package managers in a container, and the connections that a guest carries out of it."""

    def test_no_listener_in_a_process_outside_the_container(self):
        """If the engine runs on another machine, its pid names an unrelated process here, or no process."""
        for pid, words in ((os.getpid(), "is not in the container on this machine"), (1 << 22, "process")):
            with tempfile.TemporaryDirectory(prefix="ripcord-fake-") as folder:
                engine = FakeEngine(folder)
                engine.pid = pid
                with FakeSandbox(engine, Config.bin, port=self.free_port()) as sandbox:
                    seq = sandbox.connection.send(relay_fixture.LISTENER)
                    answer = sandbox.connection.until(lambda m, seq=seq: m[0] == relay_fixture.RESULT and m[1] == seq)
                    self.assertIn(words, answer[2].get("err_msg", ""))
                    self.assertIsNone(answer[3])
                    with self.assertRaises(ConnectionRefusedError):
                        socket.create_connection(("127.0.0.1", sandbox.port), timeout=5).close()

    def listener(self, sandbox):
        """The socket on which ripcord-packages would accept the carried connections."""
        seq = sandbox.connection.send(relay_fixture.LISTENER)
        answer = sandbox.connection.until(lambda m: m[0] == relay_fixture.RESULT and m[1] == seq)
        return socket.socket(fileno=answer[3])

    def relay_with_listening_guest(self, script):
        """A relay whose guest listens; script(guest, n) is what the n-th guest does after that, until it ends."""
        folder = tempfile.TemporaryDirectory(prefix="ripcord-fake-")
        self.addCleanup(folder.cleanup)
        engine, count, up = FakeEngine(folder.name), iter(range(1, 1000)), threading.Event()

        def run(conn, args):
            self.assertEqual(args, ["listen", "7417"])
            g = Guest(conn)
            g.say(fe.hello(), fe.started(0))
            up.wait(30)  # its first words are part of the start, which would fail with them
            script(g, next(count))
        engine.on_exec = run
        sandbox = FakeSandbox(engine, Config.bin, port=7417, inside=True)
        sandbox.__enter__()
        self.addCleanup(sandbox.__exit__)
        up.set()
        return sandbox

    def test_connections_are_carried(self):
        heard = []

        def script(g, _):
            g.say(fe.call(fe.CALL_OPEN, 1), fe.call(fe.CALL_DATA, 1, b"ask"), fe.call(fe.CALL_EOF, 1))
            heard.append(g.until(fe.ANSWER_DATA))
            heard.append(g.until(fe.ANSWER_EOF))
            g.next()
        sandbox = self.relay_with_listening_guest(script)
        with self.listener(sandbox) as listener:
            listener.setblocking(True)
            conn, _ = listener.accept()
            with conn:
                self.assertEqual(conn.recv(100), b"ask")
                self.assertEqual(conn.recv(100), b"")
                conn.sendall(b"answer")
        end = time.monotonic() + 20
        while len(heard) < 2 and time.monotonic() < end:
            time.sleep(0.01)
        self.assertEqual(heard, [(fe.ANSWER_DATA, b"\0\0\0\1answer"), (fe.ANSWER_EOF, b"\0\0\0\1")])

    def test_a_guest_that_breaks_the_protocol_is_replaced(self):
        """The relay closes the connection of such a guest, starts the next one, and keeps running."""
        hostile = [
            fe.call(fe.CALL_OPEN, 2),
            fe.call(fe.CALL_OPEN, 0),
            fe.call(fe.CALL_DATA, 1, b"x"),
            fe.call(fe.CALL_OPEN, 1) + fe.call(fe.CALL_OPEN, 1),
            fe.call(fe.CALL_OPEN, 1) + fe.call(fe.CALL_ACK, 1, struct.pack(">I", 1)),
            fe.call(fe.CALL_OPEN, 1) + fe.call(fe.CALL_EOF, 1) * 2,
            fe.call(fe.CALL_OPEN, 1) + fe.call(fe.CALL_DATA, 1, bytes(60000)) * 20,  # more than the reader takes
            fe.frame(fe.CALL_OPEN, b"\0\0\0"),
            fe.frame(fe.STDOUT, b"hello"),
            fe.started(0),
            b"\xff" * 100,
        ]
        for words in hostile:
            with self.subTest(words=words[:20]):
                again = threading.Event()

                def script(g, n, words=words, again=again):
                    if n > 1:
                        again.set()
                    else:
                        g.say(words)
                    while g.next():
                        pass
                sandbox = self.relay_with_listening_guest(script)
                self.assertTrue(again.wait(20), sandbox.log())
                self.assertIsNone(sandbox.relay.poll())

    def test_a_guest_that_does_not_read_is_replaced(self):
        """The relay limits the answers that it keeps for a guest."""
        again = threading.Event()

        def script(g, n):
            if n > 1:
                again.set()
            number = 0
            while n == 1:
                number += 1
                g.say(*(fe.call(fe.CALL_OPEN, number * 1000 + i - 999) for i in range(1000)))
            g.next()
        sandbox = self.relay_with_listening_guest(script)
        self.listener(sandbox).close()
        self.assertTrue(again.wait(60), sandbox.log())
        self.assertIsNone(sandbox.relay.poll())

    @staticmethod
    def free_port():
        with socket.create_server(("127.0.0.1", 0)) as s:
            return s.getsockname()[1]
