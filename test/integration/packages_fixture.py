"""The base of the tests of ripcord-packages: a ripcord-packages process with us as its daemon, and upstreams
of our own (a simple index and an npm registry behind TLS) that can be told to misbehave."""
import array
import base64
import concurrent.futures
import gzip
import hashlib
import http.client
import http.server
import io
import json
import os
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import tarfile
import tempfile
import threading
import time
import zipfile
from pathlib import Path

import ripcord_test

READY, FAILED, RESULT, EVENT, LISTEN, FORGET, STATS, LIST, SHOW, VERIFY, PRUNE = range(128, 139)
TAG_SANDBOX, TAG_ERR_CODE, TAG_ERR_MSG, TAG_PATH = 2, 5, 7, 28
TAG_JSON, TAG_KEEP, TAG_AGE = 512, 513, 514

# What installers ask for.
JSON = {"Accept": "application/vnd.pypi.simple.v1+json"}
SHORT = {"Accept": "application/vnd.npm.install-v1+json"}
BIG = 3 << 20  # long enough to be streamed


class Refused(Exception):
    """The error of the package cache to a request of the daemon."""


def encode(kind, seq, fields):
    body = b""
    for tag, value in fields:
        data = struct.pack("=Q", value) if isinstance(value, int) else value.encode()
        body += struct.pack("=HHI", tag, 0, len(data)) + data + bytes(8 - len(data) % 8)
    return struct.pack("=HHIQ", kind, 0, len(body), seq) + body


def decode(packet):
    kind, _, length, seq = struct.unpack_from("=HHIQ", packet)
    fields, at = {}, 16
    while at < 16 + length:
        tag, _, size = struct.unpack_from("=HHI", packet, at)
        fields[tag] = packet[at + 8:at + 8 + size]
        at += 8 + size + (8 - size % 8)
    return kind, seq, fields


class PackageCache:
    """A running ripcord-packages; we are its daemon."""

    def __init__(self, folder, upstreams, env=None, program="ripcord-packages", **config):
        self.folder = Path(folder)
        self.config = {"folder": str(folder), "connect_timeout": 3, "stall_timeout": 2, "upstreams": upstreams}
        if os.geteuid() == 0:
            self.config["uid"] = 65531
        self.config.update(config)
        self.env, self.program = env or {}, program
        self.events, self.seq, self.process, self.log = [], 0, None, None
        self.start()

    def start(self):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        plan = os.memfd_create("config")
        os.write(plan, json.dumps(self.config).encode())
        os.lseek(plan, 0, os.SEEK_SET)
        self.log = tempfile.TemporaryFile()
        control, given = theirs.fileno(), plan

        def place():
            a, b = os.dup(control), os.dup(given)
            a, b = (os.dup(a), os.dup(b)) if a in (3, 4) or b in (3, 4) else (a, b)
            os.dup2(a, 3)
            os.dup2(b, 4)
            for fd in range(5, 64):
                try:
                    os.close(fd)
                except OSError:
                    pass

        # It ends by _exit(), with whatever its workers are doing.
        env = {"PATH": os.environ["PATH"], "TSAN_OPTIONS": "report_thread_leaks=0", **self.env}
        self.process = subprocess.Popen([str(ripcord_test.Config.bin / self.program)], preexec_fn=place,
                                        close_fds=False, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
                                        env=env)
        theirs.close()
        os.close(plan)
        ours.settimeout(60)
        self.control = ours
        kind, _, fields = self.receive()[:3]
        if kind != READY:
            raise Refused(fields.get(TAG_ERR_MSG, b"").decode())

    def receive(self):
        packet, ancillary, _, _ = self.control.recvmsg(1 << 18, 64)
        fds = array.array("i")
        for _, _, data in ancillary:
            fds.frombytes(data[:len(data) - len(data) % fds.itemsize])
        if not packet:
            raise EOFError(f"the package cache has gone: {self.log_text()}")
        return (*decode(packet), list(fds))

    def ask(self, kind, *fields, fd=None):
        """Sends a question; the answer's JSON, if it has one."""
        self.seq += 1
        message = encode(kind, self.seq, fields)
        if fd is None:
            self.control.send(message)
        else:
            socket.send_fds(self.control, [message], [fd])
        while True:
            got, seq, values, fds = self.receive()
            if got == EVENT:
                self.events.append(json.loads(values[TAG_JSON]))
                continue
            assert got == RESULT and seq == self.seq, (got, seq)
            if TAG_ERR_CODE in values:
                raise Refused(values[TAG_ERR_MSG].decode())
            if not fds:
                return None
            with os.fdopen(fds[0], "rb") as f:
                f.seek(0)
                return json.loads(f.read())

    def poll_events(self):
        self.stats()
        return self.events

    def event(self, kind):
        return [e for e in self.poll_events() if e["type"] == kind]

    def listen(self, sandbox="a"):
        """Listens for one sandbox: "127.0.0.1:PORT"."""
        s = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.ask(LISTEN, (TAG_SANDBOX, sandbox), fd=s.fileno())
        port = s.getsockname()[1]
        s.close()
        return f"127.0.0.1:{port}"

    def stats(self):
        return self.ask(STATS)

    def counters(self, eco):
        return self.stats()["ecosystems"][eco]

    def log_text(self):
        self.log.seek(0)
        return self.log.read().decode(errors="replace")

    def kill(self):
        """As a crash would."""
        self.process.kill()
        self.process.wait()
        self.control.close()

    def stop(self):
        if self.log.closed:
            return
        if self.process.poll() is None:
            self.control.close()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise AssertionError("the package cache does not end with its daemon") from None
        text = self.log_text()
        self.log.close()
        if ripcord_test.SANITIZER.search(text.encode()):
            raise AssertionError(f"a sanitizer speaks: {text}")


