"""What the programs of tools/dist share."""
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parents[2]


def say(text):
    print(f"dist: {text}", file=sys.stderr, flush=True)


def output_of(*argv):
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def cache_folder():
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    path = base / "ripcord"
    path.mkdir(parents=True, exist_ok=True)
    return path
