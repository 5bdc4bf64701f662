"""Network `packages`: installs go through the package cache and nothing else leaves a sandbox.

The upstreams are our own (packages_fixture.py); the public ones are for test_packages_live.py.
"""
import json
import os
import platform
import shutil
import signal
import socket
import tempfile
import unittest
from pathlib import Path

import packages_fixture
import installers
from ripcord_test import Config, TestCase, alive, files_below, only_on, wait_until

PIP = "/usr/bin/python3 -m pip"
# Without caches of their own: what is fast or silent here is so because of the package cache.
PYTHON_TOOLS = {
    "Debian's pip": f"{PIP} install --no-cache-dir",
    "current pip": f"PYTHONPATH=/tools/pip {PIP} install --no-cache-dir",
    "uv": "/tools/uv/bin/uv pip install --no-cache --python /usr/bin/python3",
}
NODE_TOOLS = {
    "npm": "npm install --cache /tmp/c --no-audit",
    "pnpm 10": "node /tools/pnpm/node_modules/pnpm/bin/pnpm.cjs add --store-dir /tmp/c --config.cache-dir=/tmp/c/meta",
    "current pnpm": "/tools/pnpm-now/node_modules/.bin/pnpm add --store-dir /tmp/c --config.cache-dir=/tmp/c/meta",
}
LISTENER = "127.0.0.1:7417"

# What a hostile program sees of the network: its interfaces, and the addresses that answer.
PROBE = """
import os, socket
print("interfaces", *sorted(os.listdir("/sys/class/net")) if os.path.isdir("/sys/class/net") else "?")
print("names", *sorted(name for _, name in socket.if_nameindex()))
print("routes", open("/proc/net/route").read().count("\\n") - 1)
for address in %r:
    try:
        socket.create_connection(tuple(address), timeout=2).close()
        print("reaches", *address)
    except OSError as e:
        pass
"""


FETCH = f"""
import http.client
c = http.client.HTTPConnection("{LISTENER}", timeout=20)
c.request("GET", "/pypi/simple/demo/")
print(c.getresponse().status)
"""


FETCH_FILE = f"""
import json, urllib.request
page = urllib.request.Request("http://{LISTENER}/pypi/simple/demo/", headers={{"Accept": "application/vnd.pypi.simple.v1+json"}})
link = json.load(urllib.request.urlopen(page))["files"][0]["url"]
urllib.request.urlopen("http://{LISTENER}/pypi/" + link.removeprefix("../../")).read()
"""


