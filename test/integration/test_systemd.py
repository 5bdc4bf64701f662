"""The daemon as a unit of systemd, of the system and of a user, and in the login sessions of ordinary users.

These tests install units and use the default folders of root and of the user 'agent', so they run only in a machine that
was made for tests (test/vm)."""
import contextlib
import json
import os
import re
import shutil
import subprocess
import threading
import time
import unittest
from pathlib import Path

from ripcord_test import Config, alive, alone, needs, wait_until

PROGRAMS = Path("/opt/ripcord-test")
CONTRIB = Path(__file__).resolve().parents[2] / "contrib"
CGROUPS = Path("/sys/fs/cgroup")
UNIT = Path("/etc/systemd/system/ripcord.service")
USER_UNIT = Path("/etc/systemd/user/ripcord.service")
LINGER = Path("/var/lib/systemd/linger/agent")
HOG = "python3 -c 'b = bytearray({} << 20); import time; time.sleep({})'"
# Until it is refused. It ends its children, because the sandbox would stay full.
FORKS = """
import os, signal
pids = []
try:
    while True:
        pids.append(os.fork())
        if pids[-1] == 0:
            signal.pause()
except OSError:
    for pid in pids:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    os._exit(9)
"""


def run(*argv, timeout=120, **kwargs):
    return subprocess.run(argv, capture_output=True, text=True, timeout=timeout, check=False, **kwargs)


def must(*argv, **kwargs):
    done = run(*argv, **kwargs)
    if done.returncode != 0:
        raise AssertionError(f"{argv} gave {done.returncode}: {done.stdout} {done.stderr}")
    return done.stdout


def systemd_version():
    return int(must("systemctl", "--version").split()[1])


def cgroup_of(pid):
    """Its path in the v2 tree."""
    text = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8")
    return next(line[3:] for line in text.splitlines() if line.startswith("0::"))


class Case(unittest.TestCase):
    """Programs that everybody may run, no unit, and no daemon; the same again at the end."""

    def setUp(self):
        self.clean()
        PROGRAMS.mkdir(exist_ok=True)
        for program in Config.bin.glob("ripcord*"):
            if not (PROGRAMS / program.name).exists() or (PROGRAMS / program.name).stat().st_mtime != program.stat().st_mtime:
                shutil.copy2(program, PROGRAMS)
        self.addCleanup(self.clean)

    def clean(self):
        """Ends all of ripcord in the default folders: the machine is only for these tests."""
        must("loginctl", "disable-linger", "agent")
        run("systemctl", "stop", "ripcord-test-login")
        run("loginctl", "terminate-user", "agent")
        for name in ("ripcord.service", "user@1000.service"):
            run("systemctl", "stop", name)
        for pid in self.ours():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
        wait_until(lambda: not self.ours(), 30, "all processes of ripcord to end")
        shutil.rmtree("/etc/systemd/system/ripcord.service.d", ignore_errors=True)
        for path in (UNIT, USER_UNIT):
            path.unlink(missing_ok=True)
        must("systemctl", "daemon-reload")
        run("systemctl", "reset-failed", "ripcord.service")
        for path in ("/run/ripcord", "/var/lib/ripcord", "/home/agent/.local/share/ripcord", "/run/user/1000/ripcord"):
            shutil.rmtree(path, ignore_errors=True)
        for path, _, _ in os.walk(CGROUPS, topdown=False):
            if "/ripcord" in path:
                with contextlib.suppress(OSError):
                    os.rmdir(path)

    @staticmethod
    def ours():
        """Processes of the copied programs."""
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
                if words.startswith((bytes(PROGRAMS) + b"/ripcord", b"ripcord-shim", b"ripcord-init")):
                    found.append(int(entry.name))
        return found

    def write_unit(self, path, source, drop_in=None):
        text = (CONTRIB / source).read_text(encoding="utf-8").replace("@bindir@", str(PROGRAMS))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        if drop_in:
            self.drop_in(drop_in)
        must("systemctl", "daemon-reload")

    @staticmethod
    def drop_in(text):
        folder = Path(f"{UNIT}.d")
        folder.mkdir(exist_ok=True)
        (folder / "test.conf").write_text(f"[Service]\n{text}\n", encoding="utf-8")
        must("systemctl", "daemon-reload")

    def ripcord(self, *words, code=0, **kwargs):
        """A command as root, or as the test's user."""
        done = run(*self.prefix(), str(PROGRAMS / "ripcord"), *words, **kwargs)
        self.assertEqual(done.returncode, code, (words, done.stdout, done.stderr, self.log()))
        return done

    def prefix(self):
        return ()

    @staticmethod
    def log():
        return run("journalctl", "-n", "20", "--no-pager", "-u", "ripcord").stdout

    def shell(self, name, script, **kwargs):
        return self.ripcord("exec", name, "--", "sh", "-c", script, **kwargs).stdout

    def pid_inside(self, name):
        """The `sleep 1000` of a sandbox, as the machine sees it."""
        sandbox, found = self.ripcord_json("show", name)["sandbox"]["id"], []

        def look():
            for entry in Path("/proc").iterdir():
                with contextlib.suppress(OSError):
                    if entry.name.isdigit() and (entry / "cmdline").read_bytes() == b"sleep\x001000\0" and f"/{sandbox}" in cgroup_of(entry.name):
                        found.append(int(entry.name))
            return found

        wait_until(look, 10, f"the process of {name} ({self.ripcord_json('ps', name)})")
        return found[0]

    def ripcord_json(self, *words, code=0):
        return json.loads(self.ripcord(*words, "--json", code=code).stdout)


