"""ripcord image lint, as people and programs use it: no daemon, exact places, repairs in place."""
import json
import re
import tempfile
from pathlib import Path

from ripcord_test import TestCase

TREE = Path(__file__).resolve().parents[2]
PIP = "FROM python:3.12\nRUN --mount=type=cache,target=/root/.cache/pip pip install --no-cache-dir -r r.txt\nUSER agent\n"


class Lint(TestCase):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = Path(folder.name) / "Dockerfile"

    def lint(self, text, *options, code=1):
        self.file.write_text(text, "utf-8")
        return self.assert_exit(self.root.run("image", "lint", *options, str(self.file)), code)

    def findings(self, text, code=1):
        return json.loads(self.lint(text, "--json", code=code).out)["files"][0]["findings"]

    def test_no_cache_dir_with_cache_mount_is_reported(self):
        found, = self.findings(PIP)
        self.assertEqual((found["rule"], found["severity"], found["fixable"]), ("cache-defeated", "error", True))
        self.assertEqual(found["start"], {"line": 2, "column": 60})
        self.assertEqual(found["end"], {"line": 2, "column": 74})
        self.assertIn(f"{self.file}:2:60: error: '--no-cache-dir'", self.lint(PIP).text)
        self.assertIsNone(self.root.daemon_pid())

    def test_fix_repairs_in_place_and_keeps_the_rest(self):
        self.file.write_text(PIP)
        self.file.chmod(0o640)
        link = self.file.with_name("link")
        link.symlink_to(self.file)
        self.assert_exit(self.root.run("image", "lint", "--fix", str(link)), 0)
        self.assertEqual(self.file.read_text(), PIP.replace(" --no-cache-dir", ""))
        self.assertEqual(self.file.stat().st_mode & 0o777, 0o640)
        self.assertTrue(link.is_symlink())

    def test_status_says_what_was_found(self):
        self.lint("FROM debian:12\nUSER a\n", code=0)
        info = "FROM debian:12\nRUN --mount=type=cache,target=/var/cache/apt rm docker-clean; apt-get install -y git\nUSER a\n"
        self.lint(info, code=0)
        self.lint(info, "--strict", code=1)
        self.lint("FROM debian:12\n", code=1)
        self.assert_exit(self.root.run("image", "lint", str(self.file.with_name("none"))), 3)
        self.assert_exit(self.root.run("image", "lint", str(self.file.parent)), 2)

    def test_syntax_is_a_finding_with_its_place(self):
        found, = self.findings("FROM debian:12\nRNU x\n")
        self.assertEqual((found["rule"], found["start"]), ("syntax", {"line": 2, "column": 1}))

    def test_hostile_files_are_refused_clearly(self):
        self.file.write_text("FROM a\n" * 100_000)
        self.assertIn("too many stages (the limit is 1000)", self.assert_exit(self.root.run("image", "lint", str(self.file)), 1).text)
        self.file.write_text("FROM a\nRUN " + "x" * (10 << 20))
        r = self.assert_exit(self.root.run("image", "lint", str(self.file)), 6)
        self.assertIn(b"bytes", r.err)
        self.file.write_bytes(b"FROM a:1\nENV A=\x1b[31m\xff\n")
        self.assertNotIn(b"\x1b", self.root.run("image", "lint", str(self.file)).out)

    def test_the_default_image_is_clean(self):
        self.assert_exit(self.root.run("image", "lint", "--strict", str(TREE / "images/default/Dockerfile")), 0)

    def test_every_rule_has_its_section(self):
        headings = re.findall(r"^## (\S+)$", (TREE / "docs/lint.md").read_text("utf-8"), re.M)
        known = re.findall(r'= \{"([a-z-]+)", LINT_', (TREE / "src/image/lint/lint.c").read_text("utf-8"))
        self.assertEqual(sorted(headings), sorted(known))
