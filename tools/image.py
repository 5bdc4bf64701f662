#!/usr/bin/env python3
"""Builds the image `ripcord/default` from images/default and gives it to Docker and Podman.

    tools/image.py [--host unix:///path]... [--rebuild]
    tools/image.py --native [--bin BUILD]

The script pulls nothing. mmdebstrap makes a base from Debian's packages, and an engine builds the Dockerfile on that base.
The base and the result stay in the cache folder (~/.cache/ripcord) under a key of all inputs, so a second run only loads
the image. Without --host, every engine with a socket in the usual places gets the image. If there is no such engine, a
private engine builds it, and the result stays in the cache folder. With --native, the native engine builds the image into
its own store: the script imports a bare Debian, and apt runs in a step with network 'open'.
"""
import argparse
import contextlib
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from urllib.parse import quote

HERE = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(HERE / "test" / "integration"))

import engines  # noqa: E402  (found through the line above)
import host_image  # noqa: E402

SUITE = "bookworm"
RECIPE = HERE / "images" / "default"
NAME = "ripcord/default:latest"
BASE = "ripcord/base:latest"
BARE = ["ca-certificates"]
SOCKETS = ("/var/run/docker.sock", "/run/podman/podman.sock")
LEAVE_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/info/*", "/usr/share/locale/*")


def say(text):
    print(f"image: {text}", file=sys.stderr, flush=True)


def packages():
    return (RECIPE / "packages").read_text(encoding="ascii").split()


def key(*parts):
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def base_archive(wanted):
    """Returns the root file system of these packages as an image archive."""
    target = host_image.cache_folder() / f"base-{key(SUITE, wanted, LEAVE_OUT)}.tar"
    if not target.exists():
        say(f"installing {len(wanted)} packages and what they need into a base")
        with kept_file(target) as new, kept_file(target.with_suffix(".layer.tar"), keep=False) as layer:
            options = [f"--dpkgopt=path-exclude={path}" for path in LEAVE_OUT]
            subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(wanted)}",
                            "--dpkgopt=force-unsafe-io", *options, SUITE, layer], check=True)
            host_image.write_archive(new, layer, BASE)
    return target


def build_natively(programs):
    """Builds in the store of the running or newly started daemon; RIPCORD_ROOT selects the daemon."""
    ripcord = programs / "ripcord"
    if not ripcord.exists():
        raise SystemExit(f"image: '{ripcord}' does not exist; run ./dev build first")
    if subprocess.run([ripcord, "image", "show", BASE], capture_output=True, check=False).returncode != 0:
        with open(base_archive(BARE), "rb") as archive:
            subprocess.run([ripcord, "image", "import", "-"], stdin=archive, check=True)
    subprocess.run([ripcord, "image", "build", "--engine", "native", "--network", "open", "--build-arg", f"BASE={BASE}", "-t", NAME, RECIPE],
                   check=True)


@contextlib.contextmanager
def kept_file(target, keep=True):
    """Yields a temporary name; the file becomes the target only after success."""
    new = target.with_name(f"{target.stem}-{os.getpid()}.tar")  # mmdebstrap derives the format from the suffix
    try:
        yield new
        if keep:
            new.rename(target)
    finally:
        new.unlink(missing_ok=True)


def context():
    """Returns images/default as a tar. BuildKit detects a tar by its first header, which must not be an extended one."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path in sorted(RECIPE.iterdir()):
            tar.add(path, arcname=path.name)
    return data.getvalue()


def build(engine, base, name):
    """Builds the Dockerfile on a base that the engine has. The steps run without a network."""
    arguments = quote(json.dumps({"BASE": base, "PACKAGES_IN_BASE": "yes"}))
    reply = engine.api("POST", f"/build?version=2&t={quote(name)}&buildargs={arguments}&networkmode=none&rm=1&forcerm=1", context(),
                       headers={"Content-Type": "application/x-tar"}, timeout=600)
    lines = [json.loads(line) for line in reply.body.splitlines() if line.strip()]
    wrong = [l["error"] if isinstance(l.get("error"), str) else str(l["errorDetail"])
             for l in lines if "error" in l or "errorDetail" in l]
    if not reply.ok or wrong:
        raise SystemExit(f"image: build failed: {wrong or reply}\n" + "".join(l.get("stream", "") for l in lines))


def save(engine, name, target):
    with kept_file(target) as new:
        new.write_bytes(engine.api("GET", f"/images/{quote(name)}/get", timeout=600).body)


def image_archive(engine):
    """Returns the archive of the finished image; builds it on the engine if the cache does not have it."""
    recipe = [path.read_text("ascii") for path in sorted(RECIPE.rglob("*")) if path.is_file()]
    target = host_image.cache_folder() / f"image-{key(SUITE, packages(), recipe)}.tar"
    if not target.exists():
        engine.load(base_archive(packages()))
        say(f"building {NAME}")
        build(engine, BASE, NAME)
        engine.api("DELETE", f"/images/{quote(BASE)}")  # the image keeps its layers
        save(engine, NAME, target)
    return target


class Reached(engines.Engine):
    """An engine that already runs. The script does not start or stop it."""

    def __init__(self, host):
        super().__init__()
        if not host.startswith("unix://"):
            raise SystemExit(f"image: '{host}' is not a unix:// address")
        self.socket = Path(host.removeprefix("unix://"))
        if not self.answers():
            raise SystemExit(f"image: no engine answers on '{host}'")


def hosts(given):
    named = given or [h for h in [os.environ.get("DOCKER_HOST")] if h]
    return named or [f"unix://{path}" for path in SOCKETS if os.path.exists(path)]


def options():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("--host", action="append", default=[], help="engine to load it into (unix://PATH); may be repeated")
    p.add_argument("--native", action="store_true", help="build with the native engine, into its image store")
    p.add_argument("--bin", type=Path, default=HERE / "build", help="with --native: folder of the ripcord program (default: build)")
    p.add_argument("--rebuild", action="store_true", help="ignore the cache and build everything again")
    return p.parse_args()


def private_engine():
    kind = next((k for k in engines.KINDS.values() if not k.missing()), None)
    if not kind:
        raise SystemExit(f"image: no engine to build with: {engines.Docker.missing()}")
    return kind(image=False)


def main():
    opts = options()
    since = time.monotonic()
    if opts.rebuild:
        for old in [*host_image.cache_folder().glob("base-*.tar"), *host_image.cache_folder().glob("image-*.tar")]:
            old.unlink()
    if opts.native:
        build_natively(opts.bin)
        return 0
    targets = [Reached(host) for host in hosts(opts.host)]
    for engine in targets:
        engine.load(image_archive(engine))
        say(f"{NAME} is in {engine.host}")
    if not targets:
        with private_engine() as engine:
            say(f"no running engine found; {NAME} is in {image_archive(engine)}; load it with: docker load < FILE")
    say(f"{time.monotonic() - since:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
