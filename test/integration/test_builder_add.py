"""ADD of URLs in the native builder: the files, when they are downloaded again, and which servers may be contacted."""
import hashlib
import http.server
import os
import signal
import ssl
import threading
import time
import unittest

import packages_fixture
from ripcord_test import only_on, wait_until
from test_builder import BuildCase
from test_images import BUSYBOX, entry, tar

WHEN = "Tue, 14 Nov 2023 22:13:20 GMT"  # 1700000000


class Files(http.server.ThreadingHTTPServer):
    """Serves `files` (path: bytes, or a function of the handler), each with an ETag; `log`: (path, status, bytes)."""
    daemon_threads = True

    def __init__(self, certificates=None):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.log, self.etags = {}, [], True
        if certificates:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificates / "server.pem", certificates / "server.key")
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self.host = f"127.0.0.1:{self.server_port}"
        self.url = f"http{'s' if certificates else ''}://{self.host}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request, client_address):
        """Quiet: some tests close connections early."""

    def close(self):
        self.shutdown()
        self.server_close()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def do_GET(self):
        data = self.server.files.get(self.path.partition("?")[0])
        if callable(data):
            self.server.log.append((self.path, 0, 0))
            data(self)
        elif data is None:
            self.answer(404, b"no")
        else:
            etag = f'"{hashlib.md5(data).hexdigest()}"'
            same = self.server.etags and self.headers.get("If-None-Match") == etag
            self.answer(304 if same else 200, b"" if same else data,
                        {"Last-Modified": WHEN, **({"ETag": etag} if self.server.etags else {})})

    def answer(self, status, data, headers=None):
        self.server.log.append((self.path, status, len(data)))
        self.send_response(status)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        if status != 304:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def to(url):
    return lambda h: h.answer(302, b"", {"Location": url})


def endless(h):
    h.send_response(200)
    h.end_headers()
    while True:
        h.wfile.write(b"x" * 65536)


