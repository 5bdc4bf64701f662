"""`ripcord image build`: what is said before anything is sent, and builds by the engines' own builders."""
import io
import json
import os
import signal
import socket
import tarfile
import tempfile
import threading
import time
from pathlib import Path

import engines
from ripcord_test import Config, TestCase, only_on, wait_until


class Context(TestCase):
    """A folder to build from."""

    def setUp(self):
        super().setUp()
        self.folder = self.root.path / "context"
        self.folder.mkdir()

    def write(self, **files):
        """Dockerfile="…"; a dot in a name is written as two underscores."""
        for name, text in files.items():
            (self.folder / name.replace("__", ".")).write_text(text, encoding="utf-8")

    def build(self, *args, **kwargs):
        return self.root.run("image", "build", *args, self.folder, **kwargs)


@only_on("native")
class Before(Context):
    """What needs no builder."""

    def refused(self, *args, words, code=2):
        done = self.assert_exit(self.build(*args), code)
        for word in words:
            self.assertIn(word, done.err.decode())
        self.assertFalse((self.root.path / "run").exists(), "a daemon was asked")

    def test_mistakes_have_a_place_and_nothing_is_sent(self):
        self.write(Dockerfile="FROM scratch\nRUNN x\n")
        self.refused(words=["/Dockerfile: line 2, column 1: unknown instruction 'RUNN'", "Did you mean RUN?"])
        self.write(Dockerfile="FROM scratch AS base\n")
        self.refused("--target", "bass", words=["no stage 'bass'", "Did you mean 'base'?"])
        self.refused("--progress", "loud", words=["unknown mode 'loud'; supported: auto, plain, tty"])
        self.refused("-f", self.folder / "nosuch", words=["no such Dockerfile"], code=3)
        self.write(Dockerfile="FROM debian\nRUN pip install --no-cache-dir x\n")
        self.refused("--strict", words=["/Dockerfile:1:6: warning:", "[unpinned-base]", "the linter has warnings"])

    def test_hostile_contexts(self):
        """Refused by name before the daemon has a whole context; what .dockerignore names does not matter."""
        self.write(Dockerfile="FROM scratch\nCOPY . /\n")
        os.mkfifo(self.folder / "pipe")
        done = self.assert_exit(self.build(), 2)
        self.assertIn("'pipe' in the context is a named pipe", done.err.decode())
        (self.folder / "pipe").unlink()
        with socket.socket(socket.AF_UNIX) as s:
            s.bind(str(self.folder / "sock"))
            self.assertIn("is a socket", self.assert_exit(self.build(), 2).err.decode())
        (self.folder / "sock").unlink()
        if os.geteuid() != 0:
            (self.folder / "closed").touch(0)
            self.assertIn("closed", self.build().err.decode())

    def test_requests_that_make_no_sense(self):
        self.root.start()
        tar = {"Content-Type": "application/x-tar"}
        for query, headers, status in (("", {}, 415), ("?tag=UPPER", tar, 400), ("?arg=x", tar, 400),
                                       ("?dockerfile=../x", tar, 400), ("?dockerfile=/x", tar, 400),
                                       ("?engine=nosuch", tar, 400), ("?network=host", tar, 400),
                                       ("?target=", tar, 400), ("?no_cache=maybe", tar, 400),
                                       ("?target=a&target=b", tar, 400)):
            with self.subTest(query):
                reply = self.root.http("POST", f"/v1/images/build{query}", b"x", headers=headers)
                self.assertEqual(reply.status, status, reply)


class OddDaemon:
    """Answers every build with one event that is not JSON, and counts the builds."""

    ANSWER = (b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n"
              b"5\r\noops\n\r\n0\r\n\r\n")

    def __init__(self, path):
        path.parent.mkdir(mode=0o700, parents=True)
        self.builds = 0
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen()
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self):
        while True:
            try:
                conn, _ = self.listener.accept()
            except OSError:
                return
            with conn:
                request = b""
                while not request.endswith(b"0\r\n\r\n") and (piece := conn.recv(65536)):
                    request += piece
                self.builds += request.startswith(b"POST /v1/images/build")
                conn.sendall(self.ANSWER)

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.listener.close()


