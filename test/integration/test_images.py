"""The image store of the native engine: imports, refused archives, sandboxes from images, removal."""
import gzip
import hashlib
import io
import json
import lzma
import os
import shutil
import signal
import subprocess
import tarfile
import unittest
from pathlib import Path

import host_image
from ripcord_test import TestCase, only_on, wait_until

BUSYBOX = shutil.which("busybox") or "/bin/busybox"
APPLETS = "sh ls cat id env pwd stat find sleep".split()


def entry(name, kind="f", data=b"", **fields):
    info = tarfile.TarInfo(name)
    info.type = {"f": tarfile.REGTYPE, "d": tarfile.DIRTYPE, "l": tarfile.SYMTYPE, "h": tarfile.LNKTYPE,
                 "c": tarfile.CHRTYPE, "b": tarfile.BLKTYPE, "p": tarfile.FIFOTYPE}[kind]
    info.mode = 0o755 if kind == "d" else 0o644
    if kind in "lh":
        info.linkname, data = data, b""
    for key, value in fields.items():
        setattr(info, key, value)
    info.size = len(data)
    return info, data


def tar(*entries):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for info, data in entries:
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def rootfs(*more):
    """A root file system with one program that runs commands."""
    links = [entry(f"bin/{name}", "l", "busybox") for name in APPLETS]
    return tar(entry("bin", "d"), entry("bin/busybox", data=Path(BUSYBOX).read_bytes(), mode=0o755), *links, *more)


def config_of(layers, **config):
    return json.dumps({"architecture": host_image.platform.machine().replace("x86_64", "amd64").replace("aarch64", "arm64"),
                       "os": "linux", "config": config,
                       "rootfs": {"type": "layers", "diff_ids": [digest(x) for x in layers]}}).encode()


def saved(layers, tags=("tool:1",), config=None, blobs=None, **settings):
    """An archive of `docker save`; blobs: contents of the layer files, if they differ from the layers."""
    config = config or config_of(layers, **settings)
    names = [f"layer{i}/layer.tar" for i in range(len(layers))]
    listing = [{"Config": "config.json", "RepoTags": list(tags), "Layers": names}]
    return tar(*[entry(n, data=x) for n, x in zip(names, blobs or layers)], entry("config.json", data=config),
               entry("manifest.json", data=json.dumps(listing).encode()))


def oci(folder, layers, pack=gzip.compress, tag="1.0", **settings):
    """An OCI layout below `folder`."""
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)

    def put(data):
        (blobs / digest(data)[7:]).write_bytes(data)
        return {"digest": digest(data), "size": len(data)}

    manifest = {"schemaVersion": 2, "config": put(config_of(layers, **settings)), "layers": [put(pack(x)) for x in layers]}
    entry_ = dict(put(json.dumps(manifest).encode()), mediaType="application/vnd.oci.image.manifest.v1+json",
                  annotations={"org.opencontainers.image.ref.name": tag})
    (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry_]}), encoding="utf-8")
    (folder / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}', encoding="utf-8")
    return folder


@only_on("native")
@unittest.skipUnless(os.path.exists(BUSYBOX), "busybox is not installed")
class ImageCase(TestCase):
    def put(self, data, *name):
        return self.root.run("image", "import", "-", *name, stdin=data)

    def put_ok(self, data, *name):
        result = self.put(data, *name)
        self.assertEqual(result.code, 0, result)
        return result

    def images(self):
        return json.loads(self.root.ok("image", "ls", "--json").out)

    def sh(self, image, script, *options):
        return self.root.ok("run", "--image", image, *options, "--", "sh", "-c", script).text.strip()

    def store(self):
        return Path(self.root.path) / "state" / "images" / "store"

    def in_store(self, kind):
        return sorted(p.name for p in (self.store() / kind).iterdir())


