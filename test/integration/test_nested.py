"""ripcord inside of containers: doctor and `run` agree in each, the step that doctor names helps, and the lines of
docs/platforms.md do what the page says.

The image has what ripcord links, and the containers get the programs of this build as a folder. A privileged container
needs a machine whose root has all capabilities.
"""
import ctypes
import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import threading
import unittest
from pathlib import Path

import engines
import host_image
import test_images
import test_rootless
from ripcord_test import Config, TestCase, copy_program, full_run_only, needs, only_on

HERE = Path(__file__).resolve().parents[2]
IMAGE = "ripcord/nested:latest"
PACKAGES = ("base-files bash coreutils dash e2fsprogs grep libarchive13 libc-bin libcurl4 libjansson4 libsqlite3-0 libssl3 "
            "libuv1 libyaml-0-2 nftables procps sed uidmap").split()
PROGRAMS = (*test_rootless.PROGRAMS,)
STATE = "/var/lib/ripcord"
VOLUME = f"-v {STATE}"
SECCOMP, APPARMOR, PATHS, UNMASK = ("--security-opt seccomp=unconfined", "--security-opt apparmor=unconfined",
                                    "--security-opt systempaths=unconfined", "--security-opt 'unmask=/proc/*'")
LIMITS = ("memory limit", "cpu limit", "pids limit", "pause")
FEATURES = ("id ranges", "network open", *LIMITS)
DATA = "-v ripcord:/var/lib/ripcord"
CAP_SYS_RESOURCE = 24
NUMBERS = itertools.count()

# The report, the status of a run, and its error; then what a sandbox there holds.
SCRIPT = """
R=/opt/ripcord/ripcord
$R doctor --json; echo
$R run --isolation confined -- true >/dev/null 2>&1; echo $?
error=$($R run -- true 2>&1); echo $?; echo "$error"
"""
CONFINED = "weaker isolation that needs no namespaces: --isolation confined."


class Nest:
    """An engine with the image, and the folder of programs; one for all tests of a run."""

    lock = threading.Lock()
    loaded = {}
    programs = None

    @classmethod
    def engine(cls, kind):
        with cls.lock:
            if cls.programs is None:
                cls.programs = tempfile.TemporaryDirectory(prefix="ripcord-nested-")
                os.chmod(cls.programs.name, 0o755)
                for name in PROGRAMS:
                    copy_program(test_rootless.find_program(name), cls.programs.name)
            if kind not in cls.loaded:
                engine = engines.shared(kind)
                engine.load(host_image.archive("nested", IMAGE, PACKAGES))
                cls.loaded[kind] = engine
            return cls.loaded[kind]

    @classmethod
    def command(cls, kind, options, script):
        engine = cls.engine(kind)
        program = engine.cli if kind == "docker" else ["nsenter", f"--net=/run/netns/{engine.name}", "podman"]
        image = IMAGE if kind == "docker" else f"localhost/{IMAGE}"
        words = [str(HERE / w[len("seccomp="):]) if w.startswith("seccomp=contrib/") else w for w in shlex.split(options)]
        words = [f"seccomp={w}" if w.endswith("seccomp.json") else w for w in words]
        argv = [*program, "run", "--rm", "--network", "none", *words, "-v", f"{cls.programs.name}:/opt/ripcord:ro", image, "sh", "-c", script]
        env = {**os.environ, **engine.env()} if kind == "podman" else None
        return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=300, env=env)


class Report:
    """What a container printed for SCRIPT."""

    def __init__(self, done):
        lines = done.stdout.splitlines()
        if len(lines) < 4:
            raise AssertionError(f"no report: {done}")
        self.report, self.confined, self.status, self.error = json.loads(lines[0]), int(lines[2]), int(lines[3]), "\n".join(lines[4:])
        self.lines = {line["name"]: line for line in self.report["checks"]}

    @property
    def start(self):
        """The line of the plain start; where there is no daemon, that of the daemon."""
        return self.lines.get("start", self.lines["daemon"])

    def ok(self, *names):
        return [n for n in names if self.lines[n]["status"] == "ok"]


def has_apparmor():
    """Docker and Podman then give each container a profile that forbids mounts."""
    path = Path("/sys/module/apparmor/parameters/enabled")
    return path.exists() and path.read_text(encoding="ascii").strip() == "Y"


def has_scopes():
    """Landlock ABI 6, which isolation `confined` needs."""
    return ctypes.CDLL(None).syscall(444, None, 0, 1) >= 6


def may_be_privileged():
    effective = re.search(r"CapEff:\s*(\w+)", Path("/proc/self/status").read_text(encoding="ascii"))[1]
    return bool(int(effective, 16) >> CAP_SYS_RESOURCE & 1)


