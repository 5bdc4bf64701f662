"""Output that is never wrong: resumed, over budget, held back, left behind, binary, on a terminal."""
import fcntl
import hashlib
import json
import os
import pty
import re
import struct
import termios
import threading
import time
from pathlib import Path

from ripcord_test import Config, TestCase, alive, alone, files_below, full_run_only, readable, smoke, wait_until
from test_causes import shim_of

MILLION = "".join(f"{i}\n" for i in range(1, 1000001)).encode()
# 1..1,000,000 in a few seconds, in pieces, so that there is a middle in which to kill something.
COUNT = """
import sys, time
for part in range(100):
    sys.stdout.write("".join(f"{i}\\n" for i in range(part * 10000 + 1, part * 10000 + 10001)))
    sys.stdout.flush()
    time.sleep(0.02)
"""
# 48 MiB of numbered lines, 16 bytes each
NUMBERED = """
import sys
for part in range(48):
    first = part << 16
    sys.stdout.write("".join(f"{i:015}\\n" for i in range(first, first + (1 << 16))))
"""


def differs(got, want):
    """Where two outputs part, as text; None when they are the same. Never the outputs themselves."""
    if got == want:
        return None
    at = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
    return f"{len(got)} bytes instead of {len(want)}, other from byte {at}: {got[at:at + 40]!r} for {want[at:at + 40]!r}"


def cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="latin-1").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Resumed(TestCase):
    def detach(self, *argv):
        return self.root.ok("exec", "a", "--detach", "--", *argv).text.split()[0]

    def kill_twice(self, done):
        """kill -9 of the daemon, twice while the command prints; `ls` brings a new one each time."""
        for part in (150000, 450000):
            wait_until(lambda: self.size() > part * 6, 60, f"{part} lines")
            if done():
                return
            self.root.kill_daemon()
            self.root.ok("ls")

    def size(self):
        reply = self.root.http("GET", "/v1/sandboxes/a/execs/last/stdout?offset=0")
        return len(reply.body)

    def test_a_million_lines_through_the_command_line(self):
        self.root.ok("up", "a")
        with self.root.popen("exec", "a", "--", "python3", "-c", COUNT) as p:
            killer = threading.Thread(target=self.kill_twice, args=(lambda: p.poll() is not None,))
            killer.start()
            out, err = p.communicate(timeout=120)
            killer.join()
        self.assertIsNone(differs(out, MILLION), err)
        self.assertEqual(p.returncode, 0, err)
        self.assertIsNone(differs(self.root.ok("logs", "a").out, MILLION))

    def test_a_million_lines_by_offset(self):
        self.root.ok("up", "a")
        x = self.detach("python3", "-c", COUNT)
        out, kills = b"", 0
        while True:
            ended = self.root.exec_info("a", x)["state"] == "ended"
            reply = self.root.http("GET", f"/v1/sandboxes/a/execs/{x}/stdout?offset={len(out)}")
            self.assertEqual(reply.status, 200, reply)
            out += reply.body
            if ended and not reply.body:
                break
            if kills < 2 and len(out) > (kills + 1) * 1500000:
                kills += 1
                self.root.kill_daemon()
                self.root.ok("ls")
        self.assertEqual(kills, 2)
        self.assertIsNone(differs(out, MILLION))
        end = self.root.exec_info("a", x)["end"]
        self.assertEqual((end["exit_code"], end["stdout_bytes"], end["drained"]), (0, len(MILLION), True), end)

    def test_a_run_gets_its_end_from_the_next_daemon(self):
        """A run does not outlive its daemon's death for long, and its client never waits for ever."""
        with self.root.popen("run", "--", "sh", "-c", "echo up; sleep 300") as p:
            self.assertEqual(p.stdout.readline(), b"up\n")
            self.root.kill_daemon()
            out, err = p.communicate(timeout=60)
        self.assertNotEqual(p.returncode, 0, (out, err))
        self.assertTrue(err.strip(), "the reason must be said")


