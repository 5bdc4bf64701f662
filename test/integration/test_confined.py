"""Isolation `confined`: sandboxes without namespaces do what other sandboxes do, say what they are, and refuse the rest. As root,
where each has a user of its own, and as an ordinary user. Attacks: test_confined_hostile.py."""
import json
import os
import shutil
import signal
import socket
import tempfile
import time
from pathlib import Path

from ripcord_test import Root, TestCase, only_on, processes_with, wait_until
from test_rootless import UID, UserRoot

SERVER = ("import http.server, os\n"
          "s = http.server.HTTPServer(('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler)\n"
          "open('port', 'w').write(str(s.server_port))\ns.serve_forever()")


class Confined(TestCase):
    """The subclasses say with which user."""

    def setUp(self):
        super().setUp()
        self.prepare()
        if "isolation_confined" not in self.root.start().get("/v1/engines")["engines"][0]["capabilities"]:
            self.skipTest("Landlock of this kernel has no scopes")

    def prepare(self):
        pass

    def up(self, name="a", *options):
        return self.root.ok("up", name, "--isolation", "confined", *options)

    def refused(self, *args, code=7, words=()):
        result = self.assert_exit(self.root.run(*args), code)
        for word in (*words, "hint:"):
            self.assertIn(word, result.err.decode())


