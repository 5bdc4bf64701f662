"""The relay against an engine and a guest that misbehave (fake_engine.py): it never makes up a status, never hangs,
and one bad line leaves the others alone."""
import random
import struct
import tempfile
import threading
import time
import unittest

import fake_engine as fe
import relay_box as rb
from fake_engine import FakeEngine, Guest
from ripcord_test import Config, only_on


class FakeBox(rb.Box):
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
        self.box = FakeBox(self.engine, Config.bin)
        self.box.__enter__()
        self.addCleanup(self.box.__exit__)

    def guest(self, script):
        """script(guest): what the next guest does once it has got its spec."""
        def run(conn, _):
            g = Guest(conn)
            g.say(fe.hello())
            g.until(fe.RUN)
            script(g)
        self.engine.on_exec = run

    def end_of(self, script, **kwargs):
        self.guest(script)
        return self.box.exec("true", **kwargs).end()

    def test_in_order(self):
        end = self.end_of(lambda g: g.say(fe.started(), fe.frame(fe.STDOUT, b"hello"), fe.exited(3 << 8, 5)))
        self.assertEqual((end["cause"], end["exit_code"], end["stdout_bytes"]), ("exited", "3", "5"))

    def test_every_cut(self):
        whole = fe.mux(fe.hello()), fe.mux(fe.started() + fe.frame(fe.STDOUT, b"abc")), fe.mux(b"", 2), fe.mux(fe.exited(0, 3))

        def drip(conn, _):
            for byte in b"".join(whole):
                conn.sendall(bytes([byte]))
                time.sleep(0.0005)
        self.engine.on_exec = drip
        x = self.box.exec("true")
        self.assertEqual(x.end()["cause"], "exited")
        self.assertEqual(x.read(), b"abc")

    def test_cut_in_mid_frame_is_no_end(self):
        """What the engine then says of the guest decides; nothing else does."""
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
            end = self.box.exec("true").end()
            self.assertEqual((end["cause"], "OCI runtime exec failed" in end["message"]), ("start_failed", True), end)
            self.assertNotIn("\x1b", end["message"])

    def test_silence_instead_of_a_guest(self):
        self.engine.on_exec = lambda conn, _: conn.close()
        self.assertEqual(self.box.exec("true").end()["cause"], "start_failed")

    def test_engine_refuses(self):
        self.engine.create_status = 500
        end = self.box.exec("true").end()
        self.assertEqual(end["cause"], "start_failed")
        self.assertIn("not in the mood", end["message"])

    def test_guests_that_break_the_rules(self):
        """Each loses its line and its command; no status is believed."""
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

    def test_noise(self):
        rng = random.Random(1)
        self.engine.exec_status = 0
        for _ in range(100):
            noise = bytes(rng.choice((0, 1, 2, 0x81, 0x86, rng.randrange(256))) for _ in range(rng.randrange(1, 200)))
            self.engine.on_exec = lambda conn, _, n=noise: conn.sendall(
                fe.mux(fe.hello() + (fe.started() if n[0] % 2 else b"")) * (n[0] % 3 > 0) + n)
            self.assertIn(self.box.exec("true").end()["cause"], ("engine_lost", "start_failed"))
        self.test_in_order()

    def test_a_guest_that_does_not_answer_to_kill(self):
        self.engine.exec_status = 137
        end = self.end_of(lambda g: (g.say(fe.started()), g.until(None)), timeout=0.5)
        self.assertEqual((end["cause"], end["signal"]), ("timeout", "9"))
        self.assertGreater(int(end["wall_usec"]), 5000000)

    def test_stdin_is_credited(self):
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
        x = self.box.exec("cat", stdin=True)
        x.started()
        rb.os.set_blocking(x.stdin, True)

        def write():
            try:
                while True:
                    rb.os.write(x.stdin, bytes(10000))
            except BrokenPipeError:
                pass
        t = threading.Thread(target=write)
        t.start()
        self.assertEqual(x.end()["cause"], "exited")
        t.join(10)
        self.assertEqual(got, ["nothing", 1000])

    def test_a_hung_engine_holds_up_no_other_exec(self):
        go = threading.Event()
        self.guest(lambda g: (g.say(fe.started()), go.wait(30), g.say(fe.frame(fe.STDOUT, b"x" * 1000), fe.exited(0, 1000))))
        x = self.box.exec("true")
        x.started()
        self.engine.hung.set()
        others = [self.box.exec("true") for _ in range(20)]
        go.set()
        self.assertEqual(x.end(5)["cause"], "exited")
        for y in others:
            y.tell(rb.KILL)
        for y in others:
            self.assertEqual(y.end(10)["cause"], "start_failed")

    def test_engine_gone(self):
        self.guest(lambda g: (g.say(fe.started()), self.engine.close(), rb.os.unlink(self.engine.path), g.conn.close()))
        end = self.box.exec("true").end()
        self.assertEqual((end["cause"], end.get("exit_code"), end.get("signal")), ("engine_lost", None, None), end)

    def test_engine_gone_under_many(self):
        down = threading.Event()
        self.guest(lambda g: (g.say(fe.started(), fe.frame(fe.STDOUT, b"x" * 100)), down.wait(30)))
        execs = [self.box.exec("true") for _ in range(100)]
        for x in execs:
            x.started()
        self.engine.close()
        rb.os.unlink(self.engine.path)
        down.set()
        for x in execs:
            end = x.end(20)
            self.assertEqual((end["cause"], end.get("exit_code"), end["stdout_bytes"]), ("engine_lost", None, "100"), end)

    def test_stop(self):
        self.guest(lambda g: (g.say(fe.started()), self.engine.gone.wait(30)))
        x = self.box.exec("true")
        x.started()
        self.box.link.ask(rb.STOP, ("grace", 100000))
        self.assertEqual((x.end()["cause"]), "sandbox_stopped")
        self.box.link.until(lambda m: m[0] == rb.STOPPED)
        self.assertEqual(self.box.relay.wait(10), 0)


