"""Each guard of the native engine is seen to stand, and its test to fail without it: a shim built for this leaves out the guards
that a sandbox's variable RIPCORD_WITHOUT names (src/lib/base/guard.h). Some stand behind others, which are then left out first."""
import ctypes
import fcntl
import os
import shutil
import socket
import stat
import tempfile
from pathlib import Path
from typing import NamedTuple

from ripcord_test import Config, TestCase, alone, only_on

CANARY = b"ripcord-canary"
KEYCTL, ADD_KEY, SESSION = 250, 248, -3
LIBC = ctypes.CDLL(None)
HERE = os.getpid()  # marks what belongs to this test on the machine


def python(code):
    return ("/usr/bin/python3", "-c", "import ctypes, errno, os, pty, resource\n"
            "libc = ctypes.CDLL(None, use_errno=True)\n"
            "def call(*args):\n"
            "    r = libc.syscall(*(ctypes.c_long(a) if isinstance(a, int) else a for a in args))\n"
            "    return 'done' if r >= 0 else errno.errorcode[ctypes.get_errno()]\n" + code)


def shell(code):
    return ("sh", "-c", code)


FORKS = """
n = 0
try:
    while n < 40:
        if os.fork() == 0:
            os.read(0, 1); os._exit(0)
        n += 1
except OSError:
    pass
print('breach' if n == 40 else 'held')
"""
PTYS = """
resource.setrlimit(resource.RLIMIT_NOFILE, (2000, 2000))
kept = []
try:
    while len(kept) < 300:
        kept.append(os.open('/dev/ptmx', os.O_RDWR | os.O_NOCTTY))
except OSError:
    pass
print('breach' if len(kept) == 300 else 'held')
"""
LOCK = """
import fcntl
try:
    fcntl.flock(os.open('{}', os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
    print('held')
except BlockingIOError:  # the machine's own lock, see things_of_the_machine()
    print('breach')
"""


SOCKETS = """
import socket
held, kept, l = 0, [], socket.create_server(("127.0.0.1", 0))
for i in range(60):
    c = socket.create_connection(l.getsockname())
    kept += [c, l.accept()[0]]
    for s in kept[-2:]:
        s.setblocking(False)
        try:
            while held < 64 << 20:
                held += s.send(bytes(65536))
        except OSError:
            pass
print('breach' if held >= 64 << 20 else 'held')
"""
NETLINK = """
import socket, struct
held, kept = 0, []
while held < 128 << 20:
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 30)
    for i in range(s.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 1500):
        s.send(struct.pack("IHHIIBBHiII", 32, 18, 1, 1, 0, 0, 0, 0, 1, 0, 0))  # RTM_GETLINK
    held += s.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    kept.append(s)
print('breach')
"""


class Guard(NamedTuple):
    """What to try: it prints 'breach' when it got through, or anything else."""
    command: tuple
    options: tuple = ()  # of exec
    spec: tuple = ()  # of up
    before: tuple = ()  # runs meanwhile, as process 2
    first: str = ""  # guards that stand before it


GUARDS = {
    "seccomp": Guard(python("print('held' if call(425, 1, 0) == 'ENOSYS' else 'breach')")),
    "capabilities": Guard(shell("grep -q 'CapBnd:.*0000000000000000' /proc/self/status || echo breach")),
    "no-new-privileges": Guard(shell("grep -q 'NoNewPrivs:.*1' /proc/self/status || echo breach"), first="seccomp"),
    "pid 1": Guard(shell("grep -q 'Seccomp:.*2' /proc/1/status && grep -q 'CapBnd:.*0000000000000000' /proc/1/status || echo breach")),
    "locked proc": Guard(shell("echo 1 2>/dev/null > /proc/sys/net/ipv4/ip_forward && echo breach"), ("--user", "0"), first="capabilities"),
    "hidden proc": Guard(shell("cat /proc/interrupts /proc/softirqs /proc/cmdline /proc/key-users | grep -q . && echo breach")),
    "no namespaces": Guard(python("print('breach' if call(272, 0x10000000) == 'done' else 'held')"), first="seccomp"),
    "keyring": Guard(python(f"print('breach' if call({KEYCTL}, 10, {SESSION}, b'user', {CANARY!r}, 0) == 'done' else 'held')"),
                    first="seccomp"),
    "own namespace": Guard(python("import fcntl, struct\n"
                                 "owner = fcntl.ioctl(open('/proc/self/ns/user'), 0xb704, bytes(4))\n"  # NS_GET_OWNER_UID
                                 "print('held' if struct.unpack('I', owner) == (0,) else 'breach')")),
    "ptys": Guard(python(PTYS)),
    "rlimits": Guard(python("print('held' if resource.getrlimit(resource.RLIMIT_NOFILE) == (16384, 16384) else 'breach')")),
    "limits": Guard(python(FORKS), spec=("--pids", "20"), first="rlimits"),
    "limits: memory": Guard(python("kept = bytes(range(256)) * 400000\nprint('breach')"), spec=("--memory", "64M")),
    "limits: sockets": Guard(python(SOCKETS), spec=("--memory", "64M")),
    "kernel memory": Guard(python(NETLINK), spec=("--memory", "64M")),
    "tmpfs": Guard(shell("head -c 40M /dev/zero > /run/f 2>/dev/null && echo breach"), ("--user", "0")),
    "cgroup namespace": Guard(shell("grep -q ripcord /proc/self/cgroup && echo breach")),
    "pid namespace": Guard(python(f"try: os.kill({HERE}, 0)\nexcept ProcessLookupError: print('held')\nexcept PermissionError: print('breach')")),
    "not dumpable": Guard(shell("readlink /proc/1/exe && ls /proc/1/fd && echo breach"), ("--user", "0")),
    "own ids": Guard(python("print('breach' if os.access('/proc/sys/kernel/core_pattern', os.W_OK) else 'held')"), ("--user", "0"),
                    first="locked proc,own devices"),
    "network": Guard(python(f"import socket\nprint(socket.socket(socket.AF_UNIX).connect_ex('\\0ripcord-guards-{HERE}') or 'breach')")),
    "ipc": Guard(python(f"print('breach' if libc.shmget({HERE}, 0, 0) >= 0 else 'held')")),
    "own inodes": Guard(python(LOCK.format("/usr/bin"))),
    "own devices": Guard(python(LOCK.format("/dev/null"))),
    "workdir": Guard(shell("echo breach"), ("--workdir", "/proc/2/root/tmp"), before=("sleep", "100")),
}


