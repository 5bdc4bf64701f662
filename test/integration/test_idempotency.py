"""`Idempotency-Key`: a request that is sent again has its effect once, also when the daemon was killed in between. From curl and
from Python."""
import json
import signal
import sqlite3
import subprocess
import threading
import time
import uuid
from contextlib import closing

from ripcord_test import Connection, TestCase, full_run_only, wait_until

SOCKET = "ripcord.sock"
KEPT_S = 24 * 3600
EFFECT = "echo once >> /home/agent/effects"


class IdempotencyCase(TestCase):
    def setUp(self):
        super().setUp()
        self.root.start()
        self.root.ok("up", "box")
        self.execs = "/v1/sandboxes/box/execs"

    def post(self, target, body, key, **headers):
        return self.root.http("POST", target, body, {"Idempotency-Key": key, **headers})

    def effects(self):
        """How often EFFECT has run in the sandbox."""
        return len(self.shell("box", "cat /home/agent/effects 2>/dev/null || true").splitlines())

    def db(self):
        return closing(sqlite3.connect(self.root.path / "state" / "ripcord.db", timeout=20, isolation_level=None))

    def keys(self):
        with self.db() as db:
            return dict(db.execute("SELECT key, status FROM request_keys").fetchall())

    def leave(self, target, body, key, headers=()):
        """Sends the request and disconnects without reading the answer. The caller waits for its effect."""
        c = Connection(self.root.path / "run" / SOCKET)
        c.request("POST", target, json.dumps(body), {"Content-Type": "application/json", "Idempotency-Key": key, **dict(headers)})
        return c


class TestSameAnswer(IdempotencyCase):
    def check_twice(self, target, body, status, **headers):
        key = uuid.uuid4().hex
        first, again = (self.post(target, body, key, **headers) for _ in range(2))
        self.assertEqual((first.status, again.status), (status, status), (first, again))
        self.assertEqual(first.body, again.body)
        self.assertNotIn("idempotency-replayed", first.headers)
        self.assertEqual(again.headers["idempotency-replayed"], "true")
        return first.json()

    def test_each_way_to_create(self):
        self.check_twice(self.execs, {"shell": EFFECT}, 201)
        doc = self.check_twice(self.execs + "?wait=30s", {"shell": EFFECT + "; echo out", "output": "inline"}, 200)
        self.assertEqual(doc["stdout"]["text"], "out\n")
        wait_until(lambda: self.effects() == 2, 20, "both commands")
        doc = self.check_twice("/v1/run?wait=30s", {"exec": {"shell": "cat /proc/sys/kernel/random/uuid", "output": "inline"}}, 200)
        self.assertEqual(len(doc["stdout"]["text"]), 37)
        self.check_twice("/v1/sandboxes/box/sessions", {"shell": "cat; " + EFFECT, "payload": {"a": 1}}, 201)
        wait_until(lambda: self.effects() == 3, 20, "the session")
        self.check_twice("/v1/sandboxes/box/files/mkdir", {"path": "/home/agent/folder"}, 200)
        self.shell("box", "echo one > /home/agent/edited")
        edit = {"path": "/home/agent/edited", "edits": [{"old": "one", "new": "one one", "count": 1}]}
        self.check_twice("/v1/sandboxes/box/files/edit", edit, 200)
        self.assertEqual(self.shell("box", "cat /home/agent/edited"), "one one\n")
        self.check_twice("/v1/sandboxes/box/files/copy", {"path": "/home/agent/edited", "to": "/home/agent/second"}, 200)
        self.check_twice("/v1/sandboxes/box/files/move", {"path": "/home/agent/second", "to": "/home/agent/third"}, 200)
        self.check_twice("/v1/sandboxes/box/files/remove", {"path": "/home/agent/third"}, 200)

    def test_without_a_key_it_runs_again(self):
        for _ in range(2):
            self.root.http("POST", self.execs + "?wait=30s", {"shell": EFFECT})
        self.assertEqual(self.effects(), 2)

    def test_curl(self):
        def curl(body, key="job-7"):
            url = f"http://localhost{self.execs}?wait=30s"
            argv = ["curl", "-sS", "-w", "\n%{http_code}", "--max-time", "60", "--unix-socket", str(self.root.path / "run" / SOCKET),
                    "-H", f"Idempotency-Key: {key}", "--json", body, url]
            text, _, status = subprocess.run(argv, capture_output=True, check=True, text=True).stdout.rpartition("\n")
            return int(status), json.loads(text)

        first = curl(json.dumps({"shell": EFFECT}))
        self.assertEqual(curl(json.dumps({"shell": EFFECT})), first)
        self.assertEqual((first[0], self.effects()), (200, 1))
        status, doc = curl(json.dumps({"shell": "true"}))
        self.assertEqual((status, doc["error"]["code"], doc["error"]["details"]["header"]), (409, "conflict", "Idempotency-Key"))
        self.assertEqual(curl("{}", "k y")[0], 400)

    def test_over_a_restart(self):
        first = self.post(self.execs + "?wait=30s", {"shell": EFFECT + "; date +%N", "output": "inline"}, "k")
        run = self.post("/v1/run?wait=30s", {"exec": {"shell": "date +%N", "output": "inline"}}, "r")
        self.root.kill_daemon()
        self.root.start()
        again = self.post(self.execs + "?wait=30s", {"shell": EFFECT + "; date +%N", "output": "inline"}, "k")
        self.assertEqual((again.status, again.body), (first.status, first.body))
        again = self.post("/v1/run?wait=30s", {"exec": {"shell": "date +%N", "output": "inline"}}, "r")
        self.assertEqual((again.status, again.body), (run.status, run.body))
        self.assertEqual(self.effects(), 1)


