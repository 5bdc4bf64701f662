"""Random operations and faults on a small model of ripcord. After each step, ripcord's answers must agree with the kernel
or the engine, and with the model.

The test compares: the state of every sandbox with the actual state and with the operations so far; live execs with the
running processes; end records with the commands; files with what was written; events with the resulting states; totals
with the receipts.

The seed is printed and part of every failure. RIPCORD_MODEL_SEED=N repeats the same choices; RIPCORD_MODEL_STEPS sets
the number of steps.
"""
import json
import os
import random
import signal
import threading
import time
from pathlib import Path

import actual_state
from ripcord_test import Config, TestCase, full_run_only, serial, wait_until

NAMES = ["m0", "m1", "m2", "m3"]
PATIENCE = 20  # seconds until ripcord must have noticed a change that it did not make
AT_REST = {"running", "paused", "stopped", "failed"}


class ModelSandbox:
    """What the model knows about an existing sandbox. None means unknown; the next consistent answer sets the value."""

    def __init__(self):
        self.state = "running"
        self.lines = 0       # lines that were written to a file in its home
        self.live = {}       # exec id: the marker of its process
        self.ended = {}      # exec id: a function that accepts the expected end record


def exited(code):
    return lambda end: end["cause"] == "exited" and end["exit_code"] == code


def caused(*causes):
    return lambda end: end["cause"] in causes


def not_exited(end):
    return end["cause"] in ("engine_lost", "sandbox_stopped", "signaled", "killed")


