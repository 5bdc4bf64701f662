"""Agent sessions: JSON in, numbered JSON lines out, each event once and in order whatever is lost on the way."""
import hashlib
import itertools
import json
import os
import signal
import time
import unittest
from pathlib import Path

from ripcord_test import Config, TestCase, only_on, wait_until

ENGINE_IS_NO_MATTER = only_on("native")  # the daemon's work alone: seen once is enough
PAYLOAD = b'{"prompt": "hi"}\n'


class SessionCase(TestCase):
    def setUp(self):
        super().setUp()
        self.root.ok("up", "a")

    def session(self, script, *options, payload=PAYLOAD, **kwargs):
        return self.root.run("session", "a", "--payload", "-", *options, "--", "sh", "-c", script, stdin=payload, **kwargs)

    def start(self, script, **fields):
        """Through the API; the session's id."""
        reply = self.root.http("POST", "/v1/sandboxes/a/sessions", {"argv": ["sh", "-c", script], "payload": {}, **fields})
        self.assertEqual(reply.status, 201, reply)
        return reply.json()["session"]["id"]

    def open_events(self, session, since=0, follow="true"):
        """A file of the response's body lines; chunk heads are left out by the caller's reader."""
        s = self.root.connect()
        s.sendall(f"GET /v1/sandboxes/a/sessions/{session}/events?follow={follow}&since={since} HTTP/1.1\r\n"
                  "Host: x\r\nConnection: close\r\n\r\n".encode())
        return Events(s)

    def events(self, session, since=0):
        with self.open_events(session, since) as e:
            return list(e)

    def check_numbers(self, events, first=1):
        self.assertEqual([e["seq"] for e in events], list(range(first, first + len(events))))
        self.assertEqual((events[-1]["stream"], events[-1]["event"]["type"]), ("session", "exit"))


class Events:
    """The events of one response, as they come."""

    def __init__(self, sock):
        self.sock, self.file = sock, sock.makefile("rb")
        status = self.file.readline()
        if b" 200 " not in status:
            raise AssertionError(status + self.file.read())
        while self.file.readline() not in (b"\r\n", b""):
            pass
        self.rest = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()
        self.sock.close()

    def chunk(self):
        try:
            size = int(self.file.readline() or b"0", 16)
            return self.file.read(size + 2)[:size]
        except (ConnectionResetError, ValueError):
            return b""

    def __iter__(self):
        while True:
            line, end, rest = self.rest.partition(b"\n")
            if end:
                self.rest = rest
                yield json.loads(line)
                continue
            piece = self.chunk()
            if not piece:
                return
            self.rest += piece


