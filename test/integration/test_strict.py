"""Isolation `strict`: no file of the image or of a cache is another sandbox's too, and commands are kept apart."""
import os
import signal
from pathlib import Path

from ripcord_test import TestCase, only_on, wait_until
from test_images import ImageCase, entry, rootfs, saved, tar

MARKED = tar(entry("etc", "d"), entry("etc/.wh.gone"), entry("opaque", "d"), entry("opaque/.wh..wh..opq"), entry("opaque/new", data=b"2"))
BOTTOM = rootfs(entry("etc", "d"), entry("etc/gone", data=b"x"), entry("opaque", "d"), entry("opaque/old", data=b"1"),
                entry("lib.so", data=b"code" * 10000, mode=0o755), entry("again.so", "h", "lib.so"),
                entry("suid", data=b"s", mode=0o4755, uid=7, gid=8, mtime=12345), entry("link", "l", "lib.so"),
                entry("cache", "d"))


class TestStrict(ImageCase):
    def setUp(self):
        super().setUp()
        self.put_ok(saved([BOTTOM, MARKED]))

    def up(self, name, *options):
        self.root.ok("up", name, "--image", "tool:1", *options)

    def inode(self, name, path="/lib.so"):
        """By number alone: the device is each overlay's own."""
        return self.root.ok("exec", name, "--", "stat", "-c", "%i", path).text

    def copies(self):
        return sorted(p.name for p in (Path(self.root.path) / "state" / "sandboxes").glob("*/image*"))

    def on_disk(self, name):
        """Inodes of the files of its layers."""
        box = Path(self.root.path) / "state" / "sandboxes" / self.root.sandbox(name)["id"]
        return {p.stat().st_ino for p in box.glob("image-*/*/fs/lib.so")}

    def test_no_two_share_a_file(self):
        stored = {p.stat().st_ino for p in self.store().glob("layers/*/fs/lib.so")}
        for name in ("a", "b"):
            self.up(name, "--isolation", "strict")
        found = [stored, self.on_disk("a"), self.on_disk("b")]
        self.assertEqual([len(f) for f in found], [1, 1, 1], found)
        self.assertEqual(len(set.union(*found)), 3, found)
        self.assertNotEqual(self.inode("a"), self.inode("b"))
        for name in ("c", "d"):  # the usual: one file for both
            self.up(name)
            self.assertEqual(self.on_disk(name), set())
        self.assertEqual(self.inode("c"), self.inode("d"))

    def test_the_copy_is_the_image(self):
        what = ("stat -c '%n %u:%g %a %s %Y %h' /lib.so /again.so /suid; cat /link | wc -c; ls /opaque /etc/gone; "
                "find / -xdev | grep -v '^/home\\|^/cache' | sort")
        usual = self.root.run("run", "--image", "tool:1", "--", "sh", "-c", what)
        strict = self.root.run("run", "--image", "tool:1", "--isolation", "strict", "--", "sh", "-c", what)
        self.assertEqual(strict.text, usual.text)
        self.assertIn("7:8 4755 1 12345", usual.text)
        self.assertIn("new", usual.text)
        self.assertNotIn("old", usual.text)

    def test_the_copy_lives_as_long_as_it_is_wanted(self):
        self.up("a", "--isolation", "strict")
        first = self.on_disk("a")
        self.root.ok("exec", "a", "--", "sh", "-c", "echo kept > f")
        self.root.ok("stop", "a")
        self.up("a", "--isolation", "strict")
        self.assertEqual(self.on_disk("a"), first)
        self.up("a", "--isolation", "shared")  # another configuration
        self.assertEqual(self.copies(), [])
        self.assertEqual(self.root.ok("exec", "a", "--", "cat", "f").text, "kept\n")
        self.up("a", "--isolation", "strict")
        self.assertEqual(len(self.copies()), 1)
        self.root.ok("rm", "-f", "a")
        self.assertEqual(self.copies(), [])

    def test_another_image_is_another_copy(self):
        self.up("a", "--isolation", "strict")
        before = self.copies()
        self.put_ok(rootfs(entry("other", data=b"x")), "other")
        self.root.ok("up", "a", "--image", "other", "--isolation", "strict")
        self.assertEqual(len(self.copies()), 1)
        self.assertNotEqual(self.copies(), before)
        self.assertEqual(self.root.ok("exec", "a", "--", "cat", "/other").text, "x")

    def test_it_is_shown_and_hashed(self):
        self.up("a", "--isolation", "strict")
        shown = self.root.ok("show", "a").text
        self.assertRegex(shown, r"Isolation +strict")
        box = self.root.sandbox("a")
        self.assertEqual((box["spec"]["isolation"], box["spec"]["caches"]), ("strict", {"all": "private"}))
        hashed = box["hash"]
        self.up("a", "--isolation", "shared", "--cache", "all=private")
        self.assertNotIn("isolation", self.root.sandbox("a")["spec"])
        self.assertNotEqual(self.root.sandbox("a")["hash"], hashed)

    def test_what_contradicts_it_is_refused(self):
        for options, words in ((("--cache", "pip=shared"), "'pip' in mode 'shared'"), (("--cache", "all=layered"), "'all' in mode 'layered'"),
                               (("--cache", "npm=readonly"), "mode 'readonly'")):
            done = self.assert_exit(self.root.run("up", "a", "--image", "tool:1", "--isolation", "strict", *options), 2)
            self.assertIn(words, done.err.decode())
        done = self.assert_exit(self.root.run("up", "a", "--isolation", "strict"), 7)
        self.assertIn("image 'host'", done.err.decode())
        self.assertIn("image import", done.err.decode())
        done = self.assert_exit(self.root.run("up", "a", "--isolation", "strikt"), 2)
        self.assertIn("Did you mean 'strict'?", done.err.decode())
        self.assert_refused(self.root.http("PUT", "/v1/sandboxes/a", {"isolation": "none"}), 400, "invalid", "isolation")
        self.assertEqual(self.root.sandboxes(), [])

    def test_commands_are_kept_apart(self):
        """Each command has a Landlock domain: it cannot signal or inspect processes of other commands, only its own children."""
        script = "sleep 1000 & kill -0 $! && echo own; kill -0 $(cat pid) && echo others; cat /proc/$(cat pid)/environ >/dev/null && echo seen"
        for level, expected in (("strict", "own\n"), ("shared", "own\nothers\nseen\n")):
            self.up("a", "--isolation", level)
            self.root.ok("exec", "a", "-d", "--", "sh", "-c", "echo $$ > pid; exec sleep 1000")
            wait_until(lambda: self.root.run("exec", "a", "--", "cat", "pid").out.strip(), 10, "its pid")
            self.assertEqual(self.root.run("exec", "a", "--", "sh", "-c", script).text, expected, level)
            self.root.ok("rm", "-f", "a")

    def test_ordinary_work(self):
        self.up("a", "--isolation", "strict")
        script = ("cat /dev/stdin; echo x > /tmp/f; cat < /tmp/f > /dev/stdout; echo e > /dev/stderr; ls /proc/self/fd > /dev/null; "
                  "find / -xdev > /scratch/all; mv /tmp/f /home/agent/g && cat g")
        done = self.root.ok("exec", "a", "-i", "--", "sh", "-c", script, stdin=b"in\n")
        self.assertEqual((done.text, done.err), ("in\nx\nx\n", b"e\n"))
        self.assertEqual(self.root.ok("exec", "a", "-t", "--", "sh", "-c", "echo t > /dev/tty").text.strip(), "t")

    def test_a_copy_that_fails_leaves_nothing(self):
        layer = next(self.store().glob("layers/*/fs/lib.so")).parents[1]
        os.rename(layer, layer.with_suffix(".away"))
        try:
            done = self.assert_exit(self.root.run("up", "a", "--image", "tool:1", "--isolation", "strict"), 1)
        finally:
            os.rename(layer.with_suffix(".away"), layer)
        self.assertIn("copy image 'tool:1' for isolation 'strict'", done.err.decode())
        self.assertEqual((self.copies(), self.root.sandboxes()), ([], []))
        self.up("a", "--isolation", "strict")

    def test_a_daemon_that_is_killed_leaves_no_half_copy(self):
        self.up("a")
        self.root.ok("stop", "a")
        box = Path(self.root.path) / "state" / "sandboxes" / self.root.sandbox("a")["id"]
        (box / "image.new" / "half").mkdir(parents=True)
        (box / "image-00").mkdir()
        self.root.kill_daemon(signal.SIGKILL)
        self.up("a", "--isolation", "strict")
        self.assertEqual(len(self.copies()), 1)
        self.assertEqual(len(self.on_disk("a")), 1)


@only_on("docker", "podman")
class TestStrictOnEngines(TestCase):
    def test_it_is_refused(self):
        done = self.assert_exit(self.root.run("up", "a", "--isolation", "strict"), 7)
        self.assertIn("does not support isolation 'strict'", done.err.decode())
        self.assertIn("--runtime", done.err.decode())
        self.assertEqual(self.root.sandboxes(), [])


del ImageCase, TestCase  # the runner would find them here, too