@alone
@needs("test machine")
class Unit(Case):
    def install(self, drop_in=None):
        self.write_unit(UNIT, "ripcord.service.in", drop_in)

    def place(self):
        """Where the cgroups of sandboxes belong."""
        name = "ripcord.service" if systemd_version() >= 254 else "ripcord-sandboxes"
        return CGROUPS / "system.slice" / name

    def active(self):
        return run("systemctl", "is-active", "ripcord").stdout.strip()

    def main_pid(self):
        return int(must("systemctl", "show", "--property", "MainPID", "--value", "ripcord"))

    def boxes(self, top):
        """Cgroups of sandboxes with their own limits: <root id>/<sandbox id>."""
        return [p.parent for p in top.rglob("memory.max") if len(p.parent.name) == len(p.parent.parent.name) == 16]

    def test_a_command_starts_the_unit(self):
        self.install()
        self.assertEqual(self.active(), "inactive")
        self.ripcord("run", "--", "true")
        self.assertEqual(self.active(), "active")
        daemons = [p for p in self.ours() if b"ripcordd" in Path(f"/proc/{p}/cmdline").read_bytes()]
        self.assertEqual(daemons, [self.main_pid()])

    def test_without_the_unit_a_command_starts_the_daemon(self):
        self.ripcord("run", "--", "true")
        self.assertNotEqual(self.active(), "active")

    def test_stopped_means_stopped(self):
        self.install()
        self.ripcord("up", "box")
        self.ripcord("exec", "-d", "box", "--", "sleep", "1000")
        inside = self.pid_inside("box")
        must("systemctl", "stop", "ripcord")
        refused = self.ripcord("ls", code=8)
        self.assertIn("ripcord.service was stopped", refused.stderr)
        self.assertIn("systemctl start ripcord", refused.stderr)
        self.assertEqual(self.active(), "inactive")
        self.assertTrue(alive(inside))
        must("systemctl", "start", "ripcord")
        self.assertEqual(self.pid_inside("box"), inside)
        self.ripcord("rm", "-f", "box")
        self.assertFalse(alive(inside))

    def test_stop_and_restart_of_the_command_line_are_those_of_systemctl(self):
        self.install()
        self.ripcord("up", "box")
        self.ripcord("exec", "-d", "box", "--", "sleep", "1000")
        inside, first = self.pid_inside("box"), self.main_pid()
        self.assertIn("ripcord.service, active", self.ripcord("daemon", "status").stdout)
        self.assertIn("ripcord.service is restarted", self.ripcord("daemon", "restart").stdout)
        self.assertNotIn(self.main_pid(), (0, first))
        stopped = self.ripcord("daemon", "stop")
        self.assertIn("systemctl start ripcord", stopped.stderr)
        self.assertEqual(self.active(), "inactive")
        self.assertIn("ripcord.service was stopped", self.ripcord("ls", code=8).stderr)
        self.assertEqual(self.ripcord_json("daemon", "status", code=3)["unit"], {"name": "ripcord.service", "state": "stopped"})
        self.assertTrue(alive(inside))
        self.ripcord("daemon", "restart")
        self.assertEqual((self.active(), self.pid_inside("box")), ("active", inside))
        self.ripcord("rm", "-f", "box")

    def test_a_killed_daemon_is_not_a_stopped_one(self):
        self.install("Restart=no")
        self.ripcord("ls")
        os.kill(self.main_pid(), 9)
        wait_until(lambda: self.active() == "failed", 20, "the unit to fail")
        self.ripcord("run", "--", "true")
        self.assertEqual(self.active(), "active")

    def test_a_masked_unit_is_not_started(self):
        UNIT.symlink_to("/dev/null")
        must("systemctl", "daemon-reload")
        self.assertIn("is masked", self.ripcord("ls", code=8).stderr)

    def test_a_restart_keeps_sandboxes_and_commands_wait(self):
        self.install()
        self.ripcord("up", "box", "--memory", "64M")
        self.ripcord("exec", "-d", "box", "--", "sleep", "1000")
        inside, stop, results = self.pid_inside("box"), threading.Event(), []

        def ask():
            while not stop.is_set():
                results.append(run(str(PROGRAMS / "ripcord"), "exec", "box", "--", "echo", "x"))

        asking = threading.Thread(target=ask)
        asking.start()
        try:
            for _ in range(3):
                must("systemctl", "restart", "ripcord")
        finally:
            stop.set()
            asking.join()
        self.assertEqual({r.stdout for r in results if r.returncode == 0} or {"x\n"}, {"x\n"})
        # A command that was connected when the daemon ended cannot be saved.
        wrong = [r for r in results if r.returncode != 0 and "connection" not in r.stderr]
        self.assertFalse(wrong, wrong)
        self.assertEqual(self.pid_inside("box"), inside)
        self.assertEqual(self.shell("box", "cat /proc/meminfo | grep -c MemTotal"), "1\n")
        self.ripcord("exec", "box", "--", "sh", "-c", HOG.format(200, 1), code=137)  # its limit still holds

    def test_sandboxes_are_below_the_unit_and_its_limits_hold(self):
        self.install("MemoryMax=300M")
        for name in ("a", "b"):
            self.ripcord("up", name, "--memory", "250M")
        place = self.place()
        self.assertEqual((place / "memory.max").read_text().strip(), str(300 << 20))
        self.assertEqual(len(self.boxes(place)), 2, list(place.rglob("memory.max")))
        self.assertEqual(self.boxes(CGROUPS / "ripcord"), [])
        self.ripcord("exec", "-d", "a", "--", "sh", "-c", HOG.format(200, 100))
        wait_until(lambda: sum(int((b / "memory.current").read_text()) for b in self.boxes(place)) > 190 << 20, 60, "the first to grow")
        self.ripcord("run", "--memory", "250M", "--", "sh", "-c", f"{HOG.format(200, 3)}; true")
        killed = sum(int(line.split()[1]) for b in place.rglob("memory.events") for line in b.read_text().splitlines()
                     if line.startswith("oom_kill "))
        self.assertGreater(killed, 0)
        self.assertEqual(self.active(), "active")
        self.ripcord("rm", "-f", "a", "b")
        wait_until(lambda: not self.boxes(place), 20, "the cgroups to go")

    def test_the_unit_takes_over_from_a_daemon_on_demand(self):
        self.ripcord("up", "box")
        self.ripcord("exec", "-d", "box", "--", "sleep", "1000")
        inside = self.pid_inside("box")
        self.assertTrue(cgroup_of(inside).startswith("/ripcord/"), cgroup_of(inside))
        self.install()
        must("systemctl", "start", "ripcord")
        self.assertEqual(self.pid_inside("box"), inside)
        self.ripcord("up", "new")
        self.ripcord("exec", "-d", "new", "--", "sleep", "1000")
        self.assertEqual([len(self.boxes(CGROUPS / "ripcord")), len(self.boxes(self.place()))], [1, 1])
        self.assertIn(self.place(), (CGROUPS / cgroup_of(self.pid_inside("new"))[1:]).parents)
        self.ripcord("rm", "-f", "box", "new")
        self.assertFalse(alive(inside))
        wait_until(lambda: not self.boxes(CGROUPS / "ripcord") + self.boxes(self.place()), 20, "the cgroups to go")

    def test_a_unit_that_may_write_next_to_nothing(self):
        Path("/run/ripcord-ids").unlink(missing_ok=True)  # the unit has to make it
        self.install("ProtectSystem=strict\nProtectHome=yes\nPrivateTmp=yes\nProtectKernelModules=yes\nProtectClock=yes")
        self.ripcord("doctor")
        self.ripcord("up", "box")
        self.assertEqual(self.shell("box", "echo written > f; cat f"), "written\n")
        must("systemctl", "restart", "ripcord")
        self.assertEqual(self.shell("box", "cat f"), "written\n")

    def test_an_idle_sandbox_outlives_its_empty_cgroup(self):
        """systemd removes the empty cgroups of a unit that it restarts."""
        self.install()
        for name in ("idle", "paused"):
            self.ripcord("up", name, "--memory", "64M")
        self.ripcord("pause", "paused")
        must("systemctl", "restart", "ripcord")
        self.assertEqual(self.boxes(self.place()), [])
        self.ripcord("exec", "idle", "--", "python3", "-c", "b = bytearray(200 << 20)", code=137)
        self.assertEqual(self.ripcord_json("ps", "--all", "idle")["execs"][0]["end"]["cause"], "oom")
        self.ripcord("resume", "paused")
        self.assertEqual(self.shell("paused", "echo on"), "on\n")
        self.assertEqual(len(self.boxes(self.place())), 2)
        self.ripcord("rm", "-f", "idle", "paused")


