"""The image of the daemon in Docker and Podman, with the options of docs/install.md."""
import json
import re
import subprocess
import time
import unittest
from pathlib import Path

import engines
from tarball_fixture import need_root, the_file

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "install.md"


def documented_options():
    """The words of the line in the document, without those that name the container and the image."""
    line = re.search(r"\$ docker run -d --init --name ripcord (.*?)\n    ripcord/daemon\n", DOCUMENT.read_text("utf-8"), re.S)
    return line.group(1).replace("\\", " ").split()


class OnDocker(unittest.TestCase):
    kind = engines.Docker
    options = staticmethod(documented_options)

    def setUp(self):
        need_root()
        archive = the_file("*-image-x86_64.tar.gz")
        self.engine = self.enterContext(self.kind(image=False))
        self.call("load", "-i", archive)

    def words(self, *argv):
        return [*self.engine.cli, *argv]

    def call(self, *argv, code=0, timeout=300):
        done = subprocess.run(self.words(*map(str, argv)), capture_output=True, text=True, check=False, timeout=timeout, env=self.engine.env())
        if code is not None:
            self.assertEqual(done.returncode, code, f"{argv}: {done.stdout}{done.stderr}")
        return done

    def start(self, options):
        self.call("run", "-d", "--init", "--name", "ripcord", *options, "ripcord/daemon")
        end = time.monotonic() + 60
        while self.inside("ripcord", "--no-start", "ls", code=None).returncode != 0:
            self.assertLess(time.monotonic(), end, self.call("logs", "ripcord").stderr)
            time.sleep(0.2)

    def inside(self, *argv, **kwargs):
        return self.call("exec", "ripcord", *argv, **kwargs)

    def test_documented_line(self):
        self.start(self.options())
        self.assertNotRegex(self.inside("ripcord", "doctor").stdout, "(?m)^fail")
        done = self.inside("ripcord", "run", "--", "python3", "-c", "print('hello'); raise SystemExit(3)", code=3)
        self.assertEqual(done.stdout, "hello\n")
        self.assertIn("uid=0", self.inside("ripcord", "run", "--user", "0", "--", "id").stdout)
        self.inside("ripcord", "up", "box")
        self.inside("ripcord", "exec", "box", "--", "sh", "-c", "echo kept >kept")
        self.inside("sh", "-c", "cd /tmp && printf 'FROM host\\nRUN echo made >/srv/x\\n' >Dockerfile && ripcord image build -t made .")
        self.replaced()
        self.assertEqual(self.inside("ripcord", "run", "--image", "made", "--", "cat", "/srv/x").stdout, "made\n")

    def replaced(self):
        """As in an upgrade: another container on the same volume."""
        self.call("rm", "-f", "ripcord")
        self.start(self.options())
        self.assertEqual(self.inside("ripcord", "exec", "box", "--", "cat", "kept").stdout, "kept\n")

    def test_each_option_is_needed(self):
        """AppArmor's option has no effect on machines without it, and the volume only matters later."""
        needed = [word for word in self.options() if word.startswith(("seccomp=", "systempaths="))]
        self.assertEqual(len(needed), 2)
        for left_out in needed:
            options = list(self.options())
            at = options.index(left_out)
            del options[at - 1:at + 1]
            with self.subTest(left_out):
                self.call("rm", "-f", "ripcord", code=None)
                self.start(options)
                done = self.inside("ripcord", "run", "--", "true", code=125)
                self.assertIn(left_out.partition("=")[0], done.stderr, "the refusal names the option")

    def test_contents(self):
        config = json.loads(self.call("image", "inspect", "ripcord/daemon").stdout)[0]
        labels = config["Config"]["Labels"]
        self.assertEqual(labels["org.opencontainers.image.version"], the_file("*-image-x86_64.tar.gz").name.split("-image-")[0].removeprefix("ripcord-"))
        listed = self.call("run", "--rm", "--entrypoint", "sh", "ripcord/daemon", "-c", "ls /usr/local/share/doc/ripcord /usr/local/libexec/ripcord").stdout
        for word in ("sbom.spdx.json", "libssl-dev.txt", "ripcord-shim", "locale"):
            self.assertIn(word, listed)
        strange = self.call("run", "--rm", "--entrypoint", "find", "ripcord/daemon", "/usr/local", "-newermt", "2000-01-01", "!", "-user", "root").stdout
        self.assertEqual(strange, "")
