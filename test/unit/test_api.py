#!/usr/bin/env python3
"""The API on the fake engine: routes, documents, strictness and the exec wire. TAP on stdout.

    test_api.py PATH-TO-ripcordd-fake [WORD]
"""
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

STDIN, STDIN_EOF, SIGNAL, RESIZE, DETACH = 1, 2, 3, 4, 5
STARTED, STDOUT, STDERR, GAP, END, ERROR = 16, 17, 18, 19, 20, 21


class Daemon:
    def __init__(self, program):
        self.dir = tempfile.TemporaryDirectory(prefix="test-api-")
        self.program, self.process = program, None
        self.start()

    def start(self):
        self.log = b""  # filled by stop()
        ready, child = os.pipe()
        self.process = subprocess.Popen(
            [self.program, "--root", self.dir.name, "--engine", "fake", "--ready-fd", str(child)],
            pass_fds=[child], stderr=subprocess.PIPE)
        os.close(child)
        with os.fdopen(ready, "rb") as f:
            assert f.read() == b"ready\n", self.process.stderr.read()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        _, err = self.process.communicate(timeout=30)
        self.log = err
        assert self.process.returncode == 0, err.decode()
        assert b"Sanitizer" not in err and b"runtime error" not in err, err.decode()

    def connect(self):
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(20)
        s.connect(self.dir.name + "/run/ripcord.sock")
        return s

    def send(self, method, path, body=None, extra=""):
        s = self.connect()
        data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\n{extra}"
        if body is not None:
            if "Content-Type" not in extra:
                head += "Content-Type: application/json\r\n"
            head += f"Content-Length: {len(data)}\r\n"
        s.sendall(head.encode() + b"\r\n" + data)
        return s

    def call(self, method, path, body=None, extra=""):
        """Status and document (or bytes)."""
        with self.send(method, path, body, extra + "Connection: close\r\n") as s:
            head, body = split_reply(read_all(s))
        status = int(head.split()[1])
        if "chunked" in head.lower():
            body = dechunk(body)
        return status, json.loads(body) if "application/json" in head else body

    def upgrade(self, path, body):
        return Wire(self.send("POST", path, body, "Connection: Upgrade\r\nUpgrade: ripcord-exec/1\r\n"))

    def wait(self, path, test):
        end = time.monotonic() + 20
        while time.monotonic() < end:
            doc = self.call("GET", path)[1]
            if test(doc):
                return doc
            time.sleep(0.02)
        raise AssertionError(f"{path} never became right: {doc}")


def read_all(s):
    pieces = []
    while piece := s.recv(1 << 20):
        pieces.append(piece)
    return b"".join(pieces)


def split_reply(data):
    head, _, body = data.partition(b"\r\n\r\n")
    return head.decode(), body


def dechunk(data):
    pieces, at = [], 0
    while at < len(data):
        line = data.index(b"\r\n", at)
        size = int(data[at:line], 16)
        pieces.append(data[line + 2:line + 2 + size])
        at = line + 2 + size + 2
    return b"".join(pieces)


class Wire:
    """An upgraded connection."""

    def __init__(self, s):
        self.s, self.data = s, b""
        while b"\r\n\r\n" not in self.data:
            piece = s.recv(65536)
            assert piece, self.data
            self.data += piece
        head, self.data = split_reply(self.data)
        self.status = int(head.split()[1])
        if self.status != 101:
            self.doc = json.loads(self.data)

    def send(self, kind, data=b""):
        self.s.sendall(struct.pack(">BI", kind, len(data)) + data)

    def frame(self):
        """Type and payload, or None at the end of the connection."""
        while len(self.data) < 5 or len(self.data) < 5 + struct.unpack(">I", self.data[1:5])[0]:
            piece = self.s.recv(1 << 20)
            if not piece:
                assert not self.data, "cut in mid-frame"
                return None
            self.data += piece
        kind, length = struct.unpack(">BI", self.data[:5])
        payload, self.data = self.data[5:5 + length], self.data[5 + length:]
        return kind, payload

    def finish(self):
        """All frames to the end: streams by type, and the last document."""
        out = {STDOUT: bytearray(), STDERR: bytearray()}
        last = None
        while f := self.frame():
            assert last is None, "a frame behind the end"
            if f[0] in out:
                offset = struct.unpack(">Q", f[1][:8])[0]
                assert offset == len(out[f[0]]), "offset"
                out[f[0]] += f[1][8:]
            elif f[0] in (END, ERROR):
                last = f[0], json.loads(f[1])
        self.s.close()
        return bytes(out[STDOUT]), bytes(out[STDERR]), last


def expect(reply, status, code=None, *words):
    assert reply[0] == status, reply
    if code:
        error = reply[1]["error"]
        assert error["code"] == code, reply
        for word in words:
            assert word in error["message"] + error.get("hint", ""), (word, reply)
    return reply[1]


