"""Files into and out of sandboxes: exact both ways, as `cp -r` names them, and harmless whatever is inside."""
import hashlib
import io
import os
import stat
import subprocess
import tarfile
import tempfile
import time
from pathlib import Path

from ripcord_test import Config, TestCase, full_run_only, parse_reply, read_all, wait_until

TAR = {"Content-Type": "application/x-tar"}
NATIVE = Config.engine == "native"
USR_REFUSES = "Read-only" if NATIVE else "denied"
RACES = 200 if NATIVE else 20  # a copy is a program started by the engine elsewhere: a tenth of the speed


def listing(top):
    """Every path below with kind, mode, content hash or target: two trees are equal when these are."""
    found = {}
    for path in sorted([Path(top), *Path(top).rglob("*")]):
        name, st = str(path.relative_to(top)), path.lstat()
        if path.is_symlink():
            found[name] = ("link", os.readlink(path))
        elif path.is_dir():
            found[name] = ("dir", stat.S_IMODE(st.st_mode), int(st.st_mtime))
        else:
            found[name] = ("file", stat.S_IMODE(st.st_mode), int(st.st_mtime), digest(path))
    return found


def digest(path):
    h = hashlib.sha256()
    with open(path, "rb") as f:
        while piece := f.read(1 << 20):
            h.update(piece)
    return h.hexdigest()


