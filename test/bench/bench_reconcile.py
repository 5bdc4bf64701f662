#!/usr/bin/env python3
"""Reconcile after a crash: leftovers on a real Docker and on the native engine, in one run on one machine.

    bench_reconcile.py --bin BUILD --out FILE [--boxes 200] [--busy 20] [--stuck 5] [--native 1000] [--concurrency 2,4,8]

Docker: of BOXES containers of this root that the store does not know, removed first one by one through the bare API, then
by the daemon as it starts, beside BUSY sandboxes that run a command; STUCK of them cannot be removed. Native: leftovers of
a daemon and its supervisors that were killed.
"""
import argparse
import json
import os
import re
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "integration"))

import engines  # noqa: E402  (found through the line above)
from bench_lib import Goals, progress, write_json  # noqa: E402
from ripcord_test import Config, Root, wait_until  # noqa: E402

FILES = 20  # that each sandbox has written


def edit_store(root, statement):
    store = sqlite3.connect(root.path / "state" / "ripcord.db")
    store.execute("PRAGMA foreign_keys = ON")
    with store:
        store.execute(statement)
    store.close()


def wait_for(condition, seconds, what):
    """Asks seldom: an answer about 200 objects takes the processors from what is measured."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"bench: waited {seconds} s for {what}")
        time.sleep(0.1)


def report_of(root):
    return root.get("/v1/reconcile")["reconcile"]


class DockerPart:
    def __init__(self, opts, place):
        self.opts, self.engine = opts, engines.Docker()
        self.root = Root(place)
        self.figures = {}

    def start(self):
        self.engine.start()
        Config.backend, Config.engine = self.engine, "docker"
        self.configure(None)
        self.root.start()

    def configure(self, at_once):
        self.root.configure("defaults.network: none\n" + (f"reconcile.docker: {at_once}\n" if at_once else ""))

    def ours(self):
        return [n.lstrip("/") for n in self.engine.labelled(f"ripcord.root={self.root.root_id}")["containers"]]

    def volumes(self):
        return self.engine.labelled(f"ripcord.root={self.root.root_id}")["volumes"]

    def stale(self):
        return [n for n in self.ours() if re.search(r"-n\d+$", n)]

    def make(self, count):
        """Sandboxes that the store then forgets; the daemon is gone afterwards."""
        names = [f"n{i}" for i in range(count)]
        script = f"for i in $(seq {FILES}); do echo x > /home/agent/f$i; done"
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda n: self.root.ok("up", n, timeout=600), names))
            list(pool.map(lambda n: self.root.ok("exec", n, "--", "sh", "-c", script, timeout=600), names[: count // 10]))
        self.root.kill_daemon()
        edit_store(self.root, "DELETE FROM sandboxes WHERE name LIKE 'n%'")

    def volumes_of(self, name):
        mounts = self.engine.api("GET", f"/containers/{name}/json").json()["Mounts"]
        return [m["Name"] for m in mounts if m["Type"] == "volume"]

    def one_by_one(self):
        progress("one by one")
        self.make(self.opts.boxes)
        volumes = {name: self.volumes_of(name) for name in self.stale()}
        since = time.monotonic()
        for name in self.stale():
            for target in (f"/containers/{name}?force=1&v=1", *(f"/volumes/{volume}" for volume in volumes[name])):
                reply = self.engine.api("DELETE", target, timeout=300)
                if reply.status >= 400:
                    raise SystemExit(f"bench: {target}: {reply}")
        took = time.monotonic() - since
        self.root.start()
        wait_for(lambda: not self.stale() and not self.volumes(), 600, "the rest to go")
        return took

    def by_daemon(self, at_once):
        """Seconds until the API answers, and until all are gone."""
        progress(f"by the daemon, {at_once or 'as configured'} at a time")
        self.make(self.opts.boxes)
        self.configure(at_once)
        since = time.monotonic()
        self.root.ok("ls")
        answered = time.monotonic() - since
        wait_for(self.is_empty, 900, "the leftovers to go")
        took = time.monotonic() - since
        if self.stale() or self.volumes():
            raise SystemExit(f"bench: no folders, but there: {self.stale()} {self.volumes()}")
        return answered, took

    def is_empty(self):
        """By the engine's own folders: its list of 200 containers takes as long as a removal."""
        data = self.engine.place / "data"
        return not any((data / "containers").iterdir()) and not any(p.is_dir() for p in (data / "volumes").iterdir())

    def with_busy_and_stuck(self, goals):
        busy = [f"b{i}" for i in range(self.opts.busy)]
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda n: self.root.ok("up", n, timeout=600), busy))
        execs = {n: self.root.ok("exec", n, "--detach", "--", "sleep", "100000").text.split()[0] for n in busy}
        self.make(self.opts.boxes)
        stuck = self.stale()[: self.opts.stuck]
        folders = [self.engine.api("GET", f"/containers/{n}/json").json()["GraphDriver"]["Data"]["UpperDir"] for n in stuck]
        subprocess.run(["chattr", "+i", *folders], check=True)
        try:
            since = time.monotonic()
            self.root.ok("ls")
            answered = time.monotonic() - since
            wait_for(lambda: len(self.stale()) == len(stuck), 900, "all but the stuck ones to go")
            took = time.monotonic() - since
            wait_for(lambda: not report_of(self.root)["running"] and report_of(self.root)["counts"]["failed"], 60, "the report")
            failed = [r for r in report_of(self.root)["results"] if r["result"] == "failed"]
            named = [r for r in failed if "operation not permitted" in (r["reason"] or "").lower()]
            alive = sum(self.root.exec_info(n, x)["state"] == "running" for n, x in execs.items())
        finally:
            subprocess.run(["chattr", "-i", *folders], check=False)
        self.figures["example of a failure"] = (failed or [{"reason": None}])[0]["reason"]
        goals.add("API answers after the start", answered, "s", 1.0, True)
        goals.add(f"stuck ones named with the engine's reason (of {len(stuck)})", len(named), "", len(stuck), False)
        goals.add(f"busy ones that run on (of {len(busy)})", alive, "", len(busy), False)
        wait_for(lambda: not self.stale(), 120, "the retry of the stuck ones")
        self.root.ok("rm", "-f", *busy, timeout=600)
        return took

    def run(self, goals):
        """There and back again: an engine that slows down as it works does so for all of them alike."""
        self.start()
        ways = [1, *self.opts.concurrency, None]
        times, answers = {way: [] for way in ways}, []
        for way in (*ways, *reversed(ways)):
            os.sync()
            if way == 1:
                times[way].append(self.one_by_one())
            else:
                answered, took = self.by_daemon(way)
                answers.append(answered)
                times[way].append(took)
        self.configure(None)
        answered = max(answers)
        alone, took = statistics.fmean(times[1]), statistics.fmean(times[None])
        busy = self.with_busy_and_stuck(goals)
        n = self.opts.boxes
        names = {1: "bare API one by one", None: "as configured", **{c: f"{c} at a time" for c in self.opts.concurrency}}
        self.figures.update({f"{n} leftovers, {names[way]}, s": [round(x, 2) for x in t] for way, t in times.items()})
        self.figures[f"{n} leftovers beside {self.opts.busy} busy ones, s"] = round(busy, 2)
        self.figures["first answer of the API at the latest, s"] = round(answered, 3)
        goals.add(f"one by one / {n} leftovers by the daemon", alone / took, "x", 1.8, False)

    def close(self):
        problems = self.root.close() if self.engine.daemon else []
        self.engine.stop()
        Config.backend = None
        return problems


