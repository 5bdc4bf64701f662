"""The processes of a native build: they are killed in the middle, or a ripcord-build that is not ours breaks the rules."""
import json
import os
import signal
import sys
import unittest
from pathlib import Path

from ripcord_test import Config, copy_program, only_on
from test_builder import BuildCase, cmdline
from test_images import BUSYBOX

TWO = ("FROM base:1 AS a\nRUN echo begun; sleep 1000\nFROM base:1 AS b\nRUN echo begun; sleep 1000\n"
       "FROM base:1\nCOPY --from=a /x /\nCOPY --from=b /x /\n")


def parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[1])


@only_on("native")
@unittest.skipUnless(os.path.exists(BUSYBOX), "busybox is not installed")
class Killed(BuildCase):
    def kill_in_the_middle(self, dockerfile, running, choose):
        """Kills one of the build's processes when `running` commands have begun. Returns the events."""
        self.file("Dockerfile", dockerfile)
        with self.root.popen("image", "build", "--json", self.context) as p:
            events = []
            while running:
                events.append(json.loads(p.stdout.readline()))
                running -= events[-1]["event"] == "output"
            builders = [pid for pid in self.root.processes() if b"ripcord-build" in cmdline(pid)]
            os.kill(choose(builders), signal.SIGKILL)
            out, _ = p.communicate(timeout=60)
        self.assertNotEqual(p.returncode, 0)
        self.assert_nothing_left()
        return events + [json.loads(line) for line in out.splitlines()]

    def check(self, events, message, steps):
        self.assertIn(message, events[-1]["error"]["message"])
        ends = [e for e in events if e["event"] == "step_end" and "error" in e]
        self.assertEqual([e["error"] for e in ends], ["cancelled: the build has failed"] * steps, events)
        begun = {e["step"] for e in events if e["event"] == "step"}
        self.assertEqual(begun, {e["step"] for e in events if e["event"] == "step_end"}, events)

    def test_the_only_process(self):
        def choose(builders):
            self.assertEqual(len(builders), 1, "a stage that runs alone has no process of its own")
            return builders[0]
        events = self.kill_in_the_middle("FROM base:1\nRUN echo begun; sleep 1000\n", 1, choose)
        self.check(events, "ripcord-build was ended by signal 9", 1)

    @unittest.skipUnless((os.cpu_count() or 1) > 1, "one processor")
    def test_the_process_of_a_stage(self):
        def choose(builders):
            self.assertEqual(len(builders), 3)
            return next(pid for pid in builders if parent_of(pid) in builders)
        self.check(self.kill_in_the_middle(TWO, 2, choose), "the process of a stage has ended without a result", 2)

    @unittest.skipUnless((os.cpu_count() or 1) > 1, "one processor")
    def test_the_parent_of_the_stages(self):
        def choose(builders):
            return next(pid for pid in builders if parent_of(pid) not in builders)
        self.check(self.kill_in_the_middle(TWO, 2, choose), "ripcord-build was ended by signal 9", 2)


BUILDER = """#!{python}
import json, os, socket, sys
control = socket.socket(fileno=4)

class Connection:
    def __init__(self):
        control.send(b"x")
        _, fds, _, _ = socket.recv_fds(control, 1, 1)
        self.socket = socket.socket(fileno=fds[0])

    def send(self, **message):
        self.socket.sendall(json.dumps(message).encode() + b"\\n")

    def ask(self, **message):
        self.send(**message)
        return self.socket.makefile().readline()

def hear_the_end(conn):
    try:
        conn.socket.recv(1)
    except ConnectionResetError:
        pass

{script}
print(json.dumps({{"id": "sha256:" + "0" * 64, "names": [], "layers": 0}}))
"""


@only_on("native")
class Hostile(BuildCase):
    """The daemon believes nothing that ripcord-build says: it parses files of others."""

    def prepare(self):
        pass

    def with_builder(self, script):
        folder = self.root.path / "bin"
        folder.mkdir()
        for name in ("ripcord", "ripcordd", "ripcord-shim", "ripcord-image", "ripcord-transfer", "ripcord-packages"):
            copy_program(Config.bin / name, folder)
        builder = folder / "ripcord-build"
        builder.write_text(BUILDER.format(python=sys.executable, script=script), encoding="utf-8")
        builder.chmod(0o755)
        self.root.bin = folder
        self.file("Dockerfile", "FROM scratch\n")
        return self.root.run("image", "build", "--json", self.context)

    def refused(self, script, code, message):
        result = self.with_builder(f"c = Connection()\n{script}\nhear_the_end(c)")
        self.assertEqual(result.code, code, result)
        self.assertIn(message, result.err.decode())

    def test_unknown_messages(self):
        self.refused("c.send(rum={})", 8, "unknown message")

    def test_bytes_that_are_not_json(self):
        self.refused("c.socket.sendall(b'{]\\n')", 2, "a line")

    def test_digests_that_are_not_digests(self):
        self.refused("c.send(need=['\"'])", 8, "invalid digest")

    def test_long_lines(self):
        self.refused("try:\n    c.socket.sendall(b' ' * (5 << 20))\nexcept BrokenPipeError:\n    pass", 6, "is over 4194304 bytes")

    def test_many_connections(self):
        self.refused("all = [Connection() for i in range(64)]", 6, "over 64 connections")

    def test_connections_that_have_ended_do_not_count(self):
        result = self.with_builder("for i in range(200):\n    c = Connection()\n    c.ask(flush=True)\n    del c\n")
        self.assertEqual(result.code, 0, result)

    def test_the_step_of_another_connection(self):
        result = self.with_builder("a, b = Connection(), Connection()\n"
                                   "a.send(step='of a')\na.ask(flush=True)\nb.send(step='of b')\nb.ask(flush=True)\n"
                                   "b.send(cached=True, id=1)\nb.send(end=None, id=1)\nb.ask(flush=True)\n"
                                   "a.send(end='bad', id=2)\na.ask(flush=True)\n")
        self.assertEqual(result.code, 0, result)
        events = [json.loads(line) for line in result.text.splitlines()]
        steps = [(e["event"], e["step"], e.get("error")) for e in events if "step" in e]
        self.assertEqual(steps, [("step", 1, None), ("step", 2, None), ("cached", 2, None), ("step_end", 2, None),
                                 ("step_end", 1, "bad")])
