"""Attacks on isolation `confined`, each with the guard that stops it: without that guard it gets through.

Everything on the machine that they aim at belongs to the commands' own user, so that the machine's permissions stop nothing:
once with a user of the sandbox's own (a daemon of root), once with the daemon's user.
"""
import ctypes
import json
import os
import pty
import random
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

import confined_probes
from ripcord_test import Config, TestCase, alive, alone, copy_program, only_on, processes_with, wait_until
from test_rootless import UID, UserRoot

LIBC = ctypes.CDLL(None, use_errno=True)
TEXT = Path(confined_probes.__file__).read_text(encoding="utf-8")
BOTH, OWN, SAME = ("own", "same"), ("own",), ("same",)

# attack: the guards without which it gets through, and for which users that can be shown
GUARDS = {
    "signals": ("landlock", BOTH),
    "memory_of_a_process": ("landlock", BOTH),
    "command_lines_of_processes": ("landlock", BOTH),
    "files_by_a_process": ("landlock", BOTH),
    "settings_of_a_process": ("confined calls", BOTH),
    "read_outside": ("landlock", BOTH),
    "write_outside": ("landlock", BOTH),
    "take_a_file_inside": ("landlock", BOTH),
    "by_a_link": ("landlock", BOTH),
    "change_outside": ("own files", SAME),
    "pipes_of_a_process": ("own files", SAME),
    "attributes_and_watches": ("confined calls", SAME),
    "set_id": ("seccomp", BOTH),
    "another_sandbox": ("landlock", SAME),
    "shared_memory_by_file": ("landlock", SAME),
    "a_terminal_outside": ("landlock", SAME),
    "unix_sockets": ("confined calls", BOTH),
    "a_name_for_a_pair": ("confined calls", BOTH),
    "our_own_socket": ("confined calls", SAME),
    "abstract_sockets": ("confined calls,landlock", BOTH),
    "tcp_elsewhere": ("landlock", BOTH),
    "tcp_by_fast_open": ("confined calls,landlock", BOTH),  # Landlock holds it since 6.12.117
    "listen_elsewhere": ("landlock", BOTH),
    "leave_loopback": ("loopback", BOTH),
    "other_families": ("confined calls", BOTH),
    "system_v_memory": ("confined calls", BOTH),
    "forks": ("rlimits", BOTH),
}
# held by what test_guards.py shows for every sandbox, or by nothing that could be left out
ALWAYS = ("inherited_descriptors", "signals_to_our_own_processes", "namespaces_and_the_kernel", "a_program_without_a_file",
          "write_and_run", "a_pair_that_connects", "no_terminal")
VICTIM = "import ctypes, os, sys, time\np = os.pipe()\nb = ctypes.create_string_buffer(b'ripcord')\nprint(ctypes.addressof(b), p[0], flush=True)\ntime.sleep(1000)"


def guarded_programs():
    """The programs with a shim whose guards can be left out, in a folder that every user can reach."""
    folder = Path(tempfile.mkdtemp(prefix="ripcord-confined-"))
    folder.chmod(0o755)
    for name in ("ripcord", "ripcordd", "ripcord-shim", "ripcord-packages"):
        special = Config.bin / "test" / "unit" / f"{name}-guards"
        copy_program((special if special.exists() else Config.bin / name).resolve(), folder / name)
    return folder


class GuardedUserRoot(UserRoot):
    programs = None

    def argv(self, *args):
        return [*self.prefix, str(self.programs / "ripcord"), *map(str, args)]


def listen_below_all_blocks():
    """A server on a port that the kernel gives nobody for port 0. Otherwise it may be one of the sandbox's own block."""
    while True:
        try:
            return socket.create_server(("127.0.0.1", random.randrange(30000, 32700)))
        except OSError:
            continue


