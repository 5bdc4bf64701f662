#!/usr/bin/env python3
"""Builds gVisor's `runsc` from its Go modules, and prints the path of the program.

    tools/gvisor/gvisor.py [--no-build]

Debian has a runsc, but the one of Debian 12 (December 2022) cannot run ripcord-guest: it has no child subreapers. gVisor's
own downloads are not on a package registry. Its modules are: go.mod names their versions, go.sum their digests. A build takes
a minute or two on two quiet processors.

The program stays in the cache folder (~/.cache/ripcord) under a key of all inputs. --no-build prints nothing, with status 1,
if it is not there.
"""
import argparse
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.request
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "test" / "integration"))

from host_image import cache_folder  # noqa: E402  (found through the line above)

MODULE = "gvisor.dev/gvisor"
# For machines whose Go is older than go.mod asks for, or that have none.
GO = "1.26.8"
GO_URL = "https://proxy.golang.org/golang.org/toolchain/@v/v0.0.1-go{}.linux-{}.zip"
GO_DIGESTS = {"amd64": "30c2b1bf7dcc88d3eb0a1364e47ddd9128edb3110a30e8a0ef61cd5856b31de7",
              "arm64": "02b36b6787b3ac767668f630e2998df45a3b1f9ffee08d1bf3ef6487cd658d99"}
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
INPUTS = ("go.mod", "go.sum", "runsc.go", "gvisor.py")


def say(text):
    print(f"gvisor: {text}", file=sys.stderr, flush=True)


def target():
    inputs = [(HERE / name).read_bytes() for name in INPUTS] + [platform.machine().encode()]
    return cache_folder() / f"runsc-{hashlib.sha256(b''.join(inputs)).hexdigest()[:16]}"


def version_of(text):
    return tuple(int(n) for n in re.search(r"go ?(\d+)\.(\d+)(?:\.(\d+))?", text).groups(default="0"))


def machines_go():
    """The machine's own Go, if it is new enough."""
    go = shutil.which("go")
    if not go:
        return None
    said = subprocess.run([go, "version"], env={**os.environ, "GOTOOLCHAIN": "local"}, cwd="/", capture_output=True, text=True,
                          check=False).stdout
    wanted = version_of(re.search(r"^go .*$", (HERE / "go.mod").read_text(encoding="ascii"), re.M).group())
    return go if said and version_of(said) >= wanted else None


def fetch_go(folder):
    arch = ARCHITECTURES[platform.machine()]
    url, archive = GO_URL.format(GO, arch), folder / "go.zip"
    say(f"fetching {url}")
    with urllib.request.urlopen(url, timeout=120) as reply, open(archive, "wb") as f:
        shutil.copyfileobj(reply, f)
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    if digest != GO_DIGESTS[arch]:
        raise SystemExit(f"gvisor: {url}: wrong digest ({digest})")
    with zipfile.ZipFile(archive) as z:
        z.extractall(folder)
    archive.unlink()
    (root,) = (folder / "golang.org").iterdir()
    for program in [*(root / "bin").iterdir(), *(root / "pkg/tool").glob("*/*")]:
        program.chmod(0o755)  # zip files have no modes
    return root / "bin" / "go"


def build(program):
    """In a folder of its own, with the modules and the compiler's cache: nothing else remains of it."""
    with tempfile.TemporaryDirectory(prefix="ripcord-gvisor-", dir=cache_folder()) as name:
        folder = Path(name)
        for source in ("go.mod", "go.sum", "runsc.go"):
            shutil.copy(HERE / source, folder)
        go = machines_go() or fetch_go(folder)
        say(f"building {MODULE} with {go}")
        env = {**os.environ, "HOME": name, "GOPATH": name + "/path", "GOCACHE": name + "/cache", "GOWORK": "off",
               "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly -modcacherw -trimpath", "CGO_ENABLED": "0"}
        subprocess.run([go, "build", "-ldflags", "-s -w", "-o", "runsc", f"{MODULE}/runsc"], cwd=folder, env=env, check=True)
        for old in cache_folder().glob("runsc-*"):
            old.unlink()
        os.replace(folder / "runsc", program)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("--no-build", action="store_true")
    opts = p.parse_args()
    program = target()
    if not program.exists():
        if opts.no_build:
            return 1
        build(program)
    print(program)
    return 0


if __name__ == "__main__":
    sys.exit(main())
