#!/usr/bin/env python3
"""The HTTP API under load, beside nginx, cp, socat and our own command line, in one run.

    bench_api.py --bin BUILD --out FILE [--execs N] [--idle N] [--seconds S]
"""
import argparse
import asyncio
import json
import multiprocessing
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "integration"))

from bench_lib import Contender, Goals, interleave, print_times, progress, summary, write_json  # noqa: E402
from bench_native import rollup  # noqa: E402
from image_registries import free_port  # noqa: E402
from ripcord_test import Config, Root  # noqa: E402

BOXES = 40  # sandboxes that the execs are spread over
BLOCK = 4096
BLOCKS = 16
LISTED = "/v1/sandboxes?limit=20"
GIB = 1 << 30
PORT_BYTES = 256 << 20
# Each block of the output is its own number again and again: a lost or moved byte shows.
TALKER = f"""$| = 1; for my $i (1..{BLOCKS}) {{ print sprintf("%08d", $i) x {BLOCK // 8}; select undef, undef, undef, 1 }}"""
EXPECTED = b"".join(b"%08d" % i * (BLOCK // 8) for i in range(1, BLOCKS + 1))


def options():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("--bin", type=Path, required=True)
    p.add_argument("--out", type=Path, required=True)
    p.add_argument("--execs", type=int, default=2000, help="concurrent streams of execs")
    p.add_argument("--idle", type=int, default=5000, help="idle streams of events")
    p.add_argument("--seconds", type=int, default=5, help="how long each server is asked for the same page")
    p.add_argument("--rounds", type=int, default=100)
    return p.parse_args()


# ---- the clients ----


class Client:
    """HTTP over the unix socket, one connection, as a careful program would."""

    def __init__(self, path):
        self.s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.s.settimeout(60)
        self.s.connect(str(path))

    def get(self, target):
        """The milliseconds until the whole answer is here."""
        since = time.perf_counter_ns()
        self.s.sendall(f"GET {target} HTTP/1.1\r\nHost: ripcord\r\n\r\n".encode())
        data = b""
        while b"\r\n\r\n" not in data:
            data += self.receive()
        head, _, body = data.partition(b"\r\n\r\n")
        left = int(re.search(rb"(?i)content-length: (\d+)", head).group(1)) - len(body)
        while left > 0:
            left -= len(self.receive())
        if not head.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"GET {target}: {head.decode()}")
        return (time.perf_counter_ns() - since) / 1e6

    def receive(self):
        data = self.s.recv(65536)
        if not data:
            raise SystemExit("the daemon closed a connection")
        return data


def list_again_and_again(path, count, pause, queue):
    """In a process of its own, so that the other clients' work does not count."""
    client = Client(path)
    times = []
    for _ in range(count):
        times.append(client.get(LISTED))
        time.sleep(pause)
    queue.put(times)


class Lister:
    """Lists sandboxes in the background."""

    def __init__(self, path, count, pause):
        self.queue = multiprocessing.Queue()
        self.process = multiprocessing.Process(target=list_again_and_again, args=(path, count, pause, self.queue))
        self.process.start()

    def summary(self):
        times = self.queue.get(timeout=120)
        self.process.join()
        return summary(times)


async def follow_exec(path, box, gate):
    """One exec whose output is read as it comes. Returns what differs from what was written, or None."""
    reader, writer = await asyncio.open_unix_connection(str(path), limit=1 << 20)
    body = json.dumps({"argv": ["perl", "-e", TALKER]})
    writer.write(f"POST /v1/sandboxes/{box}/execs HTTP/1.1\r\nHost: ripcord\r\nAccept: application/x-ndjson\r\n"
                 f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        return f"{head.decode()}{await reader.read(1000)}"
    gate.arrived()
    got = bytearray()
    end = None
    async for event in events_of(reader):
        if event["event"] == "stdout":
            if event["offset"] != len(got):
                return f"offset {event['offset']} after {len(got)} bytes"
            got += event["text"].encode()
        elif event["event"] == "end":
            end = event["end"]
    writer.close()
    if end is None or end["cause"] != "exited" or end["exit_code"] != 0:
        return f"ended with {end}"
    return None if got == EXPECTED else f"{len(got)} bytes, not the {len(EXPECTED)} that were written"


async def events_of(reader):
    """The JSON lines of a chunked body."""
    rest = b""
    while size := int((await reader.readline()).strip() or b"0", 16):
        rest += (await reader.readexactly(size + 2))[:-2]
        *lines, rest = rest.split(b"\n")
        for line in lines:
            if line:
                yield json.loads(line)


class Gate:
    """Knows when the last of n streams has begun."""

    def __init__(self, n, when_open):
        self.left, self.when_open = n, when_open

    def arrived(self):
        self.left -= 1
        progress(f"{self.left} streams to begin")
        if self.left == 0:
            self.when_open()


# ---- the peers ----


def nginx_config(place, port):
    paths = "".join(f"{name}_temp_path {place}/{name}; " for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    return (f"worker_processes 1; daemon off; pid {place}/nginx.pid; error_log {place}/error.log;\n"
            "events { worker_connections 1024; }\n"
            f"http {{ access_log off; types {{ application/json json; }} keepalive_requests 1000000; {paths}\n"
            f"  server {{ listen 127.0.0.1:{port}; root {place}; }} }}\n")


class Server:
    """A program that serves at a port of this machine."""

    def __init__(self, port, *argv):
        self.port = port
        self.process = subprocess.Popen([str(a) for a in argv])
        while self.process.poll() is None:
            with socket.socket() as s:
                if s.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.01)
        raise SystemExit(f"{argv[0]} ended with {self.process.returncode}")

    def url(self, path):
        return f"http://127.0.0.1:{self.port}/{path}"

    def stop(self):
        self.process.terminate()
        self.process.wait()


def start_nginx(place):
    """Serves the files of a folder."""
    port = free_port()
    (place / "nginx.conf").write_text(nginx_config(place, port))
    return Server(port, "nginx", "-c", place / "nginx.conf", "-p", place, "-e", place / "error.log")


def start_socat(to):
    port = free_port()
    return Server(port, "socat", f"TCP-LISTEN:{port},bind=127.0.0.1,reuseaddr,fork", f"TCP:127.0.0.1:{to}")


def bytes_per_second(url, size, *headers):
    """The best of three downloads."""
    best = None
    for _ in range(3):
        since = time.monotonic()
        subprocess.run(["curl", "-sS", "--fail", "-o", "/dev/null", *[a for h in headers for a in ("-H", h)], url], check=True)
        best = min(best or 1e9, time.monotonic() - since)
    return size / best


def requests_per_second(url, seconds, *headers):
    argv = ["wrk", "-t1", "-c8", f"-d{seconds}s", *[a for h in headers for a in ("-H", h)], url]
    out = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    if "Non-2xx" in out or "Socket errors" in out:
        raise SystemExit(f"wrk: {url}:\n{out}")
    return float(re.search(r"Requests/sec:\s+([\d.]+)", out).group(1))


# ---- what is measured ----


class Bench:
    def __init__(self, opts, place):
        self.opts, self.place = opts, place
        (place / "root").mkdir()
        self.root = Root(place / "root")
        self.socket = place / "root" / "run" / "ripcord.sock"
        self.port = free_port()
        self.root.configure(f"http.listen: 127.0.0.1:{self.port}\nhttp.connections: {opts.idle + opts.execs + 100}\n")
        self.figures = {}
        self.goals = Goals()
        self.contenders = []

    def prepare(self):
        self.root.start()
        self.token = f"Authorization: Bearer {self.root.ok('token').text.strip()}"
        self.boxes = [f"box{i:02}" for i in range(BOXES)]
        for box in self.boxes:
            self.root.ok("up", box, "--pids", "500")

    def daemon_anonymous(self):
        return rollup(self.root.daemon_pid(), "Anonymous")

    def run_and_wait(self):
        """One command in a sandbox of its own: our command line, and curl, which knows nothing of us."""
        body = json.dumps({"exec": {"argv": ["true"]}})
        curl = ["curl", "-sS", "--fail", "--unix-socket", self.socket, "--json", body, "http://localhost/v1/run?wait=30s"]
        env = self.root.env()
        self.contenders = [Contender("ripcord run -- true", [Config.bin / "ripcord", "run", "--", "true"], env=env),
                           Contender("curl /v1/run of true", curl, env=env),
                           Contender("curl /healthz", [*curl[:5], "http://localhost/healthz"], env=env)]
        interleave(self.contenders, self.opts.rounds)
        ours, theirs, floor = (c.summary()["p50"] for c in self.contenders)
        self.figures["curl itself (GET /healthz), ms"] = floor
        self.goals.add("run and wait of true: curl / ripcord run", theirs / ours, "x", 1.15, True)

    def page(self):
        """A page of 20 sandboxes, and the same bytes as a file of nginx."""
        place = self.place / "nginx"
        place.mkdir()
        (place / "page.json").write_bytes(self.root.http("GET", LISTED, checked=False).body)
        nginx = start_nginx(place)
        try:
            theirs = requests_per_second(nginx.url("page.json"), self.opts.seconds)
            ours = requests_per_second(f"http://127.0.0.1:{self.port}{LISTED}", self.opts.seconds, self.token)
        finally:
            nginx.stop()
        self.figures.update({"page of 20 sandboxes, per second": round(ours), "the same bytes by nginx, per second": round(theirs)})
        self.goals.add("page of 20 sandboxes / nginx", ours / theirs, "x", 0.25, False)

    def ports(self):
        """nginx in a sandbox through the API, and nginx on this machine through socat."""
        place = self.place / "ports"
        place.mkdir()
        (place / "small").write_bytes(b"x" * 1000)
        with open(place / "big", "wb") as f:
            f.truncate(PORT_BYTES)
        self.start_nginx_inside()
        nginx = start_nginx(place)
        socat = start_socat(nginx.port)
        inside = f"http://127.0.0.1:{self.port}/v1/sandboxes/box01/ports/8000/"
        try:
            for what, one in (("small", ()), ("small, a connection each", ("Connection: close",))):
                theirs = requests_per_second(socat.url("small"), self.opts.seconds, *one)
                ours = requests_per_second(inside + "small", self.opts.seconds, self.token, *one)
                self.add_port(f"requests per second ({what})", ours, theirs)
            theirs = bytes_per_second(socat.url("big"), PORT_BYTES)
            ours = bytes_per_second(inside + "big", PORT_BYTES, self.token)
            self.add_port("MB per second", ours / 1e6, theirs / 1e6)
        finally:
            socat.stop()
            nginx.stop()

    def add_port(self, what, ours, theirs):
        self.figures.update({f"port: {what}": round(ours), f"socat: {what}": round(theirs)})
        self.goals.add(f"port / socat: {what}", ours / theirs, "x", 0.5, False)

    def start_nginx_inside(self):
        home = "/home/agent"
        script = (f"cat > nginx.conf; head -c 1000 /dev/zero > small; truncate -s {PORT_BYTES} big; "
                  "exec /usr/sbin/nginx -c $HOME/nginx.conf -p $HOME -e $HOME/error.log")
        body = {"shell": script, "input": nginx_config(home, 8000)}
        self.root.http("POST", "/v1/sandboxes/box01/execs", body, checked=False)
        while self.root.http("GET", "/v1/sandboxes/box01/ports/8000/small", checked=False).status != 200:
            time.sleep(0.05)

    def files(self):
        """1 GiB into a sandbox and out of it, and the same by cp."""
        big, copy, down = (self.place / n for n in ("big", "copy", "down"))
        with open(big, "wb") as f:
            for _ in range(GIB >> 20):
                f.write(os.urandom(1 << 20))
        url = "http://localhost/v1/sandboxes/box00/files?path=/home/agent/big"
        base = ["curl", "-sS", "--fail", "--unix-socket", self.socket]
        ways = {"cp": lambda: ["cp", big, copy],
                "up": lambda: [*base, "-T", big, "-o", "/dev/null", url],
                "down": lambda: [*base, "-H", "Accept: application/octet-stream", "-o", down, url]}
        times = {name: [] for name in ways}
        for _ in range(5):
            for name, argv in ways.items():
                copy.unlink(missing_ok=True)
                down.unlink(missing_ok=True)
                if name == "up":
                    self.root.ok("exec", "box00", "--", "rm", "-f", "/home/agent/big")
                os.sync()
                since = time.monotonic()
                subprocess.run(argv(), check=True, stdout=subprocess.DEVNULL)
                times[name].append(time.monotonic() - since)
        if subprocess.run(["cmp", big, down], check=False).returncode:
            raise SystemExit("the file that came back differs")
        best = {name: min(t) for name, t in times.items()}
        self.figures.update({f"1 GiB by {name}, s": round(t, 2) for name, t in best.items()})
        self.goals.add("1 GiB into a sandbox: cp / curl", best["cp"] / best["up"], "x", 0.5, False)
        self.goals.add("1 GiB out of a sandbox: cp / curl", best["cp"] / best["down"], "x", 0.5, False)

    def streams(self):
        """Idle streams of events, then streams of execs beside them, and a list meanwhile."""
        idle = Lister(self.socket, 300, 0.01).summary()
        before = self.daemon_anonymous()
        waiting = [self.open_events() for _ in range(self.opts.idle)]
        time.sleep(2)
        per_stream = (self.daemon_anonymous() - before) / self.opts.idle
        busy, wrong = asyncio.run(self.follow_all())
        for s in waiting:
            s.close()
        self.figures.update({"list of 20, idle, ms": idle, "list of 20 beside all streams, ms": busy,
                             "idle stream, KiB of the daemon": round(per_stream, 2),
                             "exec streams with a lost or wrong byte": len(wrong)})
        for text in wrong[:3]:
            print(text)
        self.goals.add(f"{self.opts.execs} exec streams: lost or wrong", len(wrong), "", 0, True)
        self.goals.add(f"idle stream, one of {self.opts.idle}", per_stream, "KiB", 20, True)
        self.goals.add("list beside all streams / idle, p99", busy["p99"] / idle["p99"], "x", 5, True)

    def open_events(self):
        s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        s.settimeout(60)
        s.connect(str(self.socket))
        s.sendall(b"GET /v1/events?follow=1&since=9999999 HTTP/1.1\r\nHost: ripcord\r\nAccept: text/event-stream\r\n\r\n")
        if not s.recv(4096).startswith(b"HTTP/1.1 200"):
            raise SystemExit("GET /v1/events failed")
        return s

    async def follow_all(self):
        """Returns the times of a list while every stream is open, and what was wrong in any stream."""
        listers = []
        gate = Gate(self.opts.execs, lambda: listers.append(Lister(self.socket, 300, 0.01)))
        tasks = []
        for i in range(self.opts.execs):
            tasks.append(asyncio.create_task(follow_exec(self.socket, self.boxes[i % BOXES], gate)))
            await asyncio.sleep(0.002)
        wrong = [w for w in await asyncio.gather(*tasks) if w]
        progress("")
        if not listers:
            raise SystemExit(f"{gate.left} streams never began: {wrong[:3]}")
        return listers[0].summary(), wrong


def main():
    opts = options()
    Config.bin = opts.bin.resolve()
    for tool in ("curl", "nginx", "socat", "wrk"):
        if not shutil.which(tool):
            raise SystemExit(f"{tool} is missing: run this as ./dev bench api")
    with tempfile.TemporaryDirectory(prefix="ripcord-bench-") as name:
        os.chmod(name, 0o755)  # nginx's worker reads the page as another user
        bench = Bench(opts, Path(name))
        try:
            bench.prepare()
            for part in (bench.run_and_wait, bench.page, bench.ports, bench.files, bench.streams):
                part()
        finally:
            problems = bench.root.close()
    print_times(bench.contenders)
    print()
    for what, value in bench.figures.items():
        print(f"{what:54}{value!s:>14}")
    bench.goals.print()
    write_json(opts.out, {"times": {c.name: c.summary() for c in bench.contenders}, "figures": bench.figures,
                          "goals": bench.goals.rows})
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
