"""Named sandboxes: up, exec, stop, rm, and what one can learn of them."""
import json
import signal
import time
from concurrent.futures import ThreadPoolExecutor

from ripcord_test import TestCase, only_on, smoke, wait_until


class Life(TestCase):
    @smoke
    def test_files_survive_a_stop(self):
        self.root.ok("up", "a")
        self.root.ok("exec", "a", "--", "touch", "f")
        self.root.ok("stop", "a")
        self.assertEqual(self.root.sandbox("a")["state"], "stopped")
        self.assertEqual(self.root.ok("exec", "a", "--", "ls").text, "f\n")
        self.assertEqual(self.root.sandbox("a")["state"], "running")

    def test_up_is_idempotent(self):
        self.root.ok("up", "a")
        first = self.root.sandbox("a")
        reply = self.root.http("PUT", "/v1/sandboxes/a", {})
        self.assertEqual((reply.status, reply.json()["action"]), (200, "unchanged"), reply)
        self.root.ok("up", "a")
        self.assertEqual(self.root.sandbox("a")["id"], first["id"])

    def test_twenty_ups_at_once_make_one(self):
        running = [self.root.popen("up", "a") for _ in range(20)]
        for p in running:
            out, err = p.communicate(timeout=120)
            self.assertEqual(p.returncode, 0, (out, err))
        self.assertEqual([s["name"] for s in self.root.sandboxes()], ["a"])
        self.assertEqual(self.shell("a", "echo works"), "works\n")

    def test_put_answers_created_then_started(self):
        self.root.start()
        reply = self.root.http("PUT", "/v1/sandboxes/a", {})
        self.assertEqual((reply.status, reply.json()["action"]), (201, "created"), reply)
        self.root.ok("stop", "a")
        reply = self.root.http("PUT", "/v1/sandboxes/a", {})
        self.assertEqual((reply.status, reply.json()["action"]), (200, "started"), reply)

    @smoke
    def test_another_spec_recreates_when_idle_and_keeps_home(self):
        self.root.ok("up", "a", "--memory", "256M")
        self.shell("a", "echo kept > f")
        reply = self.root.http("PUT", "/v1/sandboxes/a", {"limits": {"memory": 512 << 20}})
        self.assertEqual(reply.json()["action"], "recreated", reply)
        self.assertEqual(self.shell("a", "cat f"), "kept\n")
        self.assertEqual(self.root.sandbox("a")["limits"]["memory"], 512 << 20)

    def test_another_spec_under_a_live_exec_is_a_conflict(self):
        self.root.ok("up", "a")
        self.root.ok("exec", "a", "--detach", "--", "sleep", "100")
        reply = self.root.http("PUT", "/v1/sandboxes/a", {"limits": {"memory": 512 << 20}})
        self.assert_refused(reply, 409, "conflict")

    def test_sandboxes_do_not_see_each_other(self):
        self.root.ok("up", "a")
        self.root.ok("up", "b")
        self.shell("a", "echo mine > /home/agent/f; echo mine > /tmp/f")
        self.assertEqual(self.shell("b", "ls /home/agent /tmp"), "/home/agent:\n\n/tmp:\n")

    def test_exec_in_unknown_sandbox_is_not_found(self):
        r = self.root.run("exec", "nobody", "--", "true")
        self.assertEqual(r.code, 125, r)
        self.assertIn(b"nobody", r.err)
        self.assert_exit(self.root.run("show", "nobody"), 3)
        self.assert_exit(self.root.run("stop", "nobody"), 3)

    def test_rm_of_many_gives_one_result_each(self):
        for name in ("a", "b", "c"):
            self.root.ok("up", name)
        r = self.root.run("rm", "a", "nobody", "b", "c")
        self.assert_exit(r, 3)
        text = (r.out + r.err).decode()
        for name in ("a", "b", "c", "nobody"):
            self.assertIn(name, text)
        self.assertEqual(self.root.sandboxes(), [])

    def test_rm_with_a_live_exec_needs_force(self):
        self.root.ok("up", "a")
        self.root.ok("exec", "a", "--detach", "--", "sleep", "100")
        r = self.assert_exit(self.root.run("rm", "a"), 4)
        self.assertIn(b"a", r.err)
        self.root.ok("rm", "-f", "a")
        self.assertEqual(self.root.wait_clean(), {})

    @smoke
    @only_on("native")  # the daemon's queue is the same on every engine
    def test_every_request_of_a_burst_is_answered(self):
        """A pause waited for a command that waited behind it in the queue."""
        requests = [("POST", "/execs", {"argv": ["sleep", "1000"]}), ("DELETE", "?force=1", None), ("PUT", "", {}), ("POST", "/pause", {})]
        self.root.start()
        with ThreadPoolExecutor(len(requests)) as pool:
            for _ in range(30):
                self.root.http("PUT", "/v1/sandboxes/a", {})
                replies = list(pool.map(lambda r: self.root.http(r[0], f"/v1/sandboxes/a{r[1]}", r[2]), requests))
                self.assertLess(max(r.status for r in replies), 500, replies)
                self.root.http("POST", "/v1/sandboxes/a/resume", {})

    def test_stop_ends_execs_with_their_cause(self):
        self.root.ok("up", "a")
        self.root.ok("exec", "a", "--detach", "--", "sleep", "100")
        self.root.ok("stop", "a")
        end = self.root.exec_info("a")["end"]
        self.assertEqual(end["cause"], "sandbox_stopped", end)
        self.assertEqual(self.root.sandbox("a")["state"], "stopped")


