"""What the integration tests stand on: a private root with its own daemon, and a look at the kernel.

Each test gets a `Root`: a temporary folder given as --root, so that tests never see each other or a
ripcord in use on this machine. When a test ends, its sandboxes are removed, its daemon is stopped, and
the test fails if any process, mount, cgroup or folder of that root is still there, or if a sanitizer
wrote a report.
"""
import fnmatch
import http.client
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

import contract
import kill_trace


class Config:
    """Set by run.py before any test starts."""
    bin = Path(__file__).resolve().parents[2] / "build"
    quick = False
    soak = False
    patience = 1  # a machine that others starve waits this many times as long before a test fails
    sanitized = False
    engine = "native"
    backend = None  # the engines.Engine that sandboxes live on, when it is not native
    disk = tempfile.gettempdir()  # a folder on a real disk; tests in general lie where tempfile puts them


TIMEOUT = 60
SANITIZER = re.compile(rb"ERROR: (Address|Leak|Thread)Sanitizer|WARNING: ThreadSanitizer|runtime error:")


def full_run_only(test):
    """Left out of `./dev test --quick`."""
    return unittest.skipIf(Config.quick, "not in a quick run")(test)


def only_on(*engines):
    """Tests of one engine's own behaviour; a run on another engine does not have them at all."""
    def mark(test):
        test.only_on = engines
        return test
    return mark


IN_MACHINE = Path("/etc/ripcord-test-machine").exists()  # a virtual one that was made for tests (test/vm)

# Capabilities that some engines lack. A test names what it needs; the runner skips it elsewhere and counts it.
CAPABILITIES = {
    "host image": ("native",),      # the machine's own programs as the sandbox's /usr, read-only
    "disk limit": ("native",),      # --disk on any file system
    "files in the root": ("native",),  # those of sandboxes lie in our state folder
    "truthful proc": ("native",),   # /proc/meminfo and /proc/cpuinfo with the sandbox's limits
    "rootless": ("native",),        # an ordinary user's sandboxes
    "cgroup namespace": ("native", "docker"),  # Podman's API has no field for it, and on cgroup v1 its default is the host's
    "routed network": ("native",),  # interfaces and firewall rules of our own on the host
    "capable root": ("native",),    # root inside may change owners and pass over modes; in our containers it has no capabilities
    "limits of a command": ("native", "docker", "podman"),  # with gVisor, the whole sandbox ends at its memory or process limit
    "own kernel objects": ("native",),  # cgroups, mounts, namespaces and processes that we make ourselves
    "test machine": ("native",) if IN_MACHINE else (),  # may be changed at will (test/vm)
}


def needs(*capabilities):
    """Marks a test or class with what its engine must have."""
    def mark(test):
        test.needs = capabilities
        return test
    return mark


def missing(capabilities, engine):
    """The first of them that an engine does not have, or None."""
    return next((c for c in capabilities if engine not in CAPABILITIES[c]), None)


def alone(test):
    """Runs while no other test does: it looks at the whole machine or loads it."""
    test.alone = True
    return test


def smoke(test):
    """One of the few tests that `./dev test` also runs on a machine with systemd and cgroup v2 (test/vm): what differs there,
    and little computing."""
    test.smoke = True
    return test


def serial(group):
    """Tests of one group run one after another, beside all others: they share something of the machine, or take long."""
    def mark(test):
        test.serial = group
        return test
    return mark


class Result:
    """A finished command: its status and both streams."""

    def __init__(self, argv, code, out, err, killer=""):
        self.argv, self.code, self.out, self.err, self.killer = argv, code, out, err, killer

    @property
    def text(self):
        return self.out.decode()

    def json(self):
        return json.loads(self.out)

    def __repr__(self):
        return (f"{' '.join(map(str, self.argv))!r} gave {self.code}{self.killer}, "
                f"stdout {self.out[-2000:]!r}, stderr {self.err[-2000:]!r}")


