"""The disk limit of a sandbox, and the free-space floor of the machine."""
import json
import os
import platform
import shutil
import signal
import subprocess
import tempfile
import unittest
from pathlib import Path

from ripcord_test import TestCase, alive, files_below, full_run_only, needs, wait_until

MIB = 1 << 20

FILL = "dd if=/dev/zero of=big bs=1M 2>&1; echo status=$?"
MANY = """
import errno, os
n = 0
try:
    for n in range(10 ** 6):
        os.close(os.open(f'm/{n}', os.O_CREAT | os.O_WRONLY))
except OSError as e:
    print(errno.errorcode[e.errno], n)
"""


def limits_disks(root):
    engines = root.start().get("/v1/engines")["engines"]
    return any(e["name"] == "native" and "disk_limit" in e["capabilities"] for e in engines)


class DiskCase(TestCase):
    on_disk = True

    def setUp(self):
        super().setUp()
        if not limits_disks(self.root):
            self.skipTest("no disk limit on this machine")

    def up(self, *options, name="a", size="64M"):
        return self.root.ok("up", name, "--disk", size, *options)

    def free_kib(self, path="/home/agent"):
        return int(self.shell("a", f"df -k --output=avail {path} | tail -1"))

    def shim_pid(self):
        """The supervisor: the only process of this root that is not a child of another one."""
        [sandbox] = [s for s in self.root.sandboxes() if s["name"] == "a"]
        for pid in self.root.processes():
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                comm = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
            except OSError:
                continue  # ended meanwhile
            if words[:2] == [b"ripcord-shim", sandbox["id"].encode()] and comm == "ripcord-shim":
                return pid
        raise AssertionError("no shim found")


@needs("disk limit")
class TestLimit(DiskCase):
    def test_full_disk_is_enospc_and_freed_space_is_back(self):
        self.up()
        before = self.free_kib()
        self.assertTrue(50 << 10 < before < 64 << 10, before)
        out = self.shell("a", FILL)
        self.assertIn("No space left on device", out)
        self.assertIn("status=1", out)
        self.assertLess(self.free_kib(), 1024)
        self.shell("a", "rm big")
        wait_until(lambda: self.free_kib() > before - 1024, 10, "the space to be free again")

    def test_cap_holds_for_the_root_too(self):
        self.up("--user", "root")
        self.shell("a", "dd if=/dev/zero of=/var/big bs=1M count=40 2>&1")
        out = self.shell("a", "cd /root; " + FILL)
        self.assertIn("No space left on device", out)

    def test_df_shows_the_cap(self):
        self.up(size="256M")
        size = int(self.shell("a", "df -k --output=size / | tail -1"))
        self.assertTrue(230 << 10 < size <= 256 << 10, size)

    def test_inodes_are_capped_and_the_hosts_untouched(self):
        self.up()
        before = os.statvfs(self.root.path).f_ffree
        out = self.shell("a", f"mkdir m; python3 -c \"{MANY}\"", timeout=120)
        self.assertIn("ENOSPC", out)
        self.assertLess(int(out.split()[1]), 5000)
        self.assertLess(abs(os.statvfs(self.root.path).f_ffree - before), 3000)

    def test_image_takes_only_what_is_written(self):
        self.up(size="4G")
        [image] = self.root.path.glob("state/sandboxes/*/disk.img")
        self.assertEqual(image.stat().st_size, 4 << 30)
        self.assertLess(image.stat().st_blocks * 512, 32 * MIB)
        self.assertEqual(image.stat().st_mode & 0o777, 0o600)

    def test_mount_is_safe_and_hides_the_host(self):
        self.up("--user", "root")
        text = self.shell("a", "cat /proc/self/mountinfo")
        self.assertNotIn("loop", text)
        self.assertNotIn(str(self.root.path), text)
        root = [line for line in text.splitlines() if line.split()[4] == "/"]
        self.assertIn("nosuid,nodev", root[0])

    def test_run_has_a_disk_too(self):
        result = self.root.ok("run", "--disk", "64M", "--", "sh", "-c", FILL)
        self.assertIn("No space left on device", result.text)

    def test_one_full_sandbox_leaves_the_other_alone(self):
        self.up()
        self.up(name="b")
        self.shell("a", FILL)
        self.assertEqual(self.shell("b", "echo hello > f && cat f"), "hello\n")


