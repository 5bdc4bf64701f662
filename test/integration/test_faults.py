"""What happens when the machine says no: an error, and nothing left behind."""
import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

from ripcord_test import Config, Root, TestCase, copy_program, files_below, wait_until


class FullDisk(TestCase):
    """A root on a file system of its own that is filled to the last byte."""

    def mount(self, size):
        if os.geteuid() != 0:
            raise unittest.SkipTest("needs root to mount a small file system")
        self.small = Path(tempfile.mkdtemp(prefix="ripcord-small-"))
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},nr_inodes=20000", "none", self.small], check=True)
        self.addCleanup(self.unmount)
        return Root(self.small)

    def unmount(self):
        Root(self.small).sweep()
        subprocess.run(["umount", "-l", self.small], check=True)
        self.small.rmdir()

    def fill(self):
        with open(self.small / "junk", "wb", buffering=0) as f:
            try:
                while True:
                    f.write(bytes(65536))
            except OSError:
                pass
            try:
                while True:
                    f.write(b"x")
            except OSError:
                pass

    def close(self, root):
        problems = root.close()
        self.assertFalse(problems, problems)

    def test_full_while_creating(self):
        root = self.mount("32m")
        root.start()
        root.ok("run", "--", "true")
        wait_until(lambda: not root.wait_clean() and not [f for f in root.files() if re.search("execs/[0-9a-f]{16}", f)], 20,
                   "the run to be gone")
        before = root.files()
        self.fill()
        r = root.run("up", "a")
        r2 = root.run("run", "--", "true")
        os.unlink(self.small / "junk")
        if r.code == 0:
            self.assertEqual(root.ok("exec", "a", "--", "true").code, 0)
            root.ok("rm", "a")
        else:
            self.assertTrue(r.err.strip(), r)
        self.assertIn(r2.code, (0, 125), r2)
        self.assertEqual(root.wait_clean(), {})
        wait_until(lambda: root.files() == before, 10, f"the folders as before: {before}, now {root.files()}")
        root.ok("up", "a")
        self.assertEqual(root.ok("exec", "a", "--", "echo", "works").text, "works\n")
        self.close(root)

    def test_full_from_the_start(self):
        root = self.mount("1m")
        self.fill()
        r = root.run("run", "--", "true")
        self.assertNotEqual(r.code, 0)
        self.assertTrue(r.err.strip(), "an error must be said")
        os.unlink(self.small / "junk")
        self.close(root)

    def test_full_while_writing_output(self):
        """The journal cannot take it: the exec must not claim success with bytes missing."""
        root = self.mount("32m")
        root.start()
        root.ok("up", "a")
        r = root.run("exec", "a", "--", "head", "-c", "100M", "/dev/zero")
        self.assertLess(len(r.out), 100 << 20)
        self.assertIn(b"lost", r.err)
        info = root.exec_info("a")
        self.assertEqual(info["state"], "ended", info)
        if info["end"]["cause"] == "exited":
            self.assertEqual(len(r.out) + info["end"]["stdout_dropped"], 100 << 20, info)
        else:  # the guard of the disk was faster
            self.assertEqual(info["end"]["cause"], "sandbox_stopped", info)
            self.assertNotEqual(r.code, 0, r)
        self.close(root)


class Missing(TestCase):
    def test_missing_shim_is_reported(self):
        """A package without its parts says which one is missing."""
        place = self.root.path / "bin"
        place.mkdir()
        for name in ("ripcord", "ripcordd"):
            copy_program(Config.bin / name, place)
        p = subprocess.run([place / "ripcord", "run", "--", "true"], env=self.root.env(), capture_output=True,
                           timeout=60, check=False)
        self.assertNotEqual(p.returncode, 0)
        self.assertIn(b"ripcord-shim" if Config.engine == "native" else b"ripcord-guest", p.stderr)

    def test_state_folder_that_is_a_file(self):
        (self.root.path / "state").write_text("")
        r = self.root.run("run", "--", "true")
        self.assertNotEqual(r.code, 0)
        self.assertIn(str(self.root.path / "state").encode(), r.err)
        (self.root.path / "state").unlink()

    def test_root_that_cannot_be_made(self):
        p = subprocess.run(self.root.argv("ls"), env=self.root.env({"RIPCORD_ROOT": "/proc/nowhere"}), timeout=60,
                           capture_output=True, check=False)
        self.assertNotEqual(p.returncode, 0)
        self.assertIn(b"/proc/nowhere", p.stderr)

    def test_a_broken_database_is_reported_and_kept(self):
        self.root.start()
        self.root.kill_daemon()
        database = next(files_below(self.root.path / "state", "*.db"))
        database.write_bytes(b"this is no database " * 500)
        for extra in database.parent.glob(database.name + "-*"):
            extra.unlink()
        r = self.root.run("ls")
        self.assertNotEqual(r.code, 0)
        self.assertIn(database.name.encode(), r.err)
        self.assertTrue(database.read_bytes().startswith(b"this is no database"))
        database.unlink()