class Reply:
    """An HTTP reply."""

    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)

    @property
    def code(self):
        """The error's code, or None."""
        try:
            return self.json()["error"]["code"]
        except (ValueError, KeyError, TypeError):
            return None

    def __repr__(self):
        return f"HTTP {self.status} {self.body[:1000]!r}"


def parse_reply(data):
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    headers = {}
    for line in lines[1:]:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    if headers.get("transfer-encoding") == "chunked":
        body = dechunk(body)
    return Reply(int(lines[0].split()[1]), headers, body)


def dechunk(data):
    body = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        n = int(size, 16)
        if n == 0:
            break
        body, data = body + data[:n], data[n + 2:]
    return body


class Connection(http.client.HTTPConnection):
    """What any HTTP library does, over the unix socket."""

    def __init__(self, path):
        super().__init__("localhost")
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(60)
        self.sock.connect(str(self.path))


class Process(subprocess.Popen):
    """A running command that is killed, not waited for, when its test leaves early."""

    def __exit__(self, kind, value, trace):
        if kind is not None and self.poll() is None:
            self.kill()
        super().__exit__(kind, value, trace)


class Root:
    """A private state folder, and all operations on it."""

    bin = None  # where its programs are, when they are not those of this run

    def __init__(self, path=None, folder=None):
        self.made = path is None
        self.path = Path(path or tempfile.mkdtemp(prefix="ripcord-test-", dir=folder))
        self.root_id = None
        if Config.backend and self.path.is_dir():
            self.configure()

    def configure(self, text=""):
        """Writes ripcord.yaml: what the engine of this run needs, and the test's own lines."""
        lines = ""
        if Config.backend:
            lines = f"engine: docker\ndocker.host: {Config.backend.host}\ndocker.prefix: {self.prefix()}\n"
        (self.path / "ripcord.yaml").write_text(lines + text, encoding="utf-8")

    def prefix(self):
        """Names of this root's own on an engine that all tests share."""
        return "t-" + re.sub("[^a-z0-9]", "", self.path.name.rpartition("-")[2].lower())

    # ---- the command line ----

    def argv(self, *args):
        if Config.backend and Config.backend.runtime and args[:1] in (("up",), ("run",)):
            args = (args[0], "--runtime", Config.backend.runtime, *args[1:])
        return [str((self.bin or Config.bin) / "ripcord"), *map(str, args)]

    def env(self, extra=None):
        env = {"PATH": os.environ["PATH"], "HOME": str(self.path / "nobody-is-at-home"), "RIPCORD_ROOT": str(self.path),
               "LC_ALL": "C.UTF-8"}
        env.update(extra or {})
        return env

    def popen(self, *args, env=None, **kwargs):
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        options.update(kwargs)
        return Process(self.argv(*args), env=self.env(env), **options)

    def run(self, *args, stdin=None, timeout=TIMEOUT, env=None, **kwargs):
        """Runs `ripcord ARGS` to its end."""
        timeout *= Config.patience
        given = {"stdin": subprocess.PIPE} if stdin is not None else {}
        with self.popen(*args, env=env, **given, **kwargs) as p:
            try:
                out, err = p.communicate(stdin, timeout=timeout)
            except subprocess.TimeoutExpired:
                p.kill()
                out, err = p.communicate()
                raise AssertionError(f"no end after {timeout} s: "
                                     f"{Result(args, None, out or b'', err or b'')}; {self.log_tail()}") from None
        killer = f" (killed by {kill_trace.TRACE.killer(p.pid)})" if p.returncode == -signal.SIGKILL else ""
        return Result(args, p.returncode, out or b"", err or b"", killer)

    def ok(self, *args, **kwargs):
        """As run(), and the status must be 0."""
        result = self.run(*args, **kwargs)
        if result.code != 0:
            raise AssertionError(f"{result}; {self.log_tail()}")
        return result

    # ---- the API ----

    def connect(self, timeout=TIMEOUT):
        s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        s.settimeout(timeout * Config.patience)
        s.connect(str(self.path / "run" / "ripcord.sock"))
        return s

    def raw(self, data, timeout=TIMEOUT):
        """Sends bytes as they are and reads to the end of the connection."""
        with self.connect(timeout) as s:
            try:
                s.sendall(data)
            except BrokenPipeError:
                pass  # refused before all was sent: the answer is still there to be read
            return read_all(s)

    def http(self, method, target, body=None, headers=None, *, checked=True):
        given = {"Host": "ripcord", "Connection": "close"}
        payload = b""
        if body is not None:
            payload = body if isinstance(body, bytes) else json.dumps(body).encode()
            given.update({"Content-Type": "application/json", "Content-Length": str(len(payload))})
        given.update(headers or {})
        head = "".join(f"{k}: {v}\r\n" for k, v in given.items() if v is not None)
        with self.connect() as s:
            try:
                s.sendall(f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode() + payload)
            except BrokenPipeError:
                pass
            reply = read_reply(s)
        if checked:
            contract.check(self, method, target, reply)
        return reply

    def get(self, target):
        reply = self.http("GET", target)
        if reply.status != 200:
            raise AssertionError(f"GET {target}: {reply}")
        return reply.json()

    def sandboxes(self):
        return self.get("/v1/sandboxes")["sandboxes"]

    def sandbox(self, name):
        return self.get(f"/v1/sandboxes/{name}")["sandbox"]

    def exec_info(self, name, exec_id="last"):
        return self.get(f"/v1/sandboxes/{name}/execs/{exec_id}")["exec"]

    # ---- the daemon ----

    def start(self):
        """Makes sure that a daemon runs, and learns its root id."""
        self.ok("ls")
        self.root_id = self.get("/v1/version")["root_id"]
        return self

    def daemon_pid(self):
        """The daemon's pid as it says itself, or None."""
        try:
            version = self.get("/v1/version")
        except OSError:
            return None
        self.root_id = version["root_id"]
        return version["pid"]

    def packages_pid(self):
        """The pid of ripcord-packages of the running daemon, or None."""
        daemon = self.daemon_pid()
        try:
            children = Path(f"/proc/{daemon}/task/{daemon}/children").read_text(encoding="ascii").split()
            names = {int(p): Path(f"/proc/{p}/comm").read_text(encoding="utf-8").strip() for p in children}
        except OSError:
            return None
        return next((p for p, name in names.items() if name == "ripcord-package"), None)

    def kill_daemon(self, sig=signal.SIGKILL):
        pid = self.daemon_pid()
        if pid is None:
            raise AssertionError("no daemon to kill")
        os.kill(pid, sig)
        wait_until(lambda: not alive(pid), 30, f"daemon {pid} to end after signal {sig}")
        # A child that it was about to start as a spare has its listening socket until it executes.
        wait_until(lambda: not self.accepts() or self.daemon_pid() not in (None, pid), 10, "the daemon's socket to close")

    def accepts(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
            return s.connect_ex(str(self.path / "run" / "ripcord.sock")) == 0

    def walk(self, *folders):
        """Every path below; what goes away meanwhile is left out."""
        for folder in folders:
            for path, names, files in os.walk(self.path / folder):
                yield from (Path(path) / name for name in names + files)

    def logs(self):
        """(name, bytes) of the logs of daemon and shims."""
        found = []
        for path in self.walk("state", "run"):
            try:
                if path.suffix == ".log":
                    found.append((path.name, path.read_bytes()))
            except OSError:
                pass  # its sandbox has been removed
        return found

    def log_tail(self):
        tails = [f"{name}: {text[-1500:].decode(errors='replace')}" for name, text in self.logs() if text]
        return "log: " + " | ".join(tails) if tails else "no log"

    # ---- what the kernel knows of this root ----

    def marks(self):
        return [m.encode() for m in (str(self.path), self.root_id) if m]

    def processes(self):
        """Pids that carry this root in their arguments, environment, cgroup or descriptors."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid() and self.owns(entry):
                found.append(int(entry.name))
        return sorted(found)

    def inside(self):
        """Pids of what runs in this root's sandboxes."""
        if not Config.backend:
            return self.processes()
        found = []
        for name in Config.backend.labelled(f"ripcord.root={self.root_id}")["containers"]:
            box = Config.backend.api("GET", f"/containers{name}/json").json()["Id"].encode()
            found += [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit() and box in cgroup_of(p)]
        return sorted(found)

    def owns(self, proc):
        """A child of this process has the descriptors of every test until it executes its program: it is nobody's yet."""
        if read_bytes(proc / "cmdline") == COMMAND_LINE:
            return False
        marks = self.marks()
        return any(mark in text for text in traces(proc) for mark in marks)

    def mounts(self):
        marks = self.marks()
        lines = Path("/proc/self/mountinfo").read_bytes().splitlines()
        return [l.decode() for l in lines if any(m in l for m in marks)
                and f" {self.path} " not in l.decode()]

    def cgroups(self):
        """Folders below ours in every hierarchy; the root's own empty folder may stay."""
        if not self.root_id:
            return []
        found = []
        for path, folders, _ in os.walk("/sys/fs/cgroup"):
            if path.endswith((f"/{self.root_id}", f"/{self.root_id}.init")):
                found += [os.path.join(path, f) for f in folders]
        return sorted(found)

    def links(self):
        """The host's ends of sandboxes' network interfaces."""
        prefix = f"rc{(self.root_id or '-' * 16)[:8]}-"
        return sorted(name for name in os.listdir("/sys/class/net") if name.startswith(prefix))

    def firewall(self):
        """This root's tables (nft) and chains (iptables) in the firewall."""
        if not self.root_id or os.geteuid() != 0:
            return []
        found = lines_of("nft", "list", "tables", ending=f"ripcord_{self.root_id}")
        for table in ("filter", "nat"):
            found += lines_of("iptables", "-w", "-t", table, "-S", holding=f"-N RIPCORD-{self.root_id[:8]}-")
        return found

    def loops(self):
        """Loop devices that hold a file of this root."""
        found = []
        for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
            try:
                name = backing.read_text(encoding="utf-8", errors="replace").strip()
            except OSError:
                continue  # detached meanwhile
            if str(self.path) in name:
                found.append(f"{backing.parts[3]}: {name}")
        return sorted(found)

    def files(self):
        """State and run folders without what a daemon always keeps: its database, logs and sockets."""
        kept = re.compile(r"(\.db|\.db-wal|\.db-shm|\.log|\.lock|\.sock)$|/spares/")
        return sorted(str(p.relative_to(self.path)) for p in self.walk("state", "run") if not kept.search(str(p)))

    def leftovers(self):
        """Everything of sandboxes that is still there, as text; empty when clean."""
        daemon = self.daemon_pid()
        kept = (daemon, self.packages_pid())
        return {
            "processes": [describe(p) for p in self.processes() if p not in kept],
            "mounts": self.mounts(),
            "cgroups": self.cgroups(),
            "interfaces": self.links(),
            "firewall": self.firewall(),
            "loop devices": self.loops(),
            "rows": [s["name"] for s in self.sandboxes()] if daemon else [],
            **self.on_engine(),
        }

    def snapshot(self):
        """All of that, and the state folder and descriptors of the daemon: to compare before and after."""
        daemon = self.daemon_pid()
        found = self.leftovers()
        found["files"] = self.files()
        found["net namespaces"] = sorted({netns(p) for p in self.processes()} - {netns(os.getpid())})
        found["daemon descriptors"] = descriptors(daemon) if daemon else []
        return found

    def wait_clean(self, seconds=10):
        """Waits until nothing of any sandbox is left; returns what is left after all."""
        end = time.monotonic() + seconds * Config.patience
        while True:
            left = {k: v for k, v in self.leftovers().items() if v}
            if not left or time.monotonic() > end:
                return left
            time.sleep(0.05)

    def on_engine(self):
        """Containers and volumes with this root's label. The network and shared caches are kept for the next sandbox."""
        if not Config.backend or not self.root_id:
            return {}
        found = Config.backend.labelled(f"ripcord.root={self.root_id}")
        shared = Config.backend.labelled("ripcord.shared")["volumes"]
        return {"containers": found["containers"], "volumes": [v for v in found["volumes"] if v not in shared]}

    # ---- the end ----

    def remove_sandboxes(self):
        if self.daemon_pid() is None:
            return
        for box in self.sandboxes():
            reply = self.http("DELETE", f"/v1/sandboxes/{box['name']}?force=1")
            if reply.status not in (200, 404):
                raise AssertionError(f"remove {box['name']}: {reply}")

    def reports(self):
        """Lines of sanitizer reports in the logs."""
        found = []
        for _, text in self.logs():
            match = SANITIZER.search(text)
            if match:
                found.append(text[max(0, match.start() - 200):match.start() + 4000].decode(errors="replace"))
        return found

    def close(self):
        """Removes everything. Returns what was left behind or reported: an empty list if nothing was."""
        problems = [f"sanitizer: {r}" for r in self.reports()]  # a shim's log goes with its sandbox
        try:
            self.remove_sandboxes()
            left = self.wait_clean()
            if left:
                problems.append(f"left behind: {left}; {self.log_tail()}")
            if self.daemon_pid() is not None:
                self.kill_daemon(signal.SIGTERM)
        except (AssertionError, OSError, ValueError, KeyError) as e:
            problems.append(f"while stopping: {e!r}; {self.log_tail()}")
        problems += [f"sanitizer: {r}" for r in self.reports() if f"sanitizer: {r}" not in problems]
        self.sweep()
        return problems

    def sweep_network(self):
        for name in self.links():
            subprocess.run(["ip", "link", "delete", name], check=False, stderr=subprocess.DEVNULL)
        for line in self.firewall():
            if line.startswith("table"):
                subprocess.run(["nft", "delete", *line.split()], check=False, stderr=subprocess.DEVNULL)

    def sweep_engine(self):
        if not Config.backend or not self.root_id:
            return
        for kind, names in Config.backend.labelled(f"ripcord.root={self.root_id}").items():
            for name in names:
                Config.backend.api("DELETE", f"/{kind}/{name.lstrip('/')}?force=1")

    def end(self, pid):
        """Kills it if it is still ours."""
        kill_if(pid, self.owns)

    def sweep(self):
        """Ends by force what is left, so that one failed test does not spoil the next."""
        for pid in self.processes():
            self.end(pid)
        self.sweep_engine()
        self.sweep_network()
        for line in reversed(self.mounts()):
            subprocess.run(["umount", "-l", line.split()[4]], check=False, stderr=subprocess.DEVNULL)
        time.sleep(0.05 if self.cgroups() else 0)
        for folder in reversed(self.cgroups()):
            for path, _, _ in os.walk(folder, topdown=False):
                remove_folder(path)
        for path, _, _ in os.walk("/sys/fs/cgroup"):
            if self.root_id and path.endswith((f"/{self.root_id}", f"/{self.root_id}.init")):
                remove_folder(path)
        if self.made:
            shutil.rmtree(self.path, ignore_errors=True)


def kill_if(pid, condition):
    """Kills a process that was found earlier if the condition, of its folder in /proc, holds: on a busy machine its number
    may be somebody else's by now."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if condition(Path(f"/proc/{pid}")):
            signal.pidfd_send_signal(fd, signal.SIGKILL)
    except ProcessLookupError:
        pass
    finally:
        os.close(fd)


def lines_of(*argv, ending="", holding=""):
    """Lines of a program's output; none when it is not there."""
    if not shutil.which(argv[0]):
        return []
    text = subprocess.run(argv, capture_output=True, check=False).stdout.decode()
    return [line for line in text.splitlines() if line.endswith(ending) and holding in line]


def remove_folder(path):
    try:
        os.rmdir(path)
    except OSError:
        pass


def read_all(sock):
    data = b""
    while True:
        try:
            piece = sock.recv(65536)
        except ConnectionResetError:
            return data
        if not piece:
            return data
        data += piece


def read_reply(sock):
    """One reply: to its declared length, else to the end of the connection."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = sock.recv(65536)
        if not piece:
            raise AssertionError(f"no whole reply: {data!r}")
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    length = re.search(rb"\r\ncontent-length: (\d+)", head.lower())
    while length and len(body) < int(length.group(1)):
        piece = sock.recv(65536)
        if not piece:
            raise AssertionError(f"cut reply: {data!r}")
        body += piece
    return parse_reply(head + b"\r\n\r\n" + (body if length else body + read_all(sock)))


def processes_with(word):
    """The pids of all processes on the machine that have this word in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and word.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            pass
    return found


def alive(pid):
    """True while one of its threads runs: a zombie has ended, but not before its last thread let go of the sockets."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return False
    return any(task_runs(task) for task in tasks)


def traces(proc):
    """Texts that show to which root a process belongs. Not by Path, which is too slow for thousands of descriptors."""
    for name in ("cmdline", "environ", "cgroup"):
        try:
            with open(f"{proc}/{name}", "rb") as f:
                yield f.read()
        except OSError:
            pass
    try:
        numbers = os.listdir(f"{proc}/fd")
    except OSError:
        return
    for number in numbers:
        try:
            yield os.fsencode(os.readlink(f"{proc}/fd/{number}"))
        except OSError:
            pass


def read_bytes(path):
    """The bytes of a file, none when it has gone."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


COMMAND_LINE = read_bytes(Path("/proc/self/cmdline"))


def cgroup_of(proc):
    return read_bytes(proc / "cgroup")


def task_runs(task):
    try:
        stat = (task / "stat").read_text(encoding="latin-1")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def describe(pid):
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        return f"{pid} {words[:100]}"
    except OSError:
        return f"{pid} (ended meanwhile)"


def netns(pid):
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except OSError:
        return None


def descriptors(pid):
    """Open descriptors of a process by kind, numbers left out."""
    found = []
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.append(re.sub(r"\[\d+\]", "", os.readlink(fd)))
        except OSError:
            pass
    return sorted(found)


def readable(fd, seconds):
    """Whether something comes in time. Not by select(2): it knows no descriptor past 1023, and some tests hold thousands."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def copy_program(source, place):
    """By another process: a fork of another test's thread would hold the copy open for writing, and it could not be run."""
    subprocess.run(["cp", "-p", source, place], check=True)


def files_below(top, pattern="*"):
    """The files of a folder in which things come and go: rglob() fails when one goes while it looks."""
    for folder, _, names in os.walk(top):
        yield from (Path(folder) / name for name in fnmatch.filter(names, pattern))


def wait_until(condition, seconds, what):
    seconds *= Config.patience
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"waited {seconds} s for {what}")
        time.sleep(0.02)


class TestCase(unittest.TestCase):
    """A test with a root of its own in self.root."""

    alone = False
    on_disk = False  # True in classes whose tests need a real disk
    maxDiff = 4000

    def setUp(self):
        self.root = Root(folder=Config.disk if self.on_disk else None)
        self.extra_roots = []

    def new_root(self, path=None):
        root = Root(path)
        self.extra_roots.append(root)
        return root

    def tearDown(self):
        problems = [p for root in [self.root, *self.extra_roots] for p in root.close()]
        self.assertFalse(problems, "\n".join(problems))

    def assert_exit(self, result, code):
        self.assertEqual(result.code, code, f"{result}; {self.root.log_tail()}")
        return result

    def assert_refused(self, reply, status, code, *words):
        """An API error with this status and code whose message or hint holds the words."""
        self.assertEqual((reply.status, reply.code), (status, code), reply)
        error = reply.json()["error"]
        text = f"{error['message']} {error.get('hint')}"
        for word in words:
            self.assertIn(word, text)

    def shell(self, name, script, **kwargs):
        """A script in a named sandbox; its output as text."""
        return self.root.ok("exec", name, "--", "sh", "-c", script, **kwargs).text
