"""The same commands without root: as an ordinary user with one id, with subordinate ids, under `unshare -r`.

The tests run as root (as on CI) and drop to a user of their own for every command. Run by an ordinary user, they use
that user.
"""
import atexit
import ctypes
import json
import os
import platform
import pty
import pwd
import shutil
import subprocess
import tempfile
import threading
import unittest
from pathlib import Path

import image_registries
import packages_fixture
import test_builder
import test_builder_ssh
import test_image_export
import test_images
from ripcord_test import Config, Root, TestCase, alive, copy_program, full_run_only, needs, smoke, wait_until
from test_system_calls import on_x86_64
from test_mounts import PROBE

UID = 61234  # an unused id: no name, no subordinate ids
PROGRAMS = ("ripcord", "ripcordd", "ripcord-shim", "ripcord-image", "ripcord-build", "ripcord-transfer", "ripcord-packages")
NEWUIDMAP = Path("/usr/bin/newuidmap")
SYS_SETRESUID = {"x86_64": 117}.get(platform.machine(), 147)
LOCK = threading.Lock()


class Programs:
    """A copy of the programs that every user can reach."""
    folder = None

    @classmethod
    def path(cls):
        with LOCK:
            if cls.folder is None:
                cls.folder = tempfile.TemporaryDirectory(prefix="ripcord-bin-")
                os.chmod(cls.folder.name, 0o755)
                for name in PROGRAMS:
                    copy_program(find_program(name), cls.folder.name)
            return Path(cls.folder.name)


class SubUser:
    """A user whom useradd gives a range of subordinate ids; goes when the tests have ended."""
    made = None

    @classmethod
    def entry(cls):
        with LOCK:
            if cls.made is None:
                name = f"ripcord-{os.getpid()}"
                subprocess.run(["useradd", "--no-create-home", "--shell", "/bin/false", name], check=True)
                atexit.register(subprocess.run, ["userdel", name], check=False)
                cls.made = pwd.getpwnam(name)
            return cls.made


def become(uid):
    """The effective uid of this thread alone, as the kernel has it: -1, uid, -1."""
    if ctypes.CDLL(None, use_errno=True).syscall(SYS_SETRESUID, -1, uid, -1) < 0:
        raise OSError(ctypes.get_errno(), f"become user {uid}")


def on_terminal(argv, env):
    """What a command prints when its stderr is a terminal."""
    main, tty = pty.openpty()
    with subprocess.Popen(argv, env=env, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=tty) as p:
        p.wait(60)
    os.close(tty)
    seen = b""
    try:
        while piece := os.read(main, 4096):
            seen += piece
    except OSError:
        pass  # the end of a terminal is an error
    os.close(main)
    return seen.decode()


def find_program(name):
    """Beside `ripcord`, where the build puts them; links are followed."""
    return (Config.bin / name).resolve()


def may_make_namespaces():
    probe = ["unshare", "-r", "true"]
    if os.geteuid() == 0:
        probe = ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups", *probe]
    return subprocess.run(probe, check=False, stderr=subprocess.DEVNULL).returncode == 0


class UserRoot(Root):
    """A root that belongs to another user; its commands run as that user."""

    def __init__(self, uid, gid, prefix=(), folder=None):
        super().__init__(folder=folder)
        self.prefix, self.uid = list(prefix), uid
        if os.geteuid() == 0:
            os.chown(self.path, uid, gid)
            self.prefix = ["setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups", *self.prefix]

    def argv(self, *args):
        return [*self.prefix, str(Programs.path() / "ripcord"), *map(str, args)]

    def connect(self, timeout=60):
        """As that user: a daemon inside a user namespace sees the host's root as `nobody`."""
        if os.geteuid() != 0:
            return super().connect(timeout)
        become(self.uid)
        try:
            return super().connect(timeout)
        finally:
            become(0)

    def popen(self, *args, **kwargs):
        return super().popen(*args, **{"cwd": "/", **kwargs})

    def kept_files(self):
        """What is left of sandboxes on disk."""
        folders = ("state/sandboxes", "state/execs", "state/trash", "run/sandboxes")
        return [str(p) for f in folders if (self.path / f).is_dir() for p in (self.path / f).iterdir()]


