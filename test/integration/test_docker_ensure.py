"""Volumes and the network of the Docker engine: created once, always checked, failures reported (findings 1 and 3)."""
import itertools
import json
import os
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import engines
from ripcord_test import Config, TestCase, only_on, wait_until

NUMBERS = itertools.count()


def networks(engine, name):
    found = engine.api("GET", f"/networks?filters={quote(json.dumps({'name': [name]}))}").json() or []
    return [n for n in found if n["Name"] == name]


class EnsureTest(TestCase):
    """A root whose objects have unique names, so that other tests do not see them."""

    def setUp(self):
        self.prefix = f"t{os.getpid()}x{next(NUMBERS)}"
        self.engine = Config.backend
        super().setUp()
        self.configure(self.root)

    def configure(self, root, more=""):
        text = f"engine: docker\ndocker.host: {self.engine.host}\ndocker.prefix: {self.prefix}\nlog.level: debug\n{more}"
        (root.path / "ripcord.yaml").write_text(text, encoding="ascii")

    def tearDown(self):
        try:
            super().tearDown()
        finally:
            for net in networks(self.engine, f"{self.prefix}-net"):
                self.engine.api("DELETE", f"/networks/{net['Id']}")
            for name in ("pip", "npm"):
                self.engine.api("DELETE", f"/volumes/{self.prefix}-cache-{name}?force=1")

    def left(self, root):
        """The objects of a root on the engine, without shared caches and the network, which stay."""
        found = self.engine.labelled(f"ripcord.root={root.root_id}")
        shared = self.engine.labelled(f"ripcord.shared={self.prefix}")
        return {kind: [n for n in names if n not in shared[kind]] for kind, names in found.items()}

    def log(self):
        return "".join(text.decode(errors="replace") for name, text in self.root.logs() if name == "ripcordd.log")


@only_on("docker", "podman")
class Caches(EnsureTest):

    def block(self, tool):
        """Puts a file where the engine creates the folder of a shared cache, so that the create fails."""
        path = self.engine.place / "data" / "volumes" / f"{self.prefix}-cache-{tool}"
        path.write_text("", encoding="ascii")
        self.addCleanup(path.unlink)

    def test_cache_volume_create_failure_is_reported(self):
        self.block("pip")
        self.root.start()
        done = self.root.ok("up", "a", "--cache", "pip=shared", "--json").json()
        self.assertEqual(done["action"], "created")
        told = [w for w in done["warnings"] if "pip" in w]
        self.assertEqual(len(told), 1, done["warnings"])
        self.assertIn(f"volume '{self.prefix}-cache-pip'", told[0])
        self.assertIn(f"{self.engine.kind} says", told[0])
        self.assertRegex(told[0], "not a directory|file exists")
        shown = self.root.ok("show", "a").text
        self.assertIn("cache 'pip' is missing", shown)
        self.assertIn("cache 'pip' is missing", self.log())
        self.assertIn("warning:", self.root.ok("up", "a").err.decode())
        self.assertEqual(self.shell("a", "echo ${PIP_CACHE_DIR-none} $NPM_CONFIG_CACHE").split(), ["none", "/cache/npm"])
        self.root.kill_daemon()
        self.root.start()
        wait_until(lambda: "cache 'pip' is missing" in self.root.ok("show", "a").text, 30, "a new daemon to know it")

    def test_cache_ready_is_not_logged_on_failure(self):
        self.block("pip")
        self.root.start()
        self.root.ok("up", "a", "--cache", "pip=shared", "--cache", "npm=shared")
        self.assertIn("cache 'npm' is ready", self.log())
        self.assertNotIn("cache 'pip' is ready", self.log())

    def test_required_cache_that_fails_is_an_error_and_leaves_nothing(self):
        self.block("pip")
        self.configure(self.root, "cache.required: true\n")
        self.root.start()
        done = self.root.run("up", "a", "--cache", "pip=shared")
        self.assertNotEqual(done.code, 0, done)
        self.assertIn("cache 'pip' is required (cache.required) and cannot be created", done.err.decode())
        self.assertIn(f"{self.engine.kind} says", done.err.decode())
        self.assertEqual(self.left(self.root), {"containers": [], "volumes": [], "networks": []})
        self.assertEqual(self.root.sandboxes(), [])
        self.root.ok("up", "a", "--cache", "npm=shared")

    def test_a_shared_cache_is_shared_and_a_private_one_is_not(self):
        self.root.start()
        for name in ("a", "b"):
            self.root.ok("up", name, "--cache", "npm=shared")
        self.shell("a", "echo hello >/cache/npm/x; echo mine >/cache/pip/x")
        self.assertEqual(self.shell("b", "cat /cache/npm/x; ls /cache/pip"), "hello\n")
        self.root.ok("rm", "-f", "a", "b")
        self.root.ok("up", "a", "--cache", "npm=shared")
        self.assertEqual(self.shell("a", "cat /cache/npm/x; ls /cache/pip"), "hello\n")

    def test_a_volume_of_somebody_else_is_not_taken(self):
        self.engine.api("POST", "/volumes/create", {"Name": f"{self.prefix}-home-a", "Labels": {"whose": "mine"}})
        try:
            done = self.root.run("up", "a")
            self.assert_exit(done, 4)
            self.assertIn("label ripcord.root is '', not", done.err.decode())
            self.assertIn("docker.prefix", done.err.decode())
            self.assertEqual(self.engine.labelled("whose=mine")["volumes"], [f"{self.prefix}-home-a"])
        finally:
            self.engine.api("DELETE", f"/volumes/{self.prefix}-home-a?force=1")