class NativePart:
    """COUNT sandboxes, everything of ours killed, the rows gone: cgroups, folders and sockets are all that is left."""

    def __init__(self, opts, place):
        self.opts = opts
        Config.backend, Config.engine = None, "native"
        self.root = Root(place)

    def kill_all(self):
        self.root.kill_daemon()
        while True:
            left = [p for p in self.root.processes() if p != os.getpid()]
            if not left:
                return
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass

    def measure(self, at_once):
        progress(f"{self.opts.native} native leftovers, {at_once or 'as configured'} at a time")
        self.root.configure(f"reconcile.native: {at_once}\n" if at_once else "")
        self.root.start()
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda i: self.root.ok("up", f"n{i}", "--network", "none", timeout=600), range(self.opts.native)))
        self.kill_all()
        edit_store(self.root, "DELETE FROM sandboxes")
        folder = self.root.path / "state" / "sandboxes"
        since = time.monotonic()
        self.root.ok("ls")
        answered = time.monotonic() - since
        wait_until(lambda: not any(folder.iterdir()) and not self.root.cgroups(), 300, "the leftovers to go")
        return answered, time.monotonic() - since

    def run(self, goals, figures):
        n = self.opts.native
        for c in self.opts.concurrency:
            figures[f"native: {n} leftovers, {c} at a time, s"] = round(self.measure(c)[1], 2)
        answered, took = self.measure(None)
        figures[f"native: {n} leftovers, as configured, s"] = round(took, 2)
        figures["native: first answer of the API, s"] = round(answered, 3)
        goals.add(f"native: {n} leftovers gone", took, "s", 5.0, True)
        return self.root.close()


def options():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("--bin", type=Path, required=True)
    p.add_argument("--out", type=Path, required=True)
    p.add_argument("--boxes", type=int, default=200)
    p.add_argument("--busy", type=int, default=20)
    p.add_argument("--stuck", type=int, default=5)
    p.add_argument("--native", type=int, default=1000)
    p.add_argument("--concurrency", type=lambda s: [int(n) for n in s.split(",") if n], default=[2, 4, 8])
    return p.parse_args()


def main():
    opts = options()
    Config.bin = opts.bin.resolve()
    reason = engines.Docker.missing()
    if reason:
        raise SystemExit(f"bench: {reason}")
    goals, problems = Goals(), []
    with tempfile.TemporaryDirectory(prefix="ripcord-bench-") as place, tempfile.TemporaryDirectory(prefix="ripcord-bench-") as other:
        part = DockerPart(opts, place)
        try:
            if opts.boxes:
                part.run(goals)
        finally:
            problems += part.close()
        if opts.native:
            problems += NativePart(opts, other).run(goals, part.figures)
    for what, value in part.figures.items():
        print(f"{what:54}{value!s:>14}")
    goals.print()
    write_json(opts.out, {"figures": part.figures, "goals": goals.rows, "options": json.loads(json.dumps(vars(opts), default=str))})
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
