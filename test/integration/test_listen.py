"""The API over TCP: refused without the token, for pages of other sites, and from sandboxes."""
import ctypes
import json
import os
import re
import socket
import stat
import subprocess
import sys
import tempfile

from ripcord_test import Config, TestCase, needs, only_on, parse_reply, read_all, read_reply, serial, wait_until
from test_http import REFUSED, REFUSED_CHUNKS, STATUS_LINE

WRONG = "0123456789abcdef" * 4
PUT = (b"PUT /v1/sandboxes/a HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")


class Tcp(TestCase):
    listen = "http.listen: 127.0.0.1:0\n"

    def setUp(self):
        super().setUp()
        self.root.configure(self.listen)
        self.start()
        self.address = self.root.get("/v1/version")["listen"]
        host, _, port = self.address.rpartition(":")
        self.peer = (host, int(port))

    def start(self):
        self.root.start()

    def token(self):
        return (self.root.path / "state" / "token").read_text(encoding="ascii").strip()

    def raw(self, data):
        with socket.create_connection(self.peer, timeout=20) as s:
            try:
                s.sendall(data)
            except OSError:
                pass  # refused before all was sent: the answer is still there to be read
            return read_all(s)

    def ask(self, method="GET", target="/healthz", body=b"", **fields):
        """Sends the token and the right host by default; None leaves a header out."""
        given = {"Host": self.address, "Authorization": f"Bearer {self.token()}", "Connection": "close"}
        if body:
            given.update({"Content-Type": "application/json", "Content-Length": str(len(body))})
        given.update({k.replace("_", "-"): v for k, v in fields.items()})
        head = "".join(f"{k}: {v}\r\n" for k, v in given.items() if v is not None)
        return parse_reply(self.raw(f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode() + body))


