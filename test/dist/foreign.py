"""Machines that are not this one: a root file system with a mount and a pid namespace of its own, and a shell as pid 1.

    with Machine(folder) as m:
        m.run("/opt/ripcord/bin/ripcord", "run", "--", "true")

/run, /tmp and ripcord's state are empty file systems in memory, so that nothing of ripcord reaches the folder. The kernel, the
network and /sys are those of this machine.
"""
import os
import re
import select
import shutil
import signal
import subprocess
import time
from pathlib import Path

BUSYBOX = Path("/bin/busybox")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Before the pivot the programs are those of this machine, after it those of the other one.
START = """
set -e
root=$1
mount --make-rprivate /
mount --bind "$root" "$root"
mkdir -p "$root/proc" "$root/sys" "$root/dev" "$root/run" "$root/tmp" "$root/old"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
[ -z "$3" ] || { mkdir -p "$root/$3" && mount -t tmpfs -o mode=755 tmpfs "$root/$3"; }
cd "$root"
pivot_root . old
exec /old/bin/busybox sh -c '
    /old/bin/busybox umount -l /old && exec "$@"' sh "$2" sh -c 'echo ready; trap : TERM; while :; do sleep 1000 & wait; done'
"""


class Failed(AssertionError):
    pass


class Result:
    """A finished command: its status and both streams as text."""

    def __init__(self, argv, code, out, err):
        self.argv, self.code, self.out, self.err = argv, code, out, err

    def __repr__(self):
        return f"{' '.join(map(str, self.argv))!r} gave {self.code}, stdout {self.out[-4000:]!r}, stderr {self.err[-4000:]!r}"


class Machine:
    """shell: the program on that machine that knows `sh`, `sleep` and `trap` (busybox). state: what is in memory."""

    def __init__(self, root, shell="/bin/busybox", state="var/lib/ripcord"):
        self.root, self.shell, self.state, self.process, self.pid = Path(root), shell, state, None, None

    def __enter__(self):
        argv = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", START, "sh", self.root, self.shell, self.state]
        self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        line = self.process.stdout.readline()
        if line != "ready\n":
            raise Failed(f"the machine did not start: {line}{self.process.stdout.read()}")
        self.pid = int(Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text(encoding="ascii"))
        return self

    def __exit__(self, *_):
        """The end of pid 1 is the end of every process of its namespace."""
        cgroups = self.cgroups()
        os.kill(self.pid, signal.SIGKILL)
        self.process.wait(60)
        self.process.stdout.close()
        for folder in cgroups:
            for path, _, _ in os.walk(folder, topdown=False):
                remove_folder(path)

    def run(self, *argv, uid=0, env=None, stdin=None, timeout=120):
        words = ["nsenter", f"--target={self.pid}", "--mount", "--pid", f"--setuid={uid}", f"--setgid={uid}", "--wdns=/tmp", *map(str, argv)]
        env = {"PATH": PATH, "HOME": "/root" if uid == 0 else "/tmp/home", "LC_ALL": "C", **(env or {})}
        given = {"input": stdin} if stdin is not None else {"stdin": subprocess.DEVNULL}
        # nsenter is a program of this machine, but found with the PATH of the other.
        done = subprocess.run([shutil.which(words[0]), *words[1:]], env=env, capture_output=True, timeout=timeout, check=False, **given)
        return Result(argv, done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))

    def ok(self, *argv, **kwargs):
        result = self.run(*argv, **kwargs)
        if result.code != 0:
            raise Failed(f"{result}; {self.log()}")
        return result

    def log(self):
        return self.run("cat", "/var/lib/ripcord/ripcordd.log").out[-2000:]

    def file(self, path):
        """The path on this machine of a file in a folder that is in memory there."""
        return Path(f"/proc/{self.pid}/root{path}")

    def root_ids(self):
        return [p.read_text(encoding="ascii").strip() for p in self.file("/var/lib/ripcord").glob("root-id")]

    def cgroups(self):
        ids = self.root_ids()
        return [Path(path) for path, _, _ in os.walk("/sys/fs/cgroup") if any(path.endswith(f"/{i}") for i in ids)]

    def daemon(self):
        """The pid of the daemon in this machine's numbers, or None."""
        try:
            inner = self.file("/run/ripcord/daemon.lock").read_text(encoding="ascii").strip()
        except OSError:
            return None
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and re.search(rf"(?m)^NSpid:\t\d+\t{inner}$", status_of(entry)) and same_namespace(entry, self.pid):
                return int(entry.name)
        return None

    def end_daemon(self):
        pid = self.daemon()
        if pid is None:
            raise Failed("no daemon runs")
        fd = os.pidfd_open(pid)
        signal.pidfd_send_signal(fd, signal.SIGTERM)
        if not select.select([fd], [], [], 30)[0]:
            raise Failed("the daemon did not end")
        os.close(fd)

    def processes(self):
        """Command lines of its processes, without pid 1 and its sleep."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != self.pid and same_namespace(entry, self.pid):
                line = command_line(entry)
                if line and not line.startswith("sleep 1000"):
                    found.append(line)
        return sorted(found)


def status_of(entry):
    try:
        return (entry / "status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def command_line(entry):
    try:
        return (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def same_namespace(entry, pid):
    try:
        return os.readlink(entry / "ns" / "pid") == os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return False


def remove_folder(path):
    try:
        os.rmdir(path)
    except OSError:
        pass


def wait_until(condition, seconds, what):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise Failed(f"waited {seconds} s for {what}")
        time.sleep(0.05)


# ---- userlands ----

def put_busybox(folder, to):
    """Copies busybox into `folder`, and makes a link `to` for each of its commands."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy2(BUSYBOX, folder / "busybox")
    for name in subprocess.run([BUSYBOX, "--list"], check=True, capture_output=True, text=True).stdout.split():
        if name != "busybox":
            (folder / name).symlink_to(to)


