#!/usr/bin/env python3
"""Fails where a document, a comment or a manual page refers to something that is not there.

  Markdown      relative links and their anchors; paths in backquotes (`src/...`, `docs/...`, `test/...`, `tools/...`);
                lines over 120 columns outside tables and code blocks
  C comments    paths of the same four forms; `folder/x.h` (from src/, or for tests from test/) and `x.h` (the same folder)
  manual pages  paths of the same four forms
  everywhere    `ripcord-xyz(1)` names a page that man/meson.build builds; no reference to a file outside this repository

    tools/check-links.py [FOLDER]     checks the tracked files below FOLDER (default: the tree)
    tools/check-links.py --self-test  shows on made-up files that each rule can fail
"""
import functools
import os
import re
import subprocess
from pathlib import Path

import check_lib
from check_lib import blank, line_of

WIDTH = 120
MAN_BUILD = "man/meson.build"
COMMANDS_BUILD = "src/cli/meson.build"  # its list of commands is the list of their pages

# Each was the name of a document that readers of this repository do not have.
OUTSIDE = re.compile(r"\bDESIGN(?:\.md)?\b|\bSECURITY(?:\.md|,? [A-H]\d+)\b|\bSTYLE\.md\b|\bstyle-anchors\b"
                     r"|(?<![\w/.-])facts/[\w-]+\.md\b|\.\./shared\b")

COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|/\*.*?\*/', re.S)
PATH = re.compile(r"(?<![\w/.*<-])(?:docs|src|test|tools)/[\w./*{},<>…-]+")
TEMPLATE = re.compile(r"[*{}<>…]|\.\.\.")
FILE = re.compile(r"(?<![\w/.*<%+-])((?:[a-z][\w-]*/)*[a-z][\w-]*\.[ch])\b(?![\w/*-])")
MAN = re.compile(r"(?<![\w/.-])(ripcord[\w.-]*)\((\d)\)")
ROFF_MAN = re.compile(r"^\.BR (ripcord[\w.-]*) \((\d)\)", re.M)

FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")
LINK = re.compile(r'!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(<?([^()\s<>]+(?:\([^()\s]*\))?)>?(?:\s+"[^"]*")?\)')
DEFINITION = re.compile(r"^ {0,3}\[[^\]^]+\]:\s*<?(\S+?)>?\s*$", re.M)
CODE_SPAN = re.compile(r"(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.S)
HEADING = re.compile(r"^ {0,3}#{1,6}\s+(.*?)\s*#*\s*$")
ANCHOR = re.compile(r"<a\s+(?:id|name)=\"([^\"]+)\"")
SCHEME = re.compile(r"^[a-z][a-z0-9+.-]*:", re.I)

# Headers and sources of the kernel and of libraries, which comments may cite.
FOREIGN_FOLDERS = {"arch", "arpa", "asm", "asm-generic", "bits", "block", "bpf", "curl", "drivers", "fs", "include", "ipc", "kernel",
                   "linux", "mm", "netinet", "openssl", "security", "sys", "uapi", "uv"}
SYSTEM_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*<([^>]+)>", re.M)
GENERATED = {"version.h", "ripcord.h", "host-texts.h"}
FOREIGN_FILES = {"hello.c", "nsfs.h", "resolv.h"}


class Tree:
    """The files of a repository, by their paths from its top; texts are read once."""

    def __init__(self, top, names):
        self.top = top
        self.files = set(names)
        self.all = set(self.files)
        for name in names:
            self.all.update(str(parent) for parent in Path(name).parents)
        self.basenames = {os.path.basename(name) for name in names}
        self.stems = {os.path.splitext(name)[0] for name in names}

    @functools.lru_cache(maxsize=None)
    def text(self, name):
        return (self.top / name).read_text(encoding="utf-8", errors="replace")

    def has(self, path):
        """A file or folder, or a program or module that is named without its suffix."""
        path = os.path.normpath(path)
        return path in self.all or path in self.stems

    def ending(self, *suffixes):
        return sorted(name for name in self.files if name.endswith(suffixes))

    @functools.cached_property
    def system_headers(self):
        found = set()
        for name in self.ending(".c", ".h"):
            found.update(SYSTEM_INCLUDE.findall(self.text(name)))
        return found

    @functools.cached_property
    def pages(self):
        """Names of the manual pages that are built, as `ripcord-run(1)`."""
        if MAN_BUILD not in self.files:
            return set()
        text = self.text(MAN_BUILD)
        names = set(re.findall(r"'([\w.-]+\.\d)'", text))
        commands = re.search(r"^cli_commands = \[(.*?)\]", self.text(COMMANDS_BUILD), re.M | re.S)
        names.update(f"ripcord-{word}.1" for word in re.findall(r"'([\w-]+)'", commands.group(1) if commands else ""))
        return {"{}({})".format(*name.rsplit(".", 1)) for name in names}


def without_fences(text):
    """Markdown with its code blocks emptied."""
    lines, fence = [], None
    for line in text.split("\n"):
        mark = FENCE.match(line)
        if fence:
            lines.append("")
            if mark and mark.group(1).startswith(fence) and not line.strip().strip(fence[0]):
                fence = None
        elif mark:
            fence = mark.group(1)
            lines.append("")
        else:
            lines.append(line)
    return "\n".join(lines)


def slug(heading):
    """The anchor that GitHub gives a heading."""
    heading = LINK.sub(lambda m: m.group()[m.group().index("[") + 1:m.group().index("](")], heading)
    return re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower()).replace(" ", "-")