def new_session_with_a_key():
    """In the process that starts the daemon, so that its session keyring is not the test's."""
    LIBC.syscall(KEYCTL, 1, None)
    LIBC.syscall(ADD_KEY, b"user", CANARY, b"secret", 6, ctypes.c_long(SESSION))


@alone
@only_on("native")
class Guards(TestCase):
    def setUp(self):
        super().setUp()
        self.place = Path(tempfile.mkdtemp(prefix="ripcord-guards-"))
        self.addCleanup(shutil.rmtree, self.place)
        self.place.chmod(0o755)
        for name in ("ripcord", "ripcordd", "ripcord-shim"):
            special = Config.bin / "test" / "unit" / f"{name}-guards"
            shutil.copy2(special if special.exists() else Config.bin / name, self.place / name)
        old, Config.bin = Config.bin, self.place
        try:
            self.root.ok("run", "--", "true", preexec_fn=new_session_with_a_key)
        finally:
            Config.bin = old

    def things_of_the_machine(self):
        named = socket.socket(socket.AF_UNIX)
        self.addCleanup(named.close)
        named.bind(f"\0ripcord-guards-{HERE}")
        named.listen()
        for path in ("/usr/bin", "/dev/null"):
            fd = os.open(path, os.O_RDONLY)
            self.addCleanup(os.close, fd)
            fcntl.flock(fd, fcntl.LOCK_EX)
        memory = LIBC.shmget(HERE, 4096, 0o1600)
        self.assertGreaterEqual(memory, 0)
        self.addCleanup(LIBC.shmctl, memory, 0, None)  # IPC_RMID

    def breached(self, guard, without):
        self.root.ok("up", "w", *guard.spec, "--env", f"RIPCORD_WITHOUT={without}")
        if guard.before:
            self.root.ok("exec", "w", "--detach", "--", *guard.before)
        done = self.root.run("exec", "w", *guard.options, "--", *guard.command)
        self.root.ok("rm", "-f", "w")
        return "breach" in done.text

    def test_each_guard_stands_and_would_be_missed(self):
        self.things_of_the_machine()
        for name, guard in GUARDS.items():
            if Config.sanitized and name == "pid 1":
                continue  # a sanitizer has system calls of its own
            self.assertFalse(self.breached(guard, guard.first), f"'{name}' does not hold")
            without = name.partition(":")[0]  # behind it, what else the same guard is for
            self.assertTrue(self.breached(guard, f"{guard.first},{without}"), f"nobody would notice that '{name}' is missing")

    def copied(self, path, without):
        """Whether a copy out of the sandbox brings a secret."""
        self.root.ok("up", "w", "--user", "1000", "--env", f"RIPCORD_WITHOUT={without}")
        self.root.ok("exec", "w", "--user", "0", "--", "sh", "-c", "echo secret > /var/root; chmod 600 /var/root")
        done = self.root.run("cp", f"w:{path}", "-")
        self.root.ok("rm", "-f", "w")
        return b"secret" in done.out

    def test_copies(self):
        (self.place / "file").write_text("secret")
        for guard, path in (("copies inside", self.place / "file"), ("copies by the user", "/var/root")):
            self.assertFalse(self.copied(path, ""), f"'{guard}' does not hold")
            self.assertTrue(self.copied(path, guard), f"nobody would notice that '{guard}' is missing")

    def set_id_owner(self, folder, without):
        """The owner on disk of a set-user-id file that a sandbox makes in a folder of the machine; None: it cannot."""
        self.root.ok("up", "w", "--mount", f"{folder}:/vol", "--env", f"RIPCORD_WITHOUT={without}")
        self.root.run("exec", "w", "--", "sh", "-c", "cp /bin/true /vol/f; chmod 4755 /vol/f")
        self.root.ok("rm", "-f", "w")
        st = (folder / "f").stat()
        (folder / "f").unlink()
        return st.st_uid if st.st_mode & stat.S_ISUID else None

    def test_mounts(self):
        folder = self.place / "shared"
        folder.mkdir()
        folder.chmod(0o777)
        self.assertIsNone(self.set_id_owner(folder, ""), "'seccomp' does not hold")
        self.assertNotIn(self.set_id_owner(folder, "seccomp"), (None, 0), "'root squash' does not hold")
        self.assertEqual(self.set_id_owner(folder, "seccomp,root squash"), 0, "nobody would notice that 'root squash' is missing")

    def test_the_product_has_no_such_switch(self):
        for program in ("ripcord", "ripcord-packages", "ripcord-relay", "ripcord-shim", "ripcordd"):
            self.assertFalse(b"RIPCORD_WITHOUT" in (Config.bin / program).read_bytes(), program)
