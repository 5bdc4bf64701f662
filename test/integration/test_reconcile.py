"""Reconcile: what the store wants against what is there. Review finding 5 has its named tests here."""
import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

import engines
from ripcord_test import Config, TestCase, needs, only_on, wait_until

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


@contextlib.contextmanager
def immovable(folder):
    """Nobody can delete or rename it, nor anything in it."""
    subprocess.run(["chattr", "+i", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["chattr", "-i", str(folder)], check=False)


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
        return sorted(name for name in map(self.name_of, folder.iterdir()) if name)

    @staticmethod
    def name_of(box):
        try:
            return os.readlink(box / "meta").partition("/")[2]
        except OSError:  # going, or gone
            return None

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
        self.root.start()
        self.assertEqual(self.root.sandboxes(), [])
        answered = time.time()
        wait_until(lambda: self.there() == [], 60, "the leftovers to go")
        wait_until(lambda: events(self.root, "reconcile.ended"), 30, "the reconcile to end")
        ended = datetime.fromisoformat(events(self.root, "reconcile.ended")[-1]["time"].replace("Z", "+00:00")).timestamp()
        if Config.backend:  # native ones go faster than a question is asked
            self.assertLess(answered, ended, "the API answers while leftovers go")

    @only_on("native", "docker")  # Podman forgets the container, and leaks its files
    def test_one_failed_removal_does_not_stop_others(self):
        names = [f"n{i}" for i in range(6)]
        self.root.ok("up", "keep")
        self.make_orphans(names)
        stuck = names[1]
        with immovable(self.folder_of(stuck)):
            self.root.start()
            wait_until(lambda: self.there() == ["keep"] + ([stuck] if not Config.backend else self.there()[1:]), 60,
                       "the others to go")
            report = wait_report(self.root, lambda r: results(r, result="failed"), "the failure to be told")
            failed = results(report, result="failed")
            self.assertEqual([(r["action"], r["name"]) for r in failed], [("remove", stuck)], report)
            self.assertIn("operation not permitted", failed[0]["reason"].lower())
            self.assertGreater(failed[0]["retry_in_ms"], 0)
            told = self.root.run("reconcile")
            self.assertEqual(told.code, 1, told)
            self.assertIn("operation not permitted", told.text.lower())
        wait_until(lambda: self.there() == ["keep"], 60, "the retry")
        wait_until(lambda: last_run(self.root)["counts"]["failed"] == 0, 60, "no failure any more")
        self.root.ok("rm", "-f", "keep")

    def folder_of(self, name):
        """What must go with the sandbox, on the disk."""
        if Config.backend:
            box = Config.backend.api("GET", f"/containers/{self.root.prefix()}-{name}/json").json()
            return Path(box["GraphDriver"]["Data"]["UpperDir"])
        folder = self.root.path / "state" / "sandboxes"
        return next(b for b in folder.iterdir() if os.readlink(b / "meta").endswith(f"/{name}"))

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
            self.assertIn("1 command(s) are running", found[0]["reason"])
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
        self.assertEqual(self.root.sandbox("down")["reason"], "re-created: its configuration was out of date")
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
        """A supervisor that does not answer delays nothing else: its sandbox is `reconciling`."""
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
            self.assertLess(took, 5)
            self.assertIn("the last known state is running", shown)
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


class Plan(Orphans, TestCase):
    def test_a_dry_run_says_all_and_does_nothing(self):
        self.root.start()
        self.root.ok("up", "a")
        self.root.ok("up", "lost")
        self.root.configure("reconcile.interval: 0s\n")
        self.root.kill_daemon()
        edit_store(self.root, ("DELETE FROM sandboxes WHERE name = 'lost'", ()), ("DELETE FROM meta WHERE key LIKE 'settled.%'", ()))
        self.root.start()
        before = self.there()
        report = reconcile(self.root, "--dry-run", "--from-engine")
        self.assertEqual([(r["action"], r["result"]) for r in results(report, name="lost")], [("adopt", "planned")], report)
        self.assertEqual(self.there(), before)
        self.assertEqual([s["name"] for s in self.root.sandboxes()], ["a"])
        text = self.root.ok("reconcile", "--dry-run", "--from-engine").text
        self.assertIn("plan: 2 unchanged", text)
        self.assertIn("lost", text)
        reconcile(self.root, "--from-engine")
        self.root.ok("rm", "-f", "a", "lost")

    def test_a_sandbox_that_is_removed_by_others_is_marked(self):
        self.root.start()
        self.root.ok("up", "a")
        self.shell("a", "echo kept > ~/file")
        self.root.ok("stop", "a")
        if Config.backend:
            self.assertEqual(Config.backend.api("DELETE", f"/containers/{self.root.prefix()}-a?force=1").status, 204)
        else:
            shutil.rmtree(self.root.path / "state" / "sandboxes" / self.root.sandbox("a")["id"])
            self.assertEqual(results(reconcile(self.root), name="a")[0]["action"], "mark_stopped")
        wait_until(lambda: (self.root.sandbox("a")["reason"] or "").startswith("gone: removed outside ripcord at 20"), 30, "the reason")
        self.assertEqual(self.root.sandbox("a")["state"], "stopped")
        self.assertIn("gone: removed outside ripcord", self.root.ok("ls").text)
        self.assertEqual(results(reconcile(self.root), name="a")[0]["action"], "adopt", "it is said once")
        self.assertEqual(self.shell("a", "cat ~/file 2>/dev/null; echo up"), "kept\nup\n" if Config.backend else "up\n")
        self.root.ok("rm", "-f", "a")


class LostStore(Orphans, TestCase):
    """The database is gone: `--from-engine` makes it again from the objects."""

    def lose(self):
        self.root.kill_daemon()
        for name in ("ripcord.db", "ripcord.db-wal", "ripcord.db-shm"):
            (self.root.path / "state" / name).unlink(missing_ok=True)

    def test_it_is_rebuilt_from_the_objects(self):
        self.root.start()
        root_id = self.root.root_id
        self.root.ok("up", "a", "--memory", "300M", "--env", "COLOUR=red", "--label", "team=x")
        self.shell("a", "echo kept > ~/file; echo once")
        self.root.ok("up", "down")
        self.root.ok("stop", "down")
        self.root.ok("lease", "a", "--idle-stop", "2h")
        self.root.ok("lease", "down", "--rm-after", "3h")
        live = self.root.ok("exec", "a", "--detach", "--", "sh", "-c", "echo begun; sleep 3; echo over").text.split()[0]
        before = {n: self.root.sandbox(n) for n in ("a", "down")}
        self.lose()
        self.root.start()
        self.assertEqual(self.root.root_id, root_id, "the root keeps its id")
        time.sleep(1)
        self.assertEqual(self.root.sandboxes(), [])
        self.assertEqual(self.there(), ["a", "down"], "a new store removes nothing that it does not know")
        held = results(reconcile(self.root), result="deferred")
        self.assertEqual(sorted(r["name"] for r in held), ["a", "down"])
        self.assertIn("--from-engine", held[0]["hint"])
        report = reconcile(self.root, "--from-engine")
        self.assertEqual(report["counts"]["adopted"], 2, report)
        for name in ("a", "down"):
            now = self.root.sandbox(name)
            for key in ("id", "hash", "state", "spec", "limits"):
                self.assertEqual(now[key], before[name][key], (name, key))
        self.assertEqual(self.shell("a", "cat ~/file; echo $COLOUR"), "kept\nred\n")
        wait_until(lambda: self.root.exec_info("a", live)["state"] == "ended", 30, "the end of what ran all the time")
        self.assertEqual(self.root.exec_info("a", live)["end"]["exit_code"], 0)
        self.assertEqual(self.root.ok("logs", "a", live).out, b"begun\nover\n")
        self.assertEqual(reconcile(self.root)["counts"]["adopted"], 2)
        self.root.ok("rm", "-f", "a", "down")
        self.assertEqual(self.there(), [])


@only_on("docker", "podman")
class Takeover(TestCase):
    """What the Python system left on an engine goes, as the example configuration says; nothing else does."""

    EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "takeover-parachute.yaml"
    LABEL = {"app": "parachute"}

    def api(self, method, target, body=None):
        reply = Config.backend.api(method, target, body)
        self.assertLess(reply.status, 300, f"{method} {target}: {reply}")
        return reply.json() if reply.body.strip() else None

    def container(self, name, labels=None, start=True, **more):
        body = {"Image": engines.IMAGE, "Cmd": ["sleep", "100000"], "Labels": labels or {}, **more}
        self.api("POST", f"/containers/create?name={name}", body)
        self.addCleanup(Config.backend.api, "DELETE", f"/containers/{name}?force=1&v=1")
        if start:
            self.api("POST", f"/containers/{name}/start")

    def names(self, target, pick):
        return {pick(x) for x in target if pick(x).startswith("parachute")}

    def there(self):
        volumes = self.api("GET", "/volumes")["Volumes"] or []
        return (self.names(self.api("GET", "/containers/json?all=1"), lambda c: c["Names"][0].lstrip("/"))
                | self.names(self.api("GET", "/networks"), lambda n: n["Name"])
                | self.names(volumes, lambda v: v["Name"]))

    def make_leftovers(self):
        self.api("POST", "/networks/create", {"Name": "parachute-sandbox", "Driver": "bridge"})
        self.addCleanup(Config.backend.api, "DELETE", "/networks/parachute-sandbox")
        for name in ("parachute-pip-cache", "parachute-npm-cache", "parachute-tools", "parachute-data"):
            self.api("POST", "/volumes/create", {"Name": name})
            self.addCleanup(Config.backend.api, "DELETE", f"/volumes/{name}?force=1")
        mounts = {"HostConfig": {"Binds": ["parachute-pip-cache:/cache"], "NetworkMode": "parachute-sandbox"}}
        self.container("parachute-env-1", self.LABEL, start=False)
        self.container("parachute-env-2", self.LABEL, **mounts)
        self.container("parachute-ws-x", self.LABEL)
        self.container("parachute-session-9", self.LABEL, start=False)
        self.container("parachute-default", self.LABEL)
        self.container("parachute-env-else", {}, start=False)          # another system's: no label
        self.container("parachute-monitor", self.LABEL, start=False)   # not in the list

    def work_in(self, name):
        """A command that runs for a while, as the old system would have started it."""
        exec_id = self.api("POST", f"/containers/{name}/exec", {"Cmd": ["sh", "-c", "while test ! -e /tmp/go; do sleep 0.1; done"]})["Id"]
        self.api("POST", f"/exec/{exec_id}/start", {"Detach": True})
        wait_until(lambda: self.api("GET", f"/exec/{exec_id}/json")["Running"], 20, "the old command")

    def test_a_deployment_of_the_python_system_is_cleaned_up(self):
        self.make_leftovers()
        self.work_in("parachute-default")
        text = self.EXAMPLE.read_text(encoding="utf-8")
        (self.root.path / "ripcord.yaml").write_text(f"{text}\ndocker.host: {Config.backend.host}\nreconcile.interval: 1s\n", encoding="utf-8")
        self.root.start()
        report = wait_report(self.root, lambda r: results(r, name="parachute-default"), "the old containers to be looked at")
        busy = results(report, name="parachute-default")[0]
        self.assertEqual((busy["action"], busy["result"]), ("remove", "deferred"), busy)
        kept = {"parachute-default", "parachute-env-else", "parachute-monitor", "parachute-data"}
        wait_until(lambda: self.there() == kept, 60, f"the leftovers to go; there: {self.there()}; {last_run(self.root)}")
        self.root.ok("up", "agent")
        box = self.api("GET", "/containers/parachute-agent/json")
        self.assertEqual(box["Config"]["Labels"]["app"], "parachute", "other tools find ours as they found the old ones")
        reconcile(self.root)
        self.assertEqual(self.shell("agent", "echo works"), "works\n", "what is ours is not legacy, whatever it is called")
        self.root.ok("rm", "-f", "agent")
        subprocess.run([*Config.backend.cli, "exec", "parachute-default", "touch", "/tmp/go"], check=True)
        wait_until(lambda: "parachute-default" not in self.there(), 60, "the last one to go when its command has ended")
        self.assertEqual(self.there(), kept - {"parachute-default"})
