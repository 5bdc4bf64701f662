"""The native builder: contents of its images, its cache, refused instructions, and clean-up after a build."""
import io
import json
import os
import signal
import tarfile
import unittest
from pathlib import Path

import packages_fixture
from ripcord_test import TestCase, only_on, wait_until
from test_images import BUSYBOX, entry, saved, tar

APPLETS = "sh ls cat id env pwd stat find sleep echo mkdir touch rm chmod ln wget tar mkfifo grep test sed head cp mv chown seq".split()
PASSWD = b"root:x:0:0:root:/root:/bin/sh\nbob:x:1000:1001:Bob:/home/bob:/bin/sh\n"


def base(*tags):
    """An image that runs commands, as `docker save` makes it."""
    links = [entry(f"bin/{name}", "l", "busybox") for name in APPLETS]
    layer = tar(entry("bin", "d"), entry("bin/busybox", data=Path(BUSYBOX).read_bytes(), mode=0o755), *links,
                entry("etc", "d"), entry("etc/passwd", data=PASSWD), entry("etc/group", data=b"root:x:0:\nstaff:x:50:\n"),
                entry("root", "d", mode=0o700), entry("tmp", "d", mode=0o1777), entry("home", "d"))
    return saved([layer], tags=tags or ("base:1",), Env=["PATH=/bin", "FROM_BASE=yes"], Labels={"base": "1"})


class BuildCase(TestCase):
    """The store has image base:1."""

    engine = ()

    def setUp(self):
        super().setUp()
        self.context = self.root.path / "context"
        self.context.mkdir(mode=0o755)
        self.prepare()

    def prepare(self):
        result = self.root.run("image", "import", "-", stdin=base())
        self.assertEqual(result.code, 0, result)

    def file(self, name, text="", mode=0o644):
        path = self.context / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(mode)
        return path

    def try_build(self, dockerfile, *options, **kwargs):
        self.file("Dockerfile", dockerfile)
        return self.root.run("image", "build", "--progress", "plain", *self.engine, *options, self.context, **kwargs)

    def build(self, dockerfile, *options, tag="made:1", **kwargs):
        """(output of the build, the image's id)"""
        result = self.try_build(dockerfile, "-t", tag, *options, **kwargs)
        self.assertEqual(result.code, 0, result)
        return result.err.decode(), result.text.split()[0]

    def sh(self, script, image="made:1"):
        return self.root.ok("run", "--image", image, "--user", "0", "--", "sh", "-c", script).text.strip()

    def store(self):
        return self.root.path / "state" / "images" / "store"

    def assert_nothing_left(self):
        state, run = self.root.path / "state", self.root.path / "run"
        wait_until(lambda: not any(p for d in (self.store() / "tmp", state / "sandboxes", state / "execs", run / "sandboxes")
                                   for p in d.iterdir()), 20, "the build's folders to go")
        wait_until(lambda: not any(b"ripcord-build" in cmdline(p) for p in self.root.processes()), 20, "the builder to end")


def content(path):
    """The bytes of a file; empty if it is not a file or does not exist."""
    try:
        return path.read_bytes() if path.is_file() else b""
    except OSError:
        return b""


def cmdline(pid):
    return content(Path(f"/proc/{pid}/cmdline"))


