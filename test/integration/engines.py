"""Real container engines for tests and benchmarks: each private, and gone without a trace afterwards.

`shared("docker")` is the one engine of a test run, started at its first use; run.py stops it. A test that hurts its
engine makes one of its own:

    with engines.Docker(flags=["--live-restore"]) as engine:
        engine.api("GET", "/containers/json").json()
        engine.kill()           # SIGKILL to dockerd; the containers live on
        engine.restart()

An engine has a folder, a network namespace and a cgroup of its own. The namespace is not a detail: a second dockerd
in the host's would reconfigure or delete the bridge of the first. nsenter rather than `ip netns exec`, which
remounts /sys and so hides the cgroups from dockerd.
"""
import http.client
import itertools
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest
from pathlib import Path
from urllib.parse import quote

import host_image
import ripcord_test

IMAGE = host_image.NAME
NUMBERS = itertools.count()
PODMAN_CGROUP = "libpod_parent"  # cannot be chosen for all containers of a service


class Answer:
    """A reply of the Engine API."""

    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)

    @property
    def ok(self):
        return self.status < 300

    def __repr__(self):
        return f"HTTP {self.status} {self.body[:1000]!r}"


class Connection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path, timeout):
        super().__init__("engine", timeout=timeout)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def request(path, method, target, body=None, headers=None, timeout=60):
    """One call on the engine's socket. A dict or list as body is sent as JSON, bytes and files as they are."""
    given = dict(headers or {})
    if isinstance(body, (dict, list)):
        body = json.dumps(body).encode()
        given.setdefault("Content-Type", "application/json")
    connection = Connection(path, timeout)
    try:
        connection.request(method, target, body, given)
        reply = connection.getresponse()
        return Answer(reply.status, dict(reply.getheaders()), reply.read())
    finally:
        connection.close()


