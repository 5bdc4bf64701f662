#!/usr/bin/env python3
"""Records the results of the real BuildKit in expected.json, and the messages and positions of our errors.

    test/dockerfile/record.py BUILD     BUILD: the folder of dockerfile-config; needs Go and the network

Prints the cases in which our parser and BuildKit disagree. Repair the parser instead of recording them.
"""
import json
import subprocess
import sys
from pathlib import Path

import cases

VERSION = "v0.34.1"


def oracle(all_cases):
    asked = [{"Name": c.name, "Dockerfile": c.dockerfile.decode("utf-8", "surrogateescape"), "Args": c.args,
              "Target": c.target} for c in all_cases]
    folder = cases.HERE / "oracle"
    done = subprocess.run(["go", "run", "."], cwd=folder, input=json.dumps(asked).encode(), stdout=subprocess.PIPE,
                          check=True)
    return json.loads(done.stdout)


def main():
    all_cases = cases.load()
    theirs = oracle(all_cases)
    program = Path(sys.argv[1]) / "test" / "unit" / "dockerfile-config"
    recorded, wrong = {"buildkit": VERSION, "cases": {}}, 0
    for c in all_cases:
        want, got = theirs[c.name], c.ours(program)
        if "error" in want:
            entry = {"error": want["error"].splitlines()[0], "ours": got.get("error")}
            agree = "error" in got
        else:
            entry = {"config": cases.normal(want["config"])}
            entry |= {"author": want["author"]} if want.get("author") else {}
            agree = cases.normal(got.get("config", {})) == entry["config"] and got.get("author") == want.get("author")
        recorded["cases"][c.name] = entry
        if not agree:
            wrong += 1
            print(f"{c.name}:\n  buildkit {json.dumps(entry)}\n  ripcord  {json.dumps(got)}")
    text = json.dumps(recorded, indent=1, ensure_ascii=False, sort_keys=True)
    cases.EXPECTED.write_text(text + "\n", "utf-8")
    print(f"{len(all_cases)} cases, {wrong} disagree")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