@only_on("native")
@unittest.skipUnless(os.path.exists(BUSYBOX), "busybox is not installed")
class Steps(BuildCase):
    def test_run_has_root_inside_and_leaves_only_its_files(self):
        said, _ = self.build("FROM base:1\nUSER bob:staff\nRUN echo is $(id -u) of $(id -g)\nUSER 0\nARG V=arg\nENV W=$V-env\n"
                             "RUN id -u; pwd; echo $V $W $FROM_BASE; cat /proc/self/setgroups; mkfifo /pipe; touch /made; rm /etc/group\n"
                             "WORKDIR /work/dir\nUSER bob\nRUN id -u; pwd; echo $HOME; touch /tmp/bobs\n"
                             'SHELL ["/bin/sh", "-ec"]\nRUN false || echo survived\nCMD ["sh"]\n')
        for words in ("0\n", "arg arg-env yes", "1000\n", "/work/dir", "/home/bob", "is 1000 of 50", "survived"):
            self.assertIn(words, said)
        self.assertEqual(self.sh("ls /made; stat -c '%u %g' /work/dir /made"), "/made\n0 0\n0 0")
        self.assertEqual(self.sh("ls /pipe /etc/group 2>/dev/null || echo none"), "none")
        shown = self.root.ok("image", "show", "made:1", "--json").json()
        self.assertEqual((shown["cmd"], shown["user"], shown["workdir"]), (["sh"], "bob", "/work/dir"))
        self.assertEqual(shown["env"], ["PATH=/bin", "FROM_BASE=yes", "W=arg-env"])
        self.assert_nothing_left()

    def test_a_step_that_prints_any_byte_runs_once(self):
        said, _ = self.build("FROM base:1\n"
                             "RUN --mount=type=cache,target=/c echo x >>/c/runs; printf 'a\\000b\\377\\033[2Jc\\n'\n"
                             "RUN --mount=type=cache,target=/c echo ran $(wc -l </c/runs)\n")
        self.assertIn("ab", said)
        self.assertIn("ran 1\n", said)

    def test_mounts_and_their_places(self):
        self.file("req.txt", "wanted")
        self.file("dir/in", "inside")
        secret = self.root.path / "secret"
        secret.write_text("not to be told", encoding="utf-8")
        said, _ = self.build(
            "FROM base:1 AS other\nRUN echo staged > /staged\nFROM base:1\n"
            "RUN --mount=type=bind,source=req.txt,target=/new/req cat /new/req; echo; echo x > /new/req || echo read-only\n"
            "RUN --mount=type=bind,source=dir,target=/rw,rw echo more > /rw/more; cat /rw/in /rw/more\n"
            "RUN --mount=type=bind,from=other,source=/staged,target=/s cat /s\n"
            "RUN --mount=type=tmpfs,target=/t touch /t/x && ls /t\n"
            "RUN --mount=type=secret,id=s cat /run/secrets/s > /dev/null && stat -c 'secret %a' /run/secrets/s\n"
            'RUN --mount=type=ssh test -e $SSH_AUTH_SOCK || echo no agent at $SSH_AUTH_SOCK\n'
            "RUN --mount=type=secret,id=s,env=S echo length ${#S}\n"
            "RUN --mount=type=cache,target=/c,uid=1000,mode=0700 stat -c 'cache %u %a' /c; touch /c/kept\n"
            "RUN <<EOF\nset -e\necho script\nEOF\nRUN <<RUNME\n#!/bin/cat\nby its interpreter\nRUNME\n",
            "--secret", f"s=@{secret}")
        for words in ("wanted", "read-only", "insidemore", "staged", "secret 400", "length 14", "cache 1000 700", "script",
                      "by its interpreter", "no agent at /run/buildkit/ssh_agent.0"):
            self.assertIn(words, said.replace("inside\n", "inside") if words == "insidemore" else said, words)
        self.assertNotIn("not to be told", said)
        self.assertEqual(self.sh("ls -d /new /rw /s /t /c /run/secrets 2>/dev/null || echo none"), "none")
        self.assertFalse([p for p in self.root.walk("state") if b"not to be told" in content(p)], "a secret on the disk")

    def test_secrets_are_where_they_are_wanted(self):
        secret = self.root.path / "secret"
        secret.write_text("not to be told", encoding="utf-8")
        said, _ = self.build(
            "FROM base:1\nRUN mkdir /own && chown 1000 /own && chmod 700 /own && echo before > /there\nUSER bob\nWORKDIR /home\n"
            "RUN --mount=type=secret,id=s,target=/new/way/key --mount=type=secret,id=s,target=/there,mode=0444 "
            "--mount=type=secret,id=s,target=rel --mount=type=secret,id=s,target=/own/f,uid=7,gid=8,mode=0440 "
            "--mount=type=secret,id=s --mount=type=secret,id=s,target=/run/secrets/o,uid=9,mode=0404 "
            "stat -c 'is %n %u %g %a %s' /new/way/key /there rel /own/f /run/secrets/*; cat /own/f || echo not bobs; "
            "cat /new/way/key /there /run/secrets/s /run/secrets/o > /dev/null && echo read; echo x > /new/way/key || echo read-only\n",
            "--secret", f"s=@{secret}", "--no-cache")
        for words in ("is /new/way/key 1000 1001 400 14", "is /there 1000 1001 444 14", "is rel 1000 1001 400 14", "is /own/f 7 8 440 14",
                      "is /run/secrets/s 1000 1001 400 14", "is /run/secrets/o 9 0 404 14", "not bobs", "read\n", "read-only"):
            self.assertIn(words, said)
        self.assertNotIn("not to be told", said)
        self.assertEqual(self.sh("cat /there; ls -d /new /home/rel /own/f /run/secrets 2>/dev/null || echo none"), "before\nnone")
        self.assertFalse([p for p in self.root.walk("state") if b"not to be told" in content(p)], "a secret on the disk")
        result = self.try_build("FROM base:1\nRUN ln -s /etc /link\nRUN --mount=type=secret,id=s,target=/link/f true\n", "--secret", f"s=@{secret}")
        self.assertIn(b"symbolic links", result.err)

    def test_the_history_is_in_the_image(self):
        text = ("FROM base:1 AS one\nARG V\nRUN touch /made\nFROM one\nENV A=1\nRUN true\nWORKDIR /\nCOPY f /f\n"
                'CMD ["sh"]\n')
        self.file("f", "x")
        options = ("--build-arg", "V=arg", "--build-arg", "SOURCE_DATE_EPOCH=1700000000")
        _, first = self.build(text, "--build-arg", "V=arg")
        self.assertEqual(self.build(text, "--build-arg", "V=arg")[1], first, "from the cache it is the same image")
        for name, extra in (("plain:1", options[:2]), ("dated:1", options)):
            self.build(text, *extra, tag=name)
            archive = self.root.ok("image", "export", "--format", "docker", name).out
            with tarfile.open(fileobj=io.BytesIO(archive)) as outer:
                config = json.load(outer.extractfile(json.load(outer.extractfile("manifest.json"))[0]["Config"]))
            lines = config["history"]
            self.assertEqual([line.get("created_by") for line in lines[1:]], [
                "ARG V=arg", "RUN |1 V=arg /bin/sh -c touch /made # buildkit", "ENV A=1", "RUN |1 V=arg /bin/sh -c true # buildkit",
                "WORKDIR /", "COPY f /f # buildkit", 'CMD ["sh"]'])
            layers = [line for line in lines if not line.get("empty_layer")]
            self.assertEqual(len(layers), len(config["rootfs"]["diff_ids"]), lines)
            self.assertEqual({line.get("comment") for line in lines[1:]}, {"buildkit.dockerfile.v0"})
            times = {line["created"] for line in lines[1:]}
            if name == "dated:1":
                self.assertEqual(times | {config["created"]}, {"2023-11-14T22:13:20.000Z"})
            else:
                self.assertEqual(max(times), config["created"])
        shown = self.root.ok("image", "show", "plain:1", "--json").json()
        self.assertEqual([line["created_by"] for line in shown["history"]], [line.get("created_by") for line in lines])
        self.assertEqual([line["layer"] for line in shown["history"] if line["layer"]], shown["layers"])
        self.assertEqual([line["bytes"] for line in shown["history"]][-2:], [1, 0])
        self.assertRegex(self.root.ok("image", "show", "plain:1").text, r"(?m)^ +1 B  COPY f /f # buildkit$")
        result = self.try_build(text, "--build-arg", "SOURCE_DATE_EPOCH=yesterday")
        self.assertIn(b"SOURCE_DATE_EPOCH", result.err)
        self.assertNotEqual(result.code, 0)

    def test_copies(self):
        self.file("a.txt", "a")
        self.file("b.txt", "b", 0o600)
        self.file("dir/sub/c", "c", 0o755)
        self.file("left/out", "no")
        self.file(".dockerignore", "left\n*.md\n!keep.md\n")
        self.file("x.md")
        self.file("keep.md", "kept")
        (self.context / "link").symlink_to("a.txt")
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            info, data = entry("in/archive", data=b"packed", uid=7)
            archive.addfile(info, io.BytesIO(data))
        (self.context / "pack.tgz").write_bytes(packed.getvalue())
        self.build("FROM base:1\nCOPY *.txt /t/\nCOPY --chown=bob:staff --chmod=640 dir /d\nCOPY . /all/\nADD pack.tgz /p\n"
                   "COPY pack.tgz /q/\nCOPY link /l\nCOPY <<one <<two /h/\nfirst\none\nsecond\ntwo\nCOPY keep.md missing* /k/\n")
        self.assertEqual(self.sh("cat /t/a.txt /t/b.txt /l /p/in/archive /h/one /h/two /k/keep.md; "
                                 "stat -c '%n %a %u %g' /t/b.txt /d/sub/c /p/in/archive /d; ls /all/left /all/x.md /q; ls /all/link"),
                         "abapackedfirst\nsecond\nkept/t/b.txt 600 0 0\n/d/sub/c 640 1000 50\n/p/in/archive 644 7 0\n"
                         "/d 755 1000 50\n/q:\npack.tgz\n/all/link")

    def test_parents_are_copied_and_what_is_excluded_is_not(self):
        self.file("src/a/one.txt", "1")
        self.file("src/a/two.md", "2")
        self.file("src/b/three.txt", "3")
        text = "FROM base:1\nCOPY --parents src/./**/*.txt top* /out\nCOPY --exclude=a src /rest\n"
        self.build(text)
        self.assertEqual(sorted(self.sh("cd /; find out rest -type f").split()), ["out/a/one.txt", "out/b/three.txt", "rest/b/three.txt"])
        self.file("src/a/two.md", "nobody takes it")
        self.assertEqual(self.build(text)[0].count("CACHED"), 2)
        self.file("src/a/one.txt", "one of two takes it")
        self.assertEqual(self.build(text)[0].count("CACHED"), 0)
        self.assertEqual(self.sh("cat /out/a/one.txt"), "one of two takes it")
        result = self.try_build("FROM base:1\nCOPY --exclude=[ src /x\n")
        self.assertIn("line 2, column 6: '[' is not a valid pattern", result.err.decode())

    def test_the_package_cache_is_the_only_network(self):
        said, _ = self.build("FROM base:1\nRUN cat /proc/net/route | grep -c eth || echo no routes; echo $PIP_INDEX_URL\n"
                             "RUN --network=none wget -q -O- http://127.0.0.1:7417/ 2>&1 || echo nobody\n")
        self.assertIn("no routes", said)
        self.assertIn("http://127.0.0.1:7417/pypi", said)
        self.assertIn("nobody", said)


