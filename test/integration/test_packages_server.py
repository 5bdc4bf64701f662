"""ripcord-packages alone, with the tests as its daemon: what it serves, keeps and survives."""
import concurrent.futures
import gzip
import hashlib
import http.client
import json
import os
import socket
import struct
import threading
import time

import packages_fixture
from packages_fixture import BIG, JSON, LIST, PRUNE, SHORT, SHOW, TAG_AGE, TAG_KEEP, TAG_PATH, VERIFY, at_once, get
from ripcord_test import Config, full_run_only


class Serving(packages_fixture.TestCase):
    def test_index_in_both_forms(self):
        self.up.add_wheel("demo-pkg", "1.0", yanked="broken <&\"> badly")
        host = self.start_cache().listen()
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
        host = self.start_cache().listen()
        status, _, headers, _ = get(host, "/pypi/simple/Demo_.Pkg/")
        self.assertEqual((status, headers["location"]), (301, "/pypi/simple/demo-pkg/"))
        self.assertEqual(get(host, "/pypi/simple/demo-pkg")[2]["location"], "/pypi/simple/demo-pkg/")
        self.assertEqual(get(host, "/pypi/simple/")[0], 200)

    def test_html_only_upstream(self):
        file, data = self.up.add_wheel("demo", "1.0")
        self.up.html_only = True
        host = self.start_cache().listen()
        url = self.file_url(host, "demo")[file]
        self.assertEqual(get(host, url)[3], data)

    def test_files_and_metadata_are_verified_and_kept(self):
        file, data = self.up.add_wheel("demo", "1.0", os.urandom(5000))
        cache = self.start_cache()
        host = cache.listen()
        url = self.file_url(host, "demo")[file]
        for i in range(3):
            self.assertEqual(get(host, url)[3], data)
            self.assertEqual(get(host, url + ".metadata")[3], self.up.files[f"/files/{file}.metadata"])
        self.assertEqual(self.up.count("/files/"), 2)
        self.assertEqual(int(get(host, url, method="HEAD")[2]["content-length"]), len(data))
        self.assertEqual(len(self.stored()), 2)
        c = cache.counters("pypi")
        self.assertEqual((c["misses"], c["hits"]), (2, 5))

    def test_packument_forms_and_tarballs(self):
        self.up.add_npm("plain", "1.0.0")
        data = self.up.add_npm("@corp/thing", "2.1.0", dependencies={"plain": "^1.0.0"})
        host = self.start_cache().listen()
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

    def test_one_document_is_enough_for_a_tarball(self):
        """npm reads the long one, pnpm the short one: what either lists need not be looked up again."""
        host = self.start_cache().listen()
        for name, accept in ("long", {}), ("short", SHORT):
            data = self.up.add_npm(name, "1.0.0")
            get(host, f"/npm/{name}", accept)
            self.assertEqual(get(host, f"/npm/{name}/-/{name}-1.0.0.tgz")[3], data)
            self.assertEqual(self.up.count(f"/npm/{name}"), 1)
            self.assertEqual(get(host, f"/npm/{name}/-/{name}-2.0.0.tgz")[0], 404)

    def test_packed_pages_count_as_they_come(self):
        self.up.add_npm("plain", "1.0.0", description="x" * 50000)
        packed = gzip.compress(json.dumps(self.up.npm["plain"]).encode())
        self.up.hooks["/npm/plain"] = lambda h: self.up.send(h, 200, packed, "application/json", Content_Encoding="gzip")
        cache = self.start_cache()
        self.assertGreater(len(get(cache.listen(), "/npm/plain")[3]), 50000)
        self.assertEqual(cache.counters("npm")["bytes_upstream"], len(packed))

    def test_services_of_npm(self):
        host = self.start_cache().listen()
        self.assertEqual(get(host, "/npm/-/ping")[:1], (200,))
        self.assertEqual(get(host, "/npm/-/whoami")[0], 401)
        self.assertEqual(json.loads(get(host, "/npm/-/v1/search?text=x")[3])["total"], 0)
        self.assertEqual(get(host, "/npm/-/npm/v1/security/advisories/bulk", method="POST")[3], b"{}")
        self.assertEqual(get(host, "/npm/-/npm/v1/security/audits/quick", method="POST")[0], 200)
        self.assertEqual(get(host, "/npm/-/npm/v1/tokens")[0], 404)

    def test_fifty_askers_one_download(self):
        file, data = self.up.add_wheel("demo", "1.0", os.urandom(BIG))
        cache = self.start_cache()
        listeners = [cache.listen(f"box{i}") for i in range(5)]
        self.up.delay = 0.3
        pages = at_once(50, lambda i: self.file_url(listeners[i % 5], "demo")[file])
        self.assertEqual(self.up.count("/simple/demo/"), 1)
        self.assertTrue(all(get(listeners[i % 5], pages[0])[3] == data for i in range(2)))
        file, data = self.up.add_wheel("other", "1.0", os.urandom(BIG))
        url = self.file_url(listeners[0], "other")[file]
        self.assertEqual(at_once(50, lambda i: get(listeners[i % 5], url)[3] == data), [True] * 50)
        self.assertEqual(self.up.count("/files/other"), 1)

    def test_counters_of_sandboxes(self):
        file, data = self.up.add_wheel("demo", "1.0", os.urandom(1000))
        cache = self.start_cache()
        a, b = cache.listen("a"), cache.listen("b")
        url = self.file_url(a, "demo")[file]
        get(a, url)
        before = cache.counters("pypi")["bytes_upstream"]
        get(b, url)
        boxes = cache.stats()["sandboxes"]
        self.assertEqual(cache.counters("pypi")["bytes_upstream"], before)
        self.assertEqual((boxes["a"]["pypi"]["misses"], boxes["b"]["pypi"]["hits"]), (1, 1))
        self.assertEqual((boxes["b"]["pypi"]["bytes_upstream"], boxes["b"]["pypi"]["bytes_store"]), (0, len(data)))
        cache.ask(packages_fixture.FORGET, (packages_fixture.TAG_SANDBOX, "b"))
        with self.assertRaises(OSError):
            get(b, url)
        with self.assertRaisesRegex(packages_fixture.Refused, "does not know sandbox"):
            cache.ask(packages_fixture.FORGET, (packages_fixture.TAG_SANDBOX, "b"))
        self.assertEqual(get(a, url)[0], 200)


