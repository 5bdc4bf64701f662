"""The bytes of one file over plain HTTP, from curl and from Python: ranges, entity tags, conditions, and what a hostile sandbox can do."""
import base64
import hashlib
import json
import os
import subprocess
import threading
from urllib.parse import quote

from ripcord_test import Config, Connection, TestCase, needs, wait_until

HOME = "/home/agent/"
NATIVE = Config.engine == "native"


class FileHttpCase(TestCase):
    def setUp(self):
        super().setUp()
        self.root.ok("up", "a")

    def socket_path(self):
        return self.root.path / "run" / "ripcord.sock"

    def target(self, path, **options):
        path = path if path.startswith("/") else HOME + path
        return f"/v1/sandboxes/a/files?path={quote(path)}" + "".join(f"&{k}={quote(str(v))}" for k, v in options.items())

    def read(self, path, options=None, **headers):
        headers = {k.replace("_", "-"): v for k, v in headers.items()}
        return self.root.http("GET", self.target(path, **(options or {})), None, {"Accept": "*/*", **headers})

    def head(self, path, **headers):
        c = Connection(self.socket_path())
        c.request("HEAD", self.target(path), headers={"Accept": "*/*", **headers})
        reply = c.getresponse()
        self.assertEqual(reply.read(), b"")
        c.close()
        return reply.status, reply.getheader("Content-Length")

    def write(self, path, data, headers=None, **options):
        return self.root.http("PUT", self.target(path, **options), data, {"Content-Type": "application/octet-stream", **(headers or {})})

    def written(self, path, data, status=200, headers=None, **options):
        reply = self.write(path, data, headers, **options)
        self.assertEqual(reply.status, status, reply)
        return reply.json()

    def op(self, name, **body):
        if "path" in body and not body["path"].startswith("/"):
            body["path"] = HOME + body["path"]
        if "to" in body and not body["to"].startswith("/"):
            body["to"] = HOME + body["to"]
        return self.root.http("POST", f"/v1/sandboxes/a/files/{name}", body)

    def done(self, name, **body):
        reply = self.op(name, **body)
        self.assertEqual(reply.status, 200, reply)
        return reply.json()

    def curl(self, *args, **kwargs):
        r = subprocess.run(["curl", "-sS", "--max-time", "120", "--unix-socket", str(self.socket_path()), *args], capture_output=True,
                           check=False, **kwargs)
        self.assertEqual(r.returncode, 0, r)
        return r.stdout


class TestCurl(FileHttpCase):
    def test_a_file_there_and_back(self):
        data = os.urandom(300_001)
        url = "http://x" + self.target("f")
        entry = json.loads(self.curl("-T", "-", url, input=data))
        self.assertEqual((entry["size"], entry["type"], entry["mode"], entry["path"]), (len(data), "file", "0644", HOME + "f"))
        self.assertEqual(self.curl(url), data)
        self.assertEqual(self.curl("-r", "10-19", url), data[10:20])
        self.assertEqual(self.curl("-r", "-7", url), data[-7:])
        self.assertIn(b"\r\nContent-Length: 300001\r\n", self.curl("-I", url))
        self.assertEqual(self.curl("-C", "300000", url), data[-1:])  # a download that goes on
        self.assertEqual(self.curl("--data-binary", "@-", "-X", "PUT", "-o", "-", "-w", "%{http_code}", url, input=b"x")[-3:], b"200")
        self.assertEqual(self.shell("a", "cat f"), "x")


