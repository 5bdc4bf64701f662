"""Commands over plain HTTP: wait for the end, events, input. A client needs no framing of ours."""
import base64
import hashlib
import json
import threading
import time

from ripcord_test import Connection, TestCase, wait_until

STREAM = "text/event-stream"
LINES = "application/x-ndjson"


def events(reply):
    return [json.loads(line) for line in reply.body.splitlines()]


def sse(reply):
    """[(id, event)] as a browser reads them."""
    found = []
    for block in reply.body.decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
        if "data" in fields:
            found.append((fields["id"], json.loads(fields["data"])))
    return found


def streams(found):
    out = {"stdout": b"", "stderr": b""}
    for e in found:
        if e["event"] in out:
            data = e["text"].encode() if "text" in e else base64.b64decode(e["base64"])
            assert e["offset"] == len(out[e["event"]]), e
            out[e["event"]] += data
    return out["stdout"], out["stderr"]


class ExecHttpCase(TestCase):
    def setUp(self):
        super().setUp()
        self.root.start()

    def run_http(self, exec_spec, query="?wait=30s", **kwargs):
        return self.root.http("POST", f"/v1/run{query}", {"exec": exec_spec}, **kwargs)

    def up(self, name="box"):
        self.root.ok("up", name)
        return f"/v1/sandboxes/{name}/execs"


