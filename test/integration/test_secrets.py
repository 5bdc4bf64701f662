"""Credentials: they reach the command that they are for, and are found nowhere else."""
import json
import os
import secrets
import tempfile
from pathlib import Path

from ripcord_test import Config, TestCase, only_on, wait_until


def processes():
    """(place, bytes) of what every process of this machine shows of itself."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        for name in ("cmdline", "environ"):
            try:
                yield f"{entry}/{name}", (entry / name).read_bytes()
            except OSError:
                pass


def files(*folders):
    """(place, bytes) of every file below, the sandboxes' own included."""
    for folder in folders:
        for path, _, names in os.walk(folder):
            for name in names:
                place = os.path.join(path, name)
                try:
                    if os.path.isfile(place) and not os.path.islink(place) and os.path.getsize(place) < 64 << 20:
                        yield place, Path(place).read_bytes()
                except OSError:  # gone meanwhile
                    pass


def memory(pid):
    """(place, bytes) of what a process has written to its memory."""
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps, open(f"/proc/{pid}/mem", "rb", 0) as mem:
        for line in maps:
            span, rights = line.split()[:2]
            start, end = (int(n, 16) for n in span.split("-"))
            if rights.startswith("rw") and end - start < 1 << 30:  # larger are a sanitizer's
                try:
                    mem.seek(start)
                    yield f"memory of {pid}: {line.strip()}", mem.read(end - start)
                except OSError:
                    pass


class SecretCase(TestCase):
    def setUp(self):
        super().setUp()
        self.value = f"sek-{secrets.token_hex(12)}"
        self.folder = tempfile.TemporaryDirectory(prefix="ripcord-secret-")
        self.file = Path(self.folder.name) / "key"
        self.file.write_text(self.value, encoding="ascii")
        self.addCleanup(self.folder.cleanup)

    def engine_words(self):
        """Everything that the engine shows about the containers of this root and their execs, and its own files about them."""
        if not Config.backend:
            return
        for name in Config.backend.labelled(f"ripcord.root={self.root.root_id}")["containers"]:
            box = Config.backend.api("GET", f"/containers{name}/json").json()
            yield f"inspect {name}", json.dumps(box).encode()
            for x in box.get("ExecIDs") or []:
                yield f"inspect exec {x}", json.dumps(Config.backend.api("GET", f"/exec/{x}/json").json()).encode()
            yield f"logs {name}", Config.backend.api("GET", f"/containers{name}/logs?stdout=1&stderr=1").body

    def engine_files(self):
        """Docker's and Podman's state of containers; not the layers, which hold whole systems."""
        if not Config.backend:
            return
        # Not by rglob(), which fails when a folder goes while it looks.
        yield from files(*(p for p, _, _ in os.walk(Config.backend.place) if os.path.basename(p) == "containers" and "overlay" not in p))

    def assert_nowhere(self, when):
        self.root.daemon_pid()
        found = [place for source in (processes(), files(self.root.path), self.engine_words(), self.engine_files())
                 for place, text in source if self.value.encode() in text]
        self.assertEqual(found, [], when)


class Nowhere(SecretCase):
    def search(self, target, body, key):
        script = ("test \"$(cat $RIPCORD_SECRETS/KEY 2>/dev/null || cat)\" && echo '{\"ready\":1}'; "
                  "while ! test -e /tmp/go; do sleep 0.05; done")
        reply = self.root.http("POST", target, {"argv": ["sh", "-c", script], **body})
        self.assertEqual(reply.status, 201, reply)
        x = reply.json()[key]["id"]
        wait_until(lambda: b"ready" in self.root.http("GET", f"/v1/sandboxes/a/execs/{x}/stdout").body, 30, "the command")
        self.assert_nowhere("while it runs")
        if os.geteuid() == 0:
            found = [place for place, text in memory(self.root.daemon_pid()) if self.value.encode() in text]
            self.assertEqual(found, [], "handed over, the daemon has forgotten it")
        self.root.kill_daemon()
        self.root.ok("exec", "a", "--", "touch", "/tmp/go")
        wait_until(lambda: self.root.exec_info("a", x)["state"] == "ended", 30, "its end")
        self.root.ok("exec", "a", "--", "rm", "/tmp/go")
        self.assert_nowhere("after its end")

    def test_a_secret_is_found_nowhere_but_in_its_file(self):
        self.root.ok("up", "a")
        self.search("/v1/sandboxes/a/sessions", {"payload": {}, "secrets": {"KEY": self.value}}, "session")
        self.search("/v1/sandboxes/a/execs", {"secrets": {"KEY": self.value}}, "exec")
        self.search("/v1/sandboxes/a/sessions", {"payload": {"key": self.value}}, "session")
        bad = self.root.http("POST", "/v1/sandboxes/a/execs", {"argv": ["true"], "secrets": {"KEY": self.value}, "oops": 1})
        self.assertNotIn(self.value.encode(), bad.body)
        bad = self.root.http("POST", "/v1/sandboxes/a/execs", {"argv": ["true"], "secrets": {self.value: 7}})
        self.assertEqual(bad.status, 400)
        self.root.ok("rm", "--force", "a")
        self.assert_nowhere("after the sandbox has gone")

    @only_on("native")
    def test_the_search_can_find(self):
        """What the other test looks for is seen where it must not be."""
        self.root.ok("up", "a")
        self.root.ok("exec", "a", "--detach", "--env", f"KEY={self.value}", "--", "sleep", "1000")
        with self.assertRaises(AssertionError):
            self.assert_nowhere("in an environment")


