#!/usr/bin/env python3
"""What caches save: the same installs, first and again from a fresh sandbox, with the bytes that came from outside.

    bench_cache.py --bin BUILD --out FILE [--rounds N] [--tool pip|uv|npm] [--without-docker]

Real packages from the public registries. Plain Docker asks them itself, without any cache and with one volume that all
containers write to; ours goes through the package cache, with the tool's own cache in each mode, and at last over a base
that `cache warm` has filled. "again" is always another container or sandbox. Every round begins with empty caches. pip and uv
install the same: what pip takes longer is its own work, which no cache saves. "the tool alone" is what that work takes: the same
packages in the same kind of sandbox, but all of them lie there already, and the tool asks nobody.
"""
import argparse
import hashlib
import http.client
import http.server
import platform
import shutil
import socket
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "integration"))

import engines  # noqa: E402  (found through the line above)
import installers  # noqa: E402
from bench_lib import Goals, progress, write_json  # noqa: E402
from ripcord_test import Config, Root  # noqa: E402

PYTHON = ["requests==2.32.3", "jinja2==3.1.4", "pyyaml==6.0.2"]
PACKAGES = {"pip": PYTHON, "uv": PYTHON, "npm": ["express@4.21.2", "chalk@4.1.2", "typescript@5.6.3"]}
INSTALL = {"pip": "/usr/bin/python3 -m pip install -q --no-input --target /scratch/t {}",
           "uv": "/tools/uv/bin/uv pip install -q --python /usr/bin/python3 --target /scratch/t {}",
           "npm": "mkdir -p /scratch/n && cd /scratch/n && npm install --silent --no-audit --no-fund --no-update-notifier {}"}
# Untimed, then timed: pip and uv find wheels in a folder, npm has no such thing and takes all from its own cache. uv's is empty, as "again".
PREPARE = {"pip": "/usr/bin/python3 -m pip download -q --no-input -d /scratch/w {}", "npm": INSTALL["npm"] + " && rm -rf /scratch/n"}
PREPARE["uv"] = PREPARE["pip"]
ALONE = {"pip": INSTALL["pip"] + " --no-index --find-links /scratch/w", "uv": INSTALL["uv"] + " --no-index --find-links /scratch/w",
         "npm": INSTALL["npm"] + " --offline"}
VARIABLES = {"pip": ["PIP_CACHE_DIR=/cache/pip"], "uv": ["UV_CACHE_DIR=/cache/uv", "UV_LINK_MODE=copy"],
             "npm": ["NPM_CONFIG_CACHE=/cache/npm", "NPM_CONFIG_PREFER_OFFLINE=true"]}
