"""The answers of real engines and their classification (src/dockerapi/error-classes.c), on Docker and on Podman.

A row is a call and what must become of it on either engine: "ok", or the code and reason of the error. Names in
braces are the objects of the scene that every table has: {run} a running container, {made} one that was never
started, {paused}, {used} a volume of {run}, {net} a network that {netrun} runs on, {none} nothing of the kind.
"""
import io
import json
import os
import socket
import subprocess
import tarfile
import threading
import time
import unittest

import engines
from ripcord_test import Config, TestCase, only_on, serial, wait_until

SLEEP = ["sleep", "1000"]


def program():
    path = Config.bin / "test" / "unit" / "docker-call"
    if not path.exists():
        raise unittest.SkipTest(f"{path} is not built")
    return path


def call(host, *args, prefix=(), seconds=60, stdin=subprocess.DEVNULL, **kwargs):
    """Runs docker-call and decodes its output."""
    env = {**os.environ, "DOCKER_CALL_SECONDS": str(seconds)}
    argv = [*prefix, program(), host, *(json.dumps(a) if isinstance(a, (dict, list)) else a for a in args)]
    done = subprocess.run(argv, stdin=stdin, capture_output=True, env=env, timeout=seconds + 60, check=False, **kwargs)
    if not done.stdout:
        raise AssertionError(f"{argv}: {done}")
    return json.loads(done.stdout)


def verdict(said):
    return "ok" if said["ok"] else f"{said['code']}/{said['reason']}"


def box(image=engines.IMAGE, cmd=None, mode="none", **host):
    return {"Image": image, "Cmd": cmd or SLEEP, "HostConfig": {"NetworkMode": mode, **host}}


