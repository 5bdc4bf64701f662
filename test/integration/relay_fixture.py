"""Starts a ripcord-relay on a container, as the daemon would, and speaks the supervisor protocol with it.

    with relay_fixture.Sandbox(engine, bin) as sandbox:
        x = sandbox.exec("echo", "hello")
        x.end()["cause"]; x.read("out")
"""
import fcntl
import io
import json
import os
import shutil
import socket
import struct
import subprocess
import tarfile
import tempfile
import time
from pathlib import Path

import engines
from ripcord_test import SANITIZER, readable

(HELLO, READY, FAILED, EXEC, STARTED, EXEC_FAILED, ATTACH, ATTACHED, DETACH, ACK, OUTPUT, ENDED, SIGNAL, KILL, RESIZE,
 STDIN_CLOSE, STOP, STOPPED, PAUSE, RESUME, STATS, DIAL, COPY, RESULT, PLAN, LISTENER) = range(1, 27)
TAGS = ("version sandbox pid state err_code err_errno err_msg err_hint exec arg env cwd user flags timeout idle_timeout rows cols "
        "stdout stderr stdout_start stderr_start record signal cause grace port path direction stat hash unenforced").split()
STRINGS = {"sandbox", "err_msg", "err_hint", "exec", "arg", "env", "cwd", "user", "record", "path", "stat", "hash"}
WANT_STDIN, WANT_TTY, WANT_OUTPUT = 1, 2, 4


def pack(kind, seq, fields):
    body = b""
    for name, value in fields:
        data = value.encode() if isinstance(value, str) else struct.pack("=Q", value)
        body += struct.pack("=HHI", TAGS.index(name) + 1, 0, len(data)) + data + bytes(8 - len(data) % 8)
    return struct.pack("=HHIQ", kind, 0, len(body), seq) + body


def unpack(packet):
    kind, _, _, seq = struct.unpack_from("=HHIQ", packet)
    at, fields = 16, {"stat": []}
    while at < len(packet):
        tag, _, length = struct.unpack_from("=HHI", packet, at)
        data = packet[at + 8:at + 8 + length]
        name = TAGS[tag - 1] if tag <= len(TAGS) else str(tag)
        value = data.decode(errors="replace") if name in STRINGS else struct.unpack("=Q", data)[0]
        if name == "stat":
            fields["stat"].append(value)
        else:
            fields[name] = value
        at += 8 + length + 8 - length % 8
    return kind, seq, fields


class Connection:
    """One connection to the relay."""

    def __init__(self, sock):
        self.sock, self.seq = sock, 0
        self.messages = []
        self.sock.settimeout(60)
        self.send(HELLO, ("version", 1 << 32))

    def send(self, kind, *fields, fd=None):
        self.seq += 1
        socket.send_fds(self.sock, [pack(kind, self.seq, fields)], [] if fd is None else [fd])
        return self.seq

    def receive(self, seconds=60):
        """The next message: (kind, seq, fields, fd or None); None at the end."""
        if not readable(self.sock, seconds):
            raise TimeoutError("the relay says nothing")
        packet, fds, _, _ = socket.recv_fds(self.sock, 1 << 18, 4)
        return (*unpack(packet), fds[0] if fds else None) if packet else None

    def until(self, wanted, seconds=60):
        """The first message that satisfies `wanted`: of those received before, else of those that follow."""
        by = time.monotonic() + seconds
        for i, m in enumerate(self.messages):
            if wanted(m):
                return self.messages.pop(i)
        while True:
            m = self.receive(max(by - time.monotonic(), 0.01))
            if m is None:
                raise EOFError("the relay has closed its connection")
            if m[0] == OUTPUT:
                self.send(ACK, *((k, m[2][k]) for k in ("exec", "stdout", "stderr")))
            if wanted(m):
                return m
            self.messages.append(m)

    def ask(self, kind, *fields, fd=None, seconds=60):
        seq = self.send(kind, *fields, fd=fd)
        return self.until(lambda m: m[1] == seq, seconds)


class Exec:
    def __init__(self, sandbox, connection, name, seq):
        self.sandbox, self.connection, self.name, self.seq = sandbox, connection, name, seq
        self.stdin = None

    def started(self):
        kind, _, fields, fd = self.connection.until(lambda m: m[1] == self.seq and m[0] in (STARTED, EXEC_FAILED))
        self.stdin = fd
        return fields if kind == STARTED else RuntimeError(fields["err_msg"])

    def end(self, seconds=60):
        m = self.connection.until(lambda m: m[0] == ENDED and m[2]["exec"] == self.name, seconds)
        return dict(line.split("=", 1) for line in m[2]["record"].splitlines())

    def read(self, stream="out"):
        return b"".join(p.read_bytes() for p in sorted(self.sandbox.execs.joinpath(self.name).glob(f"{stream}.[0-9]*")))

    def request(self, kind, *fields):
        """The fields of the relay's answer to a message about this exec."""
        return self.connection.ask(kind, ("exec", self.name), *fields)[2]