@needs("disk limit")
class TestKeeping(DiskCase):
    def test_files_survive_stop_and_start(self):
        self.up("--user", "root")
        self.shell("a", "echo 1 > /home/agent/f; echo 2 > /var/f")
        self.root.ok("stop", "a")
        wait_until(lambda: not self.root.loops(), 10, "the loop device to go")
        self.assertEqual(self.shell("a", "cat /home/agent/f /var/f"), "1\n2\n")

    def test_a_full_disk_starts_again(self):
        self.up("--user", "root", size="16M")
        self.shell("a", FILL)
        self.shell("a", f"mkdir m; python3 -c \"{MANY}\"", timeout=120)
        self.root.ok("stop", "a")
        self.assertEqual(self.shell("a", "echo up"), "up\n")
        self.assertIn("recreated", json.dumps(self.root.ok("up", "a", "--pids", "100", "--json").json()))
        self.assertEqual(self.shell("a", "rm -rf m big; echo 1 > f; cat f"), "1\n")

    def test_another_spec_keeps_home_only(self):
        self.up("--user", "root")
        self.shell("a", "mkdir -p /var/d/e; echo 1 > /home/agent/f; echo 2 > /var/d/e/f")
        result = self.root.ok("up", "a", "--pids", "100", "--json").json()
        self.assertIn("recreated", json.dumps(result))
        self.assertEqual(self.shell("a", "cat /home/agent/f; ls /var/d 2>&1 | wc -l"), "1\n1\n")
        self.assertEqual(self.shell("a", "test -e /var/d || echo gone"), "gone\n")

    def test_same_spec_changes_nothing(self):
        self.up()
        self.assertIn("unchanged", json.dumps(self.up("--json").json()))
        self.assertIn("unchanged", json.dumps(self.root.ok("up", "a", "--json").json()))

    def test_copies_both_ways(self):
        self.up()
        source = self.root.path / "source"
        source.write_bytes(os.urandom(3 * MIB))
        self.root.ok("cp", source, "a:/home/agent/copy")
        self.root.ok("cp", "a:/home/agent/copy", self.root.path / "back")
        self.assertEqual((self.root.path / "back").read_bytes(), source.read_bytes())

    def test_copy_into_a_full_disk_fails(self):
        self.up(size="16M")
        source = self.root.path / "source"
        source.write_bytes(bytes(32 * MIB))
        result = self.root.run("cp", source, "a:/home/agent/copy")
        self.assertNotEqual(result.code, 0, result)
        self.assertIn("No space left", result.err.decode())


@needs("disk limit")
class TestRefusals(DiskCase):
    def test_invalid_sizes_are_refused(self):
        for size in ("10Q", "", "-1", "many"):
            result = self.assert_exit(self.root.run("up", "a", "--disk", size), 2)
            self.assertIn("disk", result.err.decode())

    def test_too_small_names_the_minimum(self):
        result = self.assert_exit(self.root.run("up", "a", "--disk", "1M"), 2)
        self.assertIn("between 16 MiB and", result.err.decode())

    def test_smallest_works(self):
        self.up(size="16M")
        self.assertGreater(self.free_kib(), 8 << 10)

    def test_too_big_for_a_file_leaves_nothing(self):
        self.assert_exit(self.root.run("up", "a", "--disk", "1000T"), 6)
        self.assertEqual(self.root.sandboxes(), [])

    def test_size_cannot_change(self):
        self.up()
        self.shell("a", "echo 1 > f")
        result = self.assert_exit(self.root.run("up", "a", "--disk", "128M"), 4)
        self.assertIn("64 MiB", result.err.decode())
        self.assertEqual(self.shell("a", "cat f"), "1\n")

    def test_no_limit_later(self):
        self.root.ok("up", "a")
        self.shell("a", "echo 1 > f")
        self.assert_exit(self.root.run("up", "a", "--disk", "128M"), 4)
        self.assertEqual(self.shell("a", "cat f"), "1\n")


