"""Ports inside a sandbox that has no network, reached through the daemon."""
import base64
import os
import socket
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

from ripcord_test import Config, TestCase, parse_reply, read_all, wait_until

# Echoes, and says END once the client's side has ended; /upgrade as a WebSocket server would.
ECHO = r"""
import socket, sys, threading
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("127.0.0.1", 9000)); s.listen(200)
def serve(c):
    while piece := c.recv(65536):
        c.sendall(piece)
    c.sendall(b"END"); c.close()
print("ready", flush=True)
while True:
    threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
"""

UPGRADE = r"""
import socket
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("127.0.0.1", 9001)); s.listen(5)
print("ready", flush=True)
c, _ = s.accept()
head = b""
while b"\r\n\r\n" not in head:
    head += c.recv(1000)
assert b"Upgrade: websocket" in head, head
c.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
while frame := c.recv(1000):
    n = frame[1] & 127
    mask, data = frame[2:6], frame[6:6 + n]
    text = bytes(b ^ mask[i % 4] for i, b in enumerate(data))
    c.sendall(bytes([0x81, n]) + text.upper())
"""

# Takes connections and never reads; or sends without end.
DEAF = r"""
import socket, time
s = socket.socket(); s.bind(("127.0.0.1", 9002)); s.listen(5)
print("ready", flush=True)
kept = []
while True:
    kept.append(s.accept()[0])
"""


class PortCase(TestCase):
    def setUp(self):
        super().setUp()
        self.root.ok("up", "a", "--network", "none")
        self.listeners = []

    def tearDown(self):
        for p in self.listeners:
            p.terminate()
            p.communicate(timeout=20)
        super().tearDown()

    def serve(self, script, *argv):
        self.root.ok("exec", "--detach", "a", "--", "python3", *(argv or ("-c", script)))

    def echo(self, script=ECHO, port=9000):
        self.serve(script)
        wait_until(lambda: self.tunnel(port)[0] == 101, 20, f"port {port} to listen")

    def tunnel(self, port, keep=False):
        """Status, and the socket when it is kept."""
        s = self.root.connect(30)
        s.sendall(f"GET /v1/sandboxes/a/ports/{port} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\n"
                  "Upgrade: tcp\r\n\r\n".encode())
        head = b""
        while b"\r\n\r\n" not in head:
            piece = s.recv(1)
            if not piece:
                break
            head += piece
        status = int(head.split()[1])
        if not keep:
            s.close()
            return status, None
        return status, s

    def listen(self, port, *args):
        p = self.root.popen("port", "a", port, *args)
        self.listeners.append(p)
        line = p.stdout.readline().decode()
        return p, int(line.rpartition(":")[2])