@only_on("native")
@unittest.skipUnless(os.path.exists(BUSYBOX), "busybox is not installed")
class Cache(BuildCase):
    def test_a_step_is_done_again_when_what_it_takes_changes(self):
        text = "FROM base:1\nRUN echo first\nCOPY dir /d\nRUN echo second\n"
        self.file("dir/f", "1")
        _, first = self.build(text)
        said, again = self.build(text, tag="made:2")
        self.assertEqual(first, again, "the same image")
        self.assertEqual(said.count("CACHED"), 3, said)
        os.utime(self.context / "dir" / "f", (1, 1))
        self.assertEqual(self.build(text)[0].count("CACHED"), 3, "a time is no content")
        self.file("dir/f", "2")
        said, other = self.build(text)
        self.assertEqual(said.count("CACHED"), 1, said)
        self.assertNotEqual(first, other)
        self.assertEqual(self.build(text, "--no-cache")[0].count("CACHED"), 0)
        said = self.build(text.replace("RUN echo first", "ENV A=1\nRUN echo first"))[0]
        self.assertEqual(said.count("CACHED"), 0, "a variable is seen by every command after it")
        self.root.ok("image", "rm", "made:2")
        self.assertEqual(self.build(text)[0].count("CACHED"), 3, "what was built stays")
        self.root.ok("image", "rm", "made:1")
        self.root.ok("image", "prune")
        self.assertEqual(self.build(text)[0].count("CACHED"), 0)

    def test_a_failed_build_goes_on_where_it_was(self):
        result = self.try_build("FROM base:1\nRUN touch /done\nRUN echo bad; exit 3\n")
        self.assert_exit(result, 2)
        self.assertIn("exit status 3", result.err.decode())
        self.assertIn("Dockerfile:3", result.err.decode())
        self.assert_nothing_left()
        said, _ = self.build("FROM base:1\nRUN touch /done\nRUN ls /done\n")
        self.assertEqual(said.count("CACHED"), 1, said)