def get(host, path, headers=None, method="GET", timeout=30):
    """(status, reason, headers, body) of one request."""
    c = http.client.HTTPConnection(host, timeout=timeout)
    try:
        c.request(method, path, headers=headers or {})
        r = c.getresponse()
        return r.status, r.reason, {k.lower(): v for k, v in r.getheaders()}, r.read()
    finally:
        c.close()


def at_once(n, fn):
    with concurrent.futures.ThreadPoolExecutor(n) as pool:
        return list(pool.map(fn, range(n)))


# ---- packages ----

def make_wheel(name, version, payload=b"", requires=(), scripts=None):
    """A wheel that pip installs; payload makes it as long as wanted, scripts are texts by the name of a program."""
    plain = name.replace("-", "_")
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n" + "".join(
        f"Requires-Dist: {r}\n" for r in requires)
    files = {f"{plain}.py": f"version = {version!r}\n".encode(), f"{plain}_data.bin": payload,
             f"{plain}-{version}.dist-info/METADATA": metadata.encode(),
             f"{plain}-{version}.dist-info/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\n"
                                                   b"Tag: py3-none-any\n"}
    files.update({f"{plain}-{version}.data/scripts/{script}": text.encode() for script, text in (scripts or {}).items()})
    record = f"{plain}-{version}.dist-info/RECORD"
    lines = [f"{n},sha256={base64.urlsafe_b64encode(hashlib.sha256(d).digest()).rstrip(b'=').decode()},{len(d)}\n"
             for n, d in files.items()]
    files[record] = ("".join(lines) + f"{record},,\n").encode()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        for n, d in files.items():
            info = zipfile.ZipInfo(n)
            info.external_attr = 0o100755 << 16 if "/scripts/" in n else info.external_attr
            z.writestr(info, d)
    return f"{plain}-{version}-py3-none-any.whl", out.getvalue(), metadata.encode()


def make_tarball(name, version, payload=b"", **package):
    manifest = {"name": name, "version": version, "main": "index.js", **package}
    files = {"package/package.json": json.dumps(manifest).encode(),
             "package/index.js": f"module.exports = {version!r}\n".encode(), "package/data.bin": payload}
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as t:
        for n, d in files.items():
            info = tarfile.TarInfo(n)
            info.size, info.mode = len(d), 0o644
            t.addfile(info, io.BytesIO(d))
    return gzip.compress(raw.getvalue(), mtime=0), manifest


