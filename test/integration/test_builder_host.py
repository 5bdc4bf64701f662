"""FROM host: layers above the machine's own programs, which are read-only and in no layer."""
import hashlib
import io
import json
import tarfile

from ripcord_test import only_on, wait_until
from test_builder import BuildCase


class HostCase(BuildCase):
    """Nothing is imported: `host` is always there."""

    def prepare(self):
        self.file("f", "from the context")

    def refused(self, dockerfile, code, *words, options=()):
        done = self.assert_exit(self.try_build(dockerfile, *options), code)
        for word in words:
            self.assertIn(word, done.err.decode())
        return done.err.decode()

    def layers(self):
        return sorted(p.name for p in (self.store() / "layers").iterdir())


@only_on("native")
class Host(HostCase):
    def test_steps_have_the_machines_programs_and_sandboxes_too(self):
        said, image = self.build(
            "FROM host\nRUN id -u; python3 -c 'print(6 * 7)'; echo made > /opt/made; mkdir /opt/bin\n"
            "ENV PATH=/opt/bin:$PATH WHAT=env\n"
            "COPY --chmod=755 <<E /opt/bin/tool\n#!/bin/sh\necho tool $WHAT\nE\n"
            "WORKDIR /srv/app\nCOPY --chown=agent f .\nUSER agent\nRUN tool; id -un; touch /home/agent/mine mine || echo not mine\n")
        for words in ("0\n", "42", "tool env", "agent", "not mine"):
            self.assertIn(words, said)
        done = self.root.ok("run", "--image", "made:1", "--", "sh", "-c",
                            "tool; id -un; pwd; cat f; stat -c ' %U %n' f /home/agent/mine /opt/made; python3 -c 'print(1)'")
        self.assertEqual(done.text, "tool env\nagent\n/srv/app\nfrom the context agent f\n agent /home/agent/mine\n root /opt/made\n1\n")
        self.assertEqual(self.build("FROM host\n", tag="bare")[1], self.root.ok("image", "show", "bare", "--json").json()["id"])
        self.assertEqual(self.root.ok("run", "--image", "bare", "--", "sh", "-c", "id -un; ls -A /opt; pwd").text, "agent\n/home/agent\n")
        shown = self.root.ok("image", "show", image, "--json").json()
        self.assertEqual((shown["base"], len(shown["layers"]), shown["agent"]), ("host", 5, True))
        self.assertLess(shown["bytes"], 4096, "a part of the machine was copied")
        self.assertRegex(self.root.ok("image", "show", "made:1").text, r"Base +host\n")
        self.assertRegex(self.root.ok("image", "ls").text, r"made:1 .* host\+5 ")
        self.assertRegex(self.root.ok("image", "ls").text, r"bare:latest .* host\+0 ")
        self.assert_nothing_left()

    def test_commands_and_variables_as_large_as_linux_takes(self):
        """A line of a Dockerfile is shorter than 64 KiB, so they are folded."""
        fold = lambda s: "\\\n".join(s[i:i + 60000] for i in range(0, len(s), 60000))
        longest = "x" * (131071 - len("V00="))
        env = "".join(f"ENV V{i:02}={fold(longest)}\n" for i in range(14))
        few = "".join(f"ENV W{i}=w\n" for i in range(3000))
        said, _ = self.build(f"FROM host\n{env}{few}RUN env | grep -c ^W; echo ${{#V13}} > /opt/len; : {fold('y' * 100000)}\n"
                             f"RUN : {fold(chr(1) * 100000)}; echo control\n")
        self.assertIn("control\n", said)
        self.assertIn("3000\n", said)
        script = "cat /opt/len; echo ${#V00}; env | grep -c ^W"
        self.assertEqual(self.root.ok("run", "--image", "made:1", "--", "sh", "-c", script).text, "131067\n131067\n3000\n")
        self.refused(f"FROM host\nRUN echo ran\nRUN : {fold('y' * 131072)}\n", 6, "line 3", "131071", "hint:", "heredoc")
        self.refused(f"FROM host\n{env}{env.replace(' V', ' U')}RUN true\n", 6, "too large", "2097152")
        self.refused(f"FROM host\nENV A={fold('y' * 131070)}\n", 6, "'A' is too long", "131071")
        self.assert_nothing_left()

    def test_usr_stays_as_it_is(self):
        said, _ = self.build("FROM host\nRUN touch /usr/local/x || rm -f /usr/bin/env; mv /usr /other || ln -sfn /opt /usr || true\n")
        self.assertEqual((said.count("Read-only file system"), said.count("busy")), (3, 1), said)
        self.assertEqual(self.sh("ls -d /usr/local/x /other 2>/dev/null; env true && touch /usr/x 2>&1 || echo refused").split("\n")[-1], "refused")
        for line, column in (("COPY f /usr/local/f", 8), ("ADD f /opt/../usr/", 7), ("WORKDIR /usr/src/app", 9), ("COPY <<E /usr/e\nE", 10)):
            before = self.layers()
            self.refused(f"FROM host\nRUN echo ran\n{line}\n", 7, f"line 3, column {column}:", "/usr of 'host'", "read-only", "/opt")
            self.assertEqual(self.layers(), before, "a step was done before the refusal")
        self.file("tree/usr/bin/x")
        self.file("tree/opt/y")
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            tar.add(self.context / "tree", ".")
        (self.context / "tree.tar").write_bytes(archive.getvalue())
        for line, column in (("COPY f /bin/f", 8), ("COPY f /lib/new/f", 8), ("WORKDIR /sbin/new", 9), ("COPY tree /", 11), ("ADD tree.tar /", 14)):
            self.refused(f"FROM host\n{line}\n", 7, f"line 2, column {column}:", "Read-only file system", "/usr of 'host'")
        self.refused("FROM host\nRUN ln -s /usr/share /s\nCOPY f /s/f\n", 1, "File exists", "/usr of 'host'")
        self.refused("FROM host\nRUN --mount=type=cache,target=/usr/new true\n", 1, "Read-only file system", "/usr/new")
        self.assert_nothing_left()

    def test_done_steps_are_not_done_again_and_not_for_others(self):
        text = "FROM host\nRUN cat /proc/sys/kernel/random/uuid > /opt/id\nCOPY f /opt/\n"
        _, first = self.build(text)
        self.assertEqual(self.build(text, tag="again"), (self.build(text)[0], first))
        self.assertEqual(self.build(text)[0].count("CACHED"), 2)
        self.assertEqual(self.build(text, "--pull")[1], first, "nobody is asked for the machine")
        self.assertNotEqual(self.build(text, "--no-cache")[1], first)
        _, mine = self.build("FROM host\nCOPY f /opt/f\n", tag="mine")
        said, alone = self.build("FROM scratch\nCOPY f /opt/f\n", tag="alone")
        self.assertNotIn("CACHED", said)
        self.assertNotEqual(mine, alone)
        self.assertIsNone(self.root.ok("image", "show", "alone", "--json").json()["base"])
        self.assertEqual(self.root.ok("run", "--image", "mine", "--", "cat", "/opt/f").text, "from the context")
        self.assert_exit(self.root.run("run", "--image", "alone", "--", "cat", "/opt/f"), 127)

    def test_stages_and_images_on_it(self):
        said, _ = self.build(
            "FROM host AS one\nRUN echo one > /opt/one; echo dan:x:1234:5::/: >> /etc/passwd\nFROM one AS two\nRUN cat /opt/one\nFROM host\n"
            "COPY --from=two /opt/one /opt/copied\nRUN --mount=from=two,source=/opt,target=/m ls /m; cat /opt/copied; ls /opt\n")
        self.assertIn("one\n", said)
        self.assertEqual(self.sh("cat /opt/copied; ls /opt; grep dan /etc/passwd || true"), "one\ncopied")
        _, above = self.build("FROM made:1\nUSER 7\nRUN id -g > /var/tmp/g; cat /opt/copied\n", tag="above")
        self.assertEqual(self.root.ok("image", "show", above, "--json").json()["base"], "host")
        self.assertEqual(self.root.ok("run", "--image", "above", "--user", "0", "--", "cat", "/opt/copied", "/var/tmp/g").text, "one\n0\n")
        self.refused("FROM above\nCOPY f /usr/f\n", 7, "line 2, column 8:", "/usr of 'host'")
        self.build("FROM scratch\nCOPY --from=above /opt /\nCOPY --from=made:1 /etc/passwd /\n", tag="apart")
        self.assertIsNone(self.root.ok("image", "show", "apart", "--json").json()["base"])
        self.assertIn(b"agent", self.root.ok("image", "export", "apart").out)
        for line, place in (("COPY --from=host /etc/passwd /", "line 2, column 6:"), ("RUN --mount=from=host,target=/m true", "line 2, column 5:"),
                            ("COPY --from=above /usr/bin/env /opt/", "line 2, column 19:"),
                            ("RUN --mount=from=above,source=usr/bin,target=/m true", "line 2, column 5:")):
            self.refused(f"FROM host\n{line}\n", 7, place, "RUN cp /usr/")
        self.refused("FROM host\nCOPY --from=above /bin/env /opt/\n", 3, "RUN cp /usr/")

    def test_it_goes_nowhere_else(self):
        self.build("FROM host\nRUN echo x > /opt/x\n")
        target = self.root.path / "out.tar"
        for argv in (("export", "made:1", "-o", target), ("export", "--format", "docker", "made:1", "-o", target),
                     ("push", "made:1", "127.0.0.1:1/made:1")):
            done = self.assert_exit(self.root.run("image", *argv), 7)
            self.assertIn("built on 'host'", done.err.decode())
            self.assertIn("hint:", done.err.decode())
        self.assertFalse(target.exists())
        for argv in (("run", "--isolation", "strict", "--image", "made:1", "--", "true"), ("up", "--isolation", "strict", "--image", "made:1", "a")):
            done = self.assert_exit(self.root.run(*argv), 125 if argv[0] == "run" else 7)
            self.assertIn("isolation 'strict' is not possible with an image built on 'host'", done.err.decode())
        self.assertEqual(self.root.sandboxes(), [])
        self.assert_nothing_left()

    def test_an_archive_cannot_claim_the_host_base(self):
        config = json.dumps({"architecture": "amd64", "os": "linux", "ripcord.base": "host-1", "rootfs": {"type": "layers", "diff_ids": []}}).encode()
        name = f"{hashlib.sha256(config).hexdigest()}.json"
        index = json.dumps([{"Config": name, "RepoTags": ["odd:1"], "Layers": []}]).encode()
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            for name, data in ((name, config), ("manifest.json", index)):
                entry = tarfile.TarInfo(name)
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))
        done = self.assert_exit(self.root.run("image", "import", "-", stdin=archive.getvalue()), 7)
        self.assertIn("built on 'host'", done.err.decode())
        self.assertEqual(self.root.ok("image", "ls", "--json").json()["images"], [])

    def test_homes_are_the_images_and_outlive_the_daemon(self):
        self.build("FROM host\nUSER agent\nRUN echo image > ~/given; rm ~/.bashrc\n")
        self.build("FROM host\nRUN rm -r /home/agent\n", tag="homeless")
        self.root.ok("up", "a", "--image", "made:1")
        self.root.ok("exec", "a", "--", "sh", "-c", "cat ~/given; test ! -e ~/.bashrc && echo own > ~/own")
        self.root.kill_daemon()
        self.assertEqual(self.root.ok("exec", "a", "--", "sh", "-c", "cat ~/given ~/own; touch /opt/x 2>/dev/null || id -un").text, "image\nown\nagent\n")
        self.assert_exit(self.root.run("image", "rm", "made:1"), 4)
        self.root.ok("stop", "a")
        self.root.ok("image", "prune")
        self.root.ok("up", "a", "--image", "made:1")
        self.assertEqual(self.root.ok("exec", "a", "--", "cat", "own", "given").text, "own\nimage\n")
        self.assertEqual(self.root.ok("run", "--image", "homeless", "--", "sh", "-c", "touch ~/x; stat -c %U ~; ls ~").text, "agent\nx\n")
        self.root.ok("rm", "a")
        self.root.ok("image", "rm", "made:1")
        self.root.ok("image", "rm", "homeless")
        self.root.ok("image", "prune")
        self.assertEqual(self.layers(), [])
        self.assertEqual(len(list((self.root.path / "state" / "images" / "host").iterdir())), 1, "the machine's own must stay")
        self.assertEqual(self.root.ok("run", "--", "echo", "still").text, "still\n")

    def test_the_machines_part_is_the_present_one(self):
        """A daemon that finds the machine changed makes the lowest layer anew, and images lie on that."""
        self.build("FROM host\nRUN echo x > /opt/x; echo more >> /etc/hosts\n")
        self.root.kill_daemon()
        [folder] = (self.root.path / "state" / "images" / "host").iterdir()
        (folder / "etc" / "of-old").write_text("")
        folder.rename(folder.with_name("g-0000000000000000"))
        done = self.root.ok("run", "--image", "made:1", "--", "sh", "-c", "cat /opt/x; tail -n 1 /etc/hosts; ls /etc/of-old 2>&1 || cat /etc/hostname")
        self.assertEqual(done.text.splitlines()[:2], ["x", "more"])
        self.assertIn("No such file", done.text)
        self.assertEqual([p.name for p in folder.parent.iterdir()], [folder.name])

    def test_a_build_that_is_cut_short_leaves_nothing(self):
        self.file("Dockerfile", "FROM host\nRUN echo first > /opt/first\nRUN echo begun; sleep 1000\n")
        for end in (lambda p: p.terminate(), lambda p: self.root.kill_daemon()):
            with self.root.popen("image", "build", "--progress", "plain", self.context) as p:
                for line in p.stderr:
                    if b" begun" in line and b"RUN" not in line:
                        break
                end(p)
                p.communicate(timeout=60)
            self.assertNotEqual(p.returncode, 0)
            self.root.ok("reconcile")
            wait_until(lambda: self.root.ok("image", "prune") and not self.layers(), 20, "the layers to go")
            self.assert_nothing_left()

    def test_a_start_copies_nothing(self):
        self.build("FROM host\nRUN head -c 50000000 /dev/zero > /opt/large\n")
        before = self.used()
        self.root.ok("up", "a", "--image", "made:1")
        self.assertEqual(self.root.ok("exec", "a", "--", "stat", "-c", "%s", "/opt/large").text, "50000000\n")
        self.assertLess(self.used() - before, 1 << 20)

    def used(self):
        return sum(p.lstat().st_blocks * 512 for p in self.root.walk("state"))