@needs("disk limit")
class TestNothingLeft(DiskCase):
    def test_rm_frees_device_and_image(self):
        self.up()
        self.assertEqual(len(self.root.loops()), 1)
        self.root.ok("rm", "-f", "a")
        wait_until(lambda: not self.root.loops(), 10, "the loop device to go")
        wait_until(lambda: not list(files_below(self.root.path, "disk.img*")), 10, "the image to go")

    def test_killed_shim(self):
        self.up()
        self.shell("a", "echo 1 > f; sync")
        os.kill(self.shim_pid(), signal.SIGKILL)
        wait_until(lambda: not self.root.loops(), 10, "the loop device to go")
        self.assertEqual(self.shell("a", "cat f"), "1\n")

    def test_killed_shim_and_started_at_once(self):
        self.up()
        for i in range(5):
            self.shell("a", f"echo {i} >> f")
            os.kill(self.shim_pid(), signal.SIGKILL)
            wait_until(lambda: self.root.sandbox("a")["state"] != "running", 10, "the end to be seen")
            self.shell("a", "true")
            self.assertLessEqual(len(self.root.loops()), 1)
        self.assertEqual(self.shell("a", "cat f"), "0\n1\n2\n3\n4\n")

    def test_killed_daemon(self):
        self.up()
        self.shell("a", "echo 1 > f")
        self.root.kill_daemon()
        self.assertEqual(self.shell("a", "cat f"), "1\n")
        self.assertEqual(len(self.root.loops()), 1)

    def test_all_killed_at_once(self):
        self.up()
        self.shell("a", "echo 1 > f; sync")
        pids = self.root.processes()
        for pid in pids:
            self.root.end(pid)
        wait_until(lambda: not any(map(alive, pids)), 10, "all to end")
        wait_until(lambda: not self.root.loops(), 10, "the loop device to go")
        self.assertEqual(self.shell("a", "cat f"), "1\n")

    @full_run_only
    def test_many_at_once(self):
        """More than the eight devices that a machine has from the start."""
        names = [f"n{i}" for i in range(12)]
        procs = [self.root.popen("up", name, "--disk", "16M") for name in names]
        for p in procs:
            with p:
                out, err = p.communicate(timeout=120)
            self.assertEqual(p.returncode, 0, (out, err))
        self.assertEqual(len(self.root.loops()), len(names))


def tmpfs_has_id_maps():
    return tuple(int(n) for n in platform.release().split("-")[0].split(".")[:2]) >= (6, 3)


@unittest.skipUnless(os.geteuid() == 0, "mounts a tmpfs")
@unittest.skipIf(tmpfs_has_id_maps(), "tmpfs supports id maps here")
class TestOldTmpfs(TestCase):
    @needs("files in the root")
    def test_a_state_folder_without_id_maps_is_refused_with_what_to_do(self):
        self.root.configure()
        subprocess.run(["mount", "-t", "tmpfs", "none", self.root.path], check=True)
        self.addCleanup(self.root.path.rmdir)
        self.addCleanup(subprocess.run, ["umount", "-l", self.root.path], check=True)
        refused = self.assert_exit(self.root.run("run", "--", "true"), 125)
        self.assertIn(b"ext4, xfs or btrfs: tmpfs supports id-mapped mounts only since Linux 6.3", refused.err)
        self.assert_exit(self.root.run("doctor"), 7)