class Upstream:
    """An index and a registry behind TLS. `hooks` maps a path to a function of the request handler."""

    def __init__(self, certificates):
        self.pypi, self.npm, self.files, self.hooks = {}, {}, {}, {}
        self.requests, self.delay, self.html_only, self.lock = [], 0, False, threading.Lock()
        self.auth, self.connections = None, []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                outer.serve(self)

            def log_message(self, *_):
                pass

            def setup(self):
                super().setup()
                outer.connections.append(self.connection)

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 256

            def handle_error(self, request, client_address):
                pass  # clients that hang up are part of the tests

        self.server = Server(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates / "server.pem", certificates / "server.key")
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        self.port = self.server.server_address[1]
        self.url = f"https://localhost:{self.port}"
        self.ca = str(certificates / "ca.pem")
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()

    def stop(self):
        if self.server:
            self.server.shutdown()
            self.server.server_close()
            self.server = None
            for c in self.connections:  # kept-alive ones would go on being served
                try:
                    c.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def as_pypi(self, name="pypi", **more):
        return {"name": name, "type": "pypi", "url": f"{self.url}/simple/", "private": True, "ca_file": self.ca, **more}

    def as_npm(self, name="npm", **more):
        return {"name": name, "type": "npm", "url": f"{self.url}/npm/", "private": True, "ca_file": self.ca, **more}

    def count(self, word):
        return sum(word in p for p in self.requests)

    # ---- content ----

    def add_wheel(self, name, version, payload=b"", uploaded="2020-01-01T00:00:00.000000Z", requires=(), scripts=None,
                  **more):
        file, data, metadata = make_wheel(name, version, payload, requires, scripts)
        path = f"/files/{file}"
        self.files[path], self.files[path + ".metadata"] = data, metadata
        entry = {"filename": file, "url": self.url + path, "hashes": {"sha256": hashlib.sha256(data).hexdigest()},
                 "size": len(data), "upload-time": uploaded, "requires-python": ">=3.6",
                 "core-metadata": {"sha256": hashlib.sha256(metadata).hexdigest()}, **more}
        self.pypi.setdefault(name, []).append({k: v for k, v in entry.items() if v is not None})
        return file, data

    def add_npm(self, name, version, payload=b"", uploaded="2020-01-01T00:00:00.000Z", sha1_only=False, **package):
        data, manifest = make_tarball(name, version, payload, **package)
        path = f"/tarballs/{name.replace('/', '-').lstrip('@')}-{version}.tgz"
        self.files[path] = data
        dist = {"tarball": self.url + path, "shasum": hashlib.sha1(data).hexdigest()}
        if not sha1_only:
            dist["integrity"] = "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()
        doc = self.npm.setdefault(name, {"name": name, "dist-tags": {}, "versions": {}, "time": {}, "readme": "# hi"})
        doc["versions"][version] = {**manifest, "dist": dist, "scripts": {"test": "true"}}
        doc["time"][version] = uploaded
        doc["dist-tags"]["latest"] = version
        return data

    # ---- answers ----

    def serve(self, h):
        path = h.path
        with self.lock:
            self.requests.append(path)
        if self.delay:
            time.sleep(self.delay)
        if self.auth and h.headers.get("Authorization") != self.auth:
            self.send(h, 401, b"who are you")
        elif path in self.hooks:
            self.hooks[path](h)
        elif path.startswith("/simple/"):
            self.send_index(h, path.split("/")[2])
        elif path.startswith("/npm/"):
            self.send_packument(h, path[5:].replace("%2f", "/").replace("%2F", "/"))
        elif path in self.files:
            self.send_file(h, self.files[path])
        else:
            self.send(h, 404, b"nothing here")

    def send(self, h, status, body, kind="text/plain", **headers):
        h.send_response(status)
        h.send_header("Content-Type", kind)
        h.send_header("Content-Length", str(len(body)))
        for k, v in headers.items():
            h.send_header(k.replace("_", "-"), v)
        h.end_headers()
        h.wfile.write(body)

    def send_tagged(self, h, body, kind):
        tag = '"' + hashlib.sha1(body).hexdigest() + '"'
        if h.headers.get("If-None-Match") == tag:
            self.send(h, 304, b"", kind, ETag=tag)
        else:
            self.send(h, 200, body, kind, ETag=tag)

    def send_index(self, h, name):
        if name not in self.pypi:
            self.send(h, 404, b"no such project")
        elif self.html_only:
            links = "".join(f'<a href="{f["url"]}#sha256={f["hashes"]["sha256"]}" '
                            f'data-requires-python="&gt;=3.6"{self.time_attribute(f)}>{f["filename"]}</a><br/>\n' for f in self.pypi[name])
            self.send_tagged(h, f"<!DOCTYPE html><html><body>{links}</body></html>".encode(), "text/html")
        else:
            versions = sorted({str(f["filename"]).split("-")[1] for f in self.pypi[name][:1]})
            doc = {"meta": {"api-version": "1.1"}, "name": name, "versions": versions, "files": self.pypi[name]}
            self.send_tagged(h, json.dumps(doc).encode(), "application/vnd.pypi.simple.v1+json")

    @staticmethod
    def time_attribute(f):
        """As some mirrors have it."""
        return f' data-upload-time="{f["upload-time"]}"' if "upload-time" in f else ""

    def send_packument(self, h, name):
        doc = self.npm.get(name)
        if not doc:
            self.send(h, 404, b'{"error":"Not found"}', "application/json")
            return
        if "npm.install-v1" in h.headers.get("Accept", ""):
            doc = {k: v for k, v in doc.items() if k not in ("time", "readme")}
        self.send_tagged(h, json.dumps(doc).encode(), "application/json")

    def send_file(self, h, data):
        given = h.headers.get("Range", "")
        if given.startswith("bytes="):
            start = int(given[6:].split("-")[0])
            self.send(h, 206, data[start:], "application/octet-stream",
                      Content_Range=f"bytes {start}-{len(data) - 1}/{len(data)}")
        else:
            self.send(h, 200, data, "application/octet-stream")