# ---- tests ----

def test_system_documents(d):
    assert expect(d.call("GET", "/healthz"), 200) == {"status": "ok"}
    assert expect(d.call("GET", "/readyz"), 200) == {"status": "ready"}
    version = expect(d.call("GET", "/v1/version"), 200)
    assert version["api"] == 1 and version["pid"] == d.process.pid, version
    assert version["state_dir"] == d.dir.name + "/state"
    assert expect(d.call("GET", "/v1/engines"), 200)["engines"][0]["name"] == "fake"
    config = expect(d.call("GET", "/v1/config"), 200)["config"]
    assert config["defaults.memory"] == {"value": 4 << 30, "source": "default"}, config


def test_unknown_paths_methods_and_types(d):
    expect(d.call("GET", "/v1/nothing"), 404, "not_found", "no such route: /v1/nothing")
    expect(d.call("GET", "/v1/sandboxes/"), 404, "not_found")
    expect(d.call("GET", "/v1/sandboxes/a/b/c"), 404, "not_found")
    expect(d.call("POST", "/v1/sandboxes/a"), 405, "invalid", "method POST is not supported")
    expect(d.call("PUT", "/v1/sandboxes/a", b"{}", "Content-Type: text/plain\r\n"), 415, "invalid", "application/json")
    expect(d.call("GET", "/v1/sandboxes", {}), 400, "invalid", "body is not allowed")
    expect(d.call("PUT", "/v1/sandboxes/a", b"[]"), 400, "invalid", "object")
    expect(d.call("PUT", "/v1/sandboxes/a", b"{"), 400, "invalid", "JSON")
    expect(d.call("PUT", "/v1/sandboxes/a", b'{"user":"a","user":"b"}'), 400, "invalid", "user")
    expect(d.call("PUT", "/v1/sandboxes/a", {"memroy": 1}), 400, "invalid", "memroy")
    expect(d.call("PUT", "/v1/sandboxes/A", {}), 400, "invalid", "'A'")
    expect(d.call("DELETE", "/v1/sandboxes/a?force=perhaps"), 400, "invalid", "force")
    assert expect(d.call("GET", "/v1/sandboxes"), 200) == {"sandboxes": [], "next": None}


def head_and_document(d, method, path, body=None):
    """The header lines, and the status with the document."""
    with d.send(method, path, body, "Connection: close\r\n") as s:
        head, data = split_reply(read_all(s))
    fields = [f for f in head.split("\r\n")[1:] if not f.lower().startswith(("date:", "content-length:", "x-request-id:"))]
    return fields, (int(head.split()[1]), json.loads(data))


def head_of(d, method, path, extra=""):
    """{name in lower case: value}, with the status line at ""; and the body."""
    with d.send(method, path, None, extra + "Connection: close\r\n") as s:
        head, data = split_reply(read_all(s))
    lines = head.split("\r\n")
    return {"": lines[0], **{n.lower(): v for n, _, v in (f.partition(": ") for f in lines[1:])}}, data


def test_every_answer_names_its_request(d):
    ids = [head_of(d, "GET", path)[0]["x-request-id"] for path in ("/healthz", "/nope", "/v1/events", "/v1/sandboxes/A")]
    assert len(set(ids)) == 4, ids
    assert head_of(d, "GET", "/healthz", "X-Request-Id: mine_1.2-3\r\n")[0]["x-request-id"] == "mine_1.2-3"
    for bad in ("a b", "a;b", "x" * 65, ""):
        assert head_of(d, "GET", "/healthz", f"X-Request-Id: {bad}\r\n")[0]["x-request-id"] not in (bad, "mine_1.2-3")


def test_head_and_allow(d):
    get, body = head_of(d, "GET", "/v1/sandboxes")
    head, none = head_of(d, "HEAD", "/v1/sandboxes")
    assert (none, head["content-length"]) == (b"", get["content-length"]) and body, (head, get)
    for method, path, allowed in (("PUT", "/v1/sandboxes", "GET, HEAD"), ("HEAD", "/v1/events", "GET"),
                                  ("POST", "/v1/sandboxes/a", "PUT, GET, HEAD, PATCH, DELETE")):
        reply = head_of(d, method, path)[0]
        assert " 405 " in reply[""] and reply["allow"] == allowed, reply


def test_unknown_query_parameters(d):
    expect(d.call("GET", "/v1/events?folow=1"), 400, "invalid", "folow")
    expect(d.call("DELETE", "/v1/sandboxes/nobody?force=1&forced"), 400, "invalid", "forced")
    expect(d.call("GET", "/v1/version?%6eame"), 400, "invalid", "'name'")
    expect(d.call("GET", "/v1/events?since=0&"), 200)
    # the route with the longest list
    expect(d.call("POST", "/v1/images/build?nope=1", b"x", "Content-Type: application/x-tar\r\n"), 400, "invalid", "nope")


