"""A real dockerd and containerd, between which containerd's event stream can be held back.

containerd answers a call and reports the same change as an event. Both travel on one HTTP/2 connection, so under load the
event may arrive after later calls. Here that is certain: a forwarder between the two passes everything at once, except the
DATA frames of the stream that carries events of tasks.
"""
import queue
import socket
import threading
import time

import engines

DATA = 0


def pump(source, sink):
    try:
        while data := source.recv(1 << 16):
            sink.sendall(data)
    except OSError:
        pass
    for s in (source, sink):
        try:
            s.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


class FromContainerd:
    """One connection's frames on their way to dockerd."""

    def __init__(self, engine, source, sink):
        self.engine, self.source, self.sink = engine, source, sink
        self.lock = threading.Lock()
        self.held = queue.Queue()
        self.event_streams = set()
        for target in (self.read, self.release):
            threading.Thread(target=target, daemon=True).start()

    def pass_on(self, frame):
        try:
            with self.lock:
                self.sink.sendall(frame)
        except OSError:
            pass  # dockerd has gone

    def read(self):
        stream = self.source.makefile("rb")
        while len(head := stream.read(9)) == 9:
            body = stream.read(int.from_bytes(head[:3], "big"))
            number = int.from_bytes(head[5:9], "big") & 0x7fffffff
            if head[3] == DATA and b"/tasks/" in body and b"moby" in body:
                self.event_streams.add(number)
            if head[3] == DATA and number in self.event_streams:
                self.held.put((time.monotonic() + self.engine.delay, head + body))
            else:
                self.pass_on(head + body)

    def release(self):
        while True:
            due, frame = self.held.get()
            time.sleep(max(0, due - time.monotonic()))
            self.pass_on(frame)
            self.engine.reported += [name for name in ("paused", "resumed") if f"/tasks/{name}".encode() in frame]


class LateDocker(engines.Docker):
    """`delay`: seconds for which events are held back. `reported`: the reports of pauses that have reached dockerd."""

    delay = 0.0

    def prepare(self):
        super().prepare()
        self.reported = []
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.place / "forward.sock"))
        self.listener.listen(16)
        threading.Thread(target=self.accept, daemon=True).start()

    def command(self):
        return [self.place / "forward.sock" if a == self.place / "containerd.sock" else a for a in super().command()]

    def accept(self):
        while True:
            try:
                dockerd = self.listener.accept()[0]
            except OSError:
                return
            containerd = socket.socket(socket.AF_UNIX)
            containerd.connect(str(self.place / "containerd.sock"))
            threading.Thread(target=pump, args=(dockerd, containerd), daemon=True).start()
            FromContainerd(self, containerd, dockerd)

    def stop(self):
        super().stop()
        self.listener.close()
