"""Networks and registries that the native builder may use."""
import os
import unittest

import image_registries
from ripcord_test import only_on
from test_builder import BuildCase
from test_images import BUSYBOX, digest, entry, rootfs, tar
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


@only_on("native")
@unittest.skipUnless(image_registries.PROGRAM, "docker-registry is not installed")
@unittest.skipUnless(os.path.exists(BUSYBOX), "busybox is not installed")
class Bases(BuildCase):
    """Images that are not in the store are pulled from the registry in their name."""

    def setUp(self):
        super().setUp()
        self.registry = image_registries.RealRegistry()
        self.addCleanup(self.registry.close)

    def put(self, tag, word):
        image = image_registries.Image([rootfs(), tar(entry("word", data=word.encode()))], Env=["A=b"])
        self.registry.put("team/base", tag, image)
        return digest(image.manifest)

    def test_what_is_missing_is_pulled_once(self):
        name = f"{self.registry.host}/team/base"
        first = self.put("1", "one")
        text = f"FROM base:1 AS other\nFROM {name}:1\nCOPY --from={name}:1 /word /copied\nRUN cat /copied; echo $A\n"
        said, _ = self.build(text)
        self.assertIn(f"[internal] pull {name}:1", said)
        self.assertIn("oneb", said)
        self.put("1", "two")
        self.assertNotIn("pull", self.build(text)[0], "it is here")
        said, _ = self.build(text, "--pull", tag="made:2")
        self.assertEqual(said.count("[internal] pull"), 1, "once, though it is named twice")
        self.assertEqual(self.sh("cat /copied", "made:2"), "two")
        pinned = f"FROM {name}:1@{first}\nCOPY --from={name}@{first} /word /again\n"
        self.assertIn("pull", self.build(pinned, tag="made:3")[0])
        self.assertEqual(self.sh("cat /word /again", "made:3"), "oneone")
        self.assertNotIn("pull", self.build(pinned, "--pull", tag="made:3")[0], "a digest has nothing new")
        self.assertEqual(self.sh("cat /word", f"{name}:1"), "two", "the tag is what it was")

    def test_what_is_nowhere(self):
        for name, code in ((f"{self.registry.host}/none:1", 3), ("127.0.0.1:1/none:1", 8)):
            result = self.try_build(f"FROM base:1 AS x\nRUN echo ran\nFROM {name}\nCOPY --from=x /bin /b\n")
            self.assert_exit(result, code)
            self.assertIn("line 3, column 1", result.err.decode())
            self.assertIn("ripcord image pull", result.err.decode())
            self.assertNotIn("ran\n", result.err.decode().replace("RUN echo ran", ""))
        self.build(f"FROM {self.registry.host}/none:1 AS unused\nFROM base:1\n")
        self.assert_nothing_left()
