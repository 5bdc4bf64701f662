#!/usr/bin/env python3
"""Runs the tests of the packages in build/dist, which `./dev dist` has made: a line for each.

    test/dist/run.py [--dist DIR] [--only tarball,debian,image,same,machine] [--without MODULES] [-k WORD]

Ends with `N passed, N failed, N skipped`; status 1 when one failed.
"""
import argparse
import os
import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "integration"), str(HERE)]

import run as integration  # noqa: E402  (found through the line above)


def options():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("--dist", type=Path, default=HERE.parents[1] / "build" / "dist", help="folder of the packages (default: build/dist)")
    p.add_argument("--only", metavar="MODULES", help="only these, e.g. tarball,debian")
    p.add_argument("--without", metavar="MODULES", default="", help="all but these")
    p.add_argument("-k", metavar="WORD", action="append", default=[], help="only tests whose name holds WORD")
    p.add_argument("--jobs", type=int, default=2)
    return p.parse_args()


def main():
    opts = options()
    os.environ["RIPCORD_DIST"] = str(opts.dist.resolve())
    opts.smoke = False
    found = integration.flatten(unittest.defaultTestLoader.discover(str(HERE), "test_*.py"))
    counter = integration.run_all([t for t in found if integration.is_wanted(t, opts)], opts.jobs)
    print(f"{counter.passed} passed, {counter.failed} failed, {counter.skipped} skipped")
    return 1 if counter.failed or not counter.passed else 0


if __name__ == "__main__":
    sys.exit(main())