class Rootless(TestCase):
    """What holds for every kind of user; the subclasses say which."""
    uid = gid = UID
    prefix = ()

    def setUp(self):
        if not may_make_namespaces():
            self.skipTest("ordinary users may not make user namespaces here")
        uid, gid = (self.uid, self.gid) if os.geteuid() == 0 else (os.getuid(), os.getgid())
        self.root = UserRoot(uid, gid, self.prefix)
        self.extra_roots = []

    def assert_gone(self):
        wait_until(lambda: not self.root.kept_files(), 10, f"files to go: {self.root.kept_files()}")

    def refused(self, *args, code=7, words=()):
        result = self.assert_exit(self.root.run(*args), code)
        for word in (*words, "hint:"):
            self.assertIn(word, result.err.decode())


class Common:
    """Mixed into each kind of user."""

    @on_x86_64
    def test_no_set_id_file_in_a_mount(self):
        """A file there belongs to the user, so only the system call filter keeps the bits from it."""
        folder = self.root.path / "shared"
        folder.mkdir()
        os.chown(folder, self.root.uid, -1)
        self.root.configure(f"mounts.roots: [{folder}]\n")
        said = self.root.ok("run", "--mount", f"{folder}:/vol", "--", "/usr/bin/python3", "-c", PROBE, "/vol").text
        self.assertEqual({line.partition("=")[2] for line in said.splitlines()} - {"EPERM", "ENOSYS"}, set(), said)
        made = list(folder.rglob("*"))
        self.assertEqual([p.name for p in made if p.lstat().st_mode & 0o6000 or "security.capability" in os.listxattr(p)], [])
        self.assertEqual({p.lstat().st_uid for p in made}, {folder.stat().st_uid})

    @smoke
    def test_run(self):
        self.assertEqual(self.root.ok("run", "--", "id", "-u").text, "1000\n")
        self.assert_exit(self.root.run("run", "--", "sh", "-c", "exit 7"), 7)
        self.assertEqual(self.root.ok("run", "-i", "--", "cat", stdin=b"a\0b").out, b"a\0b")
        self.assert_gone()

    def test_life(self):
        self.root.ok("up", "a")
        self.shell("a", "echo kept > f; echo here > /etc/mine")
        self.root.ok("stop", "a")
        self.assertEqual(self.shell("a", "cat f /etc/mine"), "kept\nhere\n")
        self.assertIn("kept", self.root.ok("logs", "a").text)
        self.root.ok("rm", "-f", "a")
        self.assert_gone()

    def test_secrets(self):
        script = "cat $RIPCORD_SECRETS/KEY; stat -c ' %a %u' $RIPCORD_SECRETS/KEY; stat -fc %T $RIPCORD_SECRETS"
        self.assertEqual(self.root.ok("run", "--secret", "KEY=@-", "--", "sh", "-c", script, stdin=b"sek").text,
                         "sek 400 1000\ntmpfs\n")

    def test_an_image_of_two_layers(self):
        base = test_images.rootfs(test_images.entry("d", "d"), test_images.entry("d/gone"), test_images.entry("d/own", uid=7, mode=0o600))
        upper = test_images.tar(test_images.entry("d", "d", mode=0o555), test_images.entry("d/.wh.gone"), test_images.entry("o", "d"),
                                test_images.entry("o/.wh..wh..opq"), test_images.entry("o/new", data=b"hi"))
        self.root.ok("image", "import", "-", stdin=test_images.saved([base, upper]))
        self.assertEqual(self.root.ok("run", "--image", "tool:1", "--", "sh", "-c", "id -u; ls /d; cat /o/new").text, "1000\nown\nhi")
        packed = self.root.ok("image", "export", "tool:1").out
        layers, _ = test_image_export.layers_of(packed)
        self.assertEqual(list(layers[1]), ["d", "d/.wh.gone", "o", "o/.wh..wh..opq", "o/new"])
        self.root.ok("image", "rm", "tool:1")
        self.assertEqual([p.name for f in ("layers", "tmp") for p in (self.root.path / "state/images/store" / f).iterdir()], [])

    def test_copy_both_ways(self):
        data = os.urandom(300000)
        there, back = self.root.path / "there", self.root.path / "back"
        there.write_bytes(data)
        there.chmod(0o644)
        self.root.ok("up", "a")
        self.root.ok("cp", there, "a:/home/agent/f")
        self.root.ok("cp", "a:/home/agent/f", back)
        self.assertEqual(back.read_bytes(), data)

    def test_nothing_of_the_host_is_there(self):
        script = "ls /home; touch /usr/x 2>&1; ls /etc/shadow 2>&1; cat /proc/1/root/etc/hostname 2>&1; exit 0"
        text = self.root.ok("run", "--", "sh", "-c", script).text
        self.assertEqual(text.splitlines()[0], "agent")
        self.assertIn("Read-only file system", text)
        self.assertIn("No such file", text)
        self.assertIn("Permission denied", text)

    def test_pid_1_is_out_of_reach(self):
        script = ("import ctypes, os; c = ctypes.CDLL(None, use_errno=True); "
                  "print(c.ptrace(16, 1, 0, 0), os.strerror(ctypes.get_errno()))")
        self.assertEqual(self.root.ok("run", "--", "python3", "-c", script).text, "-1 Operation not permitted\n")

    def test_timeout_kills_the_whole_tree(self):
        self.root.ok("up", "a")
        script = ("(setsid sh -c 'sleep 86399 & sleep 86399' &); "
                  "(setsid sh -c 'while :; do sleep 0.01; done' &); sleep 86399")
        self.assert_exit(self.root.run("exec", "--timeout", "500ms", "a", "--", "sh", "-c", script), 137)
        self.assertEqual(self.root.exec_info("a")["end"]["cause"], "timeout")
        wait_until(lambda: self.shell("a", "ps ax | grep -c '[s]leep' || :") == "0\n", 5, "all of it to die")

    def test_timeout_spares_the_neighbour(self):
        self.root.ok("up", "a")
        self.root.ok("exec", "a", "--detach", "--", "sleep", "86398")
        self.assert_exit(self.root.run("exec", "--timeout", "200ms", "a", "--", "sleep", "100"), 137)
        self.assertEqual(self.shell("a", "ps ax | grep -c '[s]leep 86398'"), "1\n")

    def test_hostile_trees_are_removed(self):
        script = """
import os
def chain(top, depth):
    os.makedirs(top)
    os.chdir(top)
    for i in range(depth):
        os.mkdir('d')
        open('f', 'w').close()
        os.chmod('f', 0)
        os.chdir('d')
    for i in range(depth):
        os.chdir('..')
        os.chmod('d', 0 if i == depth - 1 else 0o500)
chain('/home/agent/deep', 300)
chain('/var/deep', 100)
os.mkdir('/srv/zero'); os.mkdir('/srv/zero/in'); os.chmod('/srv/zero', 0)
"""
        self.root.ok("up", "a")
        self.root.ok("exec", "a", "--", "python3", "-c", script)
        self.root.ok("rm", "-f", "a")
        self.assert_gone()

    def test_terminal(self):
        self.root.ok("up", "a")
        self.assertIn("/dev/pts/0", self.root.ok("exec", "-t", "a", "--", "tty").text)

    @full_run_only
    def test_survives_the_daemon(self):
        self.root.ok("up", "a")
        exec_id = self.root.ok("exec", "a", "--detach", "--", "sh", "-c", "sleep 1; echo done").text.strip()
        self.root.kill_daemon()
        wait_until(lambda: self.root.ok("logs", "a", exec_id).text == "done\n", 10, "the output")
        self.assertEqual(self.root.exec_info("a", exec_id)["end"]["exit_code"], 0)

    @full_run_only
    def test_nothing_outlives_its_shim(self):
        self.root.ok("up", "a")
        self.root.ok("exec", "a", "--detach", "--", "sh", "-c", "(setsid sleep 86397 &); sleep 86397")
        inside = [p for p in self.root.processes() if b"ripcord-shim" in Path(f"/proc/{p}/cmdline").read_bytes()]
        self.assertTrue(inside)
        for pid in inside:
            self.root.end(pid)
        wait_until(lambda: not any(alive(p) for p in inside), 5, "the shim to end")
        wait_until(lambda: self.root.sandbox("a")["state"] != "running", 5, "the daemon to see it")
        self.root.ok("rm", "-f", "a")
        self.assert_gone()


