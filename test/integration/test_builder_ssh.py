"""RUN --mount=type=ssh in the native builder, with an agent of OpenSSH: allowed and refused requests, owners of the socket,
clean-up; and base images from registries that require a login."""
import base64
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import unittest
from pathlib import Path

import image_registries
from image_registries import Image
from ripcord_test import Config, files_below, only_on, wait_until
from test_builder import BuildCase, cmdline
from test_images import BUSYBOX, entry, tar
from test_listen import Tcp

TOOLS = {name: shutil.which(name) for name in ("ssh-agent", "ssh-add", "ssh-keygen")}
LOGIN = "someone:s3cr3t-w0rd"
HTPASSWD = "someone:$2b$04$8TwM3MsxHhCKyMyJqW.fiu53uieJbog4bb3bttb7xqSpFGqE/SrrW\n"


def libraries(program):
    """The libraries that ldd lists for a program."""
    said = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
    return re.findall(r"(/\S+) \(0x", said)


def copy_program(program, root):
    for path in (program, *libraries(program)):
        to = root / path.lstrip("/")
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, to)


def told(said):
    """The output of commands, without the lines of the steps."""
    return re.findall(r"^#\d+ \d+\.\d+ (.*)$", said, re.M)


class Agent:
    """An ssh-agent with one key, at folder/NAME."""

    def __init__(self, folder, name="agent"):
        self.path, self.key = folder / name, folder / f"{name}-key"
        self.process = subprocess.Popen([TOOLS["ssh-agent"], "-D", "-a", self.path], stdout=subprocess.DEVNULL)
        wait_until(self.path.exists, 20, "the agent to listen")
        subprocess.run([TOOLS["ssh-keygen"], "-q", "-t", "ed25519", "-N", "", "-C", f"key-of-{name}", "-f", self.key], check=True)
        self.add(self.key)

    def add(self, *argv):
        done = subprocess.run([TOOLS["ssh-add"], *argv], env={"SSH_AUTH_SOCK": str(self.path)}, capture_output=True, text=True,
                              timeout=20, check=False)
        return done.stdout

    def close(self):
        self.process.kill()
        self.process.wait()


@only_on("native")
@unittest.skipUnless(os.path.exists(BUSYBOX), "busybox is not installed")
@unittest.skipUnless(all(TOOLS.values()), "openssh-client is not installed")
class SshCase(BuildCase):
    def prepare(self):
        super().prepare()
        self.agents = Path(tempfile.mkdtemp(prefix="ripcord-agents-"))  # they are none of what the root leaves
        self.addCleanup(shutil.rmtree, self.agents)
        for name in ("ssh-add", "ssh-keygen"):
            copy_program(TOOLS[name], self.context / "tools")
        self.build("FROM base:1\nCOPY tools/ /\nENV PATH=/bin:/usr/bin\n", tag="ssh:1")
        shutil.rmtree(self.context / "tools")

    def agent(self, name="agent"):
        agent = Agent(self.agents, name)
        self.addCleanup(agent.close)
        return agent