class TestForms(ImageCase):
    def test_a_root_file_system_in_every_compression(self):
        plain = rootfs(entry("hello", data=b"from the image"))
        packed = {"plain": plain, "gz": gzip.compress(plain), "xz": lzma.compress(plain)}
        if shutil.which("zstd"):
            packed["zst"] = subprocess.run(["zstd", "-qc"], input=plain, capture_output=True, check=True).stdout
        for name, data in packed.items():
            self.put_ok(data, name)
        self.assertEqual(len(self.images()["images"]), 1, "the same tar is the same image")
        self.assertEqual(len(self.images()["images"][0]["names"]), len(packed))
        self.assertEqual(self.sh("gz", "cat /hello; id -u; pwd"), "from the image1000\n/home/agent")

    def test_layers_are_merged_as_docker_does(self):
        base = rootfs(entry("d", "d"), entry("d/old", data=b"1"), entry("d/gone", data=b"1"), entry("file", data=b"base"),
                      entry("o", "d"), entry("o/below", data=b"1"), entry("r", "d"), entry("r/below", data=b"1"))
        upper = tar(entry("d", "d"), entry("d/.wh.gone"), entry("d/new", data=b"2"), entry("file", data=b"upper"),
                    entry("o", "d"), entry("o/.wh..wh..opq"), entry("o/above", data=b"2"),
                    entry(".wh.r"), entry("r", "d"), entry("r/above", data=b"2"))
        third = tar(entry("o", "d"), entry("o/third", data=b"3"), entry("etc", "d"), entry("etc/s", mode=0o4755, uid=7, gid=9))
        self.put_ok(saved([base, upper, third], Env=["GREETING=hi", "PATH=/bin"], WorkingDir="/d", User="12:34"))
        self.assertEqual(self.sh("tool:1", "ls; cat /file; ls /o /r; echo $GREETING; id -u; id -g; pwd; stat -c '%a %u %g' /etc/s"),
                         "new\nold\nupper/o:\nabove\nthird\n\n/r:\nabove\nhi\n12\n34\n/d\n4755 7 9")

    def test_docker_save_of_the_test_image(self):
        self.root.ok("image", "import", host_image.archive())
        self.assertIn("agent", self.sh("ripcord/default", "id -un; python3 -c 'print(6 * 7)'"))
        self.root.ok("up", "box", "--image", "ripcord/default")
        self.root.ok("exec", "box", "--", "sh", "-c", "echo kept > kept; echo lost > /tmp/lost")
        self.root.ok("stop", "box")
        self.assertEqual(self.root.ok("exec", "box", "--", "cat", "kept").text, "kept\n")

    def test_an_oci_layout_as_folder_and_tar(self):
        folder = oci(Path(self.root.path) / "layout", [rootfs(entry("x", data=b"oci"))], Cmd=["sh"])
        self.root.ok("image", "import", str(folder), "from-folder")
        packed = subprocess.run(["tar", "-C", folder, "-c", "."], capture_output=True, check=True).stdout
        self.put_ok(packed, "from-tar")
        [image] = self.images()["images"]
        self.assertEqual(image["names"], ["from-folder:latest", "from-tar:latest"])
        self.assertEqual(image["cmd"], ["sh"])
        self.assertEqual(self.sh("from-tar", "cat /x"), "oci")

    @unittest.skipUnless(shutil.which("skopeo"), "skopeo is not installed")
    def test_archives_of_skopeo(self):
        work = Path(self.root.path)
        archive = work / "saved.tar"
        archive.write_bytes(saved([rootfs(), tar(entry("y", data=b"skopeo"))]))
        policy = work / "policy.json"
        policy.write_text('{"default":[{"type":"insecureAcceptAnything"}]}', encoding="utf-8")
        subprocess.run(["skopeo", "--policy", policy, "copy", "-q", f"docker-archive:{archive}", f"oci:{work}/by-skopeo:v1"],
                       check=True, capture_output=True)
        self.root.ok("image", "import", f"{work}/by-skopeo", "sk")
        self.assertEqual(self.sh("sk", "cat /y"), "skopeo")


