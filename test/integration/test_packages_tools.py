"""Real installers through ripcord-packages, from upstreams of our own and from the public ones."""
import concurrent.futures
import json
import os
import random
import socket
import subprocess
import time

import packages_fixture
from ripcord_test import Config, alone, full_run_only


def which(*programs):
    return next((p for p in programs if subprocess.run(["sh", "-c", f"command -v {p}"], stdout=subprocess.DEVNULL,
                                                       check=False).returncode == 0), None)


class Tools(packages_fixture.TestCase):
    """Real installers."""

    def run_tool(self, *argv, code=0, cwd=None, **env):
        clean = {"PATH": os.environ["PATH"], "HOME": str(self.tmp), "LC_ALL": "C.UTF-8", "PIP_CONFIG_FILE": "/dev/null",
                 "PIP_DISABLE_PIP_VERSION_CHECK": "1", "NPM_CONFIG_CACHE": str(self.tmp / "npm-cache"),
                 "NPM_CONFIG_UPDATE_NOTIFIER": "false", "NPM_CONFIG_FUND": "false", **env}
        p = subprocess.run(argv, env=clean, cwd=cwd or self.tmp, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                           timeout=600 if Config.soak else 180, check=False)
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
        cache = self.start_cache(metadata_life=0)
        host = cache.listen()
        self.pip(host, "a", "Demo_Pkg")
        self.assertIn("1.0", (self.tmp / "a" / "demo_pkg.py").read_text(encoding="ascii"))
        self.assertTrue((self.tmp / "a" / "helper.py").exists())
        self.up.stop()
        self.pip(cache.listen("b"), "b", "demo-pkg==1.0")
        self.assertTrue((self.tmp / "b" / "helper.py").exists())

    @full_run_only
    def test_pip_refuses_what_is_wrong_and_says_why(self):
        self.need_pip()
        file, data = self.up.add_wheel("demo", "1.0", os.urandom(1000))
        self.up.files[f"/files/{file}"] = bytes(len(data))
        denied, _ = self.up.add_wheel("evil", "1.0")
        host = self.start_cache(deny=["evil"]).listen()
        self.assertIn("wrong digest", self.pip(host, "a", "demo", code=1))
        self.assertIn("is on the deny list", self.pip(host, "a", "evil", code=1))

    def test_npm_installs(self):
        if not which("npm"):
            self.skipTest("npm is not installed")
        self.up.add_npm("leaf", "1.2.0")
        self.up.add_npm("@corp/tree", "2.0.0", dependencies={"leaf": "^1.0.0"})
        cache = self.start_cache(metadata_life=0, deny=["npm:evil"])
        for box in ("a", "b"):
            host, folder = cache.listen(box), self.tmp / box
            folder.mkdir()
            (folder / "package.json").write_text("{}", encoding="ascii")
            env = {"NPM_CONFIG_REGISTRY": f"http://{host}/npm/", "NPM_CONFIG_CACHE": str(self.tmp / f"cache-{box}"),
                   "NPM_CONFIG_PREFER_OFFLINE": "true"}
            self.run_tool("npm", "install", "@corp/tree", cwd=folder, **env)
            self.assertIn("1.2.0", (folder / "node_modules/leaf/index.js").read_text(encoding="ascii"))
            self.up.stop()
        # The cache answers later requests from what it stored during an install.
        self.assertEqual(self.run_tool("npm", "view", "leaf", "scripts.test", **env), "true\n")
        (self.tmp / "c").mkdir()
        self.run_tool("npm", "install", "--offline", "@corp/tree", cwd=self.tmp / "c", **env)
        out = self.run_tool("npm", "install", "evil", code=1, cwd=folder, NPM_CONFIG_REGISTRY=f"http://{host}/npm/",
                            NPM_CONFIG_FETCH_RETRIES="0")
        self.assertIn("is on the deny list", out)

    @full_run_only
    def test_offline_fails_at_once(self):
        """npm retries for more than a minute if the fault looks temporary."""
        if not which("npm"):
            self.skipTest("npm is not installed")
        host, folder = self.start_cache(offline="always").listen(), self.tmp / "a"
        folder.mkdir()
        (folder / "package.json").write_text("{}", encoding="ascii")
        since = time.monotonic()
        out = self.run_tool("npm", "install", "leaf", code=1, cwd=folder, NPM_CONFIG_REGISTRY=f"http://{host}/npm/")
        self.assertIn("is not in the cache and the package cache is offline", out)
        self.assertLess(time.monotonic() - since, 40)


