"""Image registries for the tests: a real one (Debian's docker-registry), and our own, which can misbehave on request."""
import base64
import gzip
import http.client
import http.server
import json
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
from pathlib import Path

import ripcord_test
from test_images import config_of, digest

PROGRAM = shutil.which("docker-registry")
OCI = "application/vnd.oci.image.manifest.v1+json"
OCI_INDEX = "application/vnd.oci.image.index.v1+json"
DOCKER = "application/vnd.docker.distribution.manifest.v2+json"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def descriptor(data, kind):
    return {"mediaType": kind, "digest": digest(data), "size": len(data)}


class Image:
    """An image as registries hold it: blobs by digest, and a manifest."""

    def __init__(self, layers, kind=OCI, config=None, pack=lambda d: gzip.compress(d, mtime=0), **settings):
        self.config = config or config_of(layers, **settings)
        self.layers = [pack(x) for x in layers]
        self.kind = kind
        self.manifest = json.dumps({"schemaVersion": 2, "mediaType": kind,
                                    "config": descriptor(self.config, "application/vnd.oci.image.config.v1+json"),
                                    "layers": [descriptor(x, "application/vnd.oci.image.layer.v1.tar+gzip") for x in self.layers]}).encode()

    def blobs(self):
        return [self.config, *self.layers]


def index_of(images):
    """images: {architecture: Image}"""
    return json.dumps({"schemaVersion": 2, "mediaType": OCI_INDEX,
                       "manifests": [dict(descriptor(i.manifest, i.kind), platform={"os": "linux", "architecture": a})
                                     for a, i in images.items()]}).encode()


class RealRegistry:
    """Debian's docker-registry on loopback. With a folder of certificates it uses TLS. With the text of a password file it
    requires a login; `login` is the one that its own requests use. With the name of an engine's network namespace a second
    process serves the same files there."""

    def __init__(self, certificates=None, htpasswd=None, login=None, netns=None):
        self.folder = tempfile.mkdtemp(prefix="ripcord-transfer-")
        self.port = free_port()
        self.host = f"127.0.0.1:{self.port}"
        config = {"version": 0.1, "log": {"level": "error"}, "storage": {"filesystem": {"rootdirectory": self.folder}},
                  "http": {"addr": self.host}}
        if certificates:
            config["http"]["tls"] = {"certificate": str(certificates / "server.pem"), "key": str(certificates / "server.key")}
        self.login = login
        if htpasswd:
            passwords = Path(self.folder) / "htpasswd"
            passwords.write_text(htpasswd, encoding="ascii")
            config["auth"] = {"htpasswd": {"realm": "here", "path": str(passwords)}}
        path = Path(self.folder) / "config.yml"
        path.write_text(json.dumps(config), encoding="utf-8")
        self.trust = ssl.create_default_context(cafile=certificates / "ca.pem") if certificates else None
        enter = [[]] + ([["nsenter", f"--net=/run/netns/{netns}"]] if netns else [])
        self.processes = [subprocess.Popen([*e, PROGRAM, "serve", path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for e in enter]
        ripcord_test.wait_until(self.answers, 20, "docker-registry to listen")

    def answers(self):
        try:
            return self.call("GET", "/v2/")[0] == 200
        except OSError:
            return False

    def stop(self):
        for process in self.processes:
            process.kill()
            process.wait()

    def close(self):
        self.stop()
        shutil.rmtree(self.folder)

    def call(self, method, path, body=None, headers=None):
        connection = http.client.HTTPSConnection(self.host, timeout=20, context=self.trust) if self.trust else \
            http.client.HTTPConnection(self.host, timeout=20)
        headers = dict(headers or {})
        if self.login:
            headers["Authorization"] = "Basic " + base64.b64encode(self.login.encode()).decode()
        try:
            connection.request(method, path, body, headers)
            reply = connection.getresponse()
            return reply.status, reply.read(), reply.headers
        finally:
            connection.close()

    def put_blob(self, repo, data):
        _, _, headers = self.call("POST", f"/v2/{repo}/blobs/uploads/")
        where = headers["Location"].split(self.host, 1)[-1]
        status, said, _ = self.call("PUT", f"{where}&digest={digest(data)}", data, {"Content-Type": "application/octet-stream"})
        assert status == 201, said

    def put_manifest(self, repo, reference, data, kind):
        status, said, _ = self.call("PUT", f"/v2/{repo}/manifests/{reference}", data, {"Content-Type": kind})
        assert status == 201, said

    def put(self, repo, tag, image):
        for blob in image.blobs():
            self.put_blob(repo, blob)
        self.put_manifest(repo, tag or digest(image.manifest), image.manifest, image.kind)


class FakeRegistry(http.server.ThreadingHTTPServer):
    """Serves `files` (path: bytes or a function of the handler); `log` has the requests."""
    daemon_threads = True

    def __init__(self, user=None, certificates=None):
        super().__init__(("127.0.0.1", 0), Handler)
        self.host = f"127.0.0.1:{self.server_port}"
        self.url = f"http{'s' if certificates else ''}://{self.host}"
        if certificates:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificates / "server.pem", certificates / "server.key")
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self.files, self.log, self.user = {}, [], user
        self.challenge = self.location = None
        if user:
            self.challenge = f'Bearer realm="{self.url}/token",service="fake"'
            self.files["/token"] = b'{"token":"abc.def"}'
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request, client_address):
        """Quiet: some tests close connections early."""

    def close(self):
        self.shutdown()
        self.server_close()

    def put(self, repo, tag, image):
        for blob in image.blobs():
            self.files[f"/v2/{repo}/blobs/{digest(blob)}"] = blob
        self.files[f"/v2/{repo}/manifests/{tag}"] = image.manifest
        self.files[f"/v2/{repo}/manifests/{digest(image.manifest)}"] = image.manifest


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def refused(self, path):
        """Basic at the token server, its token elsewhere."""
        if not self.server.challenge:
            return False
        if path == "/token":
            want = "Basic " + base64.b64encode(self.server.user.encode()).decode()
        else:
            want = "Bearer abc.def"
        return self.headers.get("Authorization") != want

    def do_GET(self):
        path = self.path.partition("?")[0]
        self.server.log.append((self.path, self.headers.get("Range")))
        data = self.server.files.get(path)
        if self.refused(path):
            self.answer(401, b"{}", {"WWW-Authenticate": self.server.challenge} if path != "/token" else {})
        elif callable(data):
            data(self)
        elif data is None:
            self.answer(404, b'{"errors":[]}')
        else:
            self.part(data)

    def do_HEAD(self):
        self.server.log.append((self.path, None))
        self.answer(404, b"")

    def do_POST(self):
        self.server.log.append((self.path, None))
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.answer(202, b"", {"Location": self.server.location} if self.server.location else {})

    def part(self, data):
        wanted = self.headers.get("Range")
        start = int(wanted[6:-1]) if wanted else 0
        self.answer(206 if wanted else 200, data[start:],
                    {"Content-Range": f"bytes {start}-{len(data) - 1}/{len(data)}"} if wanted else {})

    def answer(self, status, data, headers=None, length=None):
        self.send_response(status)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(data) if length is None else length))
        self.end_headers()
        self.wfile.write(data)
        if length is not None and length != len(data):
            self.close_connection = True


