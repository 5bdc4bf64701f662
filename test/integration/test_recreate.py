"""A sandbox whose spec changes: it becomes the new one, or stays the old one with its files; never something between."""
import json
import os
import threading
import time

from ripcord_test import Config, TestCase, needs, wait_until


class Recreate(TestCase):
    def setUp(self):
        super().setUp()
        self.source = self.root.path / "shared"
        self.source.mkdir()

    def up(self):
        """A sandbox with a file in its home, one in its root, one in /cache, and a file where a folder would be needed."""
        self.root.ok("up", "box", "--env", "OLD=1")
        self.shell("box", "echo home > /home/agent/f; echo root > /var/tmp/f; mkdir -p /cache/own; "
                   "echo cache > /cache/own/f; touch /home/agent/file")
        return self.root.sandbox("box")

    def assert_old(self, before):
        now = self.root.sandbox("box")
        self.assertEqual((now["state"], now["hash"], now["spec"], now["id"]),
                         ("running", before["hash"], before["spec"], before["id"]), now)
        self.assertEqual(self.shell("box", "cat /home/agent/f /var/tmp/f /cache/own/f; echo $OLD"), "home\nroot\ncache\n1\n")

    def mount(self, source, target):
        return {"mounts": [{"source": str(source), "target": target}]}

    def test_a_refused_spec_changes_nothing(self):
        """The state folder as a mount source, a source that does not exist, an unknown user, image and cache tool."""
        before = self.up()
        pid = self.root.ok("exec", "box", "--", "sh", "-c", "sleep 1000 & echo $!").text
        refused = ((self.mount(self.root.path, "/x"), 403, "denied"), (self.mount("/tmp/not-there", "/x"), 404, "not_found"),
                   ({"user": "nope"}, 400, "invalid"), ({"image": "no-such-image"}, 404, "not_found"),
                   ({"caches": {"nope": "private"}}, 400, "invalid"), ({"network": "nope"}, 400, "invalid"),
                   ({"runtime": "nope"}, None, None), ({"limits": {"disk": 1 << 40}}, 409, "conflict"))
        for spec, status, code in refused:
            with self.subTest(spec=spec):
                reply = self.root.http("PUT", "/v1/sandboxes/box", spec)
                self.assertGreaterEqual(reply.status, 400, reply)
                if status:
                    self.assert_refused(reply, status, code)
                self.assertEqual(self.root.sandbox("box")["since"], before["since"], "it was stopped")
                self.assert_old(before)
        self.assertEqual(self.shell("box", f"kill -0 {pid.strip()} && echo alive"), "alive\n")
        self.assertEqual(self.root.run("up", "box", "--mount", f"{self.root.path}:/x").code, 5)
        self.assert_old(before)

    def fails_at_start(self):
        """A target below a plain file: only the start finds that out."""
        return self.mount(self.source, "/home/agent/file/x")

    def test_a_spec_that_does_not_start_gives_the_old_sandbox_back(self):
        before = self.up()
        reply = self.root.http("PUT", "/v1/sandboxes/box", self.fails_at_start())
        self.assertGreaterEqual(reply.status, 400, reply)
        self.assert_old(before)
        events = [json.loads(line) for line in self.root.ok("events").text.splitlines()]
        [reverted] = [e for e in events if e["kind"] == "sandbox.reverted"]
        self.assertEqual((reverted["sandbox"], reverted["data"]["message"]), ("box", reply.json()["error"]["message"]))
        self.root.ok("reconcile")
        self.assert_old(before)

    def test_a_stopped_sandbox_stays_stopped(self):
        before = self.up()
        self.root.ok("stop", "box")
        reply = self.root.http("PUT", "/v1/sandboxes/box", self.fails_at_start())
        self.assertGreaterEqual(reply.status, 400, reply)
        now = self.root.sandbox("box")
        self.assertEqual((now["state"], now["reason"], now["hash"]), ("stopped", "stopped on request", before["hash"]))
        self.root.ok("up", "box")
        self.assert_old(before)

    def test_a_change_that_works_leaves_nothing_of_the_old(self):
        before = self.up()
        reply = self.root.http("PUT", "/v1/sandboxes/box", self.mount(self.source, "/x"))
        self.assertEqual(reply.json()["action"], "recreated", reply)
        self.assertEqual(self.shell("box", "cat /home/agent/f /cache/own/f; ls /var/tmp"), "home\ncache\n")
        self.assertNotEqual(self.root.sandbox("box")["hash"], before["hash"])
        self.assertEqual(self.kept(), [])

    def kept(self):
        """What the engine still has of the state before a re-creation."""
        if Config.engine == "native":
            return [p.name for p in (self.root.path / "state/sandboxes").glob("*/*.old")]
        found = Config.backend.labelled(f"ripcord.root={self.root.root_id}")["containers"]
        return [name for name in found if name.endswith(".old")]

    def killed_during(self, change, delay):
        """Kills the daemon that long after the change was asked for, and starts another."""
        worker = threading.Thread(target=self.ask, args=(change,))
        worker.start()
        time.sleep(delay)
        self.root.kill_daemon()
        worker.join()
        self.root.start()
        wait_until(lambda: self.root.sandbox("box")["state"] != "reconciling", 30, "its state to be known")

    def ask(self, change):
        try:
            self.root.http("PUT", "/v1/sandboxes/box", change)
        except (OSError, AssertionError):
            pass  # the daemon was killed

    def test_a_killed_daemon_leaves_the_old_or_the_new_one(self):
        step, n = (0.012, 12) if Config.engine == "native" else (0.35, 5)
        works = True
        for i in range(n):
            works = not works
            before = self.up()
            change = dict(self.mount(self.source, "/x") if works else self.fails_at_start(), env={"NEW": "1"})
            with self.subTest(delay=i * step, works=works):
                self.killed_during(change, i * step)
                now = self.root.sandbox("box")
                self.assertIn(now["state"], ("running", "stopped"), now)
                new = now["hash"] != before["hash"]
                self.assertFalse(new and not works, now)
                self.assertEqual(now["spec"]["env"].get("NEW"), "1" if new else None)
                self.assertEqual(self.shell("box", "cat /home/agent/f /cache/own/f; cat /var/tmp/f 2>&1 >/dev/null | wc -l; "
                                            "echo $NEW"), f"home\ncache\n{int(new)}\n{'1' if new else ''}\n")
                self.assertEqual(self.root.sandbox("box")["hash"], now["hash"], "it was re-created once more")
                self.root.ok("reconcile")
                self.assertEqual(self.kept(), [])
            self.root.ok("rm", "-f", "box")

    @needs("disk limit")
    def test_a_disk_of_its_own_gets_its_root_back(self):
        self.root.ok("up", "box", "--disk", "64M", "--env", "OLD=1")
        self.shell("box", "echo home > /home/agent/f; echo root > /var/tmp/f; mkdir -p /cache/own; "
                   "echo cache > /cache/own/f; touch /home/agent/file; head -c 20M /dev/zero > /var/tmp/big")
        before = self.root.sandbox("box")
        self.assertGreaterEqual(self.root.http("PUT", "/v1/sandboxes/box", self.fails_at_start()).status, 400)
        self.assert_old(before)
        self.root.ok("up", "box", "--mount", f"{self.source}:/x")
        self.assertEqual(self.shell("box", "cat /home/agent/f /cache/own/f; ls /var/tmp"), "home\ncache\n")
        self.assertLess(int(self.shell("box", "df --output=used -m / | tail -1")), 10, "the old root is gone from the disk")

    def test_reconcile_reports_a_failed_sandbox(self):
        self.root.ok("up", "box", "--mount", f"{self.source}:/x")
        self.root.ok("stop", "box")
        self.source.rmdir()
        self.assertNotEqual(self.root.run("up", "box").code, 0)
        self.assertEqual(self.root.sandbox("box")["state"], "failed")
        result = self.root.run("reconcile", "--json")
        [item] = [i for i in result.json()["reconcile"]["results"] if i["name"] == "box"]
        self.assertEqual((result.code, item["result"]), (1, "failed"), result)
        self.assertEqual(item["reason"], self.root.sandbox("box")["reason"])
        self.source.mkdir()
        self.root.ok("up", "box")
        self.root.ok("reconcile")

    def test_unknown_users_are_refused_at_once(self):
        result = self.root.run("up", "new", "--user", "nope")
        self.assertEqual(result.code, 2, result)
        self.assertIn(b"user 'nope' is not in the /etc/passwd of image", result.err)
        self.assertEqual(self.root.sandboxes(), [])
        for user, uid in (("root", "0"), ("nobody", "65534"), ("4711", "4711"), ("4711:4711", "4711")):
            self.root.ok("up", "new", "--user", user)
            self.assertEqual(self.shell("new", "id -u").strip(), uid)


