"""Pulls and pushes with a real registry, and attacks by a hostile one."""
import base64
import contextlib
import json
import os
import threading
import unittest
from pathlib import Path

import image_registries
import packages_fixture
from image_registries import Image, index_of
from ripcord_test import Config, TestCase, files_below, wait_until
from test_images import ImageCase, config_of, digest, entry, rootfs, saved, tar

PASSWD = b"root:x:0:0::/:/bin/sh\nagent:x:1000:1000::/home/agent:/bin/sh\n"
MACHINE = json.loads(config_of([]))["architecture"]
OTHER = "arm64" if MACHINE == "amd64" else "amd64"


class PullCase(ImageCase):
    def pull(self, *argv, **kwargs):
        return self.root.run("image", "pull", *argv, **kwargs)

    def pull_ok(self, *argv, **kwargs):
        result = self.pull(*argv, "--json", **kwargs)
        self.assertEqual(result.code, 0, result)
        return json.loads(result.out)["images"][0]

    def downloads(self):
        return sorted(p.name for p in (Path(self.root.path) / "state/images/downloads").iterdir())


@unittest.skipUnless(image_registries.PROGRAM, "docker-registry is not installed")
class TestRegistry(PullCase):
    def setUp(self):
        super().setUp()
        self.registry = image_registries.RealRegistry()
        self.addCleanup(self.registry.close)

    def test_pull_and_run(self):
        base = rootfs()
        upper = tar(entry("y", data=b"pulled"))
        self.registry.put("team/tool", "1", Image([base, upper], Env=["A=b"]))
        self.registry.put("team/tool", "2", Image([base, tar(entry("y", data=b"again"))], kind=image_registries.DOCKER))
        name = f"{self.registry.host}/team/tool"
        first = self.pull_ok(f"{name}:1")
        self.assertEqual((first["names"], first["layers"], first["new_layers"]), ([f"{name}:1"], 2, 2))
        self.assertEqual(self.sh(f"{name}:1", "cat /y; echo $A"), "pulledb")
        second = self.pull_ok(f"{name}:2", "mine")
        self.assertEqual((second["names"], second["new_layers"]), (["mine:latest"], 1), "the other layer was here")
        self.assertEqual(self.sh("mine", "cat /y"), "again")
        self.assertEqual(self.pull_ok(f"{name}:1")["new_layers"], 0)
        self.assertEqual((self.downloads(), self.in_store("tmp")), ([], []))
        self.assertEqual(self.pull(f"{name}:3").code, 3)

    def test_tls_with_an_authority_of_our_own(self):
        packages_fixture.TestCase.prepare()
        certificates = packages_fixture.TestCase.certificates
        registry = image_registries.RealRegistry(certificates)
        self.addCleanup(registry.close)
        registry.put("team/tool", "1", Image([rootfs()]))
        name = f"{registry.host}/team/tool:1"
        self.assertNotEqual(self.pull(name).code, 0, "nobody here knows that authority")
        ca = Path(self.root.path) / "ca.pem"
        ca.write_bytes((certificates / "ca.pem").read_bytes())
        self.root.configure(f'transfer:\n  ca_file: {ca}\n  mirrors: ["registry.invalid=https://{registry.host}"]\n')
        self.root.kill_daemon()
        self.assertEqual(self.pull_ok(name)["new_layers"], 1)
        self.assertEqual(self.pull_ok("registry.invalid/team/tool:1")["new_layers"], 0, "from the mirror, by TLS too")
        result = self.root.run("image", "push", name, f"{registry.host}/pushed/tool:2")
        self.assertEqual(result.code, 0, result)
        self.assertEqual(registry.call("GET", "/v2/pushed/tool/tags/list")[1].strip(), b'{"name":"pushed/tool","tags":["2"]}')

    def test_platforms_and_digests(self):
        mine, other = Image([rootfs()]), Image([tar(entry("x"))], config=config_of([tar(entry("x"))]).replace(
            f'"{MACHINE}"'.encode(), f'"{OTHER}"'.encode()))
        index = index_of({OTHER: other, MACHINE: mine})
        for image in (mine, other):
            self.registry.put("multi", None, image)
        self.registry.put_manifest("multi", "1", index, image_registries.OCI_INDEX)
        name = f"{self.registry.host}/multi"
        self.assertEqual(self.pull_ok(f"{name}:1")["id"], digest(mine.config))
        self.assertEqual(self.pull_ok(f"{name}:1", "foreign", "--platform", f"linux/{OTHER}")["id"], digest(other.config))
        result = self.root.run("run", "--image", "foreign", "--", "true")
        self.assertIn(f"it is for {OTHER}", result.err.decode())
        self.assertIn("no image for platform linux/riscv64", self.pull(f"{name}:1", "--platform", "linux/riscv64").err.decode())
        self.assertEqual(self.pull_ok(f"{name}@{digest(mine.manifest)}", "pinned")["id"], digest(mine.config))
        self.assertEqual(self.pull_ok(f"{name}:x@{digest(index)}")["names"], [f"{name}:x"])
        self.assertIn("a digest alone does not name an image in the store", self.pull(f"{name}@{digest(index)}").err.decode())
        self.assertEqual(self.pull(f"{name}:1@sha256:{'0' * 64}").code, 3)

    def test_push_and_pull_back(self):
        upper = tar(entry("d", "d", uid=7, mode=0o750), entry("d/f", data=b"there and back"), entry("bin", "d"), entry("bin/.wh.find"))
        self.put_ok(saved([rootfs(), upper], ["tool:1"], Env=["A=b"]))
        name = f"{self.registry.host}/out/tool"
        first = json.loads(self.root.ok("image", "push", "tool:1", f"{name}:1", "--json").out)
        self.assertEqual((first["name"], first["layers"], first["sent"]), (f"{name}:1", 2, 3))
        again = json.loads(self.root.ok("image", "push", "tool:1", f"{name}:2", "--json").out)
        self.assertEqual((again["digest"], again["sent"], again["bytes"]), (first["digest"], 0, 0))
        self.root.ok("image", "rm", "tool:1")
        self.pull_ok(f"{name}:2@{first['digest']}")
        self.assertEqual(self.sh(f"{name}:2", "cat /d/f; stat -c ' %u %a' /d; echo $A; ls /bin/find || true", "--user", "7"),
                         "there and back 7 750\nb")
        third = json.loads(self.root.ok("image", "push", f"{name}:2", "--json").out)
        self.assertEqual((third["digest"], third["sent"]), (first["digest"], 0), "packed again it is the same")
        self.assertEqual(self.root.run("image", "push", "nope", f"{name}:3").code, 3)
        self.assertEqual(self.root.run("image", "push", f"{name}:2", f"{name}@{first['digest']}").code, 2)
        self.assertEqual(self.in_store("tmp"), [])


