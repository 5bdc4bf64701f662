"""A Docker engine for one benchmark: own network namespace, containerd, data folder and socket, gone afterwards.

The namespace is not a detail: a second dockerd in the host's would reconfigure or delete the bridge of the
first. nsenter rather than `ip netns exec`, which remounts /sys and so hides the cgroups from dockerd.
"""
import os
import shutil
import signal
import subprocess
import tarfile
import time
from pathlib import Path

IMAGE = "bench-busybox"


def make_rootfs(place):
    """A busybox root file system, for runc and as the image."""
    busybox = shutil.which("busybox")
    (place / "bin").mkdir(parents=True)
    for folder in ("proc", "sys", "dev", "tmp", "etc"):
        (place / folder).mkdir()
    shutil.copy2(os.path.realpath(busybox), place / "bin" / "busybox")
    for name in ("sh", "true", "sleep", "cat"):
        (place / "bin" / name).symlink_to("busybox")
    return place


class DockerEngine:
    """start(), then `cli` is the beginning of a docker command line; stop() in any case."""

    def __init__(self, place):
        self.place = place
        self.netns = f"ripcord-bench-{os.getpid()}"
        self.socket = place / "docker.sock"
        self.cli = ["docker", "-H", f"unix://{self.socket}"]
        self.started = []

    def start(self, rootfs):
        subprocess.run(["ip", "netns", "add", self.netns], check=True)
        containerd = self.place / "containerd.sock"
        self.spawn("containerd", "--root", self.place / "cd-root", "--state", self.place / "cd-state",
                   "--address", containerd, "--config", self.containerd_config())
        self.wait_for(containerd)
        self.spawn("dockerd", "-H", f"unix://{self.socket}", "--containerd", containerd,
                   "--data-root", self.place / "data", "--exec-root", self.place / "exec",
                   "--pidfile", self.place / "docker.pid", "--bridge", "none", "--iptables=false",
                   "--ip6tables=false", "--cgroup-parent", f"/{self.netns}", "--config-file", self.docker_config())
        self.wait_for(self.socket)
        self.import_image(rootfs)

    def containerd_config(self):
        path = self.place / "containerd.toml"
        path.write_text('version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n')
        return path

    def docker_config(self):
        path = self.place / "daemon.json"
        path.write_text("{}\n")
        return path

    def spawn(self, *argv):
        with open(self.place / f"{argv[0]}.log", "wb") as log:
            argv = ["nsenter", f"--net=/run/netns/{self.netns}", *map(str, argv)]
            self.started.append(subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log))

    def wait_for(self, path):
        for _ in range(600):
            if path.exists() and (path != self.socket or self.answers()):
                return
            if self.started[-1].poll() is not None:
                break
            time.sleep(0.05)
        log = sorted(self.place.glob("*.log"), key=lambda p: p.stat().st_mtime)[-1]
        raise RuntimeError(f"no answer on {path}: {log.read_text()[-2000:]}")

    def answers(self):
        return subprocess.run([*self.cli, "version"], capture_output=True, check=False).returncode == 0

    def import_image(self, rootfs):
        archive = self.place / "image.tar"
        with tarfile.open(archive, "w") as tar:
            tar.add(rootfs, arcname=".")
        subprocess.run([*self.cli, "import", archive, IMAGE], check=True, stdout=subprocess.DEVNULL)

    def run_box(self, name):
        """A container that stays, for docker exec."""
        subprocess.run([*self.cli, "run", "-d", "--network", "none", "--name", name, IMAGE, "/bin/sleep", "100000"],
                       check=True, stdout=subprocess.DEVNULL)

    def memory(self):
        """RSS of dockerd and containerd in MiB."""
        total = 0
        for p in self.started:
            status = Path(f"/proc/{p.pid}/status").read_text(encoding="utf-8")
            total += int(status.split("VmRSS:")[1].split()[0])
        return round(total / 1024, 1)

    def stop(self):
        if self.answers():
            names = subprocess.run([*self.cli, "ps", "-aq"], capture_output=True, text=True, check=False).stdout.split()
            if names:
                subprocess.run([*self.cli, "rm", "-f", *names], check=False, stdout=subprocess.DEVNULL)
        for p in reversed(self.started):
            p.send_signal(signal.SIGTERM)
            try:
                p.wait(30)
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()
        self.clean_kernel()

    def clean_kernel(self):
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
        for target in reversed([l.split()[4] for l in lines if str(self.place) in l.split()[4]]):
            subprocess.run(["umount", "-l", target], check=False)
        for path, _, _ in os.walk("/sys/fs/cgroup", topdown=False):
            if path.endswith("/" + self.netns):
                os.rmdir(path)
        subprocess.run(["ip", "netns", "del", self.netns], check=False)