@only_on("native")
@unittest.skipUnless(os.path.exists(BUSYBOX), "busybox is not installed")
class CacheMounts(BuildCase):
    """Cache mounts are counted, and removed one by one or by a budget, but never while a build uses them."""

    def mounts(self):
        return {m["id"]: m for m in self.root.ok("cache", "ls", "--json").json()["mounts"]}

    @staticmethod
    def fill(mount, kib):
        return f"RUN --mount=type=cache,target=/{mount},id={mount} head -c {kib}k /dev/zero > /{mount}/data\n"

    def test_they_are_counted_and_removed(self):
        self.build("FROM base:1\n" + self.fill("big", 300) + "RUN --mount=type=cache,target=/small touch /small/x\n")
        mounts = self.mounts()
        self.assertEqual(list(mounts), ["/small", "big"], "the one used last comes first")
        self.assertGreaterEqual(mounts["big"]["bytes"], 300 << 10)
        self.assertFalse(any(m["in_use"] for m in mounts.values()))
        shown = self.root.ok("cache", "show", "--json").json()["mounts"]
        self.assertEqual((shown["bytes"], shown["budget"]), (sum(m["bytes"] for m in mounts.values()), 20 << 30))
        self.assertIn("big", self.root.ok("cache", "ls").text)
        self.assert_exit(self.root.run("cache", "rm", "nowhere"), 3)
        self.assertEqual(self.root.ok("cache", "rm", "--json", "big").json()["mounts"], ["big"])
        self.assertEqual(list(self.mounts()), ["/small"])
        self.assertEqual(self.root.ok("cache", "prune", "--mounts", "--unused", "1h", "--json").json()["removed"], 0)
        self.assertEqual(self.root.ok("cache", "prune", "--mounts", "--keep", "0", "--json").json()["mounts"], ["/small"])
        self.assertEqual(self.mounts(), {})

    def test_one_in_use_stays(self):
        self.file("Dockerfile", "FROM base:1\nRUN --mount=type=cache,target=/c touch /c/x; echo begun; sleep 1000\n")
        with self.root.popen("image", "build", "--progress", "plain", self.context) as p:
            for line in p.stderr:
                if b" begun" in line and b"RUN" not in line:
                    break
            self.assertTrue(self.mounts()["/c"]["in_use"])
            self.assert_exit(self.root.run("cache", "rm", "/c"), 4)
            self.assertEqual(self.root.ok("cache", "prune", "--mounts", "--keep", "0", "--json").json()["removed"], 0)
            p.send_signal(signal.SIGINT)
            p.communicate(timeout=60)
        self.assert_nothing_left()
        self.assertFalse(self.mounts()["/c"]["in_use"])
        self.root.ok("cache", "rm", "/c")

    def test_the_budget_is_kept_after_builds(self):
        self.root.configure("build.mounts_budget: 1M\n")
        self.root.kill_daemon(signal.SIGTERM)
        self.build("FROM base:1\n" + self.fill("first", 700))
        self.build("FROM base:1\n" + self.fill("second", 700))
        wait_until(lambda: list(self.mounts()) == ["second"], 20, "the older one to go")


