"""Debian packages: ripcord, libripcord0, libripcord-dev and their debug symbols."""
import os
import shutil
import subprocess
from datetime import datetime, timezone
from pathlib import Path

from common import HERE, output_of, say

WORK = HERE / "build-deb"

CHANGELOG = """ripcord ({version}) unstable; urgency=medium

  * Built from commit {commit}.

 -- {maintainer}  {date}
"""


def maintainer():
    for line in (HERE / "packaging" / "debian" / "control").read_text(encoding="utf-8").splitlines():
        if line.startswith("Maintainer: "):
            return line.removeprefix("Maintainer: ")
    raise SystemExit("dist: packaging/debian/control names no maintainer")


def copy_sources(target):
    """All files that git knows, as they are in the tree."""
    for name in output_of("git", "-C", HERE, "ls-files", "-z").split("\0"):
        if name and (HERE / name).exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(HERE / name, target / name)


def add_debian(target, release):
    shutil.copytree(HERE / "packaging" / "debian", target / "debian")
    date = datetime.fromtimestamp(release.epoch, timezone.utc).strftime("%a, %d %b %Y %H:%M:%S +0000")
    text = CHANGELOG.format(version=release.version, commit=release.git("rev-parse", "HEAD"), maintainer=maintainer(), date=date)
    (target / "debian" / "changelog").write_text(text, encoding="utf-8")


def make(release):
    shutil.rmtree(WORK, ignore_errors=True)
    source = WORK / "ripcord"
    source.mkdir(parents=True)
    copy_sources(source)
    add_debian(source, release)
    say("building the Debian packages")
    env = {**release.environment(), "DEB_BUILD_OPTIONS": f"parallel={os.cpu_count()}"}
    done = subprocess.run(["dpkg-buildpackage", "-b", "-us", "-uc"], cwd=source, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False)
    (WORK / "log").write_text(done.stdout, encoding="utf-8")
    if done.returncode != 0:
        raise SystemExit(f"dist: dpkg-buildpackage failed:\n{done.stdout[-8000:]}")
    made = []
    for path in sorted(WORK.glob("*.deb")):
        shutil.copyfile(path, release.out / path.name)
        made.append(Path(release.out / path.name))
    return made