class Unlimited:
    """Mixed in where no cgroup can be made."""
    names = ["memory", "cpus", "pids"]

    def test_default_limits_are_dropped_with_one_warning(self):
        result = self.root.ok("up", "a")
        self.assertEqual(result.err.decode().count("warning"), 1, result)
        self.assertEqual(self.root.ok("show", "a", "--json").json()["sandbox"]["unenforced"], [*self.names, "disk_budget"])

    def test_run_warns_only_terminals_and_json(self):
        result = self.root.ok("run", "--", "true")
        self.assertEqual((result.out, result.err), (b"", b""))
        events = [json.loads(line) for line in self.root.ok("run", "--json", "--", "true").text.splitlines()]
        self.assertEqual(events[0].get("unenforced"), self.names, events)
        seen = on_terminal(self.root.argv("run", "--", "true"), self.root.env())
        self.assertEqual(seen.count("warning: this machine cannot enforce these default limits"), 1, seen)

    def test_limits_asked_for_are_refused(self):
        for option in (("--memory", "1G"), ("--cpus", "1"), ("--pids", "50"), ("--disk", "1G")):
            self.refused("up", "a", *option, words=[option[0][2:]])
            self.refused("run", *option, "--", "true", code=125, words=[option[0][2:]])
        self.assertEqual(self.root.sandboxes(), [])
        self.assert_gone()

    def test_a_refused_limit_leaves_the_sandbox_alone(self):
        self.root.ok("up", "a")
        before = self.root.sandbox("a")
        self.refused("up", "a", "--memory", "1G", words=["memory"])
        self.assertEqual(self.root.sandbox("a"), before)

    def test_what_is_not_possible_is_refused_and_listed(self):
        self.refused("run", "--network", "open", "--", "true", code=125, words=["open"])
        self.root.ok("up", "a")
        self.assert_exit(self.root.run("pause", "a"), 7)
        lines = self.root.ok("doctor").text
        for name in ("memory limit", "cpu limit", "pids limit", "disk limit", "network open", "pause"):
            self.assertRegex(lines, f"warn  {name}: .*\n +fix: ")
        self.assertIn("ok    start: ", lines)


