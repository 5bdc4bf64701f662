"""Writable mounts: whatever a sandbox does, no set-id file, set-gid folder or file capability comes to be in a folder of the
machine. The system call filter is the first guard. The second is the owner on disk: never root, unless the user says so."""
import io
import os
import shutil
import stat
import tarfile
import tempfile
import unittest
from pathlib import Path

from ripcord_test import Config, TestCase, needs, only_on
from test_system_calls import on_x86_64

USER = 1000  # owns a folder of an ordinary user, and is `agent` on engines without id maps
SQUASHED = 0x7FFFFFFE  # owner on disk of files that a sandbox makes in a folder of root

# Runs inside: makes a set-id file, folder or capability in each way, and prints what came of each.
PROBE = r"""
import ctypes, errno, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
O_CREAT, O_TMPFILE, AT_FDCWD = os.O_CREAT | os.O_RDWR, os.O_TMPFILE | os.O_RDWR, -100
top = sys.argv[1]
os.umask(0)
os.chdir(top)
said = {}

def call(nr, *args):
    ctypes.set_errno(0)
    r = libc.syscall(ctypes.c_long(nr), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    return r if r >= 0 else -ctypes.get_errno()

def attempt(name, nr, *args):
    r = call(nr, *args)
    said[name] = 'done' if r >= 0 else errno.errorcode[-r]
    return r

def plain(name):
    fd = os.open(name, os.O_CREAT | os.O_RDWR, 0o755)
    os.write(fd, b'#!/bin/sh\nid\n')
    return fd

for bits in (0o4755, 0o2755, 0o6777, 0o7777):
    b = oct(bits)[2:].encode()
    for file in (b'chmod', b'fchmod', b'fchmodat', b'fchmodat2', b'high'):
        fd = plain(file + b)
        if file == b'chmod':
            attempt(f'chmod {bits:o}', 90, file + b, bits)
        elif file == b'fchmod':
            attempt(f'fchmod {bits:o}', 91, fd, bits)
        elif file == b'fchmodat':
            attempt(f'fchmodat {bits:o}', 268, AT_FDCWD, file + b, bits)
        elif file == b'fchmodat2':
            attempt(f'fchmodat2 {bits:o}', 452, AT_FDCWD, file + b, bits, 0)
        else:
            attempt(f'chmod, high bits {bits:o}', 90, file + b, bits | 1 << 32)
        os.close(fd)
    os.mkdir(b'dir' + b)
    attempt(f'chmod of a folder {bits:o}', 90, b'dir' + b, bits)
    attempt(f'open {bits:o}', 2, b'open' + b, O_CREAT, bits)
    attempt(f'openat {bits:o}', 257, AT_FDCWD, b'openat' + b, O_CREAT, bits)
    attempt(f'creat {bits:o}', 85, b'creat' + b, bits)
    attempt(f'openat2 {bits:o}', 437, AT_FDCWD, b'openat2' + b, struct.pack('QQQ', O_CREAT, bits, 0), 24)
    fd = attempt(f'O_TMPFILE {bits:o}', 257, AT_FDCWD, b'.', O_TMPFILE, bits)
    if fd >= 0:
        call(265, AT_FDCWD, f'/proc/self/fd/{fd}'.encode(), AT_FDCWD, b'tmpfile' + b, 0x400)
    attempt(f'mknod {bits:o}', 133, b'mknod' + b, 0o100000 | bits, 0)
    attempt(f'mknodat {bits:o}', 259, AT_FDCWD, b'mknodat' + b, 0o100000 | bits, 0)
    call(83, b'mkdir' + b, bits)  # the kernel drops these bits
    call(258, AT_FDCWD, b'mkdirat' + b, bits)
os.close(plain('capable'))
capability = struct.pack('<IIIII', 0x02000001, 1 << 21, 0, 0, 0)  # CAP_SYS_ADMIN, effective
attempt('setxattr', 188, b'capable', b'security.capability', capability, len(capability), 0)
capability = struct.pack('<IIIIII', 0x03000001, 1 << 21, 0, 0, 0, 0)
attempt('setxattr, of a namespace', 188, b'capable', b'security.capability', capability, len(capability), 0)

# what must go on working, with a mode that means nothing
assert call(257, AT_FDCWD, b'capable', os.O_RDONLY, 0o6755) >= 0
fd = plain('fine')
os.fchmod(fd, 0o1777)
os.mkdir('sticky', 0o1777)
os.mkfifo('fifo')
open('ordinary', 'w').write('x')
for name, what in sorted(said.items()):
    print(name, what, sep='=')
"""


