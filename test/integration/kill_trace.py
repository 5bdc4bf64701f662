"""Who sends SIGKILL: the kernel's trace of signals, kept while a test run lasts.

A command that somebody else kills cannot say who did it, and a later run rarely repeats it. Where the machine has tracefs,
a run keeps the last kills in a buffer of its own, and the failure names the sender.
"""
import contextlib
import os
import re
import subprocess
import tempfile
from pathlib import Path

TRACEFS = Path("/sys/kernel/tracing")
FIRST_PID_NAMESPACE = 0xEFFFFFFC  # linux/proc_ns.h: the trace has the pids of the first namespace
BUFFER_KIB = 256  # for each processor: a few thousand kills
KILL = re.compile(r"^\s*(?P<sender>.+)-(?P<from>\d+)\s+\[\d+\] .*signal_generate: sig=9 .* comm=.* pid=(?P<pid>\d+) ", re.M)


class Trace:
    """The kills on this machine since start()."""

    def __init__(self):
        self.mounted = None  # where we have mounted tracefs ourselves
        self.instance = None
        self.missing = "not started"  # why there is no trace, or None

    def start(self):
        """Where it cannot run, a test whose command is killed only says less."""
        try:
            self.missing = self.refusal() or self.make_instance(self.find())
        except (OSError, subprocess.CalledProcessError) as e:
            self.stop()
            self.missing = f"this machine gives no trace of signals: {e}"

    def refusal(self):
        if os.geteuid() != 0:
            return "only root may trace signals"
        if os.stat("/proc/self/ns/pid").st_ino != FIRST_PID_NAMESPACE:
            return "the trace has the pids of another pid namespace"
        return None

    def find(self):
        if (TRACEFS / "instances").is_dir():
            return TRACEFS
        self.mounted = Path(tempfile.mkdtemp(prefix="ripcord-tracefs-"))
        subprocess.run(["mount", "-t", "tracefs", "ripcord-test", self.mounted], check=True, capture_output=True)
        return self.mounted

    def make_instance(self, tracefs):
        instance = tracefs / "instances" / f"ripcord-test-{os.getpid()}"
        instance.mkdir()
        self.instance = instance
        event = instance / "events/signal/signal_generate"
        for path, text in ((instance / "buffer_size_kb", BUFFER_KIB), (event / "filter", "sig == 9"), (event / "enable", 1)):
            path.write_text(f"{text}\n", encoding="ascii")

    def killer(self, pid):
        """The process that sent SIGKILL to this one, as text."""
        if self.missing:
            return f"an unknown process ({self.missing})"
        try:
            text = (self.instance / "trace").read_text(encoding="utf-8", errors="replace")
        except OSError as e:
            return f"an unknown process ({e})"
        kills = [m for m in KILL.finditer(text) if int(m["pid"]) == pid]
        if not kills:
            return "the kernel, without a signal"
        return f"{kills[-1]['sender']} ({words_of(kills[-1]['from'])}); the trace: {kills[-1].group(0).strip()}"

    def stop(self):
        if self.instance:
            with contextlib.suppress(OSError):
                self.instance.rmdir()
        if self.mounted:
            subprocess.run(["umount", "-l", self.mounted], check=False, capture_output=True)
            self.mounted.rmdir()
        self.instance = self.mounted = None
        self.missing = "not started"


def words_of(pid):
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return f"pid {pid}, which has ended"
    return f"pid {pid}: {words.strip()[:300]}"


TRACE = Trace()