def sha256(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


@only_on("native")
@unittest.skipUnless(os.path.exists(BUSYBOX), "busybox is not installed")
class Add(BuildCase):
    def setUp(self):
        super().setUp()
        self.up = Files()
        self.addCleanup(self.up.close)
        self.up.files["/dir/tool%2Bx.bin"] = self.data = os.urandom(300000)
        self.url = self.up.url + "/dir/tool%2Bx.bin"
        self.allow()

    def allow(self, more=""):
        self.root.configure(f'transfer:\n  add_hosts: ["{self.up.host}"]\n  add_max: 1M\n{more}')
        self.root.kill_daemon()

    def refused(self, line, code, *words):
        result = self.try_build(f"FROM base:1\nRUN echo ran\n{line}\n")
        self.assert_exit(result, code)
        for word in words:
            self.assertIn(word, result.err.decode())
        return result

    def test_what_comes_and_how_it_lies_there(self):
        archive = tar(entry("inside", data=b"in it"))
        self.up.files.update({"/a.tar": archive, "/": b"root", "/moved": to(self.url)})
        self.file("local", "mine")
        self.build(f"FROM base:1\nARG N=tool%2Bx\nADD {self.up.url}/dir/$N.bin /opt/\nADD --chmod=750 --chown=bob:staff {self.url}?v=1#x /named\n"
                   f"ADD {self.up.url}/a.tar local {self.up.url} /d/\nADD --unpack {self.up.url}/a.tar /u/\n"
                   f"ADD --checksum={sha256(self.data)} {self.up.url}/moved /\n")
        self.assertEqual(self.sh("stat -c '%n %a %u %g %s %Y' /opt/* /named /d/* /moved; cat /u/inside /d/local /d/__*"),
                         "/opt/tool+x.bin 600 0 0 300000 1700000000\n/named 750 1000 50 300000 1700000000\n"
                         f"/d/__unnamed__ 600 0 0 4 1700000000\n/d/a.tar 600 0 0 {len(archive)} 1700000000\n"
                         f"/d/local 644 0 0 4 {int((self.context / 'local').stat().st_mtime)}\n"
                         "/moved 600 0 0 300000 1700000000\nin itmineroot")
        out = self.root.ok("run", "--image", "made:1", "--user", "0", "--", "cat", "/opt/tool+x.bin").out
        self.assertEqual(sha256(out), sha256(self.data))
        self.assert_nothing_left()

    def test_what_is_unchanged_is_not_fetched_again(self):
        text = f"FROM base:1\nADD {self.url} /f\nRUN stat -c 'has %s' /f\n"
        _, first = self.build(text)
        self.up.log.clear()
        said, again = self.build(text)
        self.assertEqual((first, said.count("CACHED")), (again, 2))
        self.assertEqual(self.up.log, [("/dir/tool%2Bx.bin", 304, 0)], "asked, and nothing sent")
        self.assertIn("has 300000", self.build(text.replace("/f", "/g"))[0], "known, but needed for another step")
        self.up.files["/dir/tool%2Bx.bin"] = b"new"
        self.assertIn("has 3", self.build(text)[0])
        self.up.etags = False
        self.assertEqual(self.build(text)[0].count("CACHED"), 2, "fetched, and the same")
        known = f"FROM base:1\nADD --checksum={sha256(b'new')} {self.url} /f\n"
        self.build(known)
        self.up.log.clear()
        self.assertEqual(self.build(known)[0].count("CACHED"), 1)
        self.assertEqual(self.up.log, [], "nobody has to be asked")
        self.build(known, "--no-cache")
        self.assertEqual(len(self.up.log), 1)

    def test_what_is_refused(self):
        other = Files()
        self.addCleanup(other.close)
        other.files["/x"] = b"private"

        def short(h):
            h.send_response(200)
            h.send_header("Content-Length", "1000")
            h.end_headers()
            h.wfile.write(b"x" * 10)
            h.close_connection = True

        self.up.files.update({"/endless": endless, "/big": b"x" * (1 << 20 | 1), "/off": to(f"{other.url}/x"), "/round": to("/round"),
                              "/file": to("file:///etc/passwd"), "/short": short, "/auth": lambda h: h.answer(401, b"")})
        at = self.up.url
        self.refused(f"ADD --checksum={sha256(b'other')} {self.url} /", 2, "Dockerfile:3", sha256(self.data), sha256(b"other"))
        self.refused(f"ADD {at}/none /", 3, "Dockerfile:3", "404")
        self.refused(f"ADD {at}/auth /", 5, "401")
        self.refused(f"ADD {at}/endless /", 6, "1048576 bytes", "transfer.add_max")
        self.refused(f"ADD {at}/big /", 6, "1048576 bytes")
        self.refused(f"ADD {at}/off /", 5, "redirected", "private network", "transfer.add_hosts")
        self.refused(f"ADD {other.url}/x /", 5, "private network")
        self.refused(f"ADD http://localhost:{other.server_port}/x /", 5, "private network")
        self.refused(f"ADD {at}/round /", 5, "redirects")
        self.refused(f"ADD {at}/file /", 5, "redirected")
        self.refused(f"ADD {at}/short /", 8)
        self.assertEqual(other.log, [])
        for line, code, words in ((f"ADD --checksum=sha256:12 {at}/x /", 2, "line 3, column 5"), (f"ADD --checksum=sha512:12 {at}/x /", 7, "line 3, column 5"),
                                  (f"ADD --checksum={sha256(b'')} {at}/x {at}/y /", 2, "line 3, column 5"), (f"ADD {at}/a%zz /", 2, "line 3, column 5"),
                                  (f"ADD {at}/x/%2e%2e /", 2, "line 3, column 5"), ("ADD https://example.com/x.git#main /", 7, "line 3, column 5")):
            self.assertNotIn("ran\n", self.refused(line, code, words).err.decode().replace("RUN echo ran", ""))
        self.assert_nothing_left()

    def test_tls_and_no_way_down_from_it(self):
        packages_fixture.TestCase.prepare()
        certificates = packages_fixture.TestCase.certificates
        secure = Files(certificates)
        self.addCleanup(secure.close)
        ca = self.root.path / "ca.pem"
        ca.write_bytes((certificates / "ca.pem").read_bytes())
        secure.files.update({"/f": b"by TLS", "/down": to(self.url)})
        self.up.files["/up"] = to(f"{secure.url}/f")
        self.refused(f"ADD {secure.url}/f /", 5, "private network")
        self.up.host = f'{self.up.host}", "{secure.host}'
        self.allow()
        self.refused(f"ADD {secure.url}/f /", 8, "certificate")
        self.allow(f"  ca_file: {ca}\n")
        self.build(f"FROM base:1\nADD {secure.url}/f {self.up.url}/up /\n")
        self.assertEqual(self.sh("cat /f /up"), "by TLSby TLS")
        self.refused(f"ADD {secure.url}/down /", 5, "redirected", "not https")

    def cancelled_after(self, dockerfile):
        """How long ripcord-transfer has waited for a server that says nothing when the build is cancelled at once."""
        times = []

        def silent(h):
            times.append(time.monotonic())
            h.connection.recv(1)  # its end
            times.append(time.monotonic())
            h.close_connection = True

        self.up.files["/v2/silent/manifests/1"] = silent
        self.file("Dockerfile", dockerfile)
        with self.root.popen("image", "build", "--progress", "plain", self.context) as p:
            wait_until(lambda: times, 60, "the server to be asked")
            p.send_signal(signal.SIGINT)
            p.communicate(timeout=120)
        self.assertNotEqual(p.returncode, 0)
        wait_until(lambda: len(times) == 2, 120, "ripcord-transfer to end")
        self.assert_nothing_left()
        return times[1] - times[0]

    def test_a_silent_server_does_not_hold_a_cancelled_build(self):
        for text in (f"FROM base:1\nADD {self.up.url}/v2/silent/manifests/1 /\n", f"FROM {self.up.host}/silent:1\n"):
            # ripcord-transfer's own timeout is 30 seconds; a machine under load may take that long, but not each time.
            self.assertTrue(any(self.cancelled_after(text) < 29 for _ in range(3)), text)