@only_on("native")
@unittest.skipUnless(os.path.exists(BUSYBOX), "busybox is not installed")
class Packages(BuildCase):
    """Packages come through the package cache: each is downloaded once."""

    # Does what an installer does, with programs that any image has.
    FETCH = ("wget -q -O /tmp/page ${PIP_INDEX_URL}demo/ && "
             "wget -q -O /pip/demo.whl http://127.0.0.1:7417/pypi/$(sed -n 's|.*href=\"../../\\(files[^\"#]*whl\\)#.*|\\1|p' /tmp/page)")

    def setUp(self):
        packages_fixture.TestCase.prepare()
        self.up = packages_fixture.Upstream(packages_fixture.TestCase.certificates)
        self.addCleanup(self.up.stop)
        self.up.add_wheel("demo", "1.5", os.urandom(100000))
        super().setUp()

    def prepare(self):
        upstreams = self.root.path / "upstreams.json"
        upstreams.write_text(json.dumps([self.up.as_pypi("own")]), encoding="utf-8")
        self.root.configure(f"packages.pypi: ''\nregistry.npm: ''\nregistry.upstreams: {upstreams}\n")
        super().prepare()

    def fetched(self):
        return self.up.count("demo-1.5-py3-none-any.whl")

    def test_build_twice_downloads_nothing(self):
        text = f"FROM base:1\nRUN mkdir /pip && {self.FETCH}\n"
        self.build(text)
        self.assertEqual(self.fetched(), 1)
        before = len(self.up.requests)
        said, _ = self.build(text)
        self.assertIn("CACHED", said)
        self.assertEqual(len(self.up.requests), before, self.up.requests)
        self.build(text, "--no-cache")  # the layer is made again, from the registry's cache
        self.assertEqual(self.fetched(), 1, self.up.requests)
        self.assertGreater(int(self.sh("stat -c %s /pip/demo.whl")), 100000)

    def test_cache_mount_survives_layer_invalidation(self):
        def text(line):
            return (f"FROM base:1\nRUN echo {line}\nRUN --mount=type=cache,target=/pip,id=wheels "
                    f"test -s /pip/demo.whl || {{ {self.FETCH} && echo was fetched; }}\n")

        said, _ = self.build(text("one"))
        self.assertIn("was fetched\n", said.split("RUN --mount", 1)[1].split("\n", 1)[1])
        self.up.stop()
        said, _ = self.build(text("two"))
        self.assertNotIn("CACHED", said)
        self.assertNotIn("was fetched", said.split("RUN --mount", 1)[1].split("\n", 1)[1])
        self.assertEqual(self.fetched(), 1)
        self.root.ok("image", "rm", "made:1")
        self.root.ok("image", "prune")
        said, _ = self.build(text("three"))
        self.assertNotIn("was fetched", said.split("RUN --mount", 1)[1].split("\n", 1)[1])


