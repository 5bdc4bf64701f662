"""Files through the API, as a program inside would write them: rights, links, inodes, and the options that say otherwise."""
import tarfile

from ripcord_test import needs, wait_until
from test_files import FilesCase, TAR, archive

REG = tarfile.REGTYPE


def one(text, name="f"):
    return archive((name, REG, text.encode()))


class Rules(FilesCase):
    def send(self, path, data, **options):
        query = "".join(f"&{k}={v}" for k, v in options.items())
        return self.root.http("PUT", f"/v1/sandboxes/a/files?path={path}{query}", data, TAR)

    def sent(self, path, data, **options):
        reply = self.send(path, data, **options)
        self.assertEqual(reply.status, 200, reply)
        return reply.json()

    def refused(self, path, data, status, code, word, **options):
        self.assert_refused(self.send(path, data, **options), status, code, word)

    def test_a_read_only_file_stays(self):
        """open(2) says EACCES, so we do, with the whole path; the folder's own right would allow a replacement."""
        self.shell("a", "echo old > f; chmod 444 f")
        self.refused("/home/agent/f", one("new"), 403, "denied", "'/home/agent/f': Permission denied")
        self.refused("/home/agent", one("new"), 403, "denied", "'/home/agent/f': Permission denied")
        self.assertEqual(self.shell("a", "cat f; ls -A | grep -c tmp || true"), "old\n0\n")
        self.sent("/home/agent/f", one("new"), atomic=1)
        self.assertEqual(self.shell("a", "cat f"), "new")

    def test_a_link_is_followed_inside(self):
        self.shell("a", "mkdir real; echo old > real/f; ln -s real/f rel; ln -s /home/agent/real/f abs; ln -s real/new dangling; "
                        "ln -s real folder; ln -s ../../../../../../etc/hostname up; ln -s loop loop")
        for path, name in (("rel", "f"), ("abs", "f"), ("dangling", "new"), ("folder/g", "g")):
            self.sent(f"/home/agent/{path}", one(path))
            self.assertEqual(self.shell("a", f"cat real/{name}"), path)
        self.assertEqual(self.shell("a", "readlink rel abs dangling folder"),
                         "real/f\n/home/agent/real/f\nreal/new\nreal\n")
        self.refused("/home/agent/loop", one("x"), 403, "denied", "/home/agent/loop")
        self.send("/home/agent/up", one("inside"))
        with open("/etc/hostname", encoding="utf-8") as f:
            self.assertNotIn("inside", f.read())
        self.sent("/home/agent/rel", one("mine"), atomic=1)
        self.assertEqual(self.shell("a", "test ! -L rel && cat rel real/f"), "mineabs")

    def test_the_inode_stays(self):
        """Owner, mode, hard links and open readers."""
        self.shell("a", "echo old > f; chmod 640 f; ln f second")
        before = self.shell("a", "stat -c '%i %a %U %h' f")
        self.sent("/home/agent/f", one("new"))
        self.assertEqual(self.shell("a", "cat second; stat -c '%i %a %U %h' f"), "new" + before)
        self.sent("/home/agent/f", one("newer"), atomic=1)
        self.assertEqual(self.shell("a", "cat second; stat -c %h f"), "new1\n")

    def test_a_missing_folder_is_an_error(self):
        for path in ("/home/agent/nix/", "/home/agent/nix/f"):
            reply = self.send(path, one("x"))
            self.assert_refused(reply, 404, "not_found", "/home/agent/nix")
            self.assertIn("parents", reply.json()["error"]["hint"])
        self.shell("a", "echo x > file")
        self.refused("/home/agent/file/f", one("x"), 409, "conflict", "'/home/agent/file': Not a directory")
        self.refused("/home/agent/file/", one("x"), 409, "conflict", "Not a directory")
        self.assertEqual(self.shell("a", "ls"), "file\n")
        self.sent("/home/agent/nix/deep/f", one("1"), parents=1)
        self.sent("/home/agent/other/", one("2"), parents=1)
        self.assertEqual(self.shell("a", "cat nix/deep/f other/f; stat -c '%a %U' nix nix/deep other"),
                         "12" + 3 * "755 agent\n")

    def test_a_folder_is_not_a_file(self):
        self.shell("a", "mkdir -p d/f; mkdir full")
        self.refused("/home/agent/d", one("x"), 409, "conflict", "'/home/agent/d/f': Is a directory")
        self.refused("/home/agent/d", one("x"), 409, "conflict", "/home/agent/d/f", atomic=1)

    def test_modes(self):
        self.shell("a", "echo old > f; chmod 600 f")
        self.sent("/home/agent/f", one("1"), mode="0751")
        self.sent("/home/agent/g", one("2"), mode="640")
        self.sent("/home/agent/h", one("3"), mode="604", atomic="true")
        self.assertEqual(self.shell("a", "stat -c %a f g h; cat f g h"), "751\n640\n604\n123")
        for mode in ("4755", "9", "", "-1", "0o7", "00000000644"):
            self.refused("/home/agent/f", one("x"), 400, "invalid", "'mode'", mode=mode)
        for options in ({"user": "Bad Name".replace(" ", "%20")}, {"owner": "70000"}, {"atomic": "maybe"}, {"parents": "2"}):
            self.refused("/home/agent/f", one("x"), 400, "invalid", f"'{[*options][0]}'", **options)
        for option in ("owner=1000", "mode=644", "atomic=1", "parents=1"):
            reply = self.root.http("GET", f"/v1/sandboxes/a/files?path=/home/agent/f&{option}")
            self.assert_refused(reply, 400, "invalid", f"'{option.partition('=')[0]}'")
        self.assertEqual(self.shell("a", "cat f"), "1")

    def test_another_user(self):
        """Root reads and writes what it may inside, and its files are its own."""
        self.sent("/tmp/r", one("root's"), user="0")
        self.assertEqual(self.shell("a", "stat -c %u /tmp/r; cat /tmp/r"), "0\nroot's")
        self.refused("/tmp/r", one("x"), 403, "denied", "'/tmp/r'")
        self.root.ok("exec", "--user", "0", "a", "--", "chmod", "600", "/tmp/r")
        self.assertEqual(self.cp("a:/tmp/r", "x").code, 5)
        self.copied("--user", "0", "a:/tmp/r", "x")
        self.assertEqual((self.here / "x").read_text(), "root's")
        reply = self.send("/tmp/q", one("x"), user="nobody-has-this")
        self.assertIn(reply.status, (400, 404), reply)
        self.assertIn("nobody-has-this", reply.json()["error"]["message"])
        self.refused("/tmp/q", one("x"), 403, "denied", "cannot be given to 'root'", owner="root")
        self.assertEqual(self.shell("a", "ls /tmp"), "r\n")

    @needs("capable root")
    def test_root_gives_files_away(self):
        """Create, chown, write: what E2B's clients expect of a root that acts for a user."""
        data = archive(("d", tarfile.DIRTYPE, None), ("d/f", REG, b"1"), ("l", tarfile.SYMTYPE, "d/f"))
        self.sent("/home/agent/new/deep/", data, user="root", owner="agent", parents=1)
        self.assertEqual(self.shell("a", "cd new/deep; stat -c '%U %G' .. . d d/f l").split(), ["agent"] * 10)
        self.shell("a", "echo old > locked; chmod 000 locked")
        self.sent("/home/agent/locked", one("new"), user="root")
        self.assertEqual(self.shell("a", "stat -c '%a %U' locked; chmod 600 locked; cat locked"), "0 agent\nnew")
        self.sent("/home/agent/locked", one("root's"), user="root", owner="0:0", mode="644", atomic=1)
        self.assertEqual(self.shell("a", "stat -c '%a %u:%g' locked"), "644 0:0\n")

    def test_not_for_files_of_other_kinds(self):
        """Refused at once: a pipe without a reader would wait for ever, and a device is not a place for a file."""
        self.shell("a", "mkfifo pipe; ln -s pipe link")
        for path in ("/home/agent/pipe", "/home/agent/link", "/dev/null", "/dev/full"):
            self.refused(path, one("x"), 409, "conflict", f"'{path}' is not a regular file")
        self.root.ok("exec", "--detach", "a", "--", "sh", "-c", "cat pipe > got; echo end > ended")
        self.refused("/home/agent/pipe", one("x"), 409, "conflict", "is not a regular file")
        reply = self.send("/proc/sys/kernel/hostname", one("x"))
        self.assertIn(reply.status, (403, 500), reply)
        reply = self.send("/proc/self/root/tmp/f", one("x"))
        self.assertIn(reply.status, (403, 404), reply)

    def test_a_part_stays_a_part(self):
        """A client that goes away leaves what it wrote, or nothing when atomic."""
        big = archive(("f", REG, b"x" * 3_000_000))
        for option, there in (("", True), ("&atomic=1", False)):
            self.shell("a", "rm -f f")
            with self.root.connect() as s:
                s.sendall(f"PUT /v1/sandboxes/a/files?path=/home/agent{option} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(big)}\r\n"
                          "Content-Type: application/x-tar\r\n\r\n".encode() + big[:1_000_000])
            reply = self.send("/tmp", one("x"))  # behind it in the same sandbox
            self.assertEqual(reply.status, 200, reply)
            self.wait_for_size("f", there)
        reply = self.send("/home/agent", big[:1_000_000])
        self.assert_refused(reply, 400, "invalid", "'/home/agent/f' is incomplete (")

    def wait_for_size(self, name, there):
        want = "999488\n" if there else "none\n"
        wait_until(lambda: self.shell("a", f"stat -c %s {name} 2>/dev/null || echo none") == want and
                   self.shell("a", "ls -A | grep -c tmp || true") == "0\n", 20, f"the end of the copy: {want}")

    def test_by_the_command_line(self):
        (self.here / "f").write_text("new")
        (self.here / "f").chmod(0o644)
        self.shell("a", "echo old > real; ln -s real f; echo ro > ro; chmod 444 ro")
        self.copied("f", "a:f")
        self.assertEqual(self.shell("a", "cat real; readlink f"), "newreal\n")
        r = self.cp("f", "a:ro")
        self.assertEqual(r.code, 5, r)
        self.assertIn("'/home/agent/ro': Permission denied", r.err.decode())
        self.copied("--atomic", "--mode", "600", "f", "a:ro")
        self.copied("-p", "f", "a:x/y/z")
        self.assertEqual(self.shell("a", "stat -c %a ro x/y/z"), "600\n644\n")
        for args, word in ((("--mode", "8", "f", "a:q"), "--mode"), (("--user", "B!", "f", "a:q"), "--user"),
                           (("--atomic", "a:f", "q"), "--atomic"), (("--owner", "?", "f", "a:q"), "--owner")):
            r = self.cp(*args)
            self.assertEqual(r.code, 2, r)
            self.assertIn(word, r.err.decode())
        r = self.cp("f", "a:nix/")
        self.assertEqual(r.code, 3, r)
        self.assertIn("--parents", r.err.decode())
