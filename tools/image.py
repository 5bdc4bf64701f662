#!/usr/bin/env python3
"""Builds the image `ripcord/default` from images/default and gives it to Docker and Podman.

    tools/image.py [--host unix:///path]... [--rebuild]
    tools/image.py --native [--bin BUILD]

Nothing is pulled: the base is made of Debian's packages with mmdebstrap, and the Dockerfile is built on it. Base and
result are kept in the cache folder (~/.cache/ripcord) under a key of all that goes into them, so that a second run
only loads. Without --host the engines with a socket in the usual places get it; when there is none, a private
one builds it and the result stays in the cache folder. With --native the store of ripcord's own engine gets it, built there:
a bare Debian is imported, and apt runs in a step with network 'open'.
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
    """The root file system of these packages as an image's archive."""
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
    """In the store of the daemon that answers, or is started: RIPCORD_ROOT says which."""
    ripcord = programs / "ripcord"
    if not ripcord.exists():
        raise SystemExit(f"image: '{ripcord}' is not there: ./dev build")
    if subprocess.run([ripcord, "image", "show", BASE], capture_output=True, check=False).returncode != 0:
        with open(base_archive(BARE), "rb") as archive:
            subprocess.run([ripcord, "image", "import", "-"], stdin=archive, check=True)
    subprocess.run([ripcord, "image", "build", "--engine", "native", "--network", "open", "--build-arg", f"BASE={BASE}", "-t", NAME, RECIPE],
                   check=True)


@contextlib.contextmanager
def kept_file(target, keep=True):
    """A name to write to; it becomes the target only when all has gone well."""
    new = target.with_name(f"{target.stem}-{os.getpid()}.tar")  # mmdebstrap looks at the end of the name
    try:
        yield new
        if keep:
            new.rename(target)
    finally:
        new.unlink(missing_ok=True)


def context():
    """images/default as a tar; BuildKit knows a tar by its first header, which must not be an extended one."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path in sorted(RECIPE.iterdir()):
            tar.add(path, arcname=path.name)
    return data.getvalue()


def build(engine, base, name):
    """Builds the Dockerfile on a base that the engine has; the steps have no network and need none."""
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
    """The finished image's archive; built on the engine when none is kept."""
    target = host_image.cache_folder() / f"image-{key(SUITE, packages(), (RECIPE / 'Dockerfile').read_text('ascii'))}.tar"
    if not target.exists():
        engine.load(base_archive(packages()))
        say(f"building {NAME}")
        build(engine, BASE, NAME)
        engine.api("DELETE", f"/images/{quote(BASE)}")  # its layers stay with the image
        save(engine, NAME, target)
    return target


class Reached(engines.Engine):
    """An engine that runs already; only talked to."""

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
    p.add_argument("--native", action="store_true", help="into the store of ripcord's own engine, by its own builder")
    p.add_argument("--bin", type=Path, default=HERE / "build", help="with --native: folder of ripcord (default: build)")
    p.add_argument("--rebuild", action="store_true", help="make all of it again")
    return p.parse_args()


def private_engine():
    kind = next((k for k in engines.KINDS.values() if not k.missing()), None)
    if not kind:
        raise SystemExit(f"image: no engine is here to build with: {engines.Docker.missing()}")
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
            say(f"no engine runs here; {NAME} is in {image_archive(engine)}: docker load < FILE")
    say(f"{time.monotonic() - since:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