class Upstreams(packages_fixture.TestCase):
    def test_pages_are_revalidated(self):
        self.up.add_wheel("demo", "1.0")
        host = self.start_cache(metadata_life=0).listen()
        first = get(host, "/pypi/simple/demo/", JSON)
        second = get(host, "/pypi/simple/demo/", JSON)
        self.assertEqual((first[3], self.up.count("/simple/demo/")), (second[3], 2))
        self.up.add_wheel("demo", "2.0")
        self.assertIn(b"demo-2.0", get(host, "/pypi/simple/demo/", JSON)[3])

    def test_stale_when_upstream_is_down(self):
        file, data = self.up.add_wheel("demo", "1.0")
        self.up.add_npm("plain", "1.0.0")
        cache = self.start_cache(metadata_life=0)
        host = cache.listen()
        url = self.file_url(host, "demo")[file]
        get(host, url)
        get(host, "/npm/plain", SHORT)
        self.up.stop()
        for path, eco in (("/pypi/simple/demo/", "pypi"), ("/npm/plain", "npm")):
            status, _, headers, _ = get(host, path, SHORT)
            self.assertEqual((status, headers["x-ripcord-cache"]), (200, "stale"))
            self.assertIn("warning", headers)
            self.assertEqual(cache.counters(eco)["stale"], 1)
        self.assertEqual(get(host, url)[3], data)
        status, reason, _, body = get(host, "/pypi/simple/unknown/")
        self.assertEqual(status, 502, reason)
        self.assertTrue(cache.event("upstream_down"))

    def test_offline_modes(self):
        file, data = self.up.add_wheel("demo", "1.0")
        cache = self.start_cache()
        host = cache.listen()
        url = self.file_url(host, "demo")[file]
        get(host, url)
        cache.stop()
        cache = self.start_cache(offline="always", metadata_life=0)
        host = cache.listen()
        asked = len(self.up.requests)
        self.assertEqual(get(host, "/pypi/simple/demo/")[0], 200)
        self.assertEqual(get(host, url)[3], data)
        self.assertEqual(get(host, "/pypi/simple/other/")[0], 424)
        self.assertEqual(len(self.up.requests), asked)
        self.up.stop()
        cache.stop()
        host = self.start_cache(offline="never", metadata_life=0).listen()
        self.assertEqual(get(host, "/pypi/simple/demo/")[0], 502)

    def test_scopes_keep_private_names_private(self):
        inner = packages_fixture.Upstream(self.certificates)
        self.addCleanup(inner.stop)
        inner.auth = "Basic " + "dTpw"  # u:p
        inner.add_wheel("corp-lib", "1.0")
        inner.add_npm("@corp/lib", "1.0.0")
        self.up.add_wheel("corp-lib", "99.0")
        self.up.add_wheel("corp-secret", "1.0")
        self.up.add_npm("@corp/lib", "99.0.0")
        key = {"user": "u", "password": "p"}
        cache = self.start_cache([self.up.as_pypi(), self.up.as_npm(), inner.as_pypi("corp", names=["corp-*"], **key),
                             inner.as_npm("corp-npm", names=["@corp/*"], **key)])
        host = cache.listen()
        self.assertEqual(list(self.file_url(host, "corp-lib")), ["corp_lib-1.0-py3-none-any.whl"])
        self.assertEqual(list(json.loads(get(host, "/npm/@corp/lib", SHORT)[3])["versions"]), ["1.0.0"])
        self.assertEqual(get(host, "/pypi/simple/corp-secret/")[0], 404)
        self.assertEqual(self.up.count("corp"), 0)
        self.assertNotIn("dTpw", json.dumps(cache.stats()))

    def test_credentials_stay_with_their_host(self):
        seen = []
        other = packages_fixture.Upstream(self.certificates)
        self.addCleanup(other.stop)
        self.up.auth = "Bearer t0k"
        other.hooks["/away"] = lambda h: (seen.append(h.headers.get("Authorization")), other.send(h, 404, b""))
        self.up.hooks["/simple/demo/"] = lambda h: self.up.send(h, 302, b"", Location=f"{other.url}/away")
        # trusted as a place to go to, not as the owner of the token: it belongs to another upstream
        host = self.start_cache([self.up.as_pypi(token="t0k")]).listen()
        self.assertEqual(get(host, "/pypi/simple/demo/")[0], 403)
        self.assertEqual(seen, [])

    def test_custom_authority_is_needed(self):
        self.up.add_wheel("demo", "1.0")
        host = self.start_cache([{**self.up.as_pypi(), "ca_file": None}]).listen()
        status, reason, _, body = get(host, "/pypi/simple/demo/")
        self.assertEqual(status, 502)
        self.assertIn("certificate", json.loads(body)["error"])

    def test_proxy_variables(self):
        file, data = self.up.add_wheel("demo", "1.0")
        for name in ("literal", "scheme"):
            to = {"literal": "https://10.0.0.1/x", "scheme": "http://example.com/"}[name]
            self.up.hooks[f"/simple/{name}/"] = lambda h, to=to: self.up.send(h, 302, b"", Location=to)
        proxy = packages_fixture.Proxy()
        self.addCleanup(proxy.listener.close)
        host = self.start_cache(env={"https_proxy": f"http://127.0.0.1:{proxy.port}"}).listen()
        self.assertEqual(get(host, self.file_url(host, "demo")[file])[3], data)
        for name in ("literal", "scheme"):
            self.assertEqual(get(host, f"/pypi/simple/{name}/")[0], 403)
        self.assertEqual(set(proxy.asked), {f"localhost:{self.up.port}"})

    def test_bad_configurations(self):
        for bad, words in (({"offline": "perhaps"}, "offline"), ({"deny": ["a b"]}, "deny"), ({"nonsense": 1}, "unknown"),
                           ({"upstreams": [{"name": "../x", "type": "pypi", "url": "https://x/"}]}, "name"),
                           ({"upstreams": [{"name": "x", "type": "pypi", "url": "http://x/"}]}, "https"),
                           ({"upstreams": [{"name": "x", "type": "rpm", "url": "https://x/"}]}, "rpm")):
            with self.assertRaisesRegex(packages_fixture.Refused, words):
                self.start_cache(**bad)


    def test_what_is_missing_is_not_asked_for_again_and_again(self):
        self.up.add_wheel("demo", "1.0")
        host = self.start_cache().listen()
        self.file_url(host, "demo")
        for _ in range(5):
            self.assertEqual(get(host, "/pypi/simple/nothing/")[0], 404)
            self.assertEqual(get(host, f"/pypi/files/demo/{'0' * 64}/no-1.0.whl")[0], 404)
        self.assertEqual((self.up.count("nothing"), self.up.count("/simple/demo/")), (1, 1))