class TestHostile(ImageCase):
    def refused(self, data, *words):
        result = self.put(data, "evil")
        self.assertNotEqual(result.code, 0, result)
        for word in words:
            self.assertIn(word, result.err.decode(), result)
        self.assertEqual(self.images(), {"images": [], "bytes": 0})
        self.assertEqual((self.in_store("layers"), self.in_store("tmp")), ([], []))

    def test_options_of_another_action_are_refused(self):
        for option, *args in (("--tag", "ls", "--tag", "x"), ("--no-cache", "prune", "--no-cache"), ("--platform", "push", "x", "--platform", "linux/arm64"),
                              ("--file", "lint", "-f", "Dockerfile"), ("--strict", "rm", "--strict", "x")):
            done = self.root.run("image", *args)
            self.assertIn(f"'ripcord image {args[0]}' does not take option '{option}'", done.err.decode())
            self.assert_exit(done, 2)

    def test_escapes_are_refused(self):
        canary = Path(self.root.path) / "canary"
        canary.write_text("tweet", encoding="utf-8")
        out = str(canary.parent)
        cases = [
            ([entry("../x")], "'..'"), ([entry("a/../../x")], "'..'"), ([entry("/x")], "absolute"),
            ([entry("l", "l", out), entry("l/canary", data=b"!")], "through 'l'"),
            ([entry("l", "l", ".."), entry("l/x/y", data=b"!")], "through 'l'"),
            ([entry("h", "h", str(canary))], "absolute"), ([entry("h", "h", "../../canary")], "'..'"),
            ([entry("l", "l", out), entry("h", "h", "l/canary")], "not in this layer"),
            ([entry("h", "h", "bin/nothing")], "not in this layer"),
            ([entry("d", "d"), entry("h", "h", "d")], "not a file"),
            ([entry(".wh..")], "invalid whiteout name"), ([entry("a/.wh.")], "invalid whiteout name"),
            ([entry("f", uid=70000)], "70000"), ([entry("x" * 300)], "300 bytes"),
            ([entry("/".join("d" * 230), "d")], "deep"),
        ]
        for entries, word in cases:
            with self.subTest(entries=[e[0].name for e in entries]):
                self.refused(tar(*entries), word)
        self.assertEqual(canary.read_text(encoding="utf-8"), "tweet")
        self.assertEqual(canary.stat().st_nlink, 1)

    def test_damaged_archives_are_refused(self):
        whole = rootfs()
        self.refused(b"hello", "not a tar")
        self.refused(b"", "not a tar")
        self.refused(whole[:5000])
        self.refused(gzip.compress(whole)[:-500])
        self.refused(os.urandom(4096) + b"\0" * 1024)
        self.refused(saved([whole], config=config_of([whole + b"x"])), "damaged")
        self.refused(saved([whole], config=b"{"), "configuration")
        self.refused(saved([whole], blobs=[tar(entry("other"))]), "damaged")
        self.refused(tar(entry("manifest.json", data=b'[{"Config":"../../etc/passwd","Layers":[]}]')), "missing in the archive")

    def test_a_layout_with_a_wrong_blob_is_refused(self):
        folder = oci(Path(self.root.path) / "layout", [rootfs()])
        biggest = max((folder / "blobs" / "sha256").iterdir(), key=lambda p: p.stat().st_size)
        data = bytearray(biggest.read_bytes())
        data[len(data) // 2] ^= 1
        biggest.write_bytes(data)
        result = self.root.run("image", "import", str(folder), "x")
        self.assertIn("damaged", result.err.decode())
        self.assertEqual(self.in_store("layers"), [])

    def test_a_decompression_bomb_is_refused_early(self):
        self.refused(gzip.compress(gzip.compress(b"\0" * (1 << 20))))
        self.refused(gzip.compress(b"\0" * (16 << 20)) * 8, "1000 times")

    def test_the_size_of_an_image_has_a_limit(self):
        """For the archive, for a file, for the layers together, and for a hole at the end of a file."""
        self.root.configure("image.max_size: 8M\n")
        half = [entry(f"f{i}", data=os.urandom(1 << 20)) for i in range(5)]
        self.refused(gzip.compress(tar(*half, *[entry(f"g{i}", data=os.urandom(1 << 20)) for i in range(4)])), "longer than 8388608 bytes")
        sparse = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "hole", "GNU.sparse.realsize": str(1 << 40)}
        self.refused(tar(entry("hole", data=b"1\n0\n0\n".ljust(512, b"\0"), pax_headers=sparse)), "larger than the 8388608 bytes that are left")
        packed = [gzip.compress(tar(entry(name, data=bytes(5 << 20)))) for name in ("a", "b")]
        for blobs, words in ((packed, "layer 2 of 2: entry 'b': larger than the 3145728 bytes that are left"),
                             (packed[:1] * 2, "layer 2 of 2 exceeds the size limit")):
            done = self.assert_exit(self.put(saved([gzip.decompress(b) for b in blobs], blobs=blobs), "evil"), 6)
            self.assertIn(words, done.err.decode())
            self.assertIn("Raise 'image.max_size'", done.err.decode())
        self.put_ok(saved([gzip.decompress(packed[0])], blobs=packed[:1], tags=["small:1"]))

    def test_devices_and_attributes_are_dropped(self):
        evil = {"SCHILY.xattr.user.overlay.redirect": "/etc", "SCHILY.xattr.user.overlay.opaque": "y",
                "SCHILY.xattr.security.capability": "x", "SCHILY.xattr.user.fine": "1"}
        data = rootfs(entry("dev", "d"), entry("dev/null2", "c", devmajor=1, devminor=3), entry("dev/sda", "b", devmajor=8),
                      entry("hide", "c", devmajor=0, devminor=0), entry("pipe", "p"), entry("d", "d", pax_headers=evil))
        result = json.loads(self.root.run("image", "import", "-", "x", "--json", stdin=data).out)
        self.assertEqual(result["images"][0]["dropped"], 7)
        [layer] = (self.store() / "layers").iterdir()
        fs = layer / "fs"
        self.assertEqual([n for n in ("hide", "pipe", "dev/null2", "dev/sda") if os.path.lexists(fs / n)], [])
        self.assertEqual(os.listxattr(fs / "d"), ["user.fine"])

    def test_later_entries_win(self):
        data = rootfs(entry("a", data=b"1"), entry("a", "d"), entry("a/b", data=b"2"), entry("c", "d"), entry("c/x"),
                      entry("c", data=b"3"), entry("l", "l", "/etc"), entry("l", data=b"4"))
        self.put_ok(data, "x")
        self.assertEqual(self.sh("x", "cat /a/b /c /l"), "234")

    def test_roots_with_links_for_folders(self):
        canary = Path(self.root.path) / "canary"
        canary.mkdir()
        for name in ("dev", "proc", "sys", "tmp", "run", "home"):
            with self.subTest(name=name):
                self.put_ok(rootfs(entry(name, "l", str(canary))), "x")
                result = self.root.run("run", "--image", "x", "--", "sh", "-c", "echo ran", timeout=20)
                self.assertTrue(result.code == 125 or result.text == "ran\n", result)
        self.assertEqual(list(canary.iterdir()), [])