@only_on("native")
class Retries(Context):
    def test_a_build_that_has_begun_is_not_sent_again(self):
        self.write(Dockerfile="FROM scratch\nCOPY x /\n", x="x")
        daemon = OddDaemon(self.root.path / "run" / "ripcord.sock")
        try:
            done = self.assert_exit(self.build(), 2)
        finally:
            daemon.close()
        self.assertIn("a build event is not valid JSON", done.err.decode())
        self.assertEqual(daemon.builds, 1)


@only_on("docker", "podman")
class Builder(Context):

    def setUp(self):
        super().setUp()
        self.engine = Config.backend
        self.name = f"{self.root.prefix()}:1"
        self.addCleanup(lambda: self.engine.api("DELETE", f"/images/{self.name}?force=1"))

    def build(self, *args, **kwargs):
        return super().build("--network", "none", *args, **kwargs)

    def events(self, done):
        return [json.loads(line) for line in done.text.splitlines()]

    def test_a_step_that_prints_any_byte(self):
        self.write(Dockerfile=f"FROM {engines.IMAGE}\nRUN printf 'a\\000b\\n'; echo ran\n")
        done = self.assert_exit(self.build("-t", self.name), 0)
        self.assertIn("ran", done.err.decode())

    def test_an_image_is_built_then_cached_and_runs(self):
        self.write(Dockerfile=f"FROM {engines.IMAGE} AS base\nARG WHAT=none\nRUN echo ran $WHAT > /made\n\n"
                              "FROM base\nCOPY . /ctx\nENV SET=1\n",
                   kept="kept\n", left="left\n", __dockerignore="left\n")
        (self.folder / "link").symlink_to("/etc/hostname")
        done = self.assert_exit(self.build("-t", self.name, "--build-arg", "WHAT=twice"), 0)
        self.assertRegex(done.text, rf"^sha256:[0-9a-f]{{64}} {self.name}\n$")
        log = done.err.decode()
        self.assertRegex(log, r"(?m)^#\d+ \[(base|stage-0) \d/\d\] RUN echo ran (\$WHAT|twice) > /made$")
        self.assertRegex(log, r"(?m)^#\d+ DONE \d+\.\d+s$")
        self.assertEqual(self.engine.api("GET", f"/images/{self.name}/json").json()["Id"].removeprefix("sha256:"),
                         done.text.split()[0].removeprefix("sha256:"))
        seen = self.root.ok("run", "--image", self.name, "--", "sh", "-c", "cat /made; ls -A /ctx; readlink /ctx/link; echo $SET")
        self.assertEqual(seen.text, "ran twice\n.dockerignore\nDockerfile\nkept\nlink\n/etc/hostname\n1\n")
        again = self.events(self.assert_exit(self.build("-t", self.name, "--build-arg", "WHAT=twice", "--json"), 0))
        cached = {e["step"] for e in again if e["event"] == "cached"}
        steps = {e["text"].split()[0]: e for e in again if e["event"] == "step"}
        self.assertIn(steps["RUN"]["step"], cached, again)
        self.assertIn(steps["COPY"]["step"], cached, again)
        self.assertEqual((steps["RUN"]["line"], steps["COPY"]["line"]), (3, 6))
        self.assertEqual(again[-1]["image"]["names"], [self.name])

    def test_a_step_that_fails_is_named_with_its_line(self):
        self.write(Dockerfile=f"FROM {engines.IMAGE}\n# why\nRUN echo before && \\\n    echo oh >&2 && exit 3\n")
        done = self.assert_exit(self.build("-t", self.name), 2)
        log = done.err.decode()
        self.assertRegex(log, r"(?m)^#\d+ \d+\.\d{3} before$")
        self.assertRegex(log, r"(?m)^#\d+ \d+\.\d{3} oh$")
        self.assertRegex(log, r"(?m)^#\d+ ERROR: .*exit (code|status):? 3$")
        self.assertRegex(log, r"ripcord: \S+/Dockerfile:3: \[2/2\] RUN .*exit (code|status):? 3")
        self.assertEqual((done.text, self.engine.api("GET", f"/images/{self.name}/json").status), ("", 404))
        self.write(Dockerfile=f"FROM {engines.IMAGE}\nCOPY nosuch /\n")
        self.assertIn("nosuch", self.assert_exit(self.build(), 2).err.decode())

    def test_the_machines_own_programs_are_not_the_engines(self):
        self.write(Dockerfile="FROM host\nRUN true\n")
        done = self.assert_exit(self.build("-t", self.name), 7)
        self.assertIn("FROM host: not available on engine", done.err.decode())
        self.assertIn("--engine native", done.err.decode())

    def test_secrets_are_refused_not_forgotten(self):
        self.write(Dockerfile=f"FROM {engines.IMAGE}\nRUN --mount=type=secret,id=KEY true\n")
        done = self.assert_exit(self.build("--secret", "KEY", env={"KEY": "sek-4711"}), 7)
        self.assertIn("secrets: not supported for builds on engine", done.err.decode())
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as s:
            s.bind(f"{folder}/agent")
            s.listen()
            done = self.assert_exit(self.build("--ssh", f"default={folder}/agent"), 7)
        self.assertIn("ssh agents: not supported for builds on engine", done.err.decode())

    def test_a_client_that_leaves_cancels(self):
        """Docker ends the command; Podman lets it end, and begins nothing after it."""
        mark = f"{1000 if self.engine.kind == 'docker' else 1}.5{os.getpid()}"
        self.write(Dockerfile=f"FROM {engines.IMAGE}\nRUN echo on; sleep {mark}\nRUN echo second > /second\n")
        with self.root.popen("image", "build", "--network", "none", "-t", self.name, "--no-cache", self.folder) as p:
            wait_for_line(p.stderr, b" on\n")
            p.send_signal(signal.SIGINT)
            p.wait(20)
        self.assertEqual(p.returncode, -signal.SIGINT)
        wait_until(lambda: not running(f"sleep\0{mark}\0"), 20, "the command's end")
        wait_until(lambda: not self.spools(), 10, "the context to go")
        if self.engine.kind == "podman":
            wait_until(lambda: not self.working(), 20, "Podman's container to go")
        self.assertEqual(self.engine.api("GET", f"/images/{self.name}/json").status, 404)

    def spools(self):
        """Files without a name that the daemon holds in its state folder."""
        found = []
        for fd in Path(f"/proc/{self.root.daemon_pid()}/fd").iterdir():
            try:
                found.append(os.readlink(fd))
            except OSError:
                pass  # closed meanwhile
        return [f for f in found if f.startswith(str(self.root.path / "state")) and f.endswith("(deleted)")]

    def working(self):
        """Podman's containers of builds."""
        boxes = self.engine.api("GET", "/v4.0.0/libpod/containers/json?all=true&external=true").json() or []
        return [b["Names"] for b in boxes if "working-container" in str(b["Names"])]

    def test_a_context_that_is_cut_off_builds_nothing(self):
        self.root.start()
        tar = io.BytesIO()
        with tarfile.open(fileobj=tar, mode="w") as archive:
            text = f"FROM {engines.IMAGE}\n".encode()
            info = tarfile.TarInfo("Dockerfile")
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text))
        with self.root.connect() as s:
            s.sendall(f"POST /v1/images/build?tag={self.name} HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-tar\r\n"
                      "Content-Length: 1000000\r\n\r\n".encode() + tar.getvalue())
        wait_until(lambda: not self.spools(), 10, "the context to go")
        self.root.ok("ls")
        self.assertEqual(self.engine.api("GET", f"/images/{self.name}/json").status, 404)


def wait_for_line(pipe, ending, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        line = pipe.readline()
        if not line or line.endswith(ending):
            return
    raise AssertionError(f"no line {ending}")


def running(argv):
    """Whether a process has these arguments."""
    for proc in Path("/proc").iterdir():
        try:
            if proc.name.isdigit() and (proc / "cmdline").read_bytes().decode(errors="replace").endswith(argv):
                return True
        except OSError:
            pass
    return False
