"""Reconcile: what the store wants against what is there. Review finding 5 has its named tests here."""
import json
import os
import re
import signal
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

from ripcord_test import Config, TestCase, alive, alone, needs, only_on, wait_until

SLEEP = ["/bin/sh", "-c", "trap 'exit 0' TERM; while :; do sleep 1; done"]


def reconcile(root, *args, code=0):
    result = root.run("reconcile", *args, "--json")
    if result.code != code:
        raise AssertionError(f"{result}; {root.log_tail()}")
    return result.json()["reconcile"]


def results(report, **wanted):
    """The results that have these members."""
    return [r for r in report["results"] if all(r[k] == v for k, v in wanted.items())]


def edit_store(root, *statements):
    """With the daemon gone."""
    store = sqlite3.connect(root.path / "state" / "ripcord.db")
    store.execute("PRAGMA foreign_keys = ON")
    with store:
        for statement in statements:
            store.execute(*statement)
    store.close()


def last_run(root):
    return root.get("/v1/reconcile")["reconcile"]


def wait_report(root, condition, what):
    """The report of the first run that is over and meets the condition. A start has several runs: one for the engines
    that are open at once, one for each that is reached later."""
    found = []

    def look():
        report = last_run(root)
        if report and not report["running"] and condition(report):
            found.append(report)
        return found
    wait_until(look, 60, f"{what}; last: {last_run(root)}")
    return found[0]


def events(root, kind):
    lines = root.ok("events", "--since", "0").text.splitlines()
    return [e for e in map(json.loads, lines) if e["kind"] == kind]


class Orphans:
    """Sandboxes of this root that the store has forgotten."""

    def make_orphans(self, names):
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda name: self.root.ok("up", name, "--network", "none"), names))
        self.root.kill_daemon()
        edit_store(self.root, *[("DELETE FROM sandboxes WHERE name = ?", (n,)) for n in names])

    def there(self):
        """Names of what is on the engine, whatever the store says."""
        if Config.backend:
            return sorted(n.rpartition("-")[2] for n in self.ours()["containers"])
        folder = self.root.path / "state" / "sandboxes"
        return sorted(os.readlink(b / "meta").partition("/")[2] for b in folder.iterdir() if (b / "meta").is_symlink())

    def ours(self):
        return Config.backend.labelled(f"ripcord.root={self.root.root_id}")


