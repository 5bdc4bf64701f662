"""What every request has in common: an id, an exact query, HEAD, and Allow. For each route of the API's document."""
import json
import re
import subprocess
import tempfile
from pathlib import Path

from ripcord_test import TestCase, parse_reply, wait_until
from test_http import GET, PUT
from test_listen import Tcp
from test_websocket import FRAMES, Socket

METHODS = ("get", "put", "post", "patch", "delete")
VALUES = {"name": "box", "id": "last", "port": "80"}
PROXIED = "/ports/{port}"  # what comes after belongs to the sandbox


class TestEveryRoute(TestCase):
    def setUp(self):
        super().setUp()
        self.root.start()
        self.root.ok("up", "box")
        self.root.ok("exec", "box", "--", "true")
        paths = self.root.get("/v1/openapi.json")["paths"]
        self.paths = {re.sub(r"\{(\w+)\}", lambda m: VALUES[m[1]], p): item for p, item in paths.items() if PROXIED not in p}

    def test_unknown_query_parameters(self):
        self.assertGreater(len(self.paths), 50)
        for path, item in self.paths.items():
            for method in METHODS & item.keys():
                reply = self.root.http(method.upper(), path + "?nope=1")
                if reply.status != 426:  # an upgrade is missing as well
                    self.assert_refused(reply, 400, "invalid", "unknown query parameter 'nope'")
                    self.assertEqual(reply.json()["error"]["details"]["parameter"], "nope", path)

    def test_head_and_allow(self):
        streams = set()
        for path, item in self.paths.items():
            reply = self.root.http("BREW", path)
            self.assertEqual(reply.status, 405, (path, reply))
            allowed = set(reply.headers["allow"].split(", "))
            self.assertEqual(allowed - {"HEAD"}, {m.upper() for m in METHODS & item.keys()}, path)
            if "get" not in item:
                self.assertNotIn("HEAD", allowed, path)
            elif "HEAD" in allowed:
                self.check_head(path)
            else:
                streams.add(path.rpartition("/")[2])
        self.assertTrue({"events", "stream", "attach", "watch"} <= streams, streams)
        self.assertLessEqual(len(streams), 8, streams)

    def check_head(self, path):
        query = {"/v1/sandboxes/box/files": "?path=/etc/passwd"}.get(path, "")
        head, get = (parse_reply(self.root.raw(f"{method} {path}{query} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()))
                     for method in ("HEAD", "GET"))
        self.assertEqual((head.status, head.body), (get.status, b""), path)
        self.assertEqual(head.headers.get("content-type"), get.headers.get("content-type"), path)


class TestRequestId(Tcp):
    def start(self):
        self.root.configure(self.listen + "log.level: debug\n")
        super().start()

    def test_every_answer_has_one(self):
        """Also where no handler was reached, and of streams and upgrades."""
        self.root.ok("up", "box")
        execs = "/v1/sandboxes/box/execs"
        seen = {}

        def note(what, reply, status):
            self.assertEqual(reply.status, status, (what, reply))
            self.assertIn("x-request-id", reply.headers, (what, reply))
            seen[what] = reply.headers["x-request-id"]
        note("unknown path", self.root.http("GET", "/v1/nothing"), 404)
        note("method", self.root.http("BREW", "/v1/run"), 405)
        note("page", self.root.http("GET", "/v1/sandboxes", headers={"Origin": "http://x"}), 403)
        note("type", self.root.http("POST", "/v1/run", b"{}", {"Content-Type": "text/plain"}), 415)
        note("large", self.root.http("POST", "/v1/run", headers={"Content-Length": str(1 << 40)}), 413)
        note("upgrade", self.root.http("GET", execs + "/last/attach"), 426)
        note("malformed", parse_reply(self.root.raw(b"GET / HTTP/1.1\r\nHost : x\r\n\r\n")), 400)
        note("no HTTP", parse_reply(self.root.raw(b"hello\r\n\r\n")), 400)
        note("long head", parse_reply(self.root.raw(GET + b"a: " + b"x" * 20000)), 431)
        note("chunks", parse_reply(self.root.raw(PUT + b"zz\r\n")), 400)
        note("cut", parse_reply(self.cut(b"PUT /v1/sandboxes/a HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")), 400)
        note("token", self.ask(Authorization=None), 401)
        note("host", self.ask(Host="evil.test"), 421)
        note("events", self.root.http("POST", execs, {"argv": ["true"]}, {"Accept": "text/event-stream"}), 200)
        note("bytes", self.root.http("GET", execs + "/last/stdout"), 200)
        note("started", self.root.http("POST", execs, {"argv": ["true"]}), 201)
        with Socket(self.root.connect(), execs + "/last/attach", FRAMES, **{"X-Request-Id": "socket-1"}) as s:
            self.assertEqual(s.open().reply["x-request-id"], "socket-1")
        self.assertEqual(len(set(seen.values())), len(seen), seen)
        own = self.ask(X_Request_Id="mine-1", Authorization=None)
        self.assertEqual((own.status, own.headers["x-request-id"]), (401, "mine-1"))
        for name in (*seen.values(), "socket-1", "mine-1"):
            wait_until(lambda: any(f"request {name}: status".encode() in text for _, text in self.root.logs()), 10, f"{name} in the log")

    def cut(self, data):
        with self.root.connect() as s:
            s.sendall(data)
            s.shutdown(1)
            return s.recv(65536)

    def test_curl(self):
        with tempfile.TemporaryDirectory() as folder:
            for method, target, status in (("GET", "/v1/sandboxes", 200), ("HEAD", "/v1/sandboxes", 200), ("GET", "/v1/nope", 404),
                                           ("TRACE", "/v1/sandboxes", 405)):
                file = Path(folder) / "head"
                flags = ["-I"] if method == "HEAD" else ["-X", method]
                argv = ["curl", "-sS", *flags, "-D", str(file), "-o", f"{folder}/body", "-H", "X-Request-Id: from-curl", "--max-time", "30",
                        "--unix-socket", str(self.root.path / "run" / "ripcord.sock"), f"http://localhost{target}"]
                subprocess.run(argv, check=True)
                reply = parse_reply(file.read_bytes())
                self.assertEqual((reply.status, reply.headers["x-request-id"]), (status, "from-curl"), target)
                if status == 405:
                    self.assertEqual(reply.headers["allow"], "GET, HEAD")
                    self.assertIn("TRACE", json.loads((Path(folder) / "body").read_text(encoding="utf-8"))["error"]["message"])