class TestRead(FileHttpCase):
    def test_ranges(self):
        data = bytes(range(256))
        self.written("f", data, 201)
        for given, wanted, shown in (("bytes=0-0", data[:1], "0-0"), ("bytes=5-", data[5:], "5-255"), ("bytes=-3", data[-3:], "253-255"),
                                     ("bytes=250-999", data[250:], "250-255"), ("bytes=-999", data, "0-255")):
            reply = self.read("f", Range=given)
            self.assertEqual((reply.status, reply.body), (206, wanted), given)
            self.assertEqual(reply.headers["content-range"], f"bytes {shown}/256")
        for given in ("bytes=256-", "bytes=-0", "bytes=999-1000"):
            reply = self.read("f", Range=given)
            self.assert_refused(reply, 416, "invalid", "256 bytes")
            self.assertEqual(reply.headers["content-range"], "bytes */256")
        for given in ("bytes=3-1", "bytes=a-b", "lines=1-2", "bytes=0-1,4-5", "bytes=-"):  # RFC 9110: ignored
            self.assertEqual((self.read("f", Range=given).status, self.read("f", Range=given).body), (200, data), given)

    def test_conditions(self):
        self.written("f", b"one", 201)
        reply = self.read("f")
        tag = reply.headers["etag"]
        self.assertEqual((reply.headers["content-length"], reply.headers["content-type"]), ("3", "application/octet-stream"))
        for header in (tag, f'"x", {tag}', "*", f"W/{tag}"):
            reply = self.read("f", If_None_Match=header)
            self.assertEqual((reply.status, reply.body, reply.headers["etag"]), (304, b"", tag), header)
        self.assertEqual(self.read("f", If_None_Match='"x"').status, 200)
        self.assertEqual(self.read("f", If_Match=tag).status, 200)
        for header in ('"x"', f"W/{tag}"):
            self.assert_refused(self.read("f", If_Match=header), 412, "conflict", "condition")
        self.assertEqual(self.read("f", Range="bytes=0-0", If_Range=tag).status, 206)
        self.assertEqual(self.read("f", Range="bytes=0-0", If_Range='"x"').status, 200)
        self.shell("a", "echo two > f; touch -d @1 f")
        self.assertNotEqual(self.read("f").headers["etag"], tag)

    def test_head(self):
        self.written("f", b"12345", 201)
        self.assertEqual(self.head("f"), (200, "5"))
        self.assertEqual(self.head("f", **{"If-None-Match": "*"}), (304, None))
        self.assertEqual(self.head("nope")[0], 404)

    def test_odd_files(self):
        self.shell("a", "mkdir d; mkfifo p; : > empty; echo x > secret; chmod 0 secret; ln -s f l; echo there > f; ln -s loop loop")
        self.assertEqual((self.read("empty").status, self.read("empty").body), (200, b""))
        self.assertEqual(self.read("l").body, b"there\n")
        self.assertTrue(self.read("/proc/version").body.startswith(b"Linux"))
        self.assert_refused(self.read("d"), 409, "conflict", "is a folder", "x-tar")
        self.assert_refused(self.read("p"), 409, "conflict", "not a regular file")
        self.assert_refused(self.read("/dev/zero"), 409, "conflict", "not a regular file")
        self.assert_refused(self.read("secret"), 403, "denied", "secret")
        self.assert_refused(self.read("loop"), 403, "denied", "loop")
        self.assert_refused(self.read("none"), 404, "not_found", "none")
        self.assert_refused(self.read("f", options={"user": "nobody-here"}), 400, "invalid", "nobody-here")

    def test_media_types(self):
        """Without Accept the answer is a tar, as in earlier versions."""
        self.written("f", b"x", 201)
        tar = self.root.http("GET", self.target("f"))
        self.assertEqual((tar.headers["content-type"], len(tar.body) % 512), ("application/x-tar", 0))
        self.assertEqual(self.read("", Accept="application/x-tar, */*").headers["content-type"], "application/x-tar")

    def test_names_that_are_not_text(self):
        name = base64.b64encode(HOME.encode() + b"\xff\xfe").decode()
        target = "/v1/sandboxes/a/files?path_base64=" + quote(name)
        reply = self.root.http("PUT", target, b"odd", {"Content-Type": "text/plain"})
        self.assertEqual((reply.status, reply.json()["path_base64"]), (201, name), reply)
        self.assertEqual(self.root.http("GET", target, None, {"Accept": "*/*"}).body, b"odd")
        self.assert_refused(self.root.http("GET", target + "&path=/x", None, {"Accept": "*/*"}), 400, "invalid", "only one")
        for bad in ("%25", base64.b64encode(b"/a\0b").decode(), base64.b64encode(b"a").decode()):
            self.assert_refused(self.root.http("GET", "/v1/sandboxes/a/files?path_base64=" + quote(bad), None, {"Accept": "*/*"}), 400, "invalid")


