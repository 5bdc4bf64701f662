"""Builds the cases of test/dockerfile with a real BuildKit and compares its configuration with that of our parser.

The frontend of Docker 20.10 is older than the language that we read. Cases that it does not know are marked in
cases.txt; test/dockerfile/test_cases.py compares them with recorded results of BuildKit 0.34. This test runs a part of
the other cases, and all of them with --soak.
"""
import http.client
import io
import json
import sys
import tarfile
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

from ripcord_test import Config, only_on

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "dockerfile"))

import cases  # noqa: E402  (found through the line above)

EVERY = 8
FILES = {"a": b"a\n", "b": b"b\n", "d/e": b"e\n"}


def context(dockerfile):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, content in {"Dockerfile": dockerfile, **FILES}.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return data.getvalue()


def build(engine, case):
    """The image's configuration, or the error of the build."""
    query = f"version=2&buildargs={quote(json.dumps(case.args))}&target={quote(case.target)}"
    try:
        reply = engine.api("POST", f"/build?{query}", context(case.dockerfile),
                           headers={"Content-Type": "application/x-tar"}, timeout=120)
    except (http.client.HTTPException, OSError) as e:
        return {"broken": repr(e)}
    lines = [json.loads(line) for line in reply.body.splitlines() if line.strip()]
    for line in lines:
        if "errorDetail" in line or "error" in line or "message" in line:
            return {"error": str(line)}
    image = next(line["aux"]["ID"] for line in lines if line.get("id") == "moby.image.id")
    found = engine.api("GET", f"/images/{image}/json").json()
    return {"config": cases.normal(found["Config"]), "image": image}


def agree(ours, theirs):
    if "broken" in theirs:
        return False
    if "error" in ours or "error" in theirs:
        return ("error" in ours) == ("error" in theirs)
    return cases.normal(ours["config"]) == theirs["config"]


@only_on("docker")
class RealBuildKit(unittest.TestCase):
    def test_buildkit_agrees_with_our_parser(self):
        known = [c for c in cases.load() if not {"newer", "differs"} & set(c.tags)]
        chosen = known if Config.soak else known[::EVERY]
        program = Config.bin / "test" / "unit" / "dockerfile-config"
        if not program.exists():
            self.skipTest(f"{program} is not built")
        with ThreadPoolExecutor(4) as pool:
            theirs = list(pool.map(lambda c: build(Config.backend, c), chosen))
        for image in {t["image"] for t in theirs if "image" in t}:  # equal ones have one name
            Config.backend.api("DELETE", f"/images/{image}?force=1")
        wrong = [f"{c.name}: ours {c.ours(program)}, BuildKit's {t}" for c, t in zip(chosen, theirs)
                 if not agree(c.ours(program), t)]
        self.assertEqual(wrong, [], "\n" + "\n".join(wrong))
