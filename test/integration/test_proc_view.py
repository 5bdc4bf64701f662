"""What a sandbox sees of memory and CPUs: its limits, not the machine's figures."""
import os
import re
import shutil

from ripcord_test import TestCase, needs, smoke, wait_until

PYTHON = "/usr/bin/python3"
MIB = 1 << 20


@needs("truthful proc")
class ProcView(TestCase):
    on_disk = True  # files in memory are never "cached"

    def meminfo(self, name):
        text = self.root.ok("exec", name, "--", "cat", "/proc/meminfo").text
        return {k: int(v) * 1024 for k, v in re.findall(r"^(\w+): +(\d+) kB$", text, re.M)}

    def setUp(self):
        super().setUp()
        self.root.ok("up", "a", "--memory", "512M", "--cpus", "1")
        unenforced = self.root.sandbox("a")["unenforced"]
        if "memory" in unenforced or "cpus" in unenforced:
            self.skipTest("this machine cannot enforce the limits")

    @smoke
    def test_meminfo_has_the_limit(self):
        info = self.meminfo("a")
        self.assertEqual(info["MemTotal"], 512 * MIB)
        self.assertEqual(info["SwapTotal"], 0)
        self.assertLessEqual(info["MemAvailable"], 512 * MIB)
        if shutil.which("free"):
            self.assertRegex(self.shell("a", "free -m"), r"Mem: +512 ")

    def test_meminfo_follows_what_is_used(self):
        code = "import time; x = b'x' * (300 << 20); print('up', flush=True); time.sleep(20)"
        self.root.ok("exec", "--detach", "a", "--", PYTHON, "-c", code)
        wait_until(lambda: self.meminfo("a")["MemAvailable"] < 220 * MIB, 10, "300 MiB to show as used")
        self.assertGreater(self.meminfo("a")["MemAvailable"], 100 * MIB)
        self.root.ok("kill", "a", self.root.get("/v1/sandboxes/a/execs")["execs"][-1]["id"])
        wait_until(lambda: self.meminfo("a")["MemAvailable"] > 450 * MIB, 10, "the memory to be free again")

    def test_cached_files_are_available(self):
        self.shell("a", "head -c 200M /dev/zero > f; cat f > /dev/null")
        wait_until(lambda: self.meminfo("a")["Cached"] > 100 * MIB, 10, "the file to show as cached")
        info = self.meminfo("a")
        self.assertGreater(info["MemAvailable"], 400 * MIB)
        self.assertLess(info["MemFree"], 400 * MIB)

    def test_cpus(self):
        self.assertEqual(self.shell("a", "nproc; grep -c ^processor /proc/cpuinfo; cat /sys/devices/system/cpu/online"),
                         "1\n1\n0\n")
        code = "import os; print(os.cpu_count(), len(os.sched_getaffinity(0)))"
        self.assertEqual(self.root.ok("exec", "a", "--", PYTHON, "-c", code).text, "1 1\n")

    def test_node_sees_the_limits(self):
        if not os.access("/usr/bin/node", os.X_OK):
            self.skipTest("no node in /usr/bin")
        code = "const os = require('os'); console.log(os.totalmem(), os.freemem() <= os.totalmem())"
        self.assertEqual(self.root.ok("exec", "a", "--", "/usr/bin/node", "-e", code).text, f"{512 * MIB} true\n")

    def test_the_files_cannot_be_changed(self):
        for user in ("1000", "0"):
            for path in ("/proc/meminfo", "/proc/cpuinfo"):
                r = self.root.run("exec", "a", "--user", user, "--", "sh", "-c", f"echo x > {path}")
                self.assertNotEqual(r.code, 0, (user, path))
            self.assertNotEqual(self.root.run("exec", "a", "--user", user, "--", "umount", "/proc/meminfo").code, 0)
        self.assertEqual(self.meminfo("a")["MemTotal"], 512 * MIB)

    def test_no_host_path_in_the_mount_table(self):
        table = self.shell("a", "cat /proc/self/mountinfo")
        self.assertNotIn(str(self.root.path), table)
        for line in table.splitlines():
            _, _, _, source, target, *_ = line.split()
            if target in ("/proc/meminfo", "/proc/cpuinfo"):
                self.assertEqual(source, f"/{os.path.basename(target)}")

    def test_without_a_real_limit_the_machine_is_shown(self):
        self.root.ok("up", "b", "--memory", "100T", "--cpus", str(os.cpu_count()))
        self.assertGreater(self.meminfo("b")["MemTotal"], 512 * MIB)
        self.assertEqual(self.shell("b", "nproc").strip(), str(len(os.sched_getaffinity(0))))
