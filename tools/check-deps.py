#!/usr/bin/env python3
"""Holds the layer table of the tree and fails for an include that the table does not allow.

Each own include is a path below src/ ("lib/base/buf.h"), so a violation is visible in the line itself.
The check also refuses // comments: a // comment is usually debugging code that was left behind.

    tools/check-deps.py [FOLDER]     checks src/, include/ and test/ below FOLDER (default: the tree)
    tools/check-deps.py --self-test  proves on made-up files that each rule can fail
"""
import re

import check_lib
from check_lib import line_of

# What each folder of src/ may include besides itself and the folders below it. Order: lowest layer first. A row stands for
# the folders below it that have no row of their own. There are no exemptions for single headers.
LAYERS = {
    "lib/base": [],
    "lib/os": ["lib/base"],
    "lib/journal": ["lib/base"],
    "lib/store": ["lib/base"],
    "lib/loop": ["lib/base"],
    "lib/http/wire": ["lib/base"],
    "lib/http/server": ["lib/base", "lib/loop", "lib/http/wire"],
    "lib/http/fetch": ["lib/base"],
    "proto": ["lib/base"],
    "files": ["lib/base", "lib/os", "proto"],
    "dockerapi": ["lib/base", "lib/http/wire"],
    "supervisor/common": ["lib/base", "lib/journal", "proto"],
    "supervisor/shim": ["lib/base", "lib/os", "lib/journal", "proto", "files", "supervisor/common"],
    "supervisor/relay": ["lib/base", "lib/os", "lib/journal", "proto", "supervisor/common", "dockerapi"],
    "guest": ["lib/base", "lib/os", "proto", "files"],
    "client": ["lib/base", "lib/http/wire", "proto"],
    "image/dockerfile": ["lib/base"],
    "image/lint": ["lib/base", "image/dockerfile"],
    "image/oci": ["lib/base"],
    "image/store": ["lib/base", "lib/os", "image/oci"],
    "image/archive": ["lib/base", "lib/os", "proto", "image/oci", "image/store"],
    "image/build": ["lib/base", "lib/os", "proto", "image/dockerfile", "image/oci", "image/store", "image/archive"],
    "image/transfer": ["lib/base", "lib/os", "lib/http/fetch", "proto", "image/oci"],
    "cli": ["lib/base", "client", "proto", "image/dockerfile", "image/lint"],
    "packages": ["lib/base", "lib/os", "lib/loop", "lib/http/server", "lib/http/fetch", "proto"],
    "daemon/packages": ["lib/base", "lib/os", "lib/loop", "proto"],
    "daemon/engine": ["lib/base", "lib/os", "lib/loop", "lib/journal", "proto"],
    "daemon/engine/native": ["lib/base", "lib/os", "lib/journal", "proto", "image/oci", "image/store",
                             "daemon/engine"],
    "daemon/engine/docker": ["lib/base", "lib/os", "lib/http/wire", "proto", "dockerapi", "image/dockerfile", "daemon/engine"],
    "daemon/core": ["lib/base", "lib/loop", "lib/journal", "lib/store", "proto", "image/oci", "daemon/engine", "daemon/packages"],
    "daemon/api": ["lib/base", "lib/loop", "lib/http/server", "lib/http/wire", "proto", "daemon/core", "daemon/packages"],
    "daemon/main": ["lib", "proto", "daemon"],
    "bin": ["cli", "daemon/main", "supervisor/shim", "supervisor/relay", "guest", "packages", "image/archive", "image/build",
            "image/transfer"],
}

# Folders that link libc alone: jansson must not creep in through lib/base/json.h.
WITHOUT_JSON = {"lib/os", "lib/http/wire", "lib/journal", "image/dockerfile", "supervisor/common", "supervisor/shim", "guest",
                "files"}

# Foreign libraries and the only folders that may see them.
LIBRARIES = {
    "uv.h": {"lib/loop", "lib/http/server"},
    "curl/": {"lib/http/fetch"},
    "sqlite3.h": {"lib/store"},
    "yaml.h": {"daemon/main"},
    "archive": {"image/archive"},
    "seccomp.h": {"lib/os", "daemon/engine/docker"},
    "openssl/ssl.h": {"dockerapi"},
    "jansson.h": LAYERS.keys() - WITHOUT_JSON,
}

GENERATED = {"version.h", "ripcord.h", "host-texts.h", "openapi-text.h"}

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">]+)[">]', re.M)
TOKEN = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|/\*.*?\*/|//[^\n]*', re.S)


def row_of(path):
    """The longest row that holds this path below src/, or None."""
    parts = path.split("/")
    for n in range(len(parts) - 1, 0, -1):
        if "/".join(parts[:n]) in LAYERS:
            return "/".join(parts[:n])
    return None


def within(folder, other):
    return folder == other or folder.startswith(other + "/")


def allowed(row, target):
    if row == target:
        return True
    return any(target == may or (may not in LAYERS and within(target, may)) for may in LAYERS[row])


def check_own_include(row, header):
    if "/" not in header:
        return None if header in GENERATED else f'"{header}" lacks its folder: write the path below src/'
    target = row_of(header)
    if target is None:
        return f'"{header}" is not below a folder of the layer table (tools/check-deps.py)'
    if row in WITHOUT_JSON and header == "lib/base/json.h":
        return f"{row}/ links libc alone and may not include lib/base/json.h"
    if not allowed(row, target):
        may = ", ".join(LAYERS[row]) or "nothing else of ours"
        return f'{row}/ may not include "{header}" (it may include: {may})'
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
        row = row_of("/".join(parts[1:]))
        if row is None:
            problems.append((1, f"{'/'.join(parts[:-1])} is not in the layer table (tools/check-deps.py)"))
        else:
            problems += check_includes(row, text)
    return [f"{path.relative_to(top)}:{line}: {what}" for line, what in sorted(problems)]


def check_tree(top):
    problems = []
    for folder in ("src", "include", "test"):
        for path in sorted((top / folder).rglob("*.[ch]")):
            problems += check_file(path, top)
    return problems


# One made-up file per rule, and the words that its complaint must hold.
BAD = {
    "src/lib/base/up.c": ('#include "daemon/core/exec/exec.h"\n', "may not include"),
    "src/lib/os/json.c": ('#include "lib/base/json.h"\n', "libc alone"),
    "src/cli/bare.c": ('#include "cli.h"\n', "lacks its folder"),
    "src/daemon/core/exec/backend.c": ('#include "daemon/engine/native/native.h"\n', "may not include"),
    "src/daemon/core/exec/loop.c": ("#include <uv.h>\n", "belongs in lib/http/server"),
    "src/odd/new.c": ("int x;\n", "not in the layer table"),
    "src/lib/loop/slash.c": ('char *s = "http://x"; // gone\n', "// comment"),
}
GOOD = {
    "src/lib/base/buf.c": '#include "lib/base/buf.h"\n/* see http://x */\nchar *s = "a//b";\nchar c = \'"\';\n',
    "src/daemon/core/sandbox/sandbox.c": '#include "daemon/engine/engine.h"\n#include "lib/store/store.h"\n#include <stdio.h>\n',
    "src/daemon/main/wiring.c": '#include "daemon/engine/native/doctor.h"\n#include "lib/store/store.h"\n',
}


def self_test():
    return check_lib.self_test_of_files(check_tree, BAD, GOOD)


if __name__ == "__main__":
    check_lib.main(check_tree, self_test)
