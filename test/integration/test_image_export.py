"""Images on their way out of the native engine's store: what other tools take, and what comes back the same."""
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import unittest
from pathlib import Path

from ripcord_test import Config, TestCase, only_on
from test_images import ImageCase, entry, rootfs, saved, tar


def layers_of(archive):
    """[{name: (type, mode, uid, gid, mtime, link or contents, attributes)}] of an OCI archive, bottom first."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as bundle:
        files = {m.name: bundle.extractfile(m).read() for m in bundle.getmembers()}
    for name, data in files.items():
        if name.startswith("blobs/"):
            assert hashlib.sha256(data).hexdigest() == name.rsplit("/", 1)[1], name

    def blob(descriptor):
        data = files["blobs/sha256/" + descriptor["digest"][7:]]
        assert len(data) == descriptor["size"]
        return data
    manifest = json.loads(blob(json.loads(files["index.json"])["manifests"][0]))
    config = json.loads(blob(manifest["config"]))
    assert [d["digest"] for d in manifest["layers"]] == config["rootfs"]["diff_ids"]
    return [tree(blob(d)) for d in manifest["layers"]], config


def tree(data):
    found = {}
    with tarfile.open(fileobj=io.BytesIO(data)) as layer:
        for m in layer.getmembers():
            body = layer.extractfile(m).read() if m.isreg() else m.linkname
            xattrs = {k: v for k, v in m.pax_headers.items() if k.startswith("SCHILY")}
            found[m.name] = (m.type, m.mode, m.uid, m.gid, int(m.mtime), body, xattrs)
    return found


class TestExport(ImageCase):
    def example(self):
        base = rootfs(entry("d", "d", mtime=77), entry("d/gone", data=b"1"), entry("o", "d"), entry("o/below", data=b"1"))
        upper = tar(entry("d", "d", mode=0o2770, uid=7, gid=9, mtime=1000), entry("d/.wh.gone"), entry("d/a", data=b"one", mtime=5),
                    entry("d/b", "h", "d/a"), entry("l", "l", "d/a", uid=3), entry("l2", "h", "l"),
                    entry("o", "d"), entry("o/.wh..wh..opq"), entry("o/above", data=b"2"),
                    entry("set", mode=0o4755, uid=65535, gid=1), entry("p" * 90 + "/" + "q" * 90, data=b"long"),
                    entry("x", data=b"x", pax_headers={"SCHILY.xattr.user.note": "hi = there", "SCHILY.xattr.user.a": "1"}))
        self.put_ok(saved([base, upper], Env=["A=b"], User="7", Labels={"k": "v"}))

    def export(self, name, *options):
        return self.root.ok("image", "export", name, *options).out

    def test_the_same_tree_comes_back(self):
        self.example()
        first = self.export("tool:1")
        layers, config = layers_of(first)
        self.assertEqual(config["config"], {"Env": ["A=b"], "User": "7", "Labels": {"k": "v"}})
        upper = layers[1]
        self.assertEqual(list(upper), sorted(upper, key=lambda n: [w.replace(".wh.", "", 1) if w != ".wh..wh..opq" else "" for w in n.split("/")]))
        self.assertEqual(upper["d"][1:5], (0o2770, 7, 9, 1000))
        self.assertEqual(upper["d/.wh.gone"][0], tarfile.REGTYPE)
        self.assertIn("o/.wh..wh..opq", upper)
        self.assertNotIn("o/.wh..wh..opq", layers[0])
        self.assertEqual((upper["d/b"][0], upper["d/b"][5]), (tarfile.LNKTYPE, "d/a"))
        self.assertEqual((upper["l2"][0], upper["l2"][5]), (tarfile.LNKTYPE, "l"))
        self.assertEqual(upper["l"][2], 3)
        self.assertEqual(upper["set"][1:4], (0o4755, 65535, 1))
        self.assertEqual(upper["x"][6], {"SCHILY.xattr.user.note": "hi = there", "SCHILY.xattr.user.a": "1"})
        self.assertEqual(upper["p" * 90 + "/" + "q" * 90][5], b"long")

        self.root.ok("image", "rm", "tool:1")
        self.put_ok(first)
        again = self.export("tool:1")
        self.assertEqual(hashlib.sha256(first).hexdigest(), hashlib.sha256(again).hexdigest())
        self.assertEqual(self.sh("tool:1", "ls /d /o; cat /d/b; stat -c %h /d/a"), "/d:\na\nb\n\n/o:\nabove\none2")

    def test_a_folder_and_a_file(self):
        self.put_ok(rootfs(entry("x", data=b"out")), "mine")
        work = Path(self.root.path)
        report = json.loads(self.root.ok("image", "export", "mine", "-o", f"{work}/layout/", "--json").out)
        self.assertEqual(sorted(os.listdir(work / "layout")), ["blobs", "index.json", "oci-layout"])
        self.assertGreater(report["bytes"], 10000)
        self.root.ok("image", "import", f"{work}/layout", "back")
        self.assertEqual(self.sh("back", "cat /x"), "out")
        again = self.root.run("image", "export", "mine", "-o", f"{work}/layout")
        self.assertEqual(again.code, 4, again)
        self.root.ok("image", "export", "mine", "-o", f"{work}/file.tar")
        self.assertEqual((work / "file.tar").read_bytes(), self.export("mine"))
        self.assertEqual(sorted(p.name for p in work.iterdir() if p.name.startswith("file")), ["file.tar"])

    def test_what_is_wrong_is_said_and_leaves_nothing(self):
        self.put_ok(rootfs(), "mine")
        work = Path(self.root.path)
        for code, words, argv in [(3, "no such image: 'nope'", ["nope", "-o", f"{work}/f"]), (2, "unknown format 'zip'; supported: oci, docker", ["mine", "--format", "zip"]),
                                  (2, "usage", []), (3, "no/such", ["mine", "-o", f"{work}/no/such/f"]),
                                  (2, "folder", ["mine", "--format", "docker", "-o", f"{work}/f/"])]:
            result = self.root.run("image", "export", *argv)
            self.assertEqual(result.code, code, result)
            self.assertIn(words, result.err.decode())
        self.assertFalse((work / "f").exists())
        self.assertEqual(self.root.http("GET", "/v1/images/export?name=mine&format=zip").status, 400)
        self.assertEqual(self.in_store("tmp"), [])

    @unittest.skipUnless(shutil.which("skopeo"), "skopeo is not installed")
    def test_skopeo_takes_both_forms(self):
        self.example()
        work = Path(self.root.path)
        policy = work / "policy.json"
        policy.write_text('{"default":[{"type":"insecureAcceptAnything"}]}', encoding="utf-8")
        self.root.ok("image", "export", "tool:1", "-o", f"{work}/oci.tar")
        self.root.ok("image", "export", "tool:1", "--format", "docker", "-o", f"{work}/docker.tar")
        self.root.ok("image", "export", "tool:1", "-o", f"{work}/layout/")
        for i, source in enumerate(["oci-archive:" + f"{work}/oci.tar", f"docker-archive:{work}/docker.tar", f"oci:{work}/layout"]):
            subprocess.run(["skopeo", "--policy", policy, "copy", "-q", source, f"dir:{work}/out{i}"], check=True, capture_output=True)
            manifest = json.loads((work / f"out{i}" / "manifest.json").read_bytes())
            self.assertEqual(len(manifest["layers"]), 2)


@only_on("docker", "podman")
class TestDockerLoads(TestCase):
    """What the native engine exports runs on Docker and Podman: the daemon has both engines."""

    @unittest.skipUnless(shutil.which("busybox"), "busybox is not installed")
    def test_docker_load(self):
        engine, name = Config.backend, f"{self.root.prefix()}/exported:1"
        upper = tar(entry("d", "d", uid=7), entry("d/f", data=b"by ripcord"), entry("bin", "d"), entry("bin/.wh.find"),
                    entry("etc/passwd", data=b"root:x:0:0::/:/bin/sh\nagent:x:1000:1000::/home/agent:/bin/sh\n"),
                    entry("home/agent", "d", uid=1000, gid=1000))
        data = saved([rootfs(), upper], [name], Cmd=["/bin/cat", "/d/f"], Env=["PATH=/bin"])
        self.root.ok("image", "import", "-", stdin=data)
        for form in ["docker", "oci"] if Config.backend.kind == "podman" else ["docker"]:
            archive = Path(self.root.path) / f"{form}.tar"
            self.root.ok("image", "export", name, "--format", form, "-o", str(archive))
            engine.load(archive)
            image = engine.api("GET", f"/images/{name}/json").json()
            self.assertEqual(image["Config"]["Cmd"], ["/bin/cat", "/d/f"])
            said = self.root.ok("run", "--image", name, "--", "sh", "-c", "cat /d/f; stat -c ' %u' /d; ls /bin").text
            self.assertEqual(said.split()[:4], ["by", "ripcord", "7", "busybox"])
            self.assertNotIn("find", said.split())
            engine.api("DELETE", f"/images/{name}?force=1")