class Parallel(Tools):
    """Many installers at once while the package cache is killed and started again."""

    test_pip_installs = test_pip_refuses_what_is_wrong_and_says_why = test_npm_installs = test_offline_fails_at_once = None

    def attempt(self, i, host, folder):
        """One installer's run: the bytes that it has brought, or None. What is cut off may fail, and is tried again."""
        argv = ["nice", *(["npm", "pack", "--loglevel=error", f"n{i}"] if i % 2 else
                          ["/usr/bin/python3", "-m", "pip", "download", "-q", "--no-cache-dir", "--no-deps", "-d", ".", f"p{i}"])]
        env = {"PATH": os.environ["PATH"], "HOME": str(folder), "PIP_CONFIG_FILE": "/dev/null", "PIP_DISABLE_PIP_VERSION_CHECK": "1",
               "PIP_INDEX_URL": f"http://{host}/pypi/simple/", "NPM_CONFIG_REGISTRY": f"http://{host}/npm/",
               "NPM_CONFIG_CACHE": str(folder / "cache"), "NPM_CONFIG_UPDATE_NOTIFIER": "false",
               "NPM_CONFIG_FETCH_RETRIES": "10", "NPM_CONFIG_FETCH_RETRY_MINTIMEOUT": "200", "NPM_CONFIG_FETCH_RETRY_MAXTIMEOUT": "2000",
               "PIP_RETRIES": "10", "PIP_TIMEOUT": "60"}
        with open(folder / "log", "w", encoding="utf-8") as log:
            done = subprocess.run(argv, env=env, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=600, check=False)
        brought = [p for p in folder.iterdir() if p.suffix in (".whl", ".tgz")]
        return brought[0].read_bytes() if done.returncode == 0 and brought else None

    def installer(self, i, host):
        folder = self.tmp / f"at-{i}"
        folder.mkdir()
        return next((data for data in (self.attempt(i, host, folder) for _ in range(20)) if data), None)

    def kill_while(self, cache, listener, jobs, most):
        """Kills it whenever so much has been asked of the upstreams again, however fast the machine is; then all may come through."""
        kills, step = 0, max(2, len(jobs) // 10)
        while not all(j.done() for j in jobs):
            if kills < most and len(self.up.requests) >= (kills + 1) * step:
                time.sleep(random.uniform(0, 0.3))
                cache.kill()
                cache.start()
                cache.ask(packages_fixture.LISTEN, (packages_fixture.TAG_SANDBOX, "a"), fd=listener.fileno())
                kills += 1
            time.sleep(0.02)
        return kills

    @full_run_only
    @(alone if Config.soak else lambda test: test)  # two hundred programs leave nothing to others
    def test_installers_with_restarts(self):
        self.need_pip()
        if not which("npm"):
            self.skipTest("npm is not installed")
        many = 200 if Config.soak else 6
        truth = {i: self.up.add_npm(f"n{i}", "1.0.0", os.urandom(50000 + 9999 * i)) if i % 2 else
                 self.up.add_wheel(f"p{i}", "1.0", os.urandom(50000 + 9999 * i))[1] for i in range(many)}
        # The upstream is a thread of ours beside hundreds of busy programs: what is slow here does not hang.
        cache = self.start_cache(connections_max=512, requests_per_second=0, connect_timeout=60, stall_timeout=60)
        with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
            host = f"127.0.0.1:{listener.getsockname()[1]}"
            cache.ask(packages_fixture.LISTEN, (packages_fixture.TAG_SANDBOX, "a"), fd=listener.fileno())
            with concurrent.futures.ThreadPoolExecutor(many) as pool:
                jobs = [pool.submit(self.installer, i, host) for i in range(many)]
                kills = self.kill_while(cache, listener, jobs, most=20)
                wrong = [i for i, j in enumerate(jobs) if j.result() != truth[i]]
                self.assertEqual(wrong, [], [(self.tmp / f"at-{i}" / "log").read_text(encoding="utf-8") for i in wrong[:2]])
        self.assertGreater(kills, 0)
        self.stored()
        self.assertEqual(cache.ask(packages_fixture.VERIFY)["bad"], [])


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

    test_pip_installs = test_pip_refuses_what_is_wrong_and_says_why = test_npm_installs = test_offline_fails_at_once = None

    def live(self):
        cache = packages_fixture.PackageCache(self.tmp / "store", [
            {"name": "pypi", "type": "pypi", "url": "https://pypi.org/simple/"},
            {"name": "npm", "type": "npm", "url": "https://registry.npmjs.org/"}], connect_timeout=10, stall_timeout=30)
        self.addCleanup(cache.stop)
        return cache

    def test_live_pip_twice(self):
        self.need_pip()
        cache = self.live()
        self.pip(cache.listen("a"), "a", "idna==3.7")
        before = cache.counters("pypi")["bytes_upstream"]
        self.pip(cache.listen("b"), "b", "idna==3.7")
        self.assertEqual(cache.counters("pypi")["bytes_upstream"], before)
        self.assertTrue((self.tmp / "b" / "idna" / "core.py").exists())

    def test_live_npm_twice(self):
        if not which("npm"):
            self.skipTest("npm is not installed")
        cache = self.live()
        before = None
        for box in ("a", "b"):
            host, folder = cache.listen(box), self.tmp / box
            folder.mkdir()
            (folder / "package.json").write_text("{}", encoding="ascii")
            self.run_tool("npm", "install", "is-odd@3.0.1", cwd=folder, NPM_CONFIG_REGISTRY=f"http://{host}/npm/",
                          NPM_CONFIG_CACHE=str(self.tmp / f"cache-{box}"))
            self.assertTrue((folder / "node_modules/is-number/index.js").exists())
            self.assertIn(before, (None, cache.counters("npm")["bytes_upstream"]))
            before = cache.counters("npm")["bytes_upstream"]

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
        cache = self.live()
        host = cache.listen()
        self.pip(host, "tools", "uv==0.5.11")
        before = None
        for box in ("a", "b"):
            self.run_tool(str(self.tmp / "tools/bin/uv"), "pip", "install", "--python", "/usr/bin/python3", "--target",
                          str(self.tmp / box), "idna==3.7", UV_DEFAULT_INDEX=f"http://{cache.listen(box)}/pypi/simple/",
                          UV_CACHE_DIR=str(self.tmp / f"cache-{box}"))
            self.assertTrue((self.tmp / box / "idna" / "core.py").exists())
            self.assertIn(before, (None, cache.counters("pypi")["bytes_upstream"]))
            before = cache.counters("pypi")["bytes_upstream"]

    def soak_only(self):
        if not Config.soak:
            self.skipTest("in a soak only: it fetches each of these programs")
        self.need_pip()

    def test_live_pipx(self):
        self.soak_only()
        host = self.live().listen()
        index = {"PIP_INDEX_URL": f"http://{host}/pypi/simple/", "PIPX_HOME": str(self.tmp / "pipx"),
                 "PIPX_BIN_DIR": str(self.tmp / "bin"), "PYTHONPATH": str(self.tmp / "tools"),
                 "PIPX_DEFAULT_PYTHON": "/usr/bin/python3"}
        self.pip(host, "tools", "pipx==1.8.0")
        self.run_tool("/usr/bin/python3", "-m", "pipx", "install", "cowsay==6.1", **index)
        self.assertIn("moo", self.run_tool(str(self.tmp / "bin" / "cowsay"), "-t", "moo"))

    def test_live_poetry(self):
        """poetry has no variable for its index: the project names it as its only source."""
        self.soak_only()
        cache = self.live()
        host, folder = cache.listen(), self.tmp / "project"
        self.pip(host, "tools", "poetry==2.2.1")
        env = {"PYTHONPATH": str(self.tmp / "tools"), "POETRY_VIRTUALENVS_IN_PROJECT": "true",
               "POETRY_CACHE_DIR": str(self.tmp / "poetry-cache")}
        poetry = ("/usr/bin/python3", "-m", "poetry", "--no-interaction")
        folder.mkdir()
        self.run_tool(*poetry, "init", "--name", "demo", "--python", ">=3.11,<4", cwd=folder, **env)
        self.run_tool(*poetry, "source", "add", "--priority=primary", "ripcord", f"http://{host}/pypi/simple/", cwd=folder, **env)
        self.run_tool(*poetry, "add", "idna==3.7", cwd=folder, **env)
        self.assertTrue(list(folder.glob(".venv/lib/python3*/site-packages/idna/core.py")))
        before = cache.counters("pypi")["bytes_upstream"]
        subprocess.run(["rm", "-rf", folder / ".venv", self.tmp / "poetry-cache"], check=True)
        self.run_tool(*poetry, "install", "--no-root", cwd=folder, **env)
        self.assertTrue(list(folder.glob(".venv/lib/python3*/site-packages/idna/core.py")))
        self.assertEqual(cache.counters("pypi")["bytes_upstream"], before)

    def test_live_other_installers(self):
        self.soak_only()
        cache = self.live()
        host = cache.listen()
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
