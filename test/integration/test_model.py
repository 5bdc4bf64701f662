"""Random operations and faults; after each step ripcord's answers against the truth of kernel or engine: no lie.

What is compared after each step: the state of every sandbox with what the kernel or the engine says of it, and with
what the operations before must have led to; live execs with the processes that really run; ends with what the
commands were; files with what was written; events with the states that they lead to; totals with the receipts.

The seed is printed and part of every failure: RIPCORD_MODEL_SEED=N plays the same choices again, RIPCORD_MODEL_STEPS
says how many.
"""
import json
import os
import random
import signal
import threading
import time
from pathlib import Path

import model_truth
from ripcord_test import Config, TestCase, full_run_only, serial, wait_until

NAMES = ["m0", "m1", "m2", "m3"]
PATIENCE = 20  # seconds until the truth about what nobody was asked for must be told
AT_REST = {"running", "paused", "stopped", "failed"}


class Box:
    """What the model knows of a sandbox that exists. None: not known, the next answer that agrees tells."""

    def __init__(self):
        self.state = "running"
        self.lines = 0       # that were written to a file of its home
        self.live = {}       # exec id: the marker of its process
        self.ended = {}      # exec id: what its end must be: a test of it


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
        self.boxes = {}
        self.log = []
        self.marker = f"{10 ** 7 + os.getpid()}"
        self.sleeps = 0
        self.last_event = 0
        self.told = {}  # sandbox id: the state that its last event told
        self.in_doubt = set()  # names whose state the model does not know

    # ---- asking ----

    def call(self, method, target, body=None):
        """A request; starts a daemon where none answers."""
        try:
            return self.root.http(method, target, body)
        except (OSError, AssertionError):
            self.root.ok("ls")
            return self.root.http(method, target, body)

    def want(self, reply, *statuses):
        if reply.status not in statuses:
            self.lie(f"answered {reply}, not {statuses}")
        return reply

    def lie(self, what):
        steps = "\n".join(self.log[-40:])
        self.fail(f"seed {self.seed}, step {len(self.log)}: {what}\n{steps}\n{self.root.log_tail()}")

    def pick(self, *states):
        names = sorted(n for n, b in self.boxes.items() if not states or b.state in states)
        return self.rng.choice(names) if names else None

    # ---- operations: each does one thing and what the model says must come of it ----

    def up(self):
        name = self.rng.choice(NAMES)
        reply = self.want(self.call("PUT", f"/v1/sandboxes/{name}", {"labels": {"of": name}}), 200, 201)
        action = reply.json()["action"]
        box = self.boxes.get(name)
        expected = {None: "created", "running": "unchanged", "paused": "started", "stopped": "started", "failed": "started"}
        if action != expected[box and box.state]:
            self.lie(f"up {name}: {action}, but it was {box and box.state}")
        self.boxes.setdefault(name, Box()).state = "running"
        return name

    def command(self, name, argv, **more):
        return self.call("POST", f"/v1/sandboxes/{name}/execs", {"argv": argv, **more})

    def usable(self):
        """One that takes a command: a stopped one is started by it."""
        return self.pick("running", "stopped", "failed")

    def started(self, name):
        self.boxes[name].state = "running"

    def end_of(self, name, exec_id):
        wait_until(lambda: self.root.exec_info(name, exec_id)["state"] == "ended", 30, f"the end of {exec_id}")
        return self.root.exec_info(name, exec_id)["end"]

    def append(self):
        name = self.usable()
        if not name:
            return None
        box = self.boxes[name]
        lines = int(self.shell(name, "echo line >> log; wc -l < log"))
        self.started(name)
        if box.lines is not None and lines != box.lines + 1:
            self.lie(f"{name}: {lines} lines in a file that had {box.lines}")
        box.lines = lines
        return name

    def exit(self):
        name = self.usable()
        if not name:
            return None
        code = self.rng.randrange(256)
        x = self.want(self.command(name, ["sh", "-c", f"exit {code}"]), 201).json()["exec"]["id"]
        self.started(name)
        if not exited(code)(self.end_of(name, x)):
            self.lie(f"{name}/{x}: exit {code} became {self.end_of(name, x)}")
        self.boxes[name].ended[x] = exited(code)
        return f"{name} {code}"

    def timeout(self):
        name = self.usable()
        if not name:
            return None
        x = self.want(self.command(name, ["sleep", "1000"], timeout_ms=50), 201).json()["exec"]["id"]
        self.started(name)
        if self.end_of(name, x)["cause"] != "timeout":
            self.lie(f"{name}/{x}: a timeout became {self.end_of(name, x)}")
        self.boxes[name].ended[x] = caused("timeout")
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
        self.boxes[name].live[x] = word
        return f"{name} {word}"

    def kill_exec(self):
        names = sorted(n for n, b in self.boxes.items() if b.live and b.state == "running")
        if not names:
            return None
        name = self.rng.choice(names)
        box = self.boxes[name]
        x = self.rng.choice(sorted(box.live))
        self.want(self.call("POST", f"/v1/sandboxes/{name}/execs/{x}/kill", {}), 200)
        self.end_of(name, x)
        self.all_ended(box, caused("killed"), [x])
        return f"{name} {x}"

    def all_ended(self, box, how, which=None):
        for x in list(box.live) if which is None else which:
            del box.live[x]
            box.ended[x] = how

    def stop(self):
        name = self.rng.choice(NAMES)
        reply = self.call("POST", f"/v1/sandboxes/{name}/stop", {"grace_ms": 200})
        if name not in self.boxes:
            self.want(reply, 404)
            return f"{name} (none)"
        self.want(reply, 200)
        self.boxes[name].state = "stopped"
        self.all_ended(self.boxes[name], caused("sandbox_stopped"))
        return name

    def remove(self, force=False):
        name = self.rng.choice(NAMES)
        reply = self.call("DELETE", f"/v1/sandboxes/{name}{'?force=1' if force else ''}")
        box = self.boxes.get(name)
        if box is None:
            self.want(reply, 404)
        elif box.live and not force:
            self.want(reply, 409)
        else:
            self.want(reply, 200)
            del self.boxes[name]
        return name

    def remove_force(self):
        return self.remove(True)

    def pause(self, word="pause", before="running", after="paused"):
        name = self.pick()
        if not name:
            return None
        reply = self.call("POST", f"/v1/sandboxes/{name}/{word}", {})
        if self.boxes[name].state in (before, after):
            self.want(reply, 200)
            self.boxes[name].state = after
        else:
            self.want(reply, 409)
        return name

    def resume(self):
        return self.pause("resume", "paused", "running")

    def refused(self):
        """A command in a sandbox that is paused or not there runs nowhere."""
        name = self.pick("paused")
        if name:
            self.want(self.command(name, ["true"]), 409)
            return name
        name = next((n for n in NAMES if n not in self.boxes), None)
        if name:
            self.want(self.command(name, ["true"]), 404)
        return name

    def run_once(self):
        code = self.rng.randrange(1, 100)
        r = self.root.run("run", "--", "sh", "-c", f"exit {code}")
        if r.code != code:
            self.lie(f"run: {r}")
        return str(code)

    def burst(self):
        """Many at once on one sandbox: any order is right, as long as what is answered in the end is true."""
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
            self.lie(f"{len(replies)} answers to {chosen}")
        for word, reply in replies:
            if reply.status >= 500 and reply.code != "conflict":
                self.lie(f"burst: {word} {name}: {reply}")
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
        self.boxes[name].state = "stopped"
        self.all_ended(self.boxes[name], not_exited)

    def shoot(self, find, *states):
        name = self.pick(*states)
        if not name:
            return None
        pid = find(self.root.sandbox(name)["id"])
        if not model_truth.kill(pid):
            self.lie(f"{name} is {self.boxes[name].state}, and there is nobody to kill")
        wait_until(lambda: not os.path.exists(f"/proc/{pid}") or model_truth.is_zombie(Path(f"/proc/{pid}")),
                   30, f"the end of {pid}")
        self.gone_down(name)
        return f"{name} {pid}"

    def init_kill(self):
        # An engine's freezer may be the old one: what is frozen there dies when it thaws.
        return self.shoot(self.truth.init_of, "running", *([] if Config.backend else ["paused"]))

    def supervisor_kill(self):
        return self.shoot(self.truth.supervisor_of, "running", "paused")

    def outside(self, method, what, states, after):
        if not Config.backend:
            return None
        name = self.pick(*states)
        if not name:
            return None
        self.truth.behind_our_back(self.root.sandbox(name)["id"], method, what)
        if after == "stopped":
            self.gone_down(name)
        else:
            self.boxes[name].state = after
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
        """Every disagreement, in words."""
        listed = {s["name"]: s for s in self.call("GET", "/v1/sandboxes").json()["sandboxes"]}
        receipts = self.root.get("/v1/execs?all=1")
        truth, running = self.truth.boxes(), model_truth.marked(self.marker)
        self.read_events()
        odd = [f"'{b}' is {s} and nobody says so" for b, s in truth.items() if b not in {s["id"] for s in listed.values()}]
        odd += [f"{name} is listed" for name in listed if name not in self.boxes and name not in self.in_doubt]
        for name in self.boxes:
            if name not in listed and name not in self.in_doubt:
                odd.append(f"{name} is not listed")
        for name, box in listed.items():
            odd += self.compare_box(name, box, truth.get(box["id"], "stopped"))
            odd += self.compare_execs(name, box, [x for x in receipts["execs"] if x["sandbox"] == name], running,
                                      receipts["totals"]["sandboxes"].get(name))
        return odd, listed, receipts["execs"]

    def compare_box(self, name, box, really):
        state = box["state"]
        odd = []
        if state not in AT_REST:
            odd.append(f"{name} is still {state}")
        if (state if state in ("running", "paused") else "stopped") != really:
            odd.append(f"{name} is said to be {state} ({box['reason']}) and is {really}")
        if name not in self.in_doubt and name in self.boxes and state != self.boxes[name].state:
            odd.append(f"{name} is {state} ({box['reason']}), not {self.boxes[name].state}")
        if state in ("stopped", "failed") and not box["reason"]:
            odd.append(f"{name} is {state} for no reason")
        if self.told.get(box["id"], state) != state:
            odd.append(f"{name} is {state}, its last event told {self.told[box['id']]}")
        return odd

    def compare_execs(self, name, box, execs, running, totals):
        odd = []
        live = {x["id"]: x for x in execs if x["state"] != "ended"}
        words = {x["argv"][-1] for x in live.values()}
        if box["execs_live"] != len(live):
            odd.append(f"{name}: {box['execs_live']} live, {sorted(live)} listed")
        for word in words - set(running):
            odd.append(f"{name}: '{word}' is said to live and does not")
        for x in execs:
            if x["state"] == "ended" and x["argv"][-1] in running:
                odd.append(f"{name}: '{x['argv'][-1]}' lives and is said to have ended: {x['end']}")
        if totals is None:
            odd.append(f"{name} is listed and has no totals")
        elif totals["execs"] != len(execs) - len(live):
            odd.append(f"{name}: totals count {totals['execs']}, there are {len(execs) - len(live)} receipts")
        model = self.boxes.get(name)
        if model is None or name in self.in_doubt:
            return odd
        if set(model.live) != set(live):
            odd.append(f"{name}: live are {sorted(live)}, not {sorted(model.live)}")
        by_id = {x["id"]: x for x in execs}
        for x, test in model.ended.items():
            if x not in by_id:
                odd.append(f"{name}: nothing is known of {x}")
            elif by_id[x]["end"] is None or not test(by_id[x]["end"]):
                odd.append(f"{name}/{x} ended as {by_id[x]['end']}")
        return odd

    def read_events(self):
        reply = self.root.http("GET", f"/v1/events?since={self.last_event}")
        for line in reply.body.splitlines():
            event = json.loads(line)
            if event["seq"] < self.last_event:
                self.lie(f"event {event['seq']} came after {self.last_event}")
            self.last_event = event["seq"]
            if event["kind"] == "gap":
                self.told = {}  # what was lost may have been any change
            elif event["kind"].startswith("sandbox.") and event["kind"] != "sandbox.changed":
                self.told[event["sandbox_id"]] = event["kind"].partition(".")[2]

    def check(self, patience):
        end = time.monotonic() + patience
        while True:
            odd, listed, execs = self.compare()
            if not odd:
                self.adopt(listed, execs)
                return
            if time.monotonic() > end:
                self.lie("\n  ".join(["", *odd]))
            time.sleep(0.05)

    def adopt(self, listed, execs):
        """What a burst has come to: all agree on it, so it is what the model goes on from."""
        for name in self.in_doubt:
            self.boxes.pop(name, None)
            if name in listed:
                box = self.boxes[name] = Box()
                box.state, box.lines = listed[name]["state"], None
                box.live = {x["id"]: x["argv"][-1] for x in execs if x["sandbox"] == name and x["state"] != "ended"}
        self.in_doubt.clear()

    # ---- the walk ----

    WEIGHTS = {"up": 8, "append": 5, "exit": 4, "detach": 5, "timeout": 1, "kill_exec": 3, "stop": 3, "remove": 2,
               "remove_force": 2, "pause": 3, "resume": 3, "refused": 2, "run_once": 1, "burst": 3, "daemon_kill": 2,
               "daemon_end": 1, "init_kill": 2, "supervisor_kill": 2, "outside_remove": 2, "outside_kill": 1,
               "outside_pause": 1, "outside_resume": 1}
    # After these, what is answered need not be true at once; after all others it must be. (A run's sandbox may still be
    # `removing` when its command has ended.)
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
        self.truth = model_truth.truth_of(self.root)
        while len(self.log) < steps:
            self.step()

    @full_run_only
    def test_no_lie(self):
        self.walk(2000 if Config.soak else 200)