class Common:
    """Mixed into each kind of user."""

    def test_streams_status_and_record(self):
        self.up()
        done = self.root.run("exec", "a", "-i", "--", "sh", "-c", "cat; echo err >&2; exit 7", stdin=b"in\0put\n")
        self.assertEqual((done.code, done.out, done.err), (7, b"in\0put\n", b"err\n"))
        end = self.root.exec_info("a")["end"]
        self.assertEqual((end["cause"], end["exit_code"], end["isolation"], end["memory_limit"]), ("exited", 7, "confined", 0))
        self.root.ok("exec", "a", "--", "sh", "-c", "head -c 3000000 /dev/zero")
        self.assertEqual(self.root.exec_info("a")["end"]["stdout_bytes"], 3000000)
        self.assert_exit(self.root.run("exec", "a", "--", "nosuchcommand"), 127)
        self.assert_exit(self.root.run("exec", "a", "--", "/etc"), 126)
        self.assertEqual(self.root.ok("exec", "a", "-t", "--", "sh", "-c", "tty >/dev/null && echo t > /dev/tty").text.strip(), "t")

    def test_causes(self):
        self.up()
        for options, script, cause in ((("--timeout", "300ms"), "sleep 100", "timeout"), (("--idle-timeout", "300ms"), "sleep 100", "idle_timeout"),
                                       ((), "kill -9 $$", "signaled")):
            self.assert_exit(self.root.run("exec", "a", *options, "--", "sh", "-c", script), 137)
            self.assertEqual(self.root.exec_info("a")["end"]["cause"], cause)
        self.root.ok("exec", "a", "--detach", "--", "sleep", "100")
        self.root.ok("kill", "a", "last")
        wait_until(lambda: self.root.exec_info("a")["end"], 10, "its end")
        self.assertIn(self.root.exec_info("a")["end"]["cause"], ("killed", "signaled"))

    def test_it_says_so(self):
        out = self.root.ok("run", "--isolation", "confined", "--json", "--", "true").text
        lines = [json.loads(line) for line in out.splitlines()]
        self.assertEqual([line["isolation"] for line in lines if line["type"] in ("started", "end")], ["confined", "confined"])
        self.up()
        box = self.root.sandbox("a")
        self.assertEqual((box["isolation"], box["spec"]["isolation"], box["spec"]["caches"]), ("confined", "confined", {"all": "private"}))
        self.assertEqual(set(box["unenforced"]) - {"disk_budget"}, {"memory", "cpus", "pids"})
        self.assertNotIn("tmpfs", box["spec"])
        self.assertRegex(self.root.ok("show", "a").text, r"Isolation +confined")
        self.assertRegex(self.root.ok("ls").text, r"a +running.* confined ")
        self.root.ok("exec", "a", "--", "true")
        events = [json.loads(line) for line in self.root.http("GET", "/v1/events?since=0").body.splitlines()]
        self.assertTrue(all(e["data"]["isolation"] == "confined" for e in events if e["kind"] in ("sandbox.running", "exec.ended")), events)

    def test_home_and_tmp(self):
        self.up()
        self.shell("a", "echo kept > f; echo gone > $TMPDIR/f; ls -A ~ | grep -q profile")
        self.root.ok("stop", "a")
        self.assertEqual(self.shell("a", "cat ~/f; ls -A $TMPDIR"), "kept\n")
        self.root.ok("up", "a", "--env", "X=1")  # another configuration
        self.assertEqual(self.shell("a", "cat f; echo $X"), "kept\n1\n")
        self.assertEqual(self.root.ok("exec", "a", "--workdir", "/home/agent/.config", "--", "sh", "-c", "basename $PWD").text, ".config\n")
        self.assertEqual(self.root.ok("exec", "a", "--workdir", ".config", "--", "sh", "-c", "basename $PWD").text, ".config\n")
        self.assertEqual(self.shell("a", "cd; echo ${PWD%/home} | grep -c confined; echo x 2>/dev/null > /tmp/ripcord-x || echo refused"), "1\nrefused\n")

    def test_copies(self):
        data = os.urandom(300000)
        there, back = self.root.path / "there", self.root.path / "back"
        there.write_bytes(data)
        there.chmod(0o644)
        self.up()
        self.root.ok("cp", there, "a:/home/agent/f")
        self.root.ok("cp", "a:/home/agent/f", back)
        self.assertEqual(back.read_bytes(), data)
        self.shell("a", "mkdir d && echo 1 > d/x && ln -s x d/l && chmod 700 d")
        self.root.ok("cp", "a:d", self.root.path / "tree")
        self.assertEqual((self.root.path / "tree" / "l").read_text(encoding="ascii"), "1\n")
        self.assert_exit(self.root.run("cp", there, "a:/usr/ripcord-x"), 5)
        self.assert_refused(self.root.http("GET", "/v1/sandboxes/a/files?path=/etc/shadow"), 403, "denied")
        self.assert_refused(self.root.http("GET", "/v1/sandboxes/a/files?path=/home/agent/f", headers={"Accept": "application/octet-stream"}), 501,
                            "unsupported", "'confined' has no file operations")
        self.assert_refused(self.root.http("PUT", "/v1/sandboxes/a/files?path=/home/agent/x&user=0", b"x", {"Content-Type": "application/x-tar"}),
                            501, "unsupported", "user")

    def test_ports(self):
        self.up()
        self.root.ok("exec", "a", "--detach", "--", "/usr/bin/python3", "-c", SERVER)
        wait_until(lambda: self.root.run("exec", "a", "--", "cat", "port").out, 20, "the server")
        port = int(self.shell("a", "cat port"))
        first, last = map(int, self.shell("a", "echo $RIPCORD_PORTS").strip().split("-"))
        self.assertTrue(first <= port <= last and last - first == 255, (first, port, last))
        self.assertIn("200 OK", self.shell("a", f"/usr/bin/python3 -c \"import http.client; c = http.client.HTTPConnection('127.0.0.1', {port}); "
                                           "c.request('GET', '/'); r = c.getresponse(); print(r.status, r.reason)\""))
        with self.root.popen("port", "a", port) as forward:
            address = forward.stdout.readline().split()[-1].decode().rpartition(":")
            with socket.create_connection((address[0], int(address[2]))) as s:
                s.sendall(b"GET / HTTP/1.0\r\n\r\n")
                self.assertIn(b"200 OK", s.recv(100))
            forward.terminate()
        proxied = self.root.http("GET", f"/v1/sandboxes/a/ports/{port}/", checked=False)
        self.assertEqual((proxied.status, proxied.headers["content-security-policy"]), (200, "sandbox"))
        self.assert_refused(self.root.http("GET", "/v1/sandboxes/a/ports"), 501, "unsupported", "RIPCORD_PORTS")
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        other = listener.getsockname()[1]
        self.assert_refused(self.root.http("GET", f"/v1/sandboxes/a/ports/{other}", headers={"Upgrade": "tcp", "Connection": "Upgrade"}),
                            501, "unsupported", "does not belong")
        self.assert_refused(self.root.http("GET", f"/v1/sandboxes/a/ports/{other}/x"), 501, "unsupported", "does not belong")
        self.refused("up", "b", "--isolation", "confined", "--ports", other, code=4, words=("in use",))

    def test_chosen_ports(self):
        with socket.create_server(("127.0.0.1", 0)) as s:
            port = s.getsockname()[1]
        self.up("a", "--ports", f"{port}")
        code = f"import socket\ns = socket.create_server(('127.0.0.1', {port}))\nc = socket.create_connection(('127.0.0.1', {port}))\nprint('ok')"
        self.assertEqual(self.root.ok("exec", "a", "--", "/usr/bin/python3", "-c", code).text, "ok\n")
        self.assertEqual(self.root.sandbox("a")["spec"]["ports"], [port])
        self.up("b")
        self.assertIn("PermissionError", self.root.run("exec", "b", "--", "/usr/bin/python3", "-c", code).err.decode())
        self.assertNotEqual(self.shell("a", "echo ${RIPCORD_PORTS%%,*}"), self.shell("b", "echo $RIPCORD_PORTS"))

    def test_modes_times_and_owners_of_own_files(self):
        """With the daemon's user the broker carries these out: each call, by name, folder and descriptor."""
        code = """
import os
os.mkdir('d'); os.chmod('d', 0o711)
for i, change in enumerate((lambda p: os.chmod(p, 0o640), lambda p: os.fchmod(os.open(p, os.O_RDONLY), 0o640),
                            lambda p: os.chmod(os.path.basename(p), 0o640, dir_fd=os.open('d', os.O_RDONLY)),
                            lambda p: os.chmod(f'/proc/self/fd/{os.open(p, os.O_PATH)}', 0o640), lambda p: os.chmod(os.path.abspath(p), 0o640))):
    path = f'd/m{i}'
    open(path, 'w').close()
    change(path)
    assert os.stat(path).st_mode & 0o7777 == 0o640, i
os.symlink('m0', 'd/l')
for i, change in enumerate((lambda p: os.utime(p, (5, 7)), lambda p: os.utime(os.open(p, os.O_RDONLY), (5, 7)),
                            lambda p: os.utime('m0', (5, 7), dir_fd=os.open('d', os.O_RDONLY)), lambda p: os.utime('d/l', ns=(5 * 10**9, 7 * 10**9)))):
    os.utime('d/m0')
    assert os.stat('d/m0').st_mtime > 1000
    change('d/m0')
    assert os.stat('d/m0').st_mtime == 7, i
os.utime('d/l', (9, 9), follow_symlinks=False)
assert (os.lstat('d/l').st_mtime, os.stat('d/m0').st_mtime) == (9, 7)
os.chown('d/m0', os.getuid(), -1); os.lchown('d/l', -1, os.getgid()); os.fchown(os.open('d/m0', os.O_RDWR), -1, -1)
for bad, error in ((lambda: os.chmod('none', 0o600), FileNotFoundError), (lambda: os.utime('none'), FileNotFoundError),
                   (lambda: os.chown('d/m0', 0, 0), PermissionError), (lambda: os.chmod('d/m0', 0o4755), PermissionError),
                   (lambda: os.chmod('x' * 5000, 0o600), OSError), (lambda: os.fchmod(999, 0o600), OSError), (lambda: os.chmod('', 0o600), FileNotFoundError)):
    try:
        bad()
    except error:
        continue
    raise SystemExit('no error')
print('ok')
"""
        self.up()
        self.assertEqual(self.root.ok("exec", "a", "--", "/usr/bin/python3", "-c", code).text, "ok\n")

    def test_tools(self):
        self.up()
        processors = ("node -e 'console.log(require(\"os\").cpus().length > 0)'" if shutil.which("node") else
                      "python3 -c 'import os; print(str(os.cpu_count() > 0).lower())'")
        script = ("echo 'int main(void){return 7;}' > a.c && gcc -o a a.c && { ./a; [ $? = 7 ]; } && tar cf t.tar a a.c && mkdir e && tar xf t.tar -C e && "
                  "git init -q g && cd g && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x && git log --oneline | wc -l && "
                  f"cat <(echo sub) && {processors} && nproc > /dev/null && free > /dev/null 2>&1; echo done")
        self.assertEqual(self.root.ok("exec", "a", "--", "bash", "-c", script).text, "1\nsub\ntrue\ndone\n")

    def test_it_outlives_the_daemon(self):
        self.up()
        exec_id = self.root.ok("exec", "a", "--detach", "--", "sh", "-c", "for i in 1 2 3; do echo $i; sleep 0.5; done; exit 5").text.strip()
        self.root.kill_daemon(signal.SIGKILL)
        self.root.start()
        self.assertEqual(self.root.sandbox("a")["state"], "running")
        wait_until(lambda: self.root.exec_info("a", exec_id)["end"], 20, "its end")
        end = self.root.exec_info("a", exec_id)["end"]
        self.assertEqual((end["exit_code"], end["isolation"]), (5, "confined"))
        self.assertEqual(self.root.ok("logs", "a", exec_id).text, "1\n2\n3\n")
        self.assertEqual(self.shell("a", "curl -sS ${NPM_CONFIG_REGISTRY}-/ping"), "{}")

    def crash(self, word, comms):
        """Kills the daemon, and then those processes of the sandbox with one of these names, in this order."""
        self.up()
        self.shell("a", f"setsid sleep {word} >/dev/null 2>&1 & sleep 0.1")
        self.root.kill_daemon(signal.SIGKILL)
        found = {pid: Path(f"/proc/{pid}/comm").read_text(encoding="ascii").strip() for pid in processes_with("ripcord-shim")
                 if self.root.owns(Path(f"/proc/{pid}"))}
        for comm in comms:
            pids = [pid for pid in found if found[pid] == comm]
            self.assertTrue(pids, (comm, found))
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
        self.root.start()
        self.root.ok("reconcile")
        wait_until(lambda: self.root.sandbox("a")["state"] == "stopped" and not processes_with(word), 20, "it to be stopped")
        self.assertEqual(self.shell("a", "echo again"), "again\n")

    def test_what_a_crash_leaves_is_swept(self):
        self.crash(f"{83000 + os.getpid() % 1000}.5", ["ripcord-shim"])

    def test_a_run_leaves_nothing(self):
        for _ in range(3):
            self.assertEqual(self.root.ok("run", "--isolation", "confined", "--", "sh", "-c", "setsid sleep 100 & echo hi").text, "hi\n")
        left = self.root.wait_clean()
        self.assertEqual(left, {})
        wait_until(lambda: not list((self.root.path / "state" / "sandboxes").iterdir()), 10, "the folders to go")

    def test_sessions(self):
        self.up()
        payload = self.root.path / "payload"
        payload.write_text('{"ask":1}\n', encoding="ascii")
        out = self.root.ok("session", "a", "--payload", payload, "--", "sh", "-c", "cat; echo plain").text
        lines = [json.loads(line) for line in out.splitlines()]
        self.assertEqual(lines[0].get("ask"), 1, lines)
        self.assertEqual((lines[-1]["type"], lines[-1]["isolation"]), ("exit", "confined"))

    def test_refusals(self):
        for options, words in ((("--memory", "1G"), "memory limit"), (("--cpus", "1"), "cpus limit"), (("--pids", "10"), "pids limit"),
                               (("--disk", "1G"), "disk limit"), (("--network", "open"), "network 'open'"), (("--image", "other"), "images"),
                               (("--user", "0"), "other users"), (("--mount", "/srv:/other"), "another name"), (("--tmpfs", "tmp=1M"), "tmpfs"),
                               (("--cache", "pip=shared"), "'pip' in mode 'shared'"), (("--cache", "apt=private"), "cache of apt"),
                               (("--mount", "/srv:/srv:no_root_squash"), "no_root_squash")):
            self.refused("up", "a", "--isolation", "confined", *options, words=(words,))
        self.refused("run", "--ports", "3000", "--", "true", code=125, words=("needs isolation 'confined'",))
        self.assertEqual(self.root.sandboxes(), [])
        self.up()
        self.refused("pause", "a", words=("cannot pause",))
        self.refused("exec", "a", "--user", "0", "--", "true", code=125, words=("user '0'",))
        self.refused("up", "a", "--isolation", "shared", code=4, words=("only be left out at creation",))
        self.root.ok("up", "b")
        self.refused("up", "b", "--isolation", "confined", code=4, words=("only be chosen at creation",))

    def test_mounts_keep_their_path(self):
        folder = Path(tempfile.mkdtemp(prefix="ripcord-mount-", dir="/tmp"))
        self.addCleanup(shutil.rmtree, folder)
        (folder / "f").write_text("seen\n", encoding="ascii")
        folder.chmod(0o777)
        (folder / "f").chmod(0o644)
        self.up("a", "--mount", f"{folder}:{folder}:ro")
        self.assertEqual(self.shell("a", f"cat {folder}/f; touch {folder}/x 2>/dev/null || echo refused"), "seen\nrefused\n")
        self.up("b", "--mount", f"{folder}:{folder}")
        self.shell("b", f"echo made > {folder}/x; chmod 600 {folder}/x")
        self.assertEqual((folder / "x").stat().st_mode & 0o7777, 0o600)
        self.refused("up", "c", "--isolation", "confined", "--mount", "/etc:/etc", code=5)