class Finding5(Orphans, TestCase):
    """Start-up was blocked by a one-by-one clean-up; one failure stopped the rest; live work was killed."""

    def setUp(self):
        super().setUp()
        self.root.start()

    def test_reconcile_removes_in_parallel(self):
        names = [f"n{i}" for i in range(8)]
        self.root.ok("up", "keep")
        self.make_orphans(names)
        self.root.start()
        wait_until(lambda: self.there() == ["keep"], 60, "the leftovers to go")
        wait_until(lambda: sum(e["data"]["done"] for e in events(self.root, "reconcile.ended")) == len(names), 30,
                   "a result for each")
        wait_until(lambda: self.root.sandbox("keep")["state"] == "running", 30, "the other to be adopted")
        self.root.ok("rm", "-f", "keep")

    def test_reconcile_does_not_block_start(self):
        names = [f"n{i}" for i in range(8)]
        self.make_orphans(names)
        since = time.monotonic()
        self.root.start()
        self.assertEqual(self.root.sandboxes(), [])
        took = time.monotonic() - since
        self.assertLess(took, 1.0 if not Config.sanitized else 5.0, "the API answers while leftovers go")
        wait_until(lambda: self.there() == [], 60, "the leftovers to go")

    def test_reconcile_never_kills_live_execs(self):
        self.root.ok("up", "busy")
        exec_id = self.root.ok("exec", "busy", "--detach", "--", *SLEEP).text.split()[0]
        self.root.ok("up", "lost")
        self.root.ok("exec", "lost", "--detach", "--", *SLEEP)
        self.root.kill_daemon()
        edit_store(self.root, ("DELETE FROM sandboxes WHERE name = 'lost'", ()),
                   ("UPDATE sandboxes SET hash = 'stale' WHERE name = 'busy'", ()))
        self.root.start()
        report = wait_report(self.root, lambda r: r["counts"]["deferred"] == 2, "both to be deferred")
        for name, action in (("busy", "recreate"), ("lost", "remove")):
            found = results(report, name=name, action=action, result="deferred")
            self.assertEqual(len(found), 1, report)
            self.assertIn("1 command(s) run in it", found[0]["reason"])
        again = reconcile(self.root)
        self.assertEqual(again["counts"]["deferred"], 2, again)
        self.assertEqual(self.there(), ["busy", "lost"])
        self.assertEqual(self.root.exec_info("busy", exec_id)["state"], "running")
        self.take_back_and_remove("lost")

    def take_back_and_remove(self, name):
        reconcile(self.root, "--from-engine")
        self.root.ok("rm", "-f", name, "busy")

    def test_stale_hash_is_recreated_when_idle(self):
        self.root.ok("up", "idle")
        self.root.ok("up", "busy")
        self.root.ok("up", "down")
        for name in ("idle", "busy", "down"):
            self.shell(name, "echo kept > ~/file; echo old > /tmp/mark" + ("" if Config.backend else "; echo old > /var/tmp/mark"))
        self.root.ok("stop", "down")
        exec_id = self.root.ok("exec", "busy", "--detach", "--", *SLEEP).text.split()[0]
        self.root.kill_daemon()
        edit_store(self.root, ("UPDATE sandboxes SET hash = 'stale'", ()))
        self.root.start()
        fresh = lambda name: self.root.sandbox(name)["hash"] != "stale"
        wait_until(lambda: fresh("idle") and fresh("down"), 30, "the idle ones to be re-created")
        wait_until(lambda: self.root.sandbox("idle")["state"] == "running", 30, "it to be up again")
        report = wait_report(self.root, lambda r: results(r, action="recreate", result="deferred"), "the busy one to be deferred")
        self.assertEqual({r["name"] for r in results(report, action="recreate", result="deferred")}, {"busy"}, report)
        self.assertEqual(self.root.sandbox("down")["state"], "stopped")
        self.assertEqual(self.root.sandbox("down")["reason"], "re-created: its configuration was stale")
        self.assertEqual(self.shell("idle", "cat ~/file; cat /tmp/mark 2>/dev/null; echo $?"), "kept\n1\n")
        self.root.ok("kill", "busy", exec_id, "--signal", "KILL")
        wait_until(lambda: self.root.sandbox("busy")["hash"] != "stale" and self.root.sandbox("busy")["state"] == "running",
                   30, "the busy one to be re-created when it is idle")
        self.assertEqual(self.shell("busy", "cat ~/file; cat /tmp/mark 2>/dev/null; echo $?"), "kept\n1\n")
        self.assertEqual(self.shell("down", "cat ~/file"), "kept\n")
        self.assertEqual(reconcile(self.root)["counts"]["recreated"], 0, "nothing is stale any more")
        self.root.ok("rm", "-f", "idle", "busy", "down")



@needs("own kernel objects")
class Unsure(TestCase):
    def test_the_api_answers_before_all_states_are_known(self):
        """A supervisor that does not answer holds up nobody: it is `reconciling`."""
        self.root.start()
        self.root.ok("up", "a")
        self.root.ok("up", "hung")
        shim = next(p for p in self.root.processes() if self.root.sandbox("hung")["id"] in command_of(p))
        self.root.kill_daemon()
        os.kill(shim, signal.SIGSTOP)
        try:
            since = time.monotonic()
            self.root.start()
            states = {s["name"]: s["state"] for s in self.root.sandboxes()}
            took = time.monotonic() - since
            shown = self.root.ok("show", "hung").text
            self.assertEqual(states, {"a": "running", "hung": "reconciling"})
            self.assertLess(took, 1.5 if not Config.sanitized else 5.0)
            self.assertIn("it was running", shown)
            self.assertEqual(self.shell("a", "echo works"), "works\n")
        finally:
            os.kill(shim, signal.SIGCONT)
        wait_until(lambda: self.root.sandbox("hung")["state"] in ("running", "failed"), 30, "its state to be known")
        reconcile(self.root)
        self.assertEqual(self.root.sandbox("hung")["state"], "running", "a supervisor that answers again is adopted")
        self.root.ok("rm", "-f", "a", "hung")


def command_of(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""
