"""What the native builder reaches beyond its store and its context, and what it does not."""
import os
import unittest

from ripcord_test import only_on
from test_builder import BuildCase
from test_images import BUSYBOX
from test_network import can_open


@only_on("native")
@unittest.skipUnless(os.path.exists(BUSYBOX), "busybox is not installed")
class Network(BuildCase):
    ROUTES = "grep -c eth0 /proc/net/route || echo no route"

    @unittest.skipUnless(can_open(), "network 'open' cannot be made here")
    def test_open_is_for_steps_that_do_not_refuse_it(self):
        text = (f"FROM base:1\nRUN --network=default echo $({self.ROUTES}) there; cat /etc/resolv.conf\n"
                f"RUN --network=none echo $({self.ROUTES}) here; ls /etc/resolv.conf\n")
        result = self.try_build(text, "--network", "open")
        said = result.err.decode()
        self.assertIn("no route here", said)
        self.assertNotIn("no route there", said)
        self.assertIn("nameserver", said)
        self.assert_exit(result, 2)  # the place for resolv.conf has not become a part of the image
        self.assertIn("Dockerfile:3", said)
        self.assert_nothing_left()
        result = self.try_build(text.replace("; ls /etc/resolv.conf", ""))
        self.assertIn("no route there", result.err.decode(), "another network is another step")

    def test_modes(self):
        self.assertIn("no route", self.build(f"FROM base:1\nRUN {self.ROUTES}\n", "--network", "packages")[0])
        self.assert_exit(self.try_build("FROM base:1\n", "--network", "host"), 2)
        result = self.try_build("FROM base:1\nRUN echo ran\nRUN --network=host true\n")
        self.assert_exit(result, 7)
        self.assertIn("line 3, column 5", result.err.decode())
        self.assertIn("--network open", result.err.decode())
