"""Web pages over TCP: sessions, tickets, and what pages of others try with a user's browser. From curl and from Python."""
import json
import socket
import subprocess
import time

from ripcord_test import Config, full_run_only, parse_reply, wait_until
from test_listen import Tcp
from test_websocket import END, FRAMES, STDOUT, Socket

FORM = "application/x-www-form-urlencoded"


class WebCase(Tcp):
    def setUp(self):
        super().setUp()
        self.own = f"http://{self.address}"

    def page(self, method="GET", target="/v1/sandboxes", body=b"", **fields):
        """A request with the session's cookie and without the token."""
        return self.ask(method, target, body, **{"Authorization": None, "Cookie": self.cookie, **fields})

    def begin(self):
        reply = self.ask("POST", "/v1/session")
        self.assertEqual(reply.status, 201, reply)
        self.set_cookie = reply.headers["set-cookie"]
        self.cookie = self.set_cookie.partition(";")[0]
        return reply

    def ticket(self, path, **fields):
        reply = self.ask("POST", "/v1/tickets", json.dumps({"path": path}).encode(), **fields)
        self.assertEqual(reply.status, 201, reply)
        return reply.json()["ticket"]

    def attach_path(self, shell="echo hello"):
        """The WebSocket of a new command in the sandbox 'box'."""
        self.root.ok("up", "box")
        reply = self.root.http("POST", "/v1/sandboxes/box/execs", {"shell": shell})
        return f"/v1/sandboxes/box/execs/{reply.json()['exec']['id']}/attach"

    def socket(self, target, **fields):
        return Socket(socket.create_connection(self.peer, timeout=30), target, FRAMES, Host=self.address, **fields)

    def socket_status(self, target, **fields):
        """The status of a handshake that is refused; 101 if it is not."""
        with self.socket(target, **fields) as s:
            return int(s.sock.recv(12).split()[1])

    def output(self, target, **fields):
        with self.socket(target, **fields) as s:
            frames = [(data[0], data[5:]) for opcode, data in s.open().all()[0] if opcode == 2]
        self.assertEqual(frames[-1][0], END)
        return b"".join(data[8:] for kind, data in frames if kind == STDOUT)