class Engine:
    """What Docker and Podman have in common. A context manager: started on entry, gone on exit."""

    kind = None
    programs = ()
    runtime = None  # tests ask for it with --runtime

    def __init__(self, flags=(), size=None, image=True, outside=False):
        """flags: more of the engine's own options. size: the data folder lies on a file system of so many MiB.
        image: load the test image. outside: the engine's networks reach the machine's."""
        self.flags, self.size, self.image, self.outside = list(flags), size, image, outside
        # Processes, mounts and cgroups are found by this word, so it must not be the beginning of another engine's.
        self.name = f"ripcord-{self.kind}-{os.getpid()}-{next(NUMBERS):04d}"
        self.place = None
        self.socket = None
        self.daemon = None
        self.others = []
        self.number = os.getpid() % 200 + 20

    @classmethod
    def missing(cls):
        """Why it cannot run here, or None."""
        if os.geteuid() != 0:
            return f"a {cls.kind} of its own needs root"
        absent = [p for p in cls.programs if not shutil.which(p)]
        return f"{' and '.join(absent)} missing: ./dev test installs it" if absent else None

    @property
    def host(self):
        """As in DOCKER_HOST."""
        return f"unix://{self.socket}"

    @property
    def cli(self):
        """The beginning of a docker command line for this engine."""
        return ["docker", "-H", self.host]

    # ---- its life ----

    def start(self):
        reason = self.missing()
        if reason:
            raise unittest.SkipTest(reason)
        self.place = Path(tempfile.mkdtemp(prefix=f"{self.name}-"))
        self.place.chmod(0o711)  # containers with a user namespace reach their files through it
        self.socket = self.place / "api.sock"
        try:
            self.make_network()
            self.make_data()
            self.prepare()
            self.restart()
            if self.image:
                self.load(host_image.archive())
        except BaseException:
            self.stop()
            raise
        return self

    def prepare(self):
        """What is started or written once, before the daemon."""

    def command(self):
        """The daemon's argv."""
        raise NotImplementedError

    def restart(self):
        """Starts the daemon (again) and waits until it answers."""
        self.daemon = self.spawn(*self.command())
        self.wait_for(self.daemon, self.answers, self.socket)
        return self

    def kill(self, sig=signal.SIGKILL, seconds=60):
        """Sends a signal to the daemon. Waits for its end, or with SIGSTOP until it has stopped: the signal returns
        before the daemon's other threads are stopped, and one of them could still answer."""
        self.daemon.send_signal(sig)
        if sig == signal.SIGSTOP:
            os.waitid(os.P_PID, self.daemon.pid, os.WSTOPPED)
        elif sig != signal.SIGCONT:
            self.daemon.wait(seconds)

    def stop(self):
        """Leaves nothing: containers, processes, mounts, cgroups, namespace, folder."""
        if self.daemon and self.daemon.poll() is None:
            self.daemon.send_signal(signal.SIGCONT)
            self.remove_containers()
        for process in [self.daemon, *reversed(self.others)]:
            end_process(process)
        self.kill_leftovers()
        self.clean_mounts()
        self.clean_cgroups()
        self.clean_network()
        if self.place:
            shutil.rmtree(self.place, ignore_errors=True)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()

    # ---- talking to it ----

    def api(self, method, target, body=None, **kwargs):
        return request(self.socket, method, target, body, **kwargs)

    def answers(self):
        try:
            return self.api("GET", "/_ping", timeout=10).status == 200
        except (OSError, http.client.HTTPException):
            return False

    def load(self, archive):
        """Takes the images of an archive as of `docker save`."""
        with open(archive, "rb") as f:
            reply = self.api("POST", "/images/load", f, timeout=300,
                             headers={"Content-Type": "application/x-tar",
                                      "Content-Length": str(os.fstat(f.fileno()).st_size)})
        if not reply.ok or b"errorDetail" in reply.body:
            raise RuntimeError(f"load {archive}: {reply}")

    def labelled(self, label):
        """{kind: [names]} of the containers, volumes and networks that carry a label."""
        wanted = quote(json.dumps({"label": [label]}))
        names = lambda target, pick: sorted(pick(x) for x in self.api("GET", target).json() or [])
        volumes = self.api("GET", f"/volumes?filters={wanted}").json().get("Volumes") or []
        return {
            "containers": names(f"/containers/json?all=1&filters={wanted}", lambda c: c["Names"][0]),
            "volumes": sorted(v["Name"] for v in volumes),
            "networks": names(f"/networks?filters={wanted}", lambda n: n["Name"]),
        }

    def remove_containers(self):
        try:
            for box in self.api("GET", "/containers/json?all=1", timeout=20).json():
                self.api("DELETE", f"/containers/{box['Id']}?force=1&v=1")
        except (OSError, ValueError, http.client.HTTPException):
            pass  # a broken engine: its leftovers are ended below

    # ---- processes ----

    def spawn(self, *argv):
        """The engine works in its own folder: Podman's conmon writes a file `oom` where it was started."""
        with open(self.place / f"{argv[0]}.log", "ab") as log:
            argv = ["nsenter", f"--net=/run/netns/{self.name}", *map(str, argv)]
            return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.env(),
                                    cwd=self.place, start_new_session=True)

    def env(self):
        keep = {k: os.environ[k] for k in ("PATH", "LC_ALL") if k in os.environ}
        return {**keep, "HOME": str(self.place), "XDG_RUNTIME_DIR": str(self.place), "TMPDIR": str(self.place)}

    def wait_for(self, process, condition, what, seconds=60):
        end = time.monotonic() + seconds
        while not condition():
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"no answer on {what}: {self.log_tail()}")
            time.sleep(0.05)

    def log_tail(self):
        return " | ".join(f"{p.name}: {p.read_text(errors='replace')[-1500:]}" for p in self.place.glob("*.log"))

    def processes(self):
        """Those that name our folder or live in our cgroup: shims, conmons, and containers of a killed engine."""
        numbered = [p for p in Path("/proc").iterdir() if p.name.isdigit() and int(p.name) != os.getpid()]
        return [int(p.name) for p in numbered if self.owns(p)]

    def owns(self, proc):
        return any(self.name.encode() in ripcord_test.read_bytes(proc / name) for name in ("cmdline", "cgroup"))

    def memory(self):
        """RSS of the daemon and its helpers in MiB."""
        total = 0
        for process in [self.daemon, *self.others]:
            status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
            total += int(status.split("VmRSS:")[1].split()[0])
        return round(total / 1024, 1)

    def kill_leftovers(self):
        """Again and again: a supervisor may start another program while it is being ended."""
        end = time.monotonic() + 10
        while self.place and time.monotonic() < end:
            left = self.processes()
            if not left:
                return
            for pid in left:
                ripcord_test.kill_if(pid, self.owns)
            time.sleep(0.05)

    # ---- the kernel's part ----

    def make_network(self):
        run("ip", "netns", "add", self.name)
        run("ip", "-n", self.name, "link", "set", "lo", "up")
        if self.outside:
            self.connect_outside()

    @property
    def outside_address(self):
        """The machine's, as the engine's networks see it; with `outside` alone."""
        return f"10.213.{self.number}.1"

    def connect_outside(self):
        """A pair of interfaces and NAT on the machine's side."""
        near, far, net = f"rt{self.number}a", f"rt{self.number}b", f"10.213.{self.number}"
        run("ip", "link", "add", near, "type", "veth", "peer", "name", far, "netns", self.name)
        run("ip", "addr", "add", f"{net}.1/24", "dev", near)
        run("ip", "link", "set", near, "up")
        run("ip", "-n", self.name, "addr", "add", f"{net}.2/24", "dev", far)
        run("ip", "-n", self.name, "link", "set", far, "up")
        run("ip", "-n", self.name, "route", "add", "default", "via", f"{net}.1")
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1", encoding="ascii")
        run("iptables", "-w", "-t", "nat", "-A", "POSTROUTING", "-s", f"{net}.0/24", "-j", "MASQUERADE")

    def clean_network(self):
        if self.outside:
            quiet("iptables", "-w", "-t", "nat", "-D", "POSTROUTING", "-s", f"10.213.{self.number}.0/24", "-j",
                  "MASQUERADE")
        if Path(f"/run/netns/{self.name}").exists():
            quiet("ip", "netns", "del", self.name)

    def make_data(self):
        data = self.place / "data"
        data.mkdir()
        if self.size:
            disk = self.place / "data.img"
            with open(disk, "wb") as f:
                f.truncate(self.size << 20)
            run("mkfs.ext4", "-q", "-m", "0", "-F", disk)
            run("mount", "-o", "loop", disk, data)

    def clean_mounts(self):
        for _ in range(3):  # a mount below another shows only when that one is gone
            lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
            ours = [l.split()[4] for l in lines if self.name in l.split()[4]]
            for target in reversed(ours):
                quiet("umount", "-l", target)

    def clean_cgroups(self):
        for _ in range(20):  # the last process of one may just have been killed
            if not remove_cgroups(self.name):
                return
            time.sleep(0.02)


