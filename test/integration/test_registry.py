"""ripcord-registry alone, with the tests as its daemon: what it keeps, what it refuses, and what it survives."""
import concurrent.futures
import hashlib
import json
import os
import socket
import struct
import subprocess
import threading
import time
import unittest

import registry_box
from registry_box import LIST, PRUNE, SHOW, TAG_AGE, TAG_KEEP, TAG_PATH, VERIFY, get
from ripcord_test import Config, full_run_only

JSON = {"Accept": "application/vnd.pypi.simple.v1+json"}
SHORT = {"Accept": "application/vnd.npm.install-v1+json"}
BIG = 3 << 20


def at_once(n, fn):
    with concurrent.futures.ThreadPoolExecutor(n) as pool:
        return list(pool.map(fn, range(n)))


class Serving(registry_box.TestCase):
    def test_index_in_both_forms(self):
        self.up.add_wheel("demo-pkg", "1.0", yanked="broken <&\"> badly")
        host = self.registry().listen()
        status, _, headers, body = get(host, "/pypi/simple/demo-pkg/", JSON)
        page = json.loads(body)
        self.assertEqual((status, headers["content-type"]), (200, "application/vnd.pypi.simple.v1+json"))
        entry = page["files"][0]
        self.assertEqual(page["versions"], ["1.0"])
        self.assertEqual((entry["requires-python"], entry["yanked"]), (">=3.6", "broken <&\"> badly"))
        self.assertEqual(entry["core-metadata"]["sha256"],
                         hashlib.sha256(self.up.files["/files/demo_pkg-1.0-py3-none-any.whl.metadata"]).hexdigest())
        _, _, headers, html = get(host, "/pypi/simple/demo-pkg/", {"Accept": "text/html"})
        self.assertIn("text/html", headers["content-type"])
        self.assertIn(b'data-requires-python="&gt;=3.6"', html)
        self.assertIn(b'data-yanked="broken &lt;&amp;&quot;&gt; badly"', html)
        self.assertIn(b"#sha256=" + entry["hashes"]["sha256"].encode(), html)
        self.assertEqual(self.up.count("/simple/"), 1)

    def test_names_are_normalised(self):
        self.up.add_wheel("demo-pkg", "1.0")
        host = self.registry().listen()
        status, _, headers, _ = get(host, "/pypi/simple/Demo_.Pkg/")
        self.assertEqual((status, headers["location"]), (301, "/pypi/simple/demo-pkg/"))
        self.assertEqual(get(host, "/pypi/simple/demo-pkg")[2]["location"], "/pypi/simple/demo-pkg/")
        self.assertEqual(get(host, "/pypi/simple/")[0], 200)

    def test_html_only_upstream(self):
        file, data = self.up.add_wheel("demo", "1.0")
        self.up.html_only = True
        host = self.registry().listen()
        url = self.file_url(host, "demo")[file]
        self.assertEqual(get(host, url)[3], data)

    def test_files_and_metadata_are_verified_and_kept(self):
        file, data = self.up.add_wheel("demo", "1.0", os.urandom(5000))
        reg = self.registry()
        host = reg.listen()
        url = self.file_url(host, "demo")[file]
        for i in range(3):
            self.assertEqual(get(host, url)[3], data)
            self.assertEqual(get(host, url + ".metadata")[3], self.up.files[f"/files/{file}.metadata"])
        self.assertEqual(self.up.count("/files/"), 2)
        self.assertEqual(int(get(host, url, method="HEAD")[2]["content-length"]), len(data))
        self.assertEqual(len(self.stored()), 2)
        c = reg.counters("pypi")
        self.assertEqual((c["misses"], c["hits"]), (2, 5))

    def test_packument_forms_and_tarballs(self):
        self.up.add_npm("plain", "1.0.0")
        data = self.up.add_npm("@corp/thing", "2.1.0", dependencies={"plain": "^1.0.0"})
        host = self.registry().listen()
        for path in ("/npm/@corp/thing", "/npm/@corp%2fthing", "/npm/@corp%2Fthing"):
            status, _, headers, body = get(host, path, SHORT)
            self.assertEqual((status, headers["content-type"]), (200, SHORT["Accept"]), path)
            doc = json.loads(body)
            self.assertEqual(doc["dist-tags"], {"latest": "2.1.0"})
            self.assertNotIn("scripts", doc["versions"]["2.1.0"])
        tarball = doc["versions"]["2.1.0"]["dist"]["tarball"]
        self.assertEqual(tarball, f"http://{host}/npm/@corp/thing/-/thing-2.1.0.tgz")
        self.assertEqual(get(host, tarball.split(host)[1])[3], data)
        full = json.loads(get(host, "/npm/@corp/thing")[3])
        self.assertEqual((full["versions"]["2.1.0"]["scripts"], "readme" in full), ({"test": "true"}, False))
        self.assertIn("2.1.0", full["time"])

    def test_services_of_npm(self):
        host = self.registry().listen()
        self.assertEqual(get(host, "/npm/-/ping")[:1], (200,))
        self.assertEqual(get(host, "/npm/-/whoami")[0], 401)
        self.assertEqual(json.loads(get(host, "/npm/-/v1/search?text=x")[3])["total"], 0)
        self.assertEqual(get(host, "/npm/-/npm/v1/security/advisories/bulk", method="POST")[3], b"{}")
        self.assertEqual(get(host, "/npm/-/npm/v1/security/audits/quick", method="POST")[0], 200)
        self.assertEqual(get(host, "/npm/-/npm/v1/tokens")[0], 404)

    def test_fifty_askers_one_download(self):
        file, data = self.up.add_wheel("demo", "1.0", os.urandom(BIG))
        reg = self.registry()
        doors = [reg.listen(f"box{i}") for i in range(5)]
        self.up.delay = 0.3
        pages = at_once(50, lambda i: self.file_url(doors[i % 5], "demo")[file])
        self.assertEqual(self.up.count("/simple/demo/"), 1)
        self.assertTrue(all(get(doors[i % 5], pages[0])[3] == data for i in range(2)))
        file, data = self.up.add_wheel("other", "1.0", os.urandom(BIG))
        url = self.file_url(doors[0], "other")[file]
        self.assertEqual(at_once(50, lambda i: get(doors[i % 5], url)[3] == data), [True] * 50)
        self.assertEqual(self.up.count("/files/other"), 1)

    def test_counters_of_sandboxes(self):
        file, data = self.up.add_wheel("demo", "1.0", os.urandom(1000))
        reg = self.registry()
        a, b = reg.listen("a"), reg.listen("b")
        url = self.file_url(a, "demo")[file]
        get(a, url)
        before = reg.counters("pypi")["bytes_upstream"]
        get(b, url)
        boxes = reg.stats()["sandboxes"]
        self.assertEqual(reg.counters("pypi")["bytes_upstream"], before)
        self.assertEqual((boxes["a"]["pypi"]["misses"], boxes["b"]["pypi"]["hits"]), (1, 1))
        self.assertEqual((boxes["b"]["pypi"]["bytes_upstream"], boxes["b"]["pypi"]["bytes_store"]), (0, len(data)))
        reg.ask(registry_box.FORGET, (registry_box.TAG_SANDBOX, "b"))
        with self.assertRaises(OSError):
            get(b, url)
        with self.assertRaisesRegex(registry_box.Refused, "does not know sandbox"):
            reg.ask(registry_box.FORGET, (registry_box.TAG_SANDBOX, "b"))
        self.assertEqual(get(a, url)[0], 200)