class TestWait(ExecHttpCase):
    def test_run_answers_with_its_end_and_output(self):
        reply = self.run_http({"shell": "cat; echo err >&2; exit 3", "input": "hällo\n", "output": "inline"})
        self.assertEqual(reply.status, 200, reply)
        doc = reply.json()
        self.assertEqual(doc["exec"]["end"]["exit_code"], 3)
        self.assertEqual(doc["stdout"], {"bytes": 7, "text": "hällo\n"})
        self.assertEqual(doc["stderr"], {"bytes": 4, "text": "err\n"})
        wait_until(lambda: not self.root.sandboxes(), 10, "the sandbox to be removed")

    def test_exec_answers_with_its_end(self):
        reply = self.root.http("POST", self.up() + "?wait=30s", {"argv": ["sh", "-c", "exit 7"]})
        self.assertEqual((reply.status, reply.json()["exec"]["end"]["exit_code"]), (200, 7))
        self.assertNotIn("stdout", reply.json())

    def test_merged_output_has_the_order_of_the_writes(self):
        script = "for i in $(seq 500); do echo out$i; echo err$i >&2; done"
        wanted = "".join(f"out{i}\nerr{i}\n" for i in range(1, 501))
        path = self.up()
        doc = self.root.http("POST", path + "?wait=30s", {"shell": script, "merged": True, "output": "inline"}).json()
        self.assertEqual(doc["stdout"], {"bytes": len(wanted), "text": wanted})
        self.assertEqual(doc["stderr"], {"bytes": 0, "text": ""})
        reply = self.run_http({"shell": script, "merged": True}, "", headers={"Accept": LINES})
        self.assertEqual(streams(events(reply)), (wanted.encode(), b""))
        # A terminal has one output anyway. An agent's events must be apart from its messages.
        doc = self.root.http("POST", path + "?wait=30s", {"shell": "echo a; echo b >&2", "tty": True, "merged": True, "output": "inline"}).json()
        self.assertEqual(doc["stdout"]["text"], "a\r\nb\r\n")
        refused = self.root.http("POST", "/v1/sandboxes/box/sessions", {"argv": ["cat"], "payload": {}, "merged": True})
        self.assert_refused(refused, 400, "invalid", "merged")

    def test_bytes_that_are_not_text(self):
        data = bytes(range(256))
        reply = self.run_http({"argv": ["cat"], "input_base64": base64.b64encode(data).decode(), "output": "inline"})
        self.assertEqual(base64.b64decode(reply.json()["stdout"]["base64"]), data)

    def test_long_output_loses_its_middle(self):
        path = self.up()
        reply = self.root.http("POST", path + "?wait=30s",
                               {"shell": "seq 1000; yes ä | head -c 3001", "output": "inline", "output_max": 1001})
        out = reply.json()["stdout"]
        exec_id = reply.json()["exec"]["id"]
        whole = self.root.http("GET", f"{path}/{exec_id}/stdout").body
        self.assertEqual(out["bytes"], len(whole))
        head, tail = out["text"].encode(), out["tail"]["text"].encode() if "text" in out["tail"] else \
            base64.b64decode(out["tail"]["base64"])
        self.assertEqual(whole[:len(head)], head)
        self.assertEqual(whole[out["tail"]["offset"]:], tail)
        self.assertLessEqual(len(head) + len(tail), 1001)

    def test_wait_that_passes_and_the_rest_of_a_run(self):
        reply = self.run_http({"shell": "echo before; sleep 1; echo after", "output": "inline"}, "?wait=100ms")
        self.assertEqual(reply.status, 202, reply)
        x = reply.json()["exec"]
        self.assertEqual(x["state"], "running")
        path = f"/v1/sandboxes/{x['sandbox']}/execs/{x['id']}"
        wait_until(lambda: self.root.get(path)["exec"]["state"] == "ended", 20, "the end")
        reply = self.root.http("GET", path + "?wait=20s&output=inline")
        self.assertEqual(reply.json()["stdout"]["text"], "before\nafter\n")

    def test_run_without_wait_goes_on(self):
        reply = self.run_http({"argv": ["sleep", "0.3"]}, "")
        self.assertEqual((reply.status, reply.json()["exec"]["state"]), (202, "running"))

    def test_get_waits_too(self):
        path = self.up()
        x = self.root.http("POST", path, {"shell": "sleep 0.5; echo done"}).json()["exec"]
        self.assertEqual(self.root.http("GET", f"{path}/{x['id']}?wait=50ms").status, 202)
        reply = self.root.http("GET", f"{path}/{x['id']}?wait=30s&output=inline")
        self.assertEqual((reply.status, reply.json()["stdout"]["text"]), (200, "done\n"))

    def test_a_client_that_goes_ends_its_run_only(self):
        path = self.up()
        for target, body in (("/v1/run?wait=1h", {"exec": {"argv": ["sleep", "1000"]}}),
                             (path + "?wait=1h", {"argv": ["sleep", "1000"]})):
            c = Connection(self.root.path / "run" / "ripcord.sock")
            c.request("POST", target, json.dumps(body), {"Content-Type": "application/json"})
            wait_until(lambda: self.root.get("/v1/execs")["execs"], 20, "the command to run")
            if "run" in target:
                wait_until(lambda: len(self.root.sandboxes()) == 2, 20, "its sandbox")
            c.close()
            if "run" in target:
                wait_until(lambda: len(self.root.sandboxes()) == 1, 20, "the sandbox of the run to go")
        time.sleep(0.3)
        self.assertEqual(self.root.exec_info("box")["state"], "running")

    def test_failures_have_a_status(self):
        self.assert_refused(self.root.http("POST", "/v1/run?wait=1s", {"spec": {"image": "nope"}, "exec": {"argv": ["x"]}}),
                            404, "not_found", "nope")
        reply = self.run_http({"argv": ["no-such-command"]})
        self.assertEqual((reply.status, reply.json()["exec"]["end"]["cause"]), (200, "start_failed"))

    def test_bad_requests_change_nothing(self):
        path = self.up()
        for body, query, word in (
                ({}, "", "argv"), ({"argv": ["x"], "shell": "x"}, "", "only one"),
                ({"argv": ["x"], "input": "a", "input_base64": "YQ=="}, "", "only one"),
                ({"argv": ["x"], "input": "a", "stdin": True}, "", "input"), ({"argv": ["x"], "input_base64": "%"}, "", "base64"),
                ({"argv": ["x"], "output": "inline"}, "", "wait"), ({"argv": ["x"], "output": "all"}, "?wait=1s", "inline"),
                ({"argv": ["x"], "output": "inline", "output_max": 1 << 40}, "?wait=1s", "output_max"),
                ({"argv": ["x"]}, "?wait=soon", "wait"), ({"argv": ["x"]}, "?wait=2h", "wait")):
            self.assert_refused(self.root.http("POST", path + query, body), 400, "invalid", word)
        self.assert_refused(self.root.http("POST", path, {"argv": ["x"], "stats": True}), 400, "invalid", "stats", "wait")
        reply = self.root.http("POST", path + "?wait=1s", {"argv": ["x"], "stats": True}, {"Idempotency-Key": "k"})
        self.assert_refused(reply, 501, "unsupported", "stats", "key")
        self.assertEqual(self.root.get(path)["execs"], [])


