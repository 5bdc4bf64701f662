"""A Docker or Podman that dies, hangs, fills up or is changed by others: each case has its own error, and nothing leaks."""
import json
import os
import signal
import time
from urllib.parse import quote

import engines
from late_docker import LateDocker
from ripcord_test import Config, TestCase, only_on, wait_until


class FaultTest(TestCase):

    def own_engine(self, more="", **kwargs):
        """An engine for this test alone, and our root on it. It is stopped after the root has been closed."""
        engine = type(Config.backend)(**kwargs).start()
        self.addCleanup(engine.stop)
        self.write_config(engine, more)
        self.root.start()
        return engine

    def write_config(self, engine, more=""):
        (self.root.path / "ripcord.yaml").write_text(f"engine: docker\ndocker.host: {engine.host}\n{more}", "ascii")

    def ours(self, engine):
        return engine.labelled(f"ripcord.root={self.root.root_id}")

    def container(self, engine, name):
        return f"ripcord-{name}"

    def assert_responsive(self):
        since = time.monotonic()
        self.assertEqual(self.root.http("GET", "/healthz").status, 200)
        self.root.sandboxes()
        self.assertLess(time.monotonic() - since, 5, "the daemon does not answer at once")

    def assert_native_works(self):
        since = time.monotonic()
        self.assertEqual(self.root.ok("run", "--engine", "native", "--", "echo", "hi").text, "hi\n")
        self.assertLess(time.monotonic() - since, 5, "another engine's trouble is native's too")

    def wait_state(self, name, state, seconds=20):
        wait_until(lambda: self.root.sandbox(name)["state"] == state, seconds,
                   f"'{name}' to be {state}; it is {self.root.sandbox(name)}")
        return self.root.sandbox(name)


@only_on("docker", "podman")
class EngineDies(FaultTest):

    def test_killed_in_mid_exec_is_engine_lost_and_the_next_exec_works(self):
        engine = self.own_engine()
        self.root.ok("up", "a")
        self.shell("a", "echo kept >~/x")
        with self.root.popen("exec", "a", "--", "sh", "-c", "echo begun; sleep 1000") as p:
            self.assertEqual(p.stdout.readline(), b"begun\n")
            engine.kill()
            self.assertEqual(p.wait(60), 125, "a lost command has no status of its own")
        end = self.root.exec_info("a")["end"]
        self.assertEqual(end["cause"], "engine_lost", end)
        self.assertIsNone(end["exit_code"], end)
        self.assert_responsive()
        self.assert_native_works()
        engine.restart()
        wait_until(lambda: self.root.run("exec", "a", "--", "true").code == 0, 60, "a command after the restart")
        self.assertEqual(self.shell("a", "cat ~/x"), "kept\n")

    def test_a_missing_engine_is_reported_and_found_later(self):
        engine = self.own_engine()
        self.root.ok("up", "a")
        engine.kill()
        done = self.root.run("up", "b")
        self.assert_exit(done, 8)
        self.assertIn(str(engine.socket), done.err.decode())
        self.root.kill_daemon()
        self.root.start()  # a daemon that has never seen the engine
        self.assert_responsive()
        found = {e["name"]: e for e in self.root.get("/v1/engines")["engines"]}
        self.assertFalse(found["docker"]["available"])
        self.assertIn(str(engine.socket), found["docker"]["error"]["message"])
        self.assertTrue(found["native"]["available"])
        engine.restart()
        self.root.ok("up", "b")
        self.assertTrue({e["name"]: e["available"] for e in self.root.get("/v1/engines")["engines"]}["docker"])
        wait_until(lambda: self.root.run("exec", "a", "--", "true").code == 0, 60, "the sandbox from before")


