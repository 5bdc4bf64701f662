"""Commands over a WebSocket: our frames as messages, and the sub-protocol of terminals for browsers."""
import base64
import hashlib
import json
import os
import struct
import subprocess
import sys
import unittest

import installers
from ripcord_test import Config, TestCase, read_reply, wait_until

GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
FRAMES, TERMINAL = "ripcord-exec.v1", "ripcord-terminal.v1"
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
STDIN, STDIN_EOF, SIGNAL = 1, 2, 3
STARTED, STDOUT, STDERR, END = 16, 17, 18, 20

# A client that is not ours: the library most Python programs use.
FOREIGN = """
import asyncio, json, sys
from websockets.asyncio.client import unix_connect

async def main(path, target):
    async with unix_connect(path, uri="ws://ripcord" + target, subprotocols=["ripcord-terminal.v1"], ping_interval=0.2) as ws:
        assert ws.subprotocol == "ripcord-terminal.v1" and not ws.protocol.extensions, ws.protocol.extensions
        await ws.send(json.dumps({"action": "resize", "rows": 33, "cols": 77}))
        await ws.send([b"until stty si", b"ze | grep '33 77'; do sl", b"eep 0.5; done; sleep 1; exit 5\\n"])  # one message in three fragments
        shown, events = b"", []
        async for message in ws:
            if isinstance(message, bytes):
                shown += message
            else:
                events.append(json.loads(message))
        assert b"33 77\\r\\n" in shown, shown
        print(json.dumps({"last": events[-1], "close": ws.close_code}))

asyncio.run(main(*sys.argv[1:]))
"""


class Socket:
    """The smallest client: it can also break every rule."""

    def __init__(self, sock, target, protocol=FRAMES, **fields):
        self.sock, self.buffer = sock, b""
        key = base64.b64encode(os.urandom(16)).decode()
        given = {"Host": "ripcord", "Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13",
                 "Sec-WebSocket-Key": key, "Sec-WebSocket-Protocol": protocol}
        given.update({k.replace("_", "-"): v for k, v in fields.items()})
        head = "".join(f"{k}: {v}\r\n" for k, v in given.items() if v is not None)
        sock.sendall(f"GET {target} HTTP/1.1\r\n{head}\r\n".encode())
        self.accept = base64.b64encode(hashlib.sha1((key + GUID).encode()).digest()).decode()
        self.reply = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def open(self):
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            byte = self.sock.recv(1)
            assert byte, head
            head += byte
        lines = head.decode().split("\r\n")
        assert lines[0].split()[1] == "101", head
        self.reply = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
        assert f"Sec-WebSocket-Accept: {self.accept}\r\n".encode() in head, head
        return self

    def send(self, opcode, data=b"", first=0x80, masked=True):
        size = len(data)
        length = bytes([size]) if size < 126 else b"\x7e" + struct.pack(">H", size) if size < 65536 else b"\x7f" + struct.pack(">Q", size)
        mask = os.urandom(4)
        if masked:
            length = bytes([length[0] | 0x80]) + length[1:] + mask
            data = bytes(c ^ mask[i & 3] for i, c in enumerate(data))
        self.sock.sendall(bytes([first | opcode]) + length + data)

    def frame(self, kind, data=b""):
        self.send(BINARY, struct.pack(">BI", kind, len(data)) + data)

    def take(self, size):
        while len(self.buffer) < size:
            more = self.sock.recv(1 << 16)
            if not more:
                raise EOFError(self.buffer)
            self.buffer += more
        got, self.buffer = self.buffer[:size], self.buffer[size:]
        return got

    def receive(self):
        """(opcode, data); the daemon fragments and masks nothing."""
        first, size = self.take(2)
        assert first & 0xf0 == 0x80 and size < 128, (first, size)
        if size == 126:
            size = struct.unpack(">H", self.take(2))[0]
        elif size == 127:
            size = struct.unpack(">Q", self.take(8))[0]
        return first & 0x0f, self.take(size)

    def all(self):
        """Messages up to the close frame, and its code and reason."""
        found = []
        while True:
            opcode, data = self.receive()
            if opcode == CLOSE:
                return found, struct.unpack(">H", data[:2])[0], data[2:].decode()
            found.append((opcode, data))

    def at_end(self):
        """Whether the daemon closes the connection."""
        return not self.buffer and not self.sock.recv(1)


def frames(messages):
    """[(type, payload)] of binary messages with one frame each."""
    found = []
    for opcode, data in messages:
        kind, size = struct.unpack(">BI", data[:5])
        assert opcode == BINARY and len(data) == 5 + size, (opcode, data[:40])
        found.append((kind, data[5:]))
    return found


def output(found, kind):
    data = b""
    for k, payload in found:
        if k == kind:
            assert struct.unpack(">Q", payload[:8])[0] == len(data)
            data += payload[8:]
    return data