class Tunnel(PortCase):
    def test_http(self):
        self.root.ok("exec", "a", "--", "sh", "-c", "mkdir w; echo hello > w/f; head -c 9000000 /dev/zero > w/big")
        self.serve(None, "-m", "http.server", "8000", "--bind", "127.0.0.1", "--directory", "/home/agent/w")
        wait_until(lambda: self.tunnel(8000)[0] == 101, 20, "the web server")
        _, port = self.listen(8000)
        for _ in range(3):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/f", timeout=20) as f:
                self.assertEqual(f.read(), b"hello\n")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/big", timeout=20) as f:
            self.assertEqual(len(f.read()), 9000000)

    def test_websocket(self):
        self.serve(UPGRADE)
        _, port = self.listen(9001)

        def dial():
            s = socket.create_connection(("127.0.0.1", port), 20)
            key = base64.b64encode(os.urandom(16))
            s.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                      b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + key + b"\r\n\r\n")
            head = b""
            try:
                while b"\r\n\r\n" not in head and (piece := s.recv(1)):
                    head += piece
            except ConnectionResetError:
                pass  # nothing listens yet
            if head:
                self.assertIn(b" 101 ", head)
                return s
            s.close()
            return None

        end = time.monotonic() + 20
        while (s := dial()) is None and time.monotonic() < end:
            time.sleep(0.1)  # not listening yet
        with s:
            for text in (b"hello", b"frames both ways"):
                s.sendall(bytes([0x81, 0x80 | len(text), 1, 2, 3, 4]) +
                          bytes(b ^ (i % 4 + 1) for i, b in enumerate(text)))
                self.assertEqual(s.recv(100), bytes([0x81, len(text)]) + text.upper())

    def test_half_close_both_ways(self):
        self.echo()
        _, port = self.listen(9000)
        with socket.create_connection(("127.0.0.1", port), 20) as s:
            s.sendall(b"first")
            self.assertEqual(s.recv(5), b"first")
            s.sendall(b"last")
            s.shutdown(socket.SHUT_WR)
            self.assertEqual(read_all(s), b"lastEND")

    def test_stdio(self):
        self.echo()
        data = os.urandom(5_000_000)
        r = self.root.ok("port", "a", "9000", "--stdio", stdin=data)
        self.assertEqual(r.out, data + b"END")

    def test_raw_api(self):
        self.echo()
        status, s = self.tunnel(9000, keep=True)
        with s:
            self.assertEqual(status, 101)
            data = os.urandom(3_000_000)
            sender = threading.Thread(target=lambda: (s.sendall(data), s.shutdown(socket.SHUT_WR)))
            sender.start()
            self.assertEqual(read_all(s), data + b"END")
            sender.join()

    def test_fifty_at_once(self):
        self.echo()
        _, port = self.listen(9000)

        def one(i):
            data = bytes([i]) * 200_000
            with socket.create_connection(("127.0.0.1", port), 60) as s:
                sender = threading.Thread(target=lambda: (s.sendall(data), s.shutdown(socket.SHUT_WR)))
                sender.start()
                got = read_all(s)
                sender.join()
            return got == data + b"END"

        with ThreadPoolExecutor(50) as pool:
            self.assertEqual(list(pool.map(one, range(50))), [True] * 50)

    def test_a_service_that_never_reads_holds_the_sender_back(self):
        self.echo(DEAF, 9002)
        pid = self.root.daemon_pid()
        _, s = self.tunnel(9002, keep=True)
        with s:
            s.settimeout(1)
            sent = 0
            with self.assertRaises(socket.timeout):
                while sent < 200 << 20:
                    sent += s.send(bytes(1 << 20))
            self.assertLess(sent, 64 << 20)
            with open(f"/proc/{pid}/statm", encoding="ascii") as f:
                self.assertLess(int(f.read().split()[1]) * 4096, 64 << 20)

    def test_nothing_is_left_open(self):
        self.echo()
        before = self.root.snapshot()["daemon descriptors"]
        for _ in range(20):
            _, s = self.tunnel(9000, keep=True)
            s.sendall(b"x")
            s.close()
        wait_until(lambda: self.root.snapshot()["daemon descriptors"] == before, 10, "sockets to be closed")


