"""Digest-only contexts: the builder gets the files that it asks for, and the images equal those of full contexts."""
import hashlib
import io
import os
import tarfile
import time
import unittest

from ripcord_test import only_on
from test_builder import BuildCase
from test_images import BUSYBOX

DOCKERFILE = """FROM base:1
COPY big.bin /a/
COPY link.bin /b/
COPY same/ /same/
RUN --mount=type=bind,target=/context cat /context/sub/other.bin > /c
"""


def big(text):
    return text * 9000


@only_on("native")
@unittest.skipUnless(os.path.exists(BUSYBOX), "busybox is not installed")
class DigestOnly(BuildCase):
    def fill(self, text):
        self.file("big.bin", big(text))
        self.file("same/big.bin", big(text))
        self.file("same/small", "small")
        self.file("sub/other.bin", big("other"))
        self.file("nobody/asks.bin", big("for it"))
        (self.context / "link.bin").unlink(missing_ok=True)
        (self.context / "link.bin").symlink_to("sub/other.bin")

    def assert_holds(self, text):
        self.assertEqual(self.sh("cat /a/big.bin /b/link.bin /same/big.bin /same/small /c"),
                         big(text) + big("other") + big(text) + "small" + big("other"))

    def test_what_is_left_out_is_asked_for(self):
        self.fill("one")
        out, first = self.build(DOCKERFILE)
        self.assertEqual(out.count("] COPY big.bin"), 1, out)
        self.assertNotIn("digest-only", out)
        self.assert_holds("one")
        out, again = self.build(DOCKERFILE)
        self.assertEqual((again, out.count("CACHED")), (first, 4), out)
        self.fill("two")
        self.assertNotEqual(self.build(DOCKERFILE)[1], first)
        self.assert_holds("two")
        self.fill("one")  # the same as the first time: nothing has to be sent
        self.assertEqual(self.build(DOCKERFILE)[1], first)
        self.assert_nothing_left()

    def test_digests_are_kept_and_a_change_that_hides_is_seen(self):
        """Same size, same mtime: the ctime shows the change."""
        self.fill("one")
        time.sleep(2.1)  # digests of files that changed just now are not kept
        first = self.build(DOCKERFILE)[1]
        kept, = (self.root.path / "state" / "digests").iterdir()
        before = kept.read_bytes()
        self.assertEqual(self.build(DOCKERFILE)[1], first)
        self.assertEqual(kept.read_bytes(), before)
        file = self.context / "big.bin"
        was = file.stat()
        file.write_text(big("two"))
        os.utime(file, ns=(was.st_atime_ns, was.st_mtime_ns))
        self.assertEqual((file.stat().st_size, file.stat().st_mtime_ns), (was.st_size, was.st_mtime_ns))
        self.assertNotEqual(self.build(DOCKERFILE)[1], first)
        self.assertEqual(self.sh("cat /a/big.bin"), big("two"))
        self.assertLess(kept.stat().st_size, len(before))

    def test_only_a_digest_only_context_has_files_left_out(self):
        """In other contexts the attribute means nothing, and an empty file is an empty file."""
        digits, context = hashlib.blake2b(b"12345", digest_size=32).hexdigest(), io.BytesIO()
        with tarfile.open(fileobj=context, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for name, text, attributes in (("Dockerfile", b"FROM scratch\nCOPY file /\n", {}),
                                           ("file", b"", {"SCHILY.xattr.user.ripcord.content": f"5 {digits}"})):
                info = tarfile.TarInfo(name)
                info.size, info.pax_headers = len(text), attributes
                archive.addfile(info, io.BytesIO(text))
        full, digest_only = (self.root.http("POST", "/v1/images/build?tag=x:1", context.getvalue(), {"Content-Type": kind}).body.decode()
                             for kind in ("application/x-tar", "application/vnd.ripcord.thin-context"))
        self.assertIn('"image"', full.splitlines()[-1], full)
        self.assertIn('"conflict"', digest_only.splitlines()[-1], digest_only)
        self.assertIn(f'{{"event":"need","contents":["{digits}"]}}', digest_only)
        self.assertNotIn(digits, full)