@serial("model")
class Model(TestCase):
    def setUp(self):
        super().setUp()
        self.seed = int(os.environ.get("RIPCORD_MODEL_SEED", "0")) or random.randrange(1, 1 << 32)
        self.rng = random.Random(self.seed)
        self.sandboxes = {}
        self.log = []
        self.marker = f"{10 ** 7 + os.getpid()}"
        self.sleeps = 0
        self.last_event = 0
        self.event_states = {}  # sandbox id: the state after its last event
        self.in_doubt = set()  # names whose state the model does not know

    # ---- requests ----

    def call(self, method, target, body=None):
        """Sends a request. Starts a daemon if none answers."""
        try:
            return self.root.http(method, target, body)
        except (OSError, AssertionError):
            self.root.ok("ls")
            return self.root.http(method, target, body)

    def want(self, reply, *statuses):
        if reply.status not in statuses:
            self.disagree(f"answered {reply}, not {statuses}")
        return reply

    def disagree(self, what):
        steps = "\n".join(self.log[-40:])
        self.fail(f"seed {self.seed}, step {len(self.log)}: {what}\n{steps}\n{self.root.log_tail()}")

    def pick(self, *states):
        names = sorted(n for n, b in self.sandboxes.items() if not states or b.state in states)
        return self.rng.choice(names) if names else None

    # ---- operations: each does one thing, and checks the answer that the model expects ----

    def up(self):
        name = self.rng.choice(NAMES)
        reply = self.want(self.call("PUT", f"/v1/sandboxes/{name}", {"labels": {"of": name}}), 200, 201)
        action = reply.json()["action"]
        sandbox = self.sandboxes.get(name)
        expected = {None: "created", "running": "unchanged", "paused": "started", "stopped": "started", "failed": "started"}
        if action != expected[sandbox and sandbox.state]:
            self.disagree(f"up {name}: {action}, but it was {sandbox and sandbox.state}")
        self.sandboxes.setdefault(name, ModelSandbox()).state = "running"
        return name

    def command(self, name, argv, **more):
        return self.call("POST", f"/v1/sandboxes/{name}/execs", {"argv": argv, **more})

    def usable(self):
        """The name of a sandbox that accepts commands. A command starts a stopped sandbox."""
        return self.pick("running", "stopped", "failed")

    def started(self, name):
        self.sandboxes[name].state = "running"

    def end_of(self, name, exec_id):
        wait_until(lambda: self.root.exec_info(name, exec_id)["state"] == "ended", 30, f"the end of {exec_id}")
        return self.root.exec_info(name, exec_id)["end"]

    def append(self):
        name = self.usable()
        if not name:
            return None
        sandbox = self.sandboxes[name]
        lines = int(self.shell(name, "echo line >> log; wc -l < log"))
        self.started(name)
        if sandbox.lines is not None and lines != sandbox.lines + 1:
            self.disagree(f"{name}: {lines} lines in a file that had {sandbox.lines}")
        sandbox.lines = lines
        return name

    def exit(self):
        name = self.usable()
        if not name:
            return None
        code = self.rng.randrange(256)
        x = self.want(self.command(name, ["sh", "-c", f"exit {code}"]), 201).json()["exec"]["id"]
        self.started(name)
        if not exited(code)(self.end_of(name, x)):
            self.disagree(f"{name}/{x}: exit {code} became {self.end_of(name, x)}")
        self.sandboxes[name].ended[x] = exited(code)
        return f"{name} {code}"

    def timeout(self):
        name = self.usable()
        if not name:
            return None
        x = self.want(self.command(name, ["sleep", "1000"], timeout_ms=50), 201).json()["exec"]["id"]
        self.started(name)
        if self.end_of(name, x)["cause"] != "timeout":
            self.disagree(f"{name}/{x}: a timeout became {self.end_of(name, x)}")
        self.sandboxes[name].ended[x] = caused("timeout")
        return name

    def new_marker(self):
        self.sleeps += 1
        return f"{self.marker}.{self.sleeps}"

    def detach(self):
        name = self.usable()
        if not name:
            return None
        word = self.new_marker()
        x = self.want(self.command(name, ["sleep", word]), 201).json()["exec"]["id"]
        self.started(name)
        self.sandboxes[name].live[x] = word
        return f"{name} {word}"

    def kill_exec(self):
        names = sorted(n for n, b in self.sandboxes.items() if b.live and b.state == "running")
        if not names:
            return None
        name = self.rng.choice(names)
        sandbox = self.sandboxes[name]
        x = self.rng.choice(sorted(sandbox.live))
        self.want(self.call("POST", f"/v1/sandboxes/{name}/execs/{x}/kill", {}), 200)
        self.end_of(name, x)
        self.all_ended(sandbox, caused("killed"), [x])
        return f"{name} {x}"

    def all_ended(self, sandbox, how, which=None):
        for x in list(sandbox.live) if which is None else which:
            del sandbox.live[x]
            sandbox.ended[x] = how

    def stop(self):
        name = self.rng.choice(NAMES)
        reply = self.call("POST", f"/v1/sandboxes/{name}/stop", {"grace_ms": 200})
        if name not in self.sandboxes:
            self.want(reply, 404)
            return f"{name} (none)"
        self.want(reply, 200)
        self.sandboxes[name].state = "stopped"
        self.all_ended(self.sandboxes[name], caused("sandbox_stopped"))
        return name

    def remove(self, force=False):
        name = self.rng.choice(NAMES)
        reply = self.call("DELETE", f"/v1/sandboxes/{name}{'?force=1' if force else ''}")
        sandbox = self.sandboxes.get(name)
        if sandbox is None:
            self.want(reply, 404)
        elif sandbox.live and not force:
            self.want(reply, 409)
        else:
            self.want(reply, 200)
            del self.sandboxes[name]
        return name

    def remove_force(self):
        return self.remove(True)

    def pause(self, word="pause", before="running", after="paused"):
        name = self.pick()
        if not name:
            return None
        reply = self.call("POST", f"/v1/sandboxes/{name}/{word}", {})
        if self.sandboxes[name].state in (before, after):
            self.want(reply, 200)
            self.sandboxes[name].state = after
        else:
            self.want(reply, 409)
        return name

    def resume(self):
        return self.pause("resume", "paused", "running")

    def refused(self):
        """A command for a paused or unknown sandbox is refused."""
        name = self.pick("paused")
        if name:
            self.want(self.command(name, ["true"]), 409)
            return name
        name = next((n for n in NAMES if n not in self.sandboxes), None)
        if name:
            self.want(self.command(name, ["true"]), 404)
        return name

    def run_once(self):
        code = self.rng.randrange(1, 100)
        r = self.root.run("run", "--", "sh", "-c", f"exit {code}")
        if r.code != code:
            self.disagree(f"run: {r}")
        return str(code)

    def burst(self):
        """Several requests at once on one sandbox. Any order is right, as long as the final answers are true."""
        name = self.rng.choice(NAMES)
        chosen = [self.rng.choice(["up", "exec", "stop", "pause", "resume", "rm"]) for _ in range(4)]
        target = f"/v1/sandboxes/{name}"
        requests = {
            "up": lambda: ("PUT", target, {"labels": {"of": name}}),
            "exec": lambda: ("POST", f"{target}/execs", {"argv": ["sleep", self.new_marker()]}),
            "stop": lambda: ("POST", f"{target}/stop", {"grace_ms": 200}),
            "pause": lambda: ("POST", f"{target}/pause", {}),
            "resume": lambda: ("POST", f"{target}/resume", {}),
            "rm": lambda: ("DELETE", f"{target}?force=1", None),
        }
        self.call("GET", "/healthz")
        replies = []
        threads = [threading.Thread(target=lambda w=w: replies.append((w, self.root.http(*requests[w]())))) for w in chosen]
        for t in threads:
            t.start()
        for t in threads:
            t.join(60)
        if len(replies) != len(chosen):
            self.disagree(f"{len(replies)} answers to {chosen}")
        for word, reply in replies:
            if reply.status >= 500 and reply.code != "conflict":
                self.disagree(f"burst: {word} {name}: {reply}")
        self.doubt(name)
        return f"{name} {chosen}"

    def doubt(self, name):
        self.in_doubt.add(name)

    # ---- faults ----

    def daemon_kill(self):
        self.root.kill_daemon()
        self.root.ok("ls")
        return ""

    def daemon_end(self):
        self.root.kill_daemon(signal.SIGTERM)
        self.root.ok("ls")
        return ""

    def gone_down(self, name):
        self.sandboxes[name].state = "stopped"
        self.all_ended(self.sandboxes[name], not_exited)

    def shoot(self, find, *states):
        name = self.pick(*states)
        if not name:
            return None
        pid = find(self.root.sandbox(name)["id"])
        if not actual_state.kill(pid):
            self.disagree(f"{name} is {self.sandboxes[name].state}, but has no process to kill")
        wait_until(lambda: not os.path.exists(f"/proc/{pid}") or actual_state.is_zombie(Path(f"/proc/{pid}")),
                   30, f"the end of {pid}")
        self.gone_down(name)
        return f"{name} {pid}"

    def init_kill(self):
        # An engine may use the freezer of cgroup v1: a frozen process there dies only when it thaws.
        return self.shoot(self.actual.init_of, "running", *([] if Config.backend else ["paused"]))

    def supervisor_kill(self):
        return self.shoot(self.actual.supervisor_of, "running", "paused")

    def outside(self, method, what, states, after):
        if not Config.backend:
            return None
        name = self.pick(*states)
        if not name:
            return None
        self.actual.change_outside(self.root.sandbox(name)["id"], method, what)
        if after == "stopped":
            self.gone_down(name)
        else:
            self.sandboxes[name].state = after
        return name

    def outside_remove(self):
        return self.outside("DELETE", "?force=1", ("running",), "stopped")

    def outside_kill(self):
        return self.outside("POST", "/kill", ("running",), "stopped")

    def outside_pause(self):
        return self.outside("POST", "/pause", ("running",), "paused")

    def outside_resume(self):
        return self.outside("POST", "/unpause", ("paused",), "running")

    # ---- comparing ----

    def compare(self):
        """(list of disagreements as text, listed sandboxes, receipts)."""
        listed = {s["name"]: s for s in self.call("GET", "/v1/sandboxes").json()["sandboxes"]}
        receipts = self.root.get("/v1/execs?all=1")
        actual, running = self.actual.sandboxes(), actual_state.marked(self.marker)
        self.read_events()
        odd = [f"'{b}' is {s} but not listed" for b, s in actual.items() if b not in {s["id"] for s in listed.values()}]
        odd += [f"{name} is listed" for name in listed if name not in self.sandboxes and name not in self.in_doubt]
        for name in self.sandboxes:
            if name not in listed and name not in self.in_doubt:
                odd.append(f"{name} is not listed")
        for name, sandbox in listed.items():
            odd += self.compare_sandbox(name, sandbox, actual.get(sandbox["id"], "stopped"))
            odd += self.compare_execs(name, sandbox, [x for x in receipts["execs"] if x["sandbox"] == name], running,
                                      receipts["totals"]["sandboxes"].get(name))
        return odd, listed, receipts["execs"]

    def compare_sandbox(self, name, sandbox, really):
        state = sandbox["state"]
        odd = []
        if state not in AT_REST:
            odd.append(f"{name} is still {state}")
        if (state if state in ("running", "paused") else "stopped") != really:
            odd.append(f"{name} is reported as {state} ({sandbox['reason']}) but is {really}")
        if name not in self.in_doubt and name in self.sandboxes and state != self.sandboxes[name].state:
            odd.append(f"{name} is {state} ({sandbox['reason']}), not {self.sandboxes[name].state}")
        if state in ("stopped", "failed") and not sandbox["reason"]:
            odd.append(f"{name} is {state} without a reason")
        if self.event_states.get(sandbox["id"], state) != state:
            odd.append(f"{name} is {state}, but its last event said {self.event_states[sandbox['id']]}")
        return odd

    def compare_execs(self, name, sandbox, execs, running, totals):
        odd = []
        live = {x["id"]: x for x in execs if x["state"] != "ended"}
        words = {x["argv"][-1] for x in live.values()}
        if sandbox["execs_live"] != len(live):
            odd.append(f"{name}: {sandbox['execs_live']} live, {sorted(live)} listed")
        for word in words - set(running):
            odd.append(f"{name}: '{word}' is reported as live but does not run")
        for x in execs:
            if x["state"] == "ended" and x["argv"][-1] in running:
                odd.append(f"{name}: '{x['argv'][-1]}' runs but is reported as ended: {x['end']}")
        if totals is None:
            odd.append(f"{name} is listed but has no totals")
        elif totals["execs"] != len(execs) - len(live):
            odd.append(f"{name}: totals count {totals['execs']}, there are {len(execs) - len(live)} receipts")
        model = self.sandboxes.get(name)
        if model is None or name in self.in_doubt:
            return odd
        if set(model.live) != set(live):
            odd.append(f"{name}: live are {sorted(live)}, not {sorted(model.live)}")
        by_id = {x["id"]: x for x in execs}
        for x, test in model.ended.items():
            if x not in by_id:
                odd.append(f"{name}: {x} is unknown")
            elif by_id[x]["end"] is None or not test(by_id[x]["end"]):
                odd.append(f"{name}/{x} ended as {by_id[x]['end']}")
        return odd

    def read_events(self):
        reply = self.root.http("GET", f"/v1/events?since={self.last_event}")
        for line in reply.body.splitlines():
            event = json.loads(line)
            if event["seq"] < self.last_event:
                self.disagree(f"event {event['seq']} came after {self.last_event}")
            self.last_event = event["seq"]
            if event["kind"] == "gap":
                self.event_states = {}  # the missing events may have been any change
            elif event["kind"].startswith("sandbox.") and event["kind"] != "sandbox.changed":
                self.event_states[event["sandbox_id"]] = event["kind"].partition(".")[2]

    def check(self, patience):
        end = time.monotonic() + patience
        while True:
            odd, listed, execs = self.compare()
            if not odd:
                self.adopt(listed, execs)
                return
            if time.monotonic() > end:
                self.disagree("\n  ".join(["", *odd]))
            time.sleep(0.05)

    def adopt(self, listed, execs):
        """The model takes over the outcome of a burst, on which all answers agree."""
        for name in self.in_doubt:
            self.sandboxes.pop(name, None)
            if name in listed:
                sandbox = self.sandboxes[name] = ModelSandbox()
                sandbox.state, sandbox.lines = listed[name]["state"], None
                sandbox.live = {x["id"]: x["argv"][-1] for x in execs if x["sandbox"] == name and x["state"] != "ended"}
        self.in_doubt.clear()

    # ---- the random walk ----

    WEIGHTS = {"up": 8, "append": 5, "exit": 4, "detach": 5, "timeout": 1, "kill_exec": 3, "stop": 3, "remove": 2,
               "remove_force": 2, "pause": 3, "resume": 3, "refused": 2, "run_once": 1, "burst": 3, "daemon_kill": 2,
               "daemon_end": 1, "init_kill": 2, "supervisor_kill": 2, "outside_remove": 2, "outside_kill": 1,
               "outside_pause": 1, "outside_resume": 1}
    # After these operations the answers may lag behind for PATIENCE seconds; after all others they must be right at once.
    # (The sandbox of a run may still be `removing` when its command has ended.)
    LATE = ("run_once", "init_kill", "supervisor_kill", "daemon_kill", "daemon_end", "burst", "outside_remove", "outside_kill",
              "outside_pause", "outside_resume")

    def step(self):
        what = self.rng.choices(list(self.WEIGHTS), list(self.WEIGHTS.values()))[0]
        self.log.append(what)
        about = getattr(self, what)()
        if about is None:
            self.log.pop()
            return
        self.log[-1] = f"{what} {about}"
        self.check(PATIENCE if what in self.LATE else 0)

    def walk(self, steps):
        steps = int(os.environ.get("RIPCORD_MODEL_STEPS", "0")) or steps
        print(f"# model: seed {self.seed}, {steps} steps on {Config.engine}", flush=True)
        self.root.start()
        self.actual = actual_state.of(self.root)
        while len(self.log) < steps:
            self.step()

    @full_run_only
    def test_answers_agree_with_kernel_and_engine(self):
        self.walk(2000 if Config.soak else 200)
