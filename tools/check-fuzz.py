#!/usr/bin/env python3
"""Checks that each fuzz target names all sources that it needs.

    tools/check-fuzz.py BUILD   (BUILD: a meson folder that has been built, without -Dfuzz=true)

For libFuzzer a target is linked from its own sources (test/fuzz/meson.build). An ordinary build links the replays with one
library of all sources, so it does not notice that a target has lost one. The symbols of the objects show it.
"""
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
MEMBER = re.compile(r"^(?:\S+/)?([^/\s]+\.o):$")
SYMBOL = re.compile(r"^[0-9a-f]*\s+([A-Za-z])\s+(\S+)$")


def symbols(path):
    """{object: (defined, undefined)} of a library or object."""
    found, name = {path.name: (set(), set())}, path.name
    text = subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout
    for line in text.splitlines():
        member, symbol = MEMBER.match(line), SYMBOL.match(line)
        if member:
            name = member.group(1)
            found[name] = (set(), set())
        elif symbol:
            kind = symbol.group(1)
            if kind.isupper():  # the others are local
                found[name][kind == "U"].add(symbol.group(2))
    return found


def targets(text):
    """{target: [sources]}, as test/fuzz/meson.build lists them."""
    files = lambda part: re.findall(r"'\.\./\.\./(src/[^']+)'", part)
    base = files(re.search(r"^fuzz_base = files\((.*?)\)", text, re.S | re.M).group(1))
    shared = {name: files(part) for name, part in re.findall(r"^(fuzz_\w+) = files\((.*?)\)", text, re.S | re.M)}
    table = re.search(r"^fuzz_targets = \{(.*?)^\}", text, re.S | re.M).group(1)
    return {name: base + (shared[word] if word else files(part))
            for name, word, part in re.findall(r"^  '([\w-]+)': (?:(fuzz_\w+)|files\((.*?)\)),$", table, re.S | re.M)}


def object_of(source):
    return f".._.._{source.replace('/', '_')}.o"


def lacking(targets_, library, folder):
    """A line for each source that a target needs and does not name."""
    for name, sources in targets_.items():
        own = list(symbols(folder / f"replay-{name}.p" / f"fuzz-{name}.c.o").values())
        own += [library[object_of(s)] for s in sources]
        missing = set().union(*(u for _, u in own)) - set().union(*(d for d, _ in own))
        for member, (defined, _) in library.items():
            if missing & defined:
                yield f"fuzz target '{name}' needs {member} ({', '.join(sorted(missing & defined)[:3])})"


def main():
    build = Path(sys.argv[1])
    named = targets((HERE / "test/fuzz/meson.build").read_text(encoding="utf-8"))
    if sorted(named) != sorted(p.stem.removeprefix("fuzz-") for p in (HERE / "test/fuzz").glob("fuzz-*.c")):
        sys.exit("check-fuzz: test/fuzz/meson.build and the files fuzz-*.c do not name the same targets")
    subprocess.run(["ninja", "-C", build, *[f"test/fuzz/replay-{name}" for name in named]], stdout=sys.stderr, check=True)
    library = symbols(build / "test/fuzz/libparsers.a")
    broken = {"dockerfile": [s for s in named["dockerfile"] if not s.endswith("/command-size.c")]}
    if not list(lacking(broken, library, build / "test/fuzz")):
        sys.exit("check-fuzz: it does not notice that a source is missing")
    problems = list(lacking(named, library, build / "test/fuzz"))
    print("\n".join(problems) or f"{len(named)} targets name all of their sources")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