class TestWrite(FileHttpCase):
    def test_as_a_program_inside(self):
        self.shell("a", "echo old > f; chmod 640 f; ln f second; ln -s f l; echo ro > ro; chmod 444 ro; mkdir d")
        self.assertEqual(self.written("l", b"new")["mode"], "0640")
        self.assertEqual(self.shell("a", "cat second; test -L l && stat -c %h f"), "new2\n")
        self.assert_refused(self.write("ro", b"x"), 403, "denied", "ro")
        self.assert_refused(self.write("d", b"x"), 409, "conflict", "d")
        self.assert_refused(self.write("d/", b"x"), 409, "conflict", "folder")
        self.assert_refused(self.write("no/f", b"x"), 404, "not_found", "parents")
        self.written("no/such/f", b"x", 201, parents=1)
        self.assertEqual(self.written("m", b"x", 201, mode="750")["mode"], "0750")
        self.assertEqual(self.written("ro", b"x", atomic=1)["mode"], "0444")
        self.written("l", b"mine", atomic=1)
        self.assertEqual(self.shell("a", "test ! -L l && cat l f ro; ls -A | grep -c tmp || true"), "minenewx0\n")

    def test_as_root(self):
        entry = self.written("/etc/mine", b"x", 201, user="root")
        self.assertEqual((entry["uid"], entry["gid"]), (0, 0))
        self.assert_refused(self.write("/etc/mine", b"y"), 403, "denied", "/etc/mine")
        if NATIVE:
            self.assertEqual(self.written("/etc/yours", b"x", 201, user="root", owner="agent")["uid"], 1000)
        self.assert_refused(self.write("f", b"y", owner="root"), 403, "denied")

    def test_conditions(self):
        for options in ({}, {"atomic": 1}):
            name = f"f{len(options)}"
            tag = self.written(name, b"one", 201, {"If-None-Match": "*"}, **options)["etag"]
            self.assert_refused(self.write(name, b"two", {"If-None-Match": "*"}, **options), 412, "conflict", "condition")
            new = self.write(name, b"two", {"If-Match": tag}, **options)
            self.assertEqual((new.status, new.headers["etag"]), (200, new.json()["etag"]))
            self.assert_refused(self.write(name, b"three", {"If-Match": tag}, **options), 412, "conflict")
            self.assert_refused(self.write("none", b"x", {"If-Match": "*"}, **options), 412, "conflict")
            self.assertEqual(self.shell("a", f"cat {name}; ls -A | grep -e none -e tmp || true"), "two")
        self.assert_refused(self.root.http("PUT", self.target(""), b"", {"Content-Type": "application/x-tar", "If-Match": "*"}), 400,
                            "invalid", "If-Match")

    def test_of_two_writers_one_wins(self):
        """Both know the same version. Without the lock both would succeed."""
        tag = self.written("f", b"old", 201)["etag"]
        for options in ({}, {"atomic": 1}):
            first = Connection(self.socket_path())
            first.putrequest("PUT", self.target("f", **options))
            first.putheader("If-Match", tag)
            first.putheader("Content-Length", "5")
            first.endheaders(b"fi")  # the rest comes later
            self.wait_for_lock()
            self.assertIn(self.write("f", b"second", {"If-Match": tag}, **options).status, (409, 412))
            first.send(b"rst")
            reply = first.getresponse()
            self.assertEqual(reply.status, 200)
            tag = json.loads(reply.read())["etag"]
            first.close()
            self.assertEqual(self.shell("a", "cat f"), "first")

    def wait_for_lock(self):
        wait_until(lambda: self.root.run("exec", "a", "--", "flock", "-n", "f", "true").code != 0, 20, "the writer to hold its lock")

    def test_a_client_that_goes(self):
        """Half a file is not put in place with atomic, and is left without."""
        self.written("f", b"old", 201)
        for options, wanted in (({"atomic": 1}, "old"), ({}, "ne")):
            c = Connection(self.socket_path())
            c.putrequest("PUT", self.target("f", **options))
            c.putheader("Content-Length", "100")
            c.endheaders(b"ne")
            wait_until(lambda: self.shell("a", "ls -A | grep -c tmp; cat f") in ("1\nold", "0\nne") or None, 20, "the first bytes")
            c.close()
            wait_until(lambda: self.shell("a", "ls -A | grep -c tmp || true") == "0\n", 20, "the helper to end")
            self.assertEqual(self.shell("a", "cat f"), wanted)

    def test_bodies_that_are_something_else(self):
        self.assert_refused(self.write("f", b"x", {"Content-Type": "multipart/form-data; boundary=x"}), 415, "invalid", "multipart")
        self.assert_refused(self.write("f", b"x", {"Content-Encoding": "gzip"}), 415, "invalid", "Content-Encoding")
        self.written("f", b'{"a":1}', 201, {"Content-Type": "application/json"})
        self.assertEqual(self.read("f").json(), {"a": 1})

    def test_a_stopped_sandbox(self):
        self.written("f", b"kept", 201)
        self.root.ok("stop", "a")
        self.assertEqual(self.read("f").body, b"kept")

    @needs("files in the root")
    def test_links_that_change_lead_nowhere(self):
        """A link to a file of the host, planted while we write: the helper sees the sandbox's files only."""
        secret = self.root.path / "outside"
        secret.write_text("host")
        stop = threading.Event()

        def swap():
            while not stop.is_set():
                self.root.run("exec", "a", "--", "sh", "-c", f"for i in 1 2 3 4 5 6 7 8; do rm -rf t; ln -s {secret} t; rm t; mkdir t; done")
        worker = threading.Thread(target=swap)
        worker.start()
        try:
            for _ in range(30):
                self.write("t/f", b"inside", parents=1)
                self.write("t", b"inside")
                self.assertNotEqual(self.read("t").body, b"host")
        finally:
            stop.set()
            worker.join()
        self.assertEqual(secret.read_text(), "host")