class Execs(TestCase):
    def setUp(self):
        super().setUp()
        self.root.ok("up", "a")

    def test_streams_status_env_workdir_user_of_exec(self):
        r = self.root.run("exec", "a", "--env", "K=v", "--workdir", "/tmp", "--user", "0", "--",
                          "sh", "-c", 'echo "$K $PWD $(id -u)"; echo e >&2; exit 9')
        self.assertEqual((r.code, r.out, r.err), (9, b"v /tmp 0\n", b"e\n"), r)

    def test_exec_reads_stdin(self):
        self.assertEqual(self.root.ok("exec", "a", "-i", "--", "tr", "a-z", "A-Z", stdin=b"abc").out, b"ABC")

    def test_processes_of_one_exec_end_with_it_but_others_stay(self):
        self.root.ok("exec", "a", "--detach", "--", "sleep", "100")
        self.root.ok("exec", "a", "--", "true")
        self.assertEqual(self.root.sandbox("a")["execs_live"], 1)

    def test_detach_ps_logs_and_kill(self):
        script = "echo one; echo two >&2; exec sleep 100"
        exec_id = self.root.ok("exec", "a", "--detach", "--", "sh", "-c", script).text.split()[0]
        self.assertIn(exec_id, self.root.ok("ps", "a").text)
        self.assertEqual(self.root.exec_info("a")["id"], exec_id)
        wait_until(lambda: self.root.ok("logs", "a", exec_id).out == b"one\n", 20, "the first line")
        wait_until(lambda: self.root.ok("logs", "a", exec_id).err == b"two\n", 20, "the line on stderr")
        self.root.ok("kill", "a", exec_id)
        wait_until(lambda: self.root.exec_info("a", exec_id)["state"] == "ended", 20, "the exec to end")
        end = self.root.exec_info("a", exec_id)["end"]
        self.assertIn(end["cause"], ("killed", "signaled"), end)
        self.assertIsNone(end["exit_code"], end)
        self.assertEqual((end["stdout_bytes"], end["stderr_bytes"]), (4, 4), end)

    def test_kill_with_a_signal_that_is_handled(self):
        script = "trap 'echo usr1' USR1; echo up; while :; do sleep 0.05; done"
        exec_id = self.root.ok("exec", "a", "--detach", "--", "sh", "-c", script).text.split()[0]
        wait_until(lambda: self.root.ok("logs", "a", exec_id).out == b"up\n", 20, "the trap to stand")
        self.root.ok("kill", "a", exec_id, "--signal", "USR1")
        wait_until(lambda: b"usr1" in self.root.ok("logs", "a", exec_id).out, 20, "the handler's word")
        self.assertEqual(self.root.exec_info("a", exec_id)["state"], "running")

    def test_logs_follow_until_the_end_with_its_status(self):
        script = "for i in 1 2 3 4 5; do echo $i; sleep 0.1; done; exit 5"
        exec_id = self.root.ok("exec", "a", "--detach", "--", "sh", "-c", script).text.split()[0]
        r = self.root.run("logs", "a", exec_id, "-f")
        self.assertEqual(r.out, b"1\n2\n3\n4\n5\n", r)

    def test_logs_from_an_offset(self):
        self.root.ok("exec", "a", "--", "sh", "-c", "printf 0123456789; printf abcdef >&2")
        r = self.root.ok("logs", "a", "--stdout-offset", "7", "--stderr-offset", "4")
        self.assertEqual((r.out, r.err), (b"789", b"ef"))

    def test_logs_are_binary_exact(self):
        self.root.ok("exec", "a", "--", "sh", "-c", r"printf '\000\377\033[2J\r\n'")
        self.assertEqual(self.root.ok("logs", "a").out, b"\0\xff\033[2J\r\n")

    def test_stdout_by_offset_through_the_api(self):
        self.root.ok("exec", "a", "--", "printf", "0123456789")
        reply = self.root.http("GET", "/v1/sandboxes/a/execs/last/stdout?offset=4")
        self.assertEqual((reply.status, reply.body), (200, b"456789"), reply)
        self.assert_refused(self.root.http("GET", "/v1/sandboxes/a/execs/last/stdout?offset=x"), 400, "invalid")

    @smoke
    def test_end_record_is_what_the_kernel_reports(self):
        self.root.run("exec", "a", "--", "sh", "-c", "echo 12345; exit 3")
        end = self.root.exec_info("a")["end"]
        self.assertEqual((end["cause"], end["exit_code"], end["signal"], end["stdout_bytes"], end["drained"]),
                         ("exited", 3, None, 6, True), end)
        self.root.run("exec", "a", "--", "sh", "-c", "kill -SEGV $$")
        end = self.root.exec_info("a")["end"]
        self.assertEqual((end["cause"], end["exit_code"], end["signal"], end["status"]),
                         ("signaled", None, "SEGV", 128 + signal.SIGSEGV), end)

    def test_timeout_has_its_own_cause(self):
        since = time.monotonic()
        r = self.root.run("exec", "a", "--timeout", "500ms", "--", "sh", "-c", "trap '' TERM; sleep 100")
        self.assertNotEqual(r.code, 0)
        self.assertLess(time.monotonic() - since, 20)
        self.assertEqual(self.root.exec_info("a")["end"]["cause"], "timeout")

    def test_start_failure_has_its_own_cause(self):
        self.assert_exit(self.root.run("exec", "a", "--", "/no/such"), 127)
        reply = self.root.http("GET", "/v1/sandboxes/a/execs/last")
        if reply.status == 200:
            self.assertEqual(reply.json()["exec"]["end"]["cause"], "start_failed", reply)

    def test_a_client_that_goes_away_leaves_exec_running(self):
        with self.root.popen("exec", "a", "--", "sh", "-c", "echo up; sleep 1; echo late") as p:
            self.assertEqual(p.stdout.readline(), b"up\n")
            p.kill()
        wait_until(lambda: self.root.exec_info("a")["state"] == "ended", 30, "the exec to end by itself")
        self.assertEqual(self.root.exec_info("a")["end"]["exit_code"], 0)
        self.assertEqual(self.root.ok("logs", "a").out, b"up\nlate\n")

    def test_many_execs_at_once(self):
        running = [self.root.popen("exec", "a", "--", "sh", "-c", f"echo {i}; exit {i}") for i in range(20)]
        for i, p in enumerate(running):
            out, err = p.communicate(timeout=120)
            self.assertEqual((p.returncode, out), (i, b"%d\n" % i), err)