@only_on("native")
class Auth(Tcp):
    def test_nothing_without_the_token(self):
        token = self.token()
        self.assertEqual(self.ask().status, 200)
        self.assertEqual(self.ask(Authorization=f"bearer {token}").status, 200)
        for bad in (None, "", "Bearer", f"Bearer {WRONG}", f"Bearer {token[:-1]}", f"Bearer {token}0", f"Basic {token}", token):
            reply = self.ask(Authorization=bad)
            self.assert_refused(reply, 401, "unauthorized", "ripcord token")
            self.assertIn("Bearer", reply.headers["www-authenticate"])

    def test_every_way_in_is_shut(self):
        """For every route, and before the body is read."""
        upgrade = {"Connection": "Upgrade", "Upgrade": "ripcord-exec/1"}
        for method, target, more in (("GET", "/", {}), ("GET", "/v1/nothing", {}), ("OPTIONS", "/v1/sandboxes", {}),
                                     ("PUT", "/v1/sandboxes/a", {"Content_Length": "1000000"}), ("POST", "/v1/run", upgrade),
                                     ("POST", "/v1/images?name=x", {"Content_Length": "99999999999"}), ("GET", "/metrics", {})):
            reply = self.ask(method, target, Authorization=None, **more)
            self.assertEqual(reply.status, 401, (target, reply))
            self.assertFalse([f for f in reply.headers if f.startswith("access-control")])
        self.assertEqual(self.root.sandboxes(), [])

    def test_other_names_and_other_sites(self):
        port = self.peer[1]
        for host in (f"localhost:{port}", f"LocalHost:{port}", f"[::1]:{port}", self.address):
            self.assertEqual(self.ask(Host=host).status, 200, host)
        for host in ("evil.test", f"evil.test:{port}", "localhost", "127.0.0.1", f"127.0.0.1:{port - 1}", f"localhost.:{port}",
                     f"127.0.0.1:{port}.evil.test", f"evil.test@127.0.0.1:{port}"):
            reply = self.ask(Host=host)
            self.assertIn(reply.status, (400, 421), (host, reply))
        for origin in ("http://evil.test", "null", f"https://{self.address}", "http://127.0.0.1", f"http://{self.address}.evil.test", ""):
            self.assertEqual(self.ask("PUT", "/v1/sandboxes/a", b"{}", Origin=origin).status, 403, origin)
        for site in ("cross-site", "same-site", ""):
            self.assertEqual(self.ask(Sec_Fetch_Site=site).status, 403, site)
        self.assertEqual(self.ask("PUT", "/v1/sandboxes/a", b"{}", Content_Type="text/plain").status, 415)
        self.assertEqual(self.root.sandboxes(), [])
        self.assertEqual(self.ask(Origin=f"http://{self.address}", Sec_Fetch_Site="same-origin").status, 200)

    def test_bad_bytes(self):
        """Requests that the unix socket refuses are refused here too, with and without the token."""
        good = f"Host: {self.address}\r\nAuthorization: Bearer {self.token()}".encode()
        for name, request in REFUSED + [(n, PUT + c) for n, c in REFUSED_CHUNKS]:
            for form in (request, request.replace(b"Host: x", good)):
                data = self.raw(form)
                allowed = (400, 413, 414, 431, 501, 505) if form is not request else (400, 401, 413, 414, 421, 429, 431, 501, 505)
                self.assertIn(parse_reply(data).status, allowed, (name, data))
                self.assertEqual(len(STATUS_LINE.findall(data)), 1, (name, data))
        self.assertEqual((self.ask().status, self.root.sandboxes()), (200, []))

    def test_wrong_tokens_are_limited_and_the_right_one_works(self):
        seen = {self.ask(Authorization=f"Bearer {WRONG}").status for _ in range(40)}
        self.assertEqual(seen, {401, 429})
        self.assertEqual(self.ask().status, 200)
        wait_until(lambda: any(b"without a valid token" in text for _, text in self.root.logs()), 10, "a line in the log")

    def test_no_connection_left_for_others(self):
        """Clients that hold all TCP connections do not block the unix socket, and are disconnected in time."""
        held = [socket.create_connection(self.peer, timeout=20) for _ in range(300)]
        self.assertEqual(self.root.get("/healthz"), {"status": "ok"})
        self.assertEqual(parse_reply(read_all(held[-1])).status, 429)
        for s in held:
            s.close()
        wait_until(lambda: self.ask().status == 200, 20, "room again")


@only_on("native")
class Token(Tcp):
    def test_the_file_is_ours_alone(self):
        file = self.root.path / "state" / "token"
        self.assertEqual(stat.S_IMODE(file.stat().st_mode), 0o600)
        self.assertRegex(file.read_text(encoding="ascii"), r"^[0-9a-f]{64}\n$")
        shown = self.root.ok("token", "show", "--json").json()
        self.assertEqual((shown["token"], shown["file"], shown["rotated"]), (self.token(), str(file), False))
        self.assertEqual(self.root.ok("token").text.strip(), self.token())
        self.ask()
        self.ask(Authorization=f"Bearer {WRONG}")
        self.assertNotIn(self.token(), json.dumps(self.root.get("/v1/config")) + str(self.root.logs()))
        for mode in (0o640, 0o604, 0o622):
            file.chmod(mode)
            self.assertEqual(self.ask(Authorization=f"Bearer {shown['token']}").status, 401, oct(mode))
        file.chmod(0o600)
        self.assertEqual(self.ask().status, 200)
        file.rename(file.with_name("away"))
        os.symlink("away", file)
        self.assertEqual(self.ask(Authorization=f"Bearer {shown['token']}").status, 401)

    def test_rotation_ends_what_the_old_one_opened(self):
        old = self.token()
        with socket.create_connection(self.peer, timeout=20) as s:
            s.sendall(f"GET /v1/events?follow=1 HTTP/1.1\r\nHost: {self.address}\r\nAuthorization: Bearer {old}\r\n\r\n".encode())
            self.assertIn(b"HTTP/1.1 200", s.recv(65536))
            new = self.root.ok("token", "--rotate").text.strip()
            self.assertNotEqual(old, new)
            self.assertEqual(self.ask(Authorization=f"Bearer {old}").status, 401)
            self.assertEqual(self.ask(Authorization=f"Bearer {new}").status, 200)
            read_all(s)  # to its end, which the server makes
        self.root.kill_daemon()
        self.root.start()
        self.assertEqual(self.token(), new, "kept across daemons")

    def test_invalid_uses_of_the_command(self):
        self.assert_exit(self.root.run("token", "shwo"), 2)
        self.assert_exit(self.root.run("--host", self.address, "token"), 7)


