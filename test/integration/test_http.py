"""Raw bytes on the socket: everything ambiguous is refused with 400 and the connection closes."""
import json
import re
import time

from ripcord_test import TestCase, parse_reply

STATUS_LINE = re.compile(rb"HTTP/1\.1 \d{3} ")
GET = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"

# name, request: all must be answered with an error and a closed connection
REFUSED = [
    ("both lengths", GET + b"Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n"),
    ("two lengths", GET + b"Content-Length: 0\r\nContent-Length: 0\r\n\r\n"),
    ("list of lengths", GET + b"Content-Length: 0, 0\r\n\r\n"),
    ("signed length", GET + b"Content-Length: +1\r\n\r\nx"),
    ("negative length", GET + b"Content-Length: -1\r\n\r\n"),
    ("hex length", GET + b"Content-Length: 0x1\r\n\r\nx"),
    ("length with blank inside", GET + b"Content-Length: 1 1\r\n\r\n"),
    ("empty length", GET + b"Content-Length: \r\n\r\n"),
    ("length of 20 digits", GET + b"Content-Length: 99999999999999999999\r\n\r\n"),
    ("unknown coding", GET + b"Transfer-Encoding: gzip\r\n\r\n"),
    ("chunked twice", GET + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n"),
    ("chunked in two fields", GET + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ("chunked with a tab", GET + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n"),
    ("identity", GET + b"Transfer-Encoding: identity\r\n\r\n"),
    ("gzip then chunked", GET + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
    ("two hosts", GET + b"Host: y\r\n\r\n"),
    ("no host", b"GET /healthz HTTP/1.1\r\n\r\n"),
    ("host with a blank", b"GET /healthz HTTP/1.1\r\nHost: a b\r\n\r\n"),
    ("absolute form with another host", b"GET http://y/healthz HTTP/1.1\r\nHost: x\r\n\r\n"),
    ("bare LF", b"GET /healthz HTTP/1.1\nHost: x\n\n"),
    ("bare LF in a field", b"GET /healthz HTTP/1.1\r\nHost: x\nA: b\r\n\r\n"),
    ("bare CR", b"GET /healthz HTTP/1.1\r\nHost: x\rA: b\r\n\r\n"),
    ("CR before the final CRLF", b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\r\n\r\n"),
    ("folded field", GET + b"A: b\r\n c\r\n\r\n"),
    ("folded first field", b"GET /healthz HTTP/1.1\r\n Host: x\r\n\r\n"),
    ("blank before the colon", GET + b"A : b\r\n\r\n"),
    ("tab before the colon", GET + b"A\t: b\r\n\r\n"),
    ("no colon", GET + b"nonsense\r\n\r\n"),
    ("empty field name", GET + b": b\r\n\r\n"),
    ("NUL in a field", GET + b"A: b\0c\r\n\r\n"),
    ("NUL in a name", GET + b"A\0: b\r\n\r\n"),
    ("NUL in the target", b"GET /healthz\0 HTTP/1.1\r\nHost: x\r\n\r\n"),
    ("control byte in a field", GET + b"A: \x01\r\n\r\n"),
    ("DEL in a field", GET + b"A: \x7f\r\n\r\n"),
    ("control byte in the target", b"GET /heal\x01thz HTTP/1.1\r\nHost: x\r\n\r\n"),
    ("8-bit byte in the target", b"GET /heal\xffthz HTTP/1.1\r\nHost: x\r\n\r\n"),
    ("slash in a field name", GET + b"A/B: c\r\n\r\n"),
    ("8-bit field name", GET + b"\xc3\xbc: c\r\n\r\n"),
    ("two blanks in the first line", b"GET  /healthz HTTP/1.1\r\nHost: x\r\n\r\n"),
    ("blank behind the version", b"GET /healthz HTTP/1.1 \r\nHost: x\r\n\r\n"),
    ("tab in the first line", b"GET\t/healthz HTTP/1.1\r\nHost: x\r\n\r\n"),
    ("blank before the method", b" GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"),
    ("no version", b"GET /healthz\r\nHost: x\r\n\r\n"),
    ("version 0.9", b"GET /healthz HTTP/0.9\r\nHost: x\r\n\r\n"),
    ("version 2.0", b"GET /healthz HTTP/2.0\r\nHost: x\r\n\r\n"),
    ("version 1.10", b"GET /healthz HTTP/1.10\r\nHost: x\r\n\r\n"),
    ("version in lower case", b"GET /healthz http/1.1\r\nHost: x\r\n\r\n"),
    ("HTTP/2 preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    ("method with a bracket", b"GE(T /healthz HTTP/1.1\r\nHost: x\r\n\r\n"),
    ("empty method", b" /healthz HTTP/1.1\r\nHost: x\r\n\r\n"),
    ("target without slash", b"GET healthz HTTP/1.1\r\nHost: x\r\n\r\n"),
    ("empty target", b"GET  HTTP/1.1\r\nHost: x\r\n\r\n"),
    ("broken percent escape", b"GET /healt%zz HTTP/1.1\r\nHost: x\r\n\r\n"),
    ("cut percent escape", b"GET /healthz% HTTP/1.1\r\nHost: x\r\n\r\n"),
    ("escaped NUL", b"GET /healthz%00 HTTP/1.1\r\nHost: x\r\n\r\n"),
    ("dot segments", b"GET /v1/../healthz HTTP/1.1\r\nHost: x\r\n\r\n"),
    ("escaped dot segments", b"GET /v1/%2e%2e/healthz HTTP/1.1\r\nHost: x\r\n\r\n"),
    ("TLS hello", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"A" * 50 + b"\r\n\r\n"),
    ("head over the limit", GET + b"A: " + b"x" * 40000 + b"\r\n\r\n"),
    ("too many fields", GET + b"".join(b"A%d: b\r\n" % i for i in range(200)) + b"\r\n"),
    ("target over the limit", b"GET /" + b"x" * 15000 + b" HTTP/1.1\r\nHost: x\r\n\r\n"),
    ("random bytes", bytes(range(256)) + b"\r\n\r\n"),
]

PUT = (b"PUT /v1/sandboxes/a HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
       b"Transfer-Encoding: chunked\r\n\r\n")

REFUSED_CHUNKS = [
    ("size with 0x", b"0x2\r\n{}\r\n0\r\n\r\n"),
    ("signed size", b"+2\r\n{}\r\n0\r\n\r\n"),
    ("negative size", b"-2\r\n{}\r\n0\r\n\r\n"),
    ("size with a blank", b" 2\r\n{}\r\n0\r\n\r\n"),
    ("blank behind the size", b"2 \r\n{}\r\n0\r\n\r\n"),
    ("empty size", b"\r\n{}\r\n0\r\n\r\n"),
    ("17 digits", b"00000000000000002\r\n{}\r\n0\r\n\r\n"),
    ("size that overflows", b"FFFFFFFFFFFFFFFFF\r\n{}\r\n0\r\n\r\n"),
    ("bare LF behind the size", b"2\n{}\r\n0\r\n\r\n"),
    ("bare LF behind the data", b"2\r\n{}\n0\r\n\r\n"),
    ("data longer than its size", b"1\r\n{}\r\n0\r\n\r\n"),
    ("extension over the limit", b"2;" + b"x" * 5000 + b"\r\n{}\r\n0\r\n\r\n"),
    ("NUL in an extension", b"2;a=\0\r\n{}\r\n0\r\n\r\n"),
    ("trailer", b"2\r\n{}\r\n0\r\nX: y\r\n\r\n"),
    ("no digits", b"xyz\r\n{}\r\n0\r\n\r\n"),
]


class Raw(TestCase):
    def setUp(self):
        super().setUp()
        self.root.start()

    def assert_refused_raw(self, name, request):
        data = self.root.raw(request, timeout=20)  # returns only when the server closes
        self.assertTrue(data.startswith(b"HTTP/1.1 "), (name, data[:200]))
        reply = parse_reply(data)
        self.assertIn(reply.status, (400, 413, 414, 421, 429, 431, 501, 505), (name, reply))
        self.assertTrue(json.loads(reply.body)["error"]["message"], (name, reply))
        self.assertEqual(len(STATUS_LINE.findall(data)), 1, (name, data))

    def test_corpus_of_bad_heads(self):
        for name, request in REFUSED:
            with self.subTest(name):
                self.assert_refused_raw(name, request)
        self.assertEqual(self.root.get("/healthz"), {"status": "ok"})

    def test_corpus_of_bad_chunks(self):
        for name, chunks in REFUSED_CHUNKS:
            with self.subTest(name):
                self.assert_refused_raw(name, PUT + chunks)
        self.assertEqual(self.root.sandboxes(), [])

    def test_keep_alive_and_pipelining(self):
        data = self.root.raw((GET + b"\r\n") * 3 + GET + b"Connection: close\r\n\r\n")
        self.assertEqual(data.count(b"HTTP/1.1 200"), 4)

    def test_a_request_byte_by_byte(self):
        with self.root.connect() as s:
            for byte in GET + b"Connection: close\r\n\r\n":
                s.sendall(bytes([byte]))
                time.sleep(0.001)
            self.assertIn(b" 200 ", s.recv(65536).split(b"\r\n")[0])

    def test_chunked_request_body(self):
        body = b"1\r\n{\r\n1;ext=1\r\n}\r\n0\r\n\r\n"
        head = PUT.replace(b"Host: x", b"Host: x\r\nConnection: close").replace(b"/a ", b"/c ")
        reply = parse_reply(self.root.raw(head + body))
        self.assertEqual(reply.status, 201, reply)

    def test_no_smuggling_behind_a_refused_request(self):
        smuggled = b"DELETE /v1/sandboxes/a HTTP/1.1\r\nHost: x\r\n\r\n"
        data = self.root.raw(GET + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n" + smuggled)
        self.assertEqual(len(STATUS_LINE.findall(data)), 1, data)

    def test_expect_continue(self):
        with self.root.connect() as s:
            s.sendall(b"PUT /v1/sandboxes/c HTTP/1.1\r\nHost: x\r\nConnection: close\r\nExpect: 100-continue\r\n"
                      b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n")
            first = s.recv(65536)
            self.assertTrue(first.startswith(b"HTTP/1.1 100"), first)
            s.sendall(b"{}")
            self.assertIn(b"HTTP/1.1 201", first + s.recv(65536))

    def test_silent_clients_do_not_delay_others(self):
        idle = [self.root.connect() for _ in range(50)]
        half = [self.root.connect() for _ in range(50)]
        for s in half:
            s.sendall(b"GET /heal")
        since = time.monotonic()
        self.assertEqual(self.root.get("/healthz"), {"status": "ok"})
        self.assertLess(time.monotonic() - since, 5)
        for s in idle + half:
            s.close()

    def test_errors_are_json_with_the_right_type(self):
        reply = self.root.http("GET", "/v1/nothing")
        self.assertEqual(reply.headers["content-type"].split(";")[0], "application/json")
        self.assertEqual(set(reply.json()["error"]) - {"hint"}, {"code", "message"})

    def test_errors_have_details(self):
        for method, target, body, details in (
                ("GET", "/v1/sandboxes/box", None, {"sandbox": "box"}),
                ("GET", "/v1/sandboxes/b%22x", None, {"sandbox": 'b"x'}),
                ("GET", "/v1/sandboxes/box/execs/0123456789abcdef", None, {"sandbox": "box", "exec": "0123456789abcdef"}),
                ("GET", "/v1/sandboxes?limit=x", None, {"parameter": "limit"}),
                ("GET", "/v1/sandboxes?colour=x", None, {"parameter": "colour"}),
                ("GET", "/v1/images/show?name=nope", None, {"image": "nope"}),
                ("PUT", "/v1/sandboxes/box", {"limits": {"cpus": "x"}}, {"sandbox": "box", "field": "limits.cpus"}),
                ("PUT", "/v1/sandboxes/box", {"mounts": [{"source": "/x", "target": "/proc"}]}, {"sandbox": "box", "field": "mounts[0].source"}),
                ("PUT", "/v1/sandboxes/box", {"colour": 1}, {"sandbox": "box", "field": "colour"}),
                ("POST", "/v1/run", {"exec": {"argv": [""]}}, {"field": "argv[0]"})):
            with self.subTest(target, body=body):
                error = self.root.http(method, target, body).json()["error"]
                self.assertEqual(error.get("details"), details, error)
        self.assertNotIn("details", self.root.http("GET", "/v1/nothing").json()["error"])

    def test_head_of_every_documented_get(self):
        for target in ("/healthz", "/readyz", "/v1/version", "/v1/config", "/v1/engines", "/v1/sandboxes"):
            self.assertIsInstance(self.root.get(target), dict, target)

    def test_version_shows_pid_and_root(self):
        version = self.root.get("/v1/version")
        self.assertEqual(version["api"], 1)
        self.assertEqual(version["state_dir"], str(self.root.path / "state"))
        self.assertRegex(version["root_id"], r"^[0-9a-f]{16}$")
