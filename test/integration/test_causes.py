"""Why a command ended: each cause on the real kernel, as the command line, JSON and the store show it."""
import json
import os
import signal
from pathlib import Path

from ripcord_test import Config, TestCase, alive, needs, smoke, wait_until

FORK_UNTIL_REFUSED = """
import os, signal, sys
children = []
try:
    while True:
        pid = os.fork()
        if pid == 0:
            signal.pause()
        children.append(pid)
except OSError:
    for pid in children:
        os.kill(pid, signal.SIGKILL)
    sys.exit(9)
"""

OOM_OF_A_CHILD = """
import os
if os.fork() == 0:
    hog = bytearray(512 << 20)
    os._exit(0)
os.wait()
print("alive")
"""


def shim_of(root, name):
    """The pid of a sandbox's supervisor: the process of this root that carries its id, outside the sandbox."""
    box = root.sandbox(name)["id"]
    for pid in root.processes():
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
            program = Path(f"/proc/{pid}/comm").read_text(encoding="latin-1")
        except OSError:
            continue
        if box.encode() in words and ("shim" in program or "relay" in program):
            return pid
    raise AssertionError(f"no supervisor of {name} among {root.processes()}")


class Causes(TestCase):
    def setUp(self):
        super().setUp()
        self.root.start()
        room = Config.backend and Config.backend.kind == "gvisor"  # its kernel counts
        self.root.ok("up", "a", "--memory", "256M" if room else "64M", "--pids", "200" if room else "24")

    def told(self, cause, words, *args):
        """Runs `exec a ARGS` twice, plain and --json: the same cause everywhere, also from a new daemon."""
        plain = self.root.run("exec", "a", *args)
        self.assertIn(words, plain.err.decode(), plain)
        events = self.root.run("exec", "a", "--json", *args)
        end = json.loads(events.out.splitlines()[-1])
        self.assertEqual((end["type"], end["cause"]), ("end", cause), events)
        self.assertTrue(cause == "exited" or end["message"], end)
        self.assertEqual((plain.code, events.code), (end["status"], end["status"]), (plain, events))
        self.root.kill_daemon()
        self.root.ok("ls")
        stored = self.root.exec_info("a")["end"]
        self.assertEqual(stored, {k: v for k, v in end.items() if k != "type"})
        return end

    @smoke
    @needs("limits of a command")
    def test_oom_names_limit_and_peak(self):
        end = self.told("oom", "out of memory: the command was killed at its limit of 64 MiB (peak 6",
                        "--", "python3", "-c", "hog = bytearray(512 << 20)")
        self.assertEqual((end["status"], end["signal"], end["memory_limit"]), (137, "KILL", 64 << 20), end)
        self.assertGreaterEqual(end["oom_kills"], 1)
        self.assertGreater(end["memory_peak"], 32 << 20)

    def test_137_is_not_oom(self):
        end = self.told("signaled", "signal KILL", "--", "sh", "-c", "kill -KILL $$")
        self.assertEqual(end["oom_kills"], 0)
        end = self.told("exited", "", "--", "sh", "-c", "exit 137")
        self.assertEqual((end["exit_code"], end["oom_kills"]), (137, 0))

    @smoke
    @needs("limits of a command")
    def test_oom_of_a_grandchild_is_not_the_command_s(self):
        end = self.told("exited", "out of memory: 1 process of the command killed",
                        "--", "python3", "-c", OOM_OF_A_CHILD)
        self.assertEqual((end["exit_code"], end["oom_kills"], end["stdout_bytes"]), (0, 1, 6), end)

    @needs("limits of a command")
    def test_tmpfs_counts_as_memory(self):
        r = self.root.run("exec", "a", "--", "sh", "-c", "head -c 300M /dev/zero > /scratch/hog")
        self.assertNotEqual(r.code, 0)
        end = self.root.exec_info("a")["end"]
        self.assertGreaterEqual(end["oom_kills"], 1, end)

    @smoke
    @needs("limits of a command")
    def test_pids_limit(self):
        end = self.told("pids_limit", "process limit reached", "--", "python3", "-c", FORK_UNTIL_REFUSED)
        self.assertEqual((end["exit_code"], end["status"]), (9, 9), end)
        self.assertGreaterEqual(end["pids_denied"], 1)

    def test_timeout(self):
        end = self.told("timeout", "timeout: the command was killed after 400", "--timeout", "400ms", "--",
                        "sh", "-c", "trap '' TERM INT HUP; (trap '' TERM; sleep 100) & sleep 100")
        self.assertEqual(end["signal"], "KILL")
        self.assertGreaterEqual(end["wall_ms"], 400)
        self.assertEqual(self.shell("a", "pgrep -c sleep || true"), "0\n")

    def test_idle_timeout_counts_from_the_last_output(self):
        script = "for i in 1 2 3 4; do echo $i; sleep 0.3; done; sleep 100"
        end = self.told("idle_timeout", "idle timeout", "--idle-timeout", "2500ms", "--", "sh", "-c", script)
        self.assertGreaterEqual(end["wall_ms"], 3400)
        self.assertEqual(end["stdout_bytes"], 8)

    def test_start_failed(self):
        end = self.told("start_failed", "'/no/such'", "--", "/no/such")
        self.assertEqual((end["status"], end["exit_code"]), (127, None), end)
        self.assertIn("/no/such", end["message"])
        end = self.told("start_failed", "'/nowhere'", "--workdir", "/nowhere", "--", "true")
        self.assertEqual(end["status"], 125)
        self.assertIn("must exist", end["hint"])

    def follow_and(self, act, *options):
        """Starts a sleeping command that a client follows with --json. Returns what the client prints after act()."""
        with self.root.popen("exec", "a", "--json", *options, "--", "sh", "-c", "echo up; exec sleep 100") as p:
            started = json.loads(p.stdout.readline())
            self.assertEqual(json.loads(p.stdout.readline())["data"], "up\n")
            act(started["exec"])
            out, _ = p.communicate(timeout=60)
        end = json.loads(out.splitlines()[-1])
        stored = self.root.exec_info("a", started["exec"])["end"]
        self.assertEqual(stored, {k: v for k, v in end.items() if k != "type"})
        self.assertEqual(p.returncode, end["status"])
        return end

    def test_killed(self):
        end = self.follow_and(lambda x: self.root.ok("kill", "a", x, "--signal", "KILL"))
        self.assertEqual((end["cause"], end["signal"], end["status"]), ("killed", "KILL", 137), end)

    @smoke
    def test_sandbox_stopped(self):
        end = self.follow_and(lambda _: self.root.ok("stop", "a"))
        self.assertEqual((end["cause"], end["exit_code"]), ("sandbox_stopped", None), end)

    def test_engine_lost_when_the_supervisor_is_killed(self):
        end = self.follow_and(lambda _: os.kill(shim_of(self.root, "a"), signal.SIGKILL))
        self.assertEqual((end["cause"], end["exit_code"], end["status"]), ("engine_lost", None, 125), end)
        self.assertTrue(end["message"])
        self.assertEqual(self.shell("a", "echo again"), "again\n")

    def test_engine_lost_without_a_daemon_is_found_later(self):
        x = self.root.ok("exec", "a", "--detach", "--", "sleep", "100").text.split()[0]
        shim = shim_of(self.root, "a")
        self.root.kill_daemon()
        os.kill(shim, signal.SIGKILL)
        wait_until(lambda: not alive(shim), 20, "the supervisor to be gone")
        self.root.ok("ls")
        self.assertEqual(self.root.exec_info("a", x)["end"]["cause"], "engine_lost")
        self.assertEqual(self.root.sandbox("a")["state"], "stopped")
        self.assertEqual(self.shell("a", "pgrep -c sleep || true"), "0\n")

    def inits(self):
        return [p for p in self.root.processes() if namespace_pid(p) == 1]

    def init_of(self, name):
        """The pid of a sandbox's pid 1."""
        if Config.backend:
            [box] = Config.backend.labelled(f"ripcord.id={self.root.sandbox(name)['id']}")["containers"]
            return Config.backend.api("GET", f"/containers{box}/json").json()["State"]["Pid"]
        [pid] = self.inits()
        return pid

    def test_sandbox_gone_when_its_pid_1_is_killed(self):
        def kill_init(_):
            os.kill(self.init_of("a"), signal.SIGKILL)
        end = self.follow_and(kill_init)
        self.assertIn(end["cause"], ("sandbox_stopped", "engine_lost"), end)
        self.assertIsNone(end["exit_code"])
        wait_until(lambda: self.root.sandbox("a")["state"] == "stopped", 20, "the sandbox to be told as stopped")
        self.assertEqual(self.shell("a", "echo again"), "again\n")

    @needs("own kernel objects")
    def test_a_command_that_meets_a_sandbox_on_its_way_down_waits_and_starts_it_again(self):
        for i in range(10):
            wait_until(lambda: self.root.ok("up", "a") and self.inits(), 10, "a sandbox that is up")  # the last may go down yet
            os.kill(self.init_of("a"), signal.SIGKILL)
            begun = [self.root.popen("exec", "a", "--env", f"NUMBER={k}", "--", "sh", "-c", "echo $NUMBER") for k in range(3)]
            for k, p in enumerate(begun):
                out, err = p.communicate(timeout=60)
                if b"was stopped while the command ran" in err:
                    continue  # it came before the kill: the result is right, and the command must not run twice
                self.assertEqual((p.returncode, out), (0, f"{k}\n".encode()), f"round {i}: {err}; {self.root.log_tail()}")


def namespace_pid(pid):
    """Its pid in its innermost namespace when that is not ours, else None."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text(encoding="latin-1").splitlines():
            if line.startswith("NSpid:"):
                numbers = line.split()[1:]
                return int(numbers[-1]) if len(numbers) > 1 else None
    except OSError:
        pass
    return None