class Turn(SessionCase):
    def test_payload_in_events_out_and_the_agents_status(self):
        r = self.session('read line; echo "$line"; read more || echo at the end; echo oops >&2; exit 7')
        lines = [json.loads(l) for l in r.out.splitlines()]
        self.assertEqual(r.code, 7, r)
        self.assertIn({"prompt": "hi"}, lines)
        self.assertIn({"type": "log", "stream": "stdout", "text": "at the end"}, lines)
        self.assertIn({"type": "log", "stream": "stderr", "text": "oops"}, lines)
        self.assertEqual((lines[-1]["type"], lines[-1]["cause"], lines[-1]["exit_code"]), ("exit", "exited", 7))

    @ENGINE_IS_NO_MATTER
    def test_an_agent_cannot_write_events_of_ours(self):
        r = self.session("""echo '{"type":"exit","cause":"exited","exit_code":0}'; echo '{"Type":"gap"}'; exit 7""")
        lines = [json.loads(l) for l in r.out.splitlines()]
        self.assertEqual(lines[:2], [
            {"type": "agent", "event": {"type": "exit", "cause": "exited", "exit_code": 0}},
            {"type": "agent", "event": {"Type": "gap"}}])
        self.assertEqual([l["exit_code"] for l in lines if l.get("type") == "exit"], [7], r)

    @ENGINE_IS_NO_MATTER
    def test_numbers_are_a_matter_of_json(self):
        r = self.session("cat", "--json", payload=b'{"n":\n 1.10,\t"big": 123456789012345678901234567890}')
        lines = r.out.splitlines()
        self.assertEqual(lines[0], b'{"seq":1,"stream":"stdout","event":{"n":1.10,"big":123456789012345678901234567890}}')
        self.check_numbers([json.loads(l) for l in lines])

    def test_a_large_payload_arrives_whole_though_the_daemon_dies(self):
        text = json.dumps({"text": "x" * 900000, "é": "ü"}, ensure_ascii=False).encode()
        told = json.dumps({"text": "x" * 900000, "é": "ü"}, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        with self.root.popen("session", "a", "--payload", "-", "--", "sh", "-c", "echo up; sleep 2; sha256sum",
                             stdin=-1) as p:
            p.stdin.write(text)
            p.stdin.close()
            p.stdin = None
            self.assertIn(b"up", p.stdout.readline())
            self.root.kill_daemon()
            out, err = p.communicate(timeout=60)
        self.assertIn(hashlib.sha256(told).hexdigest().encode(), out, err)
        self.assertEqual(p.returncode, 0, err)

    @ENGINE_IS_NO_MATTER
    def test_timeouts(self):
        r = self.session("echo {}; sleep 1000", "--timeout", "300ms")
        self.assertEqual(json.loads(r.out.splitlines()[-1])["cause"], "timeout", r)
        self.assertIn(b"timeout", r.err)
        r = self.session("echo {}; sleep 1000", "--idle-timeout", "300ms")
        self.assertEqual(json.loads(r.out.splitlines()[-1])["cause"], "idle_timeout", r)

    @ENGINE_IS_NO_MATTER
    def test_a_command_that_is_not_there(self):
        r = self.root.run("session", "a", "--payload", "-", "--", "no-such-agent", stdin=b"{}")
        self.assertEqual(r.code, 127, r)
        self.assertIn(b"no-such-agent", r.out + r.err)

    @ENGINE_IS_NO_MATTER
    def test_list_and_show(self):
        self.session("true")
        self.root.ok("exec", "a", "--", "true")
        listed = self.root.ok("sessions", "a", "--json").json()["sessions"]
        self.assertEqual([(s["state"], s["session"], s["end"]["status"]) for s in listed], [("ended", True, 0)])
        self.assertIn(listed[0]["id"], self.root.ok("sessions", "a").text)
        self.assertIn("exit 0", self.root.ok("sessions", "a", listed[0]["id"]).text)
        plain = self.root.exec_info("a")["id"]
        self.assertEqual(self.root.run("sessions", "a", plain).code, 3)
        self.assertEqual(self.root.http("GET", f"/v1/sandboxes/a/sessions/{plain}/events").status, 404)

    @ENGINE_IS_NO_MATTER
    def test_server_sent_events(self):
        x = self.start("echo '{\"a\":1}'; echo '{\"a\":2}'")
        self.events(x)
        reply = self.root.http("GET", f"/v1/sandboxes/a/sessions/{x}/events",
                               headers={"Accept": "text/event-stream", "Last-Event-ID": "1"})
        self.assertEqual(reply.headers["content-type"], "text/event-stream")
        first, second = reply.body.decode().strip().split("\n\n")
        self.assertEqual(first, 'id: 2\ndata: {"seq":2,"stream":"stdout","event":{"a":2}}')
        self.assertTrue(second.startswith('id: 3\ndata: {"seq":3,"stream":"session","event":{"type":"exit",'), second)


class OneAtATime(SessionCase):
    def test_a_second_one_is_refused_by_name_unless_it_is_wanted(self):
        x = self.start("sleep 1000")
        reply = self.root.http("POST", "/v1/sandboxes/a/sessions", {"argv": ["true"], "payload": 1})
        self.assert_refused(reply, 409, "conflict", x, "--concurrent")
        r = self.session("true")
        self.assertEqual(r.code, 125, r)
        self.assertIn(x.encode(), r.err)
        self.root.kill_daemon()
        self.assertIn(x.encode(), self.session("true").err, "the next daemon knows it too")
        self.assertEqual(self.session("true", "--concurrent").code, 0)
        self.assertEqual(self.root.ok("exec", "a", "--", "echo", "beside").out, b"beside\n")
        self.root.ok("sessions", "a", x, "--cancel")
        self.assertEqual(self.events(x)[-1]["event"]["signal"], "TERM")
        self.assertEqual(self.session("true").code, 0)
        self.assertEqual(self.root.run("sessions", "a", x, "--cancel").code, 4)

    def test_cancel_lets_it_say_goodbye_and_then_kills(self):
        x = self.start("trap 'echo \"{\\\"bye\\\":1}\"; exit 3' TERM; echo '{}'; while :; do sleep 0.05; done")
        with self.open_events(x) as e:
            self.assertEqual(next(iter(e))["event"], {})
            self.root.ok("sessions", "a", x, "--cancel")
            rest = list(e)
        self.assertEqual([rest[0]["event"], rest[-1]["event"]["exit_code"]], [{"bye": 1}, 3])
        x = self.start("trap '' TERM; echo '{}'; while :; do sleep 0.05; done")
        with self.open_events(x) as e:
            self.assertEqual(next(iter(e))["event"], {})
            self.root.ok("sessions", "a", x, "--cancel", "--grace", "200ms")
            self.assertEqual(list(e)[-1]["event"]["cause"], "killed")

    @ENGINE_IS_NO_MATTER
    def test_ctrl_c_cancels(self):
        with self.root.popen("session", "a", "--payload", "-", "--", "sh", "-c",
                             "trap 'exit 9' TERM; echo '{}'; while :; do sleep 0.05; done", stdin=-1) as p:
            p.stdin.write(b"{}")
            p.stdin.close()
            p.stdin = None
            self.assertEqual(p.stdout.readline(), b"{}\n")
            p.send_signal(signal.SIGINT)
            p.communicate(timeout=60)
        self.assertEqual(p.returncode, 9)


class Resume(SessionCase):
    def test_ten_thousand_events_through_a_client_that_disconnects_every_500(self):
        x = self.start("seq -f '{\"i\":%.0f}' 5000; seq 500 >&2; seq -f '{\"i\":%.0f}' 5001 9499")
        got, rounds = [], 0
        while not got or got[-1]["stream"] != "session":
            with self.open_events(x, got[-1]["seq"] if got else 0) as e:
                rounds += 1
                for n, event in enumerate(e, 1):
                    got.append(event)
                    if n == 500:
                        break
        self.check_numbers(got)
        self.assertEqual((len(got), rounds), (10000, 20))
        self.assertEqual([e["event"]["i"] for e in got if e["stream"] == "stdout"], list(range(1, 9500)))
        self.assertEqual([e["event"]["text"] for e in got if e["stream"] == "stderr"], [str(i) for i in range(1, 501)])
        self.assertEqual(self.events(x), got, "a reader who comes late gets the same")
        self.root.kill_daemon()
        self.root.ok("ls")
        self.assertEqual(self.events(x, 4321), got[4321:], "from the next daemon, too")

    @ENGINE_IS_NO_MATTER
    def test_the_client_goes_on_when_the_daemon_is_killed(self):
        script = "i=0; while [ $i -lt 60 ]; do echo '{\"i\":'$i'}'; echo $i >&2; i=$((i+1)); sleep 0.05; done"
        with self.root.popen("session", "a", "--payload", "-", "--json", "--", "sh", "-c", script, stdin=-1) as p:
            p.stdin.write(b"{}")
            p.stdin.close()
            p.stdin = None
            p.stdout.readline()
            for _ in range(2):
                time.sleep(0.4)
                self.root.kill_daemon()
                wait_until(lambda: self.root.daemon_pid() is not None or p.poll() is not None, 30,
                           "the daemon that the client starts")
            out, err = p.stdout.read(), p.stderr.read()
        self.assertEqual(p.returncode, 0, err)
        got = [json.loads(l) for l in out.splitlines()]
        self.check_numbers(got, first=2)
        self.assertEqual([e["event"]["i"] for e in got if e["stream"] == "stdout" and "i" in e["event"]][-1], 59)
        self.assertEqual(len([e for e in got if e["stream"] == "stderr"]) + len([e for e in got if e["stream"] == "stdout"]), 119)
        self.assertEqual(self.events("last", 1), got)

    @ENGINE_IS_NO_MATTER
    def test_two_readers_at_once_see_one_order(self):
        x = self.start("for i in $(seq 300); do echo '{\"i\":'$i'}'; echo e$i >&2; done")
        with self.open_events(x) as one, self.open_events(x) as two:
            first, second = iter(one), iter(two)
            got = ([], [])
            for events, out in ((first, got[0]), (second, got[1])) * 20:
                out.extend(itertools.islice(events, 7))
            got[0].extend(first)
            got[1].extend(second)
        self.check_numbers(got[0])
        self.assertEqual(got[0], got[1])

    @ENGINE_IS_NO_MATTER
    def test_a_number_that_was_never_sent_is_refused(self):
        x = self.start("echo '{}'")
        error = self.events(x, 77)[0]["error"]
        self.assertEqual((error["code"], error["message"]), ("invalid", "event 77 does not exist: the last one is 2"))
        self.assertEqual(self.events(x, 2), [])
        r = self.root.run("session", "a", "--resume", x, "--since", "77")
        self.assertEqual(r.code, 125, r)

    @ENGINE_IS_NO_MATTER
    def test_detach_and_resume_by_hand(self):
        x = self.session("echo '{\"a\":1}'; sleep 0.5; echo '{\"a\":2}'; exit 4", "--detach").text.strip()
        r = self.root.run("session", "a", "--resume", x, "--since", "1")
        self.assertEqual(r.code, 4, r)
        self.assertEqual(r.out.splitlines()[0], b'{"a":2}')
        self.assertEqual(self.root.run("session", "a", "--resume", "last").out.count(b"\n"), 3)

    @ENGINE_IS_NO_MATTER
    def test_last_is_the_last_session_not_the_last_command(self):
        self.assert_refused(self.root.http("GET", "/v1/sandboxes/a/sessions/last"), 404, "not_found", "no session has run")
        first = self.start("echo '{\"n\":1}'")
        wait_until(lambda: self.root.exec_info("a", first)["state"] == "ended", 30, "the first session to end")
        last = self.start("echo '{\"n\":2}'; sleep 1000")
        self.root.ok("exec", "a", "--", "true")
        self.assertEqual(self.root.get("/v1/sandboxes/a/sessions/last")["session"]["id"], last)
        self.assertIn(last, self.root.ok("sessions", "a", "last").text)
        self.root.ok("sessions", "a", "last", "--cancel", "--grace", "1ms")
        self.assertIn(b'{"n":2}', self.root.run("session", "a", "--resume", "last").out)


class Hostile(SessionCase):
    @ENGINE_IS_NO_MATTER
    def test_output_that_is_not_json(self):
        deep = '{"a":' * 3000
        script = (r"""printf 'a\000b\n\377\376x\n{"a":"\377"}\n{}{}\n[1]\n\n'; """ + f"echo '{deep}'; "
                  + r"""printf '{"u":"\\u0000"}\r\nend'""")
        got = self.events(self.start(script))
        self.check_numbers(got)
        texts = [e["event"].get("text") for e in got[:-1]]
        self.assertEqual(texts, ["a\0b", "\ufffd\ufffdx", '{"a":"\ufffd"}', "{}{}", "[1]", "", deep, None, "end"])
        self.assertEqual([bool(e["event"].get("invalid_utf8")) for e in got[:3]], [False, True, True])
        self.assertEqual(got[7]["event"], {"u": "\0"})

    def line_of(self, size):
        x = self.start(f"head -c {size} /dev/zero | tr '\\0' x; echo; echo '{{\"a\":1}}'")
        total, parts = 0, 0
        with self.open_events(x) as e:
            for event in e:
                if "part" in event["event"]:
                    parts += 1
                    total += len(event["event"]["text"])
                    self.assertEqual((event["event"]["part"], event["seq"]), (parts, parts))
                    last = event
        self.assertEqual((total, parts, last["event"]["more"]), (size, size // (1 << 20) + 1, False))
        self.assertEqual(event["seq"], parts + 2)
        return x

    def test_a_line_that_does_not_end(self):
        self.line_of(20_000_000)
        status = Path(f"/proc/{self.root.daemon_pid()}/status").read_text(encoding="ascii")
        peak = int(next(l for l in status.splitlines() if l.startswith("VmHWM")).split()[1])
        if not Config.sanitized:
            self.assertLess(peak, 64 << 10, "KiB: the daemon does not hold the line")

    @unittest.skipUnless(Config.soak, "only in a soak run")
    def test_a_line_of_a_gigabyte(self):
        self.line_of(1_000_000_000)

    @ENGINE_IS_NO_MATTER
    def test_events_dropped_by_a_full_journal_are_counted(self):
        self.root.kill_daemon(signal.SIGTERM)
        self.root.configure("journal.budget: 32M\n")
        self.root.ok("stop", "a")
        x = self.start(f"seq -f '{{\"i\":%.0f,\"pad\":\"{'x' * 2000}\"}}' 30000")
        wait_until(lambda: self.root.exec_info("a", x)["state"] == "ended", 60, "its end")
        got = self.events(x)
        self.check_numbers(got)
        self.assertEqual((got[0]["event"]["type"], got[0]["event"]["from"]), ("gap", 0))
        self.assertEqual(got[-2]["event"]["i"], 30000)
        self.assertEqual(self.events(x, 1), got[1:])

    @ENGINE_IS_NO_MATTER
    def test_bad_requests_start_nothing(self):
        post = lambda **body: self.root.http("POST", "/v1/sandboxes/a/sessions", {"argv": ["true"], **body})
        self.assert_refused(post(), 400, "invalid", "payload")
        self.assert_refused(post(payload=1, payload_text="1"), 400, "invalid", "exclude")
        self.assert_refused(post(payload_text='{"a":'), 400, "invalid", "payload_text")
        self.assert_refused(post(payload=1, tty=True), 400, "invalid", "tty")
        self.assert_refused(post(payload=1, paylod=2), 400, "invalid", "paylod")
        self.assert_refused(post(payload=1, secrets={"../x": "v"}), 400, "invalid", "../x")
        self.assert_refused(post(payload=1, secrets={"x": 1}), 400, "invalid", "secrets.x")
        self.assert_refused(post(payload=1, secrets={"x": "v" * 70000}), 429, "limit", "secrets")
        self.assert_refused(post(payload=1, secrets={f"x{i}": "v" for i in range(33)}), 429, "limit", "secrets")
        self.assertEqual(post(payload="x" * (17 << 20)).status, 413)
        for args, words in ((["--payload", "/no/such"], b"/no/such"), ([], b"--payload"),
                            (["--payload", "-", "--secret", "K=v"], b"command line"), (["--payload", "-", "--secret", "K=@-"], b"standard input"),
                            (["--payload", "-", "--since", "4"], b"--resume"), (["--resume", "../x"], b"../x")):
            r = self.root.run("session", "a", *args, "--", *([] if "--resume" in args else ["true"]), stdin=b"{}")
            self.assertEqual(r.code, 125, r)
            self.assertIn(words, r.err)
        self.assertEqual(self.root.ok("sessions", "a", "--json").json()["sessions"], [])


class Example(SessionCase):
    def test_the_agent_of_the_documentation(self):
        tree = Path(__file__).resolve().parents[2]
        shown = (tree / "docs" / "sessions.md").read_text(encoding="utf-8").split("```console\n")[1].split("```")[0].splitlines()
        task = next(l for l in shown if "turn.json" in l).split("'")[1].encode()
        want = [l for l in shown if l.startswith("{")][:-1]
        self.root.ok("cp", tree / "examples" / "agent.py", "a:")
        r = self.root.run("session", "a", "--payload", "-", "--", "python3", "agent.py", stdin=task)
        self.assertEqual((r.code, r.text.splitlines()[:-1]), (0, want), r)
        r = self.root.run("session", "a", "--payload", "-", "--secret", "API_KEY", "--", "python3", "agent.py",
                          stdin=b'{"steps": ["false", "true"]}', env={"API_KEY": "k"})
        events = [json.loads(l) for l in r.out.splitlines()]
        self.assertEqual([r.code, events[0]["has_key"], events[-2]], [1, True, {"type": "failed", "step": 1}], r)


class Plugins(TestCase):
    def test_a_folder_is_seen_read_only_below_plugins(self):
        place = self.root.path / "plugins"
        (place / "tool").mkdir(parents=True)
        os.chmod(place, 0o755)
        os.chmod(self.root.path, 0o755)
        (place / "tool" / "plugin.json").write_text('{"name": "tool"}\n', encoding="ascii")
        self.root.configure(f"mounts.roots: [{place}]\n")
        self.root.ok("up", "a", "--mount", f"{place}/tool:/plugins/tool:ro")
        r = self.root.run("session", "a", "--payload", "-", "--", "sh", "-c",
                          "cat /plugins/tool/plugin.json; touch /plugins/tool/x || exit 5", stdin=b"{}")
        self.assertEqual((r.code, r.out.splitlines()[0]), (5, b'{"name": "tool"}'), r)
        (place / "way-out").symlink_to("/etc")
        for source in ("/etc", "/", "/proc", f"{place}/way-out", f"{self.root.path}/run"):
            r = self.root.run("up", "b", "--mount", f"{source}:/plugins/x:ro")
            self.assertEqual(r.code, 5, r)
