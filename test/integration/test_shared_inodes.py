"""Files that sandboxes have in common: no sandbox notices by them what others run, and no lock or lease reaches another sandbox or the host."""
import fcntl
import json
import os
import signal
import struct
import subprocess
import tempfile
import unittest
from pathlib import Path

from ripcord_test import TestCase, needs, only_on
from test_builder import BuildCase

TALK = """
import ctypes, errno, fcntl, json, os, signal, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
"""
# Watches the paths of its arguments until a line comes; then says which events came, by the path that was watched.
WATCH = TALK + """
fd = libc.inotify_init1(os.O_NONBLOCK)
watched = {libc.inotify_add_watch(fd, path.encode(), 0xfff): path for path in sys.argv[1:]}
assert min(watched) > 0, watched
print('ready', flush=True)
for _ in sys.stdin:
    seen, data = set(), b''
    try:
        while True:
            data += os.read(fd, 65536)
    except BlockingIOError:
        pass
    while data:
        wd, mask, _, length = struct.unpack_from('iIII', data)
        seen.add((watched[wd], data[16:16 + length].rstrip(b'\\0').decode()))
        data = data[16 + length:]
    print(json.dumps(sorted(seen)), flush=True)
"""
# Tries a lock of each kind on each path, and says how that went.
LOCKS = """
found = {}
for path in sys.argv[1:]:
    fd = os.open(path, os.O_RDONLY)
    for kind, lock in (('flock', lambda: fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)), ('lease', lambda: fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK))):
        if kind == 'lease' and not os.path.isfile(path):
            continue
        try:
            lock()
            found[kind + ' ' + path] = 'held'
        except OSError as e:
            found[kind + ' ' + path] = errno.errorcode[e.errno]
print(json.dumps(found), flush=True)
"""
HELD_BY_THE_HOST = "/usr/lib/os-release"  # a file that nobody runs: it may be opened for writing


class Watcher:
    """A command that watches paths in a sandbox."""

    def __init__(self, test, name, *paths):
        self.process = test.root.popen("exec", name, "-i", "--user", "0", "--", "/usr/bin/python3", "-c", WATCH, *paths, stdin=subprocess.PIPE)
        test.addCleanup(self.process.communicate)
        test.addCleanup(self.process.kill)
        test.assertEqual(self.process.stdout.readline(), b"ready\n")
        self.seen()  # what its own start brought

    def seen(self):
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()
        return [tuple(pair) for pair in json.loads(self.process.stdout.readline())]


class SharedCase(TestCase):
    """Two sandboxes, a and b, and what each tries as its root."""

    def python(self, name, code, *args):
        return json.loads(self.root.ok("exec", name, "--user", "0", "--", "/usr/bin/python3", "-c", TALK + code, *args).text)

    def hold(self, name, *paths):
        """Keeps locks until the test ends."""
        p = self.root.popen("exec", name, "-i", "--user", "0", "--", "/usr/bin/python3", "-c", TALK + LOCKS + "sys.stdin.read()", *paths,
                            stdin=subprocess.PIPE)
        self.addCleanup(p.communicate)
        self.addCleanup(p.kill)
        return json.loads(p.stdout.readline())

    def assert_unwatched(self, folder, program):
        """Nothing in `a` shows that `b` runs the program."""
        watcher = Watcher(self, "a", folder, program)
        look = f"{program} >/dev/null 2>&1; cat {program} >/dev/null; ls {folder} >/dev/null"
        self.shell("b", look)
        self.assertEqual(watcher.seen(), [], "what another sandbox does is seen")
        self.shell("a", look)
        found = watcher.seen()
        self.assertIn((folder, os.path.basename(program)), found, "the watch does not work at all")
        self.assertIn((program, ""), found)

    def assert_not_locked(self, *paths):
        """What a holds is free in b."""
        held = self.hold("a", *paths)
        self.assertEqual({v for k, v in held.items() if k.startswith("flock")}, {"held"}, held)
        again = self.python("a", LOCKS, *paths)
        self.assertEqual({v for k, v in again.items() if k.startswith("flock")}, {"EAGAIN"}, "the lock does not work at all")
        self.assertEqual(self.python("b", LOCKS, *paths), held)