def test_old_paths_answer_like_the_new_ones(d):
    """Every answer is compared, errors too, so it does not matter whether a package cache runs."""
    for method, path, body in (("GET", "", None), ("GET", "/show", None), ("POST", "/verify", {"x": 1}),
                               ("POST", "/prune", {"kep": 1}), ("GET", "/nothing", None), ("PUT", "/show", None)):
        old, old_reply = head_and_document(d, method, "/v1/caches/registry" + path, body)
        new, new_reply = head_and_document(d, method, "/v1/caches/packages" + path, body)
        added = ["Deprecation: true", f'Link: </v1/caches/packages{path}>; rel="successor-version"']
        assert not set(added) & set(new) and sorted(new + added) == sorted(old), (old, new)
        text = json.dumps(old_reply).replace("/v1/caches/registry", "/v1/caches/packages")
        assert text == json.dumps(new_reply), (old_reply, new_reply)
    expect(d.call("GET", "/v1/caches/registry/show"), 400, "invalid", "'of'")
    expect(d.call("GET", "/v1/caches/registryx"), 404, "not_found", "/v1/caches/registryx")
    d.stop()
    assert d.log.count(b"/v1/caches/registry is deprecated, use /v1/caches/packages") == 1, d.log
    d.start()


def test_old_event_kinds_select_the_new_ones(d):
    assert d.call("GET", "/v1/events?kind=daemon.started")[0] == 200
    for kind in ("registry", "registry.mismatch", "registry"):
        assert d.call("GET", f"/v1/events?kind={kind}") == (200, b""), kind
    d.stop()
    assert d.log.count(b"event kind 'registry' is deprecated, use 'packages'") == 1, d.log
    assert d.log.count(b"event kind") == 1, d.log
    d.start()


def test_a_character_that_is_cut_leaves_the_rest_of_a_message(d):
    """The message quotes 80 bytes of the path, the last of them half a character."""
    message = d.call("GET", "/v1/sandboxes/a/files?path=x" + "%c3%a9" * 60)[1]["error"]["message"]
    assert "x" + "\u00e9" * 39 + "\ufffd" in message, message


def test_doctor_starts_sandboxes_and_passes_their_errors_on(d):
    report = expect(d.call("POST", "/v1/doctor", {"folder": "/etc"}), 200)
    lines = {line["name"]: line for line in report["checks"]}
    assert report["ok"] is True and [line["name"] for line in report["checks"]][:2] == ["daemon", "start"], report
    assert str(d.process.pid) in lines["daemon"]["detail"], lines
    for name in ("start", "kept sandbox", "pause", "memory limit", "cpu limit", "pids limit"):
        assert (lines[name]["status"], lines[name]["fix"]) == ("ok", None), lines[name]
    assert lines["network open"]["status"] == "warn" and "has no cables" in lines["network open"]["detail"], lines
    assert lines["network open"]["fix"] == "Plug one in.", lines
    assert lines["disk limit"]["status"] == "warn" and lines["disk limit"]["fix"], lines
    assert "not tried here" in lines["mount"]["detail"], lines
    d.wait("/v1/sandboxes", lambda doc: doc["sandboxes"] == [])
    expect(d.call("POST", "/v1/doctor", {"folder": "etc"}), 400, "invalid", "absolute path")
    expect(d.call("POST", "/v1/doctor", {"foldr": "/etc"}), 400, "invalid", "folder")


def test_doctor_tries_nothing_else_when_no_sandbox_starts(d):
    d.stop()
    config = Path(d.dir.name, "ripcord.yaml")
    config.write_text("defaults.network: open\n", encoding="ascii")
    d.start()
    report = expect(d.call("POST", "/v1/doctor", {}), 200)
    d.stop()
    config.unlink()
    d.start()
    start = report["checks"][1]
    assert report["ok"] is False and "kept sandbox" not in [line["name"] for line in report["checks"]], report
    assert (start["name"], start["status"], start["fix"]) == ("start", "fail", "Plug one in."), start
    assert start["detail"] == "engine 'fake' cannot provide network 'open' on this machine: the fake engine has no cables", start


def test_doctor_ends_with_the_daemon(d):
    answers = [d.send("POST", "/v1/doctor", {}, "Connection: close\r\n") for _ in range(8)]
    expect(d.call("POST", "/v1/doctor", {}), 429, "limit", "running already")
    d.stop()
    for s in answers:
        with s:
            assert split_reply(read_all(s))[0].split()[1] in ("200", "502"), "every request gets an answer"
    d.start()