class Answers(TestCase):
    """What the commands print, for people and for programs."""

    def test_ls_and_show(self):
        self.root.ok("up", "a", "--memory", "256M", "--label", "team=x")
        table = self.root.ok("ls").text
        self.assertIn("a", table)
        self.assertIn("running", table)
        show = json.loads(self.root.ok("show", "a", "--json").out)
        box = show.get("sandbox", show)
        self.assertEqual((box["name"], box["state"], box["limits"]["memory"]), ("a", "running", 256 << 20), show)
        self.assertIn("256", self.root.ok("show", "a").text)

    def test_ls_json_is_what_the_api_says(self):
        self.root.ok("up", "a")
        listed = json.loads(self.root.ok("ls", "--json").out)
        rows = listed["sandboxes"] if isinstance(listed, dict) else listed
        self.assertEqual([r["name"] for r in rows], ["a"])

    def test_ls_of_nothing(self):
        self.assertEqual(self.root.ok("ls").code, 0)

    def test_ps_shows_ended_execs_with_their_status(self):
        self.root.ok("up", "a")
        self.root.run("exec", "a", "--", "sh", "-c", "exit 42")
        self.assertIn("42", self.root.ok("ps", "--all", "a").text)
        execs = json.loads(self.root.ok("ps", "--all", "a", "--json").out)
        rows = execs["execs"] if isinstance(execs, dict) else execs
        self.assertEqual(rows[0]["end"]["exit_code"], 42)