class TestOtherRequest(IdempotencyCase):
    def test_a_key_belongs_to_one_request(self):
        self.post(self.execs + "?wait=30s", {"shell": EFFECT}, "k")
        for target, body in ((self.execs + "?wait=30s", {"shell": "true"}), (self.execs + "?wait=31s", {"shell": EFFECT}),
                             (self.execs, {"shell": EFFECT}), ("/v1/run?wait=30s", {"exec": {"shell": EFFECT}}),
                             (self.execs + "?wait=30s", json.dumps({"shell": EFFECT}).encode() + b" ")):
            reply = self.post(target, body, "k")
            self.assert_refused(reply, 409, "conflict", "another request", "new key")
            self.assertEqual(reply.json()["error"]["details"]["header"], "Idempotency-Key")
        self.assertEqual(self.effects(), 1)

    def test_bad_keys(self):
        for key in ("", "a b", "x" * 129, "sch\xf6n", "a\tb"):
            reply = self.root.http("POST", self.execs, {"shell": EFFECT}, {"Idempotency-Key": key})
            self.assert_refused(reply, 400, "invalid", "a key has")
        twice = (f"POST {self.execs} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nIdempotency-Key: a\r\nIdempotency-Key: b\r\n"
                 "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}").encode()
        self.assertIn(b"given twice", self.root.raw(twice))
        self.assertEqual(self.post(self.execs + "?wait=30s", {"shell": EFFECT}, "!~" * 64).status, 200)
        self.assertEqual(self.effects(), 1)
        self.assertEqual(list(self.keys()), ["!~" * 64])

    def test_routes_without_keys(self):
        for target in (self.execs + "/last/kill", "/v1/sandboxes/box/stop", "/v1/images/prune", "/v1/doctor"):
            self.assert_refused(self.post(target, {}, "k"), 501, "unsupported", "Leave the header out")
        reply = self.post("/v1/images?name=x", b"x", "k", **{"Content-Type": "application/x-tar"})
        self.assert_refused(reply, 501, "unsupported", "Idempotency-Key")
        reply = self.post(self.execs, {"argv": ["true"]}, "k", Connection="Upgrade", Upgrade="ripcord-exec/1")
        self.assert_refused(reply, 501, "unsupported", "upgrade")
        # These have their effect once by themselves.
        self.assertEqual(self.root.http("PUT", "/v1/sandboxes/box", {}, {"Idempotency-Key": "k"}).status, 200)
        self.assertEqual(self.root.http("GET", "/v1/sandboxes", None, {"Idempotency-Key": "k"}).status, 200)
        self.assertEqual(self.keys(), {})