def test_reconcile_runs_by_number(d):
    report = expect(d.call("POST", "/v1/reconcile", {}), 200)["reconcile"]
    assert expect(d.call("GET", "/v1/reconcile"), 200)["reconcile"]["run"] == report["run"], report
    assert expect(d.call("GET", f"/v1/reconcile?run={report['run']}"), 200)["reconcile"]["run"] == report["run"]
    expect(d.call("GET", "/v1/reconcile?run=99"), 404, "not_found", "reconcile run 99: no such run")
    expect(d.call("GET", "/v1/reconcile?run=x"), 400, "invalid", "run")


def test_old_configuration_keys_are_logged(d):
    d.stop()
    path = d.dir.name + "/ripcord.yaml"
    with open(path, "w", encoding="ascii") as f:
        f.write("registry.min_age: 1d\nhub:\n  add_max: 1M\n")
    d.start()
    config = expect(d.call("GET", "/v1/config"), 200)["config"]
    assert config["packages.min_age"] == {"value": "1d", "source": path + ":1"}, config
    assert config["transfer.add_max"] == {"value": 1 << 20, "source": path + ":3"}, config
    assert not [key for key in config if key.startswith(("registry.", "hub."))], config
    d.stop()
    for old, new in ((b"registry.min_age", b"packages.min_age"), (b"hub.add_max", b"transfer.add_max")):
        assert d.log.count(b"key '%s' is deprecated, use '%s'" % (old, new)) == 1, d.log
    os.unlink(path)
    d.start()


def test_files(d):
    """The fake engine's tree is an empty archive; it reads uploads to their end."""
    target, tar = "/v1/sandboxes/f/files?path=/home/agent", "Content-Type: application/x-tar\r\n"
    expect(d.call("GET", target), 404, "not_found", "'f'")
    expect(d.call("PUT", "/v1/sandboxes/f"), 201)
    assert d.call("GET", target) == (200, bytes(1024))
    doc = expect(d.call("PUT", target, bytes(5 << 20), tar), 200)
    assert doc == {"entries": 0, "bytes": 0, "skipped": 0}, doc
    expect(d.call("PUT", target, b"{}", "Content-Type: multipart/form-data\r\n"), 415, "invalid", "x-tar")
    expect(d.call("PUT", target, b"{}"), 501, "unsupported", "fake engine")  # the bytes of one file
    for bad in ("", "?path=", "?path=x", "?path=/%00"):
        expect(d.call("GET", "/v1/sandboxes/f/files" + bad), 400, "invalid", "")
    expect(d.call("POST", "/v1/sandboxes/f/pause"), 200)
    expect(d.call("GET", target), 409, "conflict", "paused")
    expect(d.call("POST", "/v1/sandboxes/f/resume"), 200)
    expect(d.call("POST", "/v1/sandboxes/f/stop"), 200)
    assert d.call("GET", target) == (200, bytes(1024))  # started again
    with d.send("PUT", target, None, tar + "Content-Length: 99999\r\n") as s:
        s.sendall(b"x" * 100)  # and gone
    expect(d.call("DELETE", "/v1/sandboxes/f?force=1"), 200)


def message(kind, *fields):
    """A message of proto/files.h, from (tag, number or bytes)."""
    payload = b""
    for tag, value in fields:
        value = value.to_bytes(8, "big") if isinstance(value, int) else value
        payload += bytes([tag]) + len(value).to_bytes(4, "big") + value
    return bytes([kind]) + len(payload).to_bytes(4, "big") + payload


def test_file_helpers_that_lie(d):
    """The helper works among hostile code: whatever it answers, the client gets an error or exactly a file, and no header of its choice."""
    path, status, length, size, etag, kind, event = 2, 31, 32, 33, 39, 16, 45
    head, item, done = 0x81, 0x82, 0x83
    expect(d.call("PUT", "/v1/sandboxes/l"), 201)

    def lie(method, *answer):
        target = "/v1/sandboxes/l/files"
        data = {"path": "/lie/" + b"".join(answer).hex()}
        if method == "GET":
            return d.call("GET", f"{target}?path={data['path']}", extra="Accept: */*\r\n")
        return d.call("POST", f"{target}/{method}", data)

    good = ((status, 200), (length, 3), (size, 3), (etag, b'"x"'))
    assert lie("GET", message(head, *good), b"abc") == (200, b"abc")
    assert lie("GET", message(head, *good), b"abcdef") == (200, b"abc")
    for answer in (b"", b"\0" * 5, b"\x82\xff\xff\xff\xff", b"HTTP/1.1 200 OK\r\n\r\n", message(done), message(item),
                   message(head, (status, 500)), message(head, (status, 302), *good[1:]), message(head, *good[:3], (etag, b'"x"\r\nX: y')),
                   message(head, (200, b"x")), message(head, (path, b"relative")), message(head, *good)[:-1],
                   message(head, (length, 2**64 - 1)), message(head, (status, 412), *good[1:]) * 2 + b"x" * 3):
        code, doc = lie("GET", answer)
        assert code in (412, 502) and doc["error"]["message"], (answer, code, doc)
    for answer in (b"", message(item, (path, b"/x")), message(done) * 2, message(head, *good) + b"abc", message(item, (kind, 9)),
                   message(item, (event, 99)), b"\x83\0\0", message(item, (path, b"/\0"))):
        code, doc = lie("list", answer)
        assert code == 502 and doc["error"]["message"], (answer[:100], code, doc)
    assert lie("list", message(item, (path, b"/\xff")), message(done)) == (200, {"entries": [{"path_base64": "L/8="}]})
    expect(d.call("DELETE", "/v1/sandboxes/l?force=1"), 200)


