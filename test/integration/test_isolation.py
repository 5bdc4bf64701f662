"""What a sandbox sees and what it cannot do: the basics (the hardening in depth has its own tests)."""
import os
import re
from pathlib import Path

from ripcord_test import Config, TestCase, needs, wait_until


class Isolation(TestCase):
    def setUp(self):
        super().setUp()
        self.root.ok("up", "a", "--memory", "256M", "--pids", "50")

    def status(self, *options):
        text = self.root.ok("exec", "a", *options, "--", "cat", "/proc/self/status").text
        return dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)

    def test_user_is_agent_1000(self):
        self.assertEqual(self.shell("a", "id -u; id -g; id -un; echo $HOME; pwd"),
                         "1000\n1000\nagent\n/home/agent\n/home/agent\n")

    def test_no_capabilities_and_no_new_privileges(self):
        s = self.status()
        for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            self.assertEqual(int(s[name], 16), 0, name)
        self.assertEqual(s["NoNewPrivs"], "1")

    def test_root_inside_has_only_harmless_capabilities(self):
        s = self.status("--user", "0")
        dangerous = {"SYS_ADMIN": 21, "SYS_MODULE": 16, "SYS_PTRACE": 19, "NET_ADMIN": 12, "NET_RAW": 13,
                     "SYS_RAWIO": 17, "MKNOD": 27, "SYS_BOOT": 22, "BPF": 39, "DAC_READ_SEARCH": 2}
        for name, bit in dangerous.items():
            self.assertFalse(int(s["CapEff"], 16) >> bit & 1, name)
        self.assertFalse(int(s["CapBnd"], 16) >> 21 & 1)

    def test_own_namespaces(self):
        own_user = ["user"] if Config.engine == "native" else []  # an engine's containers share the machine's
        for kind in ("mnt", "pid", "net", "ipc", "uts", *own_user):
            inside = self.shell("a", f"readlink /proc/self/ns/{kind}").strip()
            self.assertNotEqual(inside, os.readlink(f"/proc/self/ns/{kind}"), kind)

    @needs("cgroup namespace")
    def test_own_cgroup_namespace(self):
        self.assertNotEqual(self.shell("a", "readlink /proc/self/ns/cgroup").strip(), os.readlink("/proc/self/ns/cgroup"))

    def test_own_hostname(self):
        name = self.shell("a", "uname -n").strip()
        self.assertNotEqual(name, os.uname().nodename)
        self.assertEqual(name, "a")

    def test_only_loopback_and_it_works(self):
        self.assertEqual(self.shell("a", "ls /sys/class/net 2>/dev/null || sed -n 's/^ *\\(.*\\):.*/\\1/p' /proc/net/dev"),
                         "lo\n")
        code = ("import socket; s=socket.create_server(('127.0.0.1',0)); "
                "c=socket.create_connection(s.getsockname()); print('ok')")
        self.assertEqual(self.root.ok("exec", "a", "--", "/usr/bin/python3", "-c", code).text, "ok\n")

    @needs("own kernel objects")
    def test_no_host_path_in_the_mount_table(self):
        table = self.shell("a", "cat /proc/self/mountinfo; cat /proc/mounts")
        self.assertNotIn(str(self.root.path), table)
        self.assertNotIn(self.root.root_id or "no root id", table)
        for line in table.splitlines():
            options = re.findall(r"(?:lowerdir|upperdir|workdir)=([^,\s]*)", line)
            for layers in options:
                for layer in layers.split(":"):
                    self.assertFalse(layer.startswith(("/tmp", "/var", "/home", "/root")), line)

    @needs("host image")
    def test_usr_is_read_only(self):
        r = self.root.run("exec", "a", "--", "touch", "/usr/x")
        self.assertEqual(r.code, 1)
        self.assertIn(b"Read-only file system", r.err)
        r = self.root.run("exec", "a", "--user", "0", "--", "touch", "/usr/x")
        self.assertIn(b"Read-only file system", r.err)

    def test_nothing_of_the_host_is_visible(self):
        self.assertEqual(self.shell("a", "ls -A /home /root 2>/dev/null; ls -d /work /boot /srv/* 2>/dev/null || true")
                         .replace("/home:\n", "").replace("/root:\n", "").strip().split("\n")[0], "agent")
        for path in ("/etc/shadow", "/etc/pip.conf", "/etc/sudoers", "/etc/hostname.bak"):
            r = self.root.run("exec", "a", "--user", "0", "--", "cat", path)
            self.assertNotEqual(r.code, 0, path)
        ours = Path(__file__).parents[2] / "images" / "default" / "gitconfig"
        self.assertIn(self.shell("a", "cat /etc/gitconfig 2>/dev/null || true"), ("", ours.read_text(encoding="utf-8")))

    def test_only_its_own_processes(self):
        pids = self.shell("a", "ls /proc | grep -E '^[0-9]+$' | wc -l").strip()
        self.assertLessEqual(int(pids), 8)

    @needs("own kernel objects")
    def test_pid_1_cannot_be_signalled(self):
        self.assertEqual(self.root.run("exec", "a", "--", "sh", "-c", "kill -0 1").code, 1)

    def test_devices_are_the_harmless_ones(self):
        listed = set(self.shell("a", "ls /dev").split())
        self.assertTrue({"null", "zero", "full", "random", "urandom", "tty"} <= listed, listed)
        if Config.backend and Config.backend.kind == "gvisor":
            listed -= {"fuse"}  # of gVisor's own kernel
        self.assertFalse(listed & {"sda", "vda", "kmsg", "mem", "kvm", "loop-control", "fuse"}, listed)
        self.assertEqual(self.shell("a", "echo x > /dev/null && head -c3 /dev/zero | wc -c").strip(), "3")

    def test_mounting_is_refused(self):
        for command in ("mount -t tmpfs none /mnt", "mount --bind /usr /mnt", "umount /proc"):
            for user in ("1000", "0"):
                r = self.root.run("exec", "a", "--user", user, "--", "sh", "-c", command)
                self.assertNotEqual(r.code, 0, (command, user))

    def test_no_foreign_descriptors(self):
        listed = self.shell("a", "ls -l /proc/self/fd")
        for line in listed.splitlines():
            self.assertNotIn(str(self.root.path), line)
        count = int(self.shell("a", "ls /proc/self/fd | wc -l"))
        self.assertLessEqual(count, 5)

    @needs("limits of a command")
    def test_pids_limit_holds(self):
        code = ("import os\nn=0\nwhile True:\n  try:\n    pid=os.fork()\n  except OSError:\n    break\n"
                "  if pid==0:\n    os.execvp('sleep',['sleep','0.5'])\n  n+=1\nprint(n)")
        n = int(self.root.ok("exec", "a", "--", "/usr/bin/python3", "-c", code).text)
        self.assertTrue(10 < n < 50, n)
        wait_until(lambda: self.root.run("exec", "a", "--", "true").code == 0, 20, "the sandbox to be usable again")

    @needs("limits of a command")
    def test_memory_limit_holds_and_the_sandbox_lives_on(self):
        r = self.root.run("exec", "a", "--", "/usr/bin/python3", "-c", "x = b'x' * (400 << 20); print('survived')")
        self.assertNotIn(b"survived", r.out)
        self.assertEqual(self.root.exec_info("a")["end"]["cause"], "oom")
        self.assertEqual(self.shell("a", "echo still there"), "still there\n")

    @needs("own kernel objects")
    def test_the_oom_score_cannot_be_lowered(self):
        """The kernel sees to it if whoever set the score had CAP_SYS_RESOURCE; where the daemon has not, doctor says so."""
        self.assertEqual(self.shell("a", "cat /proc/self/oom_score_adj"), "300\n")
        lowered = self.root.run("exec", "a", "--", "sh", "-c", "echo 0 > /proc/self/oom_score_adj && cat /proc/self/oom_score_adj")
        able = int(re.search(r"CapEff:\s*(\w+)", Path("/proc/self/status").read_text())[1], 16) >> 24 & 1
        line = next(line for line in self.root.run("doctor").text.splitlines() if "oom score:" in line)
        self.assertEqual(lowered.code == 0, not able, lowered)
        self.assertEqual(line.split()[0], "ok" if able else "warn", line)

    def test_memory_of_tmpfs_is_counted(self):
        r = self.root.run("exec", "a", "--", "sh", "-c", "head -c 400M /dev/zero > /scratch/f && echo survived")
        self.assertNotIn(b"survived", r.out)

    def test_tmpfs_sizes(self):
        sizes = self.shell("a", "df -k --output=size /tmp /run /scratch | tail -n 3").split()
        self.assertEqual([int(s) >> 10 for s in sizes], [128, 32, 512])

    def test_host_files_are_not_writable_through_links(self):
        canary = Path(self.root.path / "canary")
        canary.write_text("host")
        self.root.run("exec", "a", "--", "sh", "-c", f"mkdir -p {self.root.path}; echo sandbox > {canary}")
        self.assertEqual(canary.read_text(), "host")