class TestStore(ImageCase):
    def test_shared_layers_are_stored_and_counted_once(self):
        base = rootfs()
        self.put_ok(saved([base, tar(entry("one", data=b"1" * 1000))], ["one:1"]))
        second = json.loads(self.root.run("image", "import", "-", "--json",
                                          stdin=saved([base, tar(entry("two", data=b"2" * 2000))], ["two:1"])).out)
        self.assertEqual(second["images"][0]["new_layers"], 1)
        listed = self.images()
        size = os.path.getsize(BUSYBOX)
        self.assertEqual(listed["bytes"], size + 3000)
        self.assertEqual(sorted(i["own_bytes"] for i in listed["images"]), [1000, 2000])
        self.root.ok("image", "rm", "one:1")
        self.assertEqual(self.images()["bytes"], size + 2000)
        self.assertEqual(self.sh("two:1", "stat -c %s /two"), "2000")

    def test_images_in_use_stay(self):
        self.put_ok(rootfs(), "used")
        self.root.ok("up", "box", "--image", "used")
        result = self.root.run("image", "rm", "used")
        self.assertEqual(result.code, 4, result)
        self.assertIn("in use", result.err.decode())
        self.put_ok(rootfs(entry("newer")), "used")  # the name moves to the new image; the sandbox's image has no name
        self.root.ok("image", "prune")
        self.root.ok("stop", "box")
        self.assertEqual(self.root.ok("exec", "box", "--", "sh", "-c", "echo up").text, "up\n")
        self.root.ok("rm", "-f", "box")
        self.assertEqual(json.loads(self.root.ok("image", "prune", "--json").out)["images"], 1)

    def test_removal_waits_for_deletions(self):
        for _ in range(5):
            self.put_ok(rootfs(), "brief")
            self.root.ok("run", "--image", "brief", "--", "sh", "-c", ":")
            self.root.ok("image", "rm", "brief")

    def test_an_image_stays_until_its_last_name_is_removed(self):
        self.put_ok(rootfs(), "a")
        self.put_ok(rootfs(), "b")
        self.put_ok(rootfs(), "localhost/c")
        self.root.ok("image", "rm", "a")
        self.root.ok("image", "rm", "c")
        self.assertEqual(self.images()["images"][0]["names"], ["b:latest"])
        self.root.ok("image", "rm", self.images()["images"][0]["id"])
        self.assertEqual((self.in_store("layers"), self.in_store("blobs"), self.in_store("images")), ([], [], []))

    def test_errors_name_unknown_images(self):
        for argv in (["run", "--image", "nope", "--pull", "never", "--", "id"], ["image", "show", "nope"], ["image", "rm", "nope"]):
            result = self.root.run(*argv)
            self.assertIn("no such image: 'nope'", result.err.decode())
        self.assertEqual(self.root.run("image", "rmm").code, 2)
        self.assertIn("NAME", self.put(rootfs()).err.decode())
        self.assertEqual(self.root.http("GET", "/v1/images/show?name=nope").status, 404)
        self.assertEqual(self.root.http("POST", "/v1/images?name=x", {}).status, 415)

    def test_a_killed_import_leaves_no_image(self):
        with self.root.popen("image", "import", "-", "x", stdin=subprocess.PIPE) as client:
            client.stdin.write(rootfs()[:100000])
            client.stdin.flush()
            wait_until(lambda: any(b"ripcord-image" in Path(f"/proc/{p}/cmdline").read_bytes() for p in self.root.processes()),
                       10, "the importer is at work")
            self.root.kill_daemon(signal.SIGKILL)
            client.kill()
        self.root.start()
        wait_until(lambda: not any(b"ripcord-image" in Path(f"/proc/{p}/cmdline").read_bytes() for p in self.root.processes()),
                   10, "the importer sees the end")
        self.assertEqual(self.images()["images"], [])
        self.root.ok("image", "prune")
        self.assertEqual((self.in_store("tmp"), self.in_store("layers")), ([], []))


if __name__ == "__main__":
    unittest.main()
