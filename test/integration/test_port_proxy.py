"""HTTP services inside a sandbox without a network, through the daemon: ordinary programs, and services that attack."""
import base64
import hashlib
import http.client
import json
import os
import shutil
import socket
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from ripcord_test import Config, Connection, TestCase, only_on, read_all, wait_until

# An ordinary server: says what it got, echoes bodies, streams, is slow.
SERVER = r"""
import base64, hashlib, http.server, json, socketserver, sys, time
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *a): pass
    def body(self):
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            while n := int(self.rfile.readline(), 16):
                yield self.rfile.read(n); self.rfile.readline()
            self.rfile.readline()
        left = int(self.headers.get("Content-Length", 0))
        while left:
            piece = self.rfile.read(min(left, 65536)); left -= len(piece); yield piece
    def whole(self, data, **fields):
        self.send_response(200)
        for k, v in fields.items(): self.send_header(k.replace("_", "-"), v)
        self.send_header("Content-Length", str(len(data))); self.end_headers(); self.wfile.write(data)
    def chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data)); self.wfile.flush()
    def any(self):
        path, _, query = self.path.partition("?")
        if path == "/seen":
            self.whole(json.dumps({"method": self.command, "target": self.path, "fields": list(self.headers.items())}).encode())
        elif path == "/digest":
            h, n = hashlib.sha256(), 0
            for p in self.body(): h.update(p); n += len(p)
            self.whole(json.dumps([n, h.hexdigest()]).encode())
        elif path == "/stream":
            self.send_response(200); self.send_header("Transfer-Encoding", "chunked"); self.send_header("Content-Type", "text/event-stream"); self.end_headers()
            for i in range(5): self.chunk(b"data: %d\n\n" % i); time.sleep(0.2)
            self.chunk(b"")
        elif path == "/big":
            self.send_response(200); self.send_header("Content-Length", str(int(query))); self.end_headers()
            for _ in range(int(query) >> 16): self.wfile.write(bytes(65536))
        elif path == "/empty":
            self.send_response(204); self.end_headers()
        elif path == "/refuse":
            self.send_response(413); self.send_header("Content-Length", "0"); self.send_header("Connection", "close"); self.end_headers(); self.close_connection = True
        elif path == "/peer":
            self.whole(str(self.client_address[1]).encode())
        elif path == "/bye":
            self.whole(b"bye"); self.close_connection = True
        elif path == "/slow":
            time.sleep(float(query)); self.whole(b"late")
        elif path == "/socket":
            accept = base64.b64encode(hashlib.sha1(self.headers["Sec-WebSocket-Key"].encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()).decode()
            self.send_response(101); self.send_header("Upgrade", "websocket"); self.send_header("Connection", "Upgrade")
            self.send_header("Sec-WebSocket-Accept", accept); self.send_header("Set-Cookie", "a=b"); self.end_headers()
            self.wfile.write(b"early"); self.wfile.flush()
            while d := self.connection.recv(65536): self.connection.sendall(d.upper())
            self.close_connection = True
        else:
            self.whole(b"hello\n", Content_Type="text/html")
    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_ODD = any
class S(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True; request_queue_size = 100
S(("127.0.0.1", 8000), H).serve_forever()
"""

# Answers with bytes of the test's choice: the request's path is their base64. "-" in front: before it reads anything.
RAW = r"""
import base64, socket, threading, time
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(("127.0.0.1", 8001)); s.listen(100)
seen = []
def serve(c):
    head = b""
    while b"\r\n\r\n" not in head and (p := c.recv(65536)): head += p
    path = head.split(b" ")[1][1:]
    if path == b"seen":
        c.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + b"\n--\n".join(seen)); c.close(); return
    if path == b"endless-head":
        while True: c.sendall(b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 10000)
    if path == b"endless-body":
        c.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while True: c.sendall(bytes(65536))
    if path == b"endless-interim":
        while True: c.sendall(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n")
    if path == b"dribble":
        for b in b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 1000: c.sendall(bytes([b])); time.sleep(0.2)
    if path == b"silent": time.sleep(600)
    kept, _, rest = path.rpartition(b"/")
    if kept:
        first, second = rest.split(b".")
        first, second = (base64.b64decode(b, altchars=b"-_") for b in (first, second))
        if kept == b"later": c.sendall(first); time.sleep(0.3); first = b""
        c.sendall(first + second); time.sleep(600)
    seen.append(head)
    c.sendall(base64.b64decode(path, altchars=b"-_")); c.shutdown(1)
    while p := c.recv(65536): seen[-1] += p
    c.close()
def guarded(c):
    try: serve(c)
    except OSError: c.close()
while True: threading.Thread(target=guarded, args=(s.accept()[0],), daemon=True).start()
"""


