"""Two builds of a commit in different folders give the same bytes."""
import os
import subprocess
import sys
import unittest
from pathlib import Path

from tarball_fixture import folder, need_root

HERE = Path(__file__).resolve().parents[2]


class Same(unittest.TestCase):
    def build(self, place, umask, zone, language):
        """In a clone."""
        subprocess.run(["git", "clone", "-q", HERE, place], check=True)
        env = {**os.environ, "TZ": zone, "LANG": language, "CCACHE_DISABLE": "1"}
        done = subprocess.run([sys.executable, place / "tools" / "dist" / "dist.py"], cwd="/", env=env, umask=umask, capture_output=True, text=True,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return (place / "build" / "dist" / "SHA256SUMS").read_text(encoding="ascii").splitlines()

    def test_two_folders(self):
        need_root()
        here = folder(self)
        first = self.build(here / "a", 0o022, "Asia/Tokyo", "C")
        second = self.build(here / "another-folder" / "with" / "a-longer-name", 0o077, "America/Lima", "C.UTF-8")
        self.assertEqual(first, second)
        names = " ".join(line.split()[1] for line in first)
        for word in ("linux-x86_64.tar.xz", "spdx.json", "image-x86_64.tar.gz", "libripcord0_", "libripcord-dev_", "ripcord-dbgsym_"):
            self.assertIn(word, names)