@alone
@needs("test machine")
class Shared(Case):
    """A cgroup that was delegated, with a process that the daemon cannot move: one of another pid namespace."""
    REPORT = "; cd /sys/fs/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup); cat cgroup.type; ls -d */ 2>/dev/null; cat cgroup.subtree_control"

    def in_shared(self, script):
        return run("systemd-run", "--quiet", "--pipe", "--wait", "--collect", "--property=Delegate=yes",
                   "unshare", "--pid", "--fork", "--mount-proc", "sh", "-c", script)

    def test_refused_controllers_leave_nothing_written(self):
        """+cpu and +pids without +memory would make the cgroup threaded for good."""
        done = self.in_shared(f"{PROGRAMS}/ripcord run --memory 64M -- true; echo $?{self.REPORT}")
        self.assertIn("cannot move the processes of cgroup", done.stderr)
        self.assertIn("a unit with 'Delegate=yes'", done.stderr)
        self.assertEqual(done.stdout, "125\ndomain\n")

    def test_a_sandbox_without_limits_of_its_own_starts(self):
        done = self.in_shared(f"{PROGRAMS}/ripcord run -- echo started{self.REPORT}")
        self.assertEqual(done.stdout, "started\ndomain\n", done)


class UserCase(Case):
    """As the user 'agent' in a login session."""
    user = "agent"

    def prefix(self):
        return self.session()

    def session(self, *more, pipe=True):
        """Runs the words after it in a new session of the user, as sshd would, and ends the session after them."""
        return ("systemd-run", "--quiet", *(("--pipe", "--wait") if pipe else ()), "--collect", f"--uid={self.user}", "--property=PAMName=login",
                "--working-directory=/tmp", "--setenv=LC_ALL=C.UTF-8", *more)

    @contextlib.contextmanager
    def logged_in(self):
        """Keeps a session open meanwhile: without one, systemd ends what the user has started."""
        must(*self.session("--no-block", "--unit=ripcord-test-login", pipe=False), "sleep", "infinity")
        wait_until(lambda: run("systemctl", "is-active", "user@1000").returncode == 0, 30, "the user's service manager")
        try:
            yield
        finally:
            must("systemctl", "stop", "ripcord-test-login")

    def check_limits(self):
        """All of what cgroups give: limits, their causes, pause."""
        self.ripcord("up", "box", "--memory", "64M", "--pids", "24", "--cpus", "0.5")
        self.ripcord("exec", "-d", "box", "--", "sleep", "1000")
        group = CGROUPS / cgroup_of(self.pid_inside("box"))[1:]
        self.assertEqual([(group.parent / name).read_text().strip() for name in ("memory.max", "pids.max", "cpu.max")],
                         [str(64 << 20), "23", "50000 100000"])
        for cause, code, *argv in (("oom", 137, "python3", "-c", "b = bytearray(200 << 20)"), ("pids_limit", 9, "python3", "-c", FORKS)):
            self.ripcord("exec", "box", "--", *argv, code=code)
            end = self.ripcord_json("ps", "--all", "box")["execs"][0]["end"]
            self.assertEqual(end["cause"], cause, end)
        self.ripcord("pause", "box")
        self.assertIn("frozen 1", (group.parent / "cgroup.events").read_text())
        self.ripcord("resume", "box")
        self.assertEqual(self.shell("box", "echo on"), "on\n")
        self.ripcord("doctor")
        self.ripcord("rm", "-f", "box")
        wait_until(lambda: not group.parent.exists(), 20, "the cgroup to go")
        return group


