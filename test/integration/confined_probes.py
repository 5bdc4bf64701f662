"""Attacks from inside of a confined sandbox. The text of this file runs there: python3 -c TEXT FACTS NAME...

FACTS is a JSON object with what the test has laid out on the machine. Each attack prints its name with 'breach' when it got
through, or 'held'; an attack that raises OSError was held.
"""
import array
import ctypes
import errno
import fcntl
import json
import mmap
import os
import resource
import signal
import socket
import struct
import sys
import termios

FACTS = json.loads(sys.argv[1]) if __name__ == "__main__" else {}
LIBC = ctypes.CDLL(None, use_errno=True)
SYS_PTRACE, SYS_PROCESS_VM_READV, SYS_TGKILL, SYS_PIDFD_OPEN, SYS_PIDFD_SEND = 101, 310, 234, 434, 424
SYS_OPENAT2, SYS_FCHMODAT2 = 437, 452
SYS_PRLIMIT, SYS_SHMGET, SYS_SHMAT, SYS_MQ_OPEN, SYS_SETXATTR, SYS_INOTIFY_ADD = 302, 29, 30, 240, 188, 254
ATTACKS = {}


def attack(fn):
    ATTACKS[fn.__name__] = fn
    return fn


def call(number, *args):
    """A system call; OSError when it fails."""
    result = LIBC.syscall(*(ctypes.c_long(a) if isinstance(a, int) else a for a in (number, *args)))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def any_of(*tries):
    """True if one of them does not fail."""
    for one in tries:
        try:
            one()
            return True
        except OSError:
            pass
    return False


# ---- processes outside ----

def by_sigio(pid):
    ours, theirs = socket.socketpair()
    fcntl.fcntl(ours, fcntl.F_SETOWN, pid)
    fcntl.fcntl(ours, fcntl.F_SETFL, fcntl.fcntl(ours, fcntl.F_GETFL) | os.O_ASYNC)
    theirs.send(b"x")
    raise OSError("nobody says whether it arrived")


@attack
def signals():
    pid = FACTS["victim"]
    return any_of(lambda: os.kill(pid, 0), lambda: call(SYS_TGKILL, pid, pid, 0), lambda: by_sigio(pid),
                  lambda: call(SYS_PIDFD_SEND, call(SYS_PIDFD_OPEN, pid, 0), 0, None, 0))


@attack
def signals_to_our_own_processes():
    return any_of(lambda: os.kill(os.getppid(), 0), lambda: os.kill(FACTS["shim"], 0), lambda: os.kill(FACTS["daemon"], 0))


@attack
def memory_of_a_process():
    pid = FACTS["victim"]
    local, remote = (ctypes.c_ulong * 2)(), (ctypes.c_ulong * 2)()
    data = ctypes.create_string_buffer(8)
    local[:] = [ctypes.addressof(data), 8]
    remote[:] = [FACTS["victim_address"], 8]
    return any_of(lambda: call(SYS_PTRACE, 16, pid, 0, 0),  # PTRACE_ATTACH
                  lambda: call(SYS_PROCESS_VM_READV, pid, local, 1, remote, 1, 0),
                  lambda: os.open(f"/proc/{pid}/mem", os.O_RDWR), lambda: open(f"/proc/{pid}/environ", "rb").read())


@attack
def command_lines_of_processes():
    return any_of(lambda: open(f"/proc/{FACTS['victim']}/cmdline", "rb").read(), lambda: os.listdir("/proc"))


@attack
def files_by_a_process():
    pid = FACTS["victim"]
    return any_of(lambda: os.listdir(f"/proc/{pid}/root{FACTS['folder']}"), lambda: os.listdir(f"/proc/{pid}/cwd/"),
                  lambda: os.readlink(f"/proc/{pid}/exe"))


@attack
def settings_of_a_process():
    pid, tight = FACTS["victim"], struct.pack("QQ", 100, 100)
    return any_of(lambda: call(SYS_PRLIMIT, pid, resource.RLIMIT_NOFILE, tight, None), lambda: os.sched_setaffinity(pid, {0}),
                  lambda: os.setpriority(os.PRIO_PROCESS, pid, 5), lambda: os.sched_setscheduler(pid, os.SCHED_BATCH, os.sched_param(0)))


# ---- files outside ----

@attack
def read_outside():
    folder = FACTS["folder"]
    how = struct.pack("QQQ", os.O_RDONLY, 0, 0)
    return any_of(lambda: open(f"{folder}/canary", "rb"), lambda: os.listdir(folder), lambda: open("/etc/shadow", "rb"),
                  lambda: call(SYS_OPENAT2, -100, f"{folder}/canary".encode(), how, len(how)))


@attack
def write_outside():
    folder = FACTS["folder"]
    open("mine", "w", encoding="ascii").close()
    return any_of(lambda: open(f"{folder}/canary", "ab"), lambda: open(f"{folder}/new", "x", encoding="ascii"),
                  lambda: os.mkdir(f"{folder}/d"), lambda: os.symlink("x", f"{folder}/l"), lambda: os.mkfifo(f"{folder}/p"),
                  lambda: os.rename("mine", f"{folder}/mine"), lambda: os.link("mine", f"{folder}/mine"),
                  lambda: os.truncate(f"{folder}/canary", 0), lambda: os.unlink(f"{folder}/spare"))