class Place(SecretCase):
    def test_a_file_that_only_the_command_can_read(self):
        self.root.ok("up", "a")
        out = self.root.ok("exec", "a", "--secret", f"KEY=@{self.file}", "--", "sh", "-c",
                           "stat -c '%a %U' $RIPCORD_SECRETS/KEY; stat -fc %T $RIPCORD_SECRETS; cat $RIPCORD_SECRETS/KEY; "
                           "stat -c ' %a' $RIPCORD_SECRETS; (echo no > $RIPCORD_SECRETS/KEY) || :").out.decode().split()
        self.assertEqual(out[:4], ["400", "agent", "tmpfs", self.value])
        self.assertIn(out[4], ("500", "700"))
        self.assertEqual(self.shell("a", "find /run/secrets -type f 2>/dev/null; echo x$RIPCORD_SECRETS"), "x\n")

    def test_each_command_has_its_own(self):
        self.root.ok("up", "a")
        other = Path(self.folder.name) / "other"
        other.write_text("second", encoding="ascii")
        x = self.root.ok("exec", "a", "--detach", "--secret", f"KEY=@{self.file}", "--", "sh", "-c",
                         "while ! test -e /tmp/go; do sleep 0.05; done; cat $RIPCORD_SECRETS/KEY").text.split()[0]
        self.assertEqual(self.root.ok("exec", "a", "--secret", f"KEY=@{other}", "--", "sh", "-c",
                                      "cat $RIPCORD_SECRETS/KEY; touch /tmp/go").out, b"second")
        wait_until(lambda: self.root.exec_info("a", x)["state"] == "ended", 30, "the first one's end")
        self.assertEqual(self.root.ok("logs", "a", x).text, self.value)

    def test_run_and_where_values_come_from(self):
        show = ("--", "sh", "-c", "cat $RIPCORD_SECRETS/KEY $RIPCORD_SECRETS/b.pem")
        env = {"KEY": "from-env"}
        self.assertEqual(self.root.ok("run", "--secret", "KEY", "--secret", "b.pem=@-", *show, stdin=b"+in", env=env).out,
                         b"from-env+in")
        r = self.root.run("run", "--secret", f"KEY={self.value}", "--", "true")
        self.assertEqual(r.code, 125)
        self.assertNotIn(self.value.encode(), r.err)
        self.file.write_bytes(b"\xff\xfe")
        self.assertIn(b"UTF-8", self.root.run("run", "--secret", f"K=@{self.file}", "--", "true").err)
        self.file.write_bytes(b"x" * 70000)
        self.assertIn(b"65536", self.root.run("run", "--secret", f"K=@{self.file}", "--", "true").err)

    def test_root_inside_has_them_too(self):
        self.root.ok("up", "a")
        self.assertEqual(self.root.ok("exec", "a", "--user", "root", "--secret", f"KEY=@{self.file}", "--", "sh", "-c",
                                      "cat $RIPCORD_SECRETS/KEY; stat -c ' %U' $RIPCORD_SECRETS/KEY").text,
                         f"{self.value} root\n")

    @only_on("native")
    def test_the_rest_of_the_sandbox_does_not_see_the_mount(self):
        self.root.ok("up", "a")
        x = self.root.ok("exec", "a", "--detach", "--secret", f"KEY=@{self.file}", "--", "sleep", "1000").text.split()[0]
        self.assertEqual(self.shell("a", "ls /run/secrets; grep -c secrets /proc/self/mounts || true"), "0\n")
        self.root.ok("kill", "a", x, "--signal", "KILL")

    @only_on("native")
    def test_a_link_laid_in_the_way_is_not_followed(self):
        self.root.ok("up", "a")
        self.root.ok("exec", "a", "--user", "root", "--", "sh", "-c", "rm -rf /run/secrets; ln -s /home/agent /run/secrets")
        r = self.root.run("exec", "a", "--secret", f"KEY=@{self.file}", "--", "true")
        self.assertEqual(r.code, 125, r)
        self.assertIn(b"/run/secrets", r.err)
        self.assertEqual(self.shell("a", "ls /home/agent"), "")
