"""A fresh sandbox: what people and agents type first works, or says what to do instead."""
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import installers
from ripcord_test import needs
from test_packages import PackagesCase

NODE = unittest.skipUnless(shutil.which("npm"), "needs npm")


@needs("host image")
class OutOfTheBox(PackagesCase):
    def setUp(self):
        super().setUp()
        self.root.ok("up", "a")

    def says(self, script, *options, code=0):
        """Both streams of a script, which must end with this status."""
        done = self.root.run("exec", "a", *options, "--", "bash", "-c", f"exec 2>&1; {script}")
        self.assertEqual(done.code, code, done)
        return done.text

    # ---- Python ----

    def test_python(self):
        self.assertEqual(self.says("python -c 'import sys; print(sys.prefix)'"), "/usr\n")
        self.assertRegex(self.says("python -m venv v && v/bin/python -c 'import sys; print(sys.prefix)' && . v/bin/activate && python -V && pip --version"),
                         r"^/home/agent/v\nPython 3\S+\npip .* from /home/agent/v/")
        self.assertEqual(self.says("printf '#!/usr/bin/env python\\nprint(42)\\n' > s && chmod +x s && ./s"), "42\n")

    def test_pip(self):
        self.up.add_wheel("demo", "1.5", scripts={"demo-tool": "#!/bin/sh\necho tool of demo\n"})
        for shell in ("bash -c", "bash -lc"):  # a login shell sets PATH anew
            said = self.says(f"{shell} 'pip install demo && demo-tool && pip show -q demo && pip uninstall -y demo' && ! python -c 'import demo'")
            self.assertIn("tool of demo\n", said)
            self.assertNotIn("WARNING", said)
        said = self.says("HOME=/root pip install --no-cache-dir demo && python -c 'import demo'", "--user", "0")
        self.assertNotIn("WARNING", said)

    def test_pip_install_of_a_folder(self):
        self.says("mkdir p && cd p && echo 'value = 7' > mine.py && printf 'from setuptools import setup\\nsetup(name=\"mine\", py_modules=[\"mine\"])\\n' > setup.py && "
                  "pip install --no-build-isolation -e .")
        self.assertEqual(self.says("cd / && python -c 'import mine; print(mine.value)' && echo 'value = 8' > ~/p/mine.py && python -c 'import mine; print(mine.value)'"),
                         "7\n8\n")
        self.assertIn("Successfully uninstalled mine", self.says("pip uninstall -y mine"))

    # ---- Node.js ----

    @NODE
    def test_npm_says_only_what_matters(self):
        self.up.add_npm("demo", "1.5.0", bin={"demo": "index.js"})
        for script in ("npm --version", "npm config get registry", "mkdir n && cd n && npm init -y && npm install demo && npm ls && npm run",
                       "npx --yes -p demo -c 'command -v demo'"):
            self.assertNotIn("warn", self.says(script).lower(), script)

    @NODE
    def test_npm_commands(self):
        self.up.add_npm("demo", "1.5.0", bin={"demo": "index.js"})
        self.assertNotIn("warn", self.says("npm install -g demo").lower())
        self.assertEqual(self.says("command -v demo; bash -lc 'command -v demo'; npm ls -g --parseable | tail -1; npm uninstall -g demo >/dev/null; command -v demo || echo gone"),
                         "/home/agent/.local/bin/demo\n" * 2 + "/home/agent/.local/lib/node_modules/demo\ngone\n")

    @NODE
    def test_pnpm(self):
        """Versions that read other variables: each has its store in the cache, and none makes npm complain."""
        if not installers.folder()[0]:
            self.skipTest(installers.folder()[1])
        self.up.add_npm("demo", "1.5.0")
        self.root.ok("up", "a", *self.tools())
        for i, pnpm in enumerate(("node /tools/pnpm/node_modules/pnpm/bin/pnpm.cjs", "/tools/pnpm-now/node_modules/.bin/pnpm")):
            said = self.says(f"mkdir n{i} && cd n{i} && echo '{{}}' > package.json && {pnpm} add demo && {pnpm} store path")
            self.assertRegex(said, r"\n/cache/pnpm/store/v\d+\n$")

    # ---- git ----

    def test_git(self):
        commit = "git init -q r && cd r && echo x > f && git add f && git commit -qm first && git log --format='%an <%ae> %s' && git branch --show-current"
        self.assertEqual(self.says(commit), "agent <agent@sandbox.invalid> first\nmain\n")
        self.assertEqual(self.says("git config --global user.name Me && cd r && git config user.email me@x && git commit -q --amend --reset-author -m again && "
                                   "git log --format='%an <%ae> %s'"), "Me <me@x> again\n")
        self.assertEqual(self.says("cd /home/agent/r && git log --format=%s", "--user", "0"), "again\n")  # another owner

    def test_git_in_a_mounted_folder(self):
        with tempfile.TemporaryDirectory(dir="/root", prefix="ripcord-test-") as folder:
            Path(folder).chmod(0o755)
            script = "git init -q && echo x > f && git add f && git -c user.name=h -c user.email=h@x commit -qm host"
            subprocess.run(["sh", "-c", f"{script} && chown -R 1000:1000 ."], cwd=folder, check=True)
            self.root.ok("up", "a", "--mount", f"{folder}:/work")
            self.assertEqual(self.says("git clone -q /work c && cd c && git log --format=%s && cd /work && git log --format=%s && echo y >> f && "
                                       "git commit -qam inside && git log -1 --format=%an"), "host\nhost\nagent\n")
            self.assertEqual(self.says("cd /work && git status --short && git clone -q /work /tmp/d && cat /tmp/d/f", "--user", "0"), "x\ny\n")

    # ---- packages of the system ----

    def test_package_managers_say_what_to_do(self):
        for options in (), ("--user", "0"):
            for command in ("apt install jq", "apt-get update", "sudo apt-get install -y jq"):
                said = self.says(command, *options, code=100)
                for words in ("cannot be installed in this sandbox", "pip install", "npm install", "ripcord image build"):
                    self.assertIn(words, said)
        self.assertIn("read-only", self.says("apt install jq", "--user", "0", code=100))
        self.assertRegex(self.says("apt --version"), r"^apt \d")

    def test_sudo_says_what_to_do(self):
        said = self.says("sudo -n make install", code=1)
        for words in ("cannot become root", "without sudo", "ripcord exec --user root"):
            self.assertIn(words, said)
        self.assertEqual(self.says("sudo -E WHAT=env sh -c 'echo $WHAT; id -u'", "--user", "0"), "env\n0\n")
        self.assertIn("option '-x'", self.says("sudo -x true", "--user", "0", code=1))

    # ---- users ----

    def test_users(self):
        said = self.says("adduser --disabled-password --gecos '' bob && useradd -m carl && echo carl:secret | chpasswd && "
                         "su bob -c 'id -un; cd; pwd; ls -A' && su - carl -c 'id -un; echo $PATH' && deluser bob", "--user", "0")
        for words in ("bob\n/home/bob\n.bashrc\n.profile\n", "carl\n", "/home/carl/.local/bin:"):
            self.assertIn(words, said)
        self.assertNotIn("carl:secret", said)
        self.assertNotEqual(self.root.run("exec", "a", "--", "su", "carl", "-c", "id").code, 0)

    def test_what_the_host_has_wins(self):
        """Our commands only fill gaps of /usr/local; nothing of the host's is replaced."""
        ours = {"apt", "apt-get", "sudo", "python"}
        inside = set(self.says("ls /usr/local/bin").split())
        here = {p.name for p in Path("/usr/local/bin").iterdir()}
        self.assertTrue(here <= inside <= here | ours, inside ^ here)
        self.assertEqual(self.says("ls /usr/bin | wc -l"), f"{len(list(Path('/usr/bin').iterdir()))}\n")