@alone
@needs("test machine")
class Session(UserCase):
    """Without a unit."""

    def test_limits_in_a_login_session(self):
        with self.logged_in():
            group = self.check_limits()
        self.assertRegex(str(group), r"/user@1000\.service/.*/ripcord-\d+\.scope/")

    def test_limits_in_a_unit_with_delegation(self):
        with self.logged_in():
            script = f"cd /tmp; {PROGRAMS}/ripcord up box --memory 64M && {PROGRAMS}/ripcord exec box -- cat /proc/self/cgroup; cat /proc/self/cgroup; sleep 30"
            with subprocess.Popen([*self.session(), "systemd-run", "--user", "--quiet", "--pipe", "--unit=outer", "--property=Delegate=yes",
                                   "--property=MemoryMax=100M", "sh", "-c", script], stdout=subprocess.PIPE, text=True) as outer:
                lines = [outer.stdout.readline() for _ in range(3)]
                self.assertIn("created", lines[0])
                self.assertEqual(lines[1], "0::/\n")
                self.assertRegex(lines[2], r"/outer\.service/supervisor\n$")
                self.ripcord("exec", "-d", "box", "--", "sleep", "1000")
                self.assertIn("/outer.service/", cgroup_of(self.pid_inside("box")))
                outer.terminate()

    def test_another_daemon_finds_the_sandboxes_of_the_first(self):
        with self.logged_in():
            self.ripcord("up", "box", "--memory", "64M")
            self.ripcord("exec", "-d", "box", "--", "sleep", "1000")
            inside = self.pid_inside("box")
            os.kill(int(Path("/run/user/1000/ripcord/daemon.lock").read_text()), 9)
            self.assertEqual(self.pid_inside("box"), inside)
            self.ripcord("run", "--memory", "64M", "--", "true")
            self.assertEqual(len(Path("/run/user/1000/ripcord/cgroups").read_text().splitlines()), 2)
            self.ripcord("rm", "-f", "box")
            self.assertFalse(alive(inside))

    def test_the_logout_ends_it_and_up_says_so(self):
        with self.logged_in():
            warned = self.ripcord("up", "box")
            self.assertIn("loginctl enable-linger", warned.stderr)
            self.ripcord("exec", "-d", "box", "--", "sleep", "1000")
            self.shell("box", "echo kept > f")
            inside = self.pid_inside("box")
        wait_until(lambda: not alive(inside), 60, "systemd to end the user's processes")
        with self.logged_in():
            self.assertEqual(self.shell("box", "cat f"), "kept\n")
            self.ripcord("rm", "-f", "box")

    def test_lingering_keeps_it(self):
        must("loginctl", "enable-linger", "agent")
        self.assertNotIn("linger", self.ripcord("up", "box").stderr)
        self.ripcord("exec", "-d", "box", "--", "sleep", "1000")
        inside = self.pid_inside("box")
        time.sleep(15)  # systemd waits 10 s after the last session
        self.assertTrue(alive(inside))
        self.ripcord("rm", "-f", "box")

    def test_without_a_service_manager_limits_are_refused(self):
        """As in a job of cron."""
        prefix = Agree.CRON
        refused = run(*prefix, str(PROGRAMS / "ripcord"), "run", "--memory", "64M", "--", "true")
        self.assertEqual(refused.returncode, 125, refused)
        self.assertIn("was not delegated to this user", refused.stderr)
        self.assertIn("systemctl --user start ripcord", refused.stderr)
        self.assertEqual(run(*prefix, str(PROGRAMS / "ripcord"), "run", "--", "true").returncode, 0)