class Sandbox:
    """A running container with the guest in it, and the relay that supervises it."""

    def __init__(self, engine, bin_folder, ephemeral=False, memory=0, pids=0, budget=0, host=None, port=0, inside=False):
        self.engine, self.bin = engine, Path(bin_folder)
        self.ephemeral, self.memory, self.pids, self.budget, self.host, self.port = ephemeral, memory, pids, budget, host, port
        self.inside = inside
        self.numbers = iter(range(1, 1 << 30))

    def __enter__(self):
        self.place = Path(tempfile.mkdtemp(prefix="ripcord-relay-"))
        self.run, self.execs = self.place / "run", self.place / "execs"
        self.run.mkdir()
        self.execs.mkdir()
        try:
            self.make_container()
            self.connection = self.start_relay()
        except BaseException:
            shutil.rmtree(self.place)
            raise
        return self

    def make_container(self):
        config = {"Image": engines.IMAGE, "Entrypoint": ["/.ripcord/guest", "init"], "Cmd": [],
                  "HostConfig": {"CapDrop": ["ALL"], "SecurityOpt": ["no-new-privileges"], "NetworkMode": "none",
                                 "Memory": self.memory, "MemorySwap": self.memory, "PidsLimit": self.pids or None}}
        made = self.engine.api("POST", "/containers/create", config)
        assert made.status == 201, made
        self.id = made.json()["Id"]
        tar = io.BytesIO()
        with tarfile.open(fileobj=tar, mode="w") as t:
            folder = tarfile.TarInfo(".ripcord")
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            t.addfile(folder)
            data = (self.bin / "ripcord-guest").read_bytes()
            guest = tarfile.TarInfo(".ripcord/guest")
            guest.mode, guest.size = 0o111, len(data)
            t.addfile(guest, io.BytesIO(data))
        # Without tarfile's padding: Podman's reader is content with the two empty blocks, and may then fail with EPIPE.
        put = self.engine.api("PUT", f"/containers/{self.id}/archive?path=/", tar.getvalue()[:t.offset],
                              headers={"Content-Type": "application/x-tar"})
        assert put.status == 200, put
        started = self.engine.api("POST", f"/containers/{self.id}/start")
        assert started.status == 204, started

    def plan(self):
        plan = {"sandbox_id": "0123456789abcdef", "name": "box", "hash": "", "endpoint": self.host or self.engine.host,
                "container": self.id, "run_dir": str(self.run), "exec_dir": str(self.execs), "user": "agent",
                "workdir": "/home/agent", "env": ["HOME=/home/agent", "USER=agent", "BASE=1"], "memory": self.memory,
                "pids": self.pids, "unenforced": 0, "registry_port": self.port, "registry_inside": self.inside, "own_kernel": False,
                "journal_budget": self.budget, "ephemeral": self.ephemeral}
        fd = os.memfd_create("plan")
        os.write(fd, json.dumps(plan).encode())
        return fd

    def start_relay(self):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        plan = self.plan()
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 64) for fd in (theirs.fileno(), plan)]

        def arrange():
            for number, fd in zip((3, 4), high):
                os.dup2(fd, number)
        with open(self.run / "relay.log", "ab") as log:
            self.relay = subprocess.Popen([self.bin / "ripcord-relay", "0123456789abcdef"], stdin=subprocess.DEVNULL,
                                          stdout=subprocess.DEVNULL, stderr=log, env={}, close_fds=False,
                                          preexec_fn=arrange, start_new_session=True)
        for fd in (plan, *high):
            os.close(fd)
        theirs.close()
        connection = Connection(ours)
        self.hello = connection.until(lambda m: m[0] in (HELLO, FAILED))
        if self.hello[0] == HELLO:
            self.ready = connection.until(lambda m: m[0] in (READY, FAILED))
        return connection

    def log(self):
        return (self.run / "relay.log").read_text(errors="replace")

    def connect(self):
        """A second connection, as the next daemon makes it after a restart."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sock.connect(str(self.run / "shim.sock"))
        return Connection(sock)

    def exec(self, *argv, env=(), stdin=False, tty=False, user=None, cwd=None, timeout=None, idle=None, attach=True):
        name = f"x{next(self.numbers)}"
        flags = WANT_STDIN * stdin | WANT_TTY * tty | WANT_OUTPUT * attach
        fields = [("exec", name), ("flags", flags), *(("arg", a) for a in argv), *(("env", e) for e in env)]
        fields += [(k, v) for k, v in (("user", user), ("cwd", cwd)) if v]
        fields += [(k, int(v * 1e6)) for k, v in (("timeout", timeout), ("idle_timeout", idle)) if v]
        if tty:
            fields += [("rows", 24), ("cols", 80)]
        return Exec(self, self.connection, name, self.connection.send(EXEC, *fields))

    def processes(self):
        """Command lines of the container's processes, except pid 1."""
        top = self.engine.api("GET", f"/containers/{self.id}/json").json()["State"]["Pid"]
        ns = os.readlink(f"/proc/{top}/ns/pid")
        found = []
        for p in Path("/proc").iterdir():
            try:
                if p.name.isdigit() and int(p.name) != top and os.readlink(p / "ns/pid") == ns:
                    found.append((p / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip())
            except OSError:
                pass
        return found

    def __exit__(self, *_):
        self.connection.sock.close()
        if self.relay.poll() is None:
            self.relay.kill()
        self.relay.wait()
        log = self.log()
        self.engine.api("DELETE", f"/containers/{self.id}?force=1&v=1")
        shutil.rmtree(self.place, ignore_errors=True)
        if SANITIZER.search(log.encode()):
            raise AssertionError(log)