class Nested:
    """What InDocker and InPodman have in common."""
    kind = None
    lines = {}  # of docs/platforms.md: options -> features that work

    def setUp(self):
        if Config.sanitized:
            self.skipTest("the image has no libraries of sanitizers")
        super().setUp()
        Nest.engine(self.kind)

    def look(self, options, script=""):
        """Runs doctor and `run` in a container; both must say the same."""
        done = Nest.command(self.kind, options, SCRIPT + script)
        report = Report(done)
        works = report.start["status"] == "ok"
        self.assertEqual(works, report.status == 0, f"{options}: {report.start} but {report.error!r}")
        self.assertEqual(works, report.report["ok"], report.report)
        self.assertEqual((report.lines["confined isolation"]["status"], report.confined), ("ok", 0) if has_scopes() else ("warn", 125), report.lines)
        if not works:
            self.assertIn(report.start["detail"], report.error)
            self.assertIn(report.start["fix"], report.error)
        return report

    def starts(self, options, has=(), lacks=()):
        """A sandbox starts, and these features work or are missing, each with a fix."""
        report = self.look(f"{options} {APPARMOR}" if has_apparmor() else options, INSIDE)
        self.assertEqual(report.start["status"], "ok", report.start)
        self.assertEqual(report.ok(*has, *lacks), list(has), {n: report.lines[n] for n in (*has, *lacks)})
        for name in lacks:
            self.assertTrue(report.lines[name]["fix"], report.lines[name])
            self.assertNotIn("as root", report.lines[name]["fix"])
        self.assertIn("\ninside: 0 0 alone\nkilled 0 0", report.error, report.error)

    def refused(self, options, words, fix, choice=True):
        """None starts; the instruction is exactly this, and with it one does. choice: it also names isolation `confined`."""
        report = self.look(options)
        self.assertEqual(report.start["status"], "fail", report.start)
        self.assertRegex(report.start["detail"], f"{words}|the AppArmor profile" if has_apparmor() else words)
        given = re.fullmatch(rf"Start the container with (.*?)\.( Or choose {CONFINED})?", report.start["fix"])
        self.assertTrue(given, report.start)
        self.assertEqual(given[1], fix)
        self.assertEqual(bool(given[2]), choice and has_scopes(), report.start)
        name = f"nested-{os.getpid()}-{next(NUMBERS)}"
        self.starts(f"{options} {fix.replace('-v ripcord:', f'-v {name}:')}".replace(APPARMOR, ""))

    def test_lines_of_the_page(self):
        """The lines that people copy are those of the table, and each has a test (with_lines)."""
        text = (HERE / "docs" / "platforms.md").read_text(encoding="utf-8")
        found = re.findall(rf"(?m)^\$ {self.kind} run (.*) IMAGE$", text)
        self.assertEqual(sorted(found), sorted(self.lines))
        self.assertEqual(len(self.lines), len([name for name in dir(self) if name.startswith("test_line_")]))

    def line(self, options):
        """With --privileged all works, and the cgroup of the container stays what it is."""
        if options.startswith("--privileged") and not may_be_privileged():
            self.skipTest("root has no CAP_SYS_RESOURCE here")
        has = self.lines[options]
        name = f"nested-{os.getpid()}-{next(NUMBERS)}"
        self.starts(options.replace("-v ripcord:", f"-v {name}:"), has, [n for n in FEATURES if n not in has])


def with_lines(cls):
    """A test for each line, so that no test takes as long as all of them."""
    for options in cls.lines:
        words = re.sub(r"-v \S+|--security-opt|contrib/containers/", "", options)
        setattr(cls, "test_line_" + "_".join(re.findall(r"[a-z]+", words.lower())), lambda self, options=options: self.line(options))
    return cls


# Only its own processes, nothing of /proc that reveals keys or the kernel, and a timeout that leaves no process.
INSIDE = """
$R run -- sh -c 'echo inside: $(cat /proc/keys /proc/kallsyms 2>/dev/null | wc -l) $(cat /proc/sysrq-trigger 2>/dev/null | wc -l) \
  $(ls /proc | grep -c "^[0-9]" | sed "s/^[1-6]$/alone/")'
$R run --timeout 500ms -- sh -c 'sleep 4321 & sleep 4321' 2>/dev/null
echo killed $(ps ax -o comm= | grep -c sleep) $(cat /sys/fs/cgroup/cgroup.type 2>/dev/null | grep -c threaded)
"""


