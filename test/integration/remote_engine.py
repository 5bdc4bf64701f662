"""A test engine behind a forwarder, so that it looks like an engine on another machine.

    with RemoteEngine(engine) as remote:            # a unix socket; /info names another kernel: as Docker Desktop does
    with RemoteEngine(engine, tcp=True) as remote:  # 127.0.0.1; answers are unchanged: an engine on another machine
        remote.host; remote.cut()

cut() closes all open connections, as a broken network does. The engine and its containers continue.
"""
import os
import re
import socket
import tempfile
import threading
from pathlib import Path


class RemoteEngine:
    def __init__(self, engine, tcp=False):
        self.engine, self.tcp = engine, tcp
        self.lock, self.open = threading.Lock(), set()

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="ripcord-far-")
        self.path = Path(self.folder.name) / "api.sock"
        if self.tcp:
            self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        else:
            self.listener = socket.socket(socket.AF_UNIX)
            self.listener.bind(str(self.path))
            self.listener.listen(128)
        threading.Thread(target=self.accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.cut()
        self.folder.cleanup()

    @property
    def host(self):
        return f"tcp://127.0.0.1:{self.listener.getsockname()[1]}" if self.tcp else f"unix://{self.path}"

    def cut(self):
        with self.lock:
            for s in self.open:
                try:
                    s.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.carry, args=(near,), daemon=True).start()

    def carry(self, near):
        far = socket.socket(socket.AF_UNIX)
        with near, far:
            with self.lock:
                self.open |= {near, far}
            try:
                far.connect(str(self.engine.socket))
                self.talk(near, far)
            except OSError:
                pass
            with self.lock:
                self.open -= {near, far}

    def talk(self, near, far):
        """Forwards one connection. The answer to GET /info is changed, unless the engine is reached over TCP."""
        first = near.recv(65536)
        info = not self.tcp and re.match(rb"GET (/v[\d.]+)?/info ", first)
        far.sendall(first)
        other = threading.Thread(target=pump, args=(near, far), daemon=True)
        other.start()
        if info:
            near.sendall(another_kernel(whole_answer(far)))
        pump(far, near)
        other.join()


def pump(source, sink):
    """Copies one direction until it ends, then closes that direction of the other socket."""
    try:
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        for s in (source, sink):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def whole_answer(sock):
    data = b""
    while not is_whole(data):
        part = sock.recv(65536)
        if not part:
            break
        data += part
    return data


def is_whole(data):
    head, end, body = data.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: *(\d+)", head)
    return bool(end) and (len(body) >= int(length[1]) if length else body.endswith(b"0\r\n\r\n"))


def another_kernel(answer):
    """Replaces the kernel's name by another of the same length, so that Content-Length stays right."""
    ours = os.uname().release.encode()
    return answer.replace(b'"KernelVersion":"' + ours, b'"KernelVersion":"' + b"z" * len(ours))
