"""Hostile upstreams and hostile sandboxes of ripcord-packages."""
import concurrent.futures
import json
import os
import resource
import socket
import threading
import time
import unittest

import packages_fixture
from packages_fixture import BIG, LIST, SHORT, get
from ripcord_test import Config, full_run_only


class Hostile(packages_fixture.TestCase):
    """An upstream that lies, breaks off, or never ends."""

    def assert_nothing_kept(self, cache):
        self.assertEqual(self.stored(), {})
        self.assertEqual(list((self.tmp / "store" / "tmp").iterdir()), [])
        self.assertIsNone(cache.process.poll())

    def test_wrong_digest_small(self):
        file, data = self.up.add_wheel("demo", "1.0", os.urandom(1000))
        self.up.files[f"/files/{file}"] = bytes(len(data))
        cache = self.start_cache()
        host = cache.listen()
        status, reason, _, body = get(host, self.file_url(host, "demo")[file])
        self.assertEqual(status, 502)
        self.assertIn("wrong digest", reason)
        self.assertIn("wrong digest", json.loads(body)["error"])
        self.assertEqual(cache.event("mismatch")[0]["name"], "demo")
        self.assertEqual(cache.counters("pypi")["mismatches"], 1)
        self.assert_nothing_kept(cache)

    def test_wrong_digest_streamed_is_never_complete(self):
        """The last bytes wait for the verdict: what the client has is always too short."""
        file, data = self.up.add_wheel("demo", "1.0", os.urandom(BIG))
        wrong = data[:-1] + bytes([data[-1] ^ 1])

        def slowly(h):
            h.send_response(200)
            h.send_header("Content-Length", str(len(wrong)))
            h.end_headers()
            h.wfile.write(wrong[:2 << 20])
            time.sleep(0.5)
            h.wfile.write(wrong[2 << 20:])

        self.up.hooks[f"/files/{file}"] = slowly
        cache = self.start_cache()
        host = cache.listen()
        url = self.file_url(host, "demo")[file]
        with socket.create_connection(host.split(":"), timeout=20) as s:
            s.sendall(f"GET {url} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            got = b""
            while piece := s.recv(1 << 16):
                got += piece
        head, _, body = got.partition(b"\r\n\r\n")
        self.assertIn(f"Content-Length: {len(wrong)}".encode(), head)
        self.assertGreater(len(body), 1 << 20, "it was not streamed at all")
        self.assertLessEqual(len(body), len(wrong) - (64 << 10))
        self.assertEqual(len(cache.event("mismatch")), 1)
        self.assert_nothing_kept(cache)

    def test_right_digest_is_streamed(self):
        file, data = self.up.add_wheel("demo", "1.0", os.urandom(BIG))
        gate = threading.Event()

        def slowly(h):
            h.send_response(200)
            h.send_header("Content-Length", str(len(data)))
            h.end_headers()
            h.wfile.write(data[:2 << 20])
            gate.wait(10)
            h.wfile.write(data[2 << 20:])

        self.up.hooks[f"/files/{file}"] = slowly
        host = self.start_cache().listen()
        url = self.file_url(host, "demo")[file]
        with socket.create_connection(host.split(":"), timeout=20) as s:
            s.sendall(f"GET {url} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            got = b""
            while len(got) < 1 << 20:
                got += s.recv(1 << 16)
            gate.set()
            while piece := s.recv(1 << 16):
                got += piece
        self.assertEqual(got.partition(b"\r\n\r\n")[2], data)

    def test_broken_off_is_resumed(self):
        file, data = self.up.add_wheel("demo", "1.0", os.urandom(BIG))
        ranges = []

        def broken(h):
            start = int(h.headers.get("Range", "bytes=0-")[6:].split("-")[0])
            ranges.append(start)
            h.send_response(206 if start else 200)
            h.send_header("Content-Length", str(len(data) - start))
            if start:
                h.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
            h.end_headers()
            h.wfile.write(data[start:start + (1 << 20)] if len(ranges) < 4 else data[start:])
            h.wfile.flush()
            h.close_connection = True

        self.up.hooks[f"/files/{file}"] = broken
        host = self.start_cache().listen()
        self.assertEqual(get(host, self.file_url(host, "demo")[file])[3], data)
        self.assertEqual(ranges, [0, 1 << 20, 2 << 20, 3 << 20])

    def test_broken_off_without_ranges(self):
        """An upstream that starts anew with other bytes: no client gets a mixture for whole."""
        file, data = self.up.add_wheel("demo", "1.0", os.urandom(BIG))
        evil = bytes(2 << 20)
        tries = []

        def other_start(h):
            tries.append(1)
            h.send_response(200)
            h.send_header("Content-Length", str(len(data)))
            h.end_headers()
            h.wfile.write(evil if len(tries) == 1 else data)
            h.wfile.flush()
            h.close_connection = True

        self.up.hooks[f"/files/{file}"] = other_start
        cache = self.start_cache()
        host = cache.listen()
        url = self.file_url(host, "demo")[file]
        try:
            self.assertNotEqual(get(host, url)[0], 200)
        except Exception as e:  # cut off
            self.assertIn("IncompleteRead", type(e).__name__)
        self.assertEqual(len(tries), 2)
        self.assert_nothing_kept(cache)

    def test_gives_up_in_the_end(self):
        file, data = self.up.add_wheel("demo", "1.0", os.urandom(1000))

        def cut(h):
            h.send_response(200)
            h.send_header("Content-Length", str(len(data)))
            h.end_headers()
            h.wfile.write(data[:100])
            h.wfile.flush()
            h.close_connection = True

        self.up.hooks[f"/files/{file}"] = cut
        cache = self.start_cache()
        host = cache.listen()
        self.assertEqual(get(host, self.file_url(host, "demo")[file])[0], 502)
        self.assert_nothing_kept(cache)

    @full_run_only
    def test_stalled_upstream(self):
        stop = threading.Event()
        self.addCleanup(stop.set)

        def silent(h):
            h.send_response(200)
            h.send_header("Content-Length", "1000")
            h.end_headers()
            h.wfile.flush()
            stop.wait(30)

        self.up.hooks["/simple/demo/"] = silent
        host = self.start_cache(stall_timeout=1).listen()
        since = time.monotonic()
        self.assertEqual(get(host, "/pypi/simple/demo/")[0], 504)
        self.assertLess(time.monotonic() - since, 20)

    def endless(self, head):
        def run(h):
            h.send_response(200)
            h.send_header("Content-Type", "application/json")
            h.send_header("Transfer-Encoding", "chunked")
            h.end_headers()
            block = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
            h.wfile.write(b"%x\r\n%s\r\n" % (len(head), head))
            for _ in range(20000):
                h.wfile.write(block)
        return run

    def test_endless_bodies(self):
        file, _ = self.up.add_wheel("demo", "1.0", size=None)
        self.up.hooks["/npm/huge"] = self.endless(b'{"versions":{')
        self.up.hooks["/simple/huge/"] = self.endless(b'{"files":[')
        self.up.hooks[f"/files/{file}"] = self.endless(b"x")
        cache = self.start_cache(metadata_max=4 << 20, artifact_max=4 << 20)
        host = cache.listen()
        for path in ("/npm/huge", "/pypi/simple/huge/", self.file_url(host, "demo")[file]):
            status, reason, _, _ = get(host, path)
            self.assertEqual(status, 502, path)
            self.assertRegex(reason, "larger than|limit", path)
        self.assert_nothing_kept(cache)

    def test_announced_size_is_believed_against_it(self):
        file, data = self.up.add_wheel("demo", "1.0")
        self.up.hooks["/npm/huge"] = lambda h: (h.send_response(200), h.send_header("Content-Length", str(10 << 30)),
                                                h.end_headers(), h.wfile.write(b"{" * 100000))
        self.up.files[f"/files/{file}"] = data + b"more"
        cache = self.start_cache()
        host = cache.listen()
        status, reason, _, _ = get(host, self.file_url(host, "demo")[file])
        self.assertEqual((status, "the index page lists" in reason), (502, True), reason)
        self.assertEqual(get(host, "/npm/huge")[0] // 100, 5)
        self.assert_nothing_kept(cache)

    def test_redirects(self):
        inside = packages_fixture.Upstream(self.certificates)
        self.addCleanup(inside.stop)
        inside.add_wheel("demo", "6.6.6")
        file, _ = self.up.add_wheel("fine", "1.0")
        targets = {"private": f"{inside.url}/simple/demo/", "literal": f"https://127.0.0.1:{inside.port}/simple/demo/",
                   "metadata": "https://169.254.169.254/latest/", "plain": "http://example.com/", "file": "file:///etc/passwd",
                   "v6": "https://[::1]/", "mapped": "https://[::ffff:10.0.0.1]/", "ftp": "ftp://example.com/x",
                   "round": f"{self.up.url}/simple/round/"}
        for name, to in targets.items():
            self.up.hooks[f"/simple/{name}/"] = lambda h, to=to: self.up.send(h, 302, b"", Location=to)
        self.up.hooks["/simple/ok/"] = lambda h: self.up.send(h, 301, b"", Location=f"{self.up.url}/simple/fine/")
        cache = self.start_cache()
        host = cache.listen()
        for name in targets:
            status, reason, _, body = get(host, f"/pypi/simple/{name}/")
            self.assertEqual(status, 403, (name, reason))
        self.assertEqual(inside.requests, [])
        self.assertEqual(get(host, "/pypi/simple/ok/")[0], 200)
        self.assert_nothing_kept(cache)

    def test_files_at_private_addresses(self):
        inside = packages_fixture.Upstream(self.certificates)
        self.addCleanup(inside.stop)
        file, _ = self.up.add_wheel("demo", "1.0", url=f"{inside.url}/secret")
        cache = self.start_cache()
        host = cache.listen()
        self.assertEqual(get(host, self.file_url(host, "demo")[file])[0], 403)
        self.assertEqual(inside.requests, [])

    def test_pages_with_hostile_entries(self):
        file, data = self.up.add_wheel("demo", "1.0")
        good = self.up.pypi["demo"][0]
        names = ["../../etc/passwd", "a/b.whl", "x\n1.whl", "x y.whl", ".hidden", "-rf", "\u202ex.whl", "x" * 300, ""]
        self.up.pypi["demo"] += [{**good, "filename": n} for n in names]
        self.up.pypi["demo"] += [{**good, "filename": "nohash-1.whl", "hashes": {}}, {**good, "filename": 7}, 7, None,
                                 {**good, "filename": "url-1.whl", "url": "javascript:alert(1)"}]
        data = self.up.add_npm("thing", "1.0.0")
        versions = self.up.npm["thing"]["versions"]
        versions["../../../x"] = versions["1.0.0"]
        versions["2.0.0"] = {"dist": {"tarball": "https://x/"}}
        versions["3.0.0"] = "text"
        host = self.start_cache().listen()
        self.assertEqual(list(self.file_url(host, "demo")), [file])
        doc = json.loads(get(host, "/npm/thing", SHORT)[3])
        self.assertEqual(list(doc["versions"]), ["1.0.0"])
        self.assertEqual(get(host, "/npm/thing/-/thing-1.0.0.tgz")[3], data)

    def test_malformed_pages(self):
        cases = {"million": b'<a href="x.whl">x.whl</a>' * 1000000, "deep": b"[" * 100000, "nul": b"{\"files\":\"\0\"}",
                 "half": b'{"files":[{"filename"', "binary": bytes(range(256)) * 100, "long": b"<a href='" + b"x" * 100000}
        for name, body in cases.items():
            kind = "text/html" if name in ("million", "long") else "application/json"
            self.up.hooks[f"/simple/{name}/"] = lambda h, b=body, k=kind: self.up.send(h, 200, b, k)
            self.up.hooks[f"/npm/{name}"] = self.up.hooks[f"/simple/{name}/"]
        cache = self.start_cache()
        host = cache.listen()
        for name in cases:
            self.assertEqual(get(host, f"/pypi/simple/{name}/")[0], 502, name)
            self.assertEqual(get(host, f"/npm/{name}")[0], 502, name)
        self.assert_nothing_kept(cache)

    def test_sha1_only_is_marked(self):
        data = self.up.add_npm("old", "0.1.0", sha1_only=True)
        cache = self.start_cache()
        host = cache.listen()
        get(host, "/npm/old", SHORT)
        status, _, headers, body = get(host, "/npm/old/-/old-0.1.0.tgz")
        self.assertEqual((status, body, headers["x-ripcord-digest"]), (200, data, "sha1 only"))
        self.assertEqual(cache.counters("npm")["weak"], 1)
        self.assertTrue(cache.ask(LIST)["files"][0]["weak"])


class Guards(unittest.TestCase):
    """With one guard less, in a package cache built for it (src/lib/base/guard.h), the tests above fail."""

    only_on = ("native",)

    def outcome(self, test, without):
        case, result = Hostile(test), unittest.TestResult()
        case.special = {"program": "test/unit/ripcord-packages-guards", "env": {"RIPCORD_WITHOUT": without}}
        case.run(result)
        self.assertEqual(result.errors, [])
        return "failed" if result.failures else "passed"

    @full_run_only
    def test_each_guard_stands_and_would_be_missed(self):
        for guard, test in (("digests", "test_wrong_digest_small"), ("held back", "test_wrong_digest_streamed_is_never_complete")):
            self.assertEqual(self.outcome(test, ""), "passed", guard)
            self.assertEqual(self.outcome(test, guard), "failed", f"nobody would notice that '{guard}' is missing")


class Sandboxes(packages_fixture.TestCase):
    """What a sandbox may try."""

    def test_only_package_paths(self):
        host = self.start_cache().listen()
        for path in ("/", "/etc/passwd", "/pypi", "/pypi/json", "/npm/../etc", "/pypi/simple/..%2f..%2fetc/", "/pypi/simple/%2e%2e/",
                     "/pypi/simple/a%00b/", "/pypi/simple/a//", "//", "/npm/a%2fb", "/npm/@a%2f%2e%2e", "/npm/@a/..", "/npm/@/b",
                     "/npm/.hidden", "/pypi/files/x/y/z", "/pypi/files/demo/" + "0" * 64 + "/..%2fx", "/npm/%40a%2f..%2fb",
                     "/npm/a/-/..%2f..%2fx.tgz", "/npm/" + "a" * 300, "/pypi/simple/" + "a" * 300 + "/", "/%zz",
                     "/pypi/simple/%c3%a9/", "/a/b/c/d/e/f/g/h/i/j"):
            self.assertIn(get(host, path)[0], (400, 404), path)
        self.assertEqual(self.up.requests, [])

    def raw(self, host, data):
        with socket.create_connection(host.split(":"), timeout=15) as s:
            try:
                s.sendall(data)
                s.shutdown(socket.SHUT_WR)
            except OSError:
                pass
            out = b""
            try:
                while piece := s.recv(65536):
                    out += piece
            except ConnectionError:
                pass
        return out

    def test_no_way_out(self):
        host = self.start_cache().listen()
        for request in ("CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n",
                        "GET http://169.254.169.254/latest/ HTTP/1.1\r\nHost: 169.254.169.254\r\n\r\n",
                        "GET https://example.com/ HTTP/1.1\r\nHost: example.com\r\n\r\n",
                        "PUT /npm/evil HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}",
                        "DELETE /npm/evil HTTP/1.1\r\nHost: x\r\n\r\n", "POST /pypi/ HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
                        "GET /npm/x HTTP/1.1\r\nHost: a b\r\n\r\n", "GET /npm/x HTTP/1.1\r\nHost: e\"vil/\r\n\r\n",
                        "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", "\x16\x03\x01\x00\x00"):
            answer = self.raw(host, request.encode("latin-1"))
            self.assertRegex(answer, rb"^HTTP/1.1 4\d\d ", request)
        self.assertEqual(self.up.requests, [])

    def test_floods(self):
        self.up.add_wheel("demo", "1.0")
        cache = self.start_cache(connections_max=8, requests_per_second=5)
        host, other = cache.listen("a"), cache.listen("b")
        self.assertRegex(self.raw(host, b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 100 + b"\r\n"), rb"^HTTP/1.1 4")
        self.assertRegex(self.raw(host, b"GET /" + b"a" * 100000), rb"^HTTP/1.1 4")
        held = [socket.create_connection(host.split(":")) for _ in range(200)]
        time.sleep(0.3)
        self.assertEqual(get(other, "/pypi/simple/demo/")[0], 200)
        for s in held:
            s.close()
        statuses = []
        for _ in range(80):
            statuses.append(get(host, "/npm/-/ping")[0])
        self.assertEqual(set(statuses), {200, 429})
        self.assertEqual(get(other, "/pypi/simple/demo/")[0], 200)

    def test_ten_thousand_connections(self):
        """One sandbox opens what it can: the package cache keeps its limits, and serves the others."""
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit[1], limit[1]))
        many = min(10000, limit[1] - 2000)
        file, data = self.up.add_wheel("demo", "1.0", os.urandom(100000))
        cache = self.start_cache()
        host, other = cache.listen("a"), cache.listen("b")
        url = self.file_url(other, "demo")[file]
        self.assertEqual(get(other, url)[3], data)
        before = self.memory_of(cache)
        held, times, peak = [], [], 0
        try:
            while len(held) < many:
                s = socket.socket()
                s.setblocking(False)
                s.connect_ex(("127.0.0.1", int(host.split(":")[1])))
                held.append(s)
                if len(held) % 500 == 0:
                    start = time.monotonic()
                    self.assertEqual(get(other, url)[3], data)
                    times.append(time.monotonic() - start)
                    peak = max(peak, len(os.listdir(f"/proc/{cache.process.pid}/fd")))
            self.assertLess(self.memory_of(cache) - before, 32 << 20)
        finally:
            for s in held:
                s.close()
            resource.setrlimit(resource.RLIMIT_NOFILE, limit)
        self.assertLess(peak, 300)
        self.assertLess(max(times), 20)
        self.assertEqual(get(cache.listen("a"), "/npm/-/ping")[0], 200)

    @staticmethod
    def memory_of(cache):
        """Bytes of its own, without what it has mapped of files."""
        with open(f"/proc/{cache.process.pid}/status", encoding="ascii") as f:
            return next(int(line.split()[1]) << 10 for line in f if line.startswith("RssAnon"))

    def test_slow_reader_delays_nothing_else(self):
        file, data = self.up.add_wheel("demo", "1.0", os.urandom(8 << 20))
        cache = self.start_cache()
        slow, host = cache.listen("slow"), cache.listen("b")
        url = self.file_url(host, "demo")[file]
        readers = []
        for _ in range(20):
            s = socket.socket()
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            s.connect(tuple((slow.split(":")[0], int(slow.split(":")[1]))))
            s.sendall(f"GET {url} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            readers.append(s)
        self.assertEqual(get(host, url)[3], data)
        rss = int(next(line for line in open(f"/proc/{cache.process.pid}/status", encoding="ascii")
                       if line.startswith("VmRSS")).split()[1])
        self.assertLess(rss, 400000 if Config.sanitized else 120000)
        for s in readers:
            s.close()

    def test_one_sandbox_leaves_workers_to_the_others(self):
        gate = threading.Event()
        self.addCleanup(gate.set)
        files = [self.up.add_wheel(f"p{i}", "1.0", os.urandom(1000)) for i in range(30)]
        one, data = self.up.add_wheel("other", "1.0")
        cache = self.start_cache(stall_timeout=60)
        host, other = cache.listen("a"), cache.listen("b")
        urls = [self.file_url(host, f"p{i}")[files[i][0]] for i in range(30)]

        def held(h):
            gate.wait(20)
            self.up.send(h, 200, self.up.files[h.path])

        for file, _ in files:
            self.up.hooks[f"/files/{file}"] = held
        with concurrent.futures.ThreadPoolExecutor(30) as pool:
            jobs = [pool.submit(get, host, u) for u in urls]
            until = time.monotonic() + 10
            while self.up.count("/files/p") < 12 and time.monotonic() < until:
                time.sleep(0.02)
            self.assertEqual(get(other, self.file_url(other, "other")[one])[3], data)
            self.assertEqual(self.up.count("/files/p"), 12)
            gone = socket.create_connection(host.split(":"))
            gone.sendall(f"GET {urls[29]} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            time.sleep(0.1)
            gone.close()  # a parked one leaves
            gate.set()
            self.assertEqual([j.result()[3] == files[i][1] for i, j in enumerate(jobs)], [True] * 30)

    def test_parked_ones_that_need_no_turn_in_the_end(self):
        gate = threading.Event()
        self.addCleanup(gate.set)
        files = [self.up.add_wheel(f"p{i}", "1.0", os.urandom(1000)) for i in range(12)]
        one, data = self.up.add_wheel("common", "1.0")
        for file, body in files:
            self.up.hooks[f"/files/{file}"] = lambda h, b=body: (gate.wait(20), self.up.send(h, 200, b))
        cache = self.start_cache(stall_timeout=60, connections_max=300)
        host, other = cache.listen("a"), cache.listen("b")
        url = self.file_url(host, "common")[one]
        urls = [self.file_url(host, f"p{i}")[files[i][0]] for i in range(12)]
        with concurrent.futures.ThreadPoolExecutor(140) as pool:
            jobs = [pool.submit(get, host, u) for u in urls]
            until = time.monotonic() + 10
            while self.up.count("/files/p") < 12 and time.monotonic() < until:
                time.sleep(0.02)
            jobs = [pool.submit(get, host, url) for _ in range(120)]
            time.sleep(0.5)
            self.assertEqual(get(other, url)[3], data)
            gate.set()
            self.assertEqual([j.result()[3] == data for j in jobs], [True] * 120)

    def test_forgotten_in_the_middle(self):
        gate = threading.Event()
        self.addCleanup(gate.set)
        file, data = self.up.add_wheel("demo", "1.0", os.urandom(1000))
        self.up.hooks[f"/files/{file}"] = lambda h: (gate.wait(20), self.up.send(h, 200, data))
        cache = self.start_cache(stall_timeout=60)
        host, other = cache.listen("a"), cache.listen("b")
        url = self.file_url(host, "demo")[file]
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            lost, kept = pool.submit(get, host, url), None
            until = time.monotonic() + 10
            while not self.up.count("/files/") and time.monotonic() < until:
                time.sleep(0.02)
            kept = pool.submit(get, other, url)
            time.sleep(0.1)
            cache.ask(packages_fixture.FORGET, (packages_fixture.TAG_SANDBOX, "a"))
            gate.set()
            self.assertEqual(kept.result()[3], data)
            self.assertIsNotNone(lost.exception())
        self.assertEqual(self.up.count("/files/"), 1)

    def test_deny_list_gives_the_reason(self):
        file, _ = self.up.add_wheel("evil-lib", "1.0")
        one, _ = self.up.add_wheel("mixed", "1.0")
        two, data = self.up.add_wheel("mixed", "2.0")
        self.up.add_npm("bad", "1.0.0")
        self.up.add_npm("half", "1.0.0")
        self.up.add_npm("half", "1.5.0")
        self.up.add_npm("half", "2.0.0")
        cache = self.start_cache(deny=["Evil_Lib", "pypi:mixed==1.0", "npm:bad", "half==2.0.0"])
        host = cache.listen()
        status, reason, _, _ = get(host, self.file_url(host, "evil-lib")[file])
        self.assertEqual(status, 403)
        self.assertIn("'evil-lib' is on the deny list", reason)
        self.assertEqual(list(self.file_url(host, "mixed")), [two])
        status, reason, _, body = get(host, "/npm/bad", SHORT)
        self.assertEqual((status, json.loads(body)["error"]), (403, "Denied by policy: 'bad' is on the deny list"))
        doc = json.loads(get(host, "/npm/half", SHORT)[3])
        self.assertEqual((sorted(doc["versions"]), doc["dist-tags"]), (["1.0.0", "1.5.0"], {"latest": "1.5.0"}))
        self.assertIn(get(host, "/npm/half/-/half-2.0.0.tgz")[0], (403, 404))
        self.assertEqual(cache.counters("pypi")["denials"], 1)
        self.assertEqual({e["name"] for e in cache.event("denied")}, {"evil-lib", "bad"})

    def test_min_age_hides_the_young(self):
        now = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())
        old, _ = self.up.add_wheel("demo", "1.0")
        young, _ = self.up.add_wheel("demo", "2.0", uploaded=now)
        only, _ = self.up.add_wheel("fresh", "1.0", uploaded=now)
        self.up.add_npm("thing", "1.0.0")
        self.up.add_npm("thing", "2.0.0", uploaded=now)
        self.up.add_npm("new", "1.0.0", uploaded=now)
        cache = self.start_cache(min_age=7 * 86400)
        host = cache.listen()
        self.assertEqual(list(self.file_url(host, "demo")), [old])
        digest = self.up.pypi["demo"][1]["hashes"]["sha256"]
        self.assertEqual(get(host, f"/pypi/files/demo/{digest}/{young}")[0], 403)
        status, reason, _, _ = get(host, self.file_url(host, "fresh")[only])
        self.assertEqual(status, 403)
        self.assertIn("younger than 7 days", reason)
        doc = json.loads(get(host, "/npm/thing", SHORT)[3])
        self.assertEqual((list(doc["versions"]), doc["dist-tags"]["latest"]), (["1.0.0"], "1.0.0"))
        self.assertNotIn("scripts", doc["versions"]["1.0.0"])
        self.assertEqual(get(host, "/npm/new", SHORT)[0], 403)

    def test_min_age_of_plain_pages(self):
        """Mirrors that have HTML alone, with times or without."""
        now = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())
        self.up.html_only = True
        old, _ = self.up.add_wheel("demo", "1.0")
        self.up.add_wheel("demo", "2.0", uploaded=now)
        unknown, _ = self.up.add_wheel("silent", "1.0", uploaded=None)
        host = self.start_cache(min_age=7 * 86400).listen()
        self.assertEqual(list(self.file_url(host, "demo")), [old])
        status, reason, _, _ = get(host, self.file_url(host, "silent")[unknown])
        self.assertEqual((status, reason), (403, "Denied by policy: 'silent' 1.0 has no upload time, so its age is unknown (min_age is 7 days)"))