@unittest.skipUnless(os.geteuid() == 0, "mounts a small tmpfs")
@unittest.skipUnless(tmpfs_has_id_maps(), "tmpfs supports id maps only since Linux 6.3")
class TestFloor(TestCase):
    def setUp(self):
        super().setUp()
        self.root.configure()
        (self.root.path / "ripcord.yaml").unlink()  # below the mount nobody would remove it
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64M", "none", self.root.path], check=True)
        self.addCleanup(self.unmount)
        self.root.configure()

    def unmount(self):
        subprocess.run(["umount", "-l", self.root.path], check=True)
        self.root.path.rmdir()

    def fill(self, left):
        fs = os.statvfs(self.root.path)
        with open(self.root.path / "ballast", "wb") as f:
            os.posix_fallocate(f.fileno(), 0, fs.f_bavail * fs.f_frsize - left)

    def assert_full(self, *argv, code=6):
        result = self.assert_exit(self.root.run(*argv), code)
        text = result.err.decode()
        for word in ("nearly full", "MiB are free", "6.4 MiB", "disk.floor"):
            self.assertIn(word, text)

    def test_new_work_is_refused_and_the_rest_works(self):
        self.root.ok("up", "a")
        self.root.ok("exec", "a", "--", "echo", "before")
        self.fill(3 * MIB)
        self.assert_full("up", "b")
        self.assert_full("exec", "a", "--", "true", code=125)
        self.assert_full("run", "--", "true", code=125)
        self.assert_full("cp", "/etc/hostname", "a:/home/agent/x")
        self.assert_full("image", "import", "/dev/null", "x")
        self.root.ok("ls")
        self.assertEqual(self.root.ok("logs", "a").text, "before\n")
        self.root.ok("stop", "a")
        (self.root.path / "ballast").unlink()
        self.root.ok("exec", "a", "--", "true")

    @needs("files in the root")
    def test_biggest_grower_is_stopped_and_the_quiet_one_stays(self):
        for name in ("quiet", "grower"):
            self.root.ok("up", name)
        # Both its file and its output: an engine may keep the files of sandboxes on another disk than ours.
        grow = "for i in $(seq 20); do sleep 0.5; head -c 400000 /dev/zero | tee -a big; done; sleep 60"
        self.root.ok("exec", "--detach", "quiet", "--", "sleep", "60")
        self.root.ok("exec", "--detach", "grower", "--", "sh", "-c", grow)
        self.fill(6 * MIB)  # below the floor of 6.4 MiB, and above its half for some seconds
        wait_until(lambda: self.root.sandbox("grower")["state"] == "stopped", 30, "the grower to be stopped")
        self.assertIn("nearly full", json.dumps(self.root.sandbox("grower")))
        self.assertEqual(self.root.exec_info("grower")["end"]["cause"], "sandbox_stopped")
        self.assertEqual(self.root.sandbox("quiet")["state"], "running")
        (self.root.path / "ballast").unlink()
        self.assertGreater(int(self.shell("grower", "wc -c < big")), 600000)

    @needs("files in the root")
    def test_a_grower_of_inodes_is_stopped(self):
        """Empty files take no space, but the file system's inodes end too."""
        subprocess.run(["mount", "-o", "remount,size=64M,nr_inodes=40000", self.root.path], check=True)
        for name in ("quiet", "grower"):
            self.root.ok("up", name)
        self.root.ok("exec", "--detach", "quiet", "--", "sleep", "60")
        ballast = self.root.path / "many"
        ballast.mkdir()
        for i in range(os.statvfs(self.root.path).f_favail - 500):  # the floor is 400, a hundredth
            (ballast / str(i)).touch()
        self.root.ok("exec", "--detach", "grower", "--", "sh", "-c", "for i in $(seq 450); do : > f$i; sleep 0.03; done; sleep 60")
        wait_until(lambda: self.root.sandbox("grower")["state"] == "stopped", 30, "the grower to be stopped")
        self.assertGreater(os.statvfs(self.root.path).f_favail, 20)
        self.assertIn("nearly full", json.dumps(self.root.sandbox("grower")))
        self.assertEqual(self.root.sandbox("quiet")["state"], "running")
        self.assertIn(b"inodes are free", self.root.run("up", "more").err)
        shutil.rmtree(ballast)
        self.root.ok("up", "more")

    def test_zero_turns_it_off(self):
        self.root.configure("disk.floor: 0\n")
        self.root.ok("ls")
        self.fill(3 * MIB)
        self.root.ok("run", "--", "true")


class BudgetCase(TestCase):
    on_disk = True

    def wait_stopped(self, name):
        wait_until(lambda: self.root.sandbox(name)["state"] == "stopped", 60, "the writer to be stopped")

    def assert_over_budget(self, name, *words):
        """The sandbox, its command and the event say why it was stopped."""
        self.wait_stopped(name)
        end = self.root.exec_info(name)["end"]
        self.assertEqual(end["cause"], "sandbox_stopped")
        for word in words:
            self.assertIn(word, self.root.sandbox(name)["reason"])
            self.assertIn(word, end["message"])


@needs("files in the root")
class TestWatchedBudget(BudgetCase):
    """Where neither a project quota nor an image holds the budget, the sandbox is stopped."""

    def setUp(self):
        super().setUp()
        self.root.configure("disk.budget: 64M\n")

    def test_a_writer_is_stopped_and_its_files_stay(self):
        for name in ("quiet", "writer"):
            self.root.ok("up", name)
        self.root.ok("exec", "--detach", "quiet", "--", "sleep", "60")
        self.root.run("exec", "writer", "--", "sh", "-c", "head -c 100M /dev/zero > big; sleep 90", timeout=90)
        self.assert_over_budget("writer", "MiB on the disk", "its budget is 64 MiB")
        self.assertEqual(self.root.sandbox("quiet")["state"], "running")
        self.assertEqual(self.shell("writer", "rm big; sleep 2; echo fine > f; cat f"), "fine\n")
        self.assertEqual(self.root.sandbox("writer")["state"], "running")

    def test_a_maker_of_files_is_stopped(self):
        self.root.ok("up", "a")
        self.root.run("exec", "a", "--", "sh", "-c", "for i in $(seq 6000); do : > f$i; done; sleep 90", timeout=90)
        self.assert_over_budget("a", "files, its budget is 4096")

    def test_space_that_is_freed_does_not_count(self):
        self.root.ok("up", "a")
        self.shell("a", "for i in 1 2 3 4 5 6; do head -c 40M /dev/zero > big; rm big; sleep 0.3; done; sleep 1")
        self.assertEqual(self.root.sandbox("a")["state"], "running")

    def test_it_is_shown_as_unenforced(self):
        self.root.ok("up", "a")
        doc = self.root.sandbox("a")
        self.assertEqual(doc["disk_budget"], 64 * MIB)
        self.assertIn("disk_budget", doc["unenforced"])
        self.assertIn("disk budget 64 MiB (unenforced)", self.root.ok("show", "a").text)

    def test_a_lower_budget_lets_the_old_files_be(self):
        self.root.ok("up", "a")
        self.shell("a", "head -c 40M /dev/zero > big")
        self.root.kill_daemon()
        self.root.configure("disk.budget: 16M\n")
        self.shell("a", "for i in 1 2 3; do head -c 200000 /dev/zero > small$i; sleep 1.2; done")
        self.root.ok("exec", "--detach", "a", "--", "sh", "-c", "head -c 30M /dev/zero > more; sleep 60")
        self.assert_over_budget("a", "its budget is 16 MiB")

    def test_zero_means_no_budget(self):
        self.root.configure("disk.budget: 0\n")
        self.root.ok("up", "a")
        doc = self.root.sandbox("a")
        self.assertNotIn("disk_budget", doc)
        self.assertEqual(doc["unenforced"], [])