class Machine:
    """What the attacks aim at, all of one user."""

    def __init__(self, uid, root, processes):
        self.folder = Path(tempfile.mkdtemp(prefix="ripcord-outside-"))
        for name in ("canary", "spare"):
            (self.folder / name).write_text("canary", encoding="ascii")
        os.chown(self.folder, uid, uid)
        self.uid, self.facts = uid, {}
        self.start_victim()
        self.tcp = listen_below_all_blocks()
        with listen_below_all_blocks() as free:
            self.free_port = free.getsockname()[1]
        self.unix, self.packets = self.listen(str(self.folder / "stream")), self.listen(str(self.folder / "packets"), socket.SOCK_SEQPACKET)
        self.dgram = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.dgram.bind(str(self.folder / "dgram"))
        name = self.folder.name
        self.abstract = self.listen(f"\0{name}")
        self.shm = LIBC.shmget(0, 4096, 0o1666)
        self.shm_file = Path("/dev/shm") / name
        self.shm_file.write_text("canary", encoding="ascii")
        self.main, self.tty = pty.openpty()
        for path in (self.folder, *self.folder.iterdir(), self.shm_file, os.ttyname(self.tty)):
            os.chown(path, uid, uid)
        self.facts |= {
            "folder": str(self.folder), "tcp": self.tcp.getsockname()[1],
            "free_port": self.free_port, "unix": str(self.folder / "stream"), "unix_dgram": str(self.folder / "dgram"), "unix_packets": str(self.folder / "packets"),
            "abstract": name, "shm": self.shm, "shm_file": str(self.shm_file),
            "terminal": os.ttyname(self.tty), "api": str(root.path / "run" / "ripcord.sock"), "state": str(root.path / "state"),
            "processes": processes,
        }

    def start_victim(self):
        """The end of a sandbox with a user of its own ends all processes of that user, so each attack needs a new one."""
        self.victim = subprocess.Popen(["/usr/bin/python3", "-c", VICTIM], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=self.folder,
                                       user=self.uid, group=self.uid, extra_groups=[])
        address, pipe = map(int, self.victim.stdout.readline().split())
        self.facts |= {"victim": self.victim.pid, "victim_address": address, "victim_pipe": pipe}

    def end_victim(self):
        self.victim.kill()
        self.victim.wait()
        self.victim.stdout.close()

    @staticmethod
    def listen(name, kind=socket.SOCK_STREAM):
        s = socket.socket(socket.AF_UNIX, kind)
        s.bind(name)
        s.listen()
        return s

    def close(self):
        self.end_victim()
        for s in (self.tcp, self.unix, self.packets, self.dgram, self.abstract):
            s.close()
        LIBC.shmctl(self.shm, 0, None)  # IPC_RMID
        self.shm_file.unlink(missing_ok=True)
        os.close(self.main)
        os.close(self.tty)
        shutil.rmtree(self.folder)