@only_on("native")
@unittest.skipUnless(os.path.exists(BUSYBOX), "busybox is not installed")
class Ends(BuildCase):
    def test_impossible_instructions_fail_before_anything_runs(self):
        for text, words in (("RUN --mount=type=ssh,required=true true", "line 3, column 5"), ("ADD https://example.com/x.git /", "line 3, column 5"),
                            ("COPY --from=127.0.0.1:1/no:9 a /", "line 3, column 6")):
            result = self.try_build(f"FROM base:1\nRUN echo ran\n{text}\n")
            self.assertIn(result.code, (2, 7, 8), result)
            self.assertIn(words, result.err.decode())
            self.assertNotIn("ran\n", result.err.decode().replace("RUN echo ran", ""))
        self.assertFalse(list((self.store() / "cache").iterdir()))

    def test_a_hostile_context_leads_nowhere(self):
        self.file("f", "own")
        (self.context / "out").symlink_to("/etc/shadow")
        (self.context / "up").symlink_to("../../../../../../etc")
        for text in ("COPY out /x", "COPY up/shadow /x", "COPY ../../../etc/shadow /x",
                     "RUN --mount=type=bind,source=out,target=/x cat /x"):
            self.assert_exit(self.try_build(f"FROM base:1\n{text}\n"), 3)
        self.build("FROM base:1\nRUN ln -s /../../../../../etc /esc && ln -s ../../../../../../tmp /tmp/esc\nCOPY f /esc/planted\n"
                   "COPY f /tmp/esc/planted\n")
        self.assertEqual(self.sh("cat /etc/planted"), "own")
        self.assertFalse(os.path.exists("/etc/planted") or os.path.exists("/tmp/planted"))

    def test_a_cancelled_build_leaves_nothing(self):
        self.file("Dockerfile", "FROM base:1\nRUN echo begun; sleep 1000\n")
        with self.root.popen("image", "build", "--progress", "plain", self.context) as p:
            for line in p.stderr:
                if b" begun" in line and b"RUN" not in line:
                    break
            p.send_signal(signal.SIGINT)
            p.communicate(timeout=60)
        self.assertNotEqual(p.returncode, 0)
        self.assert_nothing_left()

    def test_a_killed_daemon_leaves_nothing(self):
        self.file("Dockerfile", "FROM base:1\nRUN echo begun; sleep 1000\n")
        with self.root.popen("image", "build", "--progress", "plain", self.context) as p:
            for line in p.stderr:
                if b" begun" in line and b"RUN" not in line:
                    break
            self.root.kill_daemon()
            p.communicate(timeout=60)
        self.root.ok("reconcile")
        self.root.ok("image", "prune")
        self.assert_nothing_left()
        self.build("FROM base:1\nRUN echo works\n")