class Store(packages_fixture.TestCase):
    def test_list_show_verify_prune(self):
        file, data = self.up.add_wheel("demo", "1.0", os.urandom(10000))
        other, _ = self.up.add_wheel("other", "1.0", os.urandom(20000))
        cache = self.start_cache()
        host = cache.listen()
        url = self.file_url(host, "demo")[file]
        get(host, url)
        get(host, self.file_url(host, "other")[other])
        listed = cache.ask(LIST)
        self.assertEqual({f["file"] for f in listed["files"]}, {f"pypi/demo/{file}", f"pypi/other/{other}"})
        self.assertEqual({p["name"] for p in listed["pages"]}, {"demo", "other"})
        digest = "sha256:" + hashlib.sha256(data).hexdigest()
        self.assertEqual(cache.ask(SHOW, (TAG_PATH, digest))["size"], len(data))
        self.assertTrue(cache.ask(SHOW, (TAG_PATH, "pypi/Demo"))["files"][0]["stored"])
        with self.assertRaisesRegex(packages_fixture.Refused, "not in the cache"):
            cache.ask(SHOW, (TAG_PATH, "npm/none"))
        self.assertEqual(cache.ask(VERIFY)["bad"], [])
        path = next((self.tmp / "store" / "blobs").glob(f"sha256/*/{digest[7:]}"))
        os.chmod(path, 0o600)
        with open(path, "r+b") as f:
            f.write(b"rot")
        checked = cache.ask(VERIFY)
        self.assertEqual((checked["checked"], checked["bad"]), (2, [digest]))
        self.assertTrue(cache.event("corrupt"))
        self.assertEqual(get(host, url)[3], data, "it is fetched again")
        self.assertEqual(cache.ask(PRUNE, (TAG_AGE, 3600))["removed"], 0)
        self.assertEqual(cache.ask(PRUNE, (TAG_KEEP, 0))["removed"], 2)
        self.assertEqual(self.stored(), {})
        self.assertEqual(get(host, url)[3], data)

    def test_budget_evicts_the_longest_unused(self):
        files = [self.up.add_wheel(f"p{i}", "1.0", os.urandom(300000)) for i in range(6)]
        cache = self.start_cache(budget=1 << 20)
        host = cache.listen()
        urls = [self.file_url(host, f"p{i}")[files[i][0]] for i in range(6)]
        get(host, urls[0])
        time.sleep(1.1)
        for i in (1, 2, 3, 4, 5):
            self.assertEqual(get(host, urls[i])[3], files[i][1])
        stats = cache.stats()["store"]
        self.assertLessEqual(stats["bytes"], 1 << 20)
        self.assertGreater(stats["evicted"], 0)
        kept = self.stored()
        self.assertEqual(sum(map(len, kept.values())), stats["bytes"])
        self.assertNotIn(hashlib.sha256(files[0][1]).hexdigest(), kept)

    def test_pages_have_a_budget(self):
        for i in range(8):
            for k in range(20):
                self.up.add_wheel(f"p{i}", f"1.{k}", yanked="y" * 1000)
        cache = self.start_cache(metadata_budget=100000)
        host = cache.listen()
        for i in range(8):
            self.file_url(host, f"p{i}")
        pages = self.tmp / "store" / "pages" / "pypi" / "pypi"
        until = time.monotonic() + 60
        while time.monotonic() < until and len(list(pages.iterdir())) == 8:
            time.sleep(0.05)
        self.assertLess(len(list(pages.iterdir())), 8)
        self.assertEqual(get(host, "/pypi/simple/p0/")[0], 200)

    def test_eviction_leaves_running_downloads_alone(self):
        file, data = self.up.add_wheel("demo", "1.0", os.urandom(16 << 20))
        cache = self.start_cache()
        host = cache.listen()
        url = self.file_url(host, "demo")[file]
        get(host, url)
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            s.settimeout(20)
            s.connect((host.split(":")[0], int(host.split(":")[1])))
            s.sendall(f"GET {url} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
            got = s.recv(65536)
            self.assertEqual(cache.ask(PRUNE, (TAG_KEEP, 0))["removed"], 1)
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
        cache = self.start_cache()
        host = cache.listen()
        urls = [self.file_url(host, f"p{i}")[files[i][0]] for i in range(20)]

        def fetch(i):
            try:
                return get(host, urls[i])[3]
            except Exception:  # cut off: that is the point
                return None

        with concurrent.futures.ThreadPoolExecutor(20) as pool:
            results = [pool.submit(fetch, i) for i in range(20)]
            time.sleep(0.35)
            cache.kill()
            for i, r in enumerate(results):
                self.assertIn(r.result(), (None, files[i][1]))
        self.stored()
        self.up.hooks.clear()
        cache.start()
        self.assertEqual(list((self.tmp / "store" / "tmp").iterdir()), [])
        host = cache.listen()
        self.assertEqual(at_once(20, lambda i: get(host, urls[i])[3] == files[i][1]), [True] * 20)
        self.assertEqual(cache.ask(VERIFY)["bad"], [])

    def test_ends_with_its_daemon(self):
        file, data = self.up.add_wheel("demo", "1.0", os.urandom(1000))
        cache = self.start_cache()
        host = cache.listen()
        self.file_url(host, "demo")
        cache.control.close()
        self.assertEqual(cache.process.wait(10), 0)

    def test_two_never_share_a_folder(self):
        """Waits for a package cache that still finishes its work. One that does not end is an error."""
        file, data = self.up.add_wheel("demo", "1.0", os.urandom(1000))
        entered = threading.Event()

        def late(h):
            entered.set()
            time.sleep(1)
            self.up.send_file(h, data)
        self.up.hooks[f"/files/{file}"] = late
        old = self.start_cache()
        host = old.listen()
        url = self.file_url(host, "demo")[file]
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            last = pool.submit(get, host, url)
            entered.wait(10)
            old.control.close()  # as the kernel does when the daemon is killed
            new = self.start_cache()
            self.assertIsNotNone(old.process.poll(), "both run")
            self.assertIn(last.result()[3], (data, b""))
        self.assertEqual(get(new.listen(), url)[3], data)
        if Config.soak:
            with self.assertRaisesRegex(packages_fixture.Refused, "in use by another"):
                self.start_cache()
            self.assertTrue(new.stats())

    def test_parts_of_files(self):
        file, data = self.up.add_wheel("demo", "1.0", os.urandom(5000))
        cache = self.start_cache()
        host = cache.listen()
        url = self.file_url(host, "demo")[file]
        for _ in ("a miss", "a hit"):
            status, _, head, body = get(host, url, {"Range": "bytes=10-19"})
            self.assertEqual((status, body, head["content-range"]), (206, data[10:20], f"bytes 10-19/{len(data)}"))
        tag = head["etag"]
        for given, want in (("bytes=-5", data[-5:]), ("bytes=100-", data[100:]), ("bytes=0-99999", data)):
            self.assertEqual(get(host, url, {"Range": given, "If-Range": tag})[3], want)
        for headers in ({"Range": "bytes=0-1,3-4"}, {"Range": "bytes=9-1"}, {"Range": "bytes=0-1", "If-Range": '"other"'}):
            status, _, head, body = get(host, url, headers)
            self.assertEqual((status, body, head["accept-ranges"]), (200, data, "bytes"))
        status, _, head, body = get(host, url, {"Range": "bytes=999999-"})
        self.assertEqual((status, head["content-range"]), (416, f"bytes */{len(data)}"))
        self.assertEqual(get(host, url, {"Range": "bytes=0-1"}, method="HEAD")[0], 200)

    def test_parts_of_what_is_not_verified(self):
        """While a large file arrives, only the whole file can be requested: nobody could check a part."""
        file, data = self.up.add_wheel("demo", "1.0", os.urandom(BIG))
        wrong = data[:-1] + bytes([data[-1] ^ 1])

        def slowly(h):
            h.send_response(200)
            h.send_header("Content-Length", str(len(data)))
            h.end_headers()
            for at in range(0, len(wrong), 1 << 19):
                h.wfile.write(wrong[at:at + (1 << 19)])
                time.sleep(0.05)
        self.up.hooks[f"/files/{file}"] = slowly
        host = self.start_cache().listen()
        url = self.file_url(host, "demo")[file]
        with self.assertRaises(http.client.IncompleteRead):
            get(host, url, {"Range": "bytes=0-9"})
        self.assertEqual(self.stored(), {})

    def test_confined(self):
        program = (Config.bin / "ripcord-packages").read_bytes()
        if b"__asan_init" in program or b"__tsan_init" in program:
            self.skipTest("the sanitizers need calls that the filter denies")
        cache = self.start_cache()
        status = dict(line.split(":\t") for line in open(f"/proc/{cache.process.pid}/status", encoding="ascii").read().splitlines()
                      if ":\t" in line)
        self.assertEqual((status["Seccomp"], status["NoNewPrivs"]), ("2", "1"))
        if os.geteuid() == 0:
            self.assertEqual(status["Uid"].split(), ["65531"] * 4)
            self.assertEqual((int(status["CapEff"], 16), int(status["CapBnd"], 16)), (0, 0))
            self.assertEqual(status["Groups"].strip(), "")

    def test_nonsense_on_the_control_socket(self):
        cache = self.start_cache()
        cache.control.send(struct.pack("=HHIQ", 4242, 0, 0, 7))
        kind, seq, fields, _ = cache.receive()
        self.assertEqual((kind, seq), (packages_fixture.RESULT, 7))
        self.assertIn(b"does not know", fields[packages_fixture.TAG_ERR_MSG])
        cache.control.send(b"xx")
        self.assertEqual(cache.receive()[0], packages_fixture.RESULT)
        with self.assertRaisesRegex(packages_fixture.Refused, "without"):
            cache.ask(packages_fixture.LISTEN, (packages_fixture.TAG_SANDBOX, "x"))
        self.assertTrue(cache.stats())

    def mixed(self, seconds, clients):
        """Parallel mixed downloads while the package cache is killed and started again; the store verified after."""
        wheels = [self.up.add_wheel(f"p{i}", "1.0", os.urandom(50000 + 100000 * i)) for i in range(12)]
        tars = [self.up.add_npm(f"n{i}", "1.0.0", os.urandom(30000 + 70000 * i)) for i in range(12)]
        cache = self.start_cache()
        listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        host = f"127.0.0.1:{listener.getsockname()[1]}"
        cache.ask(packages_fixture.LISTEN, (packages_fixture.TAG_SANDBOX, "a"), fd=listener.fileno())
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
                cache.kill()
                cache.start()
                cache.ask(packages_fixture.LISTEN, (packages_fixture.TAG_SANDBOX, "a"), fd=listener.fileno())
                cache.ask(PRUNE, (TAG_KEEP, 1 << 20))
            for j in jobs:
                j.result()
        listener.close()
        self.assertTrue(good)
        self.assertEqual([s for s in wrong if s == 200], [])
        self.stored()
        self.assertEqual(cache.ask(VERIFY)["bad"], [])

    @full_run_only
    def test_mixed_downloads_with_restarts(self):
        self.mixed(30 if Config.soak else 3, 200 if Config.soak else 16)