def test_ports(d):
    """Port 7 of the fake engine sends one word and closes."""
    tcp = "Connection: Upgrade\r\nUpgrade: tcp\r\n"
    expect(d.call("PUT", "/v1/sandboxes/p"), 201)
    with d.send("GET", "/v1/sandboxes/p/ports/7", None, tcp) as s:
        s.shutdown(socket.SHUT_WR)
        head, body = split_reply(read_all(s))
    assert " 101 " in head and body == b"fake\n", (head, body)
    for port, status in (("8", 404), ("0", 400), ("70000", 400), ("x", 400)):
        with d.send("GET", f"/v1/sandboxes/p/ports/{port}", None, tcp) as s:
            s.shutdown(socket.SHUT_WR)
            assert int(read_all(s).split()[1]) == status, port
    expect(d.call("GET", "/v1/sandboxes/p/ports/7"), 426, "invalid", "Upgrade: tcp")
    expect(d.call("DELETE", "/v1/sandboxes/p?force=1"), 200)


def test_life_of_a_sandbox(d):
    doc = expect(d.call("PUT", "/v1/sandboxes/a", {"limits": {"cpus": 0.5}}), 201)
    assert doc["action"] == "created" and doc["warnings"] == [], doc
    box = doc["sandbox"]
    assert box["state"] == "running" and box["limits"]["cpus"] == 0.5 and len(box["hash"]) == 64, box
    assert expect(d.call("PUT", "/v1/sandboxes/a"), 200)["action"] == "unchanged"
    assert expect(d.call("GET", "/v1/sandboxes/a"), 200)["sandbox"] == box
    assert expect(d.call("GET", "/v1/sandboxes"), 200)["sandboxes"] == [box]
    assert expect(d.call("POST", "/v1/sandboxes/a/pause"), 200)["sandbox"]["state"] == "paused"
    expect(d.call("POST", "/v1/sandboxes/a/execs", {"argv": ["echo"]}), 409, "conflict", "paused")
    assert expect(d.call("POST", "/v1/sandboxes/a/resume"), 200)["sandbox"]["state"] == "running"
    assert expect(d.call("POST", "/v1/sandboxes/a/stop", {"grace_ms": 0}), 200)["sandbox"]["state"] == "stopped"
    expect(d.call("POST", "/v1/sandboxes/a/stop", {"grace": 0}), 400, "invalid", "'grace'")
    assert expect(d.call("PUT", "/v1/sandboxes/a", {}), 200)["action"] == "started"
    assert expect(d.call("PUT", "/v1/sandboxes/a", {"user": "root"}), 200)["action"] == "recreated"
    assert expect(d.call("DELETE", "/v1/sandboxes/a"), 200) == {"removed": True}
    expect(d.call("DELETE", "/v1/sandboxes/a"), 404, "not_found", "'a'")


def test_exec_over_the_wire(d):
    expect(d.call("PUT", "/v1/sandboxes/w", {}), 201)
    w = d.upgrade("/v1/sandboxes/w/execs", {"argv": ["echo", "hello", "wire"]})
    assert w.status == 101
    kind, started = w.frame()
    assert kind == STARTED and json.loads(started)["sandbox"] == "w", started
    out, err, last = w.finish()
    assert (out, err, last[0]) == (b"hello wire\n", b"", END), (out, err, last)
    assert last[1]["cause"] == "exited" and last[1]["stdout_bytes"] == 11, last
    out, err, last = d.upgrade("/v1/sandboxes/w/execs", {"argv": ["err", "x"]}).finish()
    assert (out, err) == (b"", b"x\n")
    assert d.upgrade("/v1/sandboxes/w/execs", {"argv": ["exit", "7"]}).finish()[2][1]["status"] == 7
    last = d.upgrade("/v1/sandboxes/w/execs", {"argv": ["nonsense"]}).finish()[2]
    assert last[0] == END and last[1]["cause"] == "start_failed" and last[1]["status"] == 127, last
    w = d.upgrade("/v1/sandboxes/nobody/execs", {"argv": ["echo"]})
    assert w.status == 404 and w.doc["error"]["code"] == "not_found", w.doc