class TestSession(WebCase):
    def test_a_page_signs_in_and_out(self):
        reply = self.begin()
        self.assertRegex(reply.json()["session"]["expires_at"], r"^20\d\d-")
        self.assertEqual(self.set_cookie.split("; ")[1:], ["Path=/", "HttpOnly", "SameSite=Strict"])
        self.assertTrue(self.cookie.startswith(f"ripcord_session_{self.peer[1]}="))
        self.assertEqual(self.page().status, 200)
        self.assertEqual(self.page("PUT", "/v1/sandboxes/a", b"{}", Origin=self.own).status, 201)
        self.assertEqual(self.page("DELETE", "/v1/sandboxes/a?force=1", Origin=self.own).status, 200)
        reply = self.page("DELETE", "/v1/session", Origin=self.own)
        self.assertEqual((reply.status, reply.json()), (200, {"ended": True}))
        self.assertIn("Max-Age=0", reply.headers["set-cookie"])
        self.assertEqual(self.page().status, 401)
        self.assertEqual(self.ask("DELETE", "/v1/session").json(), {"ended": False})

    def test_curl(self):
        jar = self.root.path / "jar"

        def curl(*args):
            done = subprocess.run(["curl", "-sS", "--max-time", "60", "-w", "\n%{http_code}", *args], capture_output=True, check=True, text=True)
            text, _, status = done.stdout.rpartition("\n")
            return int(status), json.loads(text)

        url = f"http://{self.address}/v1"
        self.assertEqual(curl("-X", "POST", f"{url}/session")[0], 401)
        self.assertEqual(curl("-c", str(jar), "-H", f"Authorization: Bearer {self.token()}", "-X", "POST", f"{url}/session")[0], 201)
        self.assertIn("#HttpOnly_", jar.read_text(encoding="utf-8"))
        self.assertEqual(curl("-b", str(jar), f"{url}/sandboxes")[0], 200)
        body = json.dumps({"path": self.attach_path()})
        self.assertEqual(curl("-b", str(jar), "--json", body, f"{url}/tickets")[0], 403)
        status, doc = curl("-b", str(jar), "-H", f"Origin: {self.own}", "--json", body, f"{url}/tickets")
        self.assertEqual((status, len(doc["ticket"])), (201, 64))
        self.assertEqual(self.output(f"{doc['path']}?ticket={doc['ticket']}"), b"hello\n")

    def test_it_begins_with_the_token_alone(self):
        self.begin()
        self.assertEqual(self.page("POST", "/v1/session", Origin=self.own).status, 401)
        self.assertEqual(self.root.http("POST", "/v1/session").status, 401)  # the socket has nothing to give
        for bad in (f"Bearer {'0' * 64}", "Basic x", ""):
            self.assertEqual(self.page(Authorization=bad).status, 401, bad)

    def test_it_ends_with_the_token_and_with_the_daemon(self):
        self.begin()
        self.root.ok("token", "--rotate")
        self.assertEqual(self.page().status, 401)
        self.begin()
        self.assertEqual(self.page().status, 200)
        self.root.kill_daemon()
        self.root.configure(f"http.listen: {self.address}\n")
        self.root.start()
        self.assertEqual(self.page().status, 401)

    def test_it_is_for_the_api(self):
        """And never for what a sandbox serves, however its path is written."""
        self.begin()
        self.root.ok("up", "box")
        for target in ("/", "/healthz", "/v1", "/v1x/../v1/sandboxes"):
            self.assertIn(self.page(target=target).status, (400, 401), target)
        tunnel = {"Connection": "close, Upgrade", "Upgrade": "tcp", "Origin": self.own}
        for target in ("/v1/sandboxes/box/ports/8000", "/v1/sandboxes/box/%70orts/8000", "/v1/sandboxes/%62ox/ports/8000",
                       f"{self.own}/v1/sandboxes/box/ports/8000"):
            reply = self.page(target=target, **tunnel)
            self.assertEqual(reply.status, 401, (target, reply))
            self.assertEqual(self.ask(target=target, Connection="close, Upgrade", Upgrade="tcp").status, 404, target)  # nothing listens

    def test_without_tcp(self):
        root = self.new_root().start()
        for method, target, body in (("POST", "/v1/session", {}), ("DELETE", "/v1/session", None), ("POST", "/v1/tickets", {"path": "/x"})):
            self.assert_refused(root.http(method, target, body), 501, "unsupported", "--listen")