class Lists(TestCase):
    """env, labels, mounts and caches: entries are added or replaced by their key, and `clear` removes them."""

    def spec(self):
        return self.root.sandbox("box")["spec"]

    def test_entries_add_up_and_can_be_cleared(self):
        for name in "ab":
            (self.root.path / name).mkdir()
        a, b = self.root.path / "a", self.root.path / "b"
        self.root.ok("up", "box", "--env", "A=1", "--mount", f"{a}:/a", "--cache", "pip=off", "--label", "x=1")
        self.root.ok("up", "box", "--env", "B=2", "--mount", f"{b}:/b", "--cache", "npm=off", "--label", "y=2")
        spec = self.spec()
        self.assertEqual((spec["env"], [m["target"] for m in spec["mounts"]], spec["caches"], spec["labels"]),
                         ({"A": "1", "B": "2"}, ["/a", "/b"], {"pip": "off", "npm": "off"}, {"x": "1", "y": "2"}))
        self.root.ok("up", "box", "--env", "A=3", "--mount", f"{b}:/a:ro", "--clear", "caches", "--clear", "labels=x",
                     "--clear", "env=B", "--clear", "labels=not-there")
        spec = self.spec()
        self.assertEqual((spec["env"], {m["target"]: m["source"] for m in spec["mounts"]}, spec["caches"], spec["labels"]),
                         ({"A": "3"}, {"/a": str(b), "/b": str(b)}, {}, {"y": "2"}))
        self.root.ok("up", "box", "--clear", "mounts", "--clear", "env", "--clear", "labels", "--env", "C=4")
        spec = self.spec()
        self.assertEqual((spec["env"], spec["mounts"], spec["labels"]), ({"C": "4"}, [], {}))
        self.assertEqual(self.shell("box", "ls -d /a /b 2>&1 | grep -c 'No such'; echo $A$C"), "2\n4\n")
        reply = self.root.http("PUT", "/v1/sandboxes/box", {"clear": ["mount"]})
        self.assert_refused(reply, 400, "invalid", "clear", "mounts")