@attack
def take_a_file_inside():
    folder = FACTS["folder"]
    return any_of(lambda: os.link(f"{folder}/canary", "taken"), lambda: os.rename(f"{folder}/canary", "taken"))


@attack
def by_a_link():
    for name in ("l1", "l2"):
        if os.path.lexists(name):
            os.unlink(name)
    os.symlink(FACTS["folder"], "l1")
    os.symlink(f"{FACTS['folder']}/canary", "l2")
    return any_of(lambda: open("l1/canary", "rb"), lambda: open("l2", "rb"), lambda: open("l2", "ab"))


@attack
def change_outside():
    canary = f"{FACTS['folder']}/canary"
    me = os.getuid()
    if os.path.lexists("l3"):
        os.unlink("l3")
    os.symlink(canary, "l3")
    return any_of(lambda: os.chmod(canary, 0o600), lambda: os.chmod("l3", 0o600), lambda: os.utime(canary, (1, 1)),
                  lambda: os.chown(canary, me, -1), lambda: os.chmod(f"{FACTS['folder']}/../{os.path.basename(FACTS['folder'])}/canary", 0o600),
                  lambda: os.chmod(f"/proc/self/root{canary}", 0o600), lambda: os.chmod(f"/proc/{os.getpid()}/cwd/l3", 0o600),
                  lambda: os.chmod("canary", 0o600, dir_fd=os.open(FACTS["folder"], os.O_PATH)),
                  lambda: os.chmod(f"/proc/self/fd/{os.open(canary, os.O_PATH)}", 0o600),
                  lambda: call(SYS_FCHMODAT2, -100, canary.encode(), 0o600, 0), lambda: call(SYS_FCHMODAT2, os.open(canary, os.O_PATH), b"", 0o600, 0x1000))


@attack
def pipes_of_a_process():
    """The broker opens paths with its own rights, and those of pipes lie in no folder."""
    pipe = f"/proc/{FACTS['victim']}/fd/{FACTS['victim_pipe']}"
    return any_of(lambda: os.chmod(pipe, 0o666), lambda: os.utime(pipe, (1, 1)))


@attack
def attributes_and_watches():
    canary = f"{FACTS['folder']}/canary"
    return any_of(lambda: os.setxattr(canary, "user.x", b"1"), lambda: os.getxattr(canary, "user.ripcord"), lambda: os.listxattr(canary),
                  lambda: call(SYS_INOTIFY_ADD, LIBC.inotify_init1(0), FACTS["folder"].encode(), 0x100))


@attack
def set_id():
    open("s", "w", encoding="ascii").close()
    return any_of(lambda: os.chmod("s", 0o4755), lambda: os.fchmod(os.open("s", os.O_RDWR), 0o2755),
                  lambda: os.close(os.open("t", os.O_CREAT | os.O_RDWR, 0o4755)))


@attack
def another_sandbox():
    return any_of(lambda: open(f"{FACTS['other_home']}/secret", "rb"), lambda: os.listdir(FACTS["other_home"]),
                  lambda: open(f"{FACTS['state']}/ripcord.db", "rb"), lambda: os.listdir(FACTS["state"]))


@attack
def shared_memory_by_file():
    return any_of(lambda: open(FACTS["shm_file"], "rb"), lambda: os.listdir("/dev/shm"))


@attack
def a_terminal_outside():
    return any_of(lambda: os.open(FACTS["terminal"], os.O_RDWR | os.O_NOCTTY), lambda: os.listdir("/dev/pts") and None or os.open(FACTS["terminal"], os.O_WRONLY))


# ---- sockets ----

def unix_stream(path):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(path)


def unix_pair_dgram():
    ours, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    ours.sendto(b"x", FACTS["unix_dgram"])


@attack
def unix_sockets():
    return any_of(lambda: unix_stream(FACTS["unix"]), unix_pair_dgram)


@attack
def a_name_for_a_pair():
    """A name of another program, or the mark of a block of ports."""
    ours, _ = socket.socketpair()
    ours.bind(f"\0{FACTS['abstract']}-taken")
    return True


@attack
def a_pair_that_connects():
    """The kernel refuses it for both kinds, in every state that a pair can have."""
    def fresh(kind, closed):
        ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
        if closed:
            theirs.close()
            ours.shutdown(socket.SHUT_RDWR)
        ours.connect(FACTS["unix" if kind == socket.SOCK_STREAM else "unix_packets"])
        return theirs
    kinds = (socket.SOCK_STREAM, socket.SOCK_SEQPACKET)
    return any_of(*(lambda k=k, c=c: fresh(k, c) for k in kinds for c in (False, True)))


@attack
def no_terminal():
    os.open("/dev/tty", os.O_RDWR)
    return True