class Listing(PortCase):
    def ports(self):
        return {(p["port"], p["address"]) for p in self.root.get("/v1/sandboxes/a/ports")["ports"]}

    def test_what_listens(self):
        before = self.ports()
        self.serve("""
import socket
kept = []
for family, at in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::1")):
    s = socket.socket(family)
    try:
        s.bind((at, 9100 + len(kept)))
    except OSError:
        continue
    s.listen(1); kept.append(s)
kept.append(socket.create_connection(("127.0.0.1", 9100)))  # no listener
__import__("time").sleep(600)
""")
        want = {(9100, "127.0.0.1"), (9101, "0.0.0.0")}
        if Config.engine == "native":  # containers have no IPv6 here
            want.add((9102, "::1"))
        wait_until(lambda: self.ports() - before == want, 20, "the ports to be listed")
        of = [p for p in self.root.get("/v1/sandboxes/a/ports")["ports"] if p["port"] == 9100]
        if Config.engine != "native":
            self.assertEqual(of[0]["command"], "python3")
            self.assertGreater(of[0]["pid"], 1)

    def test_names_of_processes_are_hostile(self):
        """A name that a process chose is data, whatever bytes it has."""
        self.serve("""
import ctypes, socket
ctypes.CDLL(None).prctl(15, b'\\xff"}\\n{\\x01', 0, 0, 0)
s = socket.socket(); s.bind(("127.0.0.1", 9110)); s.listen(1)
__import__("time").sleep(600)
""")
        wait_until(lambda: (9110, "127.0.0.1") in self.ports(), 20, "the port to be listed")
        if Config.engine != "native":
            of = [p for p in self.root.get("/v1/sandboxes/a/ports")["ports"] if p["port"] == 9110]
            self.assertEqual(base64.b64decode(of[0]["command_base64"]), b'\xff"}\n{\x01')

    def test_many_sockets(self):
        """The list has an end, and connections that are open do not hide what listens."""
        self.serve("""
import resource, socket
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
kept = []
for port in range(20000, 21100):
    s = socket.socket(); s.bind(("127.0.0.1", port)); s.listen(1); kept.append(s)
__import__("time").sleep(600)
""")
        def listed():
            return self.root.get("/v1/sandboxes/a/ports")
        wait_until(lambda: listed().get("cut"), 30, "the list to be cut")
        self.assertEqual(len(listed()["ports"]), 1024)

    def test_a_stopped_sandbox_stays_down(self):
        self.root.ok("stop", "a")
        self.assertEqual(self.ports(), set())
        self.assertEqual(self.root.sandbox("a")["state"], "stopped")
        self.assertEqual(self.root.http("GET", "/v1/sandboxes/nix/ports").status, 404)


class Refusals(PortCase):
    def test_nothing_listens(self):
        r = self.root.run("port", "a", "9999", "--stdio")
        self.assertEqual(r.code, 3, r)
        self.assertIn(b"nothing listens on port 9999", r.err)
        p, port = self.listen(9999)
        with socket.create_connection(("127.0.0.1", port), 20) as s:
            self.assertEqual(read_all(s), b"")
        self.assertIn(b"nothing listens on port 9999", p.stderr.readline())
        self.assertIsNone(p.poll())  # the next connection may find it

    def test_bad_requests(self):
        for port in ("0", "65536", "-1", "x", "80x"):
            self.assertEqual(self.root.run("port", "a", "--", port).code, 2, port)
            self.assertEqual(self.tunnel(port)[0], 400, port)
        self.assertEqual(self.root.run("port", "nix", "80").code, 3)
        self.assertEqual(self.root.http("GET", "/v1/sandboxes/a/ports/80").status, 426)
        self.assertEqual(self.root.http("GET", "/v1/sandboxes/nix/ports/80",
                                        headers={"Connection": "Upgrade", "Upgrade": "tcp"}).status, 404)

    def test_a_local_port_in_use(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            s.listen(1)
            r = self.root.run("port", "a", "80", s.getsockname()[1])
            self.assertEqual(r.code, 4, r)

    def test_a_stopped_sandbox_is_started_and_a_removed_one_ends_it(self):
        self.root.ok("stop", "a")
        self.assertEqual(self.tunnel(9000)[0], 404)  # started, and nothing listens
        self.assertEqual(self.root.sandbox("a")["state"], "running")
        self.echo()
        _, s = self.tunnel(9000, keep=True)
        with s:
            s.sendall(b"x")
            self.assertEqual(s.recv(1), b"x")
            self.root.ok("rm", "-f", "a")
            self.assertEqual(read_all(s), b"")

    def test_reply_is_json(self):
        with self.root.connect() as s:
            s.sendall(b"GET /v1/sandboxes/a/ports/9999 HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, close\r\n"
                      b"Upgrade: tcp\r\n\r\n")
            s.shutdown(socket.SHUT_WR)
            self.assert_refused(parse_reply(read_all(s)), 404, "not_found", "9999")