class TestTicket(WebCase):
    def test_one_socket(self):
        path = self.attach_path()
        target = f"{path}?ticket={self.ticket(path)}"
        self.assertEqual(self.output(target, Origin=self.own), b"hello\n")
        self.assertEqual(self.socket_status(target, Origin=self.own), 401)  # replayed
        self.assertEqual(self.socket_status(path, Origin=self.own), 401)
        target = f"{path}?stdout_offset=2&ticket={self.ticket(path)}"
        self.assertEqual(self.output(target), b"llo\n")

    def test_a_page_gets_one(self):
        self.begin()
        path = self.attach_path()
        reply = self.page("POST", "/v1/tickets", json.dumps({"path": path}).encode(), Origin=self.own)
        self.assertEqual((reply.status, reply.headers["cache-control"]), (201, "no-store"))
        self.assertEqual(self.output(f"{path}?ticket={reply.json()['ticket']}", Origin=self.own), b"hello\n")
        self.assertEqual(self.output(path, Cookie=self.cookie, Origin=self.own), b"hello\n")  # or none at all

    def test_what_it_does_not_open(self):
        path = self.attach_path()
        other = self.attach_path()
        for target, fields in ((other, {}), (path, {"Origin": "http://evil.test"}), (path, {"Origin": "null"})):
            ticket = self.ticket(path)
            self.assertIn(self.socket_status(f"{target}?ticket={ticket}", **fields), (401, 403), target)
        for trick in (path.replace("box", "b/../box"), path + "/", path + "%00", "/" + path, path.replace("/attach", "%2fattach")):
            self.assertIn(self.socket_status(f"{trick}?ticket={self.ticket(path)}"), (400, 401), trick)
        ticket = self.ticket(path)
        for method, target in (("GET", "/v1/sandboxes"), ("POST", "/v1/run"), ("GET", path)):
            self.assertEqual(self.ask(method, f"{target}?ticket={ticket}", Authorization=None).status, 401)
        self.assertEqual(self.output(f"{path}?ticket={ticket}"), b"hello\n")  # those were no handshakes

    def test_paths_without_a_socket(self):
        for path in ("", "/", "/v1/sandboxes", "/v1/run", "/v1/sandboxes/box/ports/80", "x" * 600,
                     "/v1/sandboxes/box/execs/last/attach?x=1", "/v1/sandboxes//execs/last/attach"):
            reply = self.ask("POST", "/v1/tickets", json.dumps({"path": path}).encode())
            self.assert_refused(reply, 400, "invalid", "field 'path'")
        self.assert_refused(self.ask("POST", "/v1/tickets", b"{}"), 400, "invalid", "missing")

    @full_run_only
    def test_thirty_seconds(self):
        if not Config.soak:
            self.skipTest("only in a soak run")
        path = self.attach_path()
        ticket = self.ticket(path)
        time.sleep(31)
        self.assertEqual(self.socket_status(f"{path}?ticket={ticket}"), 401)

    def test_never_in_logs(self):
        self.root.kill_daemon()
        self.root.configure(f"http.listen: {self.address}\nlog.level: debug\n")
        self.root.start()
        self.begin()
        path = self.attach_path()
        used, left = self.ticket(path), self.ticket(path)
        self.output(f"{path}?ticket={used}")
        self.socket_status(f"{path}?ticket={used}")
        self.page()
        self.page("DELETE", "/v1/session", Origin=self.own)
        self.page("GET", f"/v1/nothing?ticket={left}")
        wait_until(lambda: any(b"request " in text for _, text in self.root.logs()), 10, "the log of requests")
        secrets = (used, left, self.cookie.partition("=")[2], self.token())
        for name, text in self.root.logs():
            for secret in secrets:
                self.assertNotIn(secret.encode(), text, name)
        for file in (self.root.path / "state").glob("ripcord.db*"):
            for secret in secrets:
                self.assertNotIn(secret.encode(), file.read_bytes(), file)