class OneId:
    """Mixed in where only the own id can be mapped."""

    def test_build_is_refused(self):
        self.assert_exit(build_made(self.root), 7)

    def test_only_one_user_inside(self):
        result = self.assert_exit(self.root.run("run", "--user", "0", "--", "id"), 125)
        self.assertIn("only id 1000 is mapped", result.err.decode())
        self.assertIn("warn  id ranges", self.root.run("doctor").text)


class Strict:
    """Of one id, and of a range."""

    def test_strict_has_files_of_its_own(self):
        """Also where the layers' files belong to several ids of a range that is not the daemon's."""
        files = [test_images.entry("lib.so", data=b"code" * 1000), test_images.entry("own", data=b"7", uid=7, gid=8, mode=0o640)]
        self.root.ok("image", "import", "-", stdin=test_images.saved([test_images.rootfs(*files)]))
        look = ("sh", "-c", "stat -c '%n %u:%g %a %s' /lib.so /own; wc -c < /lib.so; touch /lib.so 2>&1; true")
        for name, isolation in (("a", "strict"), ("b", "strict"), ("c", "shared")):
            self.root.ok("up", name, "--image", "tool:1", "--isolation", isolation)
        self.assertEqual(len({self.root.ok("exec", n, "--", *look).text for n in "abc"}), 1)
        state = self.root.path / "state"
        found = [[p.stat().st_ino for p in state.glob(where)] for where in (
            "images/store/layers/*/fs/lib.so", *(f"sandboxes/{self.root.sandbox(n)['id']}/image-*/*/fs/lib.so" for n in "abc"))]
        self.assertEqual([len(f) for f in found], [1, 1, 1, 0], found)
        self.assertEqual(len({i for f in found for i in f}), 3, found)
        self.assertEqual(self.shell("a", "sleep 100 & kill -0 $!; echo $?"), "0\n")
        self.root.ok("rm", "-f", "a", "b", "c")
        self.assert_gone()


