#!/usr/bin/env python3
"""Runs `meson test` and reports each case of the TAP programs, not only each program.

    tools/meson-tests.py BUILD [meson test options]

Prints `ok NAME`, `FAIL NAME` or `skip NAME: reason` for each case. The last line is `N passed, N failed, N skipped`.
"""
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path


def skip_reason(suite, case):
    """Returns the reason of a skip. meson does not store it, so it is taken from the output of the program."""
    out = " ".join(e.text or "" for e in suite.iter("system-out"))
    found = re.search(re.escape(case.get("name").split(" - ")[-1]) + r" # SKIP (.+)", out)
    return found.group(1) if found else "no reason given"


def cases(path):
    """Yields (name, state, text) of every case in meson's JUnit file."""
    for suite in ElementTree.parse(path).getroot().iter("testsuite"):
        for case in suite.iter("testcase"):
            # Each program is a suite, named "project.program", that contains its TAP cases.
            name = f"{suite.get('name').split('.')[-1]}: {case.get('name')}"
            skipped, failed = case.find("skipped"), case.find("failure")
            error = case.find("error")
            if skipped is not None:
                yield name, "skip", skip_reason(suite, case)
            elif failed is not None or error is not None:
                yield name, "FAIL", ""
            else:
                yield name, "ok", ""


def main(argv):
    build, options = Path(argv[1]), argv[2:]
    report = build / "meson-logs" / "testlog.junit.xml"
    report.unlink(missing_ok=True)
    env = dict(os.environ, UBSAN_OPTIONS="halt_on_error=1:print_stacktrace=1")
    status = subprocess.run(["meson", "test", "-C", build, "--print-errorlogs", "--no-rebuild", *options],
                            env=env, check=False).returncode
    count = {"ok": 0, "FAIL": 0, "skip": 0}
    for name, state, text in cases(report) if report.exists() else []:
        count[state] += 1
        print(f"{state:4} {name}{': ' if text else ''}{text.strip()}")
    # A program that dies before or after its cases has no failed case.
    if status != 0 and count["FAIL"] == 0:
        count["FAIL"] = 1
    print(f"{count['ok']} passed, {count['FAIL']} failed, {count['skip']} skipped")
    return 1 if count["FAIL"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