class TestFailures(IdempotencyCase):
    def test_what_failed_may_be_repeated(self):
        """Nothing was made, so the key is free: also for a corrected request."""
        self.assertEqual(self.post(self.execs, {"argv": 3}, "k").status, 400)
        self.assertEqual(self.post("/v1/sandboxes/nope/execs", {"shell": "true"}, "k").status, 404)
        self.assertEqual(self.post("/v1/sandboxes/box/files/move", {"path": "/nope", "to": "/tmp/x"}, "k").status, 404)
        self.assertEqual(self.post("/v1/run?wait=30s", {"spec": {"image": "no/such:image"}, "exec": {"shell": "true"}}, "k").status, 404)
        self.assertEqual(self.keys(), {})
        self.assertEqual(self.post(self.execs + "?wait=30s", {"shell": EFFECT}, "k").status, 200)

    def test_a_start_that_failed(self):
        """Streams have sent no status yet when the sandbox of a run cannot be created."""
        for accept in ("text/event-stream", "application/x-ndjson", "*/*"):
            reply = self.post("/v1/run", {"spec": {"image": "no/such:image"}, "exec": {"shell": "true"}}, "k", Accept=accept)
            self.assertEqual(reply.status, 404, reply)
            self.assertEqual(self.keys(), {})

    def test_a_command_that_failed_has_an_answer(self):
        first, again = (self.post(self.execs + "?wait=30s", {"shell": EFFECT + "; exit 9"}, "k") for _ in range(2))
        self.assertEqual((first.status, first.json()["exec"]["end"]["exit_code"]), (200, 9))
        self.assertEqual((again.body, self.effects()), (first.body, 1))