class Upstreams(registry_box.TestCase):
    def test_pages_are_revalidated(self):
        self.up.add_wheel("demo", "1.0")
        host = self.registry(metadata_life=0).listen()
        first = get(host, "/pypi/simple/demo/", JSON)
        second = get(host, "/pypi/simple/demo/", JSON)
        self.assertEqual((first[3], self.up.count("/simple/demo/")), (second[3], 2))
        self.up.add_wheel("demo", "2.0")
        self.assertIn(b"demo-2.0", get(host, "/pypi/simple/demo/", JSON)[3])

    def test_stale_when_upstream_is_down(self):
        file, data = self.up.add_wheel("demo", "1.0")
        self.up.add_npm("plain", "1.0.0")
        reg = self.registry(metadata_life=0)
        host = reg.listen()
        url = self.file_url(host, "demo")[file]
        get(host, url)
        get(host, "/npm/plain", SHORT)
        self.up.stop()
        for path, eco in (("/pypi/simple/demo/", "pypi"), ("/npm/plain", "npm")):
            status, _, headers, _ = get(host, path, SHORT)
            self.assertEqual((status, headers["x-ripcord-cache"]), (200, "stale"))
            self.assertIn("warning", headers)
            self.assertEqual(reg.counters(eco)["stale"], 1)
        self.assertEqual(get(host, url)[3], data)
        status, reason, _, body = get(host, "/pypi/simple/unknown/")
        self.assertEqual(status, 502, reason)
        self.assertTrue(reg.event("upstream_down"))

    def test_offline_modes(self):
        file, data = self.up.add_wheel("demo", "1.0")
        reg = self.registry()
        host = reg.listen()
        url = self.file_url(host, "demo")[file]
        get(host, url)
        reg.stop()
        host = self.registry(offline="always", metadata_life=0).listen()
        asked = len(self.up.requests)
        self.assertEqual(get(host, "/pypi/simple/demo/")[0], 200)
        self.assertEqual(get(host, url)[3], data)
        self.assertEqual(get(host, "/pypi/simple/other/")[0], 504)
        self.assertEqual(len(self.up.requests), asked)
        self.up.stop()
        host = self.registry(offline="never", metadata_life=0).listen()
        self.assertEqual(get(host, "/pypi/simple/demo/")[0], 502)

    def test_scopes_keep_private_names_private(self):
        inner = registry_box.Upstream(self.certificates)
        self.addCleanup(inner.stop)
        inner.auth = "Basic " + "dTpw"  # u:p
        inner.add_wheel("corp-lib", "1.0")
        inner.add_npm("@corp/lib", "1.0.0")
        self.up.add_wheel("corp-lib", "99.0")
        self.up.add_wheel("corp-secret", "1.0")
        self.up.add_npm("@corp/lib", "99.0.0")
        key = {"user": "u", "password": "p"}
        reg = self.registry([self.up.as_pypi(), self.up.as_npm(), inner.as_pypi("corp", names=["corp-*"], **key),
                             inner.as_npm("corp-npm", names=["@corp/*"], **key)])
        host = reg.listen()
        self.assertEqual(list(self.file_url(host, "corp-lib")), ["corp_lib-1.0-py3-none-any.whl"])
        self.assertEqual(list(json.loads(get(host, "/npm/@corp/lib", SHORT)[3])["versions"]), ["1.0.0"])
        self.assertEqual(get(host, "/pypi/simple/corp-secret/")[0], 404)
        self.assertEqual(self.up.count("corp"), 0)
        self.assertNotIn("dTpw", json.dumps(reg.stats()))

    def test_credentials_stay_with_their_host(self):
        seen = []
        other = registry_box.Upstream(self.certificates)
        self.addCleanup(other.stop)
        self.up.auth = "Bearer t0k"
        other.hooks["/away"] = lambda h: (seen.append(h.headers.get("Authorization")), other.send(h, 404, b""))
        self.up.hooks["/simple/demo/"] = lambda h: self.up.send(h, 302, b"", Location=f"{other.url}/away")
        # trusted as a place to go to, not as the owner of the token: it belongs to another upstream
        host = self.registry([self.up.as_pypi(token="t0k")]).listen()
        self.assertEqual(get(host, "/pypi/simple/demo/")[0], 403)
        self.assertEqual(seen, [])

    def test_custom_authority_is_needed(self):
        self.up.add_wheel("demo", "1.0")
        host = self.registry([{**self.up.as_pypi(), "ca_file": None}]).listen()
        status, reason, _, body = get(host, "/pypi/simple/demo/")
        self.assertEqual(status, 502)
        self.assertIn("certificate", json.loads(body)["error"])

    def test_proxy_variables(self):
        file, data = self.up.add_wheel("demo", "1.0")
        for name in ("literal", "scheme"):
            to = {"literal": "https://10.0.0.1/x", "scheme": "http://example.com/"}[name]
            self.up.hooks[f"/simple/{name}/"] = lambda h, to=to: self.up.send(h, 302, b"", Location=to)
        proxy = registry_box.Proxy()
        self.addCleanup(proxy.listener.close)
        host = self.registry(env={"https_proxy": f"http://127.0.0.1:{proxy.port}"}).listen()
        self.assertEqual(get(host, self.file_url(host, "demo")[file])[3], data)
        for name in ("literal", "scheme"):
            self.assertEqual(get(host, f"/pypi/simple/{name}/")[0], 403)
        self.assertEqual(set(proxy.asked), {f"localhost:{self.up.port}"})

    def test_bad_configurations(self):
        for bad, words in (({"offline": "perhaps"}, "offline"), ({"deny": ["a b"]}, "deny"), ({"nonsense": 1}, "unknown"),
                           ({"upstreams": [{"name": "../x", "type": "pypi", "url": "https://x/"}]}, "name"),
                           ({"upstreams": [{"name": "x", "type": "pypi", "url": "http://x/"}]}, "https"),
                           ({"upstreams": [{"name": "x", "type": "rpm", "url": "https://x/"}]}, "rpm")):
            with self.assertRaisesRegex(registry_box.Refused, words):
                self.registry(**bad)


    def test_what_is_missing_is_not_asked_for_again_and_again(self):
        self.up.add_wheel("demo", "1.0")
        host = self.registry().listen()
        self.file_url(host, "demo")
        for _ in range(5):
            self.assertEqual(get(host, "/pypi/simple/nothing/")[0], 404)
            self.assertEqual(get(host, f"/pypi/files/demo/{'0' * 64}/no-1.0.whl")[0], 404)
        self.assertEqual((self.up.count("nothing"), self.up.count("/simple/demo/")), (1, 1))


