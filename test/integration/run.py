#!/usr/bin/env python3
"""Runs the integration tests: a line for each, two at a time.

    test/integration/run.py [-k WORD] [--bin BUILD] [--engine native|docker|podman|gvisor] [--quick | --soak | --smoke] [--jobs N] [--list]

Ends with `N passed, N failed, N skipped`; status 1 when one failed, 77 when nothing can run here.
"""
import argparse
import collections
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import contract  # noqa: E402
import engines  # noqa: E402  (found through the line above)
import kill_trace  # noqa: E402
import ripcord_test  # noqa: E402

PRINT = threading.Lock()
FAST_MEMORY = 6 << 30
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h


def options():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("-k", metavar="WORD", action="append", default=[], help="only tests whose name holds WORD")
    p.add_argument("--only", metavar="MODULES", help="only these, e.g. life,streams")
    p.add_argument("--without", metavar="MODULES", default="", help="all but these")
    p.add_argument("--bin", default=HERE.parents[1] / "build", type=Path, help="folder of the programs")
    p.add_argument("--engine", default="native", choices=["native", *engines.KINDS])
    p.add_argument("--quick", action="store_true")
    p.add_argument("--soak", action="store_true")
    p.add_argument("--smoke", action="store_true", help="only tests marked with it: for a slow machine that differs from this one")
    p.add_argument("--patience", type=int, default=1, metavar="N", help="wait N times as long before a test fails")
    p.add_argument("--jobs", type=int, default=2)
    p.add_argument("--memory", action="store_true", help="roots and engines on a tmpfs")
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


def is_wanted(test, opts):
    module = short_name(test).partition(".")[0]
    return (all(word in test.id() for word in opts.k) and module not in opts.without.split(",")
            and (not opts.only or module in opts.only.split(",")) and (not opts.smoke or mark_of(test, "smoke")))


def mark_of(test, name):
    """What a decorator has put on the method, else on its class."""
    method = getattr(test, test._testMethodName, None)
    return getattr(method, name, None) or getattr(test, name, None)


def is_alone(test):
    return bool(mark_of(test, "alone"))


def is_for(test, engine):
    return engine in (mark_of(test, "only_on") or (engine,))


def choose(tests, engine):
    """The tests for this engine. Tests that need a missing capability are counted, one line for each reason."""
    chosen, left_out = [], collections.Counter()
    for test in tests:
        reason = ripcord_test.missing(mark_of(test, "needs") or (), engine)
        if reason:
            left_out[reason] += 1
        elif is_for(test, engine):
            chosen.append(test)
    for reason, count in left_out.items():
        print(f"not on {engine}: {count} tests that need '{reason}'")
    return chosen


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


@contextlib.contextmanager
def fast_folder():
    """Test roots and engines in memory, where there is plenty: half of a run's time is waiting for the disk."""
    with open("/proc/meminfo", encoding="ascii") as f:
        free = int(next(l for l in f if l.startswith("MemAvailable")).split()[1]) << 10
    if os.geteuid() != 0 or free < FAST_MEMORY:
        yield
        return
    place = tempfile.mkdtemp(prefix="ripcord-fast-")
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=1777", "ripcord-test", place], check=True)
        tempfile.tempdir = place
        yield
    finally:
        tempfile.tempdir = None
        subprocess.run(["umount", "-l", place], check=False)
        os.rmdir(place)


def batches(tests):
    """Lists of tests that one worker runs in a row; groups come first, as they take longest."""
    groups, single = {}, []
    for test in tests:
        group = mark_of(test, "serial")
        if group:
            groups.setdefault(group, []).append(test)
        else:
            single.append([test])
    return [*groups.values(), *single]


def run_all(tests, jobs):
    counter = Counter()

    def run_batch(batch):
        for test in batch:
            counter.run(test)

    with ThreadPoolExecutor(jobs) as pool:
        try:
            list(pool.map(run_batch, batches([t for t in tests if not is_alone(t)])))
        except BaseException:
            pool.shutdown(cancel_futures=True)  # on a signal, tests that have begun are finished, so that they clean up
            raise
    for test in tests:
        if is_alone(test):
            counter.run(test)
    return counter


def prepare_engine(config, name):
    """Starts the engine of this run; the reason when it cannot run here."""
    try:
        config.backend = None if name == "native" else engines.shared(name)
    except unittest.SkipTest as e:
        return str(e)
    return None


def under_a_reaper():
    """Continues in a child, so that this process adopts and reaps the orphans of a killed shim or daemon. The machine's pid 1
    may take seconds to reap them, and every test that waits until nothing is left would wait for that."""
    prctl, us = ctypes.CDLL(None).prctl, os.getpid()
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    runner = os.fork()
    if runner == 0:
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != us:
            sys.exit(143)
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal: it gets that, too
    signal.signal(signal.SIGTERM, lambda *_: os.kill(runner, signal.SIGTERM))
    pid = status = 0
    while pid != runner:
        pid, status = os.wait()
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


def main():
    opts = options()
    config = ripcord_test.Config
    config.bin, config.quick, config.soak, config.patience = opts.bin.resolve(), opts.quick, opts.soak, opts.patience
    config.sanitized = (config.bin / "ripcord").exists() and b"__asan_init" in (config.bin / "ripcord").read_bytes()
    config.engine = "native" if opts.engine == "native" else "docker"
    found = flatten(unittest.defaultTestLoader.discover(str(HERE), "test_*.py"))
    tests = choose([t for t in found if is_wanted(t, opts)], opts.engine)
    if opts.list:
        print("\n".join(short_name(t) for t in tests))
        return 0
    if not os.access(config.bin / "ripcord", os.X_OK):
        print(f"there is no program '{config.bin}/ripcord': run ./dev build first")
        return 1
    if not ripcord_test.IN_MACHINE:  # installing the validator there takes five minutes, and others make the same requests
        contract.prepare()
    under_a_reaper()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that runs us in the background ignores it, for our children too
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as an exception, so that the engine is stopped
    with fast_folder() if opts.memory else contextlib.nullcontext():
        reason = prepare_engine(config, opts.engine)
        if reason:
            print(f"skip {opts.engine}: {reason}\n0 passed, 0 failed, 1 skipped")
            return 77
        kill_trace.TRACE.start()
        try:
            counter = run_all(tests, opts.jobs)
        finally:
            kill_trace.TRACE.stop()
            engines.stop_shared()
    print(f"{counter.passed} passed, {counter.failed} failed, {counter.skipped} skipped")
    return 1 if counter.failed else 0


if __name__ == "__main__":
    sys.exit(main())
