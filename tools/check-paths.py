#!/usr/bin/env python3
"""Fails if code that builds or enters a sandbox resolves a path by name.

Once the sandbox's root exists, the tenant decides what a name means. In nearly every escape from a container runtime, the
runtime itself resolved such a path. The files below therefore use descriptors (mount-point.h, openat2). The table ALLOWED
lists each remaining call by name with its reason; a new call needs an entry there.

    tools/check-paths.py              checks the tree
    tools/check-paths.py --self-test  proves that the rule can fail
"""
import re

import check_lib
from check_lib import blank, line_of

FILES = ("caches", "exec-child", "init", "mount-point", "secrets", "setup-dev", "setup-proc-view", "setup-proc", "setup-root")
OTHERS = {"user": "lib/os", "tree-file": "lib/base"}  # of src/; all others are in src/supervisor/shim
BY_NAME = ("access|acct|chdir|chmod|chown|chroot|creat|execv|execve|fopen|lchown|link|lstat|mkdir|mkfifo|mknod|mount|open|opendir|"
           "pivot_root|readlink|realpath|rename|rmdir|stat|statfs|symlink|truncate|umount2?|unlink|utimes?")
CALL = re.compile(rf"(?<![\w.>])(?:{BY_NAME})\s*\(\s*[^,;)]*|\bAT_FDCWD\s*,\s*[^,;)]*")
COMMENT = re.compile(r"/\*.*?\*/", re.S)

# file -> {the beginning of the call: why it is safe}
ALLOWED = {
    "caches": {"opendir(base": "a folder of the host, ours alone, before the sandbox's root exists"},
    "exec-child": {
        'AT_FDCWD, "/proc/self/oom_score_adj"': "before the sandbox is entered: the host's /proc",
        'open("/"': "the root itself, whatever it is: what lies below goes by openat2",
        'AT_FDCWD, "/dev/null"': "openat2 without any link, and its device numbers are compared",
    },
    "secrets": {'open("/"': "as above"},
    "user": {'open("/"': "as above"},
    "setup-dev": {"open(path": "the host's device, before the pivot, without a last link; its numbers are compared"},
    "setup-proc-view": {'open("/proc/cpuinfo"': "the host's, before the pivot"},
    "setup-root": {
        'AT_FDCWD, "/usr"': "where the scaffold goes, on the host's tree in a namespace of our own, before any root exists",
        'AT_FDCWD, "/proc/self/mountinfo"': "our own procfs, mounted a moment ago; no process of the tenant exists yet",
    },
}


def path_of(name):
    return f"src/{OTHERS.get(name, 'supervisor/shim')}/{name}.c"


def find(text):
    """(line, call) of everything that goes by name."""
    bare = COMMENT.sub(blank, text)
    for match in CALL.finditer(bare):
        yield line_of(bare, match.start()), re.sub(r"\s+", " ", match.group()).strip()


def check_file(name, text):
    allowed = ALLOWED.get(name, {})
    used = set()
    for line, call in find(text):
        if call in allowed:
            used.add(call)
        else:
            yield f"{path_of(name)}:{line}: '{call}' goes by name: use mount-point.h or openat2, or give the reason in tools/check-paths.py"
    for call in allowed.keys() - used:
        yield f"tools/check-paths.py: '{call}' is no longer in {path_of(name)}: remove it here"


def check_tree(top):
    for name in (*FILES, *OTHERS):
        yield from check_file(name, (top / path_of(name)).read_text(encoding="utf-8"))


def self_test():
    bad = ['fd = open("/etc/passwd", O_RDONLY);', "mkdir(path, 0755);", "x = openat(AT_FDCWD, name, 0);", "if (mount(a, b, c, 0, d) < 0)"]
    good = ["place_mkdir(fd, path, 0755, err);", "openat(dir, name, 0);", "/* open(path) */", "layers_open(x)", "a->open(b)", "mount_clone(fd, x)"]
    yield from (f"missed: {line}" for line in bad if not list(check_file("mount-point", line)))
    yield from (f"wrongly found: {line}" for line in good if list(check_file("mount-point", line)))


if __name__ == "__main__":
    check_lib.main(check_tree, self_test)