class Mounts(TestCase):
    def setUp(self):
        super().setUp()
        self.place = Path(tempfile.mkdtemp(prefix="ripcord-mounts-", dir=Config.disk))
        self.addCleanup(shutil.rmtree, self.place)
        self.place.chmod(0o755)
        self.root.configure(f"mounts.roots: [{self.place}]\n")

    def source(self, name="v", owner=USER, group=None, mode=0o755):
        folder = self.place / name
        folder.mkdir()
        os.chown(folder, owner, owner if group is None else group)
        folder.chmod(mode)
        return folder

    def bad(self, folder=None):
        """What nobody may find on the machine: set-id files, set-gid folders, file capabilities."""
        found = []
        for path in (folder or self.place).rglob("*"):
            if stat.S_IMODE(path.lstat().st_mode) & (stat.S_ISUID | stat.S_ISGID):
                found.append(f"{path.name} {path.lstat().st_mode:o}")
            if not path.is_symlink() and "security.capability" in os.listxattr(path):
                found.append(f"{path.name} has a capability")
        return sorted(found)

    def probe(self, name, target="/vol", *options):
        done = self.root.ok("exec", name, *options, "--", "/usr/bin/python3", "-c", PROBE, target)
        return dict(line.split("=") for line in done.text.splitlines())

    def assert_refused_calls(self, said):
        ways = {name: what for name, what in said.items() if what not in ("EPERM", "ENOSYS")}
        self.assertEqual(ways, {}, said)
        self.assertGreater(len(said), 40)


@on_x86_64
class SetId(Mounts):
    def test_by_any_call(self):
        folder = self.source()
        self.root.ok("up", "m", "--mount", f"{folder}:/vol")
        self.assert_refused_calls(self.probe("m"))
        self.assertEqual(self.bad(), [])
        self.assertTrue((folder / "ordinary").exists())

    @only_on("native")
    def test_as_root_inside(self):
        folder = self.source()
        self.root.ok("up", "m", "--user", "root", "--mount", f"{folder}:/vol")
        shutil.copy("/bin/true", folder / "there")
        os.chown(folder / "there", USER, USER)
        done = self.root.run("exec", "m", "--", "chmod", "4755", "/vol/there")
        self.assertIn(b"Operation not permitted", done.err)
        self.assertEqual(self.bad(), [])

    @needs("own kernel objects")
    def test_files_in_a_folder_of_root_do_not_belong_to_root(self):
        folder = self.source(owner=0, mode=0o777)
        self.root.ok("up", "m", "--mount", f"{folder}:/vol")
        self.assert_refused_calls(self.probe("m"))
        self.assertEqual(self.bad(), [])
        owners = {(p.lstat().st_uid, p.lstat().st_gid) for p in folder.rglob("*")}
        self.assertEqual(owners, {(SQUASHED, SQUASHED)})
        self.assertEqual(self.shell("m", "stat -c '%U %G' /vol/ordinary").split(), ["agent", "agent"])
        self.root.ok("run", "--mount", f"{folder}:/vol", "--", "sh", "-c", "echo more >> /vol/ordinary")  # also a file of another user

    def test_a_folder_that_is_read_only_sets_no_limit(self):
        folder = self.source()
        self.root.ok("up", "m", "--mount", f"{folder}:/vol:ro")
        self.assertEqual(self.shell("m", "touch f; chmod 6755 f; stat -c %a f").split(), ["6755"])

    def test_without_a_mount_the_bits_can_be_set(self):
        self.root.ok("up", "m")
        self.assertEqual(self.shell("m", "touch f; chmod 6755 f; stat -c %a f").split(), ["6755"])

    def test_a_folder_with_a_group_of_its_own(self):
        """New folders inherit the set-gid bit and the group of the source: its owner chose that. Files do not."""
        folder = self.source(mode=0o2775)
        self.root.ok("up", "m", "--mount", f"{folder}:/vol")
        self.shell("m", "mkdir /vol/sub; cp /bin/true /vol/sub/file; chmod 755 /vol/sub/file")
        self.assertEqual([p.name for p in folder.rglob("*") if p.lstat().st_mode & 0o6000], ["sub"])
        self.assertEqual((folder / "sub").stat().st_gid, USER)
        self.assertEqual(self.root.run("exec", "m", "--", "chmod", "g+s", "/vol/sub/file").code, 1)

    def test_copies_leave_the_bits_out(self):
        folder = self.source()
        self.root.ok("up", "m", "--mount", f"{folder}:/vol")
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            for name, kind, mode in (("d", tarfile.DIRTYPE, 0o2777), ("d/f", tarfile.REGTYPE, 0o6755), ("f", tarfile.REGTYPE, 0o4777)):
                entry = tarfile.TarInfo(name)
                entry.type, entry.mode = kind, mode
                tar.addfile(entry)
            entry = tarfile.TarInfo("capable")
            entry.mode = 0o755
            entry.pax_headers = {"SCHILY.xattr.security.capability": "all"}
            tar.addfile(entry)
        self.root.ok("cp", "-", "m:/vol", stdin=archive.getvalue())
        local = self.place / "local"
        shutil.copy("/bin/true", local)
        local.chmod(0o6755)
        self.root.ok("cp", local, "m:/vol/copied")
        local.unlink()
        self.assertEqual(sorted(p.name for p in folder.iterdir()), ["capable", "copied", "d", "f"])
        self.assertEqual(self.bad(), [])