def tar_of(size, name="file"):
    """A tar with one file."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        info = tarfile.TarInfo(name)
        info.size = size
        tar.addfile(info, io.BytesIO(bytes(size)))
    return out.getvalue()


class Scene(unittest.TestCase):
    """Objects for the tables; removed afterwards."""

    def setUp(self):
        program()
        self.engine = Config.backend
        self.mark = f"facts-{self._testMethodName.replace('_', '-')}"
        self.names = {n: f"{self.mark}-{n}" for n in ("run", "made", "paused", "used", "net", "netrun", "none", "new")}
        self.addCleanup(self.clean)

    def clean(self):
        for found in self.engine.api("GET", "/containers/json?all=1").json():
            if self.mark in found["Names"][0]:
                self.engine.api("DELETE", f"/containers/{found['Id']}?force=1&v=1")
        for volume in self.engine.api("GET", "/volumes").json()["Volumes"] or []:
            if self.mark in volume["Name"]:
                self.engine.api("DELETE", f"/volumes/{volume['Name']}?force=1")
        for network in self.engine.api("GET", "/networks").json():
            if self.mark in network["Name"]:
                self.engine.api("DELETE", f"/networks/{network['Id']}")

    def must(self, *args):
        reply = self.engine.api(*args)
        self.assertTrue(reply.ok, reply)
        return reply

    def make(self, name, start=False, **kwargs):
        self.must("POST", f"/containers/create?name={self.names[name]}", box(**kwargs))
        if start:
            self.must("POST", f"/containers/{self.names[name]}/start")

    def make_boxes(self):
        self.must("POST", "/volumes/create", {"Name": self.names["used"]})
        self.make("run", start=True, Binds=[f"{self.names['used']}:/v"])
        self.make("made")
        self.make("paused", start=True)
        self.must("POST", f"/containers/{self.names['paused']}/pause")

    def fill(self, value):
        """Fills in the names of the objects."""
        text = json.dumps(value)
        for name, full in self.names.items():
            text = text.replace("{%s}" % name, full)
        return json.loads(text)

    def check(self, table):
        wrong = []
        for what, method, path, body, docker, podman in table:
            args = [method, self.fill(path), *([self.fill(body)] if body is not None else [])]
            said = call(self.engine.host, *args)
            want = docker if self.engine.kind == "docker" else podman
            if verdict(said) != want:
                wrong.append(f"{what}: {verdict(said)}, not {want}: {said}")
            elif want != "ok" and not said["message"].startswith(f"{self.engine.kind} says: "):
                wrong.append(f"{what}: not in the engine's words: {said}")
        self.assertEqual(wrong, [], "\n".join(wrong))


@only_on("docker", "podman")
class Tables(Scene):

    def test_images(self):
        self.make_boxes()
        self.check([
            ("inspect missing", "GET", "/images/{none}:1/json", None, "not_found/no_image", "not_found/no_image"),
            ("remove missing", "DELETE", "/images/{none}:1", None, "not_found/no_image", "not_found/no_image"),
            ("save missing", "GET", "/images/{none}:1/get", None, "not_found/no_image", "not_found/no_image"),
            ("tag missing", "POST", "/images/{none}:1/tag?repo=x", None, "not_found/no_image", "not_found/no_image"),
            ("remove used", "DELETE", f"/images/{engines.IMAGE}", None, "conflict/image_in_use", "conflict/image_in_use"),
            ("commit of missing", "POST", "/commit?container={none}", {}, "not_found/no_container", "not_found/no_container"),
            ("create on missing", "POST", "/containers/create?name={new}", box("none-such:1"),
             "not_found/no_image", "not_found/no_image"),
        ])

    def test_volumes(self):
        self.make_boxes()
        self.check([
            ("again", "POST", "/volumes/create", {"Name": "{used}"}, "ok", "ok"),
            ("bad name", "POST", "/volumes/create", {"Name": "a/{new}"}, "invalid/bad_request", "invalid/bad_request"),
            ("bad option", "POST", "/volumes/create", {"Name": "{new}", "DriverOpts": {"zzz": "1"}},
             "invalid/bad_request", "invalid/bad_request"),
            ("size without quota", "POST", "/volumes/create", {"Name": "{new}", "DriverOpts": {"size": "10m"}},
             "unsupported/no_quota", "ok"),
            ("inspect missing", "GET", "/volumes/{none}", None, "not_found/no_volume", "not_found/no_volume"),
            ("remove missing", "DELETE", "/volumes/{none}", None, "not_found/no_volume", "not_found/no_volume"),
            ("remove missing by force", "DELETE", "/volumes/{none}?force=1", None, "ok", "ok"),
            ("remove used", "DELETE", "/volumes/{used}", None, "conflict/volume_in_use", "conflict/volume_in_use"),
            ("remove used by force", "DELETE", "/volumes/{used}?force=1", None, "conflict/volume_in_use",
             "conflict/volume_in_use"),
        ])

    def test_volume_with_a_missing_driver(self):
        self.check([("unknown driver", "POST", "/volumes/create", {"Name": "{new}", "Driver": "nosuch"},
                     "unsupported/no_driver", "unsupported/no_driver")])

    def test_volume_with_a_missing_device(self):
        self.must("POST", "/volumes/create", {"Name": self.names["new"], "DriverOpts": {
            "type": "ext4", "device": "/dev/nosuch", "o": "ro"}})
        self.make("made", Binds=[f"{self.names['new']}:/v"])
        self.check([("start", "POST", "/containers/{made}/start", None, "invalid/mount_failed", "invalid/mount_failed")])

    def test_networks(self):
        self.must("POST", "/networks/create", {"Name": self.names["net"], "CheckDuplicate": True,
                                               "IPAM": {"Config": [{"Subnet": "10.177.11.0/24"}]}})
        self.make("netrun", start=True, mode=self.names["net"])
        self.check([
            ("exists", "POST", "/networks/create", {"Name": "{net}", "CheckDuplicate": True},
             "conflict/network_exists", "conflict/network_exists"),
            ("inspect missing", "GET", "/networks/{none}", None, "not_found/no_network", "not_found/no_network"),
            ("remove missing", "DELETE", "/networks/{none}", None, "not_found/no_network", "not_found/no_network"),
            ("remove used", "DELETE", "/networks/{net}", None, "conflict/network_in_use", "conflict/network_in_use"),
            ("predefined", "POST", "/networks/create", {"Name": "bridge"}, "denied/forbidden", "invalid/bad_request"),
            ("bad subnet", "POST", "/networks/create", {"Name": "{new}", "IPAM": {"Config": [{"Subnet": "300.1.1.0/24"}]}},
             "invalid/bad_request", "invalid/bad_request"),
            ("overlap", "POST", "/networks/create", {"Name": "{new}", "IPAM": {"Config": [{"Subnet": "10.177.11.0/24"}]}},
             "conflict/network_overlap", "conflict/network_overlap"),
            ("unknown driver", "POST", "/networks/create", {"Name": "{new}", "Driver": "nosuch"},
             "unsupported/no_driver", "unsupported/no_driver"),
            ("connect twice", "POST", "/networks/{net}/connect", {"Container": "{netrun}"},
             "conflict/network_connected", "conflict/network_connected"),
            ("connect missing", "POST", "/networks/{net}/connect", {"Container": "{none}"},
             "not_found/no_container", "not_found/no_container"),
            ("disconnect", "POST", "/networks/{net}/disconnect", {"Container": "{netrun}", "Force": True}, "ok", "ok"),
            ("disconnect twice", "POST", "/networks/{net}/disconnect", {"Container": "{netrun}"},
             "conflict/network_not_connected", "conflict/network_not_connected"),
        ])

    def test_missing_network(self):
        self.check([("create", "POST", "/containers/create?name={made}", box(mode="nosuchnet"), "ok", "not_found/no_network"),
                    ("start", "POST", "/containers/{made}/start", None, "not_found/no_network", "not_found/no_container")])

    @only_on("docker")
    def test_ambiguous_network(self):
        for _ in range(2):
            self.must("POST", "/networks/create", {"Name": self.names["net"]})
        self.make("made", mode=self.names["net"])
        self.check([(what, method, path, None, "conflict/network_ambiguous", None) for what, method, path in (
            ("inspect", "GET", "/networks/{net}"), ("remove", "DELETE", "/networks/{net}"),
            ("start", "POST", "/containers/{made}/start"))])

    def test_create(self):
        self.make_boxes()
        create = "/containers/create?name={new}"
        # In the engine's own folder, because Podman makes it.
        mount = {"Type": "bind", "Source": str(self.engine.place / "missing"), "Target": "/x"}
        self.check([
            ("name taken", "POST", "/containers/create?name={run}", box(), "conflict/name_taken", "conflict/name_taken"),
            ("bad name", "POST", "/containers/create?name=_", box(), "invalid/bad_request", "invalid/bad_request"),
            ("wrong type", "POST", create, [1], "invalid/bad_request", "invalid/bad_request"),
            ("size without quota", "POST", create, box(StorageOpt={"size": "1g"}), "unsupported/no_quota", "unsupported/no_quota"),
            ("rename to a taken name", "POST", "/containers/{made}/rename?name={run}", None,
             "conflict/name_taken", "conflict/name_taken"),
            ("rename missing", "POST", "/containers/{none}/rename?name={new}", None,
             "not_found/no_container", "not_found/no_container"),
            # From here on they succeed on Podman, which does not look.
            ("unknown runtime", "POST", create, box(Runtime="nosuch"), "unsupported/no_runtime", "ok"),
            ("low memory", "POST", create + "-1", box(Memory=1000), "invalid/bad_request", "ok"),
            ("too many CPUs", "POST", create + "-2", box(NanoCpus=10 ** 15), "invalid/bad_request", "ok"),
            ("missing source", "POST", create + "-3", box(Mounts=[mount]), "invalid/mount_failed", "ok"),
            ("init", "POST", create + "-4", box(Init=True), "ok", "unsupported/no_init"),
        ])

    def test_states(self):
        self.make_boxes()
        run, made, paused, none = ("/containers/{%s}" % n for n in ("run", "made", "paused", "none"))
        self.check([
            ("start again", "POST", run + "/start", None, "ok", "ok"),
            ("start missing", "POST", none + "/start", None, "not_found/no_container", "not_found/no_container"),
            ("start paused", "POST", paused + "/start", None, "conflict/paused", "conflict/bad_state"),
            ("kill made", "POST", made + "/kill", None, "conflict/not_running", "conflict/not_running"),
            ("kill missing", "POST", none + "/kill", None, "not_found/no_container", "not_found/no_container"),
            ("bad signal", "POST", run + "/kill?signal=NOSUCH", None, "invalid/bad_request", "invalid/bad_request"),
            ("pause made", "POST", made + "/pause", None, "conflict/not_running", "conflict/not_running"),
            ("pause twice", "POST", paused + "/pause", None, "conflict/paused", "conflict/paused"),
            ("unpause running", "POST", run + "/unpause", None, "conflict/not_paused", "conflict/not_paused"),
            ("unpause made", "POST", made + "/unpause", None, "conflict/not_paused", "conflict/not_paused"),
            ("remove running", "DELETE", run, None, "conflict/running", "conflict/running"),
            ("remove paused", "DELETE", paused, None, "conflict/paused", "conflict/paused"),
            ("remove missing", "DELETE", none + "?force=1", None, "not_found/no_container", "not_found/no_container"),
            ("stop missing", "POST", none + "/stop", None, "not_found/no_container", "not_found/no_container"),
            ("inspect missing", "GET", none + "/json", None, "not_found/no_container", "not_found/no_container"),
            ("wait for missing", "POST", none + "/wait", None, "not_found/no_container", "not_found/no_container"),
            ("stats of missing", "GET", none + "/stats?stream=0", None, "not_found/no_container", "not_found/missing"),
            ("logs of missing", "GET", none + "/logs?stdout=1", None, "not_found/no_container", "not_found/no_container"),
            ("logs of no stream", "GET", run + "/logs", None, "invalid/bad_request", "invalid/bad_request"),
            ("resize missing", "POST", none + "/resize?h=1&w=1", None, "not_found/no_container", "not_found/no_container"),
            ("bad filter", "GET", "/containers/json?filters=%7B%22nosuch%22%3A%5B%22x%22%5D%7D", None,
             "invalid/bad_request", "invalid/bad_request"),
            ("update", "POST", run + "/update", {"Memory": 1000}, "invalid/bad_request", "unsupported/no_call"),
            ("unknown call", "POST", "/nosuchcall", None, "unsupported/no_call", "unsupported/no_call"),
            ("stop running", "POST", run + "/stop?t=0", None, "ok", "ok"),
            ("stop stopped", "POST", run + "/stop?t=0", None, "ok", "ok"),
            ("kill stopped", "POST", run + "/kill", None, "conflict/not_running", "conflict/not_running"),
        ])

    def test_starts_that_fail(self):
        rows = []
        for i, (what, spec, want) in enumerate((
                ("no program", {"Cmd": ["/nosuch"]}, "not_found/no_program"),
                ("no program on the PATH", {"Cmd": ["nosuch"]}, "not_found/no_program"),
                ("not executable", {"Cmd": ["/etc/passwd"]}, "denied/not_executable"),
                ("no user", {"User": "nosuchuser"}, "invalid/no_user"))):
            name = f"{self.names['new']}-{i}"
            self.must("POST", f"/containers/create?name={name}", {**box(), **spec})
            rows.append((what, "POST", f"/containers/{name}/start", None, want, want))
        self.check(rows)

    def test_execs(self):
        self.make_boxes()
        cmd = {"Cmd": ["true"]}
        exec_id = self.must("POST", f"/containers/{self.names['run']}/exec", cmd).json()["Id"]
        self.must("POST", f"/exec/{exec_id}/start", {"Detach": True})
        wait_until(lambda: not self.must("GET", f"/exec/{exec_id}/json").json()["Running"], 60, "its end")
        self.check([
            ("in made", "POST", "/containers/{made}/exec", cmd, "conflict/not_running", "conflict/not_running"),
            ("in paused", "POST", "/containers/{paused}/exec", cmd, "conflict/paused", "conflict/paused"),
            ("in missing", "POST", "/containers/{none}/exec", cmd, "not_found/no_container", "not_found/no_container"),
            ("inspect missing", "GET", "/exec/0123456789abcdef/json", None, "not_found/no_exec", "not_found/no_exec"),
            ("start missing", "POST", "/exec/0123456789abcdef/start", {}, "not_found/no_exec", "not_found/no_exec"),
            ("start twice", "POST", f"/exec/{exec_id}/start", {"Detach": True}, "conflict/exec_started", "conflict/exec_started"),
        ])

    def test_archives(self):
        self.make_boxes()
        archive = "/containers/{run}/archive?path="
        self.check([
            ("get missing path", "GET", archive + "/nosuch", None, "not_found/no_path", "not_found/no_path"),
            ("get from missing", "GET", "/containers/{none}/archive?path=/etc", None,
             "not_found/no_container", "not_found/no_container"),
        ])
        # The engine refuses before it has read the whole body.
        with tempfile_of(tar_of(8 << 20)) as f:
            said = call(self.engine.host, "upload", "PUT", self.fill(archive + "/no/such"), stdin=f)
        self.assertEqual(verdict(said), "not_found/no_path" if self.engine.kind == "docker" else "ok", said)
        with tempfile_of(tar_of(1 << 20)) as f:
            self.assertEqual(verdict(call(self.engine.host, "upload", "PUT", self.fill(archive + "/tmp"), stdin=f)), "ok")
        with tempfile_of(tar_of(10, "../../etc/evil")) as f:
            said = call(self.engine.host, "upload", "PUT", self.fill(archive + "/tmp"), stdin=f)
        self.assertEqual(verdict(said), "invalid/outside" if self.engine.kind == "docker" else "ok", said)

    def test_load_of_rubbish_is_a_failure(self):
        with tempfile_of(b"rubbish" * 1000) as f:
            said = call(self.engine.host, "upload", "POST", "/images/load", stdin=f)
        self.assertFalse(said["ok"], said)

    def test_removal_in_progress(self):
        """Two removals of one object: one wins, the other gets 'in progress' or 'not found'."""
        seen = set()
        for i in range(6):
            name = f"{self.names['new']}-{i}"
            self.must("POST", f"/containers/create?name={name}", box())
            self.must("POST", f"/containers/{name}/start")
            said = together([lambda n=name: call(self.engine.host, "DELETE", f"/containers/{n}?force=1")] * 3)
            seen |= {verdict(s) for s in said}
        self.assertIn("ok", seen)
        self.assertLessEqual(seen, {"ok", "conflict/removing", "not_found/no_container"})
        if self.engine.kind == "docker":
            self.assertIn("conflict/removing", seen)

    def test_hijacked_exec(self):
        self.make("run", start=True)
        made = call(self.engine.host, "POST", f"/containers/{self.names['run']}/exec", {
            "AttachStdin": True, "AttachStdout": True, "AttachStderr": True, "Cmd": ["sh", "-c", "cat; echo no >&2; exit 3"]})
        exec_id = made["json"]["Id"]
        argv = [program(), self.engine.host, "hijack", f"/exec/{exec_id}/start", '{"Detach":false,"Tty":false}']
        done = subprocess.run(argv, input=b"x" * 200000, capture_output=True, timeout=60, check=True)
        self.assertEqual(demultiplex(done.stdout), {1: b"x" * 200000, 2: b"no\n"})
        self.assertEqual(call(self.engine.host, "GET", f"/exec/{exec_id}/json")["json"]["ExitCode"], 3)

    def test_events(self):
        label = f"facts={self.mark}"
        argv = [program(), self.engine.host, "events", label]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as listener:
            self.assertEqual(json.loads(listener.stdout.readline()), {"listening": True})
            name = self.names["new"]
            self.must("POST", f"/containers/create?name={name}", {**box(), "Labels": {"facts": self.mark}})
            for step in ("start", "pause", "unpause", "kill"):
                self.must("POST", f"/containers/{name}/{step}")
            self.must("POST", f"/containers/{name}/wait")
            self.must("DELETE", f"/containers/{name}")
            names = {1: "create", 2: "start", 3: "die", 4: "oom", 5: "pause", 6: "unpause", 8: "destroy"}
            found = []
            while not found or names.get(found[-1]["action"]) != "destroy":
                event = json.loads(listener.stdout.readline())
                if event not in found:  # Docker sends an event twice that happens during the subscription
                    found.append(event)
            listener.stdin.close()  # readable: the reader stops
            self.assertTrue(json.loads(listener.stdout.readline())["ok"])
        # dockerd repeats the pair if containerd's report of the pause reaches it after the unpause: see
        # test_docker_faults.py, test_a_late_report_repeats_a_pause. It cannot be waited for, as it changes nothing otherwise.
        actions = [names.get(e["action"]) for e in found]
        if actions[4:6] == ["pause", "unpause"]:
            del actions[4:6], found[4:6]
        self.assertEqual(actions, ["create", "start", "pause", "unpause", "die", "destroy"])
        self.assertEqual({(e["name"], e["type"]) for e in found}, {(name, 0)})
        self.assertEqual(found[4]["exit_code"], 137)


@only_on("docker", "podman")
class Unavailable(unittest.TestCase):
    """An engine that is missing, forbidden, hanging or full."""

    def setUp(self):
        program()
        self.engine = Config.backend

    def expect(self, said, code, *words):
        self.assertEqual((said["ok"], said["code"]), (False, code), said)
        for word in words:
            self.assertIn(word, said["message"] + "\n" + said["hint"])

    def test_socket_missing(self):
        self.expect(call(f"{self.engine.host}-gone", "open"), "engine", "does not exist", "systemctl start docker")

    def test_stale_socket(self):
        path = self.engine.place / "stale.sock"
        with socket.socket(socket.AF_UNIX) as s:
            s.bind(str(path))
        self.expect(call(f"unix://{path}", "open"), "engine", "not running", "Start the engine")

    def test_no_permission(self):
        self.expect(call(self.engine.host, "open", user=65534, group=65534), "denied", "permission denied", "usermod -aG docker")

    def test_hung_killed_and_restarted(self):
        with type(self.engine)(image=False) as engine:
            engine.kill(19)  # SIGSTOP
            since = time.monotonic()
            self.expect(call(engine.host, "open", seconds=1), "timeout", "accepts connections but did not answer within 1")
            self.assertLess(time.monotonic() - since, 30)
            engine.kill(18)  # SIGCONT
            engine.kill()
            self.expect(call(engine.host, "open"), "engine", "not running")
            engine.restart()
            self.assertTrue(call(engine.host, "open")["ok"])

    def test_killed_while_we_wait(self):
        """`wait` has already answered 200: an incomplete answer must be an error."""
        with type(self.engine)() as engine:
            made = engine.api("POST", "/containers/create?name=facts", box()).json()["Id"]
            engine.api("POST", f"/containers/{made}/start")
            argv = [program(), engine.host, "POST", f"/containers/{made}/wait"]
            with subprocess.Popen(argv, stdout=subprocess.PIPE) as waiting:
                time.sleep(3)  # until it waits, also on a slow machine
                engine.kill()
                said = json.loads(waiting.stdout.read())
            self.expect(said, "engine", "broke")
            self.assertEqual(said["reason"], "unreachable")

    def test_disk_full(self):
        with type(self.engine)(size=500) as engine:
            made = engine.api("POST", "/containers/create?name=facts", box()).json()["Id"]
            fill_up(engine.place / "data" / "filler")
            for path, body in (("/containers/create?name=facts-2", box()), ("/volumes/create", {"Name": "facts"}),
                               (f"/containers/{made}/start", None)):
                said = call(engine.host, "POST", path, *([body] if body else []))
                if not said["ok"]:
                    self.expect(said, "limit", "no space left on device", "more disk space")
                    self.assertEqual(said["reason"], "disk_full")
                    break
            else:
                self.fail("nothing failed on a full disk")
            # Docker removes on a full disk too; Podman's database wants room.
            said = call(engine.host, "DELETE", f"/containers/{made}?force=1")
            self.assertEqual(verdict(said), "ok" if engine.kind == "docker" else "limit/disk_full", said)


@only_on("docker")
class OwnDocker(unittest.TestCase):

    def setUp(self):
        program()

    def test_address_pools_used_up(self):
        with engines.Docker(image=False, flags=["--default-address-pool", "base=10.199.0.0/23,size=24"]) as engine:
            said = [call(engine.host, "POST", "/networks/create", {"Name": f"n{i}"}) for i in range(4)]
        self.assertIn("limit/network_pool", [verdict(s) for s in said], said)


@only_on("docker")
@serial("tls")
class AcrossTheNetwork(TestCase):
    """An engine behind TLS: verification in both directions, calls, streams and a whole sandbox."""

    def setUp(self):
        super().setUp()
        program()
        self.engine = docker_with_tls()
        self.addCleanup(self.engine.stop)
        self.host = f"tls://{self.engine.address}:2376?certs={self.engine.place}/certs"

    def test_tls(self):
        self.check_certificates()
        self.check_stream()
        self.check_sandbox()

    def check_certificates(self):
        self.assertTrue(call(self.host, "open")["ok"])
        others = make_certificates(self.engine.place / "others", self.engine.address)
        said = call(f"tls://{self.engine.address}:2376?certs={others}", "open")
        self.assertEqual(said["code"], "denied", said)

    def check_stream(self):
        made = call(self.host, "POST", "/containers/create?name=facts", box())["json"]["Id"]
        call(self.host, "POST", f"/containers/{made}/start")
        exec_id = call(self.host, "POST", f"/containers/{made}/exec",
                       {"AttachStdin": True, "AttachStdout": True, "Cmd": ["cat"]})["json"]["Id"]
        argv = [program(), self.host, "hijack", f"/exec/{exec_id}/start", '{"Detach":false,"Tty":false}']
        done = subprocess.run(argv, input=b"y" * 300000, capture_output=True, timeout=60, check=True)
        self.assertEqual(demultiplex(done.stdout), {1: b"y" * 300000})
        self.assertTrue(call(self.host, "DELETE", f"/containers/{made}?force=1")["ok"])

    def check_sandbox(self):
        (self.root.path / "ripcord.yaml").write_text(f"engine: docker\ndocker.host: {self.host}\n", encoding="ascii")
        self.root.ok("up", "box")
        result = self.root.run("exec", "-i", "box", "--", "sh", "-c", "cat; echo done >&2; exit 5", stdin=b"z" * 100000)
        self.assertEqual((result.code, result.out, result.err), (5, b"z" * 100000, b"done\n"))
        ping = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:7417/npm/-/ping', timeout=30).read().decode())"
        self.assertEqual(self.root.ok("exec", "box", "--", "python3", "-c", ping).text, "{}\n")
        self.assertEqual(self.root.ok("show", "box", "--json").json()["package_cache"], "stream")
        refused = self.root.run("run", "--mount", f"{self.root.path}:/x", "--", "true")
        self.assertIn(b"folders of this machine", refused.err)
        self.root.ok("rm", "-f", "box")
        self.assertEqual(self.engine.api("GET", "/containers/json?all=1").json(), [])


def docker_with_tls():
    """A dockerd on a TCP port that requires certificates; `address` is its address for this machine."""
    engine = engines.Docker(outside=True)
    engine.address = f"10.213.{engine.number}.2"
    engine.start()
    certs = make_certificates(engine.place / "certs", engine.address)
    engine.kill(15)
    engine.flags = ["-H", f"tcp://{engine.address}:2376", "--tlsverify", f"--tlscacert={certs}/ca.pem",
                    f"--tlscert={certs}/server.pem", f"--tlskey={certs}/server-key.pem"]
    try:
        return engine.restart()
    except BaseException:
        engine.stop()
        raise


def make_certificates(place, address):
    """Creates a CA with a server and a client certificate."""
    place.mkdir()
    new = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    signed = ["-CA", "ca.pem", "-CAkey", "ca-key.pem"]
    server = ["-addext", f"subjectAltName=IP:{address}", "-addext", "extendedKeyUsage=serverAuth"]
    for argv in (["-subj", "/CN=ca", "-keyout", "ca-key.pem", "-out", "ca.pem"],
                 [*signed, *server, "-subj", "/CN=engine", "-keyout", "server-key.pem", "-out", "server.pem"],
                 [*signed, "-addext", "extendedKeyUsage=clientAuth", "-subj", "/CN=client", "-keyout", "key.pem", "-out", "cert.pem"]):
        subprocess.run([*new, *argv], cwd=place, check=True, capture_output=True)
    return place


def fill_up(path):
    """Fills the file system completely, small gaps too."""
    with open(path, "wb", buffering=0) as f:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while f.write(bytes(size)):
                    pass
            except OSError:
                os.fsync(f.fileno())


def tempfile_of(data):
    """An unnamed file with these bytes, for reading."""
    f = open(os.memfd_create("facts"), "r+b")
    f.write(data)
    f.seek(0)
    return f


def demultiplex(data):
    """{stream: bytes} of a hijacked stream."""
    found, at = {}, 0
    while at < len(data):
        size = int.from_bytes(data[at + 4:at + 8], "big")
        found[data[at]] = found.get(data[at], b"") + data[at + 8:at + 8 + size]
        at += 8 + size
    return found


def together(functions):
    """Runs all calls at once and returns their results."""
    results = [None] * len(functions)

    def run(i):
        results[i] = functions[i]()
    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(functions))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return results