class Docker(Engine):
    """A dockerd with a containerd of its own."""

    kind = "docker"
    programs = ("dockerd", "containerd", "docker", "nsenter", "ip", "iptables")

    def prepare(self):
        config = self.place / "containerd.toml"
        config.write_text('version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n', encoding="ascii")
        (self.place / "daemon.json").write_text("{}\n", encoding="ascii")
        address = self.place / "containerd.sock"
        self.others.append(self.spawn("containerd", "--config", config, "--address", address,
                                      "--root", self.place / "containerd-root", "--state", self.place / "containerd-state"))
        self.wait_for(self.others[-1], address.exists, address)

    def command(self):
        (self.place / "docker.pid").unlink(missing_ok=True)  # left by a killed dockerd; its pid may be in use again
        return ["dockerd", "-H", self.host, "--containerd", self.place / "containerd.sock",
                "--data-root", self.place / "data", "--exec-root", self.place / "exec",
                "--pidfile", self.place / "docker.pid", "--config-file", self.place / "daemon.json",
                "--bridge", "none", "--exec-opt", "native.cgroupdriver=cgroupfs", "--cgroup-parent", f"/{self.name}", *self.flags]


class Gvisor(Docker):
    """A dockerd whose containers have gVisor's kernel: by default, and for `up` and `run` also by name."""

    kind = "gvisor"
    runtime = "runsc"

    @classmethod
    def program(cls):
        """The program that tools/gvisor/gvisor.py has built, or None."""
        tool = Path(__file__).resolve().parents[2] / "tools/gvisor/gvisor.py"
        said = subprocess.run([tool, "--no-build"], capture_output=True, text=True, check=False).stdout.strip()
        return said or None

    @classmethod
    def missing(cls):
        return super().missing() or (None if cls.program() else "no gVisor was built: tools/gvisor/gvisor.py")

    def prepare(self):
        super().prepare()
        runtimes = {"runsc": {"path": self.program(), "runtimeArgs": ["--platform=systrap"]}}
        (self.place / "daemon.json").write_text(json.dumps({"runtimes": runtimes, "default-runtime": "runsc"}), encoding="ascii")


