"""The image of the daemon, ripcord-VERSION-image-x86_64.tar.gz: what `docker load` and `podman load` take.

ripcord builds it itself, with the static programs and on a base that mmdebstrap makes of Debian's packages: nothing is pulled.
The base stays in the cache folder under a key of its packages and of the state of Debian's archive.
"""
import hashlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

from common import HERE, cache_folder, say

import tarball

sys.path.insert(0, str(HERE / "test" / "integration"))

import host_image  # noqa: E402  (found through the line above)

SUITE = "bookworm"
RECIPE = HERE / "images" / "daemon"
NAME = "ripcord/daemon:latest"
BASE = "ripcord/daemon-base:latest"
LEAVE_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/info/*", "/usr/share/locale/*")
# /usr/share/doc is left out, but not what its packages ask to keep.
KEEP = ("/usr/share/doc/*/copyright",)
ARCHIVES = (f"debian/dists/{SUITE}", f"debian/dists/{SUITE}-updates", f"debian-security/dists/{SUITE}-security")


def state_of_debian():
    """Changes with each update of a package."""
    texts = []
    for path in ARCHIVES:
        with urllib.request.urlopen(f"http://deb.debian.org/{path}/InRelease", timeout=60) as reply:
            texts.append(hashlib.sha256(reply.read()).hexdigest())
    return texts


def base_archive(release):
    """The root file system of the packages as an image archive."""
    packages = (RECIPE / "packages").read_text(encoding="ascii").split()
    key = hashlib.sha256(json.dumps([packages, LEAVE_OUT, KEEP, state_of_debian()]).encode()).hexdigest()[:16]
    target = cache_folder() / f"daemon-base-{key}.tar"
    if target.exists():
        return target
    say(f"installing {len(packages)} packages and what they need into a base")
    for old in cache_folder().glob("daemon-base-*.tar"):
        old.unlink(missing_ok=True)
    options = [f"--dpkgopt=path-exclude={path}" for path in LEAVE_OUT] + [f"--dpkgopt=path-include={path}" for path in KEEP]
    with tempfile.TemporaryDirectory(dir=cache_folder(), prefix="daemon-base-") as name:
        layer, new = Path(name) / "layer.tar", Path(name) / "base.tar"
        subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(packages)}", "--dpkgopt=force-unsafe-io",
                        *options, SUITE, layer], env=release.environment(), check=True, capture_output=True, text=True)
        host_image.write_archive(new, layer, BASE)
        new.rename(target)
    return target


def context(tree, target, epoch):
    """What the Dockerfile copies, with the times of the commit."""
    target.mkdir()
    for name in ("bin", "libexec", "share", "licences"):
        shutil.copytree(tree / name, target / name)
    shutil.copyfile(tree / "sbom.spdx.json", target / "sbom.spdx.json")
    for name in ("Dockerfile", "packages", "subids"):
        shutil.copyfile(RECIPE / name, target / name)
    for path in [target, *target.rglob("*")]:
        os.utime(path, (epoch, epoch))
        path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)


class Builder:
    """A private daemon of the programs that go into the image."""

    def __init__(self, programs, root):
        self.program, self.root = programs / "ripcord", root

    def run(self, *argv, **more):
        done = subprocess.run([self.program, "--root", self.root, *map(str, argv)], capture_output=True, text=True, check=False, **more)
        if done.returncode != 0:
            raise SystemExit(f"dist: ripcord {' '.join(map(str, argv[:2]))} failed:\n{done.stderr[-4000:]}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """Ends the daemon, and waits: the folder is removed next."""
        lock = self.root / "run" / "daemon.lock"
        if lock.exists():
            fd = os.pidfd_open(int(lock.read_text(encoding="ascii")))
            try:
                signal.pidfd_send_signal(fd, signal.SIGTERM)
                select.select([fd], [], [], 60)
            finally:
                os.close(fd)


def make(release):
    tree = tarball.built_tree(release)
    base = base_archive(release)
    target = release.out / f"ripcord-{release.version}-image-x86_64.tar"
    say("building the image of the daemon")
    with tempfile.TemporaryDirectory(prefix="ripcord-dist-") as name, Builder(tree / "bin", Path(name) / "root") as builder:
        context(tree, Path(name) / "context", release.epoch)
        builder.run("image", "import", base)
        builder.run("image", "build", "--engine", "native", "--build-arg", f"BASE={BASE}", "--build-arg", "PACKAGES_IN_BASE=yes",
                    "--build-arg", f"SOURCE_DATE_EPOCH={release.epoch}", "--build-arg", f"VERSION={release.version}", "-t", NAME, Path(name) / "context")
        builder.run("image", "export", "--format", "docker", NAME, "-o", target)
    say("compressing the image")
    subprocess.run(["gzip", "--no-name", target], check=True)
    return [target.with_suffix(".tar.gz")]
