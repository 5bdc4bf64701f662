#!/usr/bin/env python3
"""Compares our parser with the recorded results of BuildKit. TAP; the argument is dockerfile-config."""
import json
import sys

import cases


def problem(case, expected, program):
    """The difference as text, or None."""
    got = case.ours(program)
    if "error" in expected:
        return None if got.get("error") == expected["ours"] else f"{got} instead of {expected['ours']}"
    want = {k: v for k, v in expected.items() if k in ("config", "author")}
    got["config"] = cases.normal(got.get("config", {}))
    return None if got == want else f"{json.dumps(got)} instead of {json.dumps(want)}"


def main():
    all_cases, failed = cases.load(), 0
    recorded = json.loads(cases.EXPECTED.read_text("utf-8"))["cases"]
    print(f"1..{len(all_cases)}")
    for i, case in enumerate(all_cases, 1):
        wrong = problem(case, recorded[case.name], sys.argv[1]) if case.name in recorded else "not recorded"
        failed += bool(wrong)
        print(f"{'not ok' if wrong else 'ok'} {i} - {case.name}")
        if wrong:
            print(f"# {wrong}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