class PackagesCase(TestCase):
    def setUp(self):
        super().setUp()
        packages_fixture.TestCase.prepare()
        self.up = packages_fixture.Upstream(packages_fixture.TestCase.certificates)
        self.addCleanup(self.up.stop)
        self.configure()

    def configure(self, more="", upstreams=None):
        """Both indexes are the test's own."""
        self.folder = Path(tempfile.mkdtemp(prefix="ripcord-packages-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        file = self.folder / "upstreams.json"
        file.write_text(json.dumps(upstreams or [self.up.as_pypi("own-pypi"), self.up.as_npm("own-npm")]),
                        encoding="utf-8")
        self.root.configure(f"mounts.roots: [/usr, /root, /home]\nregistry.pypi: ''\nregistry.npm: ''\nregistry.upstreams: {file}\n{more}")

    def packages_pid(self):
        return self.root.packages_pid()

    @staticmethod
    def tools():
        """The machine's own programs: the image of test engines is small, and made of the same packages."""
        places = ("PYTHONPATH=/machine/lib/python3/dist-packages", "PYTHONHOME=/machine",
                  f"LD_LIBRARY_PATH=/machine/lib/{platform.machine()}-linux-gnu",
                  "PATH=/usr/local/bin:/usr/bin:/bin:/machine/bin")
        more, _ = installers.folder()
        return [*(["--mount", f"{more}:/tools:ro"] if more else []),
                *(["--mount", "/usr:/machine:ro", *(o for p in places for o in ("-e", p))] if Config.backend else [])]

    def start_sandbox(self, name, *options):
        return self.root.ok("up", name, *self.tools(), *options)

    def pip(self, name, package, tool="Debian's pip"):
        """Installs as the sandbox's user; what it says ends with the uid and the package's version."""
        return self.shell(name, f"rm -rf /tmp/t && {PYTHON_TOOLS[tool]} --target /tmp/t {package} 2>&1 && id -u "
                          f"&& PYTHONPATH=/tmp/t python3 -c 'import {package}; print({package}.version)'")

    def npm(self, name, package, tool="npm"):
        return self.shell(name, f"rm -rf /tmp/n /tmp/c && mkdir /tmp/n && cd /tmp/n && echo '{{}}' > package.json && "
                          f"{NODE_TOOLS[tool]} {package} 2>&1 && id -u && node -p 'require(\"{package}\")'")

    @staticmethod
    def all_of(tools):
        """Those of a table that are here: the ones of packages always. What differs between engines, the first shows."""
        here = [t for t, command in tools.items() if "/tools/" not in command or installers.folder()[0]]
        return here[:1] if Config.backend and Config.backend.kind == "podman" else here

    def fetch(self, name):
        """What the index says of `demo`, asked by a plain program."""
        return self.root.ok("exec", name, "--", "/usr/bin/python3", "-c", FETCH).text.strip()


class Install(PackagesCase):
    def setUp(self):
        super().setUp()
        self.start_sandbox("a")
        self.start_sandbox("b")

    def count(self, name, eco):
        return self.root.ok("show", name, "--json").json()["packages"][eco]

    def test_pip_install_uses_the_cache(self):
        """What A has installed B gets without a byte from upstream, and with the upstream switched off."""
        tools = self.all_of(PYTHON_TOOLS)
        for i, tool in enumerate(tools):
            self.up.add_wheel(f"demo{i}", "1.5", os.urandom(200000))
            self.assertTrue(self.pip("a", f"demo{i}", tool).endswith("1000\n1.5\n"), tool)
            self.assertEqual(self.up.count(f"demo{i}-1.5-py3-none-any.whl"),
                             1 + self.up.count(f"demo{i}-1.5-py3-none-any.whl.metadata"))
        if not Config.backend:  # they show it below
            before = len(self.up.requests)
            self.assertTrue(self.pip("b", "demo0").endswith("1000\n1.5\n"))
            self.assertEqual(len(self.up.requests), before, self.up.requests)
        self.up.stop()
        for i, tool in enumerate(tools):
            self.assertTrue(self.pip("b", f"demo{i}", tool).endswith("1000\n1.5\n"), tool)
        first, second = self.count("a", "pypi"), self.count("b", "pypi")
        self.assertGreater(first["bytes_upstream"], 200000 * len(tools))
        self.assertEqual((second["bytes_upstream"], second["misses"], second["errors"]), (0, 0, 0))
        self.assertGreater(second["bytes_store"], 200000 * len(tools))

    @only_on("native")
    def test_plain_pip_install(self):
        """Debian's rule of externally managed environments does not hold in a sandbox, and programs of packages are found."""
        self.up.add_wheel("demo", "1.5", scripts={"demo-tool": "#!/bin/sh\necho tool of demo\n"})
        said = self.shell("a", "pip install demo 2>&1 && python3 -c 'import demo; print(demo.version)' && demo-tool")
        self.assertTrue(said.endswith("1.5\ntool of demo\n"), said)
        self.assertNotIn("not on PATH", said)
        self.assertEqual(self.shell("a", "python3 -m venv v && v/bin/pip install -q demo && v/bin/python -c 'import demo; "
                                    "print(demo.__file__.split(\"/\")[3])'"), "v\n")
        self.start_sandbox("c", "-e", "PIP_BREAK_SYSTEM_PACKAGES=0", "-e", "PATH=/usr/bin")
        self.assertEqual(self.shell("c", "echo $PIP_BREAK_SYSTEM_PACKAGES $PATH"), "0 /usr/bin\n")

    @unittest.skipUnless(shutil.which("npm"), "needs npm")
    def test_npm_install_uses_the_cache(self):
        tools = self.all_of(NODE_TOOLS)
        for i, tool in enumerate(tools):
            self.up.add_npm(f"demo{i}", "1.5.0", os.urandom(200000))
            self.assertTrue(self.npm("a", f"demo{i}", tool).endswith("1000\n1.5.0\n"), tool)
        if not Config.backend:  # they show it below
            before = len(self.up.requests)
            self.assertTrue(self.npm("b", "demo0").endswith("1000\n1.5.0\n"))
            self.assertEqual(len(self.up.requests), before, self.up.requests)
        self.up.stop()
        for i, tool in enumerate(tools):
            self.assertTrue(self.npm("b", f"demo{i}", tool).endswith("1000\n1.5.0\n"), tool)
        second = self.count("b", "npm")
        self.assertEqual((second["bytes_upstream"], second["misses"], second["errors"]), (0, 0, 0))
        self.assertEqual([p for p in self.up.requests if p in ("/npm/npm", "/npm/pnpm")], [], "nobody looks for a newer self")


@only_on("native")
class WithoutNamespaces(PackagesCase):
    """Isolation `confined`: the cache is behind a port of the machine's loopback interface."""

    def setUp(self):
        super().setUp()
        if "isolation_confined" not in self.root.start().get("/v1/engines")["engines"][0]["capabilities"]:
            self.skipTest("Landlock of this kernel has no scopes")

    def test_confined_sandboxes_share_what_one_has_installed(self):
        self.up.add_wheel("demo", "1.5", os.urandom(200000))
        script = ("/usr/bin/python3 -m pip install --no-cache-dir -q --target $TMPDIR/t demo 2>&1 && PYTHONPATH=$TMPDIR/t /usr/bin/python3 -c "
                  "'import demo; print(demo.version)'")
        for name in ("a", "b"):
            self.root.ok("up", name, "--isolation", "confined")
            self.assertEqual(self.shell(name, script), "1.5\n")
            self.up.stop()
        self.assertEqual(self.root.ok("show", "b", "--json").json()["packages"]["pypi"]["misses"], 0)
        self.assert_exit(self.root.run("exec", "b", "--", "/usr/bin/python3", "-m", "pip", "install", "-q", "--target", "t", "absent"), 1)


class Settings(PackagesCase):
    def check_stats_over_http(self):
        """The same figures in each answer that has the end."""
        spec = {"argv": ["/usr/bin/python3", "-c", FETCH_FILE], "stats": True}
        for target, body in (("/v1/run", {"exec": spec}), ("/v1/sandboxes/a/execs", spec)):
            doc = self.root.http("POST", target + "?wait=60s", body).json()
            self.assertEqual([doc["exec"]["end"]["packages"]["pypi"][n] for n in ("hits", "misses")], [1, 0], doc)
            for accept in ("text/event-stream", "application/x-ndjson"):
                reply = self.root.http("POST", target, body, {"Accept": accept})
                last = json.loads(reply.body.strip().splitlines()[-1].removeprefix(b"data: "))
                self.assertEqual([last["end"]["packages"]["pypi"][n] for n in ("hits", "misses")], [1, 0], reply)
        nothing = {"argv": ["true"], "stats": True}
        doc = self.root.http("POST", "/v1/sandboxes/a/execs?wait=60s", nothing).json()
        self.assertEqual(doc["exec"]["end"]["packages"].get("pypi", {}).get("hits", 0), 0, doc)

    def test_stats(self):
        """One line says what a command got from the package cache, also of a sandbox that goes with it."""
        self.up.add_wheel("demo", "1.5", os.urandom(200000))
        command = ("--stats", "--", "/usr/bin/python3", "-c", FETCH_FILE)
        said = self.root.ok("run", *command).err.decode()
        self.assertRegex(said, r"packages: 0 hits, 1 miss, .* from the cache, 19\d(\.\d)? KiB downloaded\n")
        said = self.root.ok("run", *command).err.decode()
        self.assertRegex(said, r"packages: 1 hit, 0 misses, 19\d(\.\d)? KiB from the cache, 0 B downloaded\n")
        self.root.ok("up", "a")
        self.assertNotIn("packages:", self.root.ok("exec", "a", "--stats", "--", "true").err.decode())
        self.fetch("a")
        said = self.root.ok("exec", "a", *command).err.decode()
        self.assertRegex(said, r"packages: 1 hit, 0 misses, ")
        shown = self.root.ok("cache", "show", "--json").json()
        (box,) = [i for i, name in shown["names"].items() if name == "a"]
        self.assertGreaterEqual(shown["sandboxes"][box]["pypi"]["hits"], 1)
        self.assertRegex(self.root.ok("cache", "show").text, r"(?m)^a +pypi +1 +0 ")
        self.check_stats_over_http()

    @only_on("native")
    def test_run_and_own_settings(self):
        """A one-off run is served too; what the user sets stays as it is."""
        self.up.add_wheel("demo", "1.5")
        self.root.ok("run", *self.tools(), "--", "sh", "-c", f"{PIP} download -q -d /tmp/d demo && ls /tmp/d/demo-1.5-*")
        self.start_sandbox("a", "-e", "npm_config_registry=http://own/")
        seen = self.root.ok("exec", "a", "-e", "PIP_INDEX_URL=http://mine/", "--", "env").text
        self.assertIn("PIP_INDEX_URL=http://mine/\n", seen)
        self.assertNotIn("NPM_CONFIG_REGISTRY", seen)
        for line in f"UV_DEFAULT_INDEX=http://{LISTENER}/pypi/simple/", f"pnpm_config_registry=http://{LISTENER}/npm/", "NPM_CONFIG_UPDATE_NOTIFIER=false":
            self.assertIn(line + "\n", seen)
        self.assertNotIn("PIP_INDEX_URL", self.root.ok("run", "--network", "none", "--", "env").text)


@only_on("native")
class Cache(PackagesCase):
    def test_look_and_tend(self):
        file = "pypi/demo/" + self.up.add_wheel("demo", "1.5", b"x" * 5000)[0]
        self.root.ok("up", "a")
        self.assertEqual(self.root.ok("cache", "ls", "--json").json()["files"], [])
        self.shell("a", f"{PIP} download -q -d /tmp/d demo")
        kept = {f["file"]: f for f in self.root.ok("cache", "ls", "--json").json()["files"]}
        self.assertIn(file, kept, kept)
        self.assertIn(file, self.root.ok("cache", "ls").text)
        self.assertIn("own-pypi: https://", self.root.ok("cache", "show").text)
        self.assertEqual(self.root.ok("cache", "show", "--json").json()["store"]["files"], len(kept))
        self.assertIn("yes", self.root.ok("cache", "show", "pypi/demo").text)
        self.assertIn(file, self.root.ok("cache", "show", kept[file]["digest"]).text)
        self.assertEqual(self.root.run("cache", "show", "pypi/other").code, 3)
        self.root.ok("cache", "verify")
        self.spoil(kept[file]["digest"])
        self.assertEqual(self.root.run("cache", "verify").code, 1)
        self.assertIn("0 corrupt", self.root.ok("cache", "verify").text)
        self.root.ok("cache", "prune", "--keep", "0")
        self.assertEqual(self.root.ok("cache", "ls", "--json").json()["files"], [])
        self.shell("a", f"{PIP} download -q --no-cache-dir -d /tmp/e demo")

    def spoil(self, digest):
        path = next(files_below(self.root.path / "state" / "registry", digest.partition(":")[2]))
        os.chmod(path, 0o644)
        path.write_bytes(b"not what it was")

    def test_bad_calls(self):
        self.root.start()
        for args in (["cache"], ["cache", "lst"], ["cache", "ls", "x"], ["cache", "prune", "--keep", "much"]):
            self.assert_exit(self.root.run(*args), 2)
        for words, *args in (("'ripcord cache ls' does not take option '--keep'", "ls", "--keep", "0"),
                             ("'ripcord cache verify' does not take option '--tool'", "verify", "--tool", "pip"),
                             ("'ripcord cache warm' does not take option '--mounts'", "warm", "--tool", "pip", "demo", "--mounts"),
                             ("'ripcord cache prune' does not take option '--image'", "prune", "--image", "host"),
                             ("--tool cannot be combined with", "prune", "--tool", "pip", "--unused", "30d"),
                             ("Did you mean '--unused'", "prune", "--unusd", "30d")):
            done = self.root.run("cache", *args)
            self.assertIn(words, done.err.decode())
            self.assert_exit(done, 2)
        self.assert_refused(self.root.http("GET", "/v1/caches/packages/show"), 400, "invalid", "of")
        self.assert_refused(self.root.http("POST", "/v1/caches/packages/prune", {"kep": 1}), 400, "invalid", "keep")
        self.assert_refused(self.root.http("GET", "/v1/caches/packages/show?of=pypi/../../x"), 404, "not_found")


class Reach(PackagesCase):
    def test_nothing_else_is_reached(self):
        """No interface but lo, no route, and of the host only the listener of the package cache."""
        with socket.create_server(("", 0)) as host:
            port = host.getsockname()[1]
            others = [("127.0.0.1", port), ("127.0.0.1", self.up.port), ("192.0.2.1", 80), ("::1", 7417)]
            for name, network, expected in (("a", "packages", ["reaches 127.0.0.1 7417"]), ("b", "none", [])):
                self.start_sandbox(name, "--network", network)
                seen = self.root.ok("exec", name, "--", "/usr/bin/python3", "-c",
                                    PROBE % ([*others, ("127.0.0.1", 7417)],)).text.splitlines()
                self.assertIn("names lo", seen)
                self.assertIn("routes 0", seen)
                self.assertEqual([l for l in seen if l.startswith("reaches")], expected, seen)

    def test_no_way_out(self):
        """Only package paths exist behind the listener."""
        self.start_sandbox("a")
        probe = "import http.client\nfor m, p in %r:\n c = http.client.HTTPConnection('127.0.0.1', 7417, timeout=10)\n" \
                " c.request(m, p)\n print(c.getresponse().status)\n c.close()\n"
        asks = [("CONNECT", f"localhost:{self.up.port}"), ("GET", f"{self.up.url}/simple/demo/"), ("GET", "/etc/passwd"),
                ("PUT", "/pypi/simple/demo/"), ("DELETE", "/npm/demo"), ("GET", "/pypi/../../etc/passwd")]
        seen = self.root.ok("exec", "a", "--", "/usr/bin/python3", "-c", probe % asks).text.split()
        self.assertEqual(len(seen), len(asks))
        self.assertTrue(all(400 <= int(status) < 600 for status in seen), seen)
        self.assertEqual(self.up.requests, [])


class Restart(PackagesCase):
    def test_daemon_killed(self):
        self.up.add_wheel("demo", "1.5")
        self.start_sandbox("a")
        self.fetch("a")
        before = self.packages_pid()
        self.root.kill_daemon()
        wait_until(lambda: not alive(before), 10, "the package cache to end with its daemon")
        self.root.start()
        self.assertEqual(self.fetch("a"), "200")
        self.root.ok("stop", "a")
        self.start_sandbox("a")
        self.assertEqual(self.fetch("a"), "200")
        self.root.ok("rm", "-f", "a")
        self.assertEqual(self.root.wait_clean(), {})


@only_on("native")
class Faults(PackagesCase):
    def test_cache_killed(self):
        self.up.add_wheel("demo", "1.5")
        self.root.ok("up", "a")
        self.assertIsNone(self.packages_pid(), "nobody has asked for a package yet")
        self.fetch("a")
        for _ in range(3):
            pid = self.packages_pid()
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: not alive(pid), 10, "the package cache to end")
            self.assertEqual(self.fetch("a"), "200")
            self.assertNotEqual(self.packages_pid(), pid)

    def test_refusals_are_events(self):
        """A file that is not what its index promised, and a package that a policy refuses."""
        self.configure("packages.deny: [evil]\n")
        file, data = self.up.add_wheel("demo", "1.5")
        self.up.files[f"/files/{file}"] = bytes(len(data))
        self.up.add_wheel("evil", "1.0")
        self.root.ok("up", "a")
        for name, why in (("demo", "wrong digest"), ("evil", "is on the deny list")):
            said = self.root.run("exec", "a", "--", "sh", "-c", f"{PIP} download --no-deps -d /tmp/d {name} 2>&1")
            self.assertNotEqual(said.code, 0)
            self.assertIn(why, said.text)
        events = [json.loads(line) for line in self.root.http("GET", "/v1/events?since=0&kind=packages").body.splitlines()]
        self.assertEqual(self.root.http("GET", "/v1/events?since=0&kind=registry").body.splitlines(),
                         self.root.http("GET", "/v1/events?since=0&kind=packages").body.splitlines(), "the old word")
        wrong = next(e for e in events if e["kind"] == "packages.mismatch")
        self.assertEqual((wrong["sandbox"], wrong["data"]["file"]), ("a", f"pypi/demo/{file}"))
        self.assertNotEqual(wrong["data"]["expected"], wrong["data"]["actual"])
        self.assertEqual({e["sandbox"] for e in events if e["kind"] == "packages.denied"}, {"a"})
        counted = self.root.ok("show", "a", "--json").json()["packages"]["pypi"]
        self.assertGreaterEqual(counted["mismatches"], 1)
        self.assertGreaterEqual(counted["denials"], 1)
        self.assertEqual(self.root.ok("cache", "ls", "--json").json()["files"], [])

    def test_nothing_stays(self):
        """Sockets and namespaces go with their sandbox, whether the package cache had them or not."""
        self.up.add_wheel("demo", "1.5")
        self.root.ok("up", "warm")
        self.fetch("warm")
        before = self.root.snapshot()
        for use in (True, False):
            self.root.ok("up", "a")
            self.root.ok("up", "b")
            if use:
                self.fetch("a")
            self.root.ok("rm", "-f", "a", "b")
        wait_until(lambda: self.root.snapshot() == before, 10, "what was there before")

    def test_cache_that_cannot_start(self):
        """The sandbox still starts, its tools fail at once, and `show` gives the reason."""
        self.configure(upstreams=[{"name": "x", "type": "nonsense", "url": "https://x/"}])
        self.root.ok("up", "a")
        result = self.root.run("exec", "a", "--", "sh", "-c", f"{PIP} download --retries 0 --timeout 20 demo", timeout=20)
        self.assertNotEqual(result.code, 0)
        shown = " ".join(self.root.get("/v1/sandboxes/a")["warnings"])
        self.assertIn("package cache is not running", shown)
        self.assertIn("nonsense", shown)

    def test_cache_required(self):
        self.configure("cache.required: true\n", upstreams=[{"name": "x", "type": "nonsense", "url": "https://x/"}])
        result = self.root.run("up", "a")
        self.assertNotEqual(result.code, 0)
        self.assertIn(b"package cache does not run", result.err)
        self.root.ok("up", "b", "--network", "none")
        self.assertEqual([s["name"] for s in self.root.sandboxes()], ["b"])
