"""Programs are replaced under running sandboxes: the new daemon and the old supervisors agree on a protocol, or say so."""
import shutil
import signal
import tempfile
from pathlib import Path

from ripcord_test import Config, TestCase, alone, only_on, wait_until


@only_on("native")
@alone
class Upgrade(TestCase):
    def install(self, version):
        """A folder with this version's programs, as an earlier package had them."""
        place = Path(tempfile.mkdtemp(prefix="ripcord-version-"))
        self.addCleanup(shutil.rmtree, place)
        for name in ("ripcord", "ripcordd", "ripcord-shim"):
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
        self.root.ok("kill", "a", x)
        wait_until(lambda: self.root.exec_info("a", x)["state"] == "ended", 30, "its end")
        self.assertEqual(self.root.exec_info("a", x)["end"]["cause"], "killed")
        self.root.ok("stop", "a")
        self.assertEqual(self.shell("a", "echo new"), "new\n")

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