class Ssh(SshCase):
    def test_keys_are_listed_and_used_and_nothing_is_left(self):
        agent = self.agent()
        self.file("text", "to be signed")
        shutil.copy(agent.key.with_suffix(".pub"), self.context / "key.pub")
        said, _ = self.build(
            "FROM ssh:1\nCOPY key.pub text /\n"
            "RUN --mount=type=ssh ssh-add -l && stat -c 'is %u %g %a %F' $SSH_AUTH_SOCK && echo at $SSH_AUTH_SOCK\n"
            "RUN --mount=type=ssh,required ssh-keygen -Y sign -f /key.pub -n ripcord /text\n"
            "RUN ssh-add -l || echo without; echo socket ${SSH_AUTH_SOCK:-none}\n",
            "--ssh", "default", env={"SSH_AUTH_SOCK": str(agent.path)})
        self.assertIn("key-of-agent (ED25519)", said)
        for line in ("is 0 0 600 socket", "at /run/buildkit/ssh_agent.0", "without", "socket none"):
            self.assertIn(line, told(said))
        signature = self.sh("cat /text.sig")
        (self.agents / "sig").write_text(signature + "\n", encoding="utf-8")
        subprocess.run([TOOLS["ssh-keygen"], "-Y", "check-novalidate", "-n", "ripcord", "-s", self.agents / "sig"], check=True,
                       input=b"to be signed", stdout=subprocess.DEVNULL)
        self.assertEqual([p for p in self.root.walk("state/images/store") if p.name in ("run", "buildkit", "ssh_agent.0")], [])
        self.assert_nothing_left()
        named = [p for p in files_below(self.root.path / "state") if p.is_file() and str(agent.path).encode() in p.read_bytes()]
        self.assertEqual(named, [], "where the agent is stays with nobody")

    def test_a_command_cannot_change_the_agent(self):
        agent = self.agent()
        self.file("other", agent.key.read_text(encoding="utf-8"), mode=0o600)
        said, _ = self.build(
            "FROM ssh:1\nCOPY --chmod=600 other /k\n"
            "RUN --mount=type=ssh ssh-add -D || echo not removed; ssh-add /k || echo not added; "
            "ssh-add -l; "
            "rm -f $SSH_AUTH_SOCK || echo not unlinked; chmod 666 $SSH_AUTH_SOCK || echo not opened\n",
            "--ssh", f"default={agent.path}")
        for line in ("not removed", "not added", "not unlinked", "not opened"):
            self.assertIn(line, told(said))
        self.assertIn("key-of-agent", said)
        self.assertIn("key-of-agent", agent.add("-l"))
        agent.add("-D")
        self.assertNotIn("key-of-agent", agent.add("-l"), "here it would have gone")

    def test_owners_and_places(self):
        one, two = self.agent("one"), self.agent("two")
        said, _ = self.build(
            "FROM ssh:1\nWORKDIR /w\nRUN mkdir /there && touch /there/file\nUSER bob\n"
            "RUN --mount=type=ssh ssh-add -l || echo bob may not\n"
            "RUN --mount=type=ssh,uid=1000,gid=50,mode=0640 ssh-add -l && stat -c 'is %u %g %a' $SSH_AUTH_SOCK\n"
            "RUN --mount=type=ssh,mode=0666 ssh-add -l\n"
            "RUN --mount=type=ssh,id=two,target=sock,mode=0777 --mount=type=ssh,target=/there/file,mode=0666 "
            "echo first $SSH_AUTH_SOCK; ssh-add -l; SSH_AUTH_SOCK=/there/file ssh-add -l\n"
            "RUN --mount=type=ssh,id=nobody true\n",
            "--ssh", "default", "--ssh", f"two={two.path}", env={"SSH_AUTH_SOCK": str(one.path)})
        for line in ("bob may not", "is 1000 50 640", "first /w/sock"):
            self.assertIn(line, told(said))
        self.assertIn("key-of-two", said)
        self.assertEqual(said.count("key-of-one"), 3, said)
        self.assertEqual(self.sh("ls /w; stat -c '%F' /there/file"), "regular empty file")

    def test_the_agent_is_not_part_of_a_cache_key(self):
        one, two = self.agent("one"), self.agent("two")
        text = "FROM ssh:1\nRUN --mount=type=ssh ssh-add -l > /listed || :\n"
        _, first = self.build(text, "--ssh", f"default={one.path}")
        said, second = self.build(text, "--ssh", f"default={two.path}")
        self.assertIn("CACHED", said)
        said, third = self.build(text)
        self.assertIn("CACHED", said)
        self.assertEqual((first, second), (second, third))

    def test_many_at_once(self):
        agent = self.agent()
        said, _ = self.build("FROM ssh:1\nRUN --mount=type=ssh for i in $(seq 60); do ssh-add -l & done; wait; echo all\n",
                             "--ssh", f"default={agent.path}")
        self.assertEqual(said.count("key-of-agent"), 60)

    def test_an_agent_that_ends_does_not_hang_the_build(self):
        agent = self.agent()
        self.file("Dockerfile", "FROM ssh:1\nRUN --mount=type=ssh ssh-add -l; echo begun; sleep 3; ssh-add -l || echo gone\n")
        with self.root.popen("image", "build", "--progress", "plain", "--ssh", f"default={agent.path}", self.context) as p:
            for line in p.stderr:
                if b" begun" in line and b"RUN" not in line:
                    break
            agent.close()
            _, err = p.communicate(timeout=60)
        self.assertEqual(p.returncode, 0, err)
        self.assertIn(b" gone", err)

    def test_the_relay_is_unprivileged_and_ends_with_the_build(self):
        agent = self.agent()
        self.file("Dockerfile", "FROM ssh:1\nRUN --mount=type=ssh echo begun; sleep 1000\n")
        with self.root.popen("image", "build", "--progress", "plain", "--ssh", f"default={agent.path}", self.context) as p:
            for line in p.stderr:
                if b" begun" in line and b"RUN" not in line:
                    break
            builders = [pid for pid in self.root.processes() if b"ripcord-build" in cmdline(pid)]
            status = [Path(f"/proc/{pid}/status").read_text(encoding="ascii") for pid in builders]
            relays = [s for s in status if "\nSeccomp:\t2" in s]
            p.send_signal(signal.SIGINT)
            p.communicate(timeout=60)
        self.assert_nothing_left()
        if not Config.sanitized:  # which has system calls of its own
            self.assertEqual(len(relays), 1, status)
            self.assertIn("\nCapPrm:\t0000000000000000\n", relays[0])
            self.assertIn("\nNoNewPrivs:\t1\n", relays[0])

    @unittest.skipIf(os.geteuid() != 0, "becomes another user")
    def test_an_agent_of_another_user(self):
        folder = self.agents / "theirs"
        agent = self.agent()
        folder.mkdir(mode=0o700)
        os.chown(folder, 61234, 61234)
        self.agents.chmod(0o755)
        shutil.copy(agent.key, folder / "key")
        os.chown(folder / "key", 61234, 61234)
        with subprocess.Popen([TOOLS["ssh-agent"], "-D", "-a", folder / "sock"], stdout=subprocess.DEVNULL, user=61234, group=61234) as p:
            self.addCleanup(p.kill)
            wait_until((folder / "sock").exists, 20, "the agent to listen")
            subprocess.run([TOOLS["ssh-add"], "-q", folder / "key"], env={"SSH_AUTH_SOCK": str(folder / "sock")}, check=True)
            self.file("Dockerfile", "FROM ssh:1\nRUN --mount=type=ssh ssh-add -l; echo begun; sleep 3\n")
            with self.root.popen("image", "build", "--progress", "plain", "--ssh", f"default={folder / 'sock'}", self.context) as b:
                lines = []
                for line in b.stderr:
                    lines.append(line)
                    if b" begun" in line and b"RUN" not in line:
                        break
                builders = [pid for pid in self.root.processes() if b"ripcord-build" in cmdline(pid)]
                owners = [re.search(r"^Uid:\t(\d+)", Path(f"/proc/{pid}/status").read_text(encoding="ascii"), re.M)[1]
                          for pid in builders]
                b.communicate(timeout=60)
            p.kill()
        self.assertIn(b"ED25519", b"".join(lines))
        self.assertIn("61234", owners)


