"""The packages on whole machines: Debian 12 and 13 with systemd and cgroup v2, in virtual machines without a network."""
import re
import subprocess
import sys
import unittest
from pathlib import Path

from tarball_fixture import dist, folder, the_file
from test_debian import TICKS, newer, package

sys.path.append(str(Path(__file__).resolve().parents[1] / "vm"))

import image  # noqa: E402  (found through the line above)
import machine  # noqa: E402

LEFT = """
find / -xdev -path '*ripcord*' ! -path /etc/ripcord-test-machine ! -path '/root/*' ! -path '/home/*' ! -path '/proc/*' ! -path '/usr/*.pyc'
find /sys/fs/cgroup -path '*ripcord*'
systemctl list-units --all --plain --no-legend '*ripcord*'
nft list tables | grep ripcord
ip -brief link | grep '^rc'
ps -eo comm= | grep ripcord
true
"""


class Debian(unittest.TestCase):
    suite = "bookworm"

    def setUp(self):
        place = folder(self)
        newer(place, package())
        drive = place / "packages.tar"
        words = ["-C", dist(), package().name, the_file("*-linux-x86_64.tar.xz").name, "-C", place, "ripcord_99.0_amd64.deb"]
        subprocess.run(["tar", "-cf", drive, *words], check=True)
        self.m = machine.Machine(image.make(self.suite), place / "console")
        self.addCleanup(self.m.stop)
        self.m.start(drives=[drive])
        self.m.wait()
        self.m.must("mkdir packages && tar -C packages -xf /dev/vdb")

    def daemon(self):
        return self.m.must("systemctl show --property MainPID --value ripcord").strip()

    def ticks(self):
        return self.m.must("ripcord logs box").splitlines()

    def assert_goes_on(self, what):
        """No line of the command in the sandbox is lost, and it writes more."""
        before = len(self.ticks())
        self.m.must("sleep 3")
        found = self.ticks()
        self.assertGreater(len(found), before, what)
        self.assertEqual(found, [f"tick {i}" for i in range(1, len(found) + 1)], what)

    def assert_nothing_left(self, *allowed):
        left = [line for line in self.m.must(LEFT).splitlines() if line not in allowed]
        self.assertEqual(left, [])

    def test_package(self):
        self.m.must("dpkg -i packages/ripcord_0*.deb </dev/null")
        self.assertEqual(self.m.must("systemctl is-active ripcord; systemctl is-enabled ripcord").split(), ["active", "enabled"])
        self.assertNotRegex(self.m.must("ripcord doctor"), "(?m)^fail")
        self.assertEqual(self.m.must("ripcord run --memory 64M -- echo works"), "works\n")
        self.profile()
        self.m.must("ripcord up box && ripcord exec box -- sh -c 'echo kept >kept'")
        self.m.must(f"ripcord exec box --detach -- sh -c '{TICKS}'")
        old = self.daemon()
        self.m.must("dpkg -i packages/ripcord_99*.deb </dev/null")
        self.assertNotEqual(self.daemon(), old)
        self.assert_goes_on("an upgrade")
        self.m.must("systemctl restart ripcord")
        self.assert_goes_on("a restart")
        self.m.must("dpkg --remove ripcord </dev/null")
        self.assertEqual(self.m.must("ps -eo args | grep '[r]ipcord' || true"), "")
        self.m.must("dpkg -i packages/ripcord_0*.deb </dev/null")
        self.assertEqual(self.m.must("ripcord exec box -- cat kept"), "kept\n")
        self.m.must("dpkg --purge ripcord </dev/null")
        self.assert_nothing_left()

    def profile(self):
        """Debian 12 has AppArmor 3, which has no rule for user namespaces."""
        if self.suite == "bookworm":
            self.assertEqual(self.m.must("ls /etc/apparmor.d | grep ripcord || true"), "")
        elif self.m.must("cat /sys/module/apparmor/parameters/enabled").strip() == "Y":
            self.assertRegex(self.m.must("cat /sys/kernel/security/apparmor/profiles"), r"(?m)^ripcord \(unconfined\)$")

    def test_archive(self):
        self.m.must("cd packages && tar -xf ripcord-*.tar.xz && cd ripcord-*/ && ./install")
        self.m.must("systemctl daemon-reload && systemctl enable --now ripcord")
        self.assertEqual(self.m.must("ripcord run -- sh -c 'echo works; hostname'").split()[0], "works")
        self.m.must("ripcord up box")
        self.assertIn("still running", self.m.must("packages/ripcord-*/install --uninstall 2>&1 || true"))
        self.m.must("ripcord rm --force box && systemctl disable --now ripcord")
        self.m.must("packages/ripcord-*/install --uninstall && rm -rf /var/lib/ripcord && systemctl daemon-reload")
        self.own_prefix()
        self.assert_nothing_left()

    def own_prefix(self):
        """An ordinary user with subordinate ids."""
        self.m.must("cp -r packages/ripcord-*/ /home/agent/archive && chown -R agent: /home/agent/archive")
        self.m.must("./archive/install && ~/.local/bin/ripcord run -- id -un", user="agent")
        done = self.m.must("~/.local/bin/ripcord run --user 0 -- id -u; kill $(cat /run/user/1000/ripcord/daemon.lock)", user="agent")
        self.assertRegex(done, r"(?m)^0$")
        self.m.must("while pgrep -u agent ripcord; do sleep 0.2; done; ./archive/install --uninstall", user="agent")


class Trixie(Debian):
    suite = "trixie"