def put(root, path, text):
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text, encoding="utf-8")


def like_alpine(root):
    """musl's layout: /bin, /sbin and /lib are folders. No locale, no nsswitch.conf, no certificates, no user names."""
    put_busybox(root / "bin", "/bin/busybox")
    for name in ("usr/bin", "sbin", "lib", "etc", "root"):
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "usr/bin/env").symlink_to("/bin/busybox")
    put(root, "etc/os-release", "ID=alpine\n")
    put(root, "lib/libc.musl-x86_64.so.1", "")


def like_fedora(root):
    """Merged /usr with lib64, certificates below /etc/pki, and name services that static programs cannot load."""
    put_busybox(root / "usr/bin", "busybox")
    for name, target in (("bin", "usr/bin"), ("sbin", "usr/bin"), ("lib64", "usr/lib64"), ("lib", "usr/lib")):
        (root / target).mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(target)
    put(root, "etc/os-release", "ID=fedora\n")
    put(root, "etc/passwd", "root:x:0:0::/root:/bin/sh\n")
    put(root, "etc/nsswitch.conf", "hosts: files myhostname trap [!UNAVAIL=return] resolve [!UNAVAIL=return] dns\npasswd: trap sss files systemd\n"
                                   "group: trap sss files systemd\nservices: trap files\n")
    (root / "root").mkdir()


def like_nixos(root):
    """All programs in the store; /bin/sh and /usr/bin/env are all that others expect."""
    put_busybox(root / "nix/store/0-busybox/bin", "busybox")
    for name, target in (("bin/sh", "/nix/store/0-busybox/bin/sh"), ("usr/bin/env", "/nix/store/0-busybox/bin/env")):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(target)
    put(root, "etc/os-release", "ID=nixos\n")
    put(root, "etc/passwd", "root:x:0:0::/root:/bin/sh\n")
    (root / "root").mkdir()