@only_on("native")
class CommandLine(Tcp):
    def remote(self, *args, env=None, **kwargs):
        return self.root.run("--host", self.address, *args, env=env, **kwargs)

    def test_every_command_works_over_tcp(self):
        self.assert_exit(self.remote("up", "a"), 0)
        done = self.remote("exec", "a", "-i", "--", "sh", "-c", "cat; echo err >&2; exit 7", stdin=b"x" * 300000)
        self.assertEqual((done.code, len(done.out), done.err), (7, 300000, b"err\n"))
        (self.root.path / "f").write_bytes(b"content")
        self.assert_exit(self.remote("cp", self.root.path / "f", "a:f"), 0)
        self.assertEqual(self.remote("run", "--", "echo", "said").out, b"said\n")
        self.assertEqual(self.root.run("exec", "a", "--", "cat", "f", env={"RIPCORD_HOST": f"tcp://{self.address}"}).out, b"content")
        self.assertEqual(self.remote("rm", "-f", "a").code, 0)

    def test_what_it_says_when_it_may_not(self):
        done = self.remote("ls", env={"RIPCORD_TOKEN": WRONG})
        self.assert_exit(done, 5)
        self.assertIn(b"ripcord token", done.err)
        self.assert_exit(self.remote("ls", env={"RIPCORD_TOKEN": "short"}), 2)
        self.assert_exit(self.root.run("--host", "127.0.0.1:1", "ls"), 8)
        self.assert_exit(self.root.run("--host", "nonsense", "ls"), 2)
        elsewhere = self.root.run("--host", "192.0.2.1:7070", "ls", timeout=5)
        self.assert_exit(elsewhere, 5)  # our token is not for others: nothing was sent
        self.assertIn(b"RIPCORD_TOKEN", elsewhere.err)