@alone
@needs("test machine")
class UserUnit(UserCase):
    def setUp(self):
        super().setUp()
        self.write_unit(USER_UNIT, "ripcord-user.service.in")
        must("loginctl", "enable-linger", "agent")
        wait_until(lambda: run("systemctl", "is-active", "user@1000").returncode == 0, 30, "the user's service manager")

    def systemctl(self, *words):
        return run(*self.session(), "systemctl", "--user", *words).stdout.strip()

    def test_a_command_starts_the_unit_and_limits_hold(self):
        group = self.check_limits()
        self.assertEqual(self.systemctl("is-active", "ripcord"), "active")
        name = "ripcord.service" if systemd_version() >= 254 else "ripcord-sandboxes"
        self.assertIn(f"/user@1000.service/app.slice/{name}/", str(group))

    def test_stopped_means_stopped_and_a_restart_keeps_sandboxes(self):
        self.ripcord("up", "box")
        self.ripcord("exec", "-d", "box", "--", "sleep", "1000")
        inside = self.pid_inside("box")
        self.systemctl("restart", "ripcord")
        self.assertEqual(self.pid_inside("box"), inside)
        self.systemctl("stop", "ripcord")
        refused = self.ripcord("ls", code=8)
        self.assertIn("systemctl --user start ripcord", refused.stderr)
        self.systemctl("start", "ripcord")
        self.assertEqual(self.pid_inside("box"), inside)
        self.ripcord("rm", "-f", "box")