@needs("own kernel objects")
@only_on("native")
@full_run_only
@with_lines
class InDocker(Nested, TestCase):
    kind = "docker"
    lines = {
        f"{SECCOMP} {PATHS} {DATA}": (),
        f"--security-opt seccomp=contrib/containers/seccomp.json {PATHS} {DATA}": (),
        f"--cap-add SYS_ADMIN {SECCOMP} {DATA}": ("id ranges",),
        f"--cap-add SYS_ADMIN --cap-add NET_ADMIN {SECCOMP} {PATHS} {DATA}": ("id ranges", "network open"),
        f"--privileged {DATA}": FEATURES,
    }

    def test_default(self):
        self.refused("", "a seccomp profile forbids new namespaces", options_of_fix(SECCOMP, PATHS))

    def test_without_seccomp(self):
        self.refused(SECCOMP, "parts of /proc are covered", options_of_fix(PATHS))

    def test_without_seccomp_and_masks(self):
        self.starts(f"{SECCOMP} {PATHS}", lacks=("state folder", "id ranges", "network open", *LIMITS))

    def test_as_a_user(self):
        self.starts(f"{SECCOMP} {PATHS} --user 1000 -e HOME=/home/agent", lacks=("state folder", "id ranges", *LIMITS))

    def test_read_only(self):
        self.starts(f"{SECCOMP} {PATHS} --read-only --tmpfs /run --tmpfs /tmp {VOLUME}", has=("kept sandbox",))

    def test_sys_admin(self):
        self.refused("--cap-add SYS_ADMIN", "the file system cannot map the ids of a sandbox",
                     options_of_fix(SECCOMP, f"-v ripcord:{STATE}"), choice=False)

    @unittest.skipUnless(may_be_privileged(), "root has no CAP_SYS_RESOURCE here")
    def test_exec_into_a_privileged_container(self):
        """Docker's own processes still come in after the daemon has moved those of the container to a leaf."""
        engine, name = Nest.engine("docker"), f"nested-{os.getpid()}-exec"

        def docker(*words):
            return subprocess.run([*engine.cli, *words], capture_output=True, text=True, check=True, timeout=300).stdout

        docker("run", "-d", "--name", name, "--privileged", "--network", "none", "-v", STATE, "-v", f"{Nest.programs.name}:/opt/ripcord:ro",
               IMAGE, "sleep", "1000")
        self.addCleanup(docker, "rm", "-f", "-v", name)
        for command in ("exec", "exec", "restart", "exec"):
            if command == "restart":
                docker("restart", "--time", "1", name)
                continue
            self.assertEqual(docker("exec", name, "/opt/ripcord/ripcord", "run", "--memory", "64M", "--", "echo", "inside"), "inside\n")
            self.assertNotIn("threaded", docker("exec", name, "sh", "-c", "cat /sys/fs/cgroup/cgroup.type 2>/dev/null || true"))

    def test_in_the_words_of_a_pod(self):
        """A pod has no seccomp profile by default, and a covered /proc."""
        hosts = self.root.path / "hosts"
        hosts.write_text("# Kubernetes-managed hosts file.\n127.0.0.1 localhost\n", encoding="ascii")
        report = self.look(f"{SECCOMP} {APPARMOR if has_apparmor() else ''} -v {hosts}:/etc/hosts:ro")
        self.assertEqual(report.start["fix"].removesuffix(f" Or choose {CONFINED}"),
                         "Set in the pod: capabilities: {add: [SYS_ADMIN]}, an emptyDir volume at '/var/lib/ripcord'.")
        self.starts(f"{SECCOMP} -v {hosts}:/etc/hosts:ro --cap-add SYS_ADMIN {VOLUME}", has=("id ranges",))


@needs("own kernel objects")
@only_on("native")
@full_run_only
@with_lines
class InPodman(Nested, TestCase):
    kind = "podman"
    lines = {
        f"{UNMASK} {DATA}": (),
        f"--cap-add SYS_ADMIN {DATA}": ("id ranges",),
        f"--privileged {DATA}": FEATURES,
    }

    def test_default(self):
        self.refused("", "parts of /proc are covered", options_of_fix(UNMASK))

    def test_unmasked(self):
        self.starts(UNMASK, lacks=("state folder", "id ranges", *LIMITS))

    def test_as_a_user(self):
        self.starts(f"{UNMASK} {VOLUME} --user 1000 -e HOME=/home/agent -e RIPCORD_ROOT=/home/agent/r", lacks=("id ranges", *LIMITS))

    def test_user_namespace(self):
        """A rootless Podman, and a pod with `hostUsers: false`."""
        self.starts(f"{UNMASK} {VOLUME} --uidmap 0:100000:65536 --gidmap 0:100000:65536", has=("kept sandbox",), lacks=("id ranges", *LIMITS))