CONTAINERS_CONF = """
[containers]
default_ulimits = ["nofile={nofile}:{nofile}", "nproc={nproc}:{nproc}"]
cgroups = "enabled"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
tmp_dir = "{place}/tmp"
static_dir = "{place}/data/libpod"
volume_path = "{place}/data/volumes"
image_copy_tmp_dir = "{place}/tmp"
network_cmd_path = ""
[network]
network_backend = "netavark"
network_config_dir = "{place}/networks"
"""
STORAGE_CONF = """
[storage]
driver = "overlay"
graphroot = "{place}/data"
runroot = "{place}/run"
"""


class Podman(Engine):
    """A Podman service. Its containers are kept by conmon processes, not by the service."""

    kind = "podman"
    programs = ("podman", "conmon", "runc", "nsenter", "ip", "iptables")

    def env(self):
        return {**super().env(), "CONTAINERS_CONF": str(self.place / "containers.conf"),
                "CONTAINERS_STORAGE_CONF": str(self.place / "storage.conf"),
                "CONTAINERS_REGISTRIES_CONF": str(self.place / "registries.conf")}

    def prepare(self):
        for folder in ("tmp", "run", "networks"):
            (self.place / folder).mkdir()
        # Podman's own defaults are above the hard limits of a machine without CAP_SYS_RESOURCE: no container starts.
        limits = {"nofile": hard_limit(resource.RLIMIT_NOFILE, 20000), "nproc": hard_limit(resource.RLIMIT_NPROC, 20000)}
        (self.place / "containers.conf").write_text(CONTAINERS_CONF.format(place=self.place, **limits), "ascii")
        (self.place / "storage.conf").write_text(STORAGE_CONF.format(place=self.place), "ascii")
        # Docker speaks HTTP to registries of this machine by itself.
        (self.place / "registries.conf").write_text('[[registry]]\nlocation = "127.0.0.1"\ninsecure = true\n', "ascii")

    def command(self):
        return ["podman", *self.flags, "system", "service", "--time", "0", self.host]

    def stop(self):
        if self.place and self.daemon and self.daemon.poll() is not None:
            subprocess.run(["nsenter", f"--net=/run/netns/{self.name}", "podman", *self.flags, "rm", "-f", "-a", "-t", "0"],
                           env=self.env(), check=False, capture_output=True, timeout=60)
        super().stop()

    def clean_cgroups(self):
        super().clean_cgroups()
        remove_cgroups(PODMAN_CGROUP)  # but for those of another Podman's containers


KINDS = {"docker": Docker, "podman": Podman, "gvisor": Gvisor}
SHARED = {}
LOCK = threading.Lock()


def shared(kind):
    """The engine that all tests of this run use; SkipTest with the reason when it cannot be here."""
    with LOCK:
        if kind not in SHARED:
            SHARED[kind] = KINDS[kind]().start()
        return SHARED[kind]


def stop_shared():
    with LOCK:
        while SHARED:
            SHARED.popitem()[1].stop()


def hard_limit(which, most):
    hard = resource.getrlimit(which)[1]
    return most if hard == resource.RLIM_INFINITY else min(most, hard)


def remove_cgroups(part):
    """Removes those whose path holds a word; returns what is in use."""
    left = [p for p, _, _ in os.walk("/sys/fs/cgroup", topdown=False) if part in p]
    for path in list(left):
        try:
            os.rmdir(path)
            left.remove(path)
        except OSError:
            pass
    return left


def run(*argv):
    done = subprocess.run([str(a) for a in argv], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, argv))}: {done.stderr.strip()}")


def quiet(*argv):
    subprocess.run([str(a) for a in argv], capture_output=True, check=False)


def end_process(process, seconds=30):
    if process is None or process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
