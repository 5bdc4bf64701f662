"""images/default/Dockerfile builds on both engines and gives what a sandbox needs.

Built on the tests' own base: the steps are the product's, the packages are this machine's.
"""
import sys
import unittest
from pathlib import Path

import engines
from ripcord_test import Config, only_on

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import image  # noqa: E402  (found through the line above)

LOOK = "id -un; id -u; pwd; stat -c %u:%a /cache /home/agent; touch /cache/x && echo writable; echo $LANG"


@only_on("docker", "podman")
class DefaultImage(unittest.TestCase):

    def run_in(self, name, *argv):
        """The output of a command in a container that is removed again."""
        engine = Config.backend
        made = engine.api("POST", "/containers/create",
                          {"Image": name, "Cmd": argv, "HostConfig": {"NetworkMode": "none"}})
        self.assertEqual(made.status, 201, made)
        box = f"/containers/{made.json()['Id']}"
        try:
            self.assertEqual(engine.api("POST", f"{box}/start").status, 204)
            engine.api("POST", f"{box}/wait")
            log = engine.api("GET", f"{box}/logs?stdout=1&stderr=1").body
        finally:
            engine.api("DELETE", f"{box}?force=1")
        return demultiplex(log)

    def test_agent_owns_home_and_cache(self):
        """One build for all looks: a second one on the same Podman did not end. The tests' base has neither git nor npm."""
        name = "ripcord/dockerfile-test:latest"
        image.build(Config.backend, engines.IMAGE, name)
        self.addCleanup(Config.backend.api, "DELETE", f"/images/{name}?force=1")
        self.assertEqual(self.run_in(name, "sh", "-c", LOOK), "agent\n1000\n/home/agent\n1000:755\n1000:755\nwritable\nC.UTF-8\n")
        self.assertRegex(self.run_in(name, "sh", "-c", "python -V; stat -c '%U %a %n' ~/.npmrc ~/.config ~/.config/pnpm/rc; grep email /etc/gitconfig"),
                         r"^Python 3\S+\nagent 644 \S+\nagent 755 \S+\nagent 644 \S+\n\temail = agent@sandbox.invalid\n$")
        for command in ("apt install jq", "apt-get install jq", "sudo apt-get install jq"):
            said = self.run_in(name, "sh", "-c", f"exec 2>&1; {command}; echo $?")
            self.assertIn("this user is not root", said)
            self.assertTrue(said.endswith("\n100\n"), said)
        self.assertIn("ripcord exec --user root", self.run_in(name, "sh", "-c", "sudo make"))


def demultiplex(data):
    """The text of a log: frames of eight bytes of head and a payload."""
    text = b""
    while data:
        size = int.from_bytes(data[4:8], "big")
        text, data = text + data[8:8 + size], data[8 + size:]
    return text.decode()