class Hostile(registry_box.TestCase):
    """An upstream that lies, breaks off, or never ends."""

    def assert_nothing_kept(self, reg):
        self.assertEqual(self.stored(), {})
        self.assertEqual(list((self.tmp / "store" / "tmp").iterdir()), [])
        self.assertIsNone(reg.process.poll())

    def test_wrong_digest_small(self):
        file, data = self.up.add_wheel("demo", "1.0", os.urandom(1000))
        self.up.files[f"/files/{file}"] = bytes(len(data))
        reg = self.registry()
        host = reg.listen()
        status, reason, _, body = get(host, self.file_url(host, "demo")[file])
        self.assertEqual(status, 502)
        self.assertIn("not what the index promised", reason)
        self.assertIn("not what the index promised", json.loads(body)["error"])
        self.assertEqual(reg.event("mismatch")[0]["name"], "demo")
        self.assertEqual(reg.counters("pypi")["mismatches"], 1)
        self.assert_nothing_kept(reg)

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
        reg = self.registry()
        host = reg.listen()
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
        self.assertEqual(len(reg.event("mismatch")), 1)
        self.assert_nothing_kept(reg)

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
        host = self.registry().listen()
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
        host = self.registry().listen()
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
        reg = self.registry()
        host = reg.listen()
        url = self.file_url(host, "demo")[file]
        try:
            self.assertNotEqual(get(host, url)[0], 200)
        except Exception as e:  # cut off
            self.assertIn("IncompleteRead", type(e).__name__)
        self.assertEqual(len(tries), 2)
        self.assert_nothing_kept(reg)

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
        reg = self.registry()
        host = reg.listen()
        self.assertEqual(get(host, self.file_url(host, "demo")[file])[0], 502)
        self.assert_nothing_kept(reg)

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
        host = self.registry(stall_timeout=1).listen()
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
        reg = self.registry(metadata_max=4 << 20, artifact_max=4 << 20)
        host = reg.listen()
        for path in ("/npm/huge", "/pypi/simple/huge/", self.file_url(host, "demo")[file]):
            status, reason, _, _ = get(host, path)
            self.assertEqual(status, 502, path)
            self.assertRegex(reason, "over", path)
        self.assert_nothing_kept(reg)

    def test_announced_size_is_believed_against_it(self):
        file, data = self.up.add_wheel("demo", "1.0")
        self.up.hooks["/npm/huge"] = lambda h: (h.send_response(200), h.send_header("Content-Length", str(10 << 30)),
                                                h.end_headers(), h.wfile.write(b"{" * 100000))
        self.up.files[f"/files/{file}"] = data + b"more"
        reg = self.registry()
        host = reg.listen()
        status, reason, _, _ = get(host, self.file_url(host, "demo")[file])
        self.assertEqual((status, "the index says" in reason), (502, True), reason)
        self.assertEqual(get(host, "/npm/huge")[0] // 100, 5)
        self.assert_nothing_kept(reg)

    def test_redirects(self):
        inside = registry_box.Upstream(self.certificates)
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
        reg = self.registry()
        host = reg.listen()
        for name in targets:
            status, reason, _, body = get(host, f"/pypi/simple/{name}/")
            self.assertEqual(status, 403, (name, reason))
        self.assertEqual(inside.requests, [])
        self.assertEqual(get(host, "/pypi/simple/ok/")[0], 200)
        self.assert_nothing_kept(reg)

    def test_files_at_private_addresses(self):
        inside = registry_box.Upstream(self.certificates)
        self.addCleanup(inside.stop)
        file, _ = self.up.add_wheel("demo", "1.0", url=f"{inside.url}/secret")
        reg = self.registry()
        host = reg.listen()
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
        host = self.registry().listen()
        self.assertEqual(list(self.file_url(host, "demo")), [file])
        doc = json.loads(get(host, "/npm/thing", SHORT)[3])
        self.assertEqual(list(doc["versions"]), ["1.0.0"])
        self.assertEqual(get(host, "/npm/thing/-/thing-1.0.0.tgz")[3], data)

    def test_pages_that_are_no_pages(self):
        cases = {"million": b'<a href="x.whl">x.whl</a>' * 300000, "deep": b"[" * 100000, "nul": b"{\"files\":\"\0\"}",
                 "half": b'{"files":[{"filename"', "binary": bytes(range(256)) * 100, "long": b"<a href='" + b"x" * 100000}
        for name, body in cases.items():
            kind = "text/html" if name in ("million", "long") else "application/json"
            self.up.hooks[f"/simple/{name}/"] = lambda h, b=body, k=kind: self.up.send(h, 200, b, k)
            self.up.hooks[f"/npm/{name}"] = self.up.hooks[f"/simple/{name}/"]
        reg = self.registry()
        host = reg.listen()
        for name in cases:
            self.assertEqual(get(host, f"/pypi/simple/{name}/")[0], 502, name)
            self.assertEqual(get(host, f"/npm/{name}")[0], 502, name)
        self.assert_nothing_kept(reg)

    def test_sha1_only_is_marked(self):
        data = self.up.add_npm("old", "0.1.0", sha1_only=True)
        reg = self.registry()
        host = reg.listen()
        get(host, "/npm/old", SHORT)
        status, _, headers, body = get(host, "/npm/old/-/old-0.1.0.tgz")
        self.assertEqual((status, body, headers["x-ripcord-digest"]), (200, data, "sha1 only"))
        self.assertEqual(reg.counters("npm")["weak"], 1)
        self.assertTrue(reg.ask(LIST)["files"][0]["weak"])


class Sandboxes(registry_box.TestCase):
    """What a sandbox may try."""

    def test_only_registry_paths(self):
        host = self.registry().listen()
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
        host = self.registry().listen()
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
        reg = self.registry(connections_max=8, requests_per_second=5)
        host, other = reg.listen("a"), reg.listen("b")
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

    def test_slow_reader_holds_nobody_up(self):
        file, data = self.up.add_wheel("demo", "1.0", os.urandom(8 << 20))
        reg = self.registry()
        slow, host = reg.listen("slow"), reg.listen("b")
        url = self.file_url(host, "demo")[file]
        readers = []
        for _ in range(20):
            s = socket.socket()
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            s.connect(tuple((slow.split(":")[0], int(slow.split(":")[1]))))
            s.sendall(f"GET {url} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            readers.append(s)
        self.assertEqual(get(host, url)[3], data)
        rss = int(next(line for line in open(f"/proc/{reg.process.pid}/status", encoding="ascii")
                       if line.startswith("VmRSS")).split()[1])
        self.assertLess(rss, 400000 if Config.sanitized else 120000)
        for s in readers:
            s.close()

    def test_one_sandbox_leaves_workers_to_the_others(self):
        gate = threading.Event()
        self.addCleanup(gate.set)
        files = [self.up.add_wheel(f"p{i}", "1.0", os.urandom(1000)) for i in range(30)]
        one, data = self.up.add_wheel("other", "1.0")
        reg = self.registry(stall_timeout=60)
        host, other = reg.listen("a"), reg.listen("b")
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
        reg = self.registry(stall_timeout=60, connections_max=300)
        host, other = reg.listen("a"), reg.listen("b")
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
        reg = self.registry(stall_timeout=60)
        host, other = reg.listen("a"), reg.listen("b")
        url = self.file_url(host, "demo")[file]
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            lost, kept = pool.submit(get, host, url), None
            until = time.monotonic() + 10
            while not self.up.count("/files/") and time.monotonic() < until:
                time.sleep(0.02)
            kept = pool.submit(get, other, url)
            time.sleep(0.1)
            reg.ask(registry_box.FORGET, (registry_box.TAG_SANDBOX, "a"))
            gate.set()
            self.assertEqual(kept.result()[3], data)
            self.assertIsNotNone(lost.exception())
        self.assertEqual(self.up.count("/files/"), 1)

    def test_deny_list_tells_why(self):
        file, _ = self.up.add_wheel("evil-lib", "1.0")
        one, _ = self.up.add_wheel("mixed", "1.0")
        two, data = self.up.add_wheel("mixed", "2.0")
        self.up.add_npm("bad", "1.0.0")
        self.up.add_npm("half", "1.0.0")
        self.up.add_npm("half", "1.5.0")
        self.up.add_npm("half", "2.0.0")
        reg = self.registry(deny=["Evil_Lib", "pypi:mixed==1.0", "npm:bad", "half==2.0.0"])
        host = reg.listen()
        status, reason, _, _ = get(host, self.file_url(host, "evil-lib")[file])
        self.assertEqual(status, 403)
        self.assertIn("'evil-lib' is on the deny list", reason)
        self.assertEqual(list(self.file_url(host, "mixed")), [two])
        status, reason, _, body = get(host, "/npm/bad", SHORT)
        self.assertEqual((status, json.loads(body)["error"]), (403, "Denied by policy: 'bad' is on the deny list"))
        doc = json.loads(get(host, "/npm/half", SHORT)[3])
        self.assertEqual((sorted(doc["versions"]), doc["dist-tags"]), (["1.0.0", "1.5.0"], {"latest": "1.5.0"}))
        self.assertIn(get(host, "/npm/half/-/half-2.0.0.tgz")[0], (403, 404))
        self.assertEqual(reg.counters("pypi")["denials"], 1)
        self.assertEqual({e["name"] for e in reg.event("denied")}, {"evil-lib", "bad"})

    def test_min_age_hides_the_young(self):
        now = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())
        old, _ = self.up.add_wheel("demo", "1.0")
        young, _ = self.up.add_wheel("demo", "2.0", uploaded=now)
        only, _ = self.up.add_wheel("fresh", "1.0", uploaded=now)
        self.up.add_npm("thing", "1.0.0")
        self.up.add_npm("thing", "2.0.0", uploaded=now)
        self.up.add_npm("new", "1.0.0", uploaded=now)
        reg = self.registry(min_age=7 * 86400)
        host = reg.listen()
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


class Store(registry_box.TestCase):
    def test_list_show_verify_prune(self):
        file, data = self.up.add_wheel("demo", "1.0", os.urandom(10000))
        other, _ = self.up.add_wheel("other", "1.0", os.urandom(20000))
        reg = self.registry()
        host = reg.listen()
        url = self.file_url(host, "demo")[file]
        get(host, url)
        get(host, self.file_url(host, "other")[other])
        listed = reg.ask(LIST)
        self.assertEqual({f["file"] for f in listed["files"]}, {f"pypi/demo/{file}", f"pypi/other/{other}"})
        self.assertEqual({p["name"] for p in listed["pages"]}, {"demo", "other"})
        digest = "sha256:" + hashlib.sha256(data).hexdigest()
        self.assertEqual(reg.ask(SHOW, (TAG_PATH, digest))["size"], len(data))
        self.assertTrue(reg.ask(SHOW, (TAG_PATH, "pypi/Demo"))["files"][0]["stored"])
        with self.assertRaisesRegex(registry_box.Refused, "not in the cache"):
            reg.ask(SHOW, (TAG_PATH, "npm/none"))
        self.assertEqual(reg.ask(VERIFY)["bad"], [])
        path = next((self.tmp / "store" / "blobs").glob(f"sha256/*/{digest[7:]}"))
        os.chmod(path, 0o600)
        with open(path, "r+b") as f:
            f.write(b"rot")
        checked = reg.ask(VERIFY)
        self.assertEqual((checked["checked"], checked["bad"]), (2, [digest]))
        self.assertTrue(reg.event("corrupt"))
        self.assertEqual(get(host, url)[3], data, "it is fetched again")
        self.assertEqual(reg.ask(PRUNE, (TAG_AGE, 3600))["removed"], 0)
        self.assertEqual(reg.ask(PRUNE, (TAG_KEEP, 0))["removed"], 2)
        self.assertEqual(self.stored(), {})
        self.assertEqual(get(host, url)[3], data)

    def test_budget_evicts_the_longest_unused(self):
        files = [self.up.add_wheel(f"p{i}", "1.0", os.urandom(300000)) for i in range(6)]
        reg = self.registry(budget=1 << 20)
        host = reg.listen()
        urls = [self.file_url(host, f"p{i}")[files[i][0]] for i in range(6)]
        get(host, urls[0])
        time.sleep(1.1)
        for i in (1, 2, 3, 4, 5):
            self.assertEqual(get(host, urls[i])[3], files[i][1])
        stats = reg.stats()["store"]
        self.assertLessEqual(stats["bytes"], 1 << 20)
        self.assertGreater(stats["evicted"], 0)
        kept = self.stored()
        self.assertEqual(sum(map(len, kept.values())), stats["bytes"])
        self.assertNotIn(hashlib.sha256(files[0][1]).hexdigest(), kept)

    def test_pages_have_a_budget(self):
        for i in range(8):
            for k in range(20):
                self.up.add_wheel(f"p{i}", f"1.{k}", yanked="y" * 1000)
        reg = self.registry(metadata_budget=100000)
        host = reg.listen()
        for i in range(8):
            self.file_url(host, f"p{i}")
        pages = self.tmp / "store" / "pages" / "pypi" / "pypi"
        until = time.monotonic() + 5
        while time.monotonic() < until and len(list(pages.iterdir())) == 8:
            time.sleep(0.05)
        self.assertLess(len(list(pages.iterdir())), 8)
        self.assertEqual(get(host, "/pypi/simple/p0/")[0], 200)

    def test_eviction_leaves_running_downloads_alone(self):
        file, data = self.up.add_wheel("demo", "1.0", os.urandom(16 << 20))
        reg = self.registry()
        host = reg.listen()
        url = self.file_url(host, "demo")[file]
        get(host, url)
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            s.settimeout(20)
            s.connect((host.split(":")[0], int(host.split(":")[1])))
            s.sendall(f"GET {url} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
            got = s.recv(65536)
            self.assertEqual(reg.ask(PRUNE, (TAG_KEEP, 0))["removed"], 1)
            while piece := s.recv(1 << 20):
                got += piece
        self.assertEqual(got.partition(b"\r\n\r\n")[2], data)

    def test_kill_in_the_middle_of_downloads(self):
        files = [self.up.add_wheel(f"p{i}", "1.0", os.urandom(BIG)) for i in range(20)]
        served = dict(self.up.files)

        def slowly(h):
            data = served[h.path]
            h.send_response(200)
            h.send_header("Content-Length", str(len(data)))
            h.end_headers()
            for at in range(0, len(data), 1 << 18):
                h.wfile.write(data[at:at + (1 << 18)])
                time.sleep(0.02)

        for path in served:
            if not path.endswith(".metadata"):
                self.up.hooks[path] = slowly
        reg = self.registry()
        host = reg.listen()
        urls = [self.file_url(host, f"p{i}")[files[i][0]] for i in range(20)]

        def fetch(i):
            try:
                return get(host, urls[i])[3]
            except Exception:  # cut off: that is the point
                return None

        with concurrent.futures.ThreadPoolExecutor(20) as pool:
            results = [pool.submit(fetch, i) for i in range(20)]
            time.sleep(0.35)
            reg.kill()
            for i, r in enumerate(results):
                self.assertIn(r.result(), (None, files[i][1]))
        self.stored()
        self.up.hooks.clear()
        reg.start()
        self.assertEqual(list((self.tmp / "store" / "tmp").iterdir()), [])
        host = reg.listen()
        self.assertEqual(at_once(20, lambda i: get(host, urls[i])[3] == files[i][1]), [True] * 20)
        self.assertEqual(reg.ask(VERIFY)["bad"], [])

    def test_ends_with_its_daemon(self):
        file, data = self.up.add_wheel("demo", "1.0", os.urandom(1000))
        reg = self.registry()
        host = reg.listen()
        self.file_url(host, "demo")
        reg.control.close()
        self.assertEqual(reg.process.wait(10), 0)

    def test_confined(self):
        program = (Config.bin / "ripcord-registry").read_bytes()
        if b"__asan_init" in program or b"__tsan_init" in program:
            self.skipTest("the sanitizers need calls that the filter denies")
        reg = self.registry()
        status = dict(line.split(":\t") for line in open(f"/proc/{reg.process.pid}/status", encoding="ascii").read().splitlines()
                      if ":\t" in line)
        self.assertEqual((status["Seccomp"], status["NoNewPrivs"]), ("2", "1"))
        if os.geteuid() == 0:
            self.assertEqual(status["Uid"].split(), ["65531"] * 4)
            self.assertEqual((int(status["CapEff"], 16), int(status["CapBnd"], 16)), (0, 0))
            self.assertEqual(status["Groups"].strip(), "")

    def test_nonsense_on_the_control_socket(self):
        reg = self.registry()
        reg.control.send(struct.pack("=HHIQ", 4242, 0, 0, 7))
        kind, seq, fields, _ = reg.receive()
        self.assertEqual((kind, seq), (registry_box.RESULT, 7))
        self.assertIn(b"does not know", fields[registry_box.TAG_ERR_MSG])
        reg.control.send(b"xx")
        self.assertEqual(reg.receive()[0], registry_box.RESULT)
        with self.assertRaisesRegex(registry_box.Refused, "without"):
            reg.ask(registry_box.LISTEN, (registry_box.TAG_SANDBOX, "x"))
        self.assertTrue(reg.stats())

    def mixed(self, seconds, clients):
        """Parallel mixed downloads while the registry is killed and started again; the store verified after."""
        wheels = [self.up.add_wheel(f"p{i}", "1.0", os.urandom(50000 + 100000 * i)) for i in range(12)]
        tars = [self.up.add_npm(f"n{i}", "1.0.0", os.urandom(30000 + 70000 * i)) for i in range(12)]
        reg = self.registry()
        door = socket.create_server(("127.0.0.1", 0), backlog=512)
        host = f"127.0.0.1:{door.getsockname()[1]}"
        reg.ask(registry_box.LISTEN, (registry_box.TAG_SANDBOX, "a"), fd=door.fileno())
        until, wrong, good = time.monotonic() + seconds, [], []

        def client(i):
            n = i
            while time.monotonic() < until:
                n += 7
                k = n % 12
                try:
                    if n % 2:
                        body = get(host, self.file_url(host, f"p{k}")[wheels[k][0]], timeout=10)
                        want = wheels[k][1]
                    else:
                        get(host, f"/npm/n{k}", SHORT, timeout=10)
                        body, want = get(host, f"/npm/n{k}/-/n{k}-1.0.0.tgz", timeout=10), tars[k]
                except Exception:  # killed under us
                    continue
                (good if body[3] == want else wrong).append(body[0])

        with concurrent.futures.ThreadPoolExecutor(clients) as pool:
            jobs = [pool.submit(client, i) for i in range(clients)]
            while time.monotonic() < until - 0.5:
                time.sleep(0.4)
                reg.kill()
                reg.start()
                reg.ask(registry_box.LISTEN, (registry_box.TAG_SANDBOX, "a"), fd=door.fileno())
                reg.ask(PRUNE, (TAG_KEEP, 1 << 20))
            for j in jobs:
                j.result()
        door.close()
        self.assertTrue(good)
        self.assertEqual([s for s in wrong if s == 200], [])
        self.stored()
        self.assertEqual(reg.ask(VERIFY)["bad"], [])

    @full_run_only
    def test_mixed_downloads_with_restarts(self):
        self.mixed(30 if Config.soak else 3, 200 if Config.soak else 16)


def which(*programs):
    return next((p for p in programs if subprocess.run(["sh", "-c", f"command -v {p}"], stdout=subprocess.DEVNULL,
                                                       check=False).returncode == 0), None)


class Tools(registry_box.TestCase):
    """Real installers."""

    def run_tool(self, *argv, code=0, cwd=None, **env):
        clean = {"PATH": os.environ["PATH"], "HOME": str(self.tmp), "LC_ALL": "C.UTF-8", "PIP_CONFIG_FILE": "/dev/null",
                 "PIP_DISABLE_PIP_VERSION_CHECK": "1", "NPM_CONFIG_CACHE": str(self.tmp / "npm-cache"),
                 "NPM_CONFIG_UPDATE_NOTIFIER": "false", "NPM_CONFIG_FUND": "false", **env}
        p = subprocess.run(argv, env=clean, cwd=cwd or self.tmp, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                           timeout=180, check=False)
        self.assertEqual(p.returncode, code, f"{argv}: {p.stdout}")
        return p.stdout

    def pip(self, host, target, *names, **kwargs):
        return self.run_tool("/usr/bin/python3", "-m", "pip", "install", "--no-cache-dir", "--target", str(self.tmp / target),
                             "--index-url", f"http://{host}/pypi/simple/", *names, **kwargs)

    def need_pip(self):
        if subprocess.run(["/usr/bin/python3", "-m", "pip", "--version"], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, check=False).returncode:
            self.skipTest("Debian's pip is not installed")

    def test_pip_installs(self):
        self.need_pip()
        self.up.add_wheel("demo-pkg", "1.0", requires=["helper>=2"])
        self.up.add_wheel("demo-pkg", "0.9")
        self.up.add_wheel("helper", "2.5")
        reg = self.registry(metadata_life=0)
        host = reg.listen()
        self.pip(host, "a", "Demo_Pkg")
        self.assertIn("1.0", (self.tmp / "a" / "demo_pkg.py").read_text(encoding="ascii"))
        self.assertTrue((self.tmp / "a" / "helper.py").exists())
        self.up.stop()
        self.pip(reg.listen("b"), "b", "demo-pkg==1.0")
        self.assertTrue((self.tmp / "b" / "helper.py").exists())

    @full_run_only
    def test_pip_refuses_what_is_wrong_and_says_why(self):
        self.need_pip()
        file, data = self.up.add_wheel("demo", "1.0", os.urandom(1000))
        self.up.files[f"/files/{file}"] = bytes(len(data))
        denied, _ = self.up.add_wheel("evil", "1.0")
        host = self.registry(deny=["evil"]).listen()
        self.assertIn("not what the index promised", self.pip(host, "a", "demo", code=1))
        self.assertIn("is on the deny list", self.pip(host, "a", "evil", code=1))

    def test_npm_installs(self):
        if not which("npm"):
            self.skipTest("npm is not installed")
        self.up.add_npm("leaf", "1.2.0")
        self.up.add_npm("@corp/tree", "2.0.0", dependencies={"leaf": "^1.0.0"})
        reg = self.registry(metadata_life=0, deny=["npm:evil"])
        for box in ("a", "b"):
            host, folder = reg.listen(box), self.tmp / box
            folder.mkdir()
            (folder / "package.json").write_text("{}", encoding="ascii")
            self.run_tool("npm", "install", "@corp/tree", cwd=folder, NPM_CONFIG_REGISTRY=f"http://{host}/npm/",
                          NPM_CONFIG_CACHE=str(self.tmp / f"cache-{box}"))
            self.assertIn("1.2.0", (folder / "node_modules/leaf/index.js").read_text(encoding="ascii"))
            self.up.stop()
        out = self.run_tool("npm", "install", "evil", code=1, cwd=folder, NPM_CONFIG_REGISTRY=f"http://{host}/npm/",
                            NPM_CONFIG_FETCH_RETRIES="0")
        self.assertIn("is on the deny list", out)


def public_registries_answer():
    for host in ("pypi.org", "registry.npmjs.org"):
        try:
            socket.create_connection((host, 443), timeout=5).close()
        except OSError as e:
            return f"{host} does not answer here: {e}"
    return None


class Live(Tools):
    """The public registries, where they can be reached."""

    def setUp(self):
        super().setUp()
        reason = "not in a quick run" if Config.quick else public_registries_answer()
        if reason:
            self.skipTest(reason)

    test_pip_installs = test_pip_refuses_what_is_wrong_and_says_why = test_npm_installs = None

    def live(self):
        reg = registry_box.Registry(self.tmp / "store", [
            {"name": "pypi", "type": "pypi", "url": "https://pypi.org/simple/"},
            {"name": "npm", "type": "npm", "url": "https://registry.npmjs.org/"}], connect_timeout=10, stall_timeout=30)
        self.addCleanup(reg.stop)
        return reg

    def test_live_pip_twice(self):
        self.need_pip()
        reg = self.live()
        self.pip(reg.listen("a"), "a", "idna==3.7")
        before = reg.counters("pypi")["bytes_upstream"]
        self.pip(reg.listen("b"), "b", "idna==3.7")
        self.assertEqual(reg.counters("pypi")["bytes_upstream"], before)
        self.assertTrue((self.tmp / "b" / "idna" / "core.py").exists())

    def test_live_npm_twice(self):
        if not which("npm"):
            self.skipTest("npm is not installed")
        reg = self.live()
        before = None
        for box in ("a", "b"):
            host, folder = reg.listen(box), self.tmp / box
            folder.mkdir()
            (folder / "package.json").write_text("{}", encoding="ascii")
            self.run_tool("npm", "install", "is-odd@3.0.1", cwd=folder, NPM_CONFIG_REGISTRY=f"http://{host}/npm/",
                          NPM_CONFIG_CACHE=str(self.tmp / f"cache-{box}"))
            self.assertTrue((folder / "node_modules/is-number/index.js").exists())
            self.assertIn(before, (None, reg.counters("npm")["bytes_upstream"]))
            before = reg.counters("npm")["bytes_upstream"]

    def project(self, name):
        folder = self.tmp / name
        folder.mkdir()
        manifest = {"name": name, "version": "1.0.0", "license": "MIT", "dependencies": {"is-odd": "3.0.1"}}
        (folder / "package.json").write_text(json.dumps(manifest), encoding="ascii")
        return folder

    def test_live_uv(self):
        self.need_pip()
        if Config.sanitized:
            self.skipTest("the plain build has shown it")
        reg = self.live()
        host = reg.listen()
        self.pip(host, "tools", "uv==0.5.11")
        before = None
        for box in ("a", "b"):
            self.run_tool(str(self.tmp / "tools/bin/uv"), "pip", "install", "--python", "/usr/bin/python3", "--target",
                          str(self.tmp / box), "idna==3.7", UV_DEFAULT_INDEX=f"http://{reg.listen(box)}/pypi/simple/",
                          UV_CACHE_DIR=str(self.tmp / f"cache-{box}"))
            self.assertTrue((self.tmp / box / "idna" / "core.py").exists())
            self.assertIn(before, (None, reg.counters("pypi")["bytes_upstream"]))
            before = reg.counters("pypi")["bytes_upstream"]

    def test_live_other_installers(self):
        if not Config.soak:
            self.skipTest("in a soak only: it fetches each of these programs")
        self.need_pip()
        reg = self.live()
        host = reg.listen()
        npm = {"NPM_CONFIG_REGISTRY": f"http://{host}/npm/", "BUN_CONFIG_REGISTRY": f"http://{host}/npm/",
               "YARN_NPM_REGISTRY_SERVER": f"http://{host}/npm/", "YARN_UNSAFE_HTTP_WHITELIST": "127.0.0.1",
               "YARN_ENABLE_TELEMETRY": "0", "YARN_NODE_LINKER": "node-modules"}
        self.pip(host, "tools", "pip")
        self.run_tool("/usr/bin/python3", str(self.tmp / "tools/pip"), "install", "--target", str(self.tmp / "new"),
                      "--index-url", f"http://{host}/pypi/simple/", "idna==3.7")
        for name, argv in {"pnpm": ["pnpm@9", "install"], "yarn": ["yarn@1.22.22", "install", "--registry", f"http://{host}/npm/"],
                           "berry": ["-p", "@yarnpkg/cli-dist@4.5.0", "yarn", "install"], "bun": ["bun@1.1.30", "install"]}.items():
            folder = self.project(name)
            (folder / "yarn.lock").touch()
            self.run_tool("npx", "-y", *argv, cwd=folder, **npm)
            self.assertTrue((folder / "node_modules/is-odd/index.js").exists(), name)
        folder = self.project("npm")
        self.run_tool("npm", "install", cwd=folder, **npm)
        self.assertIn("found 0", self.run_tool("npm", "audit", cwd=folder, **npm))


if __name__ == "__main__":
    unittest.main()