@needs("rootless", "host image")
class WithoutAnUpperLayer(TestCase):
    """The state folder is on an overlay, as in a container without a volume."""

    def setUp(self):
        if os.geteuid() != 0 or not test_rootless.may_make_namespaces():
            self.skipTest("needs root to mount an overlay, and ordinary users with namespaces")
        self.place = Path(tempfile.mkdtemp(prefix="ripcord-overlay-"))
        self.addCleanup(shutil.rmtree, self.place)
        for name in ("lower", "upper", "work", "merged"):
            (self.place / name).mkdir()
            (self.place / name).chmod(0o755)
        self.place.chmod(0o755)
        options = ",".join(f"{kind}dir={self.place}/{kind}" for kind in ("lower", "upper", "work"))
        subprocess.run(["mount", "-t", "overlay", "-o", options, "overlay", self.place / "merged"], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", self.place / "merged"], check=True)
        self.root = test_rootless.UserRoot(test_rootless.UID, test_rootless.UID, folder=self.place / "merged")
        self.extra_roots = []

    def test_files_live_as_long_as_on_an_overlay(self):
        self.root.ok("up", "a")
        self.shell("a", "echo 1 > ~/home; echo 2 > /etc/root; echo 3 > /cache/tool; echo 4 > /var/tmp/x; touch /usr/x || true")
        self.root.ok("stop", "a")
        self.assertEqual(self.shell("a", "cat ~/home /etc/root /cache/tool"), "1\n2\n3\n")
        self.root.ok("up", "a", "--network", "none")
        self.assertEqual(self.shell("a", "cat ~/home; cat /etc/root /cache/tool 2>/dev/null || echo new"), "1\nnew\n")
        self.root.ok("rm", "a")

    def test_two_sandboxes_share_no_file(self):
        for name in ("a", "b"):
            self.root.ok("up", name)
        self.shell("a", "echo changed >> /etc/passwd; rm /etc/hosts; chmod 700 /etc")
        self.assertNotIn("changed", self.shell("b", "cat /etc/passwd /etc/hosts"))
        self.assertEqual(self.shell("b", "stat -c %a /etc"), "755\n")
        self.assertEqual(self.root.ok("run", "--", "tail", "-n", "1", "/etc/passwd").out.count(b"changed"), 0)

    def test_a_copy_that_was_cut_short_is_made_again(self):
        self.root.ok("up", "a")
        self.root.ok("stop", "a")
        data = self.root.path / "state" / "sandboxes" / self.root.sandbox("a")["id"] / "root"
        (data / "plain").rename(data / "plain.new")
        shutil.rmtree(data / "plain.new" / "etc")
        self.assertIn("agent", self.shell("a", "cat /etc/passwd"))

    def test_files_of_an_overlay_are_not_hidden(self):
        self.root.ok("up", "a")
        self.root.ok("stop", "a")
        data = self.root.path / "state" / "sandboxes" / self.root.sandbox("a")["id"] / "root"
        shutil.rmtree(data / "plain")
        (data / "upper" / "etc").mkdir()
        result = self.assert_exit(self.root.run("up", "a"), 4)
        self.assertIn(b"has files from a place where overlays worked", result.err)
        self.root.ok("rm", "a")

    def test_other_images_are_refused(self):
        self.root.ok("image", "import", "-", stdin=test_images.saved([test_images.rootfs()]))
        result = self.assert_exit(self.root.run("run", "--image", "tool:1", "--", "true"), 125)
        self.assertIn(b"is on overlay, which cannot hold the files of a sandbox", result.err)
        line = next(line for line in self.root.ok("doctor", "--json").json()["checks"] if line["name"] == "state folder")
        self.assertEqual(line["status"], "warn")
        self.assertIn("--root DIR", line["fix"])


@needs("own kernel objects", "routed network")
class WithoutPtrace(TestCase):
    """Root of most containers has no CAP_SYS_PTRACE, and no writable cgroups."""

    def setUp(self):
        if os.geteuid() != 0 or not shutil.which("setpriv"):
            self.skipTest("needs root and setpriv")
        super().setUp()
        self.root.argv = lambda *args: ["setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace",
                                        str(Config.bin / "ripcord"), *map(str, args)]

    def test_sandboxes_have_ids_of_their_own(self):
        self.root.ok("up", "a", "--network", "open")
        self.assertEqual(self.shell("a", "id -u; wc -l </proc/self/uid_map; grep -c eth0 /proc/net/dev"),
                         "1000\n1\n1\n")
        self.assertEqual(self.root.ok("exec", "a", "--user", "0", "--", "id", "-u").text, "0\n")
        self.root.ok("cp", "/etc/hostname", "a:/tmp/h")
        self.assertEqual(self.root.run("run", "--timeout", "300ms", "--", "sh", "-c", "sleep 60 & sleep 60").code, 137)
        lines = {line["name"]: line["status"] for line in self.root.ok("doctor", "--json").json()["checks"]}
        self.assertEqual([lines[n] for n in ("start", "kept sandbox", "id ranges", "network open")], ["ok"] * 4)


def options_of_fix(*options):
    """What doctor names: in this order, with AppArmor's option behind that of seccomp."""
    found = list(options)
    if has_apparmor():
        found.insert(1 if found[0] == SECCOMP else 0, APPARMOR)
    return " ".join(found)