@only_on("native")
class TestConfinedAsRoot(Common, Confined):
    def prepare(self):
        if os.geteuid() != 0:
            self.skipTest("needs root")

    def test_what_the_death_of_all_our_processes_leaves_is_swept(self):
        """The reapers first, so that no process of ours is left to kill the command."""
        self.crash(f"{84000 + os.getpid() % 1000}.5", ["ripcord-reaper", "ripcord-shim", "ripcord-broker"])

    def test_users_of_their_own(self):
        self.up("a")
        self.up("b")
        uids = {int(self.shell(name, "id -u")) for name in ("a", "b")}
        self.assertTrue(len(uids) == 2 and min(uids) >= 0x70000000, uids)
        self.root.ok("stop", "a")
        self.assertIn(int(self.shell("a", "id -u")), uids)
        self.assertNotIn(int(self.shell("b", "stat -c %u .")), (0, int(self.shell("a", "id -u"))))
        for folder in (self.root.path / "state").iterdir():
            if folder.name != "sandboxes":
                self.assertEqual(folder.stat().st_mode & 0o077, 0, folder)
        self.assertEqual((self.root.path / "state").stat().st_mode & 0o777, 0o710)

    def test_shared_memory_and_terminals_of_its_own(self):
        self.up()
        code = ("import multiprocessing, os, pty\nl = multiprocessing.Lock()\nwith multiprocessing.Pool(2) as p: print(p.map(abs, [-1, -2]))\n"
                "pty.openpty()\nopen('/dev/shm/ripcord-left', 'w').close()\nprint('ok')")
        self.assertEqual(self.root.ok("exec", "a", "--", "/usr/bin/python3", "-c", code).text, "[1, 2]\nok\n")
        self.assertTrue(Path("/dev/shm/ripcord-left").exists())
        self.root.ok("rm", "-f", "a")
        self.assertFalse(Path("/dev/shm/ripcord-left").exists())

    def test_a_state_folder_that_keeps_others_out(self):
        top = Path(tempfile.mkdtemp(prefix="ripcord-closed-"))
        self.addCleanup(shutil.rmtree, top, True)
        root = Root(top / "in")
        (top / "in").mkdir()
        top.chmod(0o700)
        self.extra_roots.append(root)
        done = root.run("up", "a", "--isolation", "confined")
        self.assertEqual(done.code, 7, done)
        self.assertIn("keeps the users of confined sandboxes out", done.err.decode())
        self.assertEqual(top.stat().st_mode & 0o777, 0o700)


@only_on("native")
class TestConfinedAsUser(Common, Confined):
    def prepare(self):
        if os.geteuid() == 0:
            self.extra_roots.append(self.root)
            self.root = UserRoot(UID, UID)

    def test_the_users_own_id(self):
        self.up()
        self.assertEqual(int(self.shell("a", "id -u")), self.root.uid)
        before = time.time()
        self.shell("a", "for i in $(seq 200); do : > f$i; chmod 640 f$i; done")
        self.assertLess(time.time() - before, 30)


del TestCase, Confined, Common  # the runner would find them here, too