@unittest.skipUnless(image_registries.PROGRAM, "docker-registry is not installed")
class TestRunPulls(TestCase):
    """Images of a registry in `run` and `up`: on native in our store, on Docker and Podman in theirs."""

    def setUp(self):
        super().setUp()
        self.registry = image_registries.RealRegistry(netns=Config.backend.name if Config.backend else None)
        self.addCleanup(self.registry.close)

    def put(self, name, text, **settings):
        """Its name with the registry. Each test has names of its own: an engine keeps what it has pulled."""
        full = f"team/{name}-{os.getpid()}"
        self.registry.put(full, "1", Image([rootfs(entry("etc/passwd", data=PASSWD)), tar(entry("y", data=text))], **settings))
        if Config.backend:
            self.addCleanup(Config.backend.api, "DELETE", f"/images/{self.registry.host}/{full}:1?force=1")
        return f"{self.registry.host}/{full}:1"

    def test_a_missing_image_is_pulled(self):
        name = self.put("missing", b"first")
        refused = self.assert_exit(self.root.run("run", "--image", name, "--pull", "never", "--", "cat", "/y"), 125)
        self.assertIn(name.encode(), refused.err)
        done = self.root.ok("run", "-i", "--image", name, "--", "sh", "-c", "cat /y -", stdin=b" and input")
        self.assertEqual((done.out, done.err), (b"first and input", b""))
        self.put("missing", b"second")
        self.assertEqual(self.root.ok("run", "--image", name, "--", "cat", "/y").out, b"first")
        self.assertEqual(self.root.ok("run", "--image", name, "--pull", "always", "--", "cat", "/y").out, b"second")
        self.registry.stop()
        self.assertEqual(self.root.ok("run", "--image", name, "--pull", "missing", "--", "cat", "/y").out, b"second")
        done = self.assert_exit(self.root.run("run", "--image", name, "--pull", "always", "--", "cat", "/y"), 125)
        self.assertIn(f"pull '{name}'", done.err.decode())

    def test_up_pulls_too(self):
        name = self.put("up", b"kept")
        self.root.ok("up", "a", "--image", name)
        self.assertEqual(self.shell("a", "cat /y"), "kept")
        self.root.ok("up", "a", "--image", name)

    def test_the_command_of_the_image(self):
        for name, settings, out in (("cmd", {"Cmd": ["cat", "/y"]}, b"text"), ("entry", {"Entrypoint": ["sh", "-c", "echo a b"]}, b"a b\n"),
                                    ("both", {"Entrypoint": ["sh", "-c", 'echo "$@"'], "Cmd": ["cat", "/y"]}, b"/y\n")):
            full = self.put(name, b"text", **settings)
            self.assertEqual(self.root.ok("run", "--image", full).out, out)
            self.assertEqual(self.root.ok("run", "--image", full, "--", "cat", "/y").out, b"text")
        done = self.assert_exit(self.root.run("run", "--image", self.put("none", b"")), 125)
        self.assertIn(b"has no command of its own", done.err)

    def test_names_that_the_registry_does_not_have(self):
        done = self.assert_exit(self.root.run("up", "a", "--image", f"{self.registry.host}/no/such:1"), 3)
        self.assertIn(f"pull '{self.registry.host}/no/such:1'", done.err.decode())
        self.assertEqual(self.root.sandboxes(), [])

    def test_bad_policies(self):
        for words, error in ((("--pull", "sometimes", "--image", "x"), "unknown value 'sometimes'"), (("--pull", "always"), "--pull needs --image")):
            self.assertIn(error, self.assert_exit(self.root.run("run", *words, "--", "true"), 125).err.decode())
        self.assertIn(b"needs a command", self.assert_exit(self.root.run("run"), 125).err)