def archive(*entries):
    """A tar of (name, type, data or target)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, kind, data in entries:
            info = tarfile.TarInfo(name)
            info.type = kind
            info.mode = 0o755 if kind == tarfile.DIRTYPE else 0o644
            if kind == tarfile.REGTYPE:
                info.size = len(data)
            elif data:
                info.linkname = data
            tar.addfile(info, io.BytesIO(data) if kind == tarfile.REGTYPE else None)
    return out.getvalue()


def count(sock):
    """Bytes until the end of the connection."""
    total = 0
    while True:
        try:
            piece = sock.recv(1 << 20)
        except ConnectionResetError:
            return total
        if not piece:
            return total
        total += len(piece)


class FilesCase(TestCase):
    def setUp(self):
        super().setUp()
        self.work = tempfile.TemporaryDirectory(prefix="ripcord-cp-")
        self.here = Path(self.work.name)
        self.root.ok("up", "a")

    def tearDown(self):
        super().tearDown()
        subprocess.run(["chmod", "-R", "u+rwx", self.work.name], check=False)
        self.work.cleanup()

    def cp(self, *args, **kwargs):
        return self.root.run("cp", *args, cwd=self.here, **kwargs)

    def copied(self, *args, **kwargs):
        r = self.root.run("--json", "cp", *args, cwd=self.here, **kwargs)
        self.assertEqual(r.code, 0, r)
        return r.json()

    def put(self, path, data, headers=None):
        return self.root.http("PUT", f"/v1/sandboxes/a/files?path={path}", data, headers or TAR)


class Exact(FilesCase):
    def tree(self):
        top = self.here / "tree"
        (top / "sub" / "deeper").mkdir(parents=True)
        (top / "empty").mkdir()
        (top / "binary").write_bytes(bytes(range(256)) * 1001)
        (top / "zero").write_bytes(b"")
        (top / "sub" / "script").write_text("#!/bin/sh\n")
        (top / "sub" / "script").chmod(0o751)
        (top / "sub" / ("n" * 255)).write_text("long name")
        (top / "sub" / "ünï \n cödé").write_text("odd name")
        deep = top
        for _ in range(30):
            deep = deep / "a-longer-folder-name"
        deep.mkdir(parents=True)
        (deep / "end").write_text("deep")
        (top / "link").symlink_to("sub/script")
        (top / "dangling").symlink_to("/no/such/place")
        (top / "dirlink").symlink_to("sub")
        (top / "locked").mkdir()
        (top / "locked" / "f").write_text("1")
        (top / "locked").chmod(0o500)
        (top / "secret").write_text("s")
        (top / "secret").chmod(0o600)
        os.utime(top / "zero", (1_000_000_000, 1_000_000_000))
        os.utime(top / "empty", (1_100_000_000, 1_100_000_000))
        return top

    def test_a_tree_there_and_back(self):
        top = self.tree()
        sent = self.copied("tree", "a:")
        back = self.copied("a:tree", "back")
        self.assertEqual(sent, back)
        self.assertEqual(listing(top), listing(self.here / "back"))
        self.assertEqual(self.shell("a", "stat -c %U tree/secret tree/locked"), "agent\nagent\n")

    def test_between_sandboxes(self):
        top = self.tree()
        self.root.ok("up", "b")
        self.copied("tree", "a:")
        self.copied("a:tree", "b:/tmp/there")
        self.copied("b:/tmp/there", "back")
        self.assertEqual(listing(top), listing(self.here / "back"))

    def test_tar_on_stdin_and_stdout(self):
        top = self.tree()
        out = subprocess.run(["tar", "c", "-C", self.here, "tree"], check=True, stdout=subprocess.PIPE).stdout
        self.assertGreater(self.copied("-", "a:", stdin=out)["entries"], 30)
        back = self.cp("a:tree", "-")
        self.assertEqual(back.code, 0, back)
        (self.here / "x").mkdir()
        subprocess.run(["tar", "xp", "-C", self.here / "x"], input=back.out, check=True)
        self.assertEqual(listing(top), listing(self.here / "x" / "tree"))

    def test_set_user_id_is_dropped(self):
        (self.here / "f").write_text("x")
        (self.here / "f").chmod(0o6755)
        self.copied("f", "a:")
        self.assertEqual(self.shell("a", "stat -c %a f").strip(), "755")

    @full_run_only
    def test_two_hundred_megabytes(self):
        big = self.here / "big"
        with open(big, "wb") as f:
            for i in range(200):
                f.write(hashlib.sha256(str(i).encode()).digest() * 32768)
        self.assertEqual(self.copied("big", "a:")["bytes"], 200 << 20)
        self.assertEqual(self.shell("a", "sha256sum < big").split()[0], digest(big))
        self.copied("a:big", "back")
        self.assertEqual(digest(big), digest(self.here / "back"))

    def test_five_thousand_small_files(self):
        top = self.here / "many"
        for i in range(50):
            (top / str(i)).mkdir(parents=True)
            for j in range(100):
                (top / str(i) / str(j)).write_text(f"{i} {j}")
        self.assertEqual(self.copied("many", "a:")["entries"], 5051)
        self.copied("a:many", "back")
        self.assertEqual(listing(top), listing(self.here / "back"))

    def test_files_of_proc_are_not_empty(self):
        self.copied("a:/proc/uptime", "s")
        self.assertRegex((self.here / "s").read_text(), r"^\d+\.\d+ ")


class Names(FilesCase):
    """As cp -r."""

    def test_into_a_folder_or_under_a_new_name(self):
        (self.here / "f").write_text("1")
        self.copied("f", "a:")
        self.copied("f", "a:renamed")
        self.copied("f", "a:/tmp/")
        self.copied("f", "a:/tmp/g")
        self.assertEqual(self.shell("a", "cat f renamed /tmp/f /tmp/g"), "1111")
        (self.here / "d").mkdir()
        self.copied("a:f", "d")
        self.copied("a:f", "d/h")
        self.copied("a:f", ".")
        self.assertEqual(sorted(p.name for p in (self.here / "d").iterdir()), ["f", "h"])

    def test_folders(self):
        (self.here / "d" / "e").mkdir(parents=True)
        (self.here / "d" / "e" / "f").write_text("1")
        self.copied("d", "a:new")
        self.copied("d", "a:new")
        self.copied("d/.", "a:dot")
        self.assertEqual(self.shell("a", "cat new/e/f new/d/e/f dot/e/f"), "111")

    def test_an_existing_file_is_replaced(self):
        self.shell("a", "echo old > f; ln -s f l")
        (self.here / "f").write_text("new")
        self.copied("f", "a:f")
        self.assertEqual(self.shell("a", "cat f"), "new")

    def test_refusals_name_the_reason(self):
        (self.here / "f").write_text("1")
        for args, code, word in [
                (("f", "a:no/such/g"), 3, "no/such"), (("f", "a:nix/"), 3, "nix"), (("a:nix", "."), 3, "nix"),
                (("nix", "a:"), 3, "nix"), (("f", "a:/usr/f"), 5, USR_REFUSES), (("f", "a:/root/f"), 5, "denied"),
                (("a:/root", "x"), 5, "denied"), (("f", "b:"), 3, "'b'"), (("f", "g"), 2, "sandbox"),
                (("f", "Bad_Name:x"), 2, "Bad_Name"), (("a:/etc/passwd", "no/such/x"), 3, "no/such")]:
            r = self.cp(*args)
            self.assertEqual(r.code, code, r)
            self.assertIn(word, r.err.decode(), args)
        self.assertEqual(self.shell("a", "ls; ls -A | grep tmp || true"), "")

    def test_as_the_user_and_not_as_root(self):
        self.shell("a", "mkdir d; echo x > d/f; chmod 0 d/f")
        r = self.cp("a:d/f", "x")
        self.assertEqual(r.code, 5, r)
        r = self.cp("a:d", "y")
        self.assertEqual(r.code, 5, r)  # small enough to fail before the first byte
        self.assertIn(b"d/f", r.err)

    def test_a_failure_in_the_middle_is_seen(self):
        self.shell("a", "mkdir d; head -c 3000000 /dev/urandom > d/a; echo x > d/b; chmod 0 d/b")
        for i in range(20):  # whatever the order of the folder
            self.shell("a", f"echo {i} > d/z{i}")
        r = self.cp("a:d", "back")
        self.assertNotEqual(r.code, 0, r)
        reply = parse_reply(self.root.raw(b"GET /v1/sandboxes/a/files?path=/home/agent/d HTTP/1.1\r\nHost: x\r\n"
                                          b"Connection: close\r\n\r\n")[:300].split(b"\r\n\r\n")[0] + b"\r\n\r\n")
        self.assertIn(reply.status, (200, 403))

    def test_sockets_and_pipes_are_skipped_and_counted(self):
        self.shell("a", "mkdir d; mkfifo d/p; echo x > d/f")
        self.assertEqual(self.copied("a:d", "back"), {"entries": 2, "bytes": 2, "skipped": 1})
        r = self.cp("a:d", "again")
        self.assertIn(b"skipped 1 sockets, pipes or devices", r.err)

    def test_a_stopped_sandbox_is_started(self):
        (self.here / "f").write_text("1")
        self.copied("f", "a:")
        self.root.ok("stop", "a")
        self.copied("a:f", "g")
        self.assertEqual((self.here / "g").read_text(), "1")
        self.assertEqual(self.root.sandbox("a")["state"], "running")

    def test_a_paused_sandbox_says_so(self):
        if self.root.run("pause", "a").code == 7:
            self.skipTest("this machine cannot pause")
        r = self.cp("a:", "x")
        self.assertEqual(r.code, 4, r)
        self.assertIn(b"resume", r.err)
        self.root.ok("resume", "a")

    def test_parallel_copies_into_one_folder(self):
        names = [f"f{i}" for i in range(12)]
        for n in names:
            (self.here / n).write_bytes(n.encode() * 100_000)
        running = [self.root.popen("cp", n, "a:", cwd=self.here) for n in names]
        for p in running:
            self.assertEqual(p.wait(60), 0, p.stderr.read())
            p.stdout.close()
            p.stderr.close()
        self.assertEqual(self.shell("a", "ls; ls -A | grep tmp || true").split(), sorted(names))
        for n in names:
            self.assertEqual(self.shell("a", f"sha256sum < {n}").split()[0], digest(self.here / n))


class Hostile(FilesCase):
    def test_archives(self):
        """Refused or confined: nothing is written through a link of the archive, nothing outside."""
        reg, sym, lnk = tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE
        self.shell("a", "mkdir in out; echo safe > out/f")
        for data in (archive(("../out/f", reg, b"bad")), archive(("x/../../out/f", reg, b"bad")),
                     archive(("l", sym, "../out"), ("l/f", reg, b"bad")),
                     archive(("l", sym, "/home/agent/out"), ("l/f", reg, b"bad")),
                     archive(("h", lnk, "../out/f")), archive(("h", lnk, "/home/agent/out/f")),
                     archive(("f", reg, b"x" * 5000))[:3000], b"garbage" * 1000, b"", b"\0" * 100,
                     archive(("f", reg, b"x"))[:1024]):
            reply = self.put("/home/agent/in", data)
            self.assertIn(reply.status, (400, 403), reply)
            self.assertEqual(self.shell("a", "cat out/f; ls out"), "safe\nf\n")
        reply = self.put("/home/agent/in", archive(("/abs/f", reg, b"below")))
        self.assertEqual(reply.status, 200, reply)
        reply = self.put("/home/agent/in", archive(("c", tarfile.CHRTYPE, None), ("p", tarfile.FIFOTYPE, None)))
        self.assertEqual(reply.json(), {"entries": 0, "bytes": 0, "skipped": 2})
        self.assertEqual(self.shell("a", "cat in/abs/f; ls -A in | grep -c tmp || true"), "below0\n")

    def test_a_hostile_sandbox_cannot_write_outside_the_destination(self):
        """The daemon passes on what the sandbox's tree is; the CLI writes below DST whatever that says."""
        self.shell("a", "mkdir d; ln -s /etc d/etc; ln -s ../../.. d/up; echo x > d/f")
        self.copied("a:d", "back")
        self.assertEqual(os.readlink(self.here / "back" / "etc"), "/etc")
        before = listing(self.here)
        # A second copy over links of the first: they are not followed.
        self.shell("a", "rm d/etc; mkdir d/etc; echo y > d/etc/planted")
        r = self.cp("a:d/.", "back")
        self.assertEqual(r.code, 5, r)
        self.assertFalse(Path("/etc/planted").exists())
        self.assertEqual(before, {**listing(self.here), **{k: before[k] for k in ("back", ".") if k in before}})

    def test_a_link_in_the_place_of_the_destination_is_not_followed(self):
        """First the path inside is a link, which the copy puts beside the user; next time it is a file."""
        victim = self.here / "victim"
        victim.mkdir()
        (victim / "file").write_text("kept")
        (self.here / "out").mkdir()
        self.shell("a", f"ln -s {victim} x; ln -s {victim}/file y; ln -s {victim}/new z")
        for name in "xyz":
            self.copied(f"a:{name}", "out")
            self.assertTrue((self.here / "out" / name).is_symlink())
        self.shell("a", "for f in x y z; do rm $f; echo planted > $f; done")
        for to in ("out/x", "out/x/", "out/x//"):
            r = self.assert_exit(self.cp("a:x", to), 4)
            self.assertIn("'out/x' is a link to a folder\nhint: Write 'out/x/.' to copy into that folder.", r.err.decode())
        for name in "yz":
            self.copied(f"a:{name}", f"out/{name}")
            self.assertEqual((self.here / "out" / name).read_text(), "planted\n")
        self.copied("a:x", "out")
        self.assertFalse((self.here / "out" / "x").is_symlink())
        self.assertEqual([(p.name, p.read_text()) for p in victim.iterdir()], [("file", "kept")])
        (self.here / "mine").symlink_to(victim)
        self.copied("a:x", "mine/.")
        self.assertEqual((victim / "x").read_text(), "planted\n")

    @full_run_only
    def test_a_swapped_folder_leads_nowhere(self):
        """d is a folder now and a link to / then, while files are written to d/x."""
        self.root.ok("exec", "--detach", "a", "--", "python3", "-c",
                     "import os\nos.chdir('/home/agent'); os.mkdir('d'); os.symlink('/', 'l')\n"
                     "import ctypes; r = ctypes.CDLL(None).renameat2\n"
                     "while True: r(-100, b'd', -100, b'l', 2)\n")
        wait_until(lambda: "d" in self.shell("a", "ls").split(), 10, "the swapping to begin")
        canary = Path("/tmp") / f"ripcord-canary-{os.getpid()}"
        canary.write_text("host")
        data = archive(("x", tarfile.REGTYPE, b"written"), (canary.name, tarfile.REGTYPE, b"bad"))
        try:
            seen = set()
            for i in range(RACES):
                reply = self.put("/home/agent/d", data)
                seen.add(reply.status)
                self.assertIn(reply.status, (200, 403, 404, 409), reply)
                reply = self.put("/home/agent/d/tmp", data)  # through the link: the sandbox's own /tmp
                self.assertIn(reply.status, (200, 403, 404, 409), reply)
                if i % 10 == 0:
                    r = self.cp(f"a:d/tmp/{canary.name}", "read")
                    if r.code == 0:
                        self.assertEqual((self.here / "read").read_bytes(), b"bad")
            self.assertIn(200, seen)
            self.assertEqual(canary.read_text(), "host")
            self.assertFalse(Path("/x").exists())
            self.assertEqual(self.shell("a", "ls /x 2>/dev/null || echo none"), "none\n")
        finally:
            canary.unlink()

    def test_no_program_of_the_sandbox_is_run(self):
        self.shell("a", "mkdir bin; for t in tar gzip xz zstd unpigz sh cp; do "
                        "printf '#!/bin/sh\\ntouch /home/agent/pwned\\n' > bin/$t; chmod 755 bin/$t; done")
        self.root.ok("up", "b", "--env", "PATH=/home/agent/bin")
        (self.here / "f.tar.gz").write_bytes(b"\x1f\x8b" + os.urandom(100))
        self.copied("a:bin", "b:bin")
        self.copied("f.tar.gz", "b:")
        self.copied("b:bin", "back")
        r = self.root.run("cp", "-", "b:", stdin=(self.here / "f.tar.gz").read_bytes(), cwd=self.here)
        self.assertEqual(r.code, 2, r)
        self.assertNotIn("pwned", self.root.ok("exec", "b", "--", "/bin/ls").text)

    def test_the_helper_cannot_be_seen_inside(self):
        (self.here / "f").write_bytes(os.urandom(8 << 20))
        watch = self.root.popen("exec", "a", "--", "sh", "-c", "for i in $(seq 300); do ls /proc; sleep 0.01; done")
        for _ in range(5):
            self.copied("f", "a:")
            self.copied("a:f", "g")
        out, _ = watch.communicate(timeout=60)
        pids = {int(w) for w in out.split() if w.isdigit()}
        self.assertLess(len(pids), 700)  # sh, ls and sleep of each round, and pid 1