@only_on("docker", "podman")
class EngineHangs(FaultTest):

    def test_stopped_with_a_signal_is_a_timeout_of_its_own_users_only(self):
        engine = self.own_engine("docker.timeout: 6s\n")
        self.root.ok("up", "a")
        self.addCleanup(self.resume, engine)
        engine.kill(signal.SIGSTOP)
        since = time.monotonic()
        done = self.root.run("up", "b")
        took = time.monotonic() - since
        self.assert_exit(done, 9)
        self.assertIn("did not answer within", done.err.decode())
        self.assertLess(took, 20, "the set time is six seconds")
        self.assert_native_works()
        self.assert_responsive()
        self.resume(engine)
        self.root.ok("up", "b")
        self.assertEqual(self.shell("a", "echo alive"), "alive\n")
        found = self.ours(engine)
        self.assertEqual(len(found["containers"]), 2, found)

    @staticmethod
    def resume(engine):
        if engine.daemon.poll() is None:
            engine.kill(signal.SIGCONT)


@only_on("docker", "podman")
class EngineIsFull(FaultTest):

    def test_full_data_folder_is_reported_and_removal_still_works(self):
        engine = self.own_engine(size=500)
        self.root.ok("up", "a")
        self.fill(engine)
        done = self.root.run("up", "b")
        self.assertNotEqual(done.code, 0)
        self.assertIn("no space left on device", done.err.decode())
        self.assertEqual([n for n in self.ours(engine)["containers"] if n.endswith("-b")], [])
        self.assert_responsive()
        self.root.ok("rm", "-f", "a")
        self.assertEqual(self.ours(engine), {"containers": [], "volumes": [], "networks": []})
        os.unlink(engine.place / "data" / "filler")
        self.root.ok("up", "b")

    @staticmethod
    def fill(engine):
        with open(engine.place / "data" / "filler", "wb", buffering=0) as f:
            for size in (1 << 20, 4096, 512):
                try:
                    while True:
                        f.write(b"x" * size)
                except OSError:
                    pass