@only_on("docker", "podman")
class Root(Mounts):
    """Engines have no id map for a mount: instead nobody is root in such a container."""

    def test_root_is_refused(self):
        folder = self.source(mode=0o777)
        for user in ("root", "0", "0:0"):
            done = self.root.run("up", "r", "--user", user, "--mount", f"{folder}:/vol")
            self.assert_exit(done, 5)
            self.assertIn(b"cannot run as root", done.err)
        self.root.run("rm", "-f", "r")
        self.root.ok("up", "m", "--mount", f"{folder}:/vol")
        for user in ("root", "0", "0:1000"):
            done = self.root.run("exec", "m", "--user", user, "--", "touch", "/vol/f")
            self.assertEqual(done.code, 126, done)
            self.assertIn(b"no_root_squash", done.err)
        self.assertEqual(list(folder.iterdir()), [])
        self.root.ok("exec", "m", "--", "touch", "/vol/f")

    def test_switched_off_the_filter_is_left(self):
        folder = self.source(mode=0o777)
        self.root.ok("up", "m", "--user", "root", "--mount", f"{folder}:/vol:no_root_squash")
        self.assert_refused_calls(self.probe("m"))
        self.assertEqual((folder / "ordinary").stat().st_uid, 0)
        self.assertEqual(self.bad(), [])

    def test_root_without_a_writable_mount(self):
        folder = self.source()
        self.root.ok("up", "m", "--user", "root", "--mount", f"{folder}:/vol:ro")
        self.assertEqual(self.shell("m", "id -u; cd /tmp; touch f; chmod 4755 f; stat -c %a f").split(), ["0", "4755"])

    def test_what_needs_openat2_elsewhere(self):
        folder = self.source()
        self.root.ok("up", "m", "--mount", f"{folder}:/vol")
        self.assertIn("/dev/pts/", self.root.ok("exec", "-t", "m", "--", "tty").text)
        self.root.ok("cp", __file__, "m:/vol/sub.py")
        self.root.ok("cp", "m:/vol/sub.py", self.place / "back")
        self.assertEqual((self.place / "back").read_bytes(), Path(__file__).read_bytes())