class Wire(FilesCase):
    def test_bad_requests(self):
        for target, status, word in [("/v1/sandboxes/a/files", 400, "path"),
                                     ("/v1/sandboxes/a/files?path=rel", 400, "absolute"),
                                     ("/v1/sandboxes/a/files?path=/" + "x" * 4200, 400, "4095"),
                                     ("/v1/sandboxes/nix/files?path=/", 404, "nix")]:
            self.assert_refused(self.root.http("GET", target), status, {400: "invalid", 404: "not_found"}[status], word)
            self.assert_refused(self.root.http("PUT", target, b"", TAR), status,
                                {400: "invalid", 404: "not_found"}[status], word)
        self.assert_refused(self.put("/tmp", b"{}", {"Content-Type": "multipart/form-data; boundary=x"}), 415, "invalid", "x-tar")

    def test_a_refusal_comes_before_the_end_of_the_body(self):
        with self.root.connect(20) as s:
            s.sendall(b"PUT /v1/sandboxes/a/files?path=/no/such HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
                      b"Content-Type: application/x-tar\r\n\r\n")
            self.assertEqual(parse_reply(read_all(s)).status, 404)

    def test_clients_that_go_away(self):
        self.shell("a", "head -c 50000000 /dev/zero > big")
        self.copied("a:big", "warm")
        before = self.root.snapshot()["daemon descriptors"]
        for _ in range(5):
            with self.root.connect() as s:
                s.sendall(b"GET /v1/sandboxes/a/files?path=/home/agent/big HTTP/1.1\r\nHost: x\r\n\r\n")
                s.recv(1000)
            with self.root.connect() as s:
                s.sendall(b"PUT /v1/sandboxes/a/files?path=/tmp HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n"
                          b"Content-Type: application/x-tar\r\n\r\n" + archive(("f", tarfile.REGTYPE, b"x"))[:700])
        wait_until(lambda: self.root.snapshot()["daemon descriptors"] == before, 10, "pipes and sockets to be closed")
        self.assertEqual(self.shell("a", "ls -A /tmp").split(), ["f"])  # written through: test_a_part_stays_a_part

    def test_a_slow_reader_and_a_slow_writer_hold_no_memory(self):
        self.shell("a", "head -c 100000000 /dev/zero > big")
        pid = self.root.daemon_pid()

        def rss():
            return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096

        before = rss()
        with self.root.connect() as s:
            s.sendall(b"GET /v1/sandboxes/a/files?path=/home/agent/big HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            time.sleep(0.5)
            self.assertLess(rss() - before, 8 << 20)
            self.assertGreater(count(s), 100_000_000)

    def test_stop_and_remove_while_copying(self):
        self.shell("a", "head -c 100000000 /dev/zero > big")
        for end in ("stop", "rm"):
            with self.root.connect() as s:
                s.sendall(b"GET /v1/sandboxes/a/files?path=/home/agent/big HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                s.recv(1000)
                self.root.ok(*(("rm", "-f", "a") if end == "rm" else ("stop", "a")))
                self.assertLess(count(s), 100_000_000)
