#!/usr/bin/env python3
"""The native engine beside bare fork+exec, bubblewrap, runc and Docker, in one interleaved run.

    bench_native.py --bin BUILD --out FILE [--rounds N] [--boxes N] [--full] [--no-docker]
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "integration"))

import engines  # noqa: E402
from bench_lib import Contender, Goals, interleave, print_times, progress, summary, write_json  # noqa: E402
from ripcord_test import Config, Root  # noqa: E402

BWRAP = ["bwrap", "--unshare-all", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib",
         "/lib", "--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", "--", "/usr/bin/true"]


def options():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("--bin", type=Path, required=True)
    p.add_argument("--out", type=Path, required=True)
    p.add_argument("--rounds", type=int, default=200)
    p.add_argument("--boxes", type=int, default=200)
    p.add_argument("--full", action="store_true", help="1,000 sandboxes and more rounds")
    p.add_argument("--no-docker", action="store_true")
    opts = p.parse_args()
    if opts.full:
        opts.rounds, opts.boxes = 500, 1000
    return opts


def busybox_rootfs(place):
    """The smallest root file system that runc can start something in."""
    for folder in ("bin", "proc", "sys", "dev", "tmp", "etc"):
        (place / folder).mkdir(parents=True)
    shutil.copy2(os.path.realpath(shutil.which("busybox")), place / "bin" / "busybox")
    (place / "bin" / "true").symlink_to("busybox")


def runc_bundle(place):
    """The bundle of `runc spec` with `true` as its command and no terminal."""
    busybox_rootfs(place / "rootfs")
    subprocess.run(["runc", "spec", "--bundle", place], check=True)
    spec = json.loads((place / "config.json").read_text())
    spec["process"].update(terminal=False, args=["/bin/true"])
    (place / "config.json").write_text(json.dumps(spec))
    return ["runc", "--root", place / "state", "run", "--bundle", place, f"bench-{os.getpid()}"]


class Bench:
    def __init__(self, opts, place):
        self.opts, self.place = opts, place
        self.root = Root(place / "root")
        (place / "root").mkdir()
        self.docker = None
        self.figures = {}
        self.goals = Goals()
        self.contenders = []

    def ripcord(self, *args):
        return [Config.bin / "ripcord", *args]

    # ---- the contenders ----

    def add(self, name, argv, every=1):
        self.contenders.append(Contender(name, argv, every, self.root.env()))

    def prepare(self):
        self.root.start()
        self.root.ok("up", "a")
        self.add("fork+exec of /usr/bin/true", ["/usr/bin/true"])
        self.add("ripcord exec", self.ripcord("exec", "a", "--", "true"))
        self.add("ripcord run", self.ripcord("run", "--", "true"))
        if shutil.which("bwrap"):
            self.add("bwrap --unshare-all", BWRAP)
        if shutil.which("runc"):
            bundle = self.place / "runc"
            bundle.mkdir()
            self.add("runc run", runc_bundle(bundle), every=4)
        if not engines.Docker.missing() and not self.opts.no_docker:
            self.prepare_docker()

    def prepare_docker(self):
        self.docker = engines.Docker().start()
        cli = self.docker.cli
        subprocess.run([*cli, "run", "-d", "--network", "none", "--name", "box", engines.IMAGE, "/bin/sleep", "100000"],
                       check=True, stdout=subprocess.DEVNULL)
        self.figures["dockerd + containerd RSS, MiB"] = self.docker.memory()
        self.add("docker run --rm", [*cli, "run", "--rm", "--network", "none", engines.IMAGE, "/bin/true"], every=10)
        self.add("docker exec", [*cli, "exec", "box", "/bin/true"], every=10)

    # ---- what is measured ----

    def start_and_exec(self):
        interleave(self.contenders, self.opts.rounds)
        p50 = {c.name: c.summary()["p50"] for c in self.contenders}
        run, execute = p50["ripcord run"], p50["ripcord exec"]
        ratio = lambda name, ours: p50[name] / ours if name in p50 else None
        if "bwrap --unshare-all" in p50:
            self.goals.add("ripcord run / bwrap --unshare-all", run / p50["bwrap --unshare-all"], "x", 1.3, True)
        self.goals.add("docker run --rm / ripcord run", ratio("docker run --rm", run), "x", 25, False)
        self.goals.add("ripcord exec / fork+exec", execute / p50["fork+exec of /usr/bin/true"], "x", 5, True)
        self.goals.add("docker exec / ripcord exec", ratio("docker exec", execute), "x", 15, False)

    def throughput(self):
        """The journal alone, and all the way through a pipe to another process."""
        size = 2 << 30
        exec_id = self.root.ok("exec", "a", "--detach", "--", "head", "-c", str(size), "/dev/zero").text.split()[0]
        while self.root.exec_info("a", exec_id)["state"] != "ended":
            time.sleep(0.02)
        end = self.root.exec_info("a", exec_id)["end"]
        journal = end["stdout_bytes"] / end["wall_ms"] / 1e6
        since = time.monotonic()
        with self.root.popen("exec", "a", "--", "head", "-c", str(size), "/dev/zero") as p, \
                subprocess.Popen(["cat"], stdin=p.stdout, stdout=subprocess.DEVNULL) as reader:
            p.stdout.close()
            reader.wait()
        client = size / (time.monotonic() - since) / 1e6
        self.figures.update({"journal, GB/s": round(journal, 2), "client, MB/s": round(client)})
        self.goals.add("exec output into the journal", journal, "GB/s", 1.0, False)
        self.goals.add("exec output to a client", client, "MB/s", 500, False)

    def own_memory(self):
        """PSS of all shims and inits in KiB: what is shared by n sandboxes counts for each with its nth part."""
        time.sleep(2)  # idle means that nothing has happened for a second
        daemon = self.root.daemon_pid()
        return sum(rollup(pid, "Pss") for pid in self.root.processes() if pid != daemon)

    def spares_memory(self):
        """PSS of the shims that wait for a sandbox."""
        pids = [pid for task in Path(f"/proc/{self.root.daemon_pid()}/task").iterdir()
                for pid in (task / "children").read_text().split()]
        return sum(rollup(pid, "Pss") for pid in pids if b"spare" in Path(f"/proc/{pid}/cmdline").read_bytes())

    def memory(self):
        alone = self.own_memory()
        self.figures["the only sandbox, idle: PSS of shim and init, KiB"] = alone
        self.figures["shims that wait for a sandbox: PSS, KiB"] = self.spares_memory()
        self.goals.add("idle sandbox, the only one: PSS of shim + init", alone, "KiB", 256, True)
        self.daemon_memory("idle", 6)

    def daemon_memory(self, when, goal):
        mib = rollup(self.root.daemon_pid(), "Anonymous") / 1024
        self.figures[f"daemon, anonymous memory {when}, MiB"] = round(mib, 2)
        self.goals.add(f"daemon: anonymous memory {when}", mib, "MiB", goal, True)

    def many(self):
        """N sandboxes up through the API by four clients, then all removed by one command."""
        names = [f"n{i}" for i in range(self.opts.boxes)]
        free = available()
        since = time.monotonic()
        with ThreadPoolExecutor(4) as pool:
            times = list(pool.map(self.create_one, names))
        rate = len(names) / (time.monotonic() - since)
        latency = summary(times)
        per_box = (free - available()) / len(names)
        self.daemon_memory(f"with {len(names)} sandboxes", 20)
        pss = self.own_memory() / (len(names) + 1)
        self.figures[f"one of {len(names) + 1}, idle: PSS of shim and init, KiB"] = round(pss)
        self.goals.add(f"idle sandbox, one of {len(names) + 1}: PSS of shim + init", pss, "KiB", 256, True)
        since = time.monotonic()
        self.root.ok("rm", "-f", *names, timeout=600)
        removed = time.monotonic() - since
        self.figures.update({"sandboxes": len(names), "created per second": round(rate, 1), "create latency, ms": latency,
                             "all removed, s": round(removed, 2), "all memory per sandbox, KiB": round(per_box)})
        self.goals.add(f"{len(names)} sandboxes: created per second", rate, "/s", 150, False)
        self.goals.add(f"{len(names)} sandboxes: create latency p99", latency["p99"], "ms", 40, True)
        self.goals.add(f"{len(names)} sandboxes: all removed", removed, "s", 3 * len(names) / 1000, True)

    def create_one(self, name):
        since = time.perf_counter_ns()
        reply = self.root.http("PUT", f"/v1/sandboxes/{name}", {"limits": {"memory": 64 << 20}})
        if reply.status != 201:
            raise SystemExit(f"create {name}: {reply}")
        return (time.perf_counter_ns() - since) / 1e6

    def remove_stale(self):
        """Sandboxes that hold a thousand files each: until the command returns, and until the last file is gone."""
        names = [f"s{i}" for i in range(200 if self.opts.full else 40)]
        for i, name in enumerate(names):
            self.create_one(name)
            self.root.ok("exec", name, "--", "sh", "-c", "for i in $(seq 1000); do : > f$i; done")
            progress(f"stale sandbox {i + 1} of {len(names)}")
        self.root.ok("stop", *names, timeout=600)
        since = time.monotonic()
        self.root.ok("rm", *names, timeout=600)
        returned = time.monotonic() - since
        trash = self.root.path / "state" / "trash"
        while any(trash.iterdir()):
            time.sleep(0.01)
        gone = time.monotonic() - since
        what = f"{len(names)} stopped sandboxes of 1,000 files removed"
        self.figures.update({f"{what}: command, s": round(returned, 2), f"{what}: last file, s": round(gone, 2)})
        self.goals.add(f"{what} (command returns)", returned, "s", len(names) / 200, True)

    def hogs(self):
        """`ripcord ls` while other sandboxes do their worst."""
        hogs = {"forks": "while :; do (sleep 9 &) ; done", "output": "yes", "files": "cd /tmp; i=0; while :; do : > $((i+=1)); done",
                "cpu": "while :; do :; done"}
        for name, command in hogs.items():
            self.root.ok("up", f"hog-{name}", "--cpus", "1")
            self.root.ok("exec", f"hog-{name}", "--detach", "--", "sh", "-c", command)
        time.sleep(1)
        ls = Contender("ripcord ls beside 4 hogs", self.ripcord("ls"), 1, self.root.env())
        for _ in range(100):
            ls.times.append(ls.run_once())
        self.root.ok("rm", "-f", *[f"hog-{name}" for name in hogs], timeout=60)
        self.contenders.append(ls)
        self.goals.add("ripcord ls beside 4 hogs, p99", ls.summary()["p99"], "ms", 100, True)

    def close(self):
        if self.docker:
            self.docker.stop()
        return self.root.close()


def rollup(pid, field):
    """A KiB figure of /proc/PID/smaps_rollup."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8")
    return int(re.search(rf"^{field}:\s+(\d+) kB", text, re.M).group(1))


def available():
    """MemAvailable in KiB."""
    text = Path("/proc/meminfo").read_text(encoding="utf-8")
    return int(re.search(r"^MemAvailable:\s+(\d+)", text, re.M).group(1))


def measure(bench):
    """One part after the other, each on a disk that has written what the part before left it: journals of gigabytes."""
    bench.prepare()
    for part in (bench.memory, bench.start_and_exec, bench.throughput, bench.many, bench.remove_stale, bench.hogs):
        os.sync()
        part()


def main():
    opts = options()
    Config.bin = opts.bin.resolve()
    with tempfile.TemporaryDirectory(prefix="ripcord-bench-") as name:
        bench = Bench(opts, Path(name))
        try:
            measure(bench)
        finally:
            problems = bench.close()
    print_times(bench.contenders)
    print()
    for what, value in bench.figures.items():
        print(f"{what:54}{value!s:>14}")
    bench.goals.print()
    write_json(opts.out, {"times": {c.name: c.summary() for c in bench.contenders}, "figures": bench.figures,
                          "goals": bench.goals.rows})
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