@only_on("docker", "podman")
class Outside(FaultTest):
    """Changes that other users make with the engine's own tools."""

    def test_image_removed_under_us(self):
        engine = self.own_engine()
        self.root.ok("up", "a")
        self.root.ok("rm", "-f", "a")
        reply = engine.api("DELETE", f"/images/{engines.IMAGE}?force=1")
        self.assertEqual(reply.status, 200, reply)
        done = self.root.run("up", "a")
        self.assert_exit(done, 3)
        self.assertIn("image 'ripcord/default'", done.err.decode())
        self.assertIn("./dev image", done.err.decode())
        self.assertEqual(self.ours(engine), {"containers": [], "volumes": [], "networks": []})
        self.assertEqual(self.root.sandboxes(), [])

    def test_another_image_behind_the_name_recreates_at_the_next_up(self):
        engine = self.own_engine()
        self.root.ok("up", "a")
        self.shell("a", "echo kept >~/x; echo gone >/var/tmp/x")
        made = engine.api("POST", "/containers/create?name=other", {"Image": engines.IMAGE, "Cmd": ["true"]})
        self.assertEqual(made.status, 201, made)
        reply = engine.api("POST", "/commit?container=other&repo=ripcord/default&tag=latest", {})
        self.assertEqual(reply.status, 201, reply)
        self.assertEqual(self.root.ok("exec", "a", "--", "cat", "/var/tmp/x").text, "gone\n")
        self.assertIn("recreated", self.root.ok("up", "a").text)
        self.assertEqual(self.shell("a", "cat ~/x; ls /var/tmp"), "kept\n")
        self.assertIn("unchanged", self.root.ok("up", "a").text)

    def test_container_removed_behind_our_back(self):
        engine = Config.backend
        self.use_prefix(engine)
        self.root.ok("up", "a")
        self.shell("a", "echo kept >~/x")
        with self.root.popen("exec", "a", "--", "sh", "-c", "echo begun; sleep 1000") as p:
            self.assertEqual(p.stdout.readline(), b"begun\n")
            self.assertEqual(engine.api("DELETE", f"/containers/{self.prefix}-a?force=1").status, 204)
            self.assertNotEqual(p.wait(60), 0)
        self.assertNotEqual(self.root.exec_info("a")["end"]["cause"], "exited")
        box = self.wait_state("a", "stopped")
        wait_until(lambda: (self.root.sandbox("a")["reason"] or "").startswith("gone: removed outside ripcord at 2"), 20, f"the reason: {box}")
        self.assertEqual(self.shell("a", "cat ~/x"), "kept\n")
        self.root.ok("rm", "-f", "a")
        self.assertEqual(self.ours(engine), {"containers": [], "volumes": [], "networks": []})

    def test_container_killed_and_paused_from_outside(self):
        engine = Config.backend
        self.use_prefix(engine)
        self.root.ok("up", "a")
        box = f"/containers/{self.prefix}-a"
        self.assertEqual(engine.api("POST", f"{box}/pause").status, 204)
        self.wait_state("a", "paused")
        done = self.root.run("exec", "a", "--", "true")
        self.assertIn("is paused", done.err.decode())
        self.assertEqual(engine.api("POST", f"{box}/unpause").status, 204)
        self.wait_state("a", "running")
        self.root.ok("exec", "a", "--", "true")
        self.assertEqual(engine.api("POST", f"{box}/kill").status, 204)
        self.wait_state("a", "stopped")
        self.root.ok("exec", "a", "--", "true")

    @only_on("docker")
    def test_a_late_report_repeats_a_pause(self):
        """dockerd takes containerd's report of a pause for a new pause if the container is not paused any more, until the
        report of the end arrives. Its events and its answers are then wrong for that time, and ours with them."""
        engine = LateDocker().start()
        self.addCleanup(engine.stop)
        self.write_config(engine)
        self.root.start()
        self.root.ok("up", "a")
        engine.delay = 1.0
        self.root.ok("pause", "a")
        self.root.ok("resume", "a")
        self.root.ok("exec", "a", "--", "true")
        self.assertEqual(engine.reported, [], "held back")
        wait_until(lambda: engine.reported == ["paused", "resumed"], 20, "the reports")
        filters = quote(json.dumps({"container": [self.container(engine, "a")], "event": ["pause", "unpause"]}))
        answer = engine.api("GET", f"/events?since=1&until={int(time.time()) + 1}&filters={filters}", timeout=30).body
        actions = [json.loads(line)["Action"] for line in answer.splitlines()]
        self.assertEqual(actions, ["pause", "unpause", "pause", "unpause"])
        self.wait_state("a", "running")
        self.root.ok("exec", "a", "--", "true")

    def test_home_volume_that_cannot_be_made(self):
        engine = Config.backend
        self.use_prefix(engine)
        path = engine.place / "data" / "volumes" / f"{self.prefix}-home-a"
        path.write_text("", encoding="ascii")
        self.addCleanup(path.unlink)
        self.root.start()
        done = self.root.run("up", "a")
        self.assertNotEqual(done.code, 0)
        self.assertIn(f"volume '{self.prefix}-home-a'", done.err.decode())
        self.assertIn(f"{engine.kind} says", done.err.decode())
        self.assertEqual(self.ours(engine), {"containers": [], "volumes": [], "networks": []})
        self.assertEqual(self.root.sandboxes(), [])

    def use_prefix(self, engine):
        self.prefix = f"f{os.getpid()}x{id(self) % 100000}"
        self.write_config(engine, f"docker.prefix: {self.prefix}\n")
        self.root.start()


@only_on("docker")
class LiveRestore(FaultTest):

    def test_restart_with_live_restore_keeps_the_sandbox(self):
        engine = self.own_engine(flags=["--live-restore"])
        self.root.ok("up", "a")
        self.shell("a", "echo here >/tmp/x")
        engine.kill()
        engine.restart()
        wait_until(lambda: self.root.run("exec", "a", "--", "cat", "/tmp/x").out == b"here\n", 60,
                   "the same run of the sandbox")