@attack
def our_own_socket():
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(FACTS["api"])
        s.sendall(b"GET /v1/version HTTP/1.1\r\nHost: x\r\n\r\n")
        return b"200" in s.recv(100)


@attack
def abstract_sockets():
    unix_stream("\0" + FACTS["abstract"])
    return True


@attack
def tcp_elsewhere():
    return any_of(lambda: socket.create_connection(("127.0.0.1", FACTS["tcp"]), 2), lambda: socket.create_connection(("::1", FACTS["tcp"]), 2))


@attack
def tcp_by_fast_open():
    with socket.socket() as s:
        s.sendto(b"x", 0x20000000, ("127.0.0.1", FACTS["tcp"]))
        return True


@attack
def listen_elsewhere():
    return any_of(lambda: socket.create_server(("127.0.0.1", FACTS["free_port"])), lambda: socket.create_server(("0.0.0.0", FACTS["free_port"])))


@attack
def leave_loopback():
    first = int(os.environ["RIPCORD_PORTS"].split(",")[0].split("-")[0])
    for family in (socket.AF_INET, socket.AF_INET6):
        s = socket.socket(family)
        if s.getsockopt(socket.SOL_SOCKET, 25, 16).rstrip(b"\0") != b"lo":  # SO_BINDTODEVICE
            return True
    s = socket.socket()
    s.settimeout(0.3)
    return any_of(lambda: s.setsockopt(socket.SOL_SOCKET, 25, b"\0"), lambda: s.connect(("203.0.113.77", first)))


@attack
def other_families():
    return any_of(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM), lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM),
                  lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0), lambda: socket.socket(socket.AF_VSOCK),
                  lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP),
                  lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262))  # MPTCP


# ---- the machine ----

@attack
def system_v_memory():
    return any_of(lambda: call(SYS_SHMAT, FACTS["shm"], 0, 0), lambda: call(SYS_SHMGET, 0, 4096, 0o600),
                  lambda: call(SYS_MQ_OPEN, b"ripcord-confined", os.O_CREAT | os.O_RDWR, 0o600, None))


@attack
def inherited_descriptors():
    return any(os.path.lexists(f"/dev/fd/{n}") and any_of(lambda n=n: fcntl.fcntl(n, fcntl.F_GETFD)) for n in range(3, 1024))


@attack
def forks():
    """More processes than the sandbox's limit and a margin."""
    n = 0
    ours, _ = socket.socketpair()
    try:
        while n < FACTS["processes"]:
            if os.fork() == 0:
                ours.recv(1)
                os._exit(0)
            n += 1
    except OSError:
        pass
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.killpg(0, signal.SIGTERM)
    return n == FACTS["processes"]


@attack
def namespaces_and_the_kernel():
    return any_of(lambda: call(300, 0, 0), lambda: call(304, 0, b"", 0), lambda: call(438, call(SYS_PIDFD_OPEN, FACTS["victim"], 0), 1, 0),
                  lambda: call(312, os.getpid(), FACTS["victim"], 0, 0, 0), lambda: call(440, call(SYS_PIDFD_OPEN, FACTS["victim"], 0), None, 0, 4, 0),
                  lambda: call(250, 0, -3, 1), lambda: call(298, None, FACTS["victim"], -1, -1, 0), lambda: call(56, 0x10000011, 0, 0, 0, 0),
                  lambda: call(272, 0x10000000), lambda: call(165, b"x", b"/tmp", b"tmpfs", 0, None), lambda: call(425, 1, array.array("B", bytes(120)).buffer_info()[0]),
                  lambda: call(321, 0, None, 0), lambda: call(248, b"user", b"x", b"y", 1, -3))


@attack
def typing_into_the_terminal():
    fcntl.ioctl(0, termios.TIOCSTI, b"x")
    return True


@attack
def a_program_without_a_file():
    """It runs, and is as confined as any other."""
    fd = os.memfd_create("x", 0)
    os.write(fd, b"#!/bin/sh\nexec cat " + FACTS["folder"].encode() + b"/canary\n")
    ours, theirs = os.pipe()
    if os.fork() == 0:
        os.dup2(theirs, 1)
        os.dup2(os.open("/dev/null", os.O_WRONLY), 2)
        os.execv(f"/proc/self/fd/{fd}", ["x"])
    os.close(theirs)
    os.wait()
    return b"canary" in os.read(ours, 100)


@attack
def write_and_run():
    """Own code is allowed to run; this shows that the others fail for another reason."""
    with open("prog", "w", encoding="ascii") as f:
        f.write("#!/bin/sh\nexit 42\n")
    os.chmod("prog", 0o755)
    return os.waitstatus_to_exitcode(os.system("./prog")) != 42


def main():
    mmap.mmap(-1, 4096)
    for name in sys.argv[2:]:
        try:
            outcome = "breach" if ATTACKS[name]() else "held"
        except OSError as e:
            outcome = f"held ({errno.errorcode.get(e.errno, e.errno)})"
        print(name, outcome, flush=True)


if __name__ == "__main__":
    main()