class Budget(TestCase):
    """A journal of 16 MiB a stream, which is one segment: the smallest that can be dropped."""

    BUDGET = 16 << 20
    TOTAL = 48 << 20

    def setUp(self):
        super().setUp()
        self.root.configure("journal.budget: 16M\n")
        self.root.ok("up", "a")

    def test_without_a_reader_the_oldest_output_goes_and_a_gap_is_reported(self):
        x = self.root.ok("exec", "a", "--detach", "--", "python3", "-c", NUMBERED).text.split()[0]
        wait_until(lambda: self.root.exec_info("a", x)["state"] == "ended", 60, "the end")
        end = self.root.exec_info("a", x)["end"]
        self.assertEqual((end["exit_code"], end["stdout_bytes"]), (0, self.TOTAL), end)
        dropped = end["stdout_dropped"]
        self.assertGreater(dropped, 0)
        for command in ("logs", "attach"):
            r = self.root.run(command, "a", x)
            self.assertIn(f"bytes 0 to {dropped} of stdout are missing", r.err.decode(), command)
            self.assertEqual(len(r.out), self.TOTAL - dropped, command)
            self.assertEqual(r.out[:16], b"%015d\n" % (dropped // 16), "goes on right behind the gap")
        events = [json.loads(line) for line in self.root.ok("logs", "a", x, "--json").out.splitlines()]
        self.assertIn({"type": "gap", "stream": "stdout", "from": 0, "to": dropped}, events)
        for asked in (0, 5, dropped, dropped + 16):
            reply = self.root.http("GET", f"/v1/sandboxes/a/execs/last/stdout?offset={asked}")
            start, lost = max(asked, dropped), max(0, dropped - asked)
            self.assertEqual((reply.status, reply.headers["ripcord-offset"], reply.headers["ripcord-lost"]),
                             (206 if lost else 200, str(start), str(lost)), reply)
            self.assertEqual((len(reply.body), reply.body[:16]), (self.TOTAL - start, b"%015d\n" % (start // 16)))
        self.assertEqual(self.root.exec_info("a")["output"],
                         {"stdout": {"offset": dropped, "lost": dropped, "end": self.TOTAL}, "stderr": {"offset": 0, "lost": 0, "end": 0}})
        used = sum(f.stat().st_size for f in files_below(self.root.path, "out.*"))
        self.assertLessEqual(used, self.BUDGET + (16 << 20))

    def test_an_attached_slow_reader_holds_the_command_and_loses_nothing(self):
        with self.root.popen("exec", "a", "--", "python3", "-c", NUMBERED + "print('end')") as p:
            head = os.read(p.stdout.fileno(), 16)
            time.sleep(1.5)
            state = self.root.exec_info("a")["state"]
            digest, size = hashlib.sha256(head), len(head)
            while piece := os.read(p.stdout.fileno(), 1 << 20):
                digest.update(piece)
                size += len(piece)
            err = p.stderr.read()
        self.assertEqual(state, "running", "the command was to wait for its reader")
        want = hashlib.sha256()
        for part in range(48):
            want.update("".join(f"{i:015}\n" for i in range(part << 16, (part + 1) << 16)).encode())
        want.update(b"end\n")
        self.assertEqual((p.returncode, size, err), (0, self.TOTAL + 4, b""))
        self.assertEqual(digest.hexdigest(), want.hexdigest())

    def test_a_slow_reader_that_leaves_lets_the_command_go_on(self):
        with self.root.popen("exec", "a", "--", "python3", "-c", NUMBERED) as p:
            os.read(p.stdout.fileno(), 16)
            time.sleep(0.5)
            p.kill()
        wait_until(lambda: self.root.exec_info("a")["state"] == "ended", 60, "the end without a reader")
        self.assertEqual(self.root.exec_info("a")["end"]["exit_code"], 0)


class LeftBehind(TestCase):
    """Children that outlive their command and hold its output."""

    def setUp(self):
        super().setUp()
        self.root.ok("up", "a")

    def test_a_daemonised_child_neither_hangs_the_exec_nor_escapes(self):
        since = time.monotonic()
        r = self.root.run("exec", "a", "--", "sh", "-c", "setsid sh -c 'echo $$ >pid; exec sleep 1000' & sleep 0.2; echo x")
        self.assertLess(time.monotonic() - since, 30)
        self.assertEqual((r.code, r.out), (0, b"x\n"), r)
        end = self.root.exec_info("a")["end"]
        self.assertEqual((end["cause"], end["exit_code"], end["drained"]), ("exited", 0, False), end)
        self.assertEqual(self.shell("a", "kill -0 $(cat pid) && echo lives"), "lives\n")
        self.root.daemon_pid()
        sleepers = [p for p in self.root.inside() if b"1000" in Path(f"/proc/{p}/cmdline").read_bytes()]
        self.assertEqual(len(sleepers), 1, "it is in the sandbox's cgroup")
        self.root.ok("stop", "a")
        self.assertFalse(alive(sleepers[0]), "nothing outlives a stop")

    def test_a_flood_behind_the_end_costs_the_supervisor_nothing(self):
        self.root.ok("exec", "a", "--", "sh", "-c", "setsid yes & sleep 0.1")
        shim = shim_of(self.root, "a")
        before = cpu_seconds(shim)
        time.sleep(2)
        used = cpu_seconds(shim) - before
        self.assertLess(used, 0.5, "the pipe of an exec that is over is read slowly")
        self.assertEqual(self.shell("a", "pgrep -c yes"), "1\n", "the child is not killed by it")

    def test_a_child_may_close_its_pipe_later(self):
        self.root.ok("exec", "a", "--", "sh", "-c", "setsid sh -c 'sleep 5; echo late; exit' & true")
        self.assertEqual(self.root.ok("logs", "a").out, b"")
        self.assertEqual(self.shell("a", "while pgrep -x sleep >/dev/null; do sleep 0.1; done; echo fine"), "fine\n")


class Exact(TestCase):
    @smoke
    def test_binary_output_on_both_streams(self):
        self.root.ok("up", "a")
        script = ("import os, hashlib\n"
                  "for fd, seed in ((1, b'o'), (2, b'e')):\n"
                  "    data = b''.join(hashlib.sha512(seed + b'%d' % i).digest() for i in range(40000))\n"
                  "    while data:\n"
                  "        data = data[os.write(fd, data):]\n")
        r = self.root.ok("exec", "a", "--", "python3", "-c", script)
        for got, seed in ((r.out, b"o"), (r.err, b"e")):
            want = b"".join(hashlib.sha512(seed + b"%d" % i).digest() for i in range(40000))
            self.assertIsNone(differs(got, want))

    @full_run_only
    @alone
    def test_200_execs_at_once_in_one_sandbox(self):
        self.root.ok("up", "a", "--pids", "2000")
        script = "echo out {0}; echo err {0} >&2; sleep 1; exit {1}"
        running = [self.root.popen("exec", "a", "--", "sh", "-c", script.format(i, i % 100)) for i in range(200)]
        for i, p in enumerate(running):
            out, err = p.communicate(timeout=120)
            err = err.replace("ripcord: waiting for the daemon…\n".encode(), b"")  # on a slow machine
            self.assertEqual((p.returncode, out, err), (i % 100, b"out %d\n" % i, b"err %d\n" % i))
        self.assertEqual(self.root.sandbox("a")["execs_live"], 0)


class Terminal:
    """A terminal with `ripcord ARGS` on it."""

    def __init__(self, root, *args, rows=30, cols=100):
        self.master, slave = pty.openpty()
        self.size(rows, cols)
        self.process = root.popen(*args, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
                                  preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(slave)
        self.seen = b""

    def size(self, rows, cols):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def type(self, text):
        os.write(self.master, text.encode())

    def read(self, seconds):
        if not readable(self.master, seconds):
            return False
        try:
            piece = os.read(self.master, 65536)
        except OSError:  # EIO: all ends are closed
            piece = b""
        self.seen += piece
        return bool(piece)

    def expect(self, pattern, seconds=30):
        """Reads until the pattern has come; what came up to its end is then forgotten."""
        end = time.monotonic() + seconds
        while not (found := re.search(pattern.encode(), self.seen)):
            if time.monotonic() > end or (not self.read(0.2) and self.process.poll() is not None):
                raise AssertionError(f"{pattern!r} did not come: {self.seen[-1000:]!r}")
        self.seen = self.seen[found.end():]
        return found

    def wait(self):
        code = None
        end = time.monotonic() + 60
        while code is None and time.monotonic() < end:
            self.read(0.1)
            code = self.process.poll()
        return code

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)


class Ptys(TestCase):
    def setUp(self):
        super().setUp()
        self.root.ok("up", "a")

    def terminal(self, *args, **kwargs):
        t = Terminal(self.root, *args, **kwargs)
        self.addCleanup(t.close)
        return t

    def test_size_resize_ctrl_c_and_status(self):
        t = self.terminal("exec", "a", "-t", "-i", "--", "sh", "-c",
                          "stty size; read x; until [ \"$(stty size)\" != '30 100' ]; do sleep 0.05; done; stty size; "
                          "trap 'echo caught; exit 7' INT; echo ready; while :; do sleep 0.1; done")
        t.expect("30 100")
        t.size(45, 120)
        os.kill(t.process.pid, 28)  # SIGWINCH; the kernel sends it to a foreground group, which a test need not be
        t.type("go\n")
        t.expect("45 120")
        t.expect("ready")
        t.type("\x03")
        t.expect("caught")
        self.assertEqual(t.wait(), 7)
        self.assertEqual(self.root.exec_info("a")["end"]["exit_code"], 7)

    def test_detach_and_attach_again(self):
        t = self.terminal("exec", "a", "-t", "-i", "--", "sh", "-c",
                          "echo first; while read x; do echo got $x; [ $x = end ] && exit 3; done")
        t.expect("first")
        t.type("one\n")
        t.expect("got one")
        t.type("\x10\x11")
        self.assertEqual(t.wait(), 0)
        info = self.root.exec_info("a")
        self.assertEqual((info["state"], info["tty"]), ("running", True), info)
        again = self.terminal("attach", "a", info["id"])
        again.type("two\n")
        again.expect("got two")
        follower = self.root.popen("logs", "a", info["id"], "-f")
        again.type("end\n")
        again.expect("got end")
        self.assertEqual(again.wait(), 3)
        out, _ = follower.communicate(timeout=60)
        for line in (b"first", b"got one", b"got two", b"got end"):
            self.assertIn(line, out)

    @smoke
    def test_a_terminal_survives_the_daemon(self):
        t = self.terminal("exec", "a", "-t", "-i", "--", "sh", "-c", "echo up; while read x; do echo got $x; done")
        t.expect("up")
        self.root.kill_daemon()
        self.root.ok("ls")
        x = self.root.exec_info("a")
        self.assertEqual(x["state"], "running", x)
        again = self.terminal("attach", "a", x["id"])
        again.type("later\n")
        again.expect("got later")
        self.root.ok("kill", "a", x["id"], "--signal", "KILL")


class Retention(TestCase):
    """Output of finished execs goes by size and by age; their receipts stay."""

    def configure(self, text):
        self.root.configure(text)

    def print_some(self, count=400000):
        self.root.ok("exec", "a", "--", "head", "-c", str(count), "/dev/zero")
        return self.root.exec_info("a")["id"]

    def is_gone(self, x):
        return self.root.exec_info("a", x)["journal"] == "gone"

    def folder(self, x):
        state = self.root.path / "state" / ("docker" if Config.backend else "")
        return state / "execs" / self.root.sandbox("a")["id"] / x

    def test_oldest_finished_go_when_the_sandbox_is_over_its_budget(self):
        self.configure("journal.sandbox_budget: 1M\n")
        self.root.ok("up", "a")
        live = self.root.ok("exec", "a", "--detach", "--", "sh", "-c", "echo live; exec sleep 1000").text.split()[0]
        execs = [self.print_some() for _ in range(5)]
        wait_until(lambda: [self.is_gone(x) for x in execs] == [True, True, True, False, False], 30, "the first three to go")
        self.assertEqual([self.folder(x).exists() for x in execs], [False, False, False, True, True])
        self.assertEqual(self.root.ok("logs", "a", live).out, b"live\n", "a live one is never touched")
        r = self.root.run("logs", "a", execs[0])
        self.assertEqual(r.out, b"")
        self.assertIn(b"bytes 0 to 400000 of stdout are missing", r.err)
        self.assert_refused(self.root.http("GET", f"/v1/sandboxes/a/execs/{execs[0]}/stdout"), 404, "not_found", "no longer stored")
        receipt = self.root.exec_info("a", execs[0])
        self.assertEqual((receipt["end"]["exit_code"], receipt["end"]["stdout_bytes"]), (0, 400000), receipt)
        self.assertEqual(len(self.root.ok("logs", "a", execs[4]).out), 400000)

    def test_the_newest_stays_whatever_its_size(self):
        self.configure("journal.sandbox_budget: 100K\n")
        self.root.ok("up", "a")
        x = self.print_some()
        self.root.kill_daemon()
        self.root.ok("ls")
        time.sleep(1.5)
        self.assertEqual(len(self.root.ok("logs", "a", x).out), 400000)
        self.print_some(10)
        wait_until(lambda: self.is_gone(x), 30, "it to go when it is not the newest any more")

    def test_by_age_also_what_an_earlier_daemon_kept(self):
        self.root.ok("up", "a")
        execs = [self.print_some(10) for _ in range(40)]
        self.root.kill_daemon()
        self.configure("journal.keep: 1s\n")
        self.root.ok("ls")
        live = self.root.ok("exec", "a", "--detach", "--", "sh", "-c", "echo live; exec sleep 1000").text.split()[0]
        wait_until(lambda: all(self.is_gone(x) for x in execs), 60, "all to be too old")
        self.assertEqual([p.name for p in self.folder(live).parent.iterdir() if p.is_dir()], [live])
        self.assertEqual(len(self.root.get("/v1/sandboxes/a/execs")["execs"]), 41)
        self.assertEqual(self.root.ok("logs", "a", live).out, b"live\n")