class InPlace(TestCase):
    def test_labels_and_leases_change_under_a_live_command(self):
        self.root.ok("up", "box", "--label", "a=1")
        before = self.root.sandbox("box")
        self.root.ok("exec", "box", "--detach", "--", "sleep", "1000")
        self.root.ok("up", "box", "--label", "b=2", "--idle-stop", "1h")
        self.root.ok("up", "box", "--label", "a=3")
        now = self.root.sandbox("box")
        self.assertEqual(now["spec"]["labels"], {"a": "3", "b": "2"})
        self.assertEqual((now["hash"], now["since"], now["execs_live"]), (before["hash"], before["since"], 1))
        self.root.kill_daemon()
        self.root.start()
        self.root.ok("reconcile")
        now = self.root.sandbox("box")
        self.assertEqual((now["spec"]["labels"], now["execs_live"]), ({"a": "3", "b": "2"}, 1))
        self.root.ok("stop", "box")
        self.assertEqual(self.root.http("PUT", "/v1/sandboxes/box", {}).json()["action"], "started")

    def test_labels_survive_the_loss_of_the_database(self):
        self.root.ok("up", "box", "--label", "a=1")
        self.root.ok("up", "box", "--label", "b=2")
        before = self.root.sandbox("box")
        self.root.kill_daemon()
        for name in os.listdir(self.root.path / "state"):
            if name.startswith("ripcord.db"):
                os.unlink(self.root.path / "state" / name)
        self.root.start()
        self.root.ok("reconcile", "--from-engine")
        now = self.root.sandbox("box")
        self.assertEqual((now["spec"]["labels"], now["hash"]), ({"a": "1", "b": "2"}, before["hash"]))

    def test_six_puts_of_one_new_name_make_one_sandbox(self):
        self.root.start()
        replies = []
        threads = [threading.Thread(target=lambda: replies.append(self.root.http("PUT", "/v1/sandboxes/six", {})))
                   for _ in range(6)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(sorted(r.status for r in replies), [200] * 5 + [201], replies)
        self.assertEqual(sorted(r.json()["action"] for r in replies), ["created"] + ["unchanged"] * 5)
