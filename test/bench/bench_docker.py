#!/usr/bin/env python3
"""Our commands on Docker beside the bare Engine API and the docker CLI doing the same, in one interleaved run.

    bench_docker.py --bin BUILD --out FILE [--rounds N] [--boxes N] [--engine docker|podman]

The bare API is a client without any of our checks: one connection a call, and only the calls that the work needs. It
shows what the engine itself costs; the docker CLI shows what people use today. All three make the same thing: a container
with these limits and these temporary file systems, and two volumes of its own, which go with it.
"""
import argparse
import itertools
import os
import socket
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "integration"))

import engines  # noqa: E402  (found through the line above)
from bench_lib import Contender, Goals, interleave, print_times, progress, write_json  # noqa: E402
from ripcord_test import Config, Root  # noqa: E402

HARD = {"Memory": 1 << 30, "MemorySwap": 1 << 30, "NanoCpus": 10**9, "PidsLimit": 300, "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges"], "NetworkMode": "none",
        "Tmpfs": {"/tmp": "size=128m", "/run": "size=32m", "/run/secrets": "size=4m", "/scratch": "size=512m"}}
VOLUMES = {"home": "/home/agent", "caches": "/cache"}
LIMITS = ["--memory", "1G", "--cpus", "1", "--pids", "300", "--network", "none"]
CONCURRENCIES = (1, 4, 8, 16)  # the best was 4 or 8 in the runs on record