class Hostile(TestCase):
    """The subclasses say with which user the commands run."""
    kind = None

    def setUp(self):
        if os.geteuid() != 0:
            self.skipTest("needs root, to act as the commands' own user outside of the sandbox")
        super().setUp()
        self.programs = guarded_programs()
        self.addCleanup(shutil.rmtree, self.programs)
        self.root = self.make_root()
        if "isolation_confined" not in self.root.start().get("/v1/engines")["engines"][0]["capabilities"]:
            self.skipTest("Landlock of this kernel has no scopes")

    def make_root(self):
        raise NotImplementedError

    def up(self, name, without="", *options):
        self.root.ok("up", name, "--isolation", "confined", "--env", f"RIPCORD_WITHOUT={without}", *options)

    def uid_of(self, name):
        return int(self.shell(name, "id -u"))

    def lay_out(self, name):
        """Everything that the attacks from this sandbox aim at."""
        uid = self.uid_of(name)
        machine = Machine(uid, self.root, 300 + 64 + 200)
        self.addCleanup(machine.close)
        self.up("other")
        self.shell("other", "echo secret > secret")
        machine.facts.update(other_home=self.shell("other", "pwd").strip(), daemon=self.root.daemon_pid(), shim=self.shim_of(name))
        return machine

    def shim_of(self, name):
        mark = self.root.sandbox(name)["id"].encode()
        for entry in Path("/proc").iterdir():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if entry.name.isdigit() and words[:2] == [b"ripcord-shim", mark]:
                return int(entry.name)
        raise AssertionError(f"no shim of {mark}")

    def attack(self, name, machine, attacks):
        """{attack: outcome}"""
        done = self.root.run("exec", name, "--timeout", "50s", "--", "/usr/bin/python3", "-c", TEXT, json.dumps(machine.facts), *attacks)
        found = dict(line.split(" ", 1) for line in done.text.splitlines())
        self.assertEqual(set(found), set(attacks), done)
        return found

    def own(self):
        """Those that a guard of ours stops for this kind of user; the machine's permissions stop the others."""
        return {a: g for a, (g, kinds) in GUARDS.items() if self.kind in kinds}

    def test_every_attack_is_held_and_each_guard_is_needed(self):
        self.up("a")
        machine = self.lay_out("a")
        found = {**self.attack("a", machine, ALWAYS), **self.attack("a", machine, self.own())}
        self.assertEqual({a: o for a, o in found.items() if not o.startswith("held")}, {})
        self.assertIsNone(machine.victim.poll())
        for guards in sorted(set(self.own().values())):
            attacks = [a for a, g in self.own().items() if g == guards]
            self.up("a", guards)
            self.assertEqual(self.uid_of("a"), machine.uid)
            machine.end_victim()
            machine.start_victim()
            found = self.attack("a", machine, attacks)
            self.assertEqual({a: o for a, o in found.items() if o != "breach"}, {}, f"nobody would notice that '{guards}' is missing")
            if "landlock" in guards:  # the folder as it was
                for path in machine.folder.iterdir():
                    if path.name not in ("canary", "stream", "packets", "dgram"):
                        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
                (machine.folder / "canary").write_text("canary", encoding="ascii")

    def test_nothing_survives_the_deadline(self):
        for without, left in (("", False), ("whole tree", True)):
            word = f"{86000 + os.getpid() % 1000}.{int(left)}"
            script = (f"(setsid sh -c 'sleep {word} & sleep {word}' &); (setsid sh -c 'trap \"\" TERM HUP; while :; do sleep {word}; done' &); "
                      f"sleep 0.3; sleep {word}")
            self.up("a", without)
            done = self.root.run("exec", "a", "--timeout", "1s", "--", "sh", "-c", script)
            self.assert_exit(done, 137)
            self.assertEqual(self.root.exec_info("a")["end"]["cause"], "timeout")
            if not left:
                wait_until(lambda: not processes_with(word), 5, "all of it to die")
            found = processes_with(word)
            for pid in found:
                os.kill(pid, signal.SIGKILL)
            wait_until(lambda: not processes_with(word), 5, "the rest to die")
            self.assertEqual(bool(found), left, "'whole tree' does not hold, or nobody would notice that it is missing")

    def test_nothing_survives_our_own_processes(self):
        """A child that was given away, whose shim is killed. The daemon finds those of a user of the sandbox's own without the guard, too."""
        for without, left in (("", False), ("subreaper", self.kind == "same")):
            word = f"{87000 + os.getpid() % 1000}.{int(left)}"
            self.up("a", without)
            self.shell("a", f"setsid sleep {word} >/dev/null 2>&1 & sleep 0.1")
            os.kill(self.shim_of("a"), signal.SIGKILL)
            if not left:
                wait_until(lambda: not processes_with(word), 5, "all of it to die")
            found = processes_with(word)
            for pid in found:
                os.kill(pid, signal.SIGKILL)
            self.assertEqual(bool(found), left, "'subreaper' does not hold, or nobody would notice that it is missing")
            wait_until(lambda: self.root.sandbox("a")["state"] != "running", 10, "the daemon to see it")

    def test_a_command_cannot_end_everything(self):
        self.up("a")
        machine = self.lay_out("a")
        self.root.run("exec", "a", "--", "/usr/bin/python3", "-c", "import os, signal\nos.kill(-1, signal.SIGKILL)")
        self.assertIsNone(machine.victim.poll())
        self.assertTrue(alive(machine.facts["shim"]) and alive(machine.facts["daemon"]))
        self.assertEqual(self.shell("a", "echo on"), "on\n")

    def test_copies(self):
        for without, left in (("", False), ("copies inside", True)):
            self.up("a", without)
            machine = self.lay_out("a")
            self.shell("a", f"ln -sfn {machine.folder} l; ln -sf {machine.folder}/canary f")
            got = self.root.run("cp", f"a:{machine.folder}/canary", "-")
            self.assertEqual(b"canary" in got.out and got.code == 0, left, got)
            (machine.folder / "src").write_text("changed", encoding="ascii")
            put = self.root.run("cp", machine.folder / "src", "a:/home/agent/f")
            self.assertEqual(put.code == 0, left, put)
            into = self.root.run("cp", machine.folder / "src", "a:/home/agent/l/new")
            self.assertEqual((into.code == 0, (machine.folder / "new").exists()), (left, left), into)
            self.root.ok("rm", "-f", "other")

    def test_the_terminal_cannot_be_typed_into(self):
        for without, left in (("", False), ("seccomp", True)):
            if left and Path("/proc/sys/dev/tty/legacy_tiocsti").read_text(encoding="ascii").strip() == "0":
                continue  # the kernel has its own guard
            self.up("a", without)
            facts = json.dumps({})
            found = self.root.run("exec", "-t", "a", "--", "/usr/bin/python3", "-c", TEXT, facts, "typing_into_the_terminal").text
            self.assertEqual("breach" in found, left, found)

    def test_the_package_cache_serves_its_user_only(self):
        self.up("a")
        port = int(self.shell("a", "echo $NPM_CONFIG_REGISTRY").split(":")[2].split("/")[0])
        code = (f"import socket\ns = socket.create_connection(('127.0.0.1', {port}))\ns.settimeout(10)\n"
                "s.sendall(b'GET /npm/-/ping HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n')\nprint(s.recv(100))")
        self.assertIn("200 OK", self.root.ok("exec", "a", "--", "/usr/bin/python3", "-c", code).text)
        for uid, served in ((self.uid_of("a"), True), (UID + 1, False)):
            done = subprocess.run(["/usr/bin/python3", "-c", code], user=uid, group=uid, extra_groups=[], capture_output=True, check=False)
            self.assertEqual(b"200 OK" in done.stdout, served, done)


@alone
@only_on("native")
class TestOwnUser(Hostile):
    kind = "own"

    def make_root(self):
        self.root.bin = self.programs
        return self.root


@alone
@only_on("native")
class TestSameUser(Hostile):
    kind = "same"

    def make_root(self):
        root = GuardedUserRoot(UID, UID)
        root.programs = self.programs
        self.extra_roots.append(self.root)
        return root


del Hostile, TestCase  # the runner would find them here, too