@only_on("docker", "podman")
class Network(EnsureTest):

    def test_network_exists_is_not_an_error(self):
        self.root.ok("run", "--network", "open", "--", "true")
        first = networks(self.engine, f"{self.prefix}-net")
        self.assertEqual(len(first), 1)
        self.root.kill_daemon()  # the next one remembers nothing
        self.root.ok("run", "--network", "open", "--", "true")
        other = self.new_root()
        self.configure(other)
        other.ok("run", "--network", "open", "--", "true")
        self.assertEqual([n["Id"] for n in networks(self.engine, f"{self.prefix}-net")], [first[0]["Id"]])

    def test_network_is_created_once(self):
        other = self.new_root()
        self.configure(other)
        self.root.start()
        other.start()
        with ThreadPoolExecutor(20) as pool:
            done = list(pool.map(lambda i: (self.root, other)[i % 2].run("run", "--network", "open", "--", "cat",
                                                                        "/sys/class/net/eth0/operstate"), range(20)))
        for result in done:
            self.assert_exit(result, 0)
        self.assertEqual(len(networks(self.engine, f"{self.prefix}-net")), 1)
        # `run` ends with its command; the daemon removes the sandbox after that.
        wait_until(lambda: not any(self.left(root)["containers"] for root in (self.root, other)), 30, "the containers to go")

    def test_a_network_that_differs_is_an_error_that_says_how(self):
        self.engine.api("POST", "/networks/create", {"Name": f"{self.prefix}-net", "Driver": "bridge"})
        done = self.root.run("run", "--network", "open", "--", "true")
        self.assert_exit(done, 125)
        self.assertIn(f"label ripcord.shared is '', not '{self.prefix}'", done.err.decode())
        self.assertEqual(len(networks(self.engine, f"{self.prefix}-net")), 1)
        self.assertEqual(self.left(self.root)["containers"], [])

    def test_network_removed_behind_our_back_is_made_again(self):
        self.root.ok("up", "a", "--network", "open")
        self.shell("a", "echo kept >/var/tmp/x")
        self.root.ok("stop", "a")
        for net in networks(self.engine, f"{self.prefix}-net"):
            if self.engine.kind == "podman":  # it holds on to a network that a stopped container has
                self.skipTest("podman removes no network that a container is configured for")
            self.assertEqual(self.engine.api("DELETE", f"/networks/{net['Id']}").status, 204)
        self.assertEqual(self.shell("a", "cat /var/tmp/x; cat /sys/class/net/eth0/operstate").split(), ["kept", "up"])
        self.assertEqual(len(networks(self.engine, f"{self.prefix}-net")), 1)


@only_on("docker", "podman")
class BrokenNetwork(TestCase):
    """Uses its own engine, which cannot create another network."""

    def test_network_daemon_error_is_an_error(self):
        kind = type(Config.backend)
        flags = ["--default-address-pool", "base=10.99.0.0/24,size=24"] if kind is engines.Docker else []
        with kind(flags=flags) as engine:
            self.break_networks(engine)
            self.use(engine)
            done = self.root.run("run", "--network", "open", "--", "true")
            self.assert_exit(done, 125)
            text = done.err.decode()
            self.assertIn("network 'ripcord-net'", text)
            self.assertRegex(text, "address pool|is a directory|rename")
            self.assertNotIn("exists", text.replace("network already exists", ""))
            self.assertEqual(networks(engine, "ripcord-net"), [])
            self.root.start()
            found = engine.labelled(f"ripcord.root={self.root.root_id}")
            self.assertEqual(found, {"containers": [], "volumes": [], "networks": []})
            self.root.ok("run", "--network", "none", "--", "true")
            self.assertEqual(self.root.close(), [])
        self.root = type(self.root)()

    def use(self, engine):
        (self.root.path / "ripcord.yaml").write_text(f"engine: docker\ndocker.host: {engine.host}\n", encoding="ascii")

    @staticmethod
    def break_networks(engine):
        if engine.kind == "docker":
            made = engine.api("POST", "/networks/create", {"Name": "takes-the-only-pool"})
            assert made.status == 201, made
        else:
            Path(engine.place / "networks" / "ripcord-net.json").mkdir()


if __name__ == "__main__":
    unittest.main()