@only_on("native")
class Addresses(TestCase):
    def test_addresses_that_are_refused(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            for address, code, words in (("0.0.0.0:0", 5, b"--allow-remote"), ("[::]:0", 5, b"--allow-remote"), ("10.0.0.1:80", 5, b"encrypted"),
                                         ("7070", 2, b"127.0.0.1:7070"), (":7070", 2, b"127.0.0.1:7070"), ("evil.test:80", 2, b"Host names are not supported"),
                                         ("127.0.0.1:65536", 2, b"not an address"), ("[::1:80", 2, b"not an address"),
                                         (f"127.0.0.1:{taken.getsockname()[1]}", 1, b"Address already in use")):
                done = self.root.run("daemon", "--listen", address, timeout=30)
                self.assertEqual(done.code, code, (address, done))
                self.assertIn(words, done.err, address)
        self.assertIsNone(self.root.daemon_pid())


@only_on("native")
@needs("routed network")
@serial("network")
class FromInside(Tcp):
    """Network `open` is the only mode in which a sandbox can reach an address of the machine."""
    listen = "http.listen: 0.0.0.0:0\nhttp.remote: yes\n"

    def test_no_sandbox_reaches_it(self):
        if os.geteuid() != 0:
            self.skipTest("needs root")
        done = self.root.run("up", "a", "--network", "open")
        if done.code == 7:
            self.skipTest("no network 'open' here")
        self.assert_exit(done, 0)
        found = subprocess.run(["ip", "-4", "-o", "address"], check=True, capture_output=True).stdout.decode()
        own = re.findall(r"inet ([0-9.]+)", found)
        gateway = self.shell("a", "ip -4 route show default").split()[2]
        self.assertIn(gateway, own)
        tries = "\n".join(f"timeout 0.7 bash -c '</dev/tcp/{a}/{self.peer[1]}' && echo reached {a}" for a in own)
        for address in own:
            with socket.create_connection((address, self.peer[1]), timeout=5) as s:
                s.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                self.assertEqual(read_reply(s).status, 421)
        self.assertNotIn("reached", self.shell("a", tries + "\ntrue"))
        table = f"ripcord_{self.root.root_id}"
        if subprocess.run(["nft", "delete", "table", "inet", table], capture_output=True, check=False).returncode == 0:
            self.assertIn(f"reached {gateway}", self.shell("a", tries + "\ntrue"), "nobody would notice that the rules are missing")


ASK = """
import socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 30)
try:
    s.sendall(b"GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
    print("heard", s.recv(12))
except ConnectionError:
    print("heard", b"")
"""
ANSWER = """
import socket
s = socket.create_server(("0.0.0.0", 0))
print(s.getsockname()[1], flush=True)
c = s.accept()[0]
c.recv(1000)
c.sendall(b"hello")
"""


@only_on("docker", "podman")
class FromContainer(Tcp):
    """Docker has no network rules of ours: containers reach the machine, and the daemon refuses their connections. The engine's bridge is in a
    network namespace of its own, and so the daemon has to be: that is the machine here."""
    listen = "http.listen: 0.0.0.0:0\nhttp.remote: yes\n"

    def setUp(self):
        self.sys = tempfile.mkdtemp(prefix="ripcord-sys-")
        self.addCleanup(os.rmdir, self.sys)
        self.libc = ctypes.CDLL(None)
        super().setUp()

    def start(self):
        self.root.ok("ls", preexec_fn=self.move)

    def move(self):
        """Runs in the process that starts the daemon. /sys shows the interfaces of the namespace that mounted it."""
        self.libc.setns(os.open(f"/run/netns/{Config.backend.name}", os.O_RDONLY), 0x40000000)  # CLONE_NEWNET
        self.libc.unshare(0x20000)  # CLONE_NEWNS
        self.libc.mount(None, b"/", None, 0x44000, None)  # MS_REC | MS_PRIVATE
        self.libc.mount(b"sysfs", self.sys.encode(), b"sysfs", 0, None)
        for part in ("class/net", "devices/virtual/net"):
            self.libc.mount(f"{self.sys}/{part}".encode(), f"/sys/{part}".encode(), None, 0x1000, None)  # MS_BIND

    def beside_the_daemon(self, code, *args):
        return subprocess.Popen(["nsenter", f"--net=/run/netns/{Config.backend.name}", sys.executable, "-c", code, *args],
                                stdout=subprocess.PIPE, text=True)

    def heard_inside(self, address, port):
        return self.root.ok("exec", "a", "--", "/usr/bin/python3", "-c", ASK, address, str(port)).text.strip()

    def test_no_sandbox_is_answered(self):
        self.root.ok("up", "a", "--network", "open")
        routes = [line.split() for line in self.shell("a", "cat /proc/net/route").splitlines()]
        gateway = socket.inet_ntoa(bytes.fromhex(next(r[2] for r in routes if r[1] == "00000000"))[::-1])
        with self.beside_the_daemon(ASK, gateway, str(self.peer[1])) as own:  # the machine itself, by the same address
            self.assertEqual(own.stdout.read().strip(), "heard b'HTTP/1.1 421'")
        with self.beside_the_daemon(ANSWER) as other:  # and what is not the daemon can be reached
            self.assertEqual(self.heard_inside(gateway, int(other.stdout.readline())), "heard b'hello'")
        self.assertEqual(self.heard_inside(gateway, self.peer[1]), "heard b''")
        self.assertIn("refused a connection from a container", self.root.log_tail())
