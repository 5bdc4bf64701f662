#!/usr/bin/env python3
"""Another build of ripcord beside this one: `run`, `exec` and `image build`, in turns within one run.

    ./dev bench compare --old FOLDER    FOLDER holds the programs of the other version, built in the same way

A change that should cost nothing is measured so: the ratio says what it costs, whatever the machine does meanwhile.
"""
import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bench_lib import Contender, Goals, interleave, print_times, write_json

DOCKERFILE = "FROM host\nCOPY a /srv/a\nRUN cat /srv/a >/srv/b\nRUN echo done >>/srv/b\nUSER agent\n"


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--bin", type=Path, required=True)
    p.add_argument("--old", type=Path, required=True, help="folder with the other version's programs")
    p.add_argument("--out", type=Path, required=True)
    p.add_argument("--rounds", type=int, default=300)
    p.add_argument("--bound", type=float, default=1.03, help="the largest ratio that counts as equal (default 1.03)")
    return p.parse_args()


class Version:
    """One build with a root and a daemon of its own."""

    def __init__(self, name, programs, place):
        self.name, self.ripcord = name, programs.resolve() / "ripcord"
        self.env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "RIPCORD_ROOT": str(place / name)}
        self.context = place / f"context-{name}"
        self.context.mkdir()
        (self.context / "Dockerfile").write_text(DOCKERFILE)
        (self.context / "a").write_text("a\n")

    def call(self, *argv):
        subprocess.run([self.ripcord, *argv], env=self.env, check=True, stdout=subprocess.DEVNULL)

    def contender(self, what, *argv, every=1):
        quiet = ["sh", "-c", 'exec "$@" 2>/dev/null', "sh"] if "image" in argv else []
        return Contender(f"{what}, {self.name}", [*quiet, self.ripcord, *argv], every, self.env)

    def contenders(self):
        return {"run": self.contender("run", "run", "--", "true"),
                "exec": self.contender("exec", "exec", "box", "--", "true"),
                "image build, cached": self.contender("image build, cached", "image", "build", "-t", "x", self.context, every=2),
                "image build, whole": self.contender("image build, whole", "image", "build", "--no-cache", "-t", "y", self.context,
                                                     every=4)}

    def stop(self):
        subprocess.run([self.ripcord, "rm", "-f", "box"], env=self.env, check=False, stdout=subprocess.DEVNULL)
        lock = Path(self.env["RIPCORD_ROOT"]) / "run" / "daemon.lock"
        if lock.exists():
            os.kill(int(lock.read_text()), 15)


def main():
    opts = options()
    goals = Goals()
    with tempfile.TemporaryDirectory(prefix="ripcord-compare-", ignore_cleanup_errors=True) as name:
        old, new = (Version(n, p, Path(name)) for n, p in (("old", opts.old), ("new", opts.bin)))
        try:
            for version in (old, new):
                version.call("up", "box")
            before, after = old.contenders(), new.contenders()
            contenders = [c for what in before for c in (before[what], after[what])]
            interleave(contenders, opts.rounds)
        finally:
            for version in (old, new):
                version.stop()
    print_times(contenders)
    for what in before:
        goals.add(f"{what}: new / old", after[what].summary()["p50"] / before[what].summary()["p50"], "x", opts.bound, True)
    goals.print()
    write_json(opts.out, {"times": {c.name: c.summary() for c in contenders}, "goals": goals.rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