MACHINE = ["PYTHONPATH=/machine/lib/python3/dist-packages", "PYTHONPYCACHEPREFIX=/tmp/pyc", "HOME=/scratch",
           f"LD_LIBRARY_PATH=/machine/lib/{platform.machine()}-linux-gnu",
           "PATH=/usr/local/bin:/usr/bin:/bin:/machine/bin", "PIP_DISABLE_PIP_VERSION_CHECK=1",
           *(f"{v}=/etc/ssl/certs/ca-certificates.crt" for v in ("PIP_CERT", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"))]


PYPI, FILES = "pypi.org", "files.pythonhosted.org"
HOSTS = {"pip": [PYPI, FILES], "uv": [PYPI, FILES], "npm": ["registry.npmjs.org"]}


def pypi_is_stripped():
    """Whether a proxy removes the caching fields of PyPI's answers. Tools keep an answer without them briefly or not at all."""
    try:
        with urllib.request.urlopen(f"https://{PYPI}/simple/idna/", timeout=20) as answer:
            return not (answer.headers["ETag"] or answer.headers["Cache-Control"])
    except OSError:
        return False


class WholePyPI:
    """PyPI with those fields put back as it sends them, on the machine's end of the engine's network. A client's connection
    has one to each of PyPI's hosts, so that the detour costs next to nothing."""

    def __init__(self, address):
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self):
                super().setup()
                self.links = {host: http.client.HTTPSConnection(host, timeout=60) for host in (PYPI, FILES)}

            def do_GET(self):
                outer.serve(self)

            do_HEAD = do_GET

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer((address, 0), Handler)
        self.server.handle_error = lambda *_: None  # uv hangs up when it has seen enough
        host = f"{address}:{self.server.server_address[1]}"
        self.variables = [f"PIP_INDEX_URL=http://{host}/simple/", f"PIP_TRUSTED_HOST={address}", f"UV_DEFAULT_INDEX=http://{host}/simple/"]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def serve(self, h):
        page = h.path.startswith("/simple/")
        link = h.links[PYPI if page else FILES]
        link.request("GET", h.path)
        answer = link.getresponse()
        body, kind = answer.read(), answer.headers["Content-Type"]
        if page:
            body = body.replace(f"https://{FILES}".encode(), b"")
        tag = f'"{hashlib.sha1(body).hexdigest()}"'
        same = h.headers["If-None-Match"] == tag
        h.send_response(304 if same else answer.status)
        for field, value in {"Content-Type": kind, "Content-Length": 0 if same else len(body), "ETag": tag,
                             "Cache-Control": "max-age=600, public" if page else "max-age=365000000, immutable, public"}.items():
            h.send_header(field, value)
        h.end_headers()
        if not same and h.command == "GET":
            h.wfile.write(body)

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


class PlainDocker:
    """The docker command line, as people use it: uid 1000, the machine's own pip and npm."""

    installs = 2

    def __init__(self, engine, shared):
        self.engine, self.shared, self.index = engine, shared, None
        self.name = "docker, shared volume" if shared else "docker, no cache"

    def begin(self, tool):
        if not self.shared:
            return
        if tool != "npm" and pypi_is_stripped():
            self.index = WholePyPI(self.engine.outside_address)
        self.command("volume", "create", "bench-cache")
        self.command("run", "--rm", "-u", "0", "-v", "bench-cache:/cache", engines.IMAGE, "sh", "-c",
                     f"mkdir -p /cache/{tool} && chown 1000 /cache/{tool}")

    def command(self, *args):
        return subprocess.run([*self.engine.cli, *args], check=True, stdout=subprocess.PIPE, text=True).stdout

    def install(self, tool, packages):
        """Milliseconds and bytes. The engine has a network namespace of its own, whose one interface leads outside."""
        env = MACHINE + (VARIABLES[tool] if self.shared else []) + (self.index.variables if self.index else [])
        script = (f"rx() {{ cat /sys/class/net/[!l]*/statistics/rx_bytes; }}; before=$(rx); {INSTALL[tool].format(' '.join(packages))} "
                  "&& echo $(($(rx) - before))")
        hosts = [o for h in HOSTS[tool] for o in ("--add-host", f"{h}:{socket.gethostbyname(h)}")]
        since = time.perf_counter()
        out = self.command("run", "--rm", "--network", "host", *hosts, "-u", "1000", "-v", "/usr:/machine:ro",
                           *(["-v", f"{installers.folder()[0]}:/tools:ro"] if tool == "uv" else []), "-v", "/etc/ssl/certs:/etc/ssl/certs:ro", "--tmpfs", "/scratch:exec,mode=1777",
                           *(["-v", "bench-cache:/cache"] if self.shared else []), *(o for e in env for o in ("-e", e)),
                           engines.IMAGE, "sh", "-c", script)
        return (time.perf_counter() - since) * 1000, int(out.split()[-1])

    def end(self):
        if self.index:
            self.index.stop()
        if self.shared:
            self.command("volume", "rm", "-f", "bench-cache")


class Ours:
    """A root of its own for each round, so that nothing is there before."""

    installs = 2

    def __init__(self, mode, warm=False):
        self.mode, self.warm = mode, warm
        self.name = f"ripcord, {mode}" + (", warmed base" if warm else "")
        self.root, self.boxes = None, 0

    def begin(self, tool):
        self.root = Root()
        self.root.configure(f"mounts.roots: [{installers.folder()[0] or '/usr'}]\n")
        self.root.start()
        if self.warm:
            self.root.ok("cache", "warm", "--tool", tool, *PACKAGES[tool], timeout=600)

    def install(self, tool, packages):
        box, took = self.up(tool)
        took += self.run(box, INSTALL[tool], packages)
        asked = self.counted(box, "bytes_upstream")
        self.root.ok("rm", "-f", box)
        return took, asked

    def up(self, tool):
        self.boxes += 1
        box = f"box-{self.boxes}"
        since = time.perf_counter()
        self.root.ok("up", box, "--cache", f"{tool}={self.mode}",
                     *(["--mount", f"{installers.folder()[0]}:/tools:ro"] if tool == "uv" else []))
        return box, (time.perf_counter() - since) * 1000

    def run(self, box, command, packages):
        since = time.perf_counter()
        self.root.ok("exec", box, "--", "sh", "-c", f"HOME=/scratch; {command.format(' '.join(packages))}", timeout=600)
        return (time.perf_counter() - since) * 1000

    def counted(self, box, what):
        return sum(c[what] for c in self.root.ok("show", box, "--json").json().get("packages", {}).values())

    def end(self):
        self.root.close()


class Alone(Ours):
    """The floor: what no cache saves."""

    installs = 1

    def __init__(self):
        super().__init__("layered")
        self.name = "the tool alone"

    def install(self, tool, packages):
        box, took = self.up(tool)
        self.run(box, PREPARE[tool], packages)
        asked = self.counted(box, "requests")
        took += self.run(box, ALONE[tool], packages)
        if self.counted(box, "requests") != asked:
            raise SystemExit(f"{tool} has asked for something that lay before it")
        return took, 0


def measure(contender, tool):
    contender.begin(tool)
    try:
        return [contender.install(tool, PACKAGES[tool]) for _ in range(contender.installs)]
    finally:
        contender.end()


def contenders(engine, tool):
    ours = [Ours("private"), Ours("layered"), Ours("shared")]
    if tool != "uv":  # which no image has here: there is nothing that could fill its base
        ours.append(Ours("layered", warm=True))
    ours.append(Alone())
    return ([PlainDocker(engine, False), PlainDocker(engine, True)] if engine else []) + ours


def middle(rounds, which):
    times, sizes = zip(*(r[which] for r in rounds))
    return {"ms": round(statistics.median(times), 1), "bytes": int(statistics.median(sizes))}


def columns(r):
    return "".join(f"{r[which]['ms']:10.0f}{r[which]['bytes'] / 1e6:8.1f}" if which in r else " " * 18 for which in ("first", "again"))


def run(engine, args):
    results, goals = {}, Goals()
    for tool in args.tool or sorted(PACKAGES):
        if (tool == "npm" and not shutil.which("npm")) or (tool == "uv" and not installers.folder()[0]):
            continue
        rounds = {}
        for number in range(args.rounds):
            for c in contenders(engine, tool):
                progress(f"{tool}: round {number + 1} of {args.rounds}, {c.name}")
                rounds.setdefault(c.name, []).append(measure(c, tool))
        progress("")
        results[tool] = {name: dict(zip(("first", "again")[-len(r[0]):], (middle(r, i) for i in range(len(r[0]))))) for name, r in rounds.items()}
        print(f"{tool}: {', '.join(PACKAGES[tool])}")
        print(f"{'':34}{'first ms':>10}{'MB':>8}{'again ms':>10}{'MB':>8}")
        for name, r in results[tool].items():
            print(f"{name:34}{columns(r)}")
        add_goals(goals, tool, results[tool])
    goals.print()
    return {"results": results, "goals": goals.rows}


def add_goals(goals, tool, results):
    ours, alone = results["ripcord, layered"], results["the tool alone"]
    again = ours["again"]["ms"]
    goals.add(f"{tool}: bytes from outside, again", ours["again"]["bytes"], "", 0, True)
    goals.add(f"{tool}: first / again", ours["first"]["ms"] / again, "x", 5, False)
    goals.add(f"{tool}: again / the tool alone", again / alone["again"]["ms"], "x", 1.5, True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--tool", action="append", choices=sorted(PACKAGES))
    parser.add_argument("--without-docker", action="store_true")
    args = parser.parse_args()
    folder = args.bin.resolve()
    Config.bin = folder / "src" / "bin" if (folder / "src" / "bin").is_dir() else folder
    if args.without_docker or engines.Docker.missing():
        results = run(None, args)
    else:
        with engines.Docker(outside=True) as engine:
            results = run(engine, args)
    write_json(args.out, {"packages": PACKAGES, "rounds": args.rounds, **results})


if __name__ == "__main__":
    main()