def test_exec_starts_a_stopped_sandbox(d):
    expect(d.call("PUT", "/v1/sandboxes/s", {}), 201)
    expect(d.call("POST", "/v1/sandboxes/s/stop", {"grace_ms": 0}), 200)
    assert d.upgrade("/v1/sandboxes/s/execs", {"argv": ["echo", "up"]}).finish()[0] == b"up\n"
    assert expect(d.call("GET", "/v1/sandboxes/s"), 200)["sandbox"]["state"] == "running"


def test_stdin(d):
    expect(d.call("PUT", "/v1/sandboxes/i", {}), 201)
    w = d.upgrade("/v1/sandboxes/i/execs", {"argv": ["cat"], "stdin": True})
    data = os.urandom(300_000)
    for at in range(0, len(data), 50_000):
        w.send(STDIN, data[at:at + 50_000])
    w.send(STDIN_EOF)
    assert w.finish()[0] == data
    w = d.upgrade("/v1/sandboxes/i/execs", {"argv": ["sleep", "60000"]})
    w.send(STDIN, b"x")
    frames = []
    while f := w.frame():
        frames.append(f)
    assert frames[-1][0] == ERROR and b"started without it" in frames[-1][1], frames
    expect(d.call("DELETE", "/v1/sandboxes/i?force=1"), 200)


def test_broken_frames_are_refused(d):
    expect(d.call("PUT", "/v1/sandboxes/f", {}), 201)
    for bad in (struct.pack(">BI", 99, 0), struct.pack(">BI", STDIN, 1 << 30), struct.pack(">BI", STARTED, 0),
                struct.pack(">BIB", SIGNAL, 1, 0), struct.pack(">BI", RESIZE, 0)):
        w = d.upgrade("/v1/sandboxes/f/execs", {"argv": ["sleep", "60000"], "on_disconnect": "kill"})
        w.s.sendall(bad)
        frames = []
        while f := w.frame():
            frames.append(f)
        assert frames[-1][0] == ERROR, (bad, frames)
    d.wait("/v1/sandboxes/f", lambda x: x["sandbox"]["execs_live"] == 0)
    expect(d.call("DELETE", "/v1/sandboxes/f"), 200)


NOTHING_LOST = {"stdout": {"offset": 0, "lost": 0, "end": 0}, "stderr": {"offset": 0, "lost": 0, "end": 0}}


def test_detached_exec_and_its_documents(d):
    expect(d.call("PUT", "/v1/sandboxes/d", {}), 201)
    expect(d.call("GET", "/v1/sandboxes/d/execs/last"), 404, "not_found")
    x = expect(d.call("POST", "/v1/sandboxes/d/execs", {"argv": ["sleep", "60000"]}), 201)["exec"]
    assert x["state"] == "running" and x["detached"] and x["end"] is None, x
    path = "/v1/sandboxes/d/execs/" + x["id"]
    got = expect(d.call("GET", path), 200)["exec"]
    assert got == {**x, "output": NOTHING_LOST}, (got, x)
    assert expect(d.call("GET", "/v1/sandboxes/d/execs"), 200)["execs"] == [x]
    expect(d.call("DELETE", "/v1/sandboxes/d"), 409, "conflict", "force")
    expect(d.call("PUT", "/v1/sandboxes/d", {"user": "root"}), 409, "conflict")
    expect(d.call("POST", path + "/signal", {"signal": "NOPE"}), 400, "invalid", "NOPE")
    expect(d.call("POST", path + "/kill", {}), 200)
    x = d.wait(path, lambda x: x["exec"]["state"] == "ended")["exec"]
    assert x["end"]["cause"] == "killed" and x["ended_at"], x
    expect(d.call("POST", path + "/kill", {}), 409, "conflict", "ended")
    expect(d.call("GET", "/v1/sandboxes/d/execs/0000000000000000"), 404, "not_found")


def test_bad_exec_documents(d):
    expect(d.call("PUT", "/v1/sandboxes/b", {}), 201)
    for body, word in [({}, "argv"), ({"argv": []}, "argv"), ({"argv": "ls"}, "argv"), ({"argv": [1]}, "argv[0]"),
                       ({"argv": [""]}, "argv[0]"), ({"argv": ["x"], "workdir": "../y"}, "workdir"),
                       ({"argv": ["x"], "user": "0x0"}, "user"), ({"argv": ["x"], "env": {"A=B": ""}}, "env"),
                       ({"argv": ["x"], "rows": 70000}, "rows"), ({"argv": ["x"], "on_disconnect": "maybe"}, "maybe"),
                       ({"argv": ["x"], "timeout_ms": -1}, "timeout_ms"), ({"argv": ["x"], "tyt": True}, "tty")]:
        expect(d.call("POST", "/v1/sandboxes/b/execs", body), 400, "invalid", word)
    assert expect(d.call("GET", "/v1/sandboxes/b/execs"), 200)["execs"] == []