class TestHostilePages(WebCase):
    def test_rebinding(self):
        """A name of the attacker that leads to 127.0.0.1: the page is of the same origin as far as the browser knows."""
        self.begin()
        port = self.peer[1]
        for host in (f"evil.test:{port}", "evil.test", f"{self.address}.evil.test", f"127.0.0.2:{port}", f"[::ffff:127.0.0.1]:{port}"):
            fields = {"Host": host, "Origin": f"http://{host}", "Sec_Fetch_Site": "same-origin"}
            for ask in (self.ask, self.page):
                self.assertEqual(ask("GET", "/v1/sandboxes", **fields).status, 421, host)
                self.assertEqual(ask("PUT", "/v1/sandboxes/a", b"{}", **fields).status, 421, host)
        self.assertEqual(self.root.sandboxes(), [])

    def test_forgery(self):
        """What a form or a script of another page can make the browser send with the cookie."""
        self.begin()
        body = b'{"exec":{"argv":["true"]},"spec":{}}'
        for kind in (FORM, "text/plain", "multipart/form-data; boundary=x", "application/json"):
            for origin in ("http://evil.test", "null", "http://127.0.0.1:1", f"http://localhost:{self.peer[1]}", None):
                reply = self.page("POST", "/v1/run", body, Content_Type=kind, Origin=origin)
                self.assertEqual(reply.status, 403, (kind, origin, reply))
            for site in ("cross-site", "same-site"):
                reply = self.page("POST", "/v1/run", body, Content_Type=kind, Origin=self.own, Sec_Fetch_Site=site)
                self.assertEqual(reply.status, 403, (kind, site, reply))
            if kind != "application/json":  # and our own pages do not send these either
                self.assertEqual(self.page("POST", "/v1/run", body, Content_Type=kind, Origin=self.own).status, 415)
        for method, target in (("DELETE", "/v1/session"), ("PATCH", "/v1/sandboxes/a"), ("PUT", "/v1/sandboxes/a"), ("OPTIONS", "/v1/run")):
            self.assertEqual(self.page(method, target).status, 403)
        self.assertEqual(self.page(Sec_Fetch_Site="same-site").status, 403)  # a script of another port cannot read
        self.assertEqual(self.page().status, 200)
        self.assertEqual(self.root.sandboxes(), [])

    def test_socket_hijacking(self):
        self.begin()
        path = self.attach_path("sleep 1000")
        for origin in ("http://evil.test", "null", None, "http://127.0.0.1:1"):
            self.assertEqual(self.socket_status(path, Cookie=self.cookie, Origin=origin), 403, origin)
        self.assertEqual(self.socket_status(path, Cookie=self.cookie, Origin=self.own, **{"Sec-Fetch-Site": "same-site"}), 403)
        self.assertEqual(self.socket_status(path, Cookie=self.cookie, Origin=self.own), 101)

    def test_tossed_cookies(self):
        """Another server of this machine may set cookies for the same host."""
        self.begin()
        name = self.cookie.partition("=")[0]
        for before in (f"{name}=evil; ", f"{name}={'0' * 64}; ", f"{name}=; ", "a; b=c;; ", f"{name}={'x' * 5000}; ", f'{name}="x; '):
            self.assertEqual(self.page(Cookie=before + self.cookie).status, 200, before)
            self.assertEqual(self.page(Cookie=before).status, 401, before)

    def test_guesses_are_limited(self):
        name = "ripcord_session_%d" % self.peer[1]
        seen = {self.ask(Authorization=None, Cookie=f"{name}={n:064x}", target="/v1/sandboxes").status for n in range(30)}
        self.assertEqual(seen, {401, 429})


class TestAnswers(WebCase):
    def test_no_header_can_be_injected(self):
        """Everything of a request that comes back in the head of an answer."""
        evil = "%0d%0aSet-Cookie:%20evil=1"
        for target in (f"/v1/caches/registry/{evil}", f"/v1/caches/registry?{evil}", f"/v1/caches/registry/x?of={evil}",
                       f"/v1/sandboxes/a/files?path=/{evil}", f"/v1/{evil}", f"/v1/sandboxes/{evil}"):
            reply = self.ask(target=target)
            self.assertNotIn("set-cookie", reply.headers, target)
        for value in ("a\rSet-Cookie: evil=1", "a\nSet-Cookie: evil=1", "a\0b"):
            data = self.raw(f"GET /healthz HTTP/1.1\r\nHost: {self.address}\r\nAuthorization: Bearer {self.token()}\r\n"
                            f"Connection: close\r\nX-Request-Id: {value}\r\n\r\n".encode())
            self.assertEqual(parse_reply(data).status, 400, value)
            self.assertNotIn(b"evil", data)
        for value in ("a b", "a:b", "x" * 65, "ä", '"', "%0d%0a"):
            self.assertNotEqual(self.ask(X_Request_Id=value).headers["x-request-id"], value)
        self.assertEqual(self.ask(X_Request_Id="a-b_c.1").headers["x-request-id"], "a-b_c.1")
