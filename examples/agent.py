#!/usr/bin/env python3
"""A small agent: one turn of `ripcord session`.

It reads its task from stdin (one JSON value, then end of file), reports its actions as JSON lines on stdout, and
writes everything else to stderr. A real agent would ask a model for the next action; this one runs the given steps.

    {"steps": ["echo hi > a", "wc -c a"]}
"""
import json
import os
import subprocess
import sys


def say(kind, **fields):
    print(json.dumps({"type": kind, **fields}), flush=True)


def secret(name):
    """Returns a credential given by `--secret NAME=@FILE`, or None."""
    try:
        with open(os.path.join(os.environ["RIPCORD_SECRETS"], name), encoding="utf-8") as f:
            return f.read().strip()
    except (KeyError, FileNotFoundError):
        return None


def run_step(number, command):
    say("tool_call", step=number, command=command)
    done = subprocess.run(command, shell=True, capture_output=True, text=True, errors="replace", check=False)
    say("tool_result", step=number, status=done.returncode, output=done.stdout, errors=done.stderr)
    return done.returncode


def main():
    task = json.load(sys.stdin)
    say("start", steps=len(task["steps"]), has_key=secret("API_KEY") is not None)
    for number, command in enumerate(task["steps"], 1):
        if run_step(number, command) != 0:
            say("failed", step=number)
            return 1
    say("done")
    return 0


if __name__ == "__main__":
    sys.exit(main())
