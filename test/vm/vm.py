#!/usr/bin/env python3
"""Virtual machines with Debian, systemd and cgroup v2, for what this machine cannot show.

    ./dev vm make [SUITE]              make the disk image (bookworm or trixie), or find it in the cache
    ./dev vm boot [SUITE] [--name N]   start a machine; its name is the suite if none is given
    ./dev vm ssh NAME [COMMAND...]     run a command in it, or a shell
    ./dev vm push NAME FILE... FOLDER  copy files into it
    ./dev vm log NAME                  print its console
    ./dev vm list                      list the machines that run
    ./dev vm stop NAME                 end it; what was written to its disk is gone

Several machines can run at once, also of one suite: none changes the image. A machine ends by itself after --hours.
"""
import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import image
from machine import Failed, Machine

HOURS = 4


def state_of(name):
    return image.folder() / f"machine-{name}.json"


def started(pid):
    """When this process started, so that another with the same number is not taken for it."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="latin-1")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def running(name):
    """The saved state of a machine, or None if it does not run."""
    try:
        state = json.loads(state_of(name).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return state if started(state["pid"]) == state["started"] else None


def found(name):
    state = running(name)
    if not state:
        raise SystemExit(f"vm: no machine '{name}' runs (./dev vm boot --name {name})")
    return Machine(state["image"], state["log"], state["port"])


def cmd_make(opts):
    print(image.make(opts.suite, opts.again))


def cmd_boot(opts):
    name = opts.name or opts.suite
    disk = image.make(opts.suite)
    with image.locked(image.folder() / f"machine-{name}.lock"):
        if running(name):
            raise SystemExit(f"vm: a machine '{name}' already runs (choose another --name, or ./dev vm stop {name})")
        machine = Machine(disk, image.folder() / f"machine-{name}.log")
        machine.start(opts.memory, opts.cpus, opts.drive, detached_for=int(opts.hours * 3600))
        state = {"pid": machine.qemu.pid, "started": started(machine.qemu.pid), "port": machine.port, "image": str(disk),
                 "log": str(machine.log)}
        state_of(name).write_text(json.dumps(state), encoding="ascii")
    try:
        took = machine.wait()
    except BaseException:
        machine.stop()
        raise
    image.say(f"machine '{name}' is up after {took:.0f} s: {machine.must('uname -r').strip()}")


def cmd_ssh(opts):
    machine = found(opts.name)
    terminal = ["-t"] if not opts.command and sys.stdin.isatty() else []
    argv = [str(word) for word in machine.ssh_argv(opts.user, *terminal)]
    os.execvp(argv[0], argv + [" ".join(opts.command)] if opts.command else argv)


def cmd_push(opts):
    found(opts.name).push(opts.files, opts.target, opts.user)


def cmd_log(opts):
    subprocess.run(["cat", image.folder() / f"machine-{opts.name}.log"], check=False)


def cmd_list(_):
    for path in sorted(image.folder().glob("machine-*.json")):
        name = path.stem.removeprefix("machine-")
        state = running(name)
        if state:
            print(f"{name}\tpid {state['pid']}\tport {state['port']}\t{Path(state['image']).name}")


def cmd_stop(opts):
    state = running(opts.name)
    if not state:
        raise SystemExit(f"vm: no machine '{opts.name}' runs")
    for sig, seconds in ((signal.SIGTERM, 15), (signal.SIGKILL, 5)):
        os.killpg(state["pid"], sig)  # the pid of timeout(1), which leads the group
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if not running(opts.name):
                state_of(opts.name).unlink(missing_ok=True)
                return
            time.sleep(0.1)
    raise SystemExit(f"vm: machine '{opts.name}' does not end (pid {state['pid']})")


def options():
    p = argparse.ArgumentParser(prog="./dev vm", usage=__doc__)
    sub = p.add_subparsers(dest="verb", required=True)
    for verb, run in (("make", cmd_make), ("boot", cmd_boot), ("ssh", cmd_ssh), ("push", cmd_push), ("log", cmd_log),
                      ("list", cmd_list), ("stop", cmd_stop)):
        v = sub.add_parser(verb)
        v.set_defaults(run=run)
        if verb in ("make", "boot"):
            v.add_argument("suite", nargs="?", default=image.SUITES[0], choices=image.SUITES)
        elif verb != "list":
            v.add_argument("name")
        if verb in ("ssh", "push"):
            v.add_argument("--user", default="root", help="root, agent (sudo, subordinate ids) or plain")
    verbs = sub.choices
    verbs["make"].add_argument("--again", action="store_true", help="make it again, with Debian's newest packages")
    verbs["boot"].add_argument("--name")
    verbs["boot"].add_argument("--memory", default="3G")
    verbs["boot"].add_argument("--cpus", type=int, default=2)
    verbs["boot"].add_argument("--hours", type=float, default=HOURS)
    verbs["boot"].add_argument("--drive", action="append", default=[], help="a file that it sees as /dev/vdb, read-only")
    verbs["ssh"].add_argument("command", nargs=argparse.REMAINDER)
    verbs["push"].add_argument("files", nargs="+")
    verbs["push"].add_argument("target")
    return p.parse_args()


def main():
    opts = options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as an exception, so that a machine that starts is stopped
    try:
        opts.run(opts)
    except (Failed, subprocess.CalledProcessError) as e:
        raise SystemExit(f"vm: {e}") from None


if __name__ == "__main__":
    main()
