#!/usr/bin/env python3
"""How long `ripcord version` takes to start, against C programs that do nothing."""
import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from bench_lib import Contender, Goals, interleave, print_times, write_json


def options():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--bin", type=Path, required=True)
    p.add_argument("--out", type=Path, required=True)
    p.add_argument("--rounds", type=int, default=500)
    return p.parse_args()


def compile_nothing(place):
    source = place / "nothing.c"
    source.write_text("int main(void) { return 0; }\n")
    for name, flags in (("dynamic", []), ("static", ["-static"])):
        subprocess.run(["cc", "-O2", *flags, "-o", place / name, source], check=True)


def main():
    opts = options()
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        compile_nothing(place)
        dynamic = Contender("nothing, dynamic", [place / "dynamic"])
        static = Contender("nothing, static", [place / "static"])
        ours = Contender("ripcord version", [opts.bin.resolve() / "ripcord", "version"])
        contenders = [dynamic, static, ours]
        interleave(contenders, opts.rounds)
    print_times(contenders)
    goals = Goals()
    p50 = {c.name: c.summary()["p50"] for c in contenders}
    goals.add("ripcord version / a C program that does nothing", p50[ours.name] / p50[dynamic.name], "x", 1.5, True)
    goals.print()
    write_json(opts.out, {"times": {c.name: c.summary() for c in contenders}, "goals": goals.rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