class TestSharedInodes(SharedCase):
    """In each engine's usual image."""

    def setUp(self):
        super().setUp()
        for name in ("a", "b"):
            self.root.ok("up", name)

    def test_programs_of_others_are_not_seen(self):
        self.assert_unwatched("/usr/bin", "/usr/bin/env")

    @needs("host image")
    def test_programs_of_the_machine_are_not_seen(self):
        watcher = Watcher(self, "a", "/usr/bin", "/usr/bin/env", "/usr/lib", "/opt")
        subprocess.run(["/usr/bin/env", "true"], check=True)
        for folder in ("/usr/bin", "/usr/lib", "/opt"):
            os.listdir(folder)
        self.assertEqual(watcher.seen(), [])
        self.shell("a", "ls /usr/bin /usr/lib /opt")
        self.assertTrue({"/usr/bin", "/usr/lib", "/opt"} <= {path for path, _ in watcher.seen()}, "the watch does not work at all")

    def test_locks_end_at_the_sandbox(self):
        self.assert_not_locked("/usr/bin/env", "/usr/bin", "/etc/passwd", "/dev/null")

    @needs("host image")
    def test_locks_and_leases_do_not_reach_the_machine(self):
        held = self.hold("a", "/usr/bin", HELD_BY_THE_HOST)
        self.assertEqual(set(held.values()), {"held"}, held)
        folder = os.open("/usr/bin", os.O_RDONLY)
        self.addCleanup(os.close, folder)
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(os.open(HELD_BY_THE_HOST, os.O_WRONLY | os.O_NONBLOCK))  # see the next test
        self.assertEqual(self.python("b", LOCKS, "/usr/bin")["flock /usr/bin"], "held", "the host's lock is seen inside")

    def test_a_lease_would_stop_the_machine(self):
        """What the test above stands on: that open fails while anybody has a lease on the same inode."""
        code = ("import fcntl, os, signal, sys\nsignal.signal(signal.SIGIO, signal.SIG_IGN)\nfd = os.open(sys.argv[1], os.O_RDONLY)\n"
                "fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)\nos.open(sys.argv[1], os.O_WRONLY | os.O_NONBLOCK)")
        with tempfile.NamedTemporaryFile() as file:
            done = subprocess.run(["/usr/bin/python3", "-c", code, file.name], capture_output=True, check=False)
        self.assertIn(b"BlockingIOError", done.stderr)

    def test_devices_are_not_watched(self):
        watcher = Watcher(self, "a", "/dev/null", "/dev/urandom")
        self.shell("b", "echo x >/dev/null; head -c1 /dev/urandom >/tmp/x")
        self.assertEqual(watcher.seen(), [], "what another sandbox does is seen")
        with open("/dev/null", "wb") as null, open("/dev/urandom", "rb") as random:
            null.write(b"x")
            random.read(1)
        self.assertEqual(watcher.seen(), [], "what the machine does is seen")
        self.shell("a", "echo x >/dev/null")
        self.assertIn(("/dev/null", ""), watcher.seen(), "the watch does not work at all")

    @needs("own kernel objects")
    def test_locks_of_others_are_not_listed(self):
        """Locks of open file descriptions have no process, and the kernel lists them for everybody."""
        with tempfile.NamedTemporaryFile() as held:
            fcntl.fcntl(held, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
            self.assertIn("OFDLCK", Path("/proc/locks").read_text(encoding="ascii"))
            self.assertNotIn("OFDLCK", self.root.run("exec", "a", "--", "cat", "/proc/locks").text)

    @needs("host image")
    def test_it_is_still_the_machines_usr(self):
        self.assertEqual(self.shell("a", "stat -c '%s %a %Y' /usr/bin/env; ls /usr/lib | wc -l"),
                         subprocess.run(["sh", "-c", "stat -c '%s %a %Y' /usr/bin/env; ls /usr/lib | wc -l"], check=True, capture_output=True).stdout.decode())
        for user in ("0", "1000"):
            for path in ("/usr/x", "/opt/x", "/usr/bin/env"):
                done = self.root.run("exec", "a", "--user", user, "--", "touch", path)
                self.assertIn(b"Read-only file system", done.err)

    @unittest.skipUnless(os.geteuid() == 0, "only root can mount")
    @needs("host image")
    def test_what_is_mounted_below_opt_is_shown(self):
        """An overlay would hide it: such a tree is mounted as it is, and the log says what that means."""
        self.root.kill_daemon(signal.SIGTERM)  # the next one starts where a file system is mounted below /opt
        mounted = 'mount -t tmpfs none /opt && mkdir /opt/disk && mount -t tmpfs none /opt/disk && echo there >/opt/disk/file && exec "$@"'
        subprocess.run(["unshare", "--mount", "sh", "-c", mounted, "sh", *self.root.argv("up", "c")], env=self.root.env(), check=True,
                       stdout=subprocess.DEVNULL)
        self.assertEqual(self.shell("c", "cat /opt/disk/file"), "there\n")
        self.assertIn("touch: cannot touch '/opt/disk/x': Read-only", self.root.run("exec", "c", "--", "touch", "/opt/disk/x").err.decode())
        self.assertTrue(any(b"'/opt' is shared with other sandboxes" in text for _, text in self.root.logs()), self.root.logs())
        self.assertEqual(self.shell("a", "ls -d /opt/disk 2>/dev/null || echo none"), "none\n")


@only_on("native")
class TestSharedLayers(BuildCase, SharedCase):
    """Layers of an image on `host`, and the base of the caches."""

    def prepare(self):
        pass

    def test_layers_and_caches(self):
        self.build("FROM host\nRUN echo layer > /opt/file; printf '#!/bin/sh\\n' > /opt/tool; chmod 755 /opt/tool\n")
        for name in ("a", "b"):
            self.root.ok("up", name, "--image", "made:1")
        self.assert_unwatched("/opt", "/opt/tool")
        self.assert_unwatched("/usr/bin", "/usr/bin/env")
        self.assert_not_locked("/opt/file", "/opt", "/usr/bin", "/cache", "/cache/pip")
