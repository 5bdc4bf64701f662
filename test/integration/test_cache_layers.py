"""Tool caches over a base on a container engine: volumes, and overlays of them."""
import hashlib
import io
import os
import tarfile
from pathlib import Path

import engines
from ripcord_test import Config, only_on, wait_until
from test_caches import CachesCase

# Stands in for pip, which the image of test engines does not have: downloads the given files and caches them.
SMALL_PIP = """
import os, re, sys, urllib.request
from urllib.parse import urljoin
package = sys.argv[-1]
page = os.environ["PIP_INDEX_URL"] + package + "/"
html = urllib.request.urlopen(urllib.request.Request(page, headers={"Accept": "text/html"})).read().decode()
data = urllib.request.urlopen(urljoin(page, re.search('href="([^"#]*)', html).group(1))).read()
os.makedirs(os.environ["PIP_CACHE_DIR"] + "/http", exist_ok=True)
open(os.environ["PIP_CACHE_DIR"] + "/http/" + package, "wb").write(data)
"""


@only_on("docker", "podman")
class Layers(CachesCase):
    """`cache warm` on that machine, and what sandboxes see afterwards."""

    def image(self, files):
        """The test image with these files in it: {path: bytes}."""
        engine, name = Config.backend, f"{self.root.prefix()}-pip"
        made = engine.api("POST", "/containers/create", {"Image": engines.IMAGE, "Cmd": ["/"]}).json()["Id"]
        self.addCleanup(engine.api, "DELETE", f"/containers/{made}?force=1")
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as tar:
            for path, data in files.items():
                info = tarfile.TarInfo(path)
                info.size, info.mode = len(data), 0o644
                tar.addfile(info, io.BytesIO(data))
        target = f"/containers/{made}/archive?path=/"
        wait_until(lambda: engine.api("PUT", target, out.getvalue()).ok, 30, "the engine to take files")  # Podman, now and then, not at once
        done = engine.api("POST", f"/commit?container={made}&repo={name}", {})
        self.assertTrue(done.ok, done)
        self.addCleanup(engine.api, "DELETE", f"/images/{name}?force=1")
        return name

    @staticmethod
    def debian_pip():
        """Debian's own, and what of the standard library the small image lacks for it."""
        folders = [Path("/usr/lib/python3/dist-packages/pip"), *Path("/usr/lib").glob("python3.*/distutils")]
        return {str(p).lstrip("/"): p.read_bytes() for f in folders for p in f.rglob("*")
                if p.is_file() and "__pycache__" not in p.parts}

    def test_warm_with_debian_pip(self):
        """What pip itself has put into the base, pip itself finds there."""
        files = self.debian_pip()
        if not files:
            self.skipTest("Debian's pip is not installed")
        if Config.backend.kind == "podman" and not Config.soak:
            self.skipTest("Docker shows it")
        self.up.add_wheel("demo", "1.5", os.urandom(50000))
        image = self.image(files)
        self.root.ok("cache", "warm", "--engine", "docker", "--image", image, "--tool", "pip", "demo==1.5")
        self.root.ok("up", "a", "--image", image)
        self.assertEqual(self.install("a"), "1.5")
        counted = self.root.ok("show", "a", "--json").json()["packages"]["pypi"]
        self.assertLess(counted["bytes_store"], 50000, "the wheel was there already")
        self.root.ok("rm", "-f", "a")
        self.root.ok("cache", "prune", "--tool", "all")

    def volumes(self, word):
        found = Config.backend.api("GET", "/volumes").json()["Volumes"] or []
        return [v["Name"] for v in found if v["Name"].startswith(f"{self.root.prefix()}-{word}-")]

    def test_base_cannot_be_poisoned(self):
        payload = os.urandom(50000)
        wheel = self.up.add_wheel("demo", "1.5", payload)[1]
        image = self.image({"usr/lib/python3/dist-packages/pip/__main__.py": SMALL_PIP.encode()})
        self.root.ok("cache", "warm", "--engine", "docker", "--image", image, "--tool", "pip", "demo")
        for name, mode in ("a", "layered"), ("b", "layered"), ("r", "readonly"), ("p", "private"):
            self.root.ok("up", name, "--cache", f"pip={mode}")
        self.assertEqual(self.files("p", "/cache/pip"), [])
        for name in "ar":
            self.shell(name, "echo poison >/cache/pip/http/demo && echo new >/cache/pip/x")
        self.assertEqual(self.shell("b", "cd /cache/pip && sha256sum http/demo && ls && id -u && stat -c %u ."),
                         f"{hashlib.sha256(wheel).hexdigest()}  http/demo\nhttp\n1000\n1000\n")
        for name in "ar":
            self.root.ok("stop", name)
        self.assertEqual(self.files("a", "/cache/pip"), ["/cache/pip/http/demo", "/cache/pip/x"])
        self.assertEqual(self.shell("a", "cat /cache/pip/http/demo"), "poison\n")
        self.assertEqual(self.files("r", "/cache/pip"), ["/cache/pip/http/demo"])
        self.assertIn(hashlib.sha256(wheel).hexdigest(), self.shell("r", "sha256sum /cache/pip/http/demo"))
        self.assertIn("overlay /cache/pip overlay rw,nosuid,nodev", self.shell("a", "cat /proc/self/mounts"))
        listed = self.root.ok("cache", "ls", "--json").json()
        self.assertIn(("docker", "base", "pip"), [(c["engine"], c["kind"], c["tool"]) for c in listed["tools"]])

        self.up.add_wheel("other", "1.0")
        self.root.ok("cache", "warm", "--engine", "docker", "--image", image, "--tool", "pip", "other")
        self.assertEqual(len(self.volumes("base")), 2, "the old one is in use")
        self.root.ok("up", "c")
        self.assertEqual(self.files("c", "/cache/pip"), ["/cache/pip/http/demo", "/cache/pip/http/other"])
        self.root.ok("rm", "-f", "a", "b", "c", "r", "p")
        self.assertEqual(self.volumes("layer") + self.volumes("upper"), [])
        self.root.ok("cache", "prune", "--tool", "pip")
        self.assertEqual(self.volumes("base"), [])
