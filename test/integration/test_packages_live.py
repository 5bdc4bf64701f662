"""Installs from the public registries, where they answer: what one sandbox has fetched, another gets from the store."""
import shutil
import unittest

import installers
from ripcord_test import Config, TestCase, only_on
from test_packages import NODE_TOOLS, PYTHON_TOOLS, PackagesCase


class Live(PackagesCase):
    """The public registries, where they answer."""

    def setUp(self):
        TestCase.setUp(self)
        reason = "not in a quick run" if Config.quick else installers.public_registries()
        if reason:
            self.skipTest(reason)
        self.root.configure("mounts.roots: [/usr, /root, /home]\n")
        self.start_sandbox("a")
        self.start_sandbox("b")

    def twice(self, eco, install, packages, tools):
        if Config.backend and not Config.soak:
            tools = tools[:1]  # what differs between engines, the first shows
        for tool, package in zip(tools, packages):
            for name in "ab":
                install(name, package, tool)
        second = self.root.ok("show", "b", "--json").json()["packages"][eco]
        self.assertEqual((second["bytes_upstream"], second["misses"]), (0, 0))
        self.assertGreater(second["hits"], 0)

    def live_pip(self, name, package, tool):
        self.shell(name, f"rm -rf /tmp/t && {PYTHON_TOOLS[tool]} --target /tmp/t {package} 2>&1 && ls /tmp/t/{package}*")

    def live_npm(self, name, package, tool):
        self.shell(name, f"rm -rf /tmp/n /tmp/c && mkdir /tmp/n && cd /tmp/n && echo '{{}}' > package.json && "
                   f"{NODE_TOOLS[tool]} {package} 2>&1 && ls node_modules/{package}/package.json")

    def test_pip(self):
        self.twice("pypi", self.live_pip, ("six", "idna", "certifi"), self.all_of(PYTHON_TOOLS))

    @only_on("native")
    def test_plain_pip_install(self):
        """What a newcomer types."""
        self.shell("a", "pip install requests && python3 -c 'import requests; requests.Session()' && normalizer --version")

    @only_on("native")
    @unittest.skipUnless(shutil.which("npm"), "needs npm")
    def test_plain_npm_install(self):
        """The same with npm, and with the tools that npm installs."""
        said = self.shell("a", "exec 2>&1; npm install -g cowsay yarn@1 && cowsay moo && npx --yes cowsay again && mkdir p && cd p && npm init -y && "
                          "npm install is-odd && yarn add is-number --silent --non-interactive && yarn --version", timeout=120)
        self.assertIn("< moo >", said)
        self.assertIn("< again >", said)
        self.assertNotIn("Unknown", said)  # what npm says of variables that it does not know

    @only_on("native")
    def test_plain_uv(self):
        """A uv from PyPI, used for a project and for a tool."""
        said = self.shell("a", "exec 2>&1; pip install -q uv && uv venv -q v && . v/bin/activate && uv pip install six && python -c 'import six; print(six.__name__)' && "
                          "uv tool install pycowsay && pycowsay moo", timeout=120)
        self.assertIn("\nsix\n", said)
        self.assertIn("< moo >", said)

    @unittest.skipUnless(shutil.which("npm"), "needs npm")
    def test_npm(self):
        self.twice("npm", self.live_npm, ("left-pad", "is-odd", "is-number"), self.all_of(NODE_TOOLS))