def rows_of_the_page():
    """Place -> the word of doctor, and whether there are limits."""
    text = (CONTRIB.parent / "docs" / "platforms.md").read_text(encoding="utf-8")
    table = text.partition("## Machines and users")[2].partition("## Containers")[0]
    cells = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("|")][2:]
    return {row[0].strip(): (row[1].strip(), row[2].strip().partition(",")[0]) for row in cells}


class Page(unittest.TestCase):
    def test_each_row_has_a_test(self):
        tried = re.findall(r'self\.agrees\("(.*?)"', Path(__file__).read_text(encoding="utf-8"))
        self.assertEqual(sorted(tried), sorted(rows_of_the_page()))


@alone
@needs("test machine")
class Agree(UserCase):
    """The rows of docs/platforms.md for machines and users: what doctor says, and that `run -- true` does what it said."""
    CRON = ("setpriv", "--reuid=agent", "--regid=agent", "--init-groups", "env", "-i", "HOME=/home/agent", "PATH=/usr/sbin:/usr/bin:/sbin:/bin")
    LIMITS = ("memory limit", "cpu limit", "pids limit", "pause")

    def agrees(self, row, prefix=()):
        word, limits = rows_of_the_page()[row]
        words = [*prefix, str(PROGRAMS / "ripcord")]
        doctor, true = run(*words, "doctor", "--json"), run(*words, "run", "--", "true")
        checks = {c["name"]: c for c in json.loads(doctor.stdout)["checks"]}
        self.assertEqual((doctor.returncode == 0, true.returncode == 0), (word == "ok", word == "ok"), (doctor.stdout, true.stderr))
        has = [name for name in self.LIMITS if checks.get(name, {}).get("status") == "ok"]
        self.assertEqual(has, list(self.LIMITS) if limits == "yes" else [], doctor.stdout)
        return doctor.stdout

    def test_root(self):
        self.agrees("root")

    def test_unit_of_the_system(self):
        self.write_unit(UNIT, "ripcord.service.in")
        self.agrees("unit of the system")

    def test_login_session(self):
        with self.logged_in():
            self.agrees("login session of a user", self.session())

    def test_unit_of_a_user(self):
        self.write_unit(USER_UNIT, "ripcord-user.service.in")
        with self.logged_in():
            self.agrees("unit of a user", self.session())

    def test_unit_with_delegation(self):
        with self.logged_in():
            self.agrees("user, in a unit with `Delegate=yes`",
                        self.session("systemd-run", "--user", "--quiet", "--pipe", "--wait", "--property=Delegate=yes"))

    def test_user_without_a_service_manager(self):
        self.agrees("user without a service manager (cron, `su`)", self.CRON)

    def test_user_without_subordinate_ids(self):
        self.user = "plain"
        self.assertIn("only id 1000 is mapped", self.agrees("user without subordinate ids", self.session()))

    def test_where_user_namespaces_are_off(self):
        path = Path("/proc/sys/user/max_user_namespaces")
        before = path.read_text()
        self.addCleanup(path.write_text, before)
        path.write_text("0")
        self.assertIn("sysctl -w user.max_user_namespaces", self.agrees("`user.max_user_namespaces` is 0", self.session()))

    def test_root_in_a_namespace_of_a_user(self):
        with self.logged_in():
            self.agrees("root in a user's own namespace", self.session("unshare", "-r"))
