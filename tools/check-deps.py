#!/usr/bin/env python3
"""Holds the layer table of the tree and fails for an include that the table does not allow.

Each own include carries its folder, so a violation is visible in the line itself. The check also
refuses // comments: a // comment is usually debugging code that was left behind.

    tools/check-deps.py [FOLDER]     checks src/, include/ and test/ below FOLDER (default: the tree)
    tools/check-deps.py --self-test  proves on made-up files that each rule can fail
"""
import re
import sys
import tempfile
from pathlib import Path

# What each folder of src/ may include besides itself: folders, or single headers where that is the
# whole permission. The order is that of the layers, lowest first.
LAYERS = {
    "base": [],
    "os": ["base"],
    "wire": ["base"],
    "journal": ["base"],
    "dockerfile": ["base"],
    "lint": ["base", "dockerfile"],
    "store": ["base"],
    "supervise": ["base", "journal", "shim/handover.h", "shim/proto.h"],
    "shim": ["base", "os", "journal", "supervise"],
    "docker": ["base", "wire"],
    "guest": ["base", "os"],
    "relay": ["base", "os", "journal", "supervise", "docker", "guest/channel.h", "guest/proto.h", "shim/handover.h", "shim/proto.h"],
    "client": ["base", "wire"],
    "net": ["base", "wire"],
    "cli": ["base", "client", "dockerfile", "lint"],
    "image": ["base", "os"],
    "build": ["base", "os", "dockerfile", "image"],
    "registry": ["base", "os", "net", "shim/proto.h"],
    "hub": ["base", "os", "net/fetch.h", "image/digest.h", "image/images.h", "image/layout.h", "image/manifest.h",
            "image/reference.h"],
    "engine": ["base", "os", "wire", "net", "image", "hub/main.h", "journal", "docker", "dockerfile",
               "shim/handover.h", "shim/proto.h", "shim/plan.h", "relay/plan.h"],
    "core": ["base", "store", "image", "journal", "engine/engine.h", "engine/caches.h",
             "engine/build.h", "net/loop.h", "registry/keeper.h"],
    "api": ["base", "net", "core", "wire/frame.h", "registry/keeper.h"],
    "daemon": ["base", "os", "wire", "journal", "store", "net", "image", "engine", "core", "api",
               "registry/keeper.h"],
    "bin": ["base", "os", "cli", "daemon", "shim", "guest", "relay", "registry", "image", "build", "hub"],
}

# Folders that link libc alone: jansson must not creep in through base/json.h.
WITHOUT_JSON = {"os", "wire", "journal", "dockerfile", "supervise", "shim", "guest"}

# Foreign libraries and the only folders that may see them.
LIBRARIES = {
    "uv.h": {"net"},
    "curl/": {"net"},
    "sqlite3.h": {"store"},
    "yaml.h": {"daemon"},
    "archive": {"image"},
    "seccomp.h": {"os", "engine"},
    "openssl/ssl.h": {"docker"},
    "jansson.h": LAYERS.keys() - WITHOUT_JSON,
}

GENERATED = {"version.h", "ripcord.h"}

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">]+)[">]', re.M)
TOKEN = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|/\*.*?\*/|//[^\n]*', re.S)


def line_of(text, pos):
    return text.count("\n", 0, pos) + 1


def allowed(folder, header):
    target = header.split("/")[0]
    return target == folder or target in LAYERS[folder] or header in LAYERS[folder]


def check_own_include(folder, header):
    if "/" not in header:
        if header in GENERATED:
            return None
        return f'"{header}" lacks its folder: write "{folder}/{header}"'
    if header.split("/")[0] not in LAYERS:
        return f'"{header}" is in no folder of the layer table (tools/check-deps.py)'
    if folder in WITHOUT_JSON and header == "base/json.h":
        return f"{folder}/ links libc alone and may not include base/json.h"
    if not allowed(folder, header):
        may = ", ".join(LAYERS[folder]) or "nothing else of ours"
        return f'{folder}/ may not include "{header}" (it may include: {may})'
    return None


def check_library_include(folder, header):
    for name, folders in LIBRARIES.items():
        if (header == name or header.startswith(name)) and folder not in folders:
            return f"<{header}> belongs in {', '.join(sorted(folders))} only"
    return None


def check_includes(folder, text):
    for match in INCLUDE.finditer(text):
        quote, header = match.groups()
        check = check_own_include if quote == '"' else check_library_include
        problem = check(folder, header)
        if problem:
            yield line_of(text, match.start()), problem


def check_comments(text):
    for match in TOKEN.finditer(text):
        if match.group().startswith("//"):
            yield line_of(text, match.start()), "// comment: use /* */"


def check_file(path, top):
    text = path.read_text(encoding="utf-8", errors="replace")
    parts = path.relative_to(top).parts
    problems = list(check_comments(text))
    if parts[0] == "src":
        if len(parts) < 3 or parts[1] not in LAYERS:
            problems.append((1, f"src/{parts[1]} is not in the layer table (tools/check-deps.py)"))
        else:
            problems += check_includes(parts[1], text)
    return [f"{path.relative_to(top)}:{line}: {what}" for line, what in sorted(problems)]


def check_tree(top):
    problems = []
    for folder in ("src", "include", "test"):
        for path in sorted((top / folder).rglob("*.[ch]")):
            problems += check_file(path, top)
    return problems


# One made-up file per rule, and the words that its complaint must hold.
BAD = {
    "src/base/up.c": ('#include "core/state.h"\n', "may not include"),
    "src/os/json.c": ('#include "base/json.h"\n', "libc alone"),
    "src/cli/bare.c": ('#include "cli.h"\n', "lacks its folder"),
    "src/core/backend.c": ('#include "engine/native/native.h"\n', "may not include"),
    "src/core/loop.c": ("#include <uv.h>\n", "belongs in net"),
    "src/odd/new.c": ("int x;\n", "not in the layer table"),
    "src/net/slash.c": ('char *s = "http://x"; // gone\n', "// comment"),
}
GOOD = {
    "src/base/buf.c": '#include "base/buf.h"\n/* see http://x */\nchar *s = "a//b";\nchar c = \'"\';\n',
    "src/core/sandbox.c": '#include "engine/engine.h"\n#include "store/store.h"\n#include <stdio.h>\n',
}


def self_test():
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        for path, text in [(p, t) for p, (t, _) in BAD.items()] + list(GOOD.items()):
            (top / path).parent.mkdir(parents=True, exist_ok=True)
            (top / path).write_text(text)
        found = check_tree(top)
    missed = [p for p, (_, words) in BAD.items()
              if not any(f.startswith(p) and words in f for f in found)]
    wrong = [f for f in found if f.split(":")[0] in GOOD]
    for line in [f"missed: {p}" for p in missed] + [f"wrongly found: {f}" for f in wrong]:
        print(line)
    return 1 if missed or wrong else 0


def main(argv):
    if argv[1:] == ["--self-test"]:
        return self_test()
    top = Path(argv[1] if len(argv) > 1 else Path(__file__).parent.parent).resolve()
    problems = check_tree(top)
    print("\n".join(problems), end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