@needs("own kernel objects")
class RootSquash(Mounts):
    def test_a_folder_of_root_is_read_only_and_up_says_so(self):
        folder = self.source(owner=0)
        done = self.root.ok("up", "m", "--mount", f"{folder}:/vol")
        self.assertIn(f"warning: mount '{folder}': the sandbox cannot write to it, because it belongs to root".encode(), done.err)
        self.assertIn(b"chown", done.err)
        self.assertIn(f"mount '{folder}'", self.root.ok("show", "m").text)
        self.assertIn("Permission denied", self.root.run("exec", "m", "--", "touch", "/vol/f").err.decode())
        self.assertEqual(list(folder.iterdir()), [])
        started = self.root.ok("run", "--json", "--mount", f"{folder}:/vol", "--", "true").text.splitlines()[0]
        self.assertIn(f"mount '{folder}'", started)

    def test_writable_for_a_group_or_for_all(self):
        for name, group, mode in (("g", USER, 0o775), ("o", 0, 0o777)):
            folder = self.source(name, owner=0, group=group, mode=mode)
            done = self.root.ok("up", name, "--mount", f"{folder}:/vol")
            self.assertNotIn(b"warning", done.err)
            self.shell(name, "echo x > /vol/f")
            self.assertEqual((folder / "f").stat().st_uid, SQUASHED)
            self.assertEqual((folder / "f").stat().st_gid, group or SQUASHED)

    def test_the_group_root_is_not_given_either(self):
        folder = self.source(group=0)
        self.root.ok("up", "m", "--mount", f"{folder}:/vol")
        self.shell("m", "echo x > /vol/f")
        self.assertEqual(((folder / "f").stat().st_uid, (folder / "f").stat().st_gid), (USER, SQUASHED))

    def test_files_of_root_are_read_as_by_others(self):
        folder = self.source(owner=0, mode=0o777)
        for name, mode in (("open", 0o644), ("shut", 0o600)):
            (folder / name).write_text(name)
            (folder / name).chmod(mode)
        self.root.ok("up", "m", "--mount", f"{folder}:/vol", "--mount", f"{folder}:/ro:ro")
        self.assertEqual(self.shell("m", "cat /vol/open; stat -c ' %u' /vol/open").split(), ["open", "65534"])
        self.assertEqual(self.root.run("exec", "m", "--", "cat", "/vol/shut").code, 1)
        self.assertEqual(self.root.run("exec", "m", "--", "rm", "-f", "/vol/nothing").code, 0)
        self.assertEqual(self.shell("m", "cat /ro/shut"), "shut")  # a read-only mount gives what the owner may read

    def test_switched_off(self):
        folder = self.source(owner=0)
        done = self.root.ok("up", "m", "--mount", f"{folder}:/vol:no_root_squash")
        self.assertNotIn(b"warning", done.err)
        self.assertIn("(no_root_squash)", self.root.ok("show", "m").text)
        self.assertEqual(self.root.sandbox("m")["spec"]["mounts"],
                         [{"source": str(folder), "target": "/vol", "read_only": False, "no_root_squash": True}])
        self.shell("m", "cp /bin/true /vol/f")
        self.assertEqual((folder / "f").stat().st_uid, 0)
        self.assertEqual(self.root.run("exec", "m", "--", "chmod", "4755", "/vol/f").code, 1)  # the filter holds
        self.assertEqual(self.bad(), [])

    def test_wrong_values(self):
        self.root.start()
        folder = self.source()
        for value in (f"{folder}:/vol:squash", f"{folder}:/vol:ro:no_root_squash", f"{folder}:/vol:"):
            self.assertIn("must have the form", self.root.run("up", "m", "--mount", value).err.decode())
        both = {"mounts": [{"source": str(folder), "target": "/vol", "read_only": True, "no_root_squash": True}]}
        self.assert_refused(self.root.http("PUT", "/v1/sandboxes/m", both), 400, "invalid", "no_root_squash")


if __name__ == "__main__":
    unittest.main()