class SocketCase(TestCase):
    def setUp(self):
        super().setUp()
        self.root.start()
        self.root.ok("up", "box")

    def begin(self, **spec):
        reply = self.root.http("POST", "/v1/sandboxes/box/execs", spec)
        self.assertEqual(reply.status, 201, reply)
        return f"/v1/sandboxes/box/execs/{reply.json()['exec']['id']}/attach"

    def ask(self, target, protocol=FRAMES, **fields):
        return Socket(self.root.connect(), target, protocol, **fields)


class TestFrames(SocketCase):
    def test_both_directions(self):
        target = self.begin(argv=["sh", "-c", "cat; echo err >&2; exit 3"], stdin=True)
        with self.ask(target).open() as ws:
            self.assertEqual(ws.reply["sec-websocket-protocol"], FRAMES)
            ws.frame(STDIN, b"in\n")
            ws.frame(STDIN, b"x" * 70000)
            ws.frame(STDIN_EOF)
            found, code, _ = ws.all()
            self.assertTrue(ws.at_end())
        found = frames(found)
        self.assertEqual((code, found[0][0], found[-1][0]), (1000, STARTED, END))
        self.assertEqual(output(found, STDOUT), b"in\n" + b"x" * 70000)
        self.assertEqual(output(found, STDERR), b"err\n")
        self.assertEqual(json.loads(found[-1][1])["exit_code"], 3)

    def test_attach_again_after_a_close(self):
        target = self.begin(shell="echo one; sleep 300")
        with self.ask(target).open() as ws:
            while STDOUT not in [k for k, _ in frames([ws.receive()])]:
                pass
            ws.send(CLOSE, struct.pack(">H", 4321) + b"later")
            self.assertEqual(ws.all(), ([], 4321, ""))
            self.assertTrue(ws.at_end())
        with self.ask(target + "?stdout_offset=4").open() as ws:
            ws.frame(SIGNAL, b"\x09")
            found, code, _ = ws.all()
        found = frames(found)
        self.assertEqual((code, [k for k, _ in found if k == STDOUT]), (1000, []))
        self.assertEqual(json.loads(found[-1][1])["signal"], "KILL")

    def test_pings_are_answered_and_compression_is_not_agreed(self):
        target = self.begin(shell="sleep 300")
        with self.ask(target, Sec_WebSocket_Extensions="permessage-deflate").open() as ws:
            self.assertNotIn("sec-websocket-extensions", ws.reply)
            ws.send(PING, b"are you there")
            found = [ws.receive() for _ in range(2)]
            self.assertIn((PONG, b"are you there"), found)

    def test_a_slow_reader_gets_every_byte(self):
        target = self.begin(shell="head -c 30000000 /dev/zero | tr '\\0' 'z'")
        with self.ask(target).open() as ws:
            wait_until(lambda: self.root.exec_info("box")["state"] == "ended", 60, "the command to end unread")
            for _ in range(1000):
                ws.send(PING, b"p" * 100)
            found, code, _ = ws.all()
        self.assertEqual(code, 1000)
        data = output(frames([m for m in found if m[0] != PONG]), STDOUT)
        self.assertEqual((len(data), set(data)), (30000000, {ord("z")}))

    def test_clients_that_break_the_protocol(self):
        target = self.begin(shell="sleep 300")
        cases = [
            ("no mask", 1002, lambda ws: ws.send(BINARY, b"x", masked=False)),
            ("reserved bit", 1002, lambda ws: ws.send(BINARY, b"x", first=0xc0)),
            ("fragmented ping", 1002, lambda ws: ws.send(PING, b"", first=0)),
            ("continuation of nothing", 1002, lambda ws: ws.send(0, b"x")),
            ("invalid UTF-8", 1007, lambda ws: ws.send(TEXT, b"\xff")),
            ("2 MiB in one message", 1009, lambda ws: ws.sock.sendall(b"\x82\xff" + struct.pack(">Q", 2 << 20) + b"mask")),
            ("text", 1008, lambda ws: ws.send(TEXT, b"{}")),
            ("half a frame", 1008, lambda ws: ws.send(BINARY, b"\x01\x00\x00")),
            ("two frames", 1008, lambda ws: ws.send(BINARY, b"\x02\0\0\0\0\x02\0\0\0\0")),
            ("a frame of ours", 1008, lambda ws: ws.frame(END, b"{}")),
        ]
        for name, want, act in cases:
            with self.subTest(name), self.ask(target).open() as ws:
                act(ws)
                _, code, reason = ws.all()
                self.assertEqual(code, want, reason)
                self.assertTrue(ws.at_end())
        self.assertEqual(self.root.exec_info("box")["state"], "running")


