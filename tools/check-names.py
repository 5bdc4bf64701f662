#!/usr/bin/env python3
"""Fails for names that a search cannot tell apart.

 - A struct, union or enum tag is defined once in src/, include/ and test/fake-engine/.
 - A static function begins with its module: the file's name (or its first words), or the folder's.
   Command files (cmd-*.c) are exempt: each is one command, and its functions are short.
 - At most 8 % of the function definitions in src/ share their name with another.

    tools/check-names.py [FOLDER]     checks the tree below FOLDER (default: this tree)
    tools/check-names.py --self-test  proves on made-up files that each rule can fail
"""
import re
from collections import defaultdict

import check_lib
from check_lib import line_of

SHARED_MAX = 0.08

TAG = re.compile(r"^(?:typedef\s+|static\s+(?:const\s+)?)?(?:struct|union|enum)\s+(\w+)\s*\{", re.M)
FUNCTION = re.compile(
    r"^(static\s+(?:inline\s+)?)?(?:(?:const|unsigned|struct|enum|_\w+_)\s+)*[A-Za-z_]\w*[\s*]+(?:const\s+)?\**"
    r"([a-z_]\w*)\(([^;{]*?)\)\s*\n\{", re.M)

# Words that stand for a folder in names, where that is not the folder's own name.
FOLDERS = {"http": ["http"], "wire": ["http"], "server": ["http"], "api": ["api", "handle"], "main": ["daemon"], "store": ["store", "images"],
           "common": ["supervisor"], "archive": ["archive", "image"], "transfer": ["transfer"], "packages": ["packages", "package"]}


def prefixes(path):
    """What the name of a static function in this file may begin with."""
    words = path.stem.replace("-", "_").split("_")
    begins = {"_".join(words[:n]) for n in range(1, len(words) + 1)}
    begins |= {b[:-1] for b in begins if b.endswith("s")}
    folder = path.parent.name.replace("-", "_")
    return begins | set(FOLDERS.get(folder, [folder]))


def check_tags(files, top):
    places = defaultdict(list)
    for path, text in files:
        for match in TAG.finditer(text):
            places[match.group(1)].append(f"{path.relative_to(top)}:{line_of(text, match.start())}")
    for tag, where in sorted(places.items()):
        if len(where) > 1:
            yield f"{where[0]}: the tag '{tag}' is also defined at {', '.join(where[1:])}"


def check_functions(files, top):
    names = defaultdict(int)
    for path, text in files:
        begins = prefixes(path)
        for match in FUNCTION.finditer(text):
            static, name = match.group(1), match.group(2)
            names[name] += 1
            if not static or path.name.startswith("cmd-") or name.startswith("_"):
                continue
            if not any(name == b or name.startswith(b + "_") for b in begins):
                yield (f"{path.relative_to(top)}:{line_of(text, match.start())}: static '{name}' does not begin with its "
                       f"module ({', '.join(sorted(begins))})")
    shared = sum(n for n in names.values() if n > 1)
    if shared > SHARED_MAX * sum(names.values()):
        yield f"{shared} of {sum(names.values())} functions share their name with another (at most {SHARED_MAX:.0%} may)"


def read(top, *patterns):
    return [(path, path.read_text(encoding="utf-8")) for pattern in patterns for path in sorted(top.glob(pattern))]


def check_tree(top):
    tagged = read(top, "src/**/*.[ch]", "include/*.h", "test/fake-engine/*.[ch]")
    return list(check_tags(tagged, top)) + list(check_functions(read(top, "src/**/*.c"), top))


BAD = {
    "src/guest/exec.c": ("struct stream {\n    int x;\n};\nstatic int run(void)\n{\n}\n", ["the tag 'stream'", "static 'run'"]),
    "src/client/stream.h": ("struct stream {\n    int x;\n};\n", []),
    "src/client/start.c": ("int run(void)\n{\n}\n", ["share their name"]),
}
GOOD = {
    "src/guest/exec-child.c": "static void exec_child_run(void)\n{\n}\nstatic int guest_x(const char *a,\n            int b)\n{\n}\n",
    "src/cli/cmd-rm.c": "static int run2(void)\n{\n}\n",
    "src/packages/downloads.c": "static struct foo *download_new(void)\n{\n}\n",
}


def self_test():
    found = check_lib.check_made_up({path: text for path, (text, _) in BAD.items()}, check_tree)
    for _, all_words in BAD.values():
        yield from (f"missed: {words}" for words in all_words if not any(words in f for f in found))
    yield from (f"wrongly found: {f}" for f in check_lib.check_made_up(GOOD, check_tree))


if __name__ == "__main__":
    check_lib.main(check_tree, self_test)