class Refused(SshCase):
    def refused(self, dockerfile, *words, options=(), code=2, **kwargs):
        result = self.try_build(dockerfile, *options, **kwargs)
        said = result.err.decode()
        self.assertEqual(result.code, code, result)
        for word in words:
            self.assertIn(word, said)
        self.assertNotIn(" ran\n", said)
        self.assertFalse(list((self.store() / "tmp").iterdir()))

    def test_required_but_not_given(self):
        agent = self.agent()
        text = "FROM ssh:1\nRUN echo ran\nRUN --mount=type=ssh,{}required true\n"
        self.refused(text.format(""), "line 3, column 5", "--ssh default")
        self.refused(text.format("id=other,"), "line 3, column 5", "--ssh other", options=("--ssh", f"default={agent.path}"))

    def test_no_agent_there(self):
        text = "FROM ssh:1\nRUN echo ran\nRUN --mount=type=ssh true\n"
        dead = self.agents / "dead"
        with socket.socket(socket.AF_UNIX) as s:
            s.bind(str(dead))
        key = self.agents / "key"
        key.write_text("-----BEGIN OPENSSH PRIVATE KEY-----\n", encoding="utf-8")
        self.refused(text, "SSH_AUTH_SOCK", options=("--ssh", "default"))
        self.refused(text, "/nowhere/agent", options=("--ssh", "default"), env={"SSH_AUTH_SOCK": "/nowhere/agent"})
        self.refused(text, str(dead), options=("--ssh", f"default={dead}"))
        self.refused(text, str(key), "ssh-add", options=("--ssh", f"default={key}"))
        self.refused(text, "'a/b'", options=("--ssh", "a/b=/x"))
        agent = self.agent()
        self.refused(text, "given twice", options=("--ssh", f"a={agent.path}", "--ssh", f"a={agent.path}"))

    def test_what_the_daemon_is_asked(self):
        for ssh, word in (("default", "ID=/PATH"), ("default=rel", "ID=/PATH"), ("a%2Fb=/x", "a/b"), ("default=/nowhere/agent", "/nowhere/agent"),
                          ("default=/etc/passwd", "not a socket"), ("&ssh=".join(f"a{i}=/x" for i in range(17)), "limit 16")):
            reply = self.root.http("POST", f"/v1/images/build?ssh={ssh}", tar(entry("Dockerfile", data=b"FROM ssh:1\nRUN echo ran\n")),
                                   {"Content-Type": "application/x-tar"})
            self.assertIn(reply.status, (400, 429), reply)
            self.assertIn(word, reply.body.decode())