class TestHostile(PullCase):
    def setUp(self):
        super().setUp()
        self.registry = image_registries.FakeRegistry()
        self.addCleanup(self.registry.close)
        self.image = Image([rootfs(), tar(entry("y", data=os.urandom(300000)))])
        self.registry.put("a/b", "1", self.image)
        self.name = f"{self.registry.host}/a/b:1"

    def blob(self, i):
        return f"/v2/a/b/blobs/{digest(self.image.layers[i])}"

    def refused(self, *words, code=None, argv=(), **kwargs):
        result = self.pull(self.name, *argv, **kwargs)
        self.assertNotEqual(result.code, 0, result)
        if code:
            self.assertEqual(result.code, code, result)
        for word in words:
            self.assertIn(word, result.err.decode())
        self.assertEqual(self.images()["images"], [])

    def test_wrong_bytes_are_refused(self):
        good = dict(self.registry.files)
        manifest = "/v2/a/b/manifests/1"
        swapped = bytearray(self.image.layers[1])
        swapped[-9] ^= 1
        cases = [(self.blob(1), bytes(swapped), "damaged"), (self.blob(1), self.image.layers[1] + b"x", "longer than"),
                 (f"/v2/a/b/blobs/{digest(self.image.config)}", b"{}" + self.image.config[2:-1] + b" ", "damaged"),
                 (manifest, b"hello", "manifest"), (manifest, b'{"layers":[]}', "digest"), (manifest, b" " * (5 << 20), "4194304 bytes"),
                 (manifest, json.dumps({"manifests": [{"digest": digest(b"x"), "size": 1}]}).encode(), "does not have"),
                 (manifest, json.dumps(dict(json.loads(self.image.manifest), layers=[])).encode(), "0"),
                 (manifest, self.image.manifest.replace(b'"size": ', b'"size": 99999999'), "over")]
        for path, data, word in cases:
            with self.subTest(word=word, data=data[:20]):
                self.registry.files = dict(good, **{path: data})
                self.refused(word)
        self.registry.files = dict(good)
        loop = index_of({MACHINE: Image([], config=b"{}")})
        self.registry.files[manifest] = loop.replace(digest(Image([], config=b"{}").manifest).encode(), digest(loop).encode())
        self.refused("no")
        self.registry.files = good
        self.pull_ok(self.name)  # what was wrong before has left nothing behind
        self.assertEqual(self.downloads(), [])

    def test_what_breaks_off_goes_on(self):
        data, times = self.image.layers[1], []

        def cut(handler):
            times.append(handler.headers.get("Range"))
            if len(times) < 3:
                start = int(times[-1][6:-1]) if times[-1] else 0
                part = data[start:start + 100000]
                handler.answer(206 if start else 200, part, {"Content-Range": f"bytes {start}-"} if start else {}, length=len(data) - start)
            else:
                handler.part(data)
        self.registry.files[self.blob(1)] = cut
        self.pull_ok(self.name)
        self.assertEqual(times, [None, "bytes=100000-", "bytes=200000-"])

    def test_another_pull_goes_on_too(self):
        data = self.image.layers[1]
        self.registry.files[self.blob(1)] = lambda h: h.answer(200, data[:50000], length=len(data)) if not h.headers.get("Range") else h.answer(403, b"")
        self.refused("denies", code=5)
        self.assertIn(digest(data)[7:], self.downloads())
        self.registry.files[self.blob(1)] = data
        self.registry.log.clear()
        self.pull_ok(self.name)
        self.assertIn((self.blob(1), "bytes=50000-"), self.registry.log)

    def test_leads_into_private_networks_are_not_followed(self):
        def to(where):
            return lambda h: h.answer(307, b"", {"Location": where})
        other = image_registries.FakeRegistry()
        self.addCleanup(other.close)
        for where, word in [(f"http://{other.host}/x", "not https"), ("https://169.254.169.254/latest", "private"),
                            ("file:///etc/passwd", ""), ("https://localhost:1/x", "private")]:
            self.registry.files[self.blob(1)] = to(where)
            self.refused(word)
        self.registry.user = "u:p"
        for realm in (f"http://{other.host.replace('127.0.0.1', '127.0.0.2')}/token", "https://10.0.0.1/token", "ftp://x/y", "x"):
            self.registry.challenge = f'Bearer realm="{realm}"'
            self.refused(argv=["--username", "u", "--password-stdin"], stdin=b"hush-hush")
        self.assertEqual(other.log, [])
        for challenge in ("Digest realm=x", "Bearer", 'Bearer realm="', ""):
            self.registry.challenge = challenge or " "
            self.refused()

    def test_credentials(self):
        self.registry.user = "someone:s3cr3t-w0rd"
        self.registry.challenge = f'Bearer realm="http://{self.registry.host}/token",service="fake",scope="repository:evil:push"'
        self.registry.files["/token"] = b'{"token":"abc.def"}'
        self.refused("requires credentials", code=5)
        self.refused("requires credentials", argv=["--username", "someone", "--password-stdin"], stdin=b"wrong\n", code=5)
        self.refused("must be given together", argv=["--username", "someone"], code=2)
        folder = Path(self.root.path) / "docker"
        folder.mkdir()
        auth = base64.b64encode(self.registry.user.encode()).decode()
        (folder / "config.json").write_text(json.dumps({"auths": {f"http://{self.registry.host}/v1/": {"auth": auth}}}), encoding="utf-8")
        self.pull_ok(self.name, env={"DOCKER_CONFIG": str(folder)})
        self.assertIn(("/token?service=fake&scope=repository%3Aa%2Fb%3Apull", None), self.registry.log)
        secrets = (b"s3cr3t-w0rd", auth.encode(), b"abc.def")
        for path in files_below(self.root.path):
            if path.parent == folder or "layers" in path.parts:
                continue
            with contextlib.suppress(OSError):  # a socket, or gone meanwhile
                self.assertFalse(any(s in path.read_bytes() for s in secrets), path)

    def test_tokens_over_tls(self):
        packages_fixture.TestCase.prepare()
        certificates = packages_fixture.TestCase.certificates
        registry = image_registries.FakeRegistry("u:hush-hush", certificates)
        tokens = image_registries.FakeRegistry("u:hush-hush", certificates)
        plain = image_registries.FakeRegistry("u:hush-hush")
        for server in (registry, tokens, plain):
            self.addCleanup(server.close)
        registry.put("a/b", "1", self.image)
        self.name = f"{registry.host}/a/b:1"
        login = {"argv": ["--username", "u", "--password-stdin"], "stdin": b"hush-hush"}
        registry.challenge = tokens.challenge
        self.refused(**login)
        ca = Path(self.root.path) / "ca.pem"
        ca.write_bytes((certificates / "ca.pem").read_bytes())
        self.root.configure(f"transfer.ca_file: {ca}\n")
        self.root.kill_daemon()
        registry.challenge = plain.challenge
        self.refused("not https", **login)
        self.assertEqual((plain.log, tokens.log), ([], []), "a registry with TLS does not send credentials where there is none")
        registry.challenge = tokens.challenge
        self.refused("requires credentials", argv=["--username", "u", "--password-stdin"], stdin=b"wrong", code=5)
        result = self.pull(self.name, *login["argv"], stdin=login["stdin"])
        self.assertEqual(result.code, 0, result)
        self.assertEqual({path.partition("?")[0] for path, _ in tokens.log}, {"/token"})

    def test_mirrors_are_asked_first(self):
        mirror, down = image_registries.FakeRegistry(), f"127.0.0.1:{image_registries.free_port()}"
        self.addCleanup(mirror.close)
        mirror.put("a/b", "1", self.image)
        self.root.configure(f'transfer:\n  mirrors: ["{self.registry.host}=http://{down}", "{self.registry.host}=http://{mirror.host}"]\n')
        self.pull_ok(self.name)
        self.assertEqual(self.registry.log, [])
        self.registry.put("a/b", "2", Image([rootfs()]))
        self.pull_ok(f"{self.registry.host}/a/b:2")

    def transfer_runs(self):
        for pid in self.root.processes():
            with contextlib.suppress(OSError):  # it may be gone by now
                if b"ripcord-transfer" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    return True
        return False

    def test_uploads_go_where_they_may(self):
        self.put_ok(rootfs(), "mine")
        for location, word in [("http://127.0.0.2:1/x", "not https"), ("https://10.0.0.1/x", "private"), (None, "did not send a URL")]:
            self.registry.location = location
            result = self.root.run("image", "push", "mine", f"{self.registry.host}/to/x:1")
            self.assertNotEqual(result.code, 0)
            self.assertIn(word, result.err.decode())
        self.assertEqual([path for path, _ in self.registry.log if "manifests" in path], [])

    def test_a_client_that_goes_ends_the_pull(self):
        gate = threading.Event()
        self.registry.files[self.blob(1)] = lambda h: gate.wait(30) and h.part(self.image.layers[1])
        self.addCleanup(gate.set)
        with self.root.popen("image", "pull", self.name) as p:
            wait_until(lambda: self.blob(1) in [path for path, _ in self.registry.log], 20, "the layer to be asked for")
            p.kill()
        wait_until(lambda: not self.transfer_runs(), 20, "ripcord-transfer to end")
        self.assertEqual(self.images()["images"], [])
