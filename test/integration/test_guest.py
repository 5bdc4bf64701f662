"""The guest in real containers, through the whole product: what hostile commands beside it can do, and what is left."""
import json
import subprocess
import time
from urllib.parse import quote

from ripcord_test import Config, TestCase, only_on, wait_until

# Tries in a loop to get into whatever the engine starts (no parent inside: ppid 0), as fast as it can.
BREAK_IN = r"""
import ctypes, os, sys, time
libc = ctypes.CDLL(None, use_errno=True)
PTRACE_SEIZE = 0x4206
looks, hits, end = 0, set(), time.time() + float(sys.argv[1])
while time.time() < end:
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            stat = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()
        except OSError:
            continue
        if stat[1] != "0" or stat[0] == "Z":
            continue
        looks += 1
        for name in ("fd", "mem", "environ"):
            try:
                os.listdir(f"/proc/{pid}/fd") if name == "fd" else open(f"/proc/{pid}/{name}", "rb").close()
                hits.add(name)
            except OSError:
                pass
        if libc.ptrace(PTRACE_SEIZE, int(pid), None, None) == 0:
            hits.add("ptrace")
print(looks, sorted(hits))
"""

# Each process has its own session and no environment, and forks until the limit.
BOMB = r"""
import os, time
while True:
    try:
        if os.fork() == 0:
            os.setsid()
            os.environ.clear()
    except OSError:
        time.sleep(0.001)
"""

COMMANDS = "for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline; echo; done 2>/dev/null | sort"


@only_on("docker", "podman")
class Guest(TestCase):

    def setUp(self):
        super().setUp()
        self.root.ok("up", "a", "--pids", "100", "--memory", "256M")

    def commands(self):
        """The command lines inside, without pid 1 and the processes of this question."""
        mine = ("/.ripcord/guest", "sh -c for p", "tr ", "sort")
        return [c.strip() for c in self.shell("a", COMMANDS).splitlines() if c.strip() and not c.startswith(mine)]

    def test_other_processes_cannot_interfere(self):
        with self.root.popen("exec", "a", "--", "python3", "-c", BREAK_IN, "5") as attack:
            n, end = 0, time.monotonic() + 4
            while time.monotonic() < end:
                self.assertEqual(self.shell("a", "echo x"), "x\n")
                n += 1
            out, err = attack.communicate(timeout=60)
        looks, hits = out.decode().split(" ", 1)
        self.assertEqual(hits, "[]\n", err)
        self.assertGreater(int(looks), 20 * n)
        self.assertGreater(n, 0)

    def test_other_users_cannot_read_or_change_the_program(self):
        for script in ("cat /.ripcord/guest", "echo x >/.ripcord/guest", "rm -f /.ripcord/guest",
                       "mv /.ripcord /tmp/r", "touch /.ripcord/x"):
            self.assertNotEqual(self.root.run("exec", "a", "--", "sh", "-c", script).code, 0, script)

    def test_command_and_environment_are_in_no_record(self):
        since = int(time.time()) - 1
        prefix = self.root.get("/v1/config")["config"]["docker.prefix"]["value"]
        with self.root.popen("exec", "a", "--env", "TOKEN=sek-0815", "--", "sh", "-c", ": sek-4711; echo up; sleep 100",
                             stdout=subprocess.PIPE) as p:
            self.assertEqual(p.stdout.readline(), b"up\n")
            box = Config.backend.api("GET", f"/containers/{prefix}-a/json").json()
            records = [box] + [Config.backend.api("GET", f"/exec/{i}/json").json() for i in box["ExecIDs"] or []]
            query = quote(json.dumps({"container": [box["Id"]]}))
            record = lambda: Config.backend.api("GET", f"/events?since={since}&until={int(time.time()) + 1}&filters={query}").body
            wait_until(lambda: b"exec" in record(), 10, "the engine to record the command")  # Podman may take a moment
            events = record()
            p.kill()
        for secret in ("sek-0815", "sek-4711"):
            self.assertNotIn(secret, json.dumps(records))
            self.assertNotIn(secret.encode(), events)

    def test_a_fork_bomb_ends_with_its_exec(self):
        r = self.root.run("exec", "a", "--timeout", "2s", "--", "python3", "-c", BOMB)
        self.assertNotEqual(r.code, 0)
        self.assertEqual(self.root.exec_info("a")["end"]["cause"], "timeout")
        self.assertEqual(self.commands(), [])

    def test_a_daemonised_child_outlives_its_exec_and_others_ends(self):
        self.shell("a", "setsid sleep 1000 >/dev/null 2>&1 & (sleep 1001 &)")
        with self.root.popen("exec", "a", "--", "sh", "-c", "setsid sleep 1002 & echo $PPID; sleep 1003",
                             stdout=subprocess.PIPE) as p:
            self.shell("a", f"kill -9 {int(p.stdout.readline())}")
            p.communicate(timeout=60)
        self.assertNotEqual(p.returncode, 0)
        wait_until(lambda: self.commands() == ["sleep 1000", "sleep 1001"], 10, "only the lost are gone")

    def test_pid_1_does_not_listen_to_the_inside(self):
        self.shell("a", "kill -TERM 1; kill -INT 1; kill -9 1; kill -HUP 1; sleep 0.3")
        self.assertEqual(self.root.sandbox("a")["state"], "running")
