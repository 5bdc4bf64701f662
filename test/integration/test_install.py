"""Installed trees: a tree with folders bin and libexec works wherever it lies, also after it was moved."""
import os
import shutil
import tempfile
from pathlib import Path

from ripcord_test import Config, TestCase, alone

PROGRAMS = ("ripcordd", "ripcord-shim", "ripcord-guest", "ripcord-relay", "ripcord-relay-net", "ripcord-packages", "ripcord-image",
            "ripcord-build", "ripcord-transfer")


def install(place):
    """Lays out the programs of this run as an installation does."""
    for folder, names in (("bin", ["ripcord"]), ("libexec/ripcord", PROGRAMS)):
        (place / folder).mkdir(parents=True)
        for name in names:
            shutil.copy2(Config.bin / name, place / folder)  # a link would lead back


@alone  # other tests must not see Config.bin while it points elsewhere
class Moved(TestCase):
    def setUp(self):
        super().setUp()
        self.place = Path(tempfile.mkdtemp(prefix="ripcord-tree-"))
        self.addCleanup(shutil.rmtree, self.place)
        install(self.place / "first")
        self.addCleanup(setattr, Config, "bin", Config.bin)

    def under(self, tree):
        Config.bin = self.place / tree / "bin"
        return self.place / tree / "libexec" / "ripcord"

    def test_programs_find_each_other_after_a_move(self):
        here = self.under("first")
        self.root.ok("up", "box")
        self.assertEqual(self.daemon_program(), here / "ripcordd")
        self.shell("box", "echo kept >f")
        self.root.kill_daemon()
        (self.place / "first").rename(self.place / "second")
        here = self.under("second")
        self.assertEqual(self.shell("box", "cat f"), "kept\n")
        self.assertEqual(self.daemon_program(), here / "ripcordd")
        self.root.ok("stop", "box")
        self.assertEqual(self.shell("box", "cat f"), "kept\n", "a supervisor of the moved tree")

    def test_a_link_to_the_command_is_enough(self):
        self.under("first")
        (self.place / "elsewhere").mkdir()
        (self.place / "elsewhere" / "ripcord").symlink_to(self.place / "first" / "bin" / "ripcord")
        Config.bin = self.place / "elsewhere"
        self.assertEqual(self.root.ok("run", "--", "echo", "ran").out, b"ran\n")

    def test_a_command_without_its_programs_says_so(self):
        self.under("first")
        shutil.rmtree(self.place / "first" / "libexec")
        result = self.assert_exit(self.root.run("ls"), 1)
        for word in ("cannot find the daemon", "../libexec/ripcord", "hint:"):
            self.assertIn(word, result.err.decode())

    def daemon_program(self):
        return Path(os.readlink(f"/proc/{self.root.daemon_pid()}/exe"))