class TestUnderWay(IdempotencyCase):
    def test_many_at_once(self):
        """All of them follow one command."""
        body = {"shell": EFFECT + "; sleep 0.5; echo end", "output": "inline"}
        replies = []
        threads = [threading.Thread(target=lambda: replies.append(self.post(self.execs + "?wait=30s", body, "k"))) for _ in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual({r.status for r in replies}, {200}, replies)
        self.assertEqual(len({r.body for r in replies}), 1)
        self.assertEqual(self.effects(), 1)
        self.assertEqual(self.post(self.execs + "?wait=30s", body, "k").body, replies[0].body)

    def test_a_retry_in_another_form_follows_the_same_command(self):
        body = {"shell": EFFECT + "; echo a; sleep 0.6; echo b"}
        with closing(self.leave(self.execs, body, "k", {"Accept": "text/event-stream"}.items())):
            wait_until(lambda: self.effects() == 1, 20, "the command to run")
        for accept, mark in (("text/event-stream", b"data: "), ("application/x-ndjson", b"{")):
            reply = self.post(self.execs, body, "k", Accept=accept)
            self.assertEqual((reply.status, reply.body.count(b'"event":"end"')), (200, 1), reply)
            self.assertIn(mark, reply.body)
            self.assertEqual((reply.body.count(rb"a\n"), reply.body.count(rb"b\n")), (1, 1), reply.body)
        self.assertEqual(self.post(self.execs, body, "k").status, 201)
        self.assertEqual(self.effects(), 1)

    def test_wait_that_passes(self):
        body = {"shell": EFFECT + "; sleep 0.7; echo end", "output": "inline"}
        first = self.post(self.execs + "?wait=100ms", body, "k")
        self.assertEqual(first.status, 202)

        def done():
            again = self.post(self.execs + "?wait=100ms", body, "k")
            self.assertEqual(again.json()["exec"]["id"], first.json()["exec"]["id"])
            return again.status == 200 and again
        wait_until(done, 20, "the end")
        reply = done()
        self.assertEqual(reply.json()["stdout"]["text"], "end\n")
        self.assertEqual(self.effects(), 1)

    def test_a_run_whose_client_has_gone(self):
        """Without a key it would be ended. The retry gets the whole answer, also after the end."""
        body = {"exec": {"shell": "echo begin; sleep 0.5; echo end", "output": "inline"}}
        with closing(self.leave("/v1/run?wait=30s", body, "k")):
            wait_until(lambda: self.root.get("/v1/execs")["execs"], 20, "the command to run")
        wait_until(lambda: self.keys()["k"] == 200, 20, "the answer to be kept")
        reply = self.post("/v1/run?wait=30s", body, "k")
        self.assertEqual((reply.status, reply.json()["stdout"]["text"]), (200, "begin\nend\n"))
        wait_until(lambda: len(self.root.sandboxes()) == 1, 20, "its sandbox to go")

    def test_a_streamed_run_stays_for_a_retry(self):
        body = {"exec": {"shell": "echo begin; sleep 0.5; echo end"}}
        with closing(self.leave("/v1/run", body, "k", {"Accept": "application/x-ndjson"}.items())):
            wait_until(lambda: self.root.get("/v1/execs")["execs"], 20, "the command to run")
        wait_until(lambda: not self.root.get("/v1/execs")["execs"], 20, "its end")
        reply = self.post("/v1/run", body, "k", Accept="application/x-ndjson")
        self.assertEqual([json.loads(line)["event"] for line in reply.body.splitlines()][-1], "end")
        self.assertIn(b'begin', reply.body)
        name = next(s["name"] for s in self.root.sandboxes() if s["name"] != "box")
        self.root.ok("rm", "-f", name)
        self.assert_refused(self.post("/v1/run", body, "k", Accept="application/x-ndjson"), 409, "conflict", "gone", "new key")

    def test_a_daemon_that_stops_does_not_wait_for_a_client_that_has_gone(self):
        """The grace of open requests is 5 s; a busy machine gets three tries."""
        for n in range(3):
            with closing(self.leave(self.execs + "?wait=1h", {"argv": ["sleep", "1000"]}, f"k{n}")):
                wait_until(lambda n=n: len(self.root.get("/v1/execs")["execs"]) == n + 1, 20, "the command to run")
            since = time.monotonic()
            self.root.kill_daemon(signal.SIGTERM)
            took = time.monotonic() - since
            self.root.start()
            self.assertEqual(len(self.root.get("/v1/execs")["execs"]), n + 1)
            if took < 4:
                return
        self.fail(f"the daemon took {took} s to stop")

    def test_on_disconnect_kill_holds_with_a_key(self):
        body = {"exec": {"argv": ["sleep", "1000"], "on_disconnect": "kill"}}
        with closing(self.leave("/v1/run?wait=1h", body, "k")):
            wait_until(lambda: self.root.get("/v1/execs")["execs"], 20, "the command to run")
        wait_until(lambda: len(self.root.sandboxes()) == 1, 20, "the sandbox of the run to go")
        self.assert_refused(self.post("/v1/run?wait=1h", body, "k"), 409, "conflict", "gone")


class TestKilled(IdempotencyCase):
    def test_the_daemon_is_killed_while_the_command_runs(self):
        body = {"shell": EFFECT + "; sleep 2; echo end", "output": "inline"}
        with closing(self.leave(self.execs + "?wait=30s", body, "k")):
            wait_until(lambda: self.effects() == 1, 20, "the command to run")
            self.root.kill_daemon()
        self.root.start()
        reply = self.post(self.execs + "?wait=30s", body, "k")
        self.assertEqual((reply.status, reply.json()["stdout"]["text"]), (200, "end\n"), reply)
        self.assertEqual(self.effects(), 1)

    def test_a_run_is_killed_with_the_daemon(self):
        """The next daemon removes its sandbox. The command has run once, so it does not run again."""
        body = {"exec": {"argv": ["sleep", "1000"]}}
        with closing(self.leave("/v1/run?wait=1h", body, "k")):
            wait_until(lambda: self.root.get("/v1/execs")["execs"], 20, "the command to run")
            self.root.kill_daemon()
        self.root.start()
        wait_until(lambda: len(self.root.sandboxes()) == 1, 30, "the sandbox of the run to go")
        self.assert_refused(self.post("/v1/run?wait=1h", body, "k"), 409, "conflict", "gone", "new key")

    @full_run_only
    def test_killed_at_any_moment(self):
        """The same request goes on until it has its answer, whatever happens to the daemon. Each key has one effect, or none and
        an end that says why."""
        for n in range(12):
            key, line = f"any-{n}", f"any-{n}"
            body = {"shell": f"echo {line} >> /home/agent/effects"}
            with closing(self.leave(self.execs + "?wait=30s", body, key)):
                time.sleep(n * 0.002)
                self.root.kill_daemon()
            self.root.start()
            reply = self.post(self.execs + "?wait=30s", body, key)
            found = self.shell("box", "cat /home/agent/effects 2>/dev/null || true").splitlines().count(line)
            cause = reply.json()["exec"]["end"]["cause"] if reply.status == 200 else reply.code
            self.assertEqual((found, cause), (0, "engine_lost") if cause == "engine_lost" else (1, "exited"), (n, reply))

    def test_a_key_that_was_stored_before_anything_began(self):
        """As a daemon leaves it that was killed right after it had stored the key."""
        self.post(self.execs + "?wait=30s", {"shell": "true"}, "k")
        self.post("/v1/sandboxes/box/files/mkdir", {"path": "/home/agent/made"}, "f")
        with self.db() as db:
            db.execute("UPDATE request_keys SET sandbox = NULL, status = 0, body = NULL, bytes = 0, exec = printf('%016x', rowid)")
        reply = self.post(self.execs + "?wait=30s", {"shell": "true"}, "k")
        self.assertEqual((reply.status, reply.json()["exec"]["id"]), (200, "0000000000000001"), reply)
        # Nobody knows whether the folder was made.
        reply = self.post("/v1/sandboxes/box/files/mkdir", {"path": "/home/agent/made"}, "f")
        self.assert_refused(reply, 409, "conflict", "daemon ended", "new key")


class TestLimits(IdempotencyCase):
    def test_a_day(self):
        self.post(self.execs + "?wait=30s", {"shell": EFFECT}, "k")
        for age, effects in ((KEPT_S - 60, 1), (KEPT_S + 60, 2), (KEPT_S + 60, 3)):
            with self.db() as db:
                db.execute("UPDATE request_keys SET at = ?", (int((time.time() - age) * 1e6),))
            self.assertEqual(self.post(self.execs + "?wait=30s", {"shell": EFFECT}, "k").status, 200)
            self.assertEqual(self.effects(), effects)
        # And an old key may be used for another request.
        with self.db() as db:
            db.execute("UPDATE request_keys SET at = 1")
        self.assertEqual(self.post(self.execs + "?wait=30s", {"shell": "true"}, "k").status, 200)

    def fill(self, n, body):
        with self.db() as db:
            db.execute("BEGIN")
            db.executemany("INSERT INTO request_keys(key, request, at, exec, status, bytes, body) VALUES(?, 'r', ?, 'e', 200, ?, ?)",
                           ((f"old-{i}", int(time.time() * 1e6) - 3600_000_000 + i, len(body), body) for i in range(n)))
            db.execute("COMMIT")

    def test_the_oldest_go(self):
        self.root.kill_daemon()
        self.fill(10000, "{}")
        self.root.start()
        self.post(self.execs + "?wait=30s", {"shell": "true"}, "k")
        keys = self.keys()
        self.assertLessEqual(len(keys), 10000)
        self.assertIn("k", keys)
        self.assertIn("old-9999", keys)
        self.assertNotIn("old-0", keys)
        # Answers count by their bytes too.
        self.root.kill_daemon()
        with self.db() as db:
            db.execute("DELETE FROM request_keys")
        self.fill(64, " " * (1 << 20))
        self.root.start()
        self.post(self.execs + "?wait=30s", {"shell": "true"}, "k")
        keys = self.keys()
        self.assertEqual(keys["k"], 200)
        self.assertNotIn("old-0", keys)

    def test_an_answer_that_is_too_long_is_read_again(self):
        body = {"shell": EFFECT + "; head -c 1500000 /dev/zero | tr '\\0' x", "output": "inline", "output_max": 2 << 20}
        first, again = (self.post(self.execs + "?wait=30s", body, "k") for _ in range(2))
        self.assertEqual(len(first.json()["stdout"]["text"]), 1500000)
        self.assertEqual(again.json(), first.json())
        self.assertEqual((self.effects(), self.keys()), (1, {"k": 0}))
        body = {"exec": {key: value for key, value in body.items()}}
        self.assertEqual(self.post("/v1/run?wait=30s", body, "r").status, 200)
        self.assert_refused(self.post("/v1/run?wait=30s", body, "r"), 409, "conflict", "gone")

    def test_the_secrets_of_a_request_are_not_stored(self):
        secret = f"sek-{uuid.uuid4().hex}"
        self.post(self.execs + "?wait=30s", {"shell": "true", "secrets": {"A": secret}, "env": {"B": secret}, "input": secret}, "k")
        for path in (self.root.path / "state").glob("ripcord.db*"):
            self.assertNotIn(secret.encode(), path.read_bytes())
