#!/usr/bin/env python3
"""Makes packages of ripcord for people, with checksums, in build/dist.

    tools/dist/dist.py [tarball] [deb] [image] [--out DIR]     without a name: all three

Two runs on the same commit give the same bytes, in whatever folder the tree lies: times come from the commit, names are
sorted, owners are root, and paths of this machine do not reach the programs.
"""
import argparse
import hashlib
import os
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

from common import HERE, output_of, say

import deb
import image
import tarball

KINDS = {"tarball": tarball.make, "deb": deb.make, "image": image.make}


class Release:
    """What all packages of one run have in common."""

    def __init__(self, out):
        self.out, self.tree = out, None
        self.base = self.declared_version()
        self.epoch = int(os.environ.get("SOURCE_DATE_EPOCH") or self.git("log", "-1", "--format=%ct"))
        self.version = self.full_version()

    @staticmethod
    def git(*argv):
        return output_of("git", "-C", HERE, *argv).strip()

    @staticmethod
    def declared_version():
        for line in (HERE / "meson.build").read_text(encoding="utf-8").splitlines():
            if line.strip().startswith("version:"):
                return line.split("'")[1]
        raise SystemExit("dist: meson.build declares no version")

    def full_version(self):
        """The declared version for the commit with its tag. Other commits come before it, in the order of their times."""
        if f"v{self.base}" in self.git("tag", "--points-at", "HEAD").split():
            return self.base
        moment = datetime.fromtimestamp(self.epoch, timezone.utc).strftime("%Y%m%d%H%M%S")
        return f"{self.base}~git{moment}.{self.git('rev-parse', '--short=9', 'HEAD')}"

    def environment(self):
        """For builds. ccache must not return an object that another folder has compiled: it holds that folder's paths."""
        kept = {k: v for k, v in os.environ.items() if not k.endswith("FLAGS") and k not in ("DESTDIR", "PREFIX")}
        return {**kept, "SOURCE_DATE_EPOCH": str(self.epoch), "LC_ALL": "C.UTF-8", "TZ": "UTC", "CCACHE_NOBASEDIR": "1",
                "CCACHE_BASEDIR": "", "CCACHE_HASHDIR": "1"}


def write_checksums(out, files):
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(files)]
    (out / "SHA256SUMS").write_text("".join(lines), encoding="ascii")


def options():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("kinds", nargs="*", metavar="tarball|deb|image", help="what to make (default: all)")
    p.add_argument("--out", type=Path, default=HERE / "build" / "dist", help="folder for the results (default: build/dist)")
    opts = p.parse_args()
    unknown = [k for k in opts.kinds if k not in KINDS]
    if unknown:
        p.error(f"unknown package '{unknown[0]}': tarball, deb or image")
    return opts


def main():
    opts = options()
    os.umask(0o022)
    opts.out.mkdir(parents=True, exist_ok=True)
    for old in opts.out.iterdir():
        old.unlink()
    release = Release(opts.out.resolve())
    if release.git("status", "--porcelain", "--untracked-files=no"):
        say("the tree has changes that are not committed: the packages contain them, under the version of the last commit")
    made = []
    try:
        for kind in opts.kinds or KINDS:
            made += KINDS[kind](release)
    except subprocess.CalledProcessError as e:
        raise SystemExit(f"dist: {' '.join(map(str, e.cmd))} failed: {e.stderr or e.stdout or ''}") from e
    write_checksums(release.out, made)
    for path in made:
        say(f"{path.relative_to(HERE) if path.is_relative_to(HERE) else path} ({path.stat().st_size / 1e6:.1f} MB)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