class Caches:
    """Mixed in where ripcord-packages cannot have a user of its own: an ordinary user, or root of a user namespace."""

    def upstream(self):
        """An index for a ripcord-packages that runs as the user: everybody may read its certificate and settings."""
        packages_fixture.TestCase.prepare()
        up = packages_fixture.Upstream(packages_fixture.TestCase.certificates)
        self.addCleanup(up.stop)
        folder = Path(self.enterContext(tempfile.TemporaryDirectory(prefix="ripcord-rootless-")))
        shutil.copy(up.ca, folder / "ca.pem")
        (folder / "upstreams.json").write_text(json.dumps([{**up.as_pypi("own"), "ca_file": f"{folder}/ca.pem"}]), encoding="utf-8")
        for path, mode in (folder, 0o755), (folder / "ca.pem", 0o644), (folder / "upstreams.json", 0o644):
            os.chmod(path, mode)
        self.root.configure(f"packages.pypi: ''\nregistry.npm: ''\nregistry.upstreams: {folder}/upstreams.json\n")
        return up

    def test_caches(self):
        """A base that pip has filled, each mode over it, and what is written where."""
        self.upstream().add_wheel("demo", "1.5")
        self.root.ok("cache", "warm", "--tool", "pip", "demo")
        self.assertIn("CapEff:\t0000000000000000\n", Path(f"/proc/{self.root.packages_pid()}/status").read_text(encoding="ascii"))
        for name, mode in ("l", "layered"), ("r", "readonly"), ("p", "private"), ("s", "shared"), ("t", "shared"), ("o", "off"):
            self.root.ok("up", name, "--cache", f"pip={mode}")
        files = {name: self.shell(name, "find /cache/pip -type f").split() for name in "lrpso"}
        self.assertEqual([len(files[name]) for name in "lrpso"], [1, 1, 0, 0, 0])
        for name in "lrps":
            self.shell(name, "stat -c %u /cache/pip | grep -qx 1000 && echo x >/cache/pip/x")
            self.shell(name, "find /cache/pip -type f -exec sh -c 'echo poison >$0' {} ';'")
        self.assertEqual(self.shell("t", "cat /cache/pip/x"), "poison\n")
        for name in "lrp":
            self.root.ok("stop", name)
        self.assertEqual(self.shell("r", "find /cache/pip -type f").split(), files["r"])
        self.assertEqual(self.shell("r", f"grep -c poison {files['r'][0]} || :"), "0\n")
        self.assertEqual([self.shell(name, "cat /cache/pip/x") for name in "lp"], ["poison\n"] * 2)
        self.root.ok("rm", "-f", *"lrpsto")
        self.root.ok("cache", "prune", "--tool", "all")
        self.assert_gone()


class Pulls:
    """Mixed in where ripcord-transfer has no user of its own to become."""

    def test_pull(self):
        registry = image_registries.FakeRegistry()
        self.addCleanup(registry.close)
        registry.put("a/b", "1", image_registries.Image([test_images.rootfs(), test_images.tar(test_images.entry("y", data=b"pulled"))]))
        self.root.ok("image", "pull", f"{registry.host}/a/b:1", "mine")
        self.assertEqual(self.root.ok("run", "--image", "mine", "--", "sh", "-c", "cat /y").text, "pulled")
        self.assert_gone()


@needs("rootless")
class OrdinaryUser(Common, Unlimited, OneId, Strict, Caches, Pulls, Rootless):
    pass


@full_run_only
@needs("rootless")
class RootOfANamespace(Common, Unlimited, OneId, Caches, Pulls, Rootless):
    """uid 0, and next to nothing with it."""
    prefix = ("unshare", "-r")

    def test_a_folder_that_cannot_be_made_is_named(self):
        result = self.assert_exit(self.root.run("--root", "/var/lib/not-ours", "run", "--", "true"), 125)
        self.assertIn("/var/lib/not-ours", result.err.decode())
        self.assertIn("RIPCORD_ROOT", result.err.decode())


@full_run_only
@unittest.skipIf(os.geteuid() != 0, "needs root to begin with")
@needs("rootless")
class RealRootOfANamespace(Common, OneId, Rootless):
    """Started by root: files and cgroups are still its own, mapping ids is not."""
    uid = gid = 0
    prefix = ("unshare", "-r")


def build_made(root):
    """An image of three layers, one from each kind of step; the result of the build."""
    root.ok("image", "import", "-", stdin=test_builder.base())
    context = root.path / "context"
    context.mkdir()
    (context / "f").write_text("copied", encoding="utf-8")
    (context / "Dockerfile").write_text("FROM base:1\nWORKDIR /w\nCOPY --chown=bob f .\nRUN id -u > /who && stat -c %u:%g f . >> /who\n",
                                        encoding="utf-8")
    context.chmod(0o755)
    return root.run("image", "build", "-t", "made", context)


