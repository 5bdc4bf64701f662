"""Timing of programs side by side, and the table at the end.

Programs are started with posix_spawn, which does not copy this interpreter's memory, so that the cost of
starting them is theirs and not ours. Contenders take turns within one run: what the machine does meanwhile
hits all of them alike.
"""
import json
import os
import statistics
import sys
import time


class Contender:
    """Something that is run again and again; `every` thins out the slow ones."""

    def __init__(self, name, argv, every=1, env=None):
        self.name, self.argv, self.every = name, [str(a) for a in argv], every
        self.env = env if env is not None else {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
        self.times = []

    def run_once(self):
        since = time.perf_counter_ns()
        pid = os.posix_spawnp(self.argv[0], self.argv, self.env, file_actions=FILES)
        status = os.waitpid(pid, 0)[1]
        took = time.perf_counter_ns() - since
        if status != 0:
            raise SystemExit(f"{self.name}: '{' '.join(self.argv)}' ended with {status}")
        return took / 1e6

    def summary(self):
        return {"argv": self.argv, **summary(self.times)}


NULL = os.open("/dev/null", os.O_RDWR)
FILES = [(os.POSIX_SPAWN_DUP2, NULL, fd) for fd in (0, 1)]


def summary(times):
    """Milliseconds: p50, p95, p99, mean, n."""
    ordered = sorted(times)
    pick = lambda q: round(ordered[min(len(ordered) - 1, int(q * len(ordered)))], 4)
    return {"n": len(ordered), "p50": pick(0.50), "p95": pick(0.95), "p99": pick(0.99),
            "mean": round(statistics.fmean(ordered), 4)}


SETTLE = 0.02  # what one leaves to be done in the background must not slow the next


def interleave(contenders, rounds, warm_up=3):
    for c in contenders:
        for _ in range(warm_up):
            c.run_once()
    for i in range(rounds):
        for c in contenders:
            if i % c.every == 0:
                c.times.append(c.run_once())
                time.sleep(SETTLE)
        progress(f"round {i + 1} of {rounds}")
    progress("")


def progress(text):
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{text:40}\r")


def print_times(contenders):
    print(f"{'':34}{'n':>6}{'p50 ms':>10}{'p95 ms':>10}{'p99 ms':>10}")
    for c in contenders:
        s = c.summary()
        print(f"{c.name:34}{s['n']:6}{s['p50']:10.2f}{s['p95']:10.2f}{s['p99']:10.2f}")


class Goals:
    """What was to be reached, and whether it was."""

    def __init__(self):
        self.rows = []

    def add(self, what, value, unit, bound, at_most):
        if value is None:
            return
        met = value <= bound if at_most else value >= bound
        self.rows.append({"what": what, "value": round(value, 3), "unit": unit,
                          "goal": f"{'<=' if at_most else '>='} {bound}", "met": met})

    def print(self):
        print(f"\n{'goal':54}{'measured':>14}{'wanted':>14}")
        for r in self.rows:
            value = f"{r['value']:g} {r['unit']}"
            print(f"{r['what']:54}{value:>14}{r['goal']:>14}  {'ok' if r['met'] else 'NOT MET'}")


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        model = next((l.split(":")[1].strip() for l in f if l.startswith("model name")), "unknown")
    return {"kernel": os.uname().release, "cpus": os.cpu_count(), "model": model,
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}


def write_json(path, data):
    with open(path, "w", encoding="utf-8") as f:
        json.dump({"machine": machine(), **data}, f, indent=2)
        f.write("\n")
    print(f"\nwritten: {path}")
