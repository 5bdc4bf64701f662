#!/usr/bin/env python3
"""Builds of one Dockerfile by ripcord, by `docker build` (BuildKit) and by `buildah bud`, side by side.

    bench_build.py --bin BUILD --out FILE [--rounds N] [--starts N] [--without docker|buildah]

Twelve instructions make an application of Python and Node.js on a Debian base: packages are installed, sources compiled and
bundled. Every round builds it three times on each, in turns: with nothing cached but the base ("cold"), again without a
change ("no-op"), and after one line of the sources was changed, which leaves the packages' steps as they are ("change").

No step has a network, on any of them: wheels and tarballs lie in the context, so that all do the same work and nobody's
cache of packages is measured (bench_cache.py does that). They are fetched once and kept. The base is the one that
./dev image makes. Between rounds images and build caches are removed, which is not counted.
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "integration"), str(Path(__file__).resolve().parents[2] / "tools")]

import engines  # noqa: E402  (found through the line above)
import host_image  # noqa: E402
import image as base_image  # noqa: E402
from bench_lib import Contender, Goals, interleave, print_times, progress, summary, write_json  # noqa: E402
from ripcord_test import Config, Root  # noqa: E402

BASE, TAG = base_image.BASE, "bench-app:1"
PYTHON = {"requests": "2.32.3", "idna": "3.10", "urllib3": "2.2.3", "certifi": "2024.8.30", "jinja2": "3.1.4", "flask": "3.0.3",
          "werkzeug": "3.0.6", "click": "8.1.7", "rich": "13.9.4", "pygments": "2.18.0"}
NODE = {"typescript": "5.6.3", "express": "4.21.2", "lodash": "4.17.21", "chalk": "4.1.2"}
MODULES = 40  # of the application
DOCKERFILE = f"""FROM {BASE}
ENV APP=/app PYTHONPATH=/app/lib
RUN useradd --create-home app && mkdir /app && chown app:app /app
WORKDIR /app
COPY requirements.txt wheels/ /tmp/wheels/
RUN pip install --quiet --no-index --no-deps --no-compile --find-links /tmp/wheels --target /app/lib -r /tmp/wheels/requirements.txt
COPY vendor/ /app/vendor/
RUN mkdir node_modules && for f in vendor/*.tgz; do n=$(basename $f .tgz) && mkdir node_modules/$n && tar xzf $f -C node_modules/$n --strip-components 1; done
COPY src/ /app/src/
RUN python3 -m compileall -q src
RUN node src/bundle.js > bundle.js
CMD ["python3", "src/main.py"]
"""
BUNDLE = """const fs = require("fs"), path = require("path");
const names = fs.readdirSync(__dirname).filter((n) => n.endsWith(".py")).sort();
console.log(JSON.stringify(names.map((n) => [n, fs.readFileSync(path.join(__dirname, n), "utf8").length])));
"""
PHASES = ("cold", "no-op", "change")


# ---- what is built ----

def fetch(url, target):
    if not target.exists():
        with urllib.request.urlopen(url, timeout=60) as answer:
            new = target.with_suffix(".new")
            new.write_bytes(answer.read())
            new.rename(target)
    return target


def wheel_url(name, version):
    index = f"https://pypi.org/simple/{name}/"
    with urllib.request.urlopen(index, timeout=60) as answer:
        links = re.findall(r'href="([^"#]*)', answer.read().decode())
    file = re.compile(rf"{name}-{re.escape(version)}-py[23.]+-none-any\.whl", re.I)
    return urllib.parse.urljoin(index, next(link for link in links if file.fullmatch(link.rpartition("/")[2])))


def packages(context):
    kept = host_image.cache_folder() / "bench-build"
    kept.mkdir(exist_ok=True)
    for folder in ("wheels", "vendor"):
        (context / folder).mkdir()
    for name, version in PYTHON.items():
        found = next(kept.glob(f"{name}-{version}-*.whl"), None)
        if not found:
            url = wheel_url(name, version)
            found = fetch(url, kept / url.rpartition("/")[2].lower())
        shutil.copy(found, context / "wheels")
    for name, version in NODE.items():
        shutil.copy(fetch(f"https://registry.npmjs.org/{name}/-/{name}-{version}.tgz", kept / f"{name}-{version}.tgz"),
                    context / "vendor" / f"{name}.tgz")


def write_context(context):
    context.mkdir()
    packages(context)
    (context / "Dockerfile").write_text(DOCKERFILE, encoding="ascii")
    (context / "requirements.txt").write_text("".join(f"{n}=={v}\n" for n, v in PYTHON.items()), encoding="ascii")
    (context / "src").mkdir()
    for i in range(MODULES):
        body = "".join(f"def f{i}_{j}(x):\n    return [x * {j}, {{'k{j}': x}}]\n\n\n" for j in range(12))
        (context / "src" / f"module{i}.py").write_text(body, encoding="ascii")
    (context / "src" / "bundle.js").write_text(BUNDLE, encoding="ascii")


def change(context, line):
    (context / "src" / "main.py").write_text(f"print({line!r})\n", encoding="ascii")


# ---- the builders ----

class Builder:
    def __init__(self, name):
        self.name, self.times = name, {phase: [] for phase in PHASES}

    def clean(self):
        """Nothing but the base is left."""
        raise NotImplementedError

    def argv(self, context):
        raise NotImplementedError

    def env(self):
        return {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}

    def run(self, *argv, check=True):
        done = subprocess.run([str(a) for a in argv], env=self.env(), capture_output=True, check=False, stdin=subprocess.DEVNULL)
        if check and done.returncode != 0:
            raise SystemExit(f"{self.name}: '{' '.join(map(str, argv))}': {done.stderr.decode()[-2000:]}")
        return done

    def build(self, phase, context):
        os.sync()  # else this builder would also wait for what earlier builders have written
        since = time.perf_counter_ns()
        self.run(*self.argv(context))
        self.times[phase].append((time.perf_counter_ns() - since) / 1e6)

    def stop(self):
        return []


class Ours(Builder):
    def __init__(self):
        super().__init__("ripcord")
        self.root = Root()

    def start(self, archive):
        with open(archive, "rb") as stdin:
            subprocess.run(self.root.argv("image", "import", "-"), env=self.root.env(), stdin=stdin, check=True, capture_output=True)

    def env(self):
        return self.root.env()

    def argv(self, context):
        return self.root.argv("image", "build", "--progress", "plain", "--network", "none", "-t", TAG, context)

    def clean(self):
        self.root.run("image", "rm", TAG)
        self.root.ok("image", "prune")

    def stop(self):
        return self.root.close()


class Docker(Builder):
    def __init__(self):
        super().__init__("docker build")
        self.engine, self.cli = engines.Docker(image=False), None

    def start(self, archive):
        self.engine.start()
        self.engine.load(archive)
        # A newer command line needs a plugin for BuildKit, which may not be here.
        for program in (shutil.which("docker"), "/usr/bin/docker"):
            self.cli = [program, *self.engine.cli[1:]]
            if self.run(*self.cli, "builder", "prune", "-f", check=False).returncode == 0:
                return
        raise SystemExit("no docker here can build with BuildKit: install docker-buildx-plugin")

    def env(self):
        return {**super().env(), "DOCKER_BUILDKIT": "1", "BUILDKIT_PROGRESS": "plain", "HOME": str(self.engine.place)}

    def argv(self, context):
        return [*self.cli, "build", "--network", "none", "-t", TAG, context]

    def clean(self):
        self.run(*self.cli, "rmi", "-f", TAG, check=False)
        self.run(*self.cli, "builder", "prune", "-a", "-f")

    def stop(self):
        self.engine.stop()
        return []


class Buildah(Builder):
    """Keeps its layers, as the other builders do."""

    def __init__(self, place):
        super().__init__("buildah bud")
        self.place = place / "buildah"

    def start(self, archive):
        for folder in ("data", "run", "tmp"):
            (self.place / folder).mkdir(parents=True)
        (self.place / "storage.conf").write_text(engines.STORAGE_CONF.format(place=self.place), "ascii")
        (self.place / "policy.json").write_text('{"default": [{"type": "insecureAcceptAnything"}]}\n', "ascii")
        self.run("buildah", "pull", "--quiet", "--signature-policy", self.place / "policy.json", f"docker-archive:{archive}")

    def env(self):
        return {**super().env(), "HOME": str(self.place), "TMPDIR": str(self.place / "tmp"), "XDG_RUNTIME_DIR": str(self.place / "run"),
                "CONTAINERS_STORAGE_CONF": str(self.place / "storage.conf")}

    def argv(self, context):
        return ["buildah", "bud", "--layers", "--quiet", "--pull-never", "--network", "none", "--isolation", "oci", "--runtime", "runc",
                "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024", "--signature-policy", self.place / "policy.json",
                "-t", TAG, context]

    def clean(self):
        listed = json.loads(self.run("buildah", "images", "--all", "--json").stdout or "[]")
        ours = [i["id"] for i in listed if not any(BASE in name for name in i.get("names") or [])]
        if ours:
            self.run("buildah", "rmi", "--force", *ours, check=False)

    def stop(self):
        subprocess.run(["umount", self.place / "data" / "overlay"], check=False, capture_output=True)
        return []


def builders(opts, place):
    found = [Ours()]
    for name, make, missing in (("docker", Docker, engines.Docker.missing()),
                                ("buildah", lambda: Buildah(place), None if shutil.which("buildah") else "buildah is not installed")):
        if missing:
            print(f"without {name}: {missing}", file=sys.stderr)
        elif name not in opts.without:
            found.append(make())
    return found


# ---- measuring ----

def measure(all_of, context, rounds):
    for i in range(rounds):
        progress(f"round {i + 1} of {rounds}")
        for phase in PHASES:
            if phase != "no-op":
                change(context, f"{phase} {i}")
            for b in all_of:
                if phase == "cold":
                    b.clean()
                b.build(phase, context)
    progress("")


def starts(ours, rounds):
    """A sandbox of the built image beside one of the machine's own programs."""
    env = ours.env()
    pair = [Contender(name, ours.root.argv("run", "--network", "none", "--image", image, "--", "/bin/true"), env=env)
            for name, image in (("run, image host", "host"), ("run, the built image", TAG))]
    interleave(pair, rounds)
    return pair


def median(b, phase):
    return summary(b.times[phase])["p50"]


def judge(all_of, pair):
    goals, (ours, *others) = Goals(), all_of
    for other in others:
        ratio = {phase: median(ours, phase) / median(other, phase) for phase in PHASES}
        goals.add(f"cold: ripcord / {other.name}", ratio["cold"], "x", 1.1, True)
        goals.add(f"no-op: {other.name} / ripcord", 1 / ratio["no-op"], "x", 5, False)
        goals.add(f"change: {other.name} / ripcord", 1 / ratio["change"], "x", 2, False)
    host, built = (c.summary()["p50"] for c in pair)
    goals.add("start of a sandbox: built image / host", built / host, "x", 1.1, True)
    return goals


def print_builds(all_of):
    print(f"{'p50 ms of ' + str(len(all_of[0].times['cold'])):34}" + "".join(f"{phase:>12}" for phase in PHASES))
    for b in all_of:
        print(f"{b.name:34}" + "".join(f"{median(b, phase):12.1f}" for phase in PHASES))


def options():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("--bin", type=Path, required=True)
    p.add_argument("--out", type=Path, required=True)
    p.add_argument("--rounds", type=int, default=9)
    p.add_argument("--starts", type=int, default=50)
    p.add_argument("--without", action="append", default=[], choices=["docker", "buildah"])
    return p.parse_args()


def main():
    opts = options()
    Config.bin = opts.bin.resolve()
    problems, pair = [], []
    with tempfile.TemporaryDirectory(prefix="ripcord-bench-", ignore_cleanup_errors=True) as place:
        context = Path(place) / "context"
        write_context(context)
        archive = base_image.base_archive(base_image.packages())
        all_of = builders(opts, Path(place))
        try:
            for b in all_of:
                progress(f"{b.name}: loading the base")
                b.start(archive)
            measure(all_of, context, opts.rounds)
            pair = starts(all_of[0], opts.starts)
        finally:
            for b in all_of:
                problems += b.stop()
    goals = judge(all_of, pair)
    print_builds(all_of)
    print()
    print_times(pair)
    goals.print()
    write_json(opts.out, {"builds": {b.name: {p: summary(t) for p, t in b.times.items()} for b in all_of},
                          "starts": {c.name: c.summary() for c in pair}, "goals": goals.rows})
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