class Proxy:
    """An HTTP proxy that knows CONNECT alone; `asked` holds where to."""

    def __init__(self):
        self.asked = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            try:
                client = self.listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        head = b""
        while b"\r\n\r\n" not in head:
            head += client.recv(4096)
        target = head.split()[1].decode()
        self.asked.append(target)
        name, port = target.rsplit(":", 1)
        with client, socket.create_connection((name, int(port))) as server:
            client.sendall(b"HTTP/1.1 200 fine\r\n\r\n")
            threading.Thread(target=self.pump, args=(server, client), daemon=True).start()
            self.pump(client, server)

    @staticmethod
    def pump(source, sink):
        try:
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass


def make_certificates(folder):
    """An authority of our own and a certificate for localhost."""
    run = {"check": True, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder}
    (folder / "ext").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n", encoding="ascii")
    subprocess.run("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout ca.key -out ca.pem -days 30 -subj /CN=test-ca".split(),
                   **run)
    subprocess.run("openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout server.key -out server.csr -subj /CN=localhost".split(),
                   **run)
    subprocess.run("openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out server.pem -days 30 "
                   "-extfile ext".split(), **run)


class TestCase(ripcord_test.unittest.TestCase):
    """Each test has upstreams and a cache folder of its own."""

    certificates = None
    lock = threading.Lock()
    only_on = ("native",)
    special = {}  # of the package cache: its program, its environment

    @classmethod
    def setUpClass(cls):
        TestCase.prepare()

    @staticmethod
    def prepare():
        with TestCase.lock:
            if TestCase.certificates is None:
                folder = Path(tempfile.mkdtemp(prefix="ripcord-packages-ca-"))
                make_certificates(folder)
                import atexit  # here, beside its only use
                atexit.register(shutil.rmtree, folder, ignore_errors=True)
                TestCase.certificates = folder

    def setUp(self):
        self.prepare()
        self.tmp = Path(tempfile.mkdtemp(prefix="ripcord-packages-"))
        os.chmod(self.tmp, 0o755)
        self.addCleanup(shutil.rmtree, self.tmp, ignore_errors=True)
        self.up = Upstream(self.certificates)
        self.addCleanup(self.up.stop)

    def start_cache(self, upstreams=None, **config):
        cache = PackageCache(self.tmp / "store", upstreams or [self.up.as_pypi(), self.up.as_npm()], **self.special, **config)
        self.addCleanup(cache.stop)
        return cache

    def stored(self):
        """Every file in the store with its digest checked against its name."""
        found = {}
        for path in (self.tmp / "store" / "blobs").glob("*/*/*"):
            data = path.read_bytes()
            algo = path.parts[-3]
            self.assertEqual(hashlib.new(algo, data).hexdigest(), path.name, f"{path} is wrong")
            found[path.name] = data
        return found

    def file_url(self, host, name):
        """The links of a project, as a client reads them: {file name: path}."""
        status, _, _, body = get(host, f"/pypi/simple/{name}/", {"Accept": "application/vnd.pypi.simple.v1+json"})
        self.assertEqual(status, 200, body)
        return {f["filename"]: "/pypi/" + f["url"].removeprefix("../../") for f in json.loads(body)["files"]}


def signal_name(process):
    return signal.Signals(-process.returncode).name if process.returncode < 0 else process.returncode