@only_on("native")
class Far(Tcp):
    def test_an_agent_is_refused_over_tcp(self):
        reply = self.ask("POST", "/v1/images/build?ssh=default=/x", b"x", Content_Type="application/x-tar")
        self.assertEqual(reply.status, 501, reply)


@only_on("native")
@unittest.skipUnless(os.path.exists(BUSYBOX), "busybox is not installed")
class Login(BuildCase):
    def config(self, host, login=LOGIN):
        folder = self.root.path / "docker"
        folder.mkdir(exist_ok=True)
        auth = base64.b64encode(login.encode()).decode()
        (folder / "config.json").write_text(json.dumps({"auths": {host: {"auth": auth}}}), encoding="utf-8")
        return {"DOCKER_CONFIG": str(folder)}, (LOGIN.partition(":")[2].encode(), auth.encode())

    def assert_not_told(self, secrets, said):
        self.assertFalse(any(s in said for s in secrets), said)
        for path in files_below(self.root.path):
            if path.parent.name == "docker" or "layers" in path.parts:
                continue
            with contextlib.suppress(OSError):  # a socket, or gone meanwhile
                self.assertFalse(any(s in path.read_bytes() for s in secrets), path)

    def bases(self, registry):
        layer = tar(entry("hello", data=b"from a private base"))
        registry.put("team/base", "1", Image([layer]))
        return (f"FROM {registry.host}/team/base:1", f"ARG R={registry.host}\nFROM $R/team/base:1",
                f"FROM base:1\nCOPY --from={registry.host}/team/base:1 /hello /")

    def everything(self, registry):
        for text in self.bases(registry):
            result = self.try_build(f"{text}\n")
            self.assertEqual(result.code, 5, result)
            self.assertIn("requires credentials", result.err.decode())
            env, _ = self.config(registry.host, "someone:wrong")
            result = self.try_build(f"{text}\n", env=env)
            self.assertEqual(result.code, 5, result)
            env, secrets = self.config(f"http://{registry.host}/v1/")
            result = self.try_build(f"{text}\n", "-t", "made:1", env=env)
            self.assertEqual(result.code, 0, result)
            shown = self.root.ok("image", "show", "made:1", "--json").out
            self.assert_not_told(secrets, result.err + result.out + shown)
            self.root.ok("image", "rm", f"{registry.host}/team/base:1")
            self.root.ok("image", "prune")
        self.assert_nothing_left()

    @unittest.skipUnless(image_registries.PROGRAM, "docker-registry is not installed")
    def test_a_real_registry_with_passwords(self):
        registry = image_registries.RealRegistry(htpasswd=HTPASSWD, login=LOGIN)
        self.addCleanup(registry.close)
        self.everything(registry)

    def test_tokens(self):
        registry = image_registries.FakeRegistry(LOGIN)
        self.addCleanup(registry.close)
        self.everything(registry)

    def test_no_other_registry_gets_logins(self):
        registry = image_registries.FakeRegistry(LOGIN)
        self.addCleanup(registry.close)
        self.bases(registry)
        other = registry.host.replace("127.0.0.1", "127.0.0.2")
        env, _ = self.config(other)
        result = self.try_build(f"# {other}\nFROM {registry.host}/team/base:1\n", env=env)
        self.assertEqual(result.code, 5, result)

    def test_a_name_that_only_looks_like_the_registrys_gets_no_login(self):
        """The registry is the first part of the name after "docker.io/" is removed."""
        registry = image_registries.FakeRegistry(LOGIN)
        self.addCleanup(registry.close)
        self.bases(registry)
        for key in ("docker.io", "https://index.docker.io/v1/"):
            for before in ("docker.io/", "docker.io/library/", "docker.io/docker.io/"):
                env, _ = self.config(key)
                result = self.try_build(f"FROM {before}{registry.host}/team/base:1\n", env=env)
                self.assertEqual(result.code, 5, result)
                result = self.root.run("image", "pull", f"{before}{registry.host}/team/base:1", env=env)
                self.assertEqual(result.code, 5, result)

    def test_they_stay_here_when_the_daemon_is_elsewhere(self):
        registry = image_registries.FakeRegistry(LOGIN)
        self.addCleanup(registry.close)
        self.bases(registry)
        env, secrets = self.config(registry.host)
        self.root.kill_daemon()
        self.root.configure("http.listen: 127.0.0.1:0\n")
        self.root.start()
        address = self.root.get("/v1/version")["listen"]
        result = self.try_build(f"FROM {registry.host}/team/base:1\n", "--host", address, env=env)
        self.assertEqual(result.code, 5, result)
        self.assertIn("registry credentials are not sent", result.err.decode())
        self.assert_not_told(secrets, result.err + result.out)

    def test_a_broken_file_is_reported(self):
        for text in ("{", '{"auths": {"x.io": {"auth" "dTpodXNo"}}}'):
            env, _ = self.config("x.io")
            (self.root.path / "docker/config.json").write_text(text, encoding="utf-8")
            said, _ = self.build("FROM base:1\n", env=env)
            self.assertIn("registry credentials are not used", said)
            self.assertNotIn("dTpodXNo", said)

    def test_they_are_in_nobodys_arguments(self):
        registry = image_registries.FakeRegistry(LOGIN)
        self.addCleanup(registry.close)
        self.bases(registry)
        manifest = registry.files["/v2/team/base/manifests/1"]
        seen = []

        def look(handler):
            for pid in self.root.processes():
                for name in ("cmdline", "environ"):
                    with contextlib.suppress(OSError):
                        seen.append(Path(f"/proc/{pid}/{name}").read_bytes())
            handler.part(manifest)
        registry.files["/v2/team/base/manifests/1"] = look
        env, secrets = self.config(registry.host)
        self.assertEqual(self.try_build(f"FROM {registry.host}/team/base:1\n", env=env).code, 0)
        self.assertTrue(any(b"ripcord-transfer" in s for s in seen))
        self.assertFalse(any(x in s for x in secrets for s in seen))
