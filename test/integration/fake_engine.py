"""A fake Engine API on a unix socket. A test chooses its answers: the faults that a real engine shows once a year.

The container runs until `gone` is set. Each started exec is handed to `on_exec(conn, args)` on a thread of its own, after
the engine has answered 101 on that connection. The functions below build what a guest sends.
"""
import json
import re
import socket
import struct
import threading
from pathlib import Path

SPEC, RUN, STDIN, STDIN_EOF, SIGNAL, RESIZE, KILL, ANSWER_DATA, ANSWER_EOF, ANSWER_CLOSE, ANSWER_ACK = range(1, 12)
(HELLO, STARTED, FAILED, STDIN_ACK, STDIN_CLOSED, STDOUT, STDERR, STDOUT_EOF, EXIT, DONE, CALL_OPEN, CALL_DATA, CALL_EOF,
 CALL_CLOSE, CALL_ACK) = range(0x81, 0x90)


def frame(kind, payload=b""):
    return struct.pack(">BI", kind, len(payload)) + payload


def mux(data, stream=1):
    return struct.pack(">BxxxI", stream, len(data)) + data


def hello(pid=7):
    return frame(HELLO, b"RIPGUEST" + struct.pack(">HHI", 1, 0, pid))


def started(pid=8):
    return frame(STARTED, struct.pack(">I", pid))


def call(kind, number, data=b""):
    """A frame of one of the connections that `guest listen` carries."""
    return frame(kind, struct.pack(">I", number) + data)


def exited(status=0, out=0, err=0):
    unknown = (1 << 64) - 1
    figures = [out, err, 1000, 1 << 20, 0, 0] + [unknown] * 7
    return frame(EXIT, struct.pack(">II13Q", status, 1, *figures))


def done(entries=0):
    return frame(DONE, struct.pack(">3Q", entries, 0, 0))


class FakeEngine:
    def __init__(self, folder):
        self.path = str(Path(folder) / "engine.sock")
        self.gone = threading.Event()
        self.hung = threading.Event()       # no call is answered
        self.create_status = None           # of POST /exec
        self.pid = 42                       # the pid of the container's pid 1, as inspect reports it
        self.exec_status = 137              # the exit status that inspect reports for every exec; None: unknown exec
        self.on_exec = lambda conn, args: None
        self.calls, self.execs = [], {}
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(64)
        threading.Thread(target=self.accept, daemon=True).start()

    host = property(lambda self: f"unix://{self.path}")

    def close(self):
        self.listener.close()

    def accept(self):
        while True:
            try:
                conn, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(conn,), daemon=True).start()

    def serve(self, conn):
        with conn:
            try:
                self.answer(conn)
            except OSError:
                pass

    def read_request(self, conn):
        data = b""
        while b"\r\n\r\n" not in data:
            part = conn.recv(65536)
            if not part:
                return None
            data += part
        head, body = data.split(b"\r\n\r\n", 1)
        length = re.search(rb"content-length: *(\d+)", head, re.I)
        while length and len(body) < int(length[1]):
            body += conn.recv(65536)
        method, target, _ = head.split(b"\r\n")[0].decode().split(" ")
        return method, re.sub(r"^/v1\.\d+", "", target), json.loads(body) if body else None

    def reply(self, conn, status, doc, extra=""):
        body = json.dumps(doc).encode()
        conn.sendall(f"HTTP/1.1 {status} X\r\nApi-Version: 1.41\r\nContent-Type: application/json\r\n{extra}"
                     f"Content-Length: {len(body)}\r\n\r\n".encode() + body)

    def answer(self, conn):
        request = self.read_request(conn)
        if request is None:
            return
        method, target, body = request
        self.calls.append((method, target))
        if self.hung.is_set():
            threading.Event().wait(120)
        path = target.split("?")[0].split("/")
        if target == "/_ping":
            self.reply(conn, 200, "OK")
        elif target == "/version":
            self.reply(conn, 200, {"ApiVersion": "1.41", "MinAPIVersion": "1.12", "Version": "20.10.24"})
        elif path[1] == "containers" and path[-1] == "exec":
            self.create_exec(conn, body)
        elif path[1] == "containers" and path[-1] == "wait":
            conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
            self.gone.wait()
            conn.sendall(b'11\r\n{"StatusCode":0}\n\r\n0\r\n\r\n')
        elif path[1] == "containers" and path[-1] == "stop":
            self.gone.set()
            conn.sendall(b"HTTP/1.1 204 X\r\n\r\n")
        elif path[1] == "containers":
            self.reply(conn, 200, {"State": {"Running": not self.gone.is_set(), "Paused": False, "Pid": self.pid}})
        elif path[-1] == "start":
            self.start_exec(conn, path[2])
        elif self.exec_status is None:
            self.reply(conn, 404, {"message": f"No such exec instance: {path[2]}"})
        else:
            self.reply(conn, 200, {"Running": False, "ExitCode": self.exec_status})

    def create_exec(self, conn, body):
        if self.create_status:
            self.reply(conn, self.create_status, {"message": "the fake engine refuses"})
            return
        name = f"{len(self.execs):064x}"
        self.execs[name] = body["Cmd"][1:]
        self.reply(conn, 201, {"Id": name})

    def start_exec(self, conn, name):
        conn.sendall(b"HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\n"
                     b"Connection: Upgrade\r\nUpgrade: tcp\r\n\r\n")
        args = self.execs[name]
        if args[0] == "reap":
            conn.sendall(mux(hello() + done()))
        else:
            self.on_exec(conn, args)


class Guest:
    """The guest's end of a hijacked connection: reads the relay's frames and sends its own."""

    def __init__(self, conn):
        self.conn, self.data = conn, b""

    def next(self):
        """(type, payload), or None at the end."""
        while len(self.data) < 5 or len(self.data) < 5 + struct.unpack(">I", self.data[1:5])[0]:
            part = self.conn.recv(65536)
            if not part:
                return None
            self.data += part
        kind, length = struct.unpack(">BI", self.data[:5])
        payload, self.data = self.data[5:5 + length], self.data[5 + length:]
        return kind, payload

    def until(self, kind):
        while (f := self.next()) and f[0] != kind:
            pass
        return f

    def say(self, *frames):
        self.conn.sendall(mux(b"".join(frames)))
