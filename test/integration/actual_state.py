"""The actual state of a root's sandboxes, read from the kernel or the engine. Tests compare ripcord's answers with it."""
import os
import re
from pathlib import Path
from urllib.parse import quote

from ripcord_test import Config


def read(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""


def is_zombie(proc):
    return read(proc / "stat").rpartition(b")")[2].split()[:1] in ([b"Z"], [b"X"], [])


def processes():
    return [p for p in Path("/proc").iterdir() if p.name.isdigit()]


def marked(marker):
    """The running `sleep MARKER.n` commands of a test: {"MARKER.n": pid}."""
    found = {}
    for proc in processes():
        words = read(proc / "cmdline").split(b"\0")
        if len(words) > 1 and words[0].endswith(b"sleep") and words[1].startswith(marker.encode()) and not is_zombie(proc):
            found[words[1].decode()] = int(proc.name)
    return found


def is_init(pid):
    lines = read(Path(f"/proc/{pid}/status")).decode("latin-1").splitlines()
    numbers = [line.split()[1:] for line in lines if line.startswith("NSpid:")]
    return bool(numbers) and len(numbers[0]) > 1 and numbers[0][-1] == "1"


class Native:
    """Sandboxes are the cgroups of this root that hold a process."""

    def __init__(self, root):
        self.root = root

    def pids(self):
        """{sandbox id: [pids]}"""
        path = re.compile(rb"^0::(.*/" + self.root.root_id.encode() + rb"/([0-9a-f]{16}))(?:/|$)", re.M)
        found = {}
        for proc in processes():
            match = path.search(read(proc / "cgroup"))
            if match and not is_zombie(proc):
                found.setdefault((match.group(2).decode(), match.group(1).decode()), []).append(int(proc.name))
        return found

    def sandboxes(self):
        """{sandbox id: "running" or "paused"}; other sandboxes do not run."""
        return {sandbox: "paused" if self.frozen(path) else "running" for sandbox, path in self.pids()}

    def frozen(self, path):
        for base in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
            if b"frozen 1" in read(Path(base + path) / "cgroup.events"):
                return True
        return read(Path("/sys/fs/cgroup/freezer" + path) / "freezer.state").startswith(b"FROZEN")

    def init_of(self, sandbox):
        return next((p for (s, _), pids in self.pids().items() if s == sandbox for p in pids if is_init(p)), None)

    def supervisor_of(self, sandbox):
        return supervisor(self.root, sandbox, "ripcord-shim")


class Docker:
    """Sandboxes are the containers that carry this root's label."""

    def __init__(self, root):
        self.root = root

    def containers(self):
        wanted = quote(f'{{"label":["ripcord.root={self.root.root_id}"]}}')
        listed = Config.backend.api("GET", f"/containers/json?all=1&filters={wanted}").json() or []
        return {c["Labels"].get("ripcord.id"): c for c in listed if c["Labels"].get("ripcord.id")}

    def sandboxes(self):
        return {sandbox: c["State"] for sandbox, c in self.containers().items() if c["State"] in ("running", "paused", "restarting")}

    def init_of(self, sandbox):
        c = self.containers().get(sandbox)
        pid = c and Config.backend.api("GET", f"/containers/{c['Id']}/json").json()["State"]["Pid"]
        return pid or None

    def supervisor_of(self, sandbox):
        return supervisor(self.root, sandbox, "ripcord-relay")

    def change_outside(self, sandbox, method, what):
        c = self.containers().get(sandbox)
        if c:
            Config.backend.api(method, f"/containers/{c['Id']}{what}")


def supervisor(root, sandbox, comm):
    """The pid of a sandbox's supervisor, found by its process name and arguments."""
    for pid in root.processes():
        if read(Path(f"/proc/{pid}/comm")).decode().strip() == comm[:15] and sandbox.encode() in read(Path(f"/proc/{pid}/cmdline")):
            return pid
    return None


def of(root):
    """The view of the engine that this test run uses."""
    return (Docker if Config.backend else Native)(root)


def kill(pid):
    """Sends SIGKILL. False if there is no such process."""
    try:
        os.kill(pid, 9)
    except (ProcessLookupError, TypeError):
        return False
    return True