@functools.lru_cache(maxsize=None)
def anchors(tree, name):
    text = without_fences(tree.text(name))
    found, counts = set(ANCHOR.findall(text)), {}
    for line in text.split("\n"):
        match = HEADING.match(line)
        if match:
            base = slug(match.group(1))
            counts[base] = counts.get(base, -1) + 1
            found.add(f"{base}-{counts[base]}" if counts[base] else base)
    return found


def check_link(tree, name, target):
    if SCHEME.match(target):
        return None
    path, _, anchor = target.partition("#")
    found = os.path.normpath(os.path.join(os.path.dirname(name), path)) if path else name
    if found.startswith("..") or os.path.isabs(found):
        return f"link '{target}' leads out of the repository"
    if found not in tree.all:
        return f"link '{target}': no such file"
    if anchor and found.endswith(".md") and anchor not in anchors(tree, found):
        return f"link '{target}': '{found}' has no heading '#{anchor}'"
    return None


def check_markdown(tree, name):
    text = without_fences(tree.text(name))
    prose = CODE_SPAN.sub(blank, text)
    for pattern in (LINK, DEFINITION):
        for match in pattern.finditer(prose):
            problem = check_link(tree, name, match.group(1))
            if problem:
                yield line_of(text, match.start()), problem
    for match in CODE_SPAN.finditer(text):
        yield from check_paths(tree, text, match.group(2), match.start(2))
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > WIDTH and not line.lstrip().startswith("|"):
            yield number, f"{len(line)} columns: break the line at {WIDTH}"


def check_paths(tree, text, part, start):
    """`docs/x.md`, `src/...`, `test/...`, `tools/...` in a part of a text that begins at start."""
    for match in PATH.finditer(part):
        path = match.group().rstrip(".,/")
        if not TEMPLATE.search(path) and not tree.has(path):
            yield line_of(text, start + match.start()), f"'{path}': no such file"


def is_found(tree, name, path):
    """A comment in src/ finds a bare name in its own folder, one of a test anywhere; with a folder, from src/ (or test/)."""
    if "/" not in path:
        own = os.path.join(os.path.dirname(name), path)
        return own in tree.files if name.startswith("src/") else path in tree.basenames
    if path.startswith("examples/"):
        return path in tree.files
    return "src/" + path in tree.files or (name.startswith("test/") and "test/" + path in tree.files)


def check_file_names(tree, name, text, comment, start):
    for match in FILE.finditer(comment):
        path = match.group(1)
        if path.split("/")[0] in FOREIGN_FOLDERS | {"docs", "src", "test", "tools"} and "/" in path:
            continue
        if path in tree.system_headers or path in GENERATED | FOREIGN_FILES or is_found(tree, name, path):
            continue
        how = "write its path from src/" if "/" not in path else "no such file below src/"
        yield line_of(text, start + match.start()), f"'{path}': {how}"


def check_c(tree, name):
    text = tree.text(name)
    for match in COMMENT.finditer(text):
        if match.group().startswith("/*"):
            yield from check_paths(tree, text, match.group(), match.start())
            yield from check_file_names(tree, name, text, match.group(), match.start())


def check_man_page(tree, name):
    text = tree.text(name)
    yield from check_paths(tree, text, text.replace("\\-", "-").replace("\\fB", "").replace("\\fR", ""), 0)
    yield from check_man_names(tree, text, ROFF_MAN)


def check_man_names(tree, text, pattern=MAN):
    for match in pattern.finditer(text):
        page = f"{match.group(1)}({match.group(2)})"
        if page not in tree.pages:
            yield line_of(text, match.start()), f"{page}: no such manual page is built ({MAN_BUILD})"


def check_outside(text):
    for match in OUTSIDE.finditer(text):
        yield line_of(text, match.start()), f"'{match.group()}' is not in this repository"


