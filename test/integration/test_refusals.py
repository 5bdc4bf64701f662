"""Machines that refuse what a start needs: doctor names the reason and the step that helps, and `run` says the same."""
import os
import shutil
import subprocess
import unittest
from pathlib import Path

import test_rootless
from ripcord_test import Config, TestCase, full_run_only, needs, smoke


def deny_syscall():
    return Config.bin / "test" / "unit" / "deny-syscall"


class Refused:
    """What doctor and `run` say."""

    def refused(self, detail, fix, line="start"):
        """doctor fails with these words, and `run` with the same."""
        report = self.assert_exit(self.root.run("doctor", "--json"), 7).json()
        found = next(check for check in report["checks"] if check["name"] == line)
        self.assertEqual(found["status"], "fail", found)
        self.assertIn(detail, found["detail"])
        self.assertIn(fix, found["fix"])
        error = self.assert_exit(self.root.run("run", "--", "true"), 125).err.decode()
        if line == "start":
            self.assertIn(found["detail"], error)
            self.assertIn(found["fix"], error)


@needs("own kernel objects")
class Refusals(Refused, TestCase):
    """Each command runs behind a prefix; a daemon that it starts does too."""

    def behind(self, *prefix, user=False):
        if user:
            self.root = test_rootless.UserRoot(test_rootless.UID, test_rootless.UID, prefix)
        else:
            program = str(Config.bin / "ripcord")
            self.root.argv = lambda *args: [*prefix, program, *map(str, args)]

    def test_no_namespaces_left(self):
        """The sysctl belongs to the user namespace."""
        if not test_rootless.may_make_namespaces():
            self.skipTest("ordinary users may not make user namespaces here")
        self.behind("unshare", "-r", "sh", "-c", 'echo 0 >/proc/sys/user/max_user_namespaces; exec "$@"', "sh", user=True)
        self.refused("user.max_user_namespaces is 0", "Run 'sysctl -w user.max_user_namespaces=15000'.")

    def test_a_filter_without_clone3(self):
        self.behind(deny_syscall(), "clone3", "--")
        self.refused("a seccomp profile forbids new namespaces", "Remove SystemCallFilter=")

    def test_a_filter_without_mounts(self):
        self.behind(deny_syscall(), "move_mount", "--")
        self.refused("a seccomp profile forbids this step of the start", "Remove SystemCallFilter=")

    def test_no_programs_in_memory(self):
        """The sysctl belongs to the pid namespace."""
        if os.geteuid() != 0 or not Path("/proc/sys/vm/memfd_noexec").exists():
            self.skipTest("needs root and vm.memfd_noexec (Linux 6.3)")
        self.behind("unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c",
                    'echo 2 >/proc/sys/vm/memfd_noexec; "$@"', "sh")
        self.refused("make a memfd for the shim", "sysctl -w vm.memfd_noexec=1", line="daemon")

    def test_a_covered_proc(self):
        if not test_rootless.may_make_namespaces():
            self.skipTest("ordinary users may not make user namespaces here")
        self.behind("unshare", "-rm", "sh", "-c", 'mount --bind /dev/null /proc/uptime; exec "$@"', "sh", user=True)
        self.refused("parts of /proc are covered here", "Start the daemon where all of /proc is visible")


def apparmor_missing():
    """Why profiles cannot be loaded here, or None."""
    if not Path("/sys/kernel/security/apparmor/.load").exists() or os.geteuid() != 0:
        return "AppArmor is not active, or we are not root"
    if not shutil.which("apparmor_parser") or not Path("/etc/apparmor.d/abi/4.0").exists():
        return "AppArmor 4 is not installed"
    return None


@unittest.skipIf(apparmor_missing(), apparmor_missing())
@needs("own kernel objects")
@full_run_only
class AppArmor(Refused, TestCase):
    """Profiles for the programs of this test alone."""

    def setUp(self):
        super().setUp()
        self.uid = test_rootless.UID
        self.root = test_rootless.UserRoot(self.uid, self.uid)
        self.name = f"ripcord-test-{os.getpid()}-{self._testMethodName[5:25]}"

    def load(self, rules, flags):
        self.load_file(f"abi <abi/4.0>,\ninclude <tunables/global>\nprofile {self.name} @libexecdir@/ripcordd flags=({flags}) {{\n{rules}\n}}\n")

    def load_file(self, text):
        """Each test has a copy of the programs, as a profile is found by their path."""
        folder = self.root.path / "bin"
        shutil.copytree(test_rootless.Programs.path(), folder)
        text = text.replace("@libexecdir@", str(folder)).encode()
        subprocess.run(["apparmor_parser", "-r", "-K"], input=text, check=True)
        self.addCleanup(subprocess.run, ["apparmor_parser", "-R", "-K"], input=text, check=False)
        prefix = self.root.prefix
        self.root.argv = lambda *args: [*prefix, str(folder / "ripcord"), *map(str, args)]

    @smoke
    def test_no_user_namespaces(self):
        self.load("allow all, deny userns,", "attach_disconnected")
        self.refused(f"the AppArmor profile '{self.name}' forbids new namespaces", f"capability in the AppArmor profile '{self.name}'")

    def test_no_capabilities_inside(self):
        self.load("allow all, deny capability,", "attach_disconnected")
        self.refused(f"the AppArmor profile '{self.name}' forbids", f"capability in the AppArmor profile '{self.name}'")

    def test_no_mounts(self):
        self.load("allow all, deny mount,", "attach_disconnected")
        self.refused(f"the AppArmor profile '{self.name}' forbids this step", f"mount and capability in the AppArmor profile '{self.name}'")

    def test_no_programs_without_a_file(self):
        self.load("allow all,", "enforce")
        self.refused("start ripcord-shim", f"Add 'flags=(attach_disconnected)' to the AppArmor profile '{self.name}'")

    @smoke
    def test_our_profile(self):
        """It names the daemon, allows all, and its children keep it."""
        text = (Path(__file__).resolve().parents[2] / "contrib" / "apparmor.in").read_text(encoding="utf-8")
        self.load_file(text.replace("profile ripcord ", f"profile {self.name} "))
        self.root.ok("run", "--", "true")
        self.assertEqual(self.root.ok("doctor", "--json").json()["ok"], True)
        labels = {Path(f"/proc/{pid}/attr/current").read_text(encoding="ascii").strip() for pid in self.root.processes()}
        self.assertEqual(labels, {f"{self.name} (unconfined)"})
