"""Programs are replaced under running sandboxes: the new daemon and the old supervisors agree on a protocol, or say so."""
import shutil
import signal
import tempfile
from pathlib import Path

from ripcord_test import Config, TestCase, alone, only_on, wait_until


class Replaced(TestCase):
    """What the tests of all engines need: folders of programs, and a daemon that another one follows."""
    programs = ("ripcord", "ripcordd", "ripcord-shim")
    is_guest = False  # the old program is the one in the container

    def install(self, version):
        """A folder with this version's programs, as an earlier package had them."""
        place = Path(tempfile.mkdtemp(prefix="ripcord-version-"))
        self.addCleanup(shutil.rmtree, place)
        for name in self.programs:
            other = Config.bin / "test" / "unit" / f"{name}-{version}"
            shutil.copy2(other if other.exists() else Config.bin / name, place / name)  # a link would lead back
        return place

    def under(self, place):
        """From now on the CLI starts that folder's daemon."""
        old, Config.bin = Config.bin, place
        self.addCleanup(setattr, Config, "bin", old)

    def replace(self, old):
        self.root.kill_daemon(signal.SIGTERM)
        Config.bin = old
        self.root.start()

    def begin(self, version):
        new = Config.bin
        self.under(self.install(version))
        self.root.start()
        self.root.ok("up", "a")
        x = self.root.ok("exec", "a", "--detach", "--", "sh", "-c", "echo before; sleep 1; echo after; sleep 1000").text.split()[0]
        self.replace(new)
        return x

    def count(self, words, length):
        return self.root.run("exec", "a", "--", "sh", "-c", "echo $#", "sh", *["x" * length] * words)

    def large_commands_are_refused(self, words, length):
        """As long as the old program runs; others go on as before."""
        before = len(self.root.get("/v1/sandboxes/a/execs")["execs"])
        result = self.assert_exit(self.count(words, length), 125)
        for word in ("too old" if self.is_guest else "older version", "hint:", "Stop the sandbox"):
            self.assertIn(word, result.err.decode())
        self.assertEqual(self.assert_exit(self.count(100, 1000), 0).text, "100\n")
        return len(self.root.get("/v1/sandboxes/a/execs")["execs"]) - before - 1


@only_on("native")
@alone
class Upgrade(Replaced):
    def copies(self):
        """The old supervisor still copies, and a request that it does not know is refused."""
        here = Path(self.install("older")) / "f"
        here.write_text("new")
        self.shell("a", "echo old > ro; chmod 444 ro")
        self.root.ok("cp", here, "a:ro")
        self.root.ok("cp", "a:ro", here)
        for option in (("--user", "0"), ("--owner", "1000"), ("--mode", "600"), ("--parents",)):
            result = self.assert_exit(self.root.run("cp", *option, here, "a:other"), 7)
            for word in ("older version", "hint:", "Stop the sandbox"):
                self.assertIn(word, result.err.decode())
        self.assertEqual(self.shell("a", "ls; cat ro"), "ro\nnew")

    def test_an_older_supervisor_goes_on(self):
        x = self.begin("older")
        self.assertEqual(self.root.sandbox("a")["state"], "running")
        wait_until(lambda: self.root.ok("logs", "a", x).out == b"before\nafter\n", 30, "its output")
        self.assertEqual(self.shell("a", "echo works"), "works\n")
        self.copies()
        self.assertEqual(self.large_commands_are_refused(5, 50000), 0, "the refused command was stored")
        reply = self.root.http("POST", "/v1/sandboxes/a/execs", {"argv": ["true"] + ["x" * 50000] * 5})
        self.assertEqual((reply.status, reply.code), (501, "unsupported"), reply)
        self.root.ok("kill", "a", x)
        wait_until(lambda: self.root.exec_info("a", x)["state"] == "ended", 30, "its end")
        self.assertEqual(self.root.exec_info("a", x)["end"]["cause"], "killed")
        self.root.ok("stop", "a")
        self.assertEqual(self.shell("a", "echo new"), "new\n")
        self.assertEqual(self.assert_exit(self.count(5, 50000), 0).text, "5\n")

    def test_a_supervisor_of_another_protocol_is_reported_and_left_alone(self):
        x = self.begin("foreign")
        wait_until(lambda: self.root.sandbox("a")["state"] == "failed", 30, "the look at it")
        self.assertIn("speaks protocol 2.0", self.root.sandbox("a")["reason"])
        result = self.assert_exit(self.root.run("exec", "a", "--", "true"), 125)
        for word in ("speaks protocol 2.0", "hint:", "Stop the sandbox"):
            self.assertIn(word, result.err.decode())
        self.assertEqual(self.root.exec_info("a", x)["state"], "running", "it is still there")
        self.root.ok("stop", "a")
        self.assertEqual(self.root.cgroups(), [])
        self.assertEqual(self.shell("a", "echo new"), "new\n")


@only_on("docker", "podman")
@alone
class UpgradeOfContainers(Replaced):
    programs = ("ripcord", "ripcordd", "ripcord-shim", "ripcord-relay", "ripcord-guest")

    def setUp(self):
        if Config.sanitized:
            self.skipTest("the older programs are not built with a sanitizer")
        super().setUp()

    def test_an_older_relay_goes_on_and_a_restart_renews_the_guest(self):
        x = self.begin("older")
        wait_until(lambda: self.root.ok("logs", "a", x).out == b"before\nafter\n", 30, "its output")
        self.assertEqual(self.large_commands_are_refused(5, 50000), 0, "the refused command was stored")
        self.root.ok("kill", "a", x)
        self.shell("a", "echo kept > file")
        self.root.ok("stop", "a")
        # More than a guest of that version took: the container must have got the new one.
        self.assertEqual(self.assert_exit(self.count(15, 100000), 0).text, "15\n")
        self.assertEqual(self.shell("a", "cat file; stat -c '%a %u' /.ripcord/guest"), "kept\n111 0\n")

    def test_an_older_guest_beside_a_new_relay_is_reported(self):
        """As if the copy of the new one were still missing."""
        self.is_guest = True
        new, older = Config.bin, self.install("older")
        shutil.copy2(new / "ripcordd", older / "ripcordd")
        shutil.copy2(new / "ripcord-relay", older / "ripcord-relay")
        self.under(older)
        self.root.start()
        self.root.ok("up", "a")
        self.assertEqual(self.assert_exit(self.count(4, 100000), 0).text, "4\n")
        self.large_commands_are_refused(6, 100000)