class ProxyCase(TestCase):
    script, port, config = SERVER, 8000, ""

    def setUp(self):
        super().setUp()
        if self.config:
            self.root.configure(self.config)
        self.root.ok("up", "a", "--network", "none")
        self.socket = self.root.path / "run" / "ripcord.sock"
        self.serve(self.script, self.port)
        self.conn = Connection(self.socket)

    def tearDown(self):
        self.conn.close()
        super().tearDown()

    def serve(self, script, port):
        self.root.ok("exec", "--detach", "a", "--", "python3", "-c", script)
        wait_until(lambda: any(p["port"] == port for p in self.root.get("/v1/sandboxes/a/ports")["ports"]), 20, f"port {port}")

    def ask(self, path, method="GET", body=None, headers=None, **more):
        """The answer, with its body in .data."""
        self.conn.request(method, f"/v1/sandboxes/a/ports/{self.port}{path}", body, headers or {}, **more)
        r = self.conn.getresponse()
        r.data = r.read()
        return r

    def memory(self):
        with open(f"/proc/{self.root.daemon_pid()}/statm", encoding="ascii") as f:
            return int(f.read().split()[1]) * 4096


class Service(ProxyCase):
    def test_a_page(self):
        for _ in range(3):
            r = self.ask("/")
            self.assertEqual((r.status, r.data), (200, b"hello\n"))
            self.assertEqual(r.headers["Content-Security-Policy"], "sandbox")
            self.assertEqual(r.headers["Content-Type"], "text/html")

    def test_methods_and_targets_arrive(self):
        for method in ("GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "ODD"):
            seen = json.loads(self.ask("/seen?a[]=%2F&b={}|^`", method).data)
            self.assertEqual((seen["method"], seen["target"]), (method, "/seen?a[]=%2F&b={}|^`"))
        self.assertEqual(self.ask("//x/..%2f/./y").status, 200)
        r = self.ask("/seen", headers={"Authorization": "Bearer x", "Cookie": "a=b", "X-Forwarded-For": "1.2.3.4", "X-Own": "1"})
        fields = {k.lower(): v for k, v in json.loads(r.data)["fields"]}
        self.assertEqual(fields["host"], "localhost:8000")
        self.assertEqual(fields["x-forwarded-prefix"], "/v1/sandboxes/a/ports/8000")
        self.assertEqual(fields["x-own"], "1")
        for name in ("authorization", "cookie", "x-forwarded-for"):
            self.assertNotIn(name, fields)

    def test_head_and_answers_without_a_body(self):
        r = self.ask("/seen", "HEAD")
        self.assertEqual((r.status, r.data), (200, b""))
        self.assertGreater(int(r.headers["Content-Length"]), 10)
        r = self.ask("/empty")
        self.assertEqual((r.status, r.data, r.headers["Transfer-Encoding"]), (204, b"", None))
        self.assertEqual(self.ask("/").data, b"hello\n")  # on the same connection

    def test_bodies_of_any_form(self):
        data = os.urandom(3_000_000)
        want = [len(data), hashlib.sha256(data).hexdigest()]
        self.assertEqual(json.loads(self.ask("/digest", "POST", data).data), want)
        pieces = (data[i:i + 70_001] for i in range(0, len(data), 70_001))
        self.assertEqual(json.loads(self.ask("/digest", "PUT", pieces, encode_chunked=True, headers={"Transfer-Encoding": "chunked"}).data), want)
        self.assertEqual(json.loads(self.ask("/digest", "POST", data, {"Expect": "100-continue"}).data), want)
        self.assertEqual(json.loads(self.ask("/digest", "POST", b"").data)[0], 0)

    def test_a_refusal_before_the_end_of_the_body(self):
        self.conn.request("POST", "/v1/sandboxes/a/ports/8000/refuse", iter(()), {"Content-Length": str(1 << 30)})
        self.assertEqual(self.conn.getresponse().status, 413)

    def test_a_stream_arrives_as_it_is_sent(self):
        self.conn.request("GET", "/v1/sandboxes/a/ports/8000/stream")
        r = self.conn.getresponse()
        begin = time.monotonic()
        self.assertEqual(r.readline(), b"data: 0\n")
        first = time.monotonic() - begin
        rest = r.read()
        self.assertTrue(rest.endswith(b"data: 4\n\n"))
        self.assertGreater(time.monotonic() - begin, first + 0.3)

    def test_large_answers_with_flat_memory(self):
        self.conn.request("GET", f"/v1/sandboxes/a/ports/8000/big?{300 << 20}")
        r = self.conn.getresponse()
        n = 0
        while piece := r.read(1 << 20):
            n += len(piece)
        self.assertEqual(n, 300 << 20)
        if not Config.sanitized:  # they keep what was freed
            self.assertLess(self.memory(), 64 << 20)

    def test_websocket(self):
        with self.root.connect(30) as s:
            s.sendall(b"GET /v1/sandboxes/a/ports/8000/socket HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, Upgrade\r\n"
                      b"Upgrade: WebSocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
            got = b""
            while not got.endswith(b"early"):
                got += s.recv(1000)
            head = got.partition(b"\r\n\r\n")[0]
            self.assertTrue(head.startswith(b"HTTP/1.1 101 "), head)
            self.assertIn(b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", head)
            self.assertNotIn(b"Set-Cookie", head)
            for text in (b"hello", b"again"):
                s.sendall(text)
                self.assertEqual(s.recv(100), text.upper())
            s.shutdown(socket.SHUT_WR)
            self.assertEqual(read_all(s), b"")

    def test_curl(self):
        if not shutil.which("curl"):
            self.skipTest("curl is missing")
        url = "http://localhost/v1/sandboxes/a/ports/8000"
        run = ("curl", "-sS", "--fail", "--max-time", "30", "--unix-socket", str(self.socket))
        self.assertEqual(subprocess.run((*run, url + "/"), stdout=subprocess.PIPE, check=True).stdout, b"hello\n")
        got = subprocess.run((*run, "-T", "-", url + "/digest"), input=bytes(2_000_000), stdout=subprocess.PIPE, check=True).stdout
        self.assertTrue(got.startswith(b"[2000000, "), got)

    def test_many_at_once(self):
        def one(i):
            c = Connection(self.socket)
            c.request("POST", "/v1/sandboxes/a/ports/8000/digest", bytes([i]) * 100_000)
            data = c.getresponse().read()
            c.close()
            return data.startswith(b"[100000, ")
        with ThreadPoolExecutor(20) as pool:
            self.assertEqual(list(pool.map(one, range(60))), [True] * 60)

    def test_requests_that_only_read_share_connections(self):
        peers = [self.ask("/peer").data for _ in range(5)]
        self.assertEqual(len(set(peers)), 1, peers)
        self.assertEqual(b"".join(self.ask("/stream").data.split(b"\n\n")), b"data: 0data: 1data: 2data: 3data: 4")
        self.assertEqual(self.ask("/peer").data, peers[0])
        self.assertNotEqual(self.ask("/peer", "POST", b"x").data, peers[0])
        self.assertNotEqual(self.ask("/peer", "DELETE").data, peers[0])
        self.assertEqual(self.ask("/peer").data, peers[0])
        self.assertEqual(self.ask("/empty").status, 204)
        self.assertNotEqual(self.ask("/peer").data, peers[0])

    def test_a_body_that_should_not_be_there(self):
        """This service sends one with its answer to HEAD, as some do."""
        for _ in range(10):
            self.assertEqual((self.ask("/peer", "HEAD").status, self.ask("/").data), (200, b"hello\n"))

    def test_a_service_that_closes_a_shared_connection(self):
        for _ in range(30):
            self.assertEqual(self.ask("/bye").data, b"bye")

    def test_a_stopped_sandbox_is_not_asked_through_a_shared_connection(self):
        self.ask("/")
        self.root.ok("pause", "a")
        self.assertEqual(self.ask("/").status, 409)
        self.root.ok("resume", "a")
        self.root.ok("stop", "a")
        self.assertEqual(self.ask("/").status, 409)

    def test_nothing_is_left_open(self):
        before = self.root.snapshot()["daemon descriptors"]
        for i in range(12):
            c = Connection(self.socket)
            c.request("GET", f"/v1/sandboxes/a/ports/8000/{('slow?1', 'big?9000000', '')[i % 3]}")
            if i % 2:
                c.getresponse().read(10)
            c.close()
        wait_until(lambda: self.root.snapshot()["daemon descriptors"] == before, 20, "sockets to be closed")


class Errors(ProxyCase):
    def assert_error(self, r, status, code, word):
        error = json.loads(r.data)["error"]
        self.assertEqual((r.status, error["code"]), (status, code), error)
        self.assertIn(word, error["message"] + error.get("hint", ""))
        return error

    def test_nothing_listens(self):
        self.port = 9999
        error = self.assert_error(self.ask("/x"), 502, "engine", "nothing listens on port 9999")
        self.assertIn("8000 (127.0.0.1)", error["hint"])
        self.assertEqual(error["details"], {"sandbox": "a", "port": "9999"})

    def test_no_answer_in_time(self):
        self.assert_error(self.ask("/slow?30", headers={"Ripcord-Timeout": "1s"}), 504, "timeout", "port 8000")
        self.assertEqual(self.ask("/slow?1", headers={"Ripcord-Timeout": "20s"}).data, b"late")
        for bad in ("x", "0", "2h", "-1s"):
            self.assert_error(self.ask("/", headers={"Ripcord-Timeout": bad}), 400, "invalid", "Ripcord-Timeout")

    def test_a_stopped_sandbox_stays_down(self):
        self.root.ok("stop", "a")
        self.assert_error(self.ask("/"), 409, "conflict", "ripcord up a")
        self.assertEqual(self.root.sandbox("a")["state"], "stopped")

    def test_unknown_names(self):
        for path, status in (("/v1/sandboxes/nix/ports/80/", 404), ("/v1/sandboxes/a/ports/0/", 404), ("/v1/sandboxes/a/ports/x/", 404),
                             ("/v1/sandboxes/a/ports/8000", 426)):
            self.conn.request("GET", path)
            r = self.conn.getresponse()
            self.assertEqual((r.status, len(r.read()) > 0), (status, True), path)

    def test_a_daemon_that_restarts(self):
        self.root.kill_daemon()
        self.root.ok("ls")
        self.conn.close()
        self.assertEqual(self.ask("/").data, b"hello\n")


class TcpCase(ProxyCase):
    config = "http.listen: 127.0.0.1:0\n"

    def setUp(self):
        super().setUp()
        self.host = self.root.get("/v1/version")["listen"]
        self.token = self.root.ok("token").text.strip()

    def over_tcp(self, headers, path="/v1/sandboxes/a/ports/8000/seen", method="GET"):
        c = http.client.HTTPConnection(self.host, timeout=30)
        c.request(method, path, headers=headers)
        r = c.getresponse()
        r.data = r.read()
        c.close()
        return r


@only_on("native")
class OverTcp(TcpCase):
    def test_only_the_token_opens_it(self):
        bearer = {"Authorization": f"Bearer {self.token}"}
        r = self.over_tcp(bearer)
        self.assertEqual(r.status, 200)
        self.assertNotIn(self.token.encode(), r.data)
        session = self.over_tcp({**bearer, "Content-Length": "0"}, "/v1/session", "POST")
        self.assertEqual(session.status, 201)
        cookie = {"Cookie": session.headers["Set-Cookie"].partition(";")[0]}
        self.assertEqual(self.over_tcp(cookie, "/v1/sandboxes").status, 200)
        for headers in ({}, cookie, {**cookie, "Origin": f"http://{self.host}"}, {"Authorization": "Bearer x"}):
            self.assertEqual(self.over_tcp(headers).status, 401, headers)
        for headers in ({"Origin": "http://evil"}, {"Sec-Fetch-Site": "cross-site"}):
            self.assertEqual(self.over_tcp({**bearer, **headers}).status, 403, headers)
        self.assertEqual(self.over_tcp({**bearer, "Host": "evil"}).status, 421)


@only_on("native")  # the daemon alone decides
class Links(TcpCase):
    """The pages of a port in a browser: an origin of its own, which a signed link opens."""
    def setUp(self):
        super().setUp()
        self.origin = f"8000-{self.root.sandbox('a')['id']}.localhost:{self.host.rpartition(':')[2]}"

    def visit(self, path, method="GET", **headers):
        return self.over_tcp({"Host": self.origin, **headers}, path, method)

    def link(self, *args):
        url = self.root.ok("port", "a", "8000", "--url", *args).text.strip()
        self.assertTrue(url.startswith(f"http://{self.origin}/.ripcord/open/"), url)
        return url.partition(self.origin)[2]

    def open(self, *args):
        """Follows a new link, and returns the cookie and its attributes."""
        r = self.visit(self.link(*args))
        self.assertEqual((r.status, r.headers["Location"]), (303, "/"))
        cookie, _, attributes = r.headers["Set-Cookie"].partition("; ")
        return cookie, attributes

    def test_a_link_opens_it(self):
        cookie, attributes = self.open()
        self.assertRegex(attributes, r"^Path=/; HttpOnly; SameSite=Lax; Max-Age=43[12]\d\d$")
        r = self.visit("/seen", Cookie=f"app=1; {cookie}", Authorization="Basic app")
        self.assertEqual(r.status, 200)
        self.assertIsNone(r.headers["Content-Security-Policy"])  # the application's to choose
        fields = {k.lower(): v for k, v in json.loads(r.data)["fields"]}
        self.assertEqual((fields["host"], fields["cookie"], fields["authorization"]), (self.origin, "app=1", "Basic app"))
        self.assertNotIn("x-forwarded-prefix", fields)

    def test_without_it_the_port_is_closed(self):
        cookie, _ = self.open()
        wrong = cookie[:-1] + ("0" if cookie[-1] != "0" else "1")
        neighbour = self.origin.replace("8000-", "8001-", 1)
        for headers in ({}, {"Authorization": f"Bearer {self.token}"}, {"Cookie": wrong}, {"Cookie": "ripcord-port="},
                        {"Cookie": cookie, "Origin": "http://evil"}, {"Cookie": cookie, "Origin": "null"},
                        {"Cookie": cookie, "Origin": f"http://{neighbour}"}):
            r = self.visit("/seen", **headers)
            self.assertEqual((r.status, r.headers["Content-Type"]), (403, "text/plain; charset=utf-8"), headers)
        self.assertIn(b"ripcord port NAME PORT --url", self.visit("/").data)
        self.assertEqual(self.visit("/seen", Cookie=cookie, Origin=f"http://{self.origin}").status, 200)
        link = self.link()
        for bad in (link[:-1], link + "0", "/.ripcord/open/", "/.ripcord/open/" + cookie.partition("=")[2]):
            self.assertEqual(self.visit(bad).status, 403, bad)
        for other in (neighbour, "8000-0123456789abcdef.localhost"):
            self.assertEqual(self.visit(link, Host=other).status, 403, other)
            self.assertEqual(self.visit("/seen", Cookie=cookie, Host=other).status, 403, other)

    def test_links_end(self):
        link, (cookie, _) = self.link("--for", "1s"), self.open("--for", "3s")
        time.sleep(3.5)
        self.assertEqual(self.visit(link).status, 403)
        self.assertEqual(self.visit("/seen", Cookie=cookie).status, 403)
        cookie, _ = self.open()
        self.root.ok("token", "--rotate")
        self.assertEqual(self.visit("/seen", Cookie=cookie).status, 403)

    def test_the_api_is_not_there(self):
        cookie, _ = self.open()
        for path in ("/v1/sandboxes", "/v1/version", "/healthz"):
            r = self.visit(path, Cookie=cookie, Authorization=f"Bearer {self.token}")
            self.assertEqual(r.data, b"hello\n", path)  # of the service
            self.assertEqual(self.visit(path, Authorization=f"Bearer {self.token}").status, 403)
        for host in (self.host, self.host.replace("127.0.0.1", "localhost")):
            self.assertEqual(self.visit("/v1/sandboxes", Cookie=cookie, Host=host).status, 401)
            self.assertEqual(self.visit(self.link(), Host=host).status, 401)
        with self.root.connect() as s:
            s.sendall(f"GET /v1/version HTTP/1.1\r\nHost: {self.origin}\r\nConnection: close\r\n\r\n".encode())
            self.assertTrue(read_all(s).startswith(b"HTTP/1.1 421 "))

    def test_cookies_of_the_application(self):
        self.serve(RAW, 8001)
        self.origin = self.origin.replace("8000-", "8001-", 1)
        url = self.root.ok("port", "a", "8001", "--url").text.strip()
        cookie = self.visit(url.partition(self.origin)[2]).headers["Set-Cookie"].partition(";")[0]
        raw = (b"HTTP/1.1 200 OK\r\nSet-Cookie: sid=1; Domain=localhost; Path=/\r\nSet-Cookie: ripcord-port=x\r\nSet-Cookie: =ripcord-port=x\r\n"
               b"Set-Cookie: ripcord_session_7070=x; domain=.localhost\r\nClear-Site-Data: \"cookies\"\r\nAlt-Svc: h2=\":1\"\r\n\r\n")
        r = self.visit("/" + base64.b64encode(raw, altchars=b"-_").decode(), Cookie=cookie)
        self.assertEqual(r.headers.get_all("Set-Cookie"), ["sid=1; Path=/", "ripcord_session_7070=x"])
        for name in ("Clear-Site-Data", "Alt-Svc"):
            self.assertIsNone(r.headers[name])

    def test_refusals(self):
        self.assertEqual(self.root.http("POST", "/v1/sandboxes/nix/links", {"port": 80}).status, 404)
        self.assertEqual(self.root.http("POST", "/v1/sandboxes/a/links", {"port": 80}).status, 201)
        for body in ({}, {"port": 0}, {"port": 65536}, {"port": 80, "life_ms": 1}, {"port": 80, "life_ms": 10**12}, {"port": 80, "x": 1}):
            self.assertEqual(self.root.http("POST", "/v1/sandboxes/a/links", body).status, 400, body)
        for args in (("--wake",), ("--for", "1h"), ("--url", "--stdio"), ("--url", "--for", "x"), ("--url", "--for", "8d")):
            self.assertEqual(self.root.run("port", "a", "80", *args).code, 2, args)
        cookie, _ = self.open()
        self.root.ok("rm", "-f", "a")
        self.assertEqual(self.visit("/", Cookie=cookie).status, 404)


class WithoutTcp(ProxyCase):
    def test_a_link_needs_a_listener(self):
        r = self.root.run("port", "a", "8000", "--url")
        self.assertEqual(r.code, 7, r)
        self.assertIn(b"http.listen", r.err)


class Waking(TcpCase):
    def serve_again(self):
        """What a supervisor of services would do, once a request has started the sandbox."""
        wait_until(lambda: self.root.sandbox("a")["state"] == "running", 30, "the sandbox to be started")
        self.root.ok("exec", "--detach", "a", "--", "python3", "-c", self.script)

    def starts(self):
        events = self.root.ok("events", "--since", "0", "--kind", "sandbox.running").text.splitlines()
        return len(events)

    def test_requests_start_it_once(self):
        self.root.ok("stop", "a")
        self.assertEqual(self.ask("/").status, 409)
        before = self.starts()

        def one(_):
            c = Connection(self.socket)
            c.request("GET", "/v1/sandboxes/a/ports/8000/", headers={"Ripcord-Wake": "1"})
            r = c.getresponse()
            data = r.read()
            c.close()
            return r.status, data
        server = threading.Thread(target=self.serve_again)
        server.start()
        with ThreadPoolExecutor(10) as pool:
            self.assertEqual(set(pool.map(one, range(10))), {(200, b"hello\n")})
        server.join()
        self.assertEqual(self.starts(), before + 1)

    def test_a_link_that_wakes(self):
        origin = f"8000-{self.root.sandbox('a')['id']}.localhost:{self.host.rpartition(':')[2]}"
        cookies = []
        for args in ((), ("--wake",)):
            path = self.root.ok("port", "a", "8000", "--url", *args).text.strip().partition(origin)[2]
            cookies.append(self.over_tcp({"Host": origin}, path).headers["Set-Cookie"].partition(";")[0])
        self.root.ok("stop", "a")
        self.assertEqual(self.over_tcp({"Host": origin, "Cookie": cookies[0], "Ripcord-Wake": "1"}, "/").status, 409)
        server = threading.Thread(target=self.serve_again)
        server.start()
        self.assertEqual(self.over_tcp({"Host": origin, "Cookie": cookies[1]}, "/").data, b"hello\n")
        server.join()

    def test_the_wait_has_an_end(self):
        self.port = 9999
        begin = time.monotonic()
        self.assertEqual(self.ask("/", headers={"Ripcord-Wake": "1", "Ripcord-Timeout": "2s"}).status, 502)
        self.assertGreater(time.monotonic() - begin, 1.5)
        self.assertEqual(self.ask("/", headers={"Ripcord-Wake": "x"}).status, 400)


@only_on("native")  # what comes out of the dialled connection is the same from every engine
class Hostile(ProxyCase):
    """Each service here is at the attacker's command."""
    script, port = RAW, 8001

    def answer(self, raw, method="GET", **more):
        """What a client gets of a service that sends these bytes."""
        return self.ask("/" + base64.b64encode(raw, altchars=b"-_").decode(), method, **more)

    def raw_answer(self, raw, extra=b""):
        """All bytes that a client gets on its connection."""
        with self.root.connect(30) as s:
            s.sendall(b"GET /v1/sandboxes/a/ports/8001/" + base64.b64encode(raw, altchars=b"-_") +
                      b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + extra + b"\r\n")
            return read_all(s)

    def test_answers_that_two_readers_understand_differently(self):
        for raw in (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
                    b"HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nhello",
                    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
                    b"HTTP/1.1 200 OK\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
                    b"HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n",
                    b"HTTP/1.1 200 OK\nA: b\n\n",
                    b"HTTP/1.1 200 OK\r\nA: b\rSet-Cookie: x\r\n\r\n",
                    b"HTTP/1.1 200 OK\r\nA: \0\r\n\r\n",
                    b"HTTP/1.1 999 OK\r\n\r\n", b"HTTP/2 200 OK\r\n\r\n", b"SSH-2.0-x\r\n\r\n", b"\r\n\r\n",
                    b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 65 + b"\r\n",
                    b"", b"HTTP/1.1 200 OK\r\n"):
            r = self.answer(raw)
            self.assertEqual((r.status, b'"code":"engine"' in r.data), (502, True), (raw[:80], r.data))

    def test_bodies_that_lie(self):
        for raw in (b"Content-Length: 10\r\n\r\nshort", b"Transfer-Encoding: chunked\r\n\r\n5\r\nhell", b"Transfer-Encoding: chunked\r\n\r\nx\r\n",
                    b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello0\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n"):
            with self.assertRaises(http.client.IncompleteRead, msg=raw):
                self.answer(b"HTTP/1.1 200 OK\r\n" + raw)
            self.conn.close()

    def test_nothing_follows_an_answer(self):
        """Bytes behind an answer never become the answer to another request."""
        second = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nPOISON"
        for first in (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", b"HTTP/1.1 204 No\r\n\r\n", b"HTTP/1.1 304 No\r\n\r\n",
                      b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"):
            got = self.raw_answer(first + second)
            self.assertNotIn(b"POISON", got)
            self.assertEqual(got.count(b"HTTP/1.1"), 1)
            self.assertNotIn(b"POISON", self.answer(first + second).data)
            self.assertEqual(self.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nmy").data, b"my")
        self.assertNotIn(b"POISON", self.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" + second, "HEAD").data)

    def test_nothing_follows_an_answer_on_a_connection_that_stays_open(self):
        word = lambda b: base64.b64encode(b, altchars=b"-_").decode()
        second = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nPOISON"
        for kept in ("now", "later"):
            for first in (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", b"HTTP/1.1 204 No\r\n\r\n",
                          b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"):
                self.assertIn(self.ask(f"/{kept}/{word(first)}.{word(second)}").data, (b"ok", b""))
                time.sleep(0.6 if kept == "later" else 0)
                self.assertEqual(self.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nmy").data, b"my", (kept, first))

    def test_requests_arrive_as_one(self):
        """Whatever a client sends, the service sees one request, whose length is not in doubt."""
        ok = base64.b64encode(b"HTTP/1.1 200 OK\r\n\r\n").decode()
        bad = ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
               "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n", "A: b\r\n c: d\r\n\r\n", "A: b\nHost: y\r\n\r\n",
               "Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n")
        for fields in bad:
            with self.root.connect(30) as s:
                s.sendall(f"POST /v1/sandboxes/a/ports/8001/{ok} HTTP/1.1\r\nHost: x\r\n{fields}".encode())
                self.assertTrue(read_all(s).startswith(b"HTTP/1.1 400 "), fields)
        with self.root.connect(30) as s:
            s.sendall(f"POST /v1/sandboxes/a/ports/8001/{ok} HTTP/1.1\r\nHost: x\r\nContent_Length: 99\r\nX_Forwarded_For: 1\r\n"
                      "Transfer-Encoding: chunked\r\nConnection: close, x-gone\r\nX-Gone: 1\r\n\r\n5;ext=1\r\nhello\r\n0\r\n\r\n".encode())
            self.assertTrue(read_all(s).startswith(b"HTTP/1.1 200 "))
        seen = self.ask("/seen").data.split(b"\n--\n")
        self.assertEqual(len(seen), 1, seen)
        self.assertTrue(seen[0].endswith(b"\r\n\r\n5\r\nhello\r\n0\r\n\r\n"), seen)
        for word in (b"Content_Length", b"X_Forwarded_For", b"X-Gone", b"ext"):
            self.assertNotIn(word, seen[0])

    def test_fields_that_would_change_our_origin(self):
        r = self.answer(b"HTTP/1.1 200 OK\r\nSet-Cookie: ripcord-session=1\r\nClear-Site-Data: \"*\"\r\nAlt-Svc: h2=\":1\"\r\n"
                        b"Service-Worker-Allowed: /\r\nRefresh: 0;/v1/version\r\nContent-Security-Policy: default-src *\r\n"
                        b"Access-Control-Allow-Origin: *\r\nX-Request-Id: mine\r\nX-Own: stays\r\n\r\n")
        self.assertEqual(r.status, 200)
        self.assertEqual(r.headers["X-Own"], "stays")
        self.assertEqual(r.headers.get_all("Content-Security-Policy"), ["sandbox"])
        self.assertNotEqual(r.headers["X-Request-Id"], "mine")
        for name in ("Set-Cookie", "Clear-Site-Data", "Alt-Svc", "Service-Worker-Allowed", "Refresh", "Access-Control-Allow-Origin"):
            self.assertIsNone(r.headers[name], name)

    def test_a_redirect_stays_below_the_port(self):
        """A program that follows it with its token does not ask our API."""
        for to in ("/../../../../v1/version", "../../../../v1/version", "/%2e%2e/%2e%2e/%2e%2e/%2e%2e/v1/version"):
            r = self.answer(b"HTTP/1.1 307 Go\r\nLocation: " + to.encode() + b"\r\n\r\n")
            self.assertEqual(r.headers["Location"], "/v1/sandboxes/a/ports/8001/v1/version", to)
        for to in ("//localhost/v1/version", "http://localhost/v1/version", "http:/v1/version", "/\\localhost/v1/version"):
            r = self.answer(b"HTTP/1.1 307 Go\r\nLocation: " + to.encode() + b"\r\n\r\n")
            self.assertEqual((r.headers["Location"], r.headers["Ripcord-Location"]), (None, to))

    def test_upgrades_that_nobody_asked_for(self):
        switch = b"HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nRAW"
        r = self.answer(switch)
        self.assertEqual(r.status, 502, r.data)
        ask = b"Connection: Upgrade\r\nUpgrade: websocket\r\n".replace(b"Connection: Upgrade", b"Connection: close, Upgrade")
        for other in (switch.replace(b": websocket", b": h2c"), switch.replace(b"\r\n\r\nRAW", b"\r\nContent-Length: 3\r\n\r\nRAW")):
            self.assertIn(b" 502 ", self.raw_answer(other, ask).partition(b"\r\n")[0])
        self.assertIn(b" 101 ", self.raw_answer(switch, ask).partition(b"\r\n")[0])
        self.assertIn(b" 502 ", self.raw_answer(switch, b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\n"))
        self.assertNotIn(b"h2c", self.ask("/seen").data)

    def test_heads_without_end(self):
        for path in ("/endless-head", "/endless-interim"):
            self.assertEqual(self.ask(path).status, 502, path)
        begin = time.monotonic()
        self.assertEqual(self.ask("/dribble", headers={"Ripcord-Timeout": "2s"}).status, 504)
        self.assertLess(time.monotonic() - begin, 15)
        self.assertLess(self.memory(), 64 << 20)

    def test_a_body_without_end_and_a_client_that_does_not_read(self):
        before = self.memory()
        socks = []
        for _ in range(10):
            s = self.root.connect(30)
            s.sendall(b"GET /v1/sandboxes/a/ports/8001/endless-body HTTP/1.1\r\nHost: x\r\n\r\n")
            socks.append(s)
        time.sleep(3)
        self.assertLess(self.memory() - before, 32 << 20)
        for s in socks:
            s.close()

    def test_a_service_that_does_not_read(self):
        before = self.memory()
        with self.root.connect(2) as s:
            s.sendall(b"POST /v1/sandboxes/a/ports/8001/silent HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n")
            sent = 0
            with self.assertRaises(socket.timeout):
                while sent < 500 << 20:
                    sent += s.send(bytes(1 << 20))
        self.assertLess(sent, 64 << 20)
        self.assertLess(self.memory() - before, 16 << 20)

    def test_connections_have_a_limit(self):
        socks = []
        for _ in range(60):
            s = self.root.connect(30)
            s.sendall(b"GET /v1/sandboxes/a/ports/8001/silent HTTP/1.1\r\nHost: x\r\nRipcord-Timeout: 5m\r\n\r\n")
            socks.append(s)
        refused = 0
        for s in socks:
            s.settimeout(0.1)
            try:
                refused += s.recv(100).startswith(b"HTTP/1.1 429 ")
            except socket.timeout:
                pass
        self.assertEqual(refused, 12)
        self.assertEqual(self.root.run("exec", "a", "--", "true").code, 0)  # the rest of the sandbox works
        for s in socks:
            s.close()
        wait_until(lambda: self.ask("/seen").status == 200, 20, "places to be free")