def is_text(name):
    return name.endswith((".c", ".h", ".md", ".py", ".sh", ".yaml", ".yml", ".build", ".in")) or re.search(r"\.[1-8]$", name) \
        or "." not in os.path.basename(name)


def check_file(tree, name):
    problems = []
    if name.endswith(".md"):
        problems += check_markdown(tree, name)
    if name.endswith((".c", ".h")):
        problems += check_c(tree, name)
    if re.search(r"^man/.*\.[1-8]$", name):
        problems += check_man_page(tree, name)
    if is_text(name) and name != "tools/check-links.py":
        text = tree.text(name)
        problems += check_outside(text)
        problems += check_man_names(tree, text)
    return [f"{name}:{line}: {what}" for line, what in sorted(set(problems))]


def check_names(top, names):
    tree = Tree(top, names)
    return [problem for name in sorted(names) for problem in check_file(tree, name)]


def tracked(top):
    """What git knows, and what it would add: a new file counts before its commit, a removed one does not."""
    done = subprocess.run(["git", "-C", str(top), "ls-files", "-coz", "--exclude-standard"], check=True, capture_output=True)
    names = set(done.stdout.decode().split("\0")) - {""}
    return sorted(name for name in names if (top / name).is_file())


def check_tree(top):
    return check_names(top, tracked(top))


# One made-up line per rule, and the words that its complaint must hold.
BAD = {
    "docs/link.md": ("see [x](missing.md)\n", "no such file"),
    "docs/anchor.md": ("# A\nsee [x](good.md#nowhere)\n", "no heading"),
    "docs/own-anchor.md": ("# A\n[x](#b)\n", "no heading"),
    "docs/out.md": ("[x](../../y.md)\n", "leads out"),
    "docs/definition.md": ("[x]: gone.md\n", "no such file"),
    "docs/path.md": ("the file `src/lib/gone.c` does it\n", "'src/lib/gone.c'"),
    "docs/wide.md": ("x " * 61 + "\n", "columns"),
    "docs/page.md": ("see ripcord-gone(1)\n", "manual page"),
    "docs/outside.md": ("as DESIGN 5 says\n", "not in this repository"),
    "docs/catalogue.md": ("as SECURITY E2 says\n", "not in this repository"),
    "docs/notes.md": ("as facts/docker.md says\n", "not in this repository"),
    "src/lib/a.c": ("int a; /* see docs/gone.md */\n", "'docs/gone.md'"),
    "src/lib/b.c": ("/*\n * See\n * src/lib/gone.h.\n */\n", ":3: 'src/lib/gone.h'"),
    "src/lib/c.c": ("/* See base/err.h. */\n", "no such file below src/"),
    "src/lib/d.c": ("/* See other.h. */\n", "path from src/"),
    "src/lib/e.c": ('char *s = "see ripcord-api(7)";\n', "manual page"),
    "src/lib/f.c": ("/* STYLE.md wants it */\n", "not in this repository"),
    "man/bad.5": (".BR ripcord-gone (1)\n", "manual page"),
    "man/bad-path.5": ("see docs/gone.md\n", "'docs/gone.md'"),
}
GOOD = {
    "docs/good.md": ("# The `first` page, again\n## Twice\n## Twice\n[x](#the-first-page-again) [y](#twice-1) [z](https://a.example/b.md)\n"
                     "`[no](link.md)` [d](../src/lib) `src/*/x.c` `tools/check` ![i](good.md)\n"
                     "| " + "x" * 200 + " |\n```\n" + "y" * 200 + " [a](b.md)\n```\nripcord-run(1) ripcord.yaml(5) ripcord(1)\n"),
    "src/lib/good.h": "int x;\n",
    "src/lib/good.c": ('#include <linux/fs.h>\n#include <sched.h>\n/* See good.h, lib/good.h, sched.h, linux/mount.h and docs/good.md. */\n'
                       'char *s = "docs/not-a-comment.md";\n'),
    "test/unit/t.c": "/* Of lib/good.h, t.c, unit/t.c and src/lib/. */\n",
    "tools/check.py": "",
    "man/ripcord.yaml.5": ".BR ripcord-run (1)\ndocs/good.md\n",
    MAN_BUILD: "install_man('ripcord.yaml.5')\n  name = page == '' ? 'ripcord.1' : 'ripcord-' + page + '.1'\n",
    COMMANDS_BUILD: "cli_commands = ['run',\n  'up']\n",
}


def self_test():
    return check_lib.self_test_of_files(lambda top: check_names(top, sorted(BAD.keys() | GOOD.keys())), BAD, GOOD)


if __name__ == "__main__":
    check_lib.main(check_tree, self_test)
