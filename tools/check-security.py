#!/usr/bin/env python3
"""Fails if docs/security-tests.md names a file or a test that does not exist.

A test is written `test_x.py#test_name` (test/integration) or `test-x.c#name` (test/unit); code as `src/...` or `tools/...`.
"""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TEST = re.compile(r"`(test[_-][\w-]+\.(?:py|c))#(\w+)`")
CODE = re.compile(r"`((?:src|tools|test)/[\w./-]+)`")


def lacking(text):
    for name, test in TEST.findall(text):
        folder = "integration" if name.endswith(".py") else "unit"
        path = ROOT / "test" / folder / name
        wanted = rf"def {test}\(" if name.endswith(".py") else rf"TEST\({test}\)"
        if not path.exists() or not re.search(wanted, path.read_text(encoding="utf-8")):
            yield f"{name} has no '{test}'"
    for name in CODE.findall(text):
        if not (ROOT / name).exists():
            yield f"there is no '{name}'"


def main():
    found = list(lacking((ROOT / "docs" / "security-tests.md").read_text(encoding="utf-8")))
    print("\n".join(f"docs/security-tests.md: {line}" for line in found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