class TestHandshake(SocketCase):
    def refuse(self, status, *words, target=None, protocol=FRAMES, **fields):
        with self.ask(target or self.target, protocol, **fields) as ws:
            reply = read_reply(ws.sock)
        self.assertEqual(reply.status, status, reply)
        for word in words:
            self.assertIn(word, reply.body.decode())
        return reply

    def test_refusals(self):
        self.target = self.begin(shell="sleep 300")
        reply = self.refuse(426, "13", Sec_WebSocket_Version="8")
        self.assertEqual(reply.headers["sec-websocket-version"], "13")
        self.refuse(426, "Upgrade", Upgrade=None)
        self.refuse(400, "Upgrade", Upgrade="ripcord-exec/1")
        self.refuse(400, "Sec-WebSocket-Key", Sec_WebSocket_Key="short")
        self.refuse(400, TERMINAL, protocol="chat")
        self.refuse(400, FRAMES, protocol=None)
        self.refuse(400, "stdout_offset", target=self.target + "?stdout_offset=x")
        self.refuse(404, "none", target="/v1/sandboxes/none/execs/last/attach")
        self.refuse(404, target="/v1/sandboxes/box/execs/x99/attach")

    def test_pages_of_other_sites(self):
        """A browser sends Origin with every WebSocket, and asks nobody before: this is the only defence."""
        self.target = self.begin(shell="sleep 300")
        self.refuse(403, "Origin", Origin="http://evil.test")
        self.refuse(403, "Sec-Fetch-Site", Sec_Fetch_Site="cross-site")
        with self.ask(self.target).open():
            pass


class TestTerminal(SocketCase):
    def test_a_terminal_without_frames(self):
        target = self.begin(argv=["sh"], tty=True)
        with self.ask(target, "chat, " + TERMINAL).open() as ws:
            self.assertEqual(ws.reply["sec-websocket-protocol"], TERMINAL)
            ws.send(TEXT, json.dumps({"action": "resize", "rows": 41, "cols": 132}).encode())
            ws.send(BINARY, b"until stty size | grep '41 132'; do sleep 0.1; done; exit 7\n")
            found, code, _ = ws.all()
        events = [json.loads(d) for o, d in found if o == TEXT]
        self.assertEqual((code, events[0]["event"], events[0]["sandbox"]), (1000, "started", "box"))
        self.assertEqual((events[-1]["event"], events[-1]["end"]["exit_code"]), ("end", 7))
        self.assertIn(b"41 132\r\n", b"".join(d for o, d in found if o == BINARY))

    def test_input_signal_and_end(self):
        target = self.begin(argv=["cat"], stdin=True)
        with self.ask(target, TERMINAL).open() as ws:
            ws.send(BINARY, b"bytes \xff\n")
            ws.send(TEXT, b'{"action":"end_input"}')
            found, _, _ = ws.all()
        self.assertIn((BINARY, b"bytes \xff\n"), found)
        target = self.begin(argv=["sleep", "300"])
        with self.ask(target, TERMINAL).open() as ws:
            ws.send(TEXT, b'{"action":"signal","signal":"TERM"}')
            self.assertEqual(json.loads(ws.all()[0][-1][1])["end"]["signal"], "TERM")

    def test_control_messages_that_are_wrong(self):
        target = self.begin(shell="sleep 300")
        for text, word in ((b"{", "control message"), (b"{}", "action"), (b'{"action":"fly"}', "action"), (b'{"action":"signal"}', "signal"),
                           (b'{"action":"signal","signal":"NOPE"}', "signal"), (b'{"action":"resize","rows":0,"cols":1}', "rows"),
                           (b'{"action":"detach","x":1}', "x")):
            with self.subTest(text), self.ask(target, TERMINAL).open() as ws:
                ws.send(TEXT, text)
                _, code, reason = ws.all()
                self.assertEqual(code, 1008)
                self.assertIn(word, reason)
        self.assertEqual(self.root.exec_info("box")["state"], "running")

    def test_a_foreign_client(self):
        folder, why = installers.websockets()
        if not folder:
            self.skipTest(why)
        target = self.begin(argv=["sh"], tty=True)
        done = subprocess.run([sys.executable, "-c", FOREIGN, self.root.path / "run" / "ripcord.sock", target], capture_output=True, text=True,
                              env={**os.environ, "PYTHONPATH": str(folder)}, timeout=60 * Config.patience, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        got = json.loads(done.stdout)
        self.assertEqual((got["last"]["end"]["exit_code"], got["close"]), (5, 1000))


class TestPings(SocketCase):
    @unittest.skipUnless(Config.soak, "takes a minute: in the soak only")
    def test_a_silent_client_is_dropped(self):
        target = self.begin(shell="sleep 300")
        with self.ask(target).open() as silent, self.ask(target).open() as lively:
            for ws in (silent, lively):
                ws.sock.settimeout(50)
                self.assertEqual(frames([ws.receive()])[0][0], STARTED)
                self.assertEqual(ws.receive(), (PING, b""))
            lively.send(PONG)
            self.assertEqual(silent.all()[1:], (1008, "no answer to a ping"))
            self.assertTrue(silent.at_end())
            self.assertEqual(lively.receive(), (PING, b""))
        self.assertEqual(self.root.exec_info("box")["state"], "running")