@only_on("native")
class Door(unittest.TestCase):
    def test_a_stranger_gets_no_door(self):
        """The engine's machine may be another one: its pid then means some process of ours, or none."""
        for pid, words in ((rb.os.getpid(), "is not in the container on this machine"), (1 << 22, "process")):
            with tempfile.TemporaryDirectory(prefix="ripcord-fake-") as folder:
                engine = FakeEngine(folder)
                engine.pid = pid
                with FakeBox(engine, Config.bin, port=self.free_port()) as box:
                    seq = box.link.send(rb.LISTENER)
                    answer = box.link.until(lambda m, seq=seq: m[0] == rb.RESULT and m[1] == seq)
                    self.assertIn(words, answer[2].get("err_msg", ""))
                    self.assertIsNone(answer[3])
                    with self.assertRaises(ConnectionRefusedError):
                        rb.socket.create_connection(("127.0.0.1", box.port), timeout=5).close()

    def listener(self, box):
        """The socket on which a registry would take what is carried out."""
        seq = box.link.send(rb.LISTENER)
        answer = box.link.until(lambda m: m[0] == rb.RESULT and m[1] == seq)
        return rb.socket.socket(fileno=answer[3])

    def carried(self, script):
        """A relay whose guest listens; script(guest, n) is what the n-th one does from then on. Ends with it."""
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
        box = FakeBox(engine, Config.bin, port=7417, inside=True)
        box.__enter__()
        self.addCleanup(box.__exit__)
        up.set()
        return box

    def test_connections_are_carried(self):
        heard = []

        def script(g, _):
            g.say(fe.call(fe.CALL_OPEN, 1), fe.call(fe.CALL_DATA, 1, b"ask"), fe.call(fe.CALL_EOF, 1))
            heard.append(g.until(fe.ANSWER_DATA))
            heard.append(g.until(fe.ANSWER_EOF))
            g.next()
        box = self.carried(script)
        with self.listener(box) as door:
            door.setblocking(True)
            conn, _ = door.accept()
            with conn:
                self.assertEqual(conn.recv(100), b"ask")
                self.assertEqual(conn.recv(100), b"")
                conn.sendall(b"answer")
        end = time.monotonic() + 20
        while len(heard) < 2 and time.monotonic() < end:
            time.sleep(0.01)
        self.assertEqual(heard, [(fe.ANSWER_DATA, b"\0\0\0\1answer"), (fe.ANSWER_EOF, b"\0\0\0\1")])

    def test_who_breaks_the_rules_is_cut(self):
        """Each guest loses its line, and the next one is started; the relay lives on."""
        hostile = [
            fe.call(fe.CALL_OPEN, 2),
            fe.call(fe.CALL_OPEN, 0),
            fe.call(fe.CALL_DATA, 1, b"x"),
            fe.call(fe.CALL_OPEN, 1) + fe.call(fe.CALL_OPEN, 1),
            fe.call(fe.CALL_OPEN, 1) + fe.call(fe.CALL_ACK, 1, struct.pack(">I", 1)),
            fe.call(fe.CALL_OPEN, 1) + fe.call(fe.CALL_EOF, 1) * 2,
            fe.call(fe.CALL_OPEN, 1) + fe.call(fe.CALL_DATA, 1, bytes(60000)) * 20,  # nobody takes that much
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
                box = self.carried(script)
                self.assertTrue(again.wait(20), box.log())
                self.assertIsNone(box.relay.poll())

    def test_one_that_does_not_read_is_cut(self):
        """Answers that nobody takes are not kept without end."""
        again = threading.Event()

        def script(g, n):
            if n > 1:
                again.set()
            number = 0
            while n == 1:
                number += 1
                g.say(*(fe.call(fe.CALL_OPEN, number * 1000 + i - 999) for i in range(1000)))
            g.next()
        box = self.carried(script)
        self.listener(box).close()
        self.assertTrue(again.wait(60), box.log())
        self.assertIsNone(box.relay.poll())

    @staticmethod
    def free_port():
        with rb.socket.create_server(("127.0.0.1", 0)) as s:
            return s.getsockname()[1]
