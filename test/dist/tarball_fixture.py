"""The archive of build/dist, unpacked once for all tests of a run."""
import atexit
import os
import shutil
import subprocess
import tempfile
import threading
import unittest
from pathlib import Path

UNPACKED, LOCK = [], threading.Lock()


def dist():
    return Path(os.environ["RIPCORD_DIST"])


def the_file(pattern):
    found = sorted(dist().glob(pattern))
    if len(found) != 1:
        raise unittest.SkipTest(f"{dist()} has no {pattern}: run ./dev dist first")
    return found[0]


def unpacked():
    """The top folder of the unpacked archive. Tests do not change it."""
    with LOCK:
        if not UNPACKED:
            place = Path(tempfile.mkdtemp(prefix="ripcord-archive-"))
            atexit.register(shutil.rmtree, place)
            subprocess.run(["tar", "-xf", the_file("*-linux-x86_64.tar.xz"), "-C", place], check=True)
            UNPACKED.extend(place.iterdir())
        return UNPACKED[0]


def need_root():
    if os.geteuid() != 0:
        raise unittest.SkipTest("another root file system needs root")


def folder(test, prefix="ripcord-dist-test-"):
    """A temporary folder that goes with the test. Its mode is that of a root file system."""
    place = Path(tempfile.mkdtemp(prefix=prefix))
    test.addCleanup(shutil.rmtree, place)
    place.chmod(0o755)
    return place


def names_below(place):
    """Files below the folder, as relative paths."""
    return sorted(str(p.relative_to(place)) for p in place.rglob("*") if not p.is_dir() or p.is_symlink())