class TestEvents(ExecHttpCase):
    SCRIPT = "echo out; sleep 0.2; echo err >&2; printf '\\303'; sleep 0.2; printf '\\244\\377\\n'; exit 9"

    def test_lines(self):
        reply = self.root.http("POST", self.up(), {"shell": self.SCRIPT}, headers={"Accept": LINES})
        found = events(reply)
        self.assertEqual((found[0]["event"], found[-1]["event"]), ("started", "end"))
        self.assertEqual(found[-1]["end"]["exit_code"], 9)
        self.assertEqual(streams(found), (b"out\n\xc3\xa4\xff\n", b"err\n"))

    def test_server_sent_events_of_a_run(self):
        reply = self.run_http({"shell": "printf 'a\\303'; sleep 0.3; printf '\\244b'"}, "", headers={"Accept": STREAM})
        found = sse(reply)
        texts = [(i, e["text"]) for i, e in found if e["event"] == "stdout"]
        self.assertEqual(texts, [("1.0", "a"), ("4.0", "äb")])  # a character is never cut
        wait_until(lambda: not self.root.sandboxes(), 10, "the sandbox to be removed")

    def test_resumes_after_any_event(self):
        path = self.up()
        found = sse(self.root.http("POST", path, {"shell": self.SCRIPT}, headers={"Accept": STREAM}))
        whole = streams([e for _, e in found])
        for last, _ in found:
            rest = sse(self.root.http("GET", path + "/last/stream", headers={"Accept": STREAM, "Last-Event-ID": last}))
            out, err = (int(n) for n in last.split("."))
            shifted = [{**e, "offset": e["offset"] - {"stdout": out, "stderr": err}[e["event"]]}
                       for _, e in rest if "offset" in e]
            self.assertEqual(streams(shifted), (whole[0][out:], whole[1][err:]), last)
            self.assertEqual(rest[-1][1]["event"], "end")
        self.assert_refused(self.root.http("GET", path + "/last/stream", headers={"Last-Event-ID": "1"}), 400, "invalid", "Last-Event-ID")

    def test_large_output_is_exact(self):
        reply = self.run_http({"shell": "seq 300000"}, "", headers={"Accept": LINES})
        self.assertEqual(streams(events(reply))[0], "".join(f"{i}\n" for i in range(1, 300001)).encode())

    def test_a_start_that_fails_has_a_status(self):
        reply = self.root.http("POST", "/v1/run", {"spec": {"image": "nope"}, "exec": {"argv": ["x"]}}, headers={"Accept": LINES})
        self.assert_refused(reply, 404, "not_found")


class TestInput(ExecHttpCase):
    def start(self, script):
        path = self.up()
        x = self.root.http("POST", path, {"shell": script, "stdin": True}).json()["exec"]
        return f"{path}/{x['id']}"

    def send(self, path, data, offset=None):
        query = "" if offset is None else f"?offset={offset}"
        return self.root.http("POST", f"{path}/stdin{query}", data, headers={"Content-Type": "application/octet-stream"})

    def test_pieces_in_order_and_twice(self):
        path = self.start("cat | md5sum; echo end")
        data = bytes(i * 7 % 251 for i in range(3_000_000))
        sent = 0
        for n in (1, 10, 1_000_000, 70_000, 3_000_000):
            piece = data[sent:sent + n]
            for _ in range(2):  # the answer was lost, so the client sends it again
                self.assertEqual(self.send(path, piece, sent).json(), {"offset": sent + len(piece), "closed": False})
            sent += len(piece)
        self.assertEqual(self.send(path, data[-5:], len(data) - 5).json()["offset"], len(data))
        self.assert_refused(self.send(path, b"x", len(data) + 1), 409, "conflict", str(len(data)))
        self.assertEqual(self.root.http("POST", path + "/stdin/close").status, 200)
        doc = self.root.http("GET", path + "?wait=30s&output=inline").json()
        self.assertEqual(doc["stdout"]["text"], f"{hashlib.md5(data).hexdigest()}  -\nend\n")

    def test_a_command_that_does_not_read_holds_the_sender(self):
        path = self.start("sleep 2; wc -c")
        done = []
        t = threading.Thread(target=lambda: done.append(self.send(path, bytes(4_000_000), 0)))
        t.start()
        time.sleep(0.5)
        self.assertEqual(done, [])
        t.join(60)
        self.assertEqual(done[0].json()["offset"], 4_000_000)
        self.root.http("POST", path + "/stdin/close")
        self.assertEqual(self.root.http("GET", path + "?wait=30s&output=inline").json()["stdout"]["text"].strip(), "4000000")

    def test_a_command_that_closes_its_input(self):
        path = self.start("exec <&-; echo closed; sleep 60")
        wait_until(lambda: self.root.http("GET", path + "/stdout").body == b"closed\n", 20, "the command to close it")
        wait_until(lambda: self.send(path, b"x").json()["closed"], 20, "the pipe to break")

    def test_without_stdin_it_is_refused(self):
        path = self.up()
        self.root.http("POST", path, {"argv": ["sleep", "60"]})
        self.assert_refused(self.send(path + "/last", b"x"), 400, "invalid", "stdin")
        self.assert_refused(self.root.http("POST", path + "/last/resize", {"rows": 1, "cols": 1}), 409, "conflict", "terminal")

    def test_resize_of_a_terminal(self):
        path = self.up()
        self.root.http("POST", path, {"shell": "read x; stty size", "tty": True, "rows": 10, "cols": 20})
        self.assertEqual(self.root.http("POST", path + "/last/resize", {"rows": 33, "cols": 44}).status, 200)
        self.send(path + "/last", b"go\n")
        out = self.root.http("GET", path + "/last?wait=30s&output=inline").json()["stdout"]["text"]
        self.assertIn("33 44", out)
        self.assert_refused(self.send(path + "/last", b"x"), 409, "conflict", "has ended")