class Bare:
    """The Engine API with nothing around it. A box here has the limits and the hardening that ours has."""

    def __init__(self, engine):
        self.engine, self.numbers = engine, itertools.count()

    def call(self, method, target, body=None):
        reply = self.engine.api(method, target, body, timeout=300)
        if reply.status >= 400:
            raise SystemExit(f"{method} {target}: {reply}")
        return reply

    def up(self):
        box = f"bare{next(self.numbers)}"
        host = {**HARD, "Binds": [f"{box}-{volume}:{target}" for volume, target in VOLUMES.items()]}
        body = {"Image": engines.IMAGE, "Cmd": ["sleep", "100000"], "User": "1000", "HostConfig": host}
        self.call("POST", f"/containers/create?name={box}", body)
        self.call("POST", f"/containers/{box}/start")
        return box

    def execute(self, box):
        """Create, hijacked start, read to the end, inspect: what anybody needs for an exit status."""
        made = self.call("POST", f"/containers/{box}/exec", {"Cmd": ["true"], "AttachStdout": True, "AttachStderr": True})
        ident = made.json()["Id"]
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(str(self.engine.socket))
            body = b'{"Detach":false,"Tty":false}'
            s.sendall(f"POST /exec/{ident}/start HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: Upgrade\r\n"
                      f"Upgrade: tcp\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
            while s.recv(65536):
                pass
        code = self.call("GET", f"/exec/{ident}/json").json()["ExitCode"]
        if code != 0:
            raise SystemExit(f"exec: {code}")

    def remove(self, box):
        self.call("DELETE", f"/containers/{box}?force=1&v=1")
        for volume in VOLUMES:
            self.call("DELETE", f"/volumes/{box}-{volume}")

    def up_exec_rm(self):
        box = self.up()
        self.execute(box)
        self.remove(box)

    def remove_all(self, boxes, concurrency):
        since = time.monotonic()
        with ThreadPoolExecutor(concurrency) as pool:
            list(pool.map(self.remove, boxes))
        return time.monotonic() - since


class Callable(Contender):
    """A contender that is a function of this program, not a program."""

    def __init__(self, name, function, every=1):
        super().__init__(name, [name], every)
        self.function = function

    def run_once(self):
        since = time.perf_counter_ns()
        self.function()
        return (time.perf_counter_ns() - since) / 1e6


class Bench:
    def __init__(self, opts, place):
        self.opts = opts
        self.engine = engines.KINDS[opts.engine]()
        self.bare = Bare(self.engine)
        self.root = Root(place)
        self.figures, self.goals, self.contenders = {}, Goals(), []

    def start(self):
        self.engine.start()
        Config.backend = self.engine
        self.root.configure("defaults.network: none\n")
        self.root.start()

    def ours(self, *args):
        return [Config.bin / "ripcord", *args]

    def script(self, *commands):
        """Several commands as one contender, without a shell's start in between."""
        text = " && ".join(" ".join(str(word) for word in command) for command in commands)
        return ["/bin/sh", "-c", text]

    def add(self, name, argv, every=1):
        self.contenders.append(Contender(name, argv, every, self.root.env()))

    # ---- one at a time ----

    def commands(self):
        cli = self.engine.cli
        self.root.ok("up", "box", *LIMITS)
        bare_box = self.bare.up()
        life = self.script(self.ours("up", "x", *LIMITS), self.ours("exec", "x", "--", "true"), self.ours("rm", "-f", "x"))
        cli_limits = ["--memory", "1g", "--cpus", "1", "--pids-limit", "300", "--network", "none", "--cap-drop", "ALL"]
        cli_limits += [f"--tmpfs={target}:{size}" for target, size in HARD["Tmpfs"].items()]
        cli_limits += [f"--volume=xx-{volume}:{target}" for volume, target in VOLUMES.items()]
        cli_life = self.script([*cli, "run", "-d", "--name", "xx", *cli_limits, engines.IMAGE, "sleep", "100000", ">/dev/null"],
                               [*cli, "exec", "xx", "true"], [*cli, "rm", "-f", "xx", ">/dev/null"],
                               [*cli, "volume", "rm", *(f"xx-{volume}" for volume in VOLUMES), ">/dev/null"])
        self.contenders.append(Callable("bare API: exec", lambda: self.bare.execute(bare_box)))
        self.add("ripcord exec", self.ours("exec", "box", "--", "true"))
        self.add("docker exec", [*cli, "exec", bare_box, "true"])
        self.contenders.append(Callable("bare API: up + exec + rm", self.bare.up_exec_rm, every=4))
        self.add("ripcord up + exec + rm", life, every=4)
        self.add("docker run -d + exec + rm", cli_life, every=4)
        interleave(self.contenders, self.opts.rounds)
        self.root.ok("rm", "-f", "box")
        self.bare.remove(bare_box)

    def compare(self):
        p50 = {c.name: c.summary()["p50"] for c in self.contenders}
        self.goals.add("ripcord exec / bare API", p50["ripcord exec"] / p50["bare API: exec"], "x", 1.1, True)
        self.goals.add("ripcord exec / docker exec", p50["ripcord exec"] / p50["docker exec"], "x", 1.0, True)
        self.goals.add("up + exec + rm / bare API", p50["ripcord up + exec + rm"] / p50["bare API: up + exec + rm"], "x", 1.5, True)
        self.goals.add("up + exec + rm / docker CLI", p50["ripcord up + exec + rm"] / p50["docker run -d + exec + rm"], "x", 1.0, True)

    # ---- many removals ----

    def make_bare(self):
        with ThreadPoolExecutor(4) as pool:
            return list(pool.map(lambda _: self.bare.up(), range(self.opts.boxes)))

    def remove_bare(self, concurrency):
        return self.bare.remove_all(self.make_bare(), concurrency)

    def remove_ours(self):
        names = [f"n{i}" for i in range(self.opts.boxes)]
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda name: self.root.ok("up", name, *LIMITS, timeout=300), names))
        since = time.monotonic()
        self.root.ok("rm", "-f", *names, timeout=600)
        return time.monotonic() - since

    def removals(self):
        """There and back again: an engine that slows down as it works does so for all of them alike."""
        n = self.opts.boxes
        ways = {f"{n} removals, bare API, {c} at a time, s": partial(self.remove_bare, c) for c in CONCURRENCIES}
        ways[ours := f"{n} removals, ripcord rm -f, s"] = self.remove_ours
        times = {way: [] for way in ways}
        for way in (*ways, *reversed(ways)):
            progress(way)
            os.sync()
            times[way].append(round(ways[way](), 2))
        mean = {way: statistics.fmean(t) for way, t in times.items()}
        alone, *bare = (mean[way] for way in ways if way != ours)
        self.figures.update(times)
        self.goals.add(f"{n} removals / bare API at its best", mean[ours] / min(alone, *bare), "x", 1.1, True)
        self.goals.add(f"one by one / {n} removals", alone / mean[ours], "x", 1.8, False)

    def close(self):
        problems = self.root.close() if self.engine.daemon else []
        self.engine.stop()
        return problems


def options():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("--bin", type=Path, required=True)
    p.add_argument("--out", type=Path, required=True)
    p.add_argument("--rounds", type=int, default=60)
    p.add_argument("--boxes", type=int, default=200)
    p.add_argument("--engine", default="docker", choices=list(engines.KINDS))
    return p.parse_args()


def main():
    opts = options()
    Config.bin, Config.engine = opts.bin.resolve(), "docker"
    reason = engines.KINDS[opts.engine].missing()
    if reason:
        raise SystemExit(f"bench: {reason}")
    with tempfile.TemporaryDirectory(prefix="ripcord-bench-") as place:
        bench = Bench(opts, place)
        problems = []
        try:
            bench.start()
            bench.commands()
            bench.compare()
            bench.removals()
        finally:
            problems = bench.close()
    print_times(bench.contenders)
    print()
    for what, value in bench.figures.items():
        print(f"{what:54}{value!s:>14}")
    bench.goals.print()
    write_json(opts.out, {"engine": opts.engine, "times": {c.name: c.summary() for c in bench.contenders},
                          "figures": bench.figures, "goals": bench.goals.rows})
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
