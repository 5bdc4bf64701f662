#!/usr/bin/env python3
"""Runs the integration tests: a line for each, two at a time.

    test/integration/run.py [-k WORD] [--bin BUILD] [--quick | --soak] [--jobs N] [--list]

Ends with `N passed, N failed, N skipped`; status 1 when one failed, 77 when nothing can run here.
"""
import argparse
import os
import sys
import threading
import time
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import ripcord_test  # noqa: E402  (found through the line above)

PRINT = threading.Lock()


def options():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("-k", metavar="WORD", action="append", default=[], help="only tests whose name holds WORD")
    p.add_argument("--bin", default=HERE.parents[1] / "build", type=Path, help="folder of the programs")
    p.add_argument("--quick", action="store_true")
    p.add_argument("--soak", action="store_true")
    p.add_argument("--jobs", type=int, default=2)
    p.add_argument("--list", action="store_true")
    return p.parse_args()


def flatten(suite):
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from flatten(item)
        else:
            yield item


def short_name(test):
    return test.id().replace("test_", "", 1) if test.id().startswith("test_") else test.id()


def is_alone(test):
    return getattr(test, "alone", False) or getattr(getattr(test, test._testMethodName), "alone", False)


class Counter:
    """Runs tests and prints each result at once."""

    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def run(self, test):
        result = unittest.TestResult()
        since = time.monotonic()
        test.run(result)
        took = time.monotonic() - since
        bad = result.failures + result.errors
        with PRINT:
            if bad:
                self.failed += 1
                print(f"FAIL {short_name(test)} ({took:.2f} s)")
                for _, text in bad:
                    print("     " + text.replace("\n", "\n     "))
            elif result.skipped:
                self.skipped += 1
                print(f"skip {short_name(test)}: {result.skipped[0][1]}")
            else:
                self.passed += 1
                print(f"ok   {short_name(test)} ({took:.2f} s)")
            sys.stdout.flush()


def main():
    opts = options()
    config = ripcord_test.Config
    config.bin, config.quick, config.soak = opts.bin.resolve(), opts.quick, opts.soak
    config.sanitized = (config.bin / "ripcord").exists() and b"__asan_init" in (config.bin / "ripcord").read_bytes()
    tests = [t for t in flatten(unittest.defaultTestLoader.discover(str(HERE), "test_*.py"))
             if all(word in t.id() for word in opts.k)]
    if opts.list:
        print("\n".join(short_name(t) for t in tests))
        return 0
    if not os.access(config.bin / "ripcord", os.X_OK):
        print(f"there is no program '{config.bin}/ripcord': run ./dev build first")
        return 1
    counter = Counter()
    with ThreadPoolExecutor(opts.jobs) as pool:
        list(pool.map(counter.run, [t for t in tests if not is_alone(t)]))
    for test in tests:
        if is_alone(test):
            counter.run(test)
    print(f"{counter.passed} passed, {counter.failed} failed, {counter.skipped} skipped")
    return 1 if counter.failed else 0


if __name__ == "__main__":
    sys.exit(main())