@full_run_only
@unittest.skipIf(os.geteuid() != 0, "makes a user with subordinate ids, which needs root")
@unittest.skipUnless(NEWUIDMAP.exists(), "there is no newuidmap: package 'uidmap'")
@needs("rootless")
class SubordinateIds(Common, Unlimited, Strict, Rootless):
    def setUp(self):
        user = SubUser.entry()
        if f"{user.pw_name}:" not in Path("/etc/subuid").read_text(encoding="utf-8"):
            self.skipTest("useradd gives no subordinate ids here")
        self.uid, self.gid = user.pw_uid, user.pw_gid
        super().setUp()

    def test_build(self):
        result = build_made(self.root)
        self.assertEqual(result.code, 0, result)
        self.assertEqual(self.root.ok("run", "--image", "made", "--", "cat", "/who", "/w/f").text, "0\n1000:1001\n0:0\ncopied")
        store = self.root.path / "state/images/store"
        self.assertEqual(list((store / "tmp").iterdir()), [])

    @unittest.skipUnless(all(test_builder_ssh.TOOLS.values()), "openssh-client is not installed")
    def test_build_with_an_agent(self):
        self.assertEqual(build_made(self.root).code, 0)
        context = self.root.path / "context"
        test_builder_ssh.copy_program(test_builder_ssh.TOOLS["ssh-add"], context / "tools")
        (context / "Dockerfile").write_text(
            "FROM made\nCOPY tools/ /\nRUN --mount=type=ssh stat -c 'is %u %g %a' $SSH_AUTH_SOCK; /usr/bin/ssh-add -l || :\n"
            "USER bob\nRUN --mount=type=ssh,uid=1000,gid=50 stat -c 'is %u %g %a' $SSH_AUTH_SOCK; /usr/bin/ssh-add -l || :\n"
            "RUN --mount=type=ssh,uid=7 /usr/bin/ssh-add -l || echo not for bob\n", encoding="utf-8")
        subprocess.run(["chmod", "-R", "a+rX", context], check=True)
        with tempfile.TemporaryDirectory(prefix="ripcord-agents-") as folder:
            os.chown(folder, self.uid, self.gid)
            path = f"{folder}/agent"
            with subprocess.Popen([test_builder_ssh.TOOLS["ssh-agent"], "-D", "-a", path], stdout=subprocess.DEVNULL,
                                  user=self.uid, group=self.gid) as agent:
                wait_until(lambda: os.path.exists(path), 20, "the agent to listen")
                result = self.root.run("image", "build", "--progress", "plain", "--ssh", f"default={path}", context)
                agent.kill()
        self.assertEqual(result.code, 0, result)
        for line in ("is 0 0 600", "is 1000 50 600", "not for bob"):
            self.assertIn(line, test_builder_ssh.told(result.err.decode()))
        self.assertEqual(result.err.decode().count("The agent has no identities"), 2, result)

    def test_build_on_host(self):
        context = self.root.path / "context"
        context.mkdir()
        (context / "f").write_text("copied\n", encoding="utf-8")
        (context / "Dockerfile").write_text("FROM host\nRUN id -u > /opt/who; echo more >> /etc/hosts; touch /usr/x || echo $? >> /opt/who\n"
                                            "COPY --chown=agent f /opt/\nUSER agent\nRUN stat -c %U /opt/f /opt/who > ~/mine\n", encoding="utf-8")
        context.chmod(0o755)
        self.root.ok("image", "build", "-t", "made", context)
        self.assertEqual(self.root.ok("run", "--image", "made", "--", "sh", "-c", "cat /opt/who /opt/f ~/mine; tail -n 1 /etc/hosts; id -un").text,
                         "0\n1\ncopied\nagent\nroot\nmore\nagent\n")
        (context / "Dockerfile").write_text("FROM made\nCOPY f /bin/\n", encoding="utf-8")
        self.assertIn("Read-only file system", self.assert_exit(self.root.run("image", "build", context), 7).err.decode())

    def test_other_users_inside(self):
        self.root.ok("up", "a")
        self.assertEqual(self.root.ok("exec", "a", "--user", "0", "--", "id", "-u").text, "0\n")
        self.assertEqual(self.root.ok("exec", "a", "--user", "65534:65535", "--", "id", "-u").text, "65534\n")
        self.assertEqual(self.shell("a", "id -u; touch f; stat -c %u f"), "1000\n1000\n")
        self.assertIn("ok    id ranges", self.root.run("doctor").text)

    def test_files_of_other_users_are_removed(self):
        script = "mkdir -p /var/x/y /home/agent/z; touch /var/x/y/f /home/agent/z/f; chmod 0 /var/x /home/agent/z"
        self.root.ok("up", "a")
        self.root.ok("exec", "a", "--user", "0", "--", "sh", "-c", script)
        self.root.ok("rm", "-f", "a")
        self.assert_gone()
        self.root.ok("run", "--user", "0", "--", "sh", "-c", script)
        self.assert_gone()

    def test_timeout_kills_other_users_too(self):
        self.root.ok("up", "a")
        self.assert_exit(self.root.run("exec", "--user", "0", "--timeout", "300ms", "a", "--", "sh", "-c",
                                       "(setsid sleep 86396 &); sleep 86396"), 137)
        wait_until(lambda: self.shell("a", "ps ax | grep -c '[s]leep' || :") == "0\n", 5, "all of it to die")
