"""One virtual machine: qemu with a disk image that it does not change, and ssh into it.

Without KVM, qemu translates each instruction, and everything takes about nine times as long as on this machine. A machine
writes into a temporary file that qemu has already deleted, so nothing is left when qemu ends, however it ends.
"""
import ctypes
import os
import shlex
import signal
import socket
import subprocess
import time
from pathlib import Path

BOOT_LIMIT = 400
SSH_LIMIT = 600
TRIES_FOR_A_PORT = 5
PR_SET_PDEATHSIG = 1  # linux/prctl.h


class Failed(Exception):
    """The machine does not start or does not answer."""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def accelerator():
    """KVM if it can start a processor here: on some machines /dev/kvm opens, and fails later. RIPCORD_VM_ACCEL=tcg or kvm decides
    without a look."""
    given = os.environ.get("RIPCORD_VM_ACCEL")
    if given:
        return given
    try:
        probe = subprocess.run(["qemu-system-x86_64", "-accel", "kvm", "-cpu", "host", "-m", "32", "-display", "none", "-nodefaults",
                                "-S", "-monitor", "stdio"], input=b"quit\n", capture_output=True, timeout=20, check=False)
    except subprocess.TimeoutExpired:
        return "tcg"
    return "kvm" if probe.returncode == 0 else "tcg"


def die_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def stay_idle():
    """A session of its own is a group of its own to the scheduler, in which idle priority means nothing to other groups. So the
    group gets the lowest weight, too."""
    if os.sched_getscheduler(0) != os.SCHED_IDLE:
        return
    try:
        Path("/proc/self/autogroup").write_text("19", encoding="ascii")
    except OSError:
        pass  # a kernel without these groups


def prepare_qemu():
    die_with_parent()
    stay_idle()


class Machine:
    """Running, or described by the state of a machine that another process started."""

    def __init__(self, image, log, port=None):
        self.image, self.log, self.port = Path(image), Path(log), port
        self.qemu = None

    def argv(self, memory, cpus, drives):
        """Each drive is a file that the machine sees as /dev/vdb, /dev/vdc …, read-only."""
        kind = accelerator()
        fast = {"kvm": ["-accel", "kvm", "-cpu", "host"], "tcg": ["-accel", "tcg,thread=multi,tb-size=512", "-cpu", "max"]}[kind]
        more = [word for path in drives for word in ("-drive", f"file={path},if=virtio,format=raw,readonly=on")]
        return ["qemu-system-x86_64", *fast, "-smp", str(cpus), "-m", memory, "-nographic", "-no-reboot", "-snapshot",
                "-kernel", self.image / "kernel", "-initrd", self.image / "initrd",
                "-append", "root=/dev/vda rw console=ttyS0 quiet net.ifnames=0 mitigations=off nokaslr panic=-1",
                "-drive", f"file={self.image}/disk,if=virtio,format=raw,cache=unsafe", *more,
                "-netdev", f"user,id=n,hostfwd=tcp:127.0.0.1:{self.port}-:22", "-device", "virtio-net-pci,netdev=n",
                "-device", "virtio-rng-pci"]

    def start(self, memory="3G", cpus=2, drives=(), detached_for=None):
        """Starts qemu. It dies with this process, or after detached_for seconds."""
        for _ in range(TRIES_FOR_A_PORT):
            self.port = free_port()
            argv = self.argv(memory, cpus, drives)
            if detached_for:
                argv = ["timeout", "--kill-after=10", str(detached_for), *argv]
            with open(self.log, "wb") as log:
                self.qemu = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                                             preexec_fn=stay_idle if detached_for else prepare_qemu)
            time.sleep(0.5)
            if self.qemu.poll() is None or "hostfwd" not in self.log_tail():
                return
            # Another program took the port between our look and qemu's.
        raise Failed(f"qemu finds no free port: {self.log_tail()}")

    def wait(self, limit=BOOT_LIMIT):
        """Waits until a command runs inside; returns the seconds that it took."""
        since = time.monotonic()
        while self.ssh("true", limit=60).returncode != 0:
            if self.qemu and self.qemu.poll() is not None:
                raise Failed(f"qemu ended: {self.log_tail()}")
            if time.monotonic() - since > limit:
                raise Failed(f"the machine does not answer after {limit} s: {self.log_tail()}")
            time.sleep(1)
        return time.monotonic() - since

    def ssh_argv(self, user, *options):
        return ["ssh", "-q", "-i", self.image / "key", "-p", str(self.port), "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
                "-o", "ConnectTimeout=30", "-o", "ServerAliveInterval=30", "-o", "ServerAliveCountMax=10", *options, f"{user}@127.0.0.1"]

    def ssh(self, command, user="root", limit=SSH_LIMIT, **kwargs):
        """Runs a shell command inside. Status 255 is ssh's own failure, 124 a command that took too long."""
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT} | kwargs
        argv = [*self.ssh_argv(user, "-o", "BatchMode=yes"), command]
        try:
            return subprocess.run(argv, timeout=limit, check=False, **options)
        except subprocess.TimeoutExpired as e:
            return subprocess.CompletedProcess(argv, 124, e.stdout, e.stderr)

    def must(self, command, **kwargs):
        """As ssh(), and the command must succeed; returns its output."""
        done = self.ssh(command, **kwargs)
        if done.returncode != 0:
            raise Failed(f"'{command}' gave {done.returncode}: {(done.stdout or b'').decode(errors='replace')[-4000:]}")
        return (done.stdout or b"").decode(errors="replace")

    def push(self, paths, target, user="root"):
        """Copies files and folders into a folder of the machine, under their last names."""
        where = shlex.quote(target)
        words = [word for p in paths for word in ("-C", Path(p).resolve().parent, Path(p).resolve().name)]
        with subprocess.Popen(["tar", "-cf", "-", *words], stdout=subprocess.PIPE) as tar:
            self.must(f"mkdir -p {where} && tar -C {where} --no-same-owner -xf -", user=user, stdin=tar.stdout)
        if tar.returncode != 0:
            raise Failed(f"tar of {paths} failed")

    def stop(self):
        """Ends qemu at once: the disk's writes are not kept."""
        if self.qemu:
            self.qemu.terminate()
            try:
                self.qemu.wait(10)
            except subprocess.TimeoutExpired:
                self.qemu.kill()
                self.qemu.wait()
            self.qemu = None

    def log_tail(self):
        return self.log.read_text(encoding="utf-8", errors="replace")[-3000:]
