#!/usr/bin/env python3
"""Fails if docs/security-tests.md names a file or a test that does not exist.

A test is written `test_x.py#test_name` (test/integration) or `test-x.c#name` (test/unit); code as `src/...` or `tools/...`.
"""
import re

import check_lib

PAGE = "docs/security-tests.md"
TEST = re.compile(r"`(test[_-][\w-]+\.(?:py|c))#(\w+)`")
CODE = re.compile(r"`((?:src|tools|test)/[\w./-]+)`")


def missing_in(top, text):
    for name, test in TEST.findall(text):
        folder = "integration" if name.endswith(".py") else "unit"
        path = top / "test" / folder / name
        wanted = rf"def {test}\(" if name.endswith(".py") else rf"TEST\({test}\)"
        if not path.exists() or not re.search(wanted, path.read_text(encoding="utf-8")):
            yield f"{name} has no '{test}'"
    for name in CODE.findall(text):
        if not (top / name).exists():
            yield f"there is no '{name}'"


def check_tree(top):
    return [f"{PAGE}: {problem}" for problem in missing_in(top, (top / PAGE).read_text(encoding="utf-8"))]


def self_test():
    files = {
        PAGE: "`test_a.py#test_x` `test_a.py#test_y` `test-b.c#x` `test-b.c#y` `test-c.c#x` `src/a.c` `src/b.c`\n",
        "test/integration/test_a.py": "def test_x(self):\n",
        "test/unit/test-b.c": "TEST(x)\n",
        "src/a.c": "",
    }
    found = check_lib.check_made_up(files, check_tree)
    wanted = [f"{PAGE}: {what}" for what in ("test_a.py has no 'test_y'", "test-b.c has no 'y'", "test-c.c has no 'x'", "there is no 'src/b.c'")]
    yield from (f"missed: {problem}" for problem in wanted if problem not in found)
    yield from (f"wrongly found: {problem}" for problem in found if problem not in wanted)


if __name__ == "__main__":
    check_lib.main(check_tree, self_test)
