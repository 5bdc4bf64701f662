"""The engines of the Docker tests leave nothing behind, in every case."""
import os
import unittest
from pathlib import Path

import engines
from ripcord_test import Config, only_on


def traces(engine):
    """Remains of an engine in the kernel and on disk."""
    mounts = [l for l in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines() if engine.name in l]
    cgroups = [path for path, _, _ in os.walk("/sys/fs/cgroup") if engine.name in path]
    return [*engine.processes(), *mounts, *cgroups, *Path("/run/netns").glob(engine.name), *filter(Path.exists, [engine.place])]


@only_on("docker", "podman")
class Fixture(unittest.TestCase):

    def run_box(self, engine):
        made = engine.api("POST", "/containers/create?name=box", {"Image": engines.IMAGE, "Cmd": ["sleep", "1000"]})
        self.assertEqual(made.status, 201, made)
        started = engine.api("POST", f"/containers/{made.json()['Id']}/start")
        self.assertEqual(started.status, 204, started)

    def test_killed_engine_with_a_running_container_leaves_nothing(self):
        with type(Config.backend)(size=400) as engine:
            self.run_box(engine)
            engine.kill()
        self.assertEqual(traces(engine), [])
