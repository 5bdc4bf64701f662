"""Events: every change with a number, followed across crashes, never at the cost of the daemon."""
import json
import signal
import subprocess
import threading

from ripcord_test import TestCase, only_on, wait_until


def lines_of(data):
    return [json.loads(line) for line in data.splitlines()]


class Follower:
    """`ripcord events -f` and what it has printed so far."""

    def __init__(self, root, *args):
        self.seen = []
        self.process = root.popen("events", "-f", *args, stderr=subprocess.DEVNULL)
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        for line in self.process.stdout:
            self.seen.append(json.loads(line))

    def kinds(self):
        return [e["kind"] for e in self.seen]

    def __enter__(self):
        return self

    def __exit__(self, *args):
        self.process.kill()
        self.thread.join()
        self.process.stdout.close()
        self.process.wait()


@only_on("native")  # the same above all engines
class Events(TestCase):
    def listed(self, *args):
        return lines_of(self.root.ok("events", *args).out)

    def test_every_change_is_one_event_in_order(self):
        self.root.ok("up", "a")
        x = self.root.ok("exec", "a", "--detach", "--", "true").text.split()[0]
        wait_until(lambda: self.root.exec_info("a", x)["state"] == "ended", 30, "its end")
        self.root.ok("stop", "a")
        self.root.ok("rm", "a")
        events = self.listed("--sandbox", "a")
        self.assertEqual([e["kind"] for e in events],
                         ["sandbox.creating", "sandbox.running", "exec.started", "exec.ended", "sandbox.stopping",
                          "sandbox.stopped", "sandbox.removing", "sandbox.removed"])
        self.assertEqual([e["exec"] for e in events if e["kind"].startswith("exec.")], [x, x])
        self.assertEqual(events[3]["data"]["cause"], "exited")
        self.assertEqual(events[5]["data"]["reason"], "stopped on request")
        numbers = [e["seq"] for e in self.listed()]
        self.assertEqual(numbers, list(range(1, len(numbers) + 1)))
        self.assertEqual([e["seq"] for e in self.listed("--since", numbers[-3])], numbers[-2:])
        self.assertEqual({e["kind"] for e in self.listed("--kind", "exec")}, {"exec.started", "exec.ended"})

    def test_followed_across_a_clean_restart_without_a_gap(self):
        self.root.ok("up", "a")
        with Follower(self.root, "--since", "0") as follower:
            wait_until(lambda: "sandbox.running" in follower.kinds(), 30, "what is kept")
            self.root.kill_daemon(signal.SIGTERM)
            wait_until(lambda: follower.kinds().count("daemon.started") == 2, 30, "the next daemon's events")
            self.root.ok("rm", "a")
            wait_until(lambda: "sandbox.removed" in follower.kinds(), 30, "the removal")
        numbers = [e["seq"] for e in follower.seen]
        self.assertEqual(numbers, list(range(1, len(numbers) + 1)))

    def test_no_number_comes_twice_after_a_crash(self):
        self.root.ok("up", "a")
        with Follower(self.root, "--since", "0") as follower:
            for n in (2, 3, 4):
                self.root.ok("exec", "a", "--", "true")
                self.root.kill_daemon()
                wait_until(lambda count=n: follower.kinds().count("daemon.started") == count, 30, "the next daemon")
        events = [e for e in follower.seen if e["kind"] != "gap"]
        numbers = [e["seq"] for e in events]
        self.assertEqual(len(set(numbers)), len(numbers))
        self.assertEqual(numbers, sorted(numbers))
        last = 0
        for e in follower.seen:
            if e["kind"] == "gap":
                self.assertEqual(e["data"]["after"], last)
                last = e["data"]["next"] - 1
            else:
                self.assertEqual(e["seq"], last + 1, "what is missing is told")
                last = e["seq"]

    def test_a_follower_that_does_not_read_gets_a_gap_and_delays_nothing(self):
        self.root.configure("events.keep: 50\nlog.level: error\n")
        self.root.ok("up", "a")
        with self.root.connect() as s:
            s.sendall(b"GET /v1/events?follow=1&since=0 HTTP/1.1\r\nHost: ripcord\r\n\r\n")
            self.flood(1200)  # far more than fits between the two: it is left behind
            s.settimeout(10)
            text = b""
            while b'"kind":"gap"' not in text:
                piece = s.recv(1 << 16)
                self.assertTrue(piece, text[-500:])
                text += piece

    def flood(self, n):
        """Many changes at little cost: pause and resume of one sandbox, many requests on one connection."""
        with self.root.connect() as s:
            for _ in range(n):
                for word in ("pause", "resume"):
                    s.sendall(f"POST /v1/sandboxes/a/{word} HTTP/1.1\r\nHost: r\r\nContent-Length: 0\r\n\r\n".encode())
                    self.assertIn(b" 200 ", s.recv(1 << 16))

    def test_server_sent_events(self):
        self.root.ok("up", "a")
        reply = self.root.http("GET", "/v1/events", headers={"Accept": "text/event-stream", "Last-Event-ID": "1"})
        self.assertEqual(reply.headers["content-type"], "text/event-stream")
        blocks = reply.body.decode().strip().split("\n\n")
        first = dict(line.split(": ", 1) for line in blocks[0].split("\n"))
        self.assertEqual((first["id"], json.loads(first["data"])["seq"]), ("2", 2))
        self.assertNotIn("event", first)  # browsers deliver events with a name to listeners of that name only

    def test_bad_questions(self):
        self.root.start()
        self.assert_refused(self.root.http("GET", "/v1/events?since=x"), 400, "invalid", "since")
        self.assert_refused(self.root.http("GET", "/v1/events?follow=perhaps"), 400, "invalid", "follow")
        self.assert_exit(self.root.run("events", "--since", "x"), 2)
        gap = self.listed("--since", "999999")[0]
        self.assertEqual((gap["kind"], gap["data"]["after"]), ("gap", 999999))
