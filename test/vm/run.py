#!/usr/bin/env python3
"""Runs integration tests inside a virtual machine, as root on cgroup v2 with systemd.

    test/vm/run.py [--suite bookworm|trixie] [--bin BUILD] [--limit SECONDS] [--boot-limit SECONDS] [OPTION of test/integration/run.py]...

Prints what test/integration/run.py prints inside, and ends with its status; 77 when no machine can run here. The machine ends
with this program, also when that is killed.
"""
import argparse
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import image
from machine import BOOT_LIMIT, Failed, Machine

TOP = Path(__file__).resolve().parents[2]
TREE = ("contrib", "docs", "examples", "images", "include", "man", "README.md", "test", "tools")
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
LIMIT = 3600
UNPACK = ("mkdir tree && tar -C tree -xf /dev/vdb && cd tree && "
          "{ [ ! -e ca-certificates.crt ] || cp ca-certificates.crt /etc/ssl/certs/; }")


def options():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("--suite", default=image.SUITES[0], choices=image.SUITES)
    p.add_argument("--bin", default=TOP / "build", type=Path, help="folder of the programs")
    p.add_argument("--limit", default=LIMIT, type=int, help="seconds that the tests may take")
    p.add_argument("--boot-limit", default=BOOT_LIMIT, type=int, help="seconds that the machine may take until it answers")
    p.add_argument("--image-only", action="store_true", help="only make the image, if the cache does not have it")
    p.add_argument("--memory", default="4G", help="of the machine")
    p.add_argument("--cpus", default=2, type=int, help="of the machine")
    return p.parse_known_args()


def missing(suite):
    """Why no machine can run here, or None."""
    for program in ("qemu-system-x86_64", "mmdebstrap"):
        if not shutil.which(program):
            return f"{program} is not installed"
    if platform.machine() != "x86_64":
        return f"there is no image for {platform.machine()}"
    if os.geteuid() != 0 and not image.image_path(suite).exists():
        return f"only root may make the image (run: sudo ./dev vm make {suite})"
    return None


def write_tree(target, build):
    """The tests and the programs as one tar, which the machine reads as a disk. Encrypting that much for ssh takes it a minute."""
    programs = [p for p in [*build.glob("ripcord*"), *build.glob("src/bin/ripcord*"), *build.glob("test/unit/*")] if p.is_file() and p.stat().st_mode & 0o111]
    words = ["-C", str(TOP), *TREE, "-C", str(build), f"--transform=s,^\\./,{build.name}/,"]
    words += [f"./{p.relative_to(build)}" for p in programs]
    if CERTIFICATES.exists():  # of a proxy in front of this machine, which the guest has to trust, too
        words += ["-C", str(CERTIFICATES.parent), CERTIFICATES.name]
    subprocess.run(["tar", "-cf", target, "--exclude=__pycache__", "--owner=0", "--group=0", *words], check=True)


def run_inside(machine, opts, words):
    command = f"cd tree && timeout --signal=TERM --kill-after=60 {opts.limit} python3 test/integration/run.py --bin {opts.bin.name} {words}"
    done = machine.ssh(command, limit=opts.limit + 120, stdout=None, stderr=None)
    if done.returncode not in (0, 1, 77):
        print(f"FAIL the tests in {opts.suite} ended with status {done.returncode} (124: after {opts.limit} s); console: {machine.log_tail()[-2000:]}")
    return done.returncode


def main():
    opts, words = options()
    opts.bin = opts.bin.resolve()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as an exception, so that the machine is stopped
    reason = missing(opts.suite)
    if opts.image_only:
        print(reason or image.make(opts.suite))
        return 0
    if reason:
        print(f"skip vm: {reason}\n0 passed, 0 failed, 1 skipped")
        return 77
    disk = image.make(opts.suite)
    with tempfile.TemporaryDirectory(prefix="ripcord-vm-") as work:
        write_tree(Path(work) / "tree.tar", opts.bin)
        machine = Machine(disk, Path(work) / "console")
        try:
            machine.start(opts.memory, opts.cpus, drives=[Path(work) / "tree.tar"])
            print(f"machine: Debian {opts.suite}, up after {machine.wait(opts.boot_limit):.0f} s, Linux {machine.must('uname -r').strip()}", flush=True)
            machine.must(UNPACK)
            return run_inside(machine, opts, subprocess.list2cmdline(words))
        except Failed as e:
            print(f"FAIL {e}\n0 passed, 1 failed, 0 skipped")
            return 1
        finally:
            machine.stop()


if __name__ == "__main__":
    sys.exit(main())