def test_commands_as_large_as_linux_takes(d):
    """test_large_commands.py runs them for real."""
    expect(d.call("PUT", "/v1/sandboxes/l", {}), 201)
    full = "x" * 131071
    words = [full] * 15  # 1,966,200 of 2,097,152
    out, _, last = d.upgrade("/v1/sandboxes/l/execs", {"argv": ["echo"] + words}).finish()
    assert out == " ".join(words).encode() + b"\n" and last[0] == END, last
    x = expect(d.call("GET", "/v1/sandboxes/l/execs/last"), 200)["exec"]
    assert x["argv_truncated"] == {"words": 16, "bytes": 4 + 15 * 131071} and len(x["argv"]) == 2, len(x["argv"])
    for body, *words_of_error in [({"argv": ["x", full + "x"]}, "argv[1]", "131072", "131071"),
                                  ({"argv": ["x"], "env": {"A": full}}, "'A'", "131073"),
                                  ({"argv": ["echo"] + words + [full]}, "too large", "2097152")]:
        reply = d.call("POST", "/v1/sandboxes/l/execs", body)
        for word in words_of_error:
            expect(reply, 400, "invalid", word)
        expect(d.call("POST", "/v1/sandboxes/l/sessions", {**body, "payload": 1}), 400, "invalid")
        expect(d.call("POST", "/v1/run", {"exec": body}, "Connection: Upgrade\r\nUpgrade: ripcord-exec/1\r\n"), 400, "invalid")
    assert len(expect(d.call("GET", "/v1/sandboxes/l/execs"), 200)["execs"]) == 1
    env = {f"V{i}": full[:131060] for i in range(15)}
    expect(d.call("PUT", "/v1/sandboxes/m", {"env": {**env, "W": full[:131060]}}), 400, "invalid", "field 'env'")
    expect(d.call("PUT", "/v1/sandboxes/m", {"env": {"W": full}}), 400, "invalid", "'W'")
    names = [s["name"] for s in expect(d.call("GET", "/v1/sandboxes"), 200)["sandboxes"]]
    assert "m" not in names and not [n for n in names if n.startswith("run-")], names
    assert expect(d.call("PUT", "/v1/sandboxes/l", {"env": env}), 200)["sandbox"]["spec"]["env"] == env
    listed = {s["name"]: s["spec"] for s in expect(d.call("GET", "/v1/sandboxes"), 200)["sandboxes"]}
    assert "env" not in listed["l"], "a list of many would be too long"
    expect(d.call("POST", "/v1/sandboxes/l/execs", {"argv": ["echo", full]}), 400, "invalid", "too large")
    expect(d.call("DELETE", "/v1/sandboxes/l"), 200)


def test_requests_that_are_too_large(d):
    expect(d.call("POST", "/v1/sandboxes/l/execs", {"argv": ["x" * (16 << 20)]}), 413, "limit")
    expect(d.call("POST", "/v1/sandboxes/l/execs", b'{"argv":[' + b"1," * 600000 + b"1]}"), 413, "limit", "JSON values")


def test_output_by_offset_follow_and_attach(d):
    expect(d.call("PUT", "/v1/sandboxes/o", {}), 201)
    d.upgrade("/v1/sandboxes/o/execs", {"argv": ["echo", "0123456789"]}).finish()
    base = "/v1/sandboxes/o/execs/last"
    assert d.call("GET", base + "/stdout") == (200, b"0123456789\n")
    assert d.call("GET", base + "/stdout?offset=4&follow=1") == (200, b"456789\n")
    assert d.call("GET", base + "/stderr") == (200, b"")
    expect(d.call("GET", base + "/stdout?offset=x"), 400, "invalid", "offset")
    w = d.upgrade(base + "/attach?stdout_offset=8", {})
    kind, data = w.frame()
    assert (kind, data[:8], data[8:]) == (STDOUT, struct.pack(">Q", 8), b"89\n"), data
    assert w.frame()[0] == END and w.frame() is None
    w = d.upgrade("/v1/sandboxes/o/execs", {"argv": ["sleep", "300"]})
    assert w.frame()[0] == STARTED
    again = d.upgrade(base + "/attach", {})
    assert again.frame()[0] == STARTED
    assert again.finish()[2][1]["cause"] == "exited" and w.finish()[2][1]["cause"] == "exited"