class TestLarge(FileHttpCase):
    SIZE = 64 << 20

    def digest(self, size, name):
        c = Connection(self.socket_path())
        block = hashlib.sha256(name.encode()).digest() * 2048
        whole = hashlib.sha256()

        def pieces():
            for _ in range(size // len(block)):
                whole.update(block)
                yield block
        c.request("PUT", self.target(name), pieces(), {"Content-Length": str(size)}, encode_chunked=False)
        reply = c.getresponse()
        self.assertEqual((reply.status, json.loads(reply.read())["size"]), (201, size))
        c.request("GET", self.target(name), headers={"Accept": "*/*"})
        reply = c.getresponse()
        self.assertEqual((reply.status, reply.getheader("Content-Length")), (200, str(size)))
        back = hashlib.sha256()
        while piece := reply.read(1 << 20):
            back.update(piece)
        c.close()
        self.assertEqual(back.hexdigest(), whole.hexdigest())

    def peak(self):
        with open(f"/proc/{self.root.daemon_pid()}/status", encoding="utf-8") as f:
            return next(int(line.split()[1]) << 10 for line in f if line.startswith("VmHWM"))

    def test_memory_stays_flat(self):
        self.digest(1 << 20, "small")
        before = self.peak()
        self.digest(self.SIZE, "large")
        self.assertLess(self.peak() - before, 8 << 20)

    def test_a_gibibyte(self):
        if not Config.soak:
            self.skipTest("only in a soak run (a GiB there and back takes minutes on a busy machine)")
        before = self.peak()
        self.digest(1 << 30, "huge")
        self.assertLess(self.peak() - before, 8 << 20)