class HeldBudget:
    """What holds for a budget that cannot be exceeded, whoever holds it."""

    def assert_held(self):
        self.root.ok("up", "a", "--user", "root")
        doc = self.root.sandbox("a")
        self.assertNotIn("disk_budget", doc["unenforced"])
        size = int(self.shell("a", "df -k --output=size /home/agent | tail -1"))
        self.assertTrue(50 << 10 < size <= 64 << 10, size)
        self.shell("a", "dd if=/dev/zero of=/var/big bs=1M count=30 2>&1")
        out = self.shell("a", FILL + "; rm big /var/big")
        self.assertRegex(out, "No space left on device|Disk quota exceeded")
        self.assertIn("status=1", out)
        out = self.shell("a", f"mkdir m; python3 -c \"{MANY}\"", timeout=120)
        self.assertRegex(out, "ENOSPC|EDQUOT")
        self.assertLess(int(out.split()[1]), 5000)
        self.assertEqual(self.root.sandbox("a")["state"], "running")
        for _ in range(2):  # a full disk does not keep it from starting, however often
            self.root.ok("stop", "a")
            self.shell("a", "touch more1 more2 more3 more4 more5 2>/dev/null || true")
        self.root.ok("stop", "a")
        self.assertEqual(self.shell("a", "rm -r m; echo kept > f; cat f"), "kept\n")


@needs("disk limit")
class TestBudgetByImage(BudgetCase, HeldBudget):
    def test_an_image_holds_it(self):
        if not limits_disks(self.root):
            self.skipTest("no disk limit on this machine")
        self.root.kill_daemon()
        self.root.configure("disk.budget: 64M\ndisk.images: yes\n")
        self.assert_held()


@unittest.skipUnless(os.geteuid() == 0, "mounts a file system")
class TestBudgetByQuota(BudgetCase, HeldBudget):
    def setUp(self):
        super().setUp()
        fd, image = tempfile.mkstemp(prefix="quota-disk-")  # not a name of the root: its loop device is ours
        self.addCleanup(os.unlink, image)
        os.ftruncate(fd, 400 * MIB)
        os.close(fd)
        subprocess.run(["mkfs.ext4", "-q", "-O", "quota,project", "-E", "quotatype=prjquota", image], check=True)
        r = subprocess.run(["mount", "-o", "loop,prjquota", image, self.root.path], capture_output=True)
        if r.returncode:
            self.skipTest("this kernel has no project quotas")
        self.addCleanup(self.unmount)
        self.root.configure("disk.budget: 64M\n")

    def unmount(self):
        subprocess.run(["umount", "-l", self.root.path], check=True)

    def test_a_quota_holds_it(self):
        self.assert_held()

    def test_a_quota_holds_the_limit(self):
        self.root.ok("up", "a", "--disk", "32M")
        self.assertRegex(self.shell("a", FILL), "No space left on device|Disk quota exceeded")
        self.assertEqual(list(files_below(self.root.path, "disk.img*")), [])

    def test_projects_are_free_again(self):
        for _ in range(10):
            self.root.ok("run", "--", "sh", "-c", "echo 1 > f")
        self.root.ok("up", "a")
        self.assertIn("recreated", json.dumps(self.root.ok("up", "a", "--pids", "100", "--json").json()))
        self.assertRegex(self.shell("a", FILL), "No space left on device|Disk quota exceeded")