def test_large_output_is_exact(d):
    expect(d.call("PUT", "/v1/sandboxes/l", {}), 201)
    out, _, last = d.upgrade("/v1/sandboxes/l/execs", {"argv": ["flood", "50000000"]}).finish()
    assert len(out) == 50_000_000 == last[1]["stdout_bytes"] and out.count(b"x") == len(out)
    assert len(d.call("GET", "/v1/sandboxes/l/execs/last/stdout")[1]) == 50_000_000


def test_client_gone(d):
    expect(d.call("PUT", "/v1/sandboxes/g", {}), 201)
    for on, cause in (("kill", "killed"), ("keep", None)):
        w = d.upgrade("/v1/sandboxes/g/execs", {"argv": ["sleep", "60000"], "on_disconnect": on})
        exec_id = json.loads(w.frame()[1])["exec"]
        w.s.close()
        path = "/v1/sandboxes/g/execs/" + exec_id
        if cause:
            assert d.wait(path, lambda x: x["exec"]["state"] == "ended")["exec"]["end"]["cause"] == cause
        else:
            time.sleep(0.2)
            assert d.call("GET", path)[1]["exec"]["state"] == "running"
    w = d.upgrade("/v1/sandboxes/g/execs", {"argv": ["sleep", "60000"], "on_disconnect": "kill"})
    exec_id = json.loads(w.frame()[1])["exec"]
    w.send(DETACH)
    w.s.close()
    time.sleep(0.2)
    assert d.call("GET", "/v1/sandboxes/g/execs/" + exec_id)[1]["exec"]["state"] == "running"
    expect(d.call("DELETE", "/v1/sandboxes/g?force=1"), 200)


def test_run(d):
    before = expect(d.call("GET", "/v1/sandboxes"), 200)
    w = d.upgrade("/v1/run", {"spec": {}, "exec": {"argv": ["echo", "ran"]}})
    out, _, last = w.finish()
    assert (out, last[1]["status"]) == (b"ran\n", 0)
    assert expect(d.call("GET", "/v1/sandboxes"), 200) == before, "the connection closed too early"
    out, _, last = d.upgrade("/v1/run", {"exec": {"argv": ["flood", "30000000"]}}).finish()
    assert len(out) == 30_000_000
    w = d.upgrade("/v1/run", {"exec": {"argv": ["sleep", "60000"]}})
    name = json.loads(w.frame()[1])["sandbox"]
    assert d.call("GET", "/v1/sandboxes/" + name)[1]["sandbox"]["ephemeral"]
    w.s.close()
    d.wait("/v1/sandboxes", lambda x: x == before)
    w = d.upgrade("/v1/run", {"exec": {}})
    assert w.status == 400 and "argv" in w.doc["error"]["message"], w.doc
    w = d.upgrade("/v1/run", {"spec": {"image": "x"}, "exec": {"argv": ["echo"]}})
    assert w.status == 404, w.doc


def test_a_reader_that_stops_does_not_delay_others(d):
    expect(d.call("PUT", "/v1/sandboxes/r", {}), 201)
    slow = [d.upgrade("/v1/sandboxes/r/execs", {"argv": ["flood", "30000000"]}) for _ in range(4)]
    since = time.monotonic()
    for _ in range(20):
        d.call("GET", "/v1/sandboxes")
    assert time.monotonic() - since < 5
    for w in slow:
        assert len(w.finish()[0]) == 30_000_000


def test_second_daemon_refuses(d):
    p = subprocess.run([d.program, "--root", d.dir.name, "--engine", "fake"], capture_output=True, timeout=30, check=False)
    assert p.returncode == 4 and str(d.process.pid).encode() in p.stderr and d.dir.name.encode() in p.stderr, p


def test_sigterm_answers_what_is_under_way(d):
    s = d.send("PUT", "/v1/sandboxes/last", {}, "Connection: close\r\n")
    d.process.send_signal(signal.SIGTERM)
    reply = read_all(s)
    assert reply.startswith((b"HTTP/1.1 201", b"HTTP/1.1 502")) or not reply, reply
    d.stop()
    d.start()
    expect(d.call("GET", "/v1/sandboxes"), 200)


def main():
    tests = [(n, f) for n, f in globals().items() if n.startswith("test_") and (len(sys.argv) < 3 or sys.argv[2] in n)]
    failed = 0
    d = Daemon(sys.argv[1])
    print(f"1..{len(tests) + 1}", flush=True)
    for i, (name, fn) in enumerate(tests + [("test_end", lambda x: x.stop())]):
        try:
            fn(d)
            print(f"ok {i + 1} - {name[5:]}", flush=True)
        except (AssertionError, OSError, ValueError, LookupError, TypeError) as e:
            failed = 1
            print(f"# {e!r}\nnot ok {i + 1} - {name[5:]}", flush=True)
    if d.process.poll() is None:
        d.process.kill()
    d.dir.cleanup()
    return failed


if __name__ == "__main__":
    sys.exit(main())
