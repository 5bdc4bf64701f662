"""A sandbox on Docker and Podman: hardening as the engine and the kernel see it, names and options."""
import json
import time
from urllib.parse import quote

from ripcord_test import Config, TestCase, only_on, wait_until


@only_on("docker", "podman")
class DockerSandbox(TestCase):

    def setUp(self):
        super().setUp()
        self.engine = Config.backend
        self.root.start()
        self.prefix = self.root.get("/v1/config")["config"]["docker.prefix"]["value"]

    def inspect(self, name):
        reply = self.engine.api("GET", f"/containers/{self.prefix}-{name}/json")
        self.assertEqual(reply.status, 200, reply)
        return reply.json()

    def refused(self, code, *args, words=()):
        done = self.assert_exit(self.root.run(*args), code)
        for word in words:
            self.assertIn(word, done.err.decode())

    def actions(self, container, since):
        """The engine's events about the container."""
        query = quote(json.dumps({"container": [container]}))
        reply = self.engine.api("GET", f"/events?since={since}&until={time.time() + 1}&filters={query}").body
        return [json.loads(line)["Action"] for line in reply.splitlines()]

    @only_on("docker")
    def test_a_removal_needs_no_kill_by_the_engine(self):
        since = time.time()
        for name in "ab":
            self.root.ok("up", name)
        self.root.ok("pause", "b")
        for name, kills in (("a", False), ("b", True)):  # a paused container receives no signal
            container = self.inspect(name)["Id"]
            self.root.ok("rm", "-f", name)
            actions = self.actions(container, since)
            self.assertEqual(("kill" in actions, actions[-1]), (kills, "destroy"), actions)

    def test_hardening_as_the_engine_reports_it(self):
        self.root.ok("up", "a", "--memory", "256M", "--cpus", "1", "--pids", "60", "--env", "SECRET=sek-0815",
                     "--label", "team=x", "--label", "ripcord.id=forged")
        doc = self.inspect("a")
        host = doc["HostConfig"]
        self.assertEqual((host["Memory"], host["MemorySwap"], host["PidsLimit"]), (256 << 20, 256 << 20, 60))
        self.assertEqual(host["NanoCpus"], 10 ** 9)
        self.assertFalse(host["Privileged"])
        self.assertEqual(host["NetworkMode"], "none")
        limits = {u["Name"].lower().replace("rlimit_", ""): u["Hard"] for u in host["Ulimits"]}
        self.assertEqual(limits["core"], 0)
        self.assertEqual(limits["nofile"], 16384)
        self.assertIn("nproc", limits)
        labels = doc["Config"]["Labels"]
        sandbox = self.root.sandbox("a")
        self.assertEqual((labels["ripcord.root"], labels["ripcord.id"], labels["ripcord.name"], labels["ripcord.hash"]),
                         (self.root.root_id, sandbox["id"], "a", sandbox["hash"]))
        self.assertEqual(labels["team"], "x")
        self.assertEqual(doc["Image"].removeprefix("sha256:"), sandbox["image_digest"].removeprefix("sha256:"))
        self.assertNotIn("sek-0815", json.dumps(doc), "a variable is in the engine's records")
        self.assertEqual(self.shell("a", "echo $SECRET"), "sek-0815\n")

    def test_hardening_as_the_kernel_reports_it(self):
        self.root.ok("up", "a")
        status = dict(l.split(":\t", 1) for l in self.shell("a", "cat /proc/self/status").splitlines() if ":\t" in l)
        for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            self.assertEqual(int(status[kind], 16), 0, kind)
        self.assertEqual((status["NoNewPrivs"], status["Seccomp"]), ("1", "2"))
        self.assertEqual(status["Uid"].split(), ["1000"] * 4)
        root = dict(l.split(":\t", 1) for l in
                    self.root.ok("exec", "a", "--user", "root", "--", "cat", "/proc/self/status").text.splitlines()
                    if ":\t" in l)
        self.assertEqual((int(root["CapEff"], 16), int(root["CapBnd"], 16)), (0, 0))
        mounts = {l.split()[4]: l.split()[5].split(",") for l in self.shell("a", "cat /proc/self/mountinfo").splitlines()}
        for place in ("/tmp", "/run", "/scratch"):
            self.assertTrue({"nosuid", "nodev"} <= set(mounts[place]), (place, mounts[place]))
        self.assertEqual(self.shell("a", "cat /proc/1/cmdline | tr '\\0' ' '"), "/.ripcord/guest init ")
        self.assertEqual(self.shell("a", "touch ~/x /tmp/x /scratch/x /cache/pip/x && echo fine"), "fine\n")
        self.assertEqual(self.shell("a", "ls /var/run/docker.sock /run/docker.sock 2>/dev/null; echo none"), "none\n")

    def test_removal_also_removes_volumes(self):
        self.root.ok("up", "a")
        found = self.engine.labelled(f"ripcord.root={self.root.root_id}")
        self.assertEqual(found, {"containers": [f"/{self.prefix}-a"], "networks": [],
                                 "volumes": [f"{self.prefix}-caches-a", f"{self.prefix}-home-a"]})
        self.root.ok("run", "--", "true")  # returns when the command ends; its sandbox is removed a moment later
        wait_until(lambda: self.engine.labelled(f"ripcord.root={self.root.root_id}") == found, 20, "the run to be gone")
        self.root.ok("rm", "-f", "a")
        self.assertEqual(self.engine.labelled(f"ripcord.root={self.root.root_id}"),
                         {"containers": [], "volumes": [], "networks": []})

    def test_only_leftovers_of_this_root_are_removed(self):
        self.root.ok("run", "--", "true")
        self.root.ok("reconcile")  # with a new store, nothing is removed before the first reconcile
        image = self.engine.api("GET", "/images/ripcord%2Fdefault/json").json()["Id"]
        made = {}
        for name, labels in (("ours", {"ripcord.root": self.root.root_id, "ripcord.id": "00000000000000aa"}),
                             ("theirs", {"ripcord.root": "ffffffffffffffff", "ripcord.id": "00000000000000aa"}),
                             ("nobodys", {})):
            reply = self.engine.api("POST", f"/containers/create?name={self.prefix}-left-{name}",
                                    {"Image": image, "Cmd": ["true"], "Labels": labels})
            self.assertEqual(reply.status, 201, reply)
            made[name] = reply.json()["Id"]
        try:
            self.root.kill_daemon()
            self.root.start()
            self.root.ok("run", "--", "true")  # opens the engine
            there = lambda name: self.engine.api("GET", f"/containers/{made[name]}/json").status == 200
            wait_until(lambda: not there("ours"), 30, "the leftover to go")
            self.assertTrue(there("theirs") and there("nobodys"))
        finally:
            for cid in made.values():
                self.engine.api("DELETE", f"/containers/{cid}?force=1")

    def test_a_container_name_in_use_is_refused(self):
        reply = self.engine.api("POST", f"/containers/create?name={self.prefix}-a", {"Image": "ripcord/default", "Cmd": ["true"]})
        self.assertEqual(reply.status, 201, reply)
        try:
            self.refused(4, "up", "a", words=[f"'{self.prefix}-a': already in use", "docker.prefix"])
            self.assertEqual(self.engine.labelled(f"ripcord.root={self.root.root_id}"),
                             {"containers": [], "volumes": [], "networks": []})
        finally:
            self.engine.api("DELETE", f"/containers/{reply.json()['Id']}?force=1")

    def test_unsupported_options_are_refused_by_name(self):
        self.refused(7, "up", "a", "--image", "host", words=["'host'", "default"])
        self.refused(3, "up", "a", "--image", "no/such:1", "--pull", "never", words=["image 'no/such:1'"])
        self.refused(2, "up", "a", "--cache", "pipp=shared", words=["pipp", "'pip'"])
        self.refused(2, "up", "a", "--engine", "dokcer", words=["'docker'"])
        self.refused(7, "up", "a", "--disk", "1G", words=["disk"])
        if self.engine.kind == "podman":
            self.refused(7, "up", "a", "--runtime", "runsc", words=["runtimes"])
        else:
            done = self.root.run("up", "a", "--runtime", "no-such-runtime")
            self.assertIn("no-such-runtime", done.err.decode())
            self.assertNotEqual(done.code, 0)
            self.root.ok("up", "a", "--runtime", "runc")
        self.refused(5, "up", "b", "--mount", f"{self.engine.place}:/x", words=["would share"])
        self.refused(5, "up", "b", "--mount", f"{self.engine.place}/data:/x", words=["would share"])

    def test_docker_host_selects_the_engine(self):
        other = self.new_root()
        (other.path / "ripcord.yaml").write_text(f"docker.prefix: {self.prefix}e\n", encoding="ascii")
        done = other.ok("run", "--engine", "docker", "--", "echo", "found", env={"DOCKER_HOST": self.engine.host})
        self.assertEqual(done.text, "found\n")
        engines = {e["name"]: e for e in other.get("/v1/engines")["engines"]}
        self.assertTrue(engines["native"]["default"])
        self.assertIn(self.engine.kind, engines["docker"]["about"])
        other.ok("up", "a", "--engine", "docker")
        other.kill_daemon()
        elsewhere = {"DOCKER_HOST": "unix:///nowhere/docker.sock"}  # the environment of the client that starts the next daemon
        self.assertEqual(other.ok("exec", "a", "--", "echo", "still here", env=elsewhere).text, "still here\n")
        other.ok("rm", "-f", "a")
        other.kill_daemon()
        done = other.run("run", "--engine", "docker", "--", "true", env=elsewhere)
        self.assert_exit(done, 125)
        self.assertIn("/nowhere/docker.sock", done.err.decode())
