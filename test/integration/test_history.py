"""The history of commands: receipts, totals, and how much is kept."""
from ripcord_test import TestCase, only_on, wait_until


@only_on("native")  # the same above all engines
class History(TestCase):
    def totals(self):
        return self.root.ok("ps", "--all", "--json").json()["totals"]

    def test_totals_of_sandboxes_and_labels(self):
        self.root.ok("up", "a", "--label", "job=1")
        self.root.ok("up", "b", "--label", "job=1", "--label", "who=me")
        self.shell("a", "head -c 100000 /dev/zero")
        self.root.run("exec", "b", "--", "false")
        self.root.ok("run", "--label", "job=1", "--", "echo", "12345")
        self.assertEqual(self.totals()["all"]["execs"], 3)  # a run's is written a moment after its end, or when asked for
        # One that ends while no daemon lives is counted by the next, once.
        x = self.root.ok("exec", "a", "--detach", "--", "sh", "-c", "sleep 0.5; echo 1").text.split()[0]
        self.root.kill_daemon()
        self.root.ok("ls")
        wait_until(lambda: self.root.exec_info("a", x)["state"] == "ended", 30, "its end")
        self.root.kill_daemon()
        self.root.ok("ls")
        totals = self.totals()
        self.assertEqual({n: t["execs"] for n, t in totals["sandboxes"].items()}, {"a": 2, "b": 1})
        self.assertEqual({n: (t["execs"], t["failed"]) for n, t in totals["labels"].items()},
                         {"job=1": (4, 1), "who=me": (1, 1)})
        self.assertEqual((totals["all"]["execs"], totals["sandboxes"]["a"]["output_bytes"]), (4, 100002))
        self.assertEqual(totals["labels"]["job=1"]["output_bytes"], 100002 + 6)
        self.assertGreater(totals["labels"]["job=1"]["memory_peak"], 0)
        self.root.ok("rm", "a")
        totals = self.totals()
        self.assertEqual((list(totals["sandboxes"]), totals["labels"]["job=1"]["execs"]), (["b"], 4))

    def removals(self):
        return self.root.ok("events").text.count('"sandbox.removed"')

    def test_a_counted_run_is_not_counted_again(self):
        """A client that does not read keeps the sandbox of a run, although its command has ended and was counted."""
        with self.root.popen("run", "--label", "job=1", "--", "sh", "-c", "head -c 20000000 /dev/zero; exit 3") as p:
            wait_until(lambda: self.totals()["all"]["execs"], 60, "its count")
            self.assertEqual(self.removals(), 0, "it is still read")
            self.root.kill_daemon()
            p.kill()
        wait_until(self.removals, 60, "the removal by the next daemon")
        totals = self.totals()
        self.assertEqual((totals["all"]["execs"], totals["all"]["failed"], totals["labels"]["job=1"]["execs"]), (1, 1, 1))

    def test_receipts_for_people_and_programs(self):
        self.root.ok("up", "a")
        self.root.ok("up", "b")
        self.shell("a", "head -c 5000 /dev/zero >&2")
        live = self.root.ok("exec", "b", "--detach", "--", "sleep", "1000").text.split()[0]
        self.assertEqual([x["id"] for x in self.root.ok("ps", "--json").json()["execs"]], [live])
        everything = self.root.ok("ps", "--all", "--json").json()["execs"]
        self.assertEqual(sorted((x["sandbox"], x["state"]) for x in everything), [("a", "ended"), ("b", "running")])
        shown = self.root.ok("show", "a", "--execs", "--json").json()
        self.assertEqual((shown["totals"]["execs"], shown["execs"][0]["end"]["stderr_bytes"]), (1, 5000))
        self.assertIn("4.9 KiB", self.root.ok("show", "a", "--execs").text)
        for words in (["ps"], ["ps", "-a"], ["ps", "b"]):
            self.assertIn(live, self.root.ok(*words).text)
        for words in (["ps", "--totals"], ["ps", "a", "--totals"]):
            self.assertIn("4.9 KiB", self.root.ok(*words).text)

    def test_only_so_many_are_remembered(self):
        self.root.configure("history.keep: 20\n")
        self.root.ok("up", "a")
        for _ in range(60):
            self.root.http("POST", "/v1/sandboxes/a/execs", {"argv": ["true"]})
        wait_until(lambda: self.root.sandbox("a")["execs_live"] == 0, 30, "their ends")
        self.root.ok("exec", "a", "--", "true")
        wait_until(lambda: len(self.root.get("/v1/sandboxes/a/execs")["execs"]) <= 40, 30, "old ones to be forgotten")
        left = self.root.get("/v1/sandboxes/a/execs")
        self.assertGreaterEqual(len(left["execs"]), 20)
        self.assertEqual(left["totals"]["execs"], 61, "they still count")
        kept = {x["id"] for x in left["execs"] if x["journal"] == "kept"}
        folders = {p.name for p in self.root.walk("state") if p.is_dir() and (p / "end").exists()}
        self.assertLessEqual(len(folders - kept), 0, "their output is gone with them")

    def test_a_timeout_on_the_way_in_is_a_timeout(self):
        """Found by the model: a command that was killed before it ran had failed to start."""
        self.root.ok("up", "a")
        for ms in range(1, 4):
            for _ in range(10):
                self.root.http("POST", "/v1/sandboxes/a/execs", {"argv": ["sleep", "1000"], "timeout_ms": ms})
        wait_until(lambda: self.root.sandbox("a")["execs_live"] == 0, 30, "their ends")
        ends = [x["end"] for x in self.root.get("/v1/sandboxes/a/execs")["execs"]]
        self.assertEqual({(e["cause"], e["signal"], e["status"]) for e in ends}, {("timeout", "KILL", 137)}, ends)
