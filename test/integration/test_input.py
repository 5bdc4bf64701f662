"""Bad input: refused before anything is created, with a message that names the field and the value."""
import json

from ripcord_test import TestCase

BAD_NAMES = ["", "A", "a_b", "a.b", "../x", "a/b", "-a", "a-", "a" * 64, "ü", "a b", "a\nb"]


class CommandLine(TestCase):
    def refused(self, *args, words=(), code=2):
        r = self.root.run(*args)
        self.assertEqual(r.code, code, r)
        text = r.err.decode(errors="replace")
        for word in words:
            self.assertIn(word, text, args)
        self.assertEqual(r.out, b"", r)
        return text

    def tearDown(self):
        if self.root.daemon_pid() is not None:
            self.assertEqual(self.root.sandboxes(), [], "something was created")
        super().tearDown()

    def test_bad_names(self):
        for name in BAD_NAMES:
            if not name.startswith("-"):
                self.refused("up", name)
        self.refused("up", "--", "-a")

    def test_a_bad_name_says_what_is_right(self):
        self.refused("up", "My_Box", words=["My_Box", "a-z"])

    def test_bad_sizes_and_numbers(self):
        for option, value in [("--memory", "lots"), ("--memory", "-1"), ("--memory", "1.5"),
                              ("--memory", "9" * 30), ("--cpus", "0"), ("--cpus", "x"), ("--cpus", "9999"),
                              ("--pids", "-3"), ("--pids", "1e3"), ("--disk", "1X"),
                              ("--idle-stop", "soon")]:
            self.refused("up", "a", option, value, words=[option, value])

    def test_a_number_out_of_range_names_the_option_and_readable_bounds(self):
        for option, value, words in [("--memory", "0", "--memory must be between 6 MiB and 1 PiB"),
                                     ("--memory", "2048T", "--memory must be between 6 MiB and 1 PiB"),
                                     ("--disk", "1M", "--disk must be between 16 MiB and 1 PiB"),
                                     ("--pids", "0", "--pids must be between 2 and 4194304"),
                                     ("--tmpfs", "tmp=1", "--tmpfs must be between 64 KiB and 1 PiB")]:
            self.refused("up", "a", option, value, words=[words])

    def test_bad_options_of_commands_that_run_are_125(self):
        """run and exec keep 0-124 for the command: our refusals there are 125."""
        for args in (["run", "--memory", "lots", "--", "true"], ["run", "--timeout", "soon", "--", "true"],
                     ["run", "--env", "1A=x", "--", "true"], ["run", "--user", "a b", "--", "true"],
                     ["run", "--workdir", "../relative", "--", "true"]):
            r = self.root.run(*args)
            self.assertEqual(r.code, 125, r)
            self.assertIn(args[2].split("=")[0].encode(), r.err)

    def test_bad_environment_does_not_echo_values(self):
        r = self.root.run("run", "--env", "BAD KEY=sek-987", "--", "true")
        self.assertEqual(r.code, 125, r)
        self.assertNotIn(b"sek-987", r.err)

    def test_bad_network_image_engine(self):
        self.refused("up", "a", "--network", "sometimes", words=["sometimes"])
        r = self.root.run("up", "a", "--engine", "warp")
        self.assertIn(r.code, (2, 7), r)
        self.assertIn(b"warp", r.err)
        r = self.root.run("up", "a", "--image", "no-such-image", "--pull", "never")
        self.assertIn(r.code, (2, 3, 7), r)
        self.assertIn(b"no-such-image", r.err)

    def test_unknown_option_suggests_the_nearest(self):
        self.assertIn("--memory", self.refused("up", "a", "--memroy", "1G", words=["--memroy"]))

    def test_unknown_command_suggests_the_nearest(self):
        self.assertIn("exec", self.refused("exce", "a", words=["exce"]))

    def test_missing_and_extra_arguments(self):
        self.refused("up")
        self.refused("rm")
        self.refused("show")
        self.refused("kill", "a")
        self.refused("ls", "extra", words=["extra"])
        self.refused("up", "a", "--memory")

    def test_an_option_without_its_value_names_it(self):
        self.refused("up", "a", "--memory", words=["--memory"])

    def test_control_bytes_are_not_echoed_raw(self):
        text = self.refused("up", "a\033[2Jb")
        self.assertNotIn("\033", text)

    def test_json_errors_are_machine_readable(self):
        r = self.root.run("show", "nobody", "--json")
        self.assertEqual(r.code, 3, r)
        error = json.loads(r.out or r.err)["error"]
        self.assertEqual(error["code"], "not_found")


class Bodies(TestCase):
    """Request bodies that are wrong."""

    def setUp(self):
        super().setUp()
        self.root.start()

    def tearDown(self):
        self.assertEqual(self.root.sandboxes(), [], "something was created")
        super().tearDown()

    def put(self, body, **kwargs):
        return self.root.http("PUT", "/v1/sandboxes/a", body, **kwargs)

    def test_unknown_field_names_it_and_the_nearest(self):
        self.assert_refused(self.put({"memroy": 1}), 400, "invalid", "memroy")
        self.assert_refused(self.put({"limits": {"memroy": 1}}), 400, "invalid", "limits.memroy", "memory")

    def test_duplicate_key(self):
        self.assert_refused(self.put(b'{"image":"host","image":"host"}'), 400, "invalid", "image")

    def test_wrong_types(self):
        for body, field in [({"limits": {"memory": "4G"}}, "limits.memory"), ({"limits": []}, "limits"),
                            ({"image": 7}, "image"), ({"env": ["A=b"]}, "env"), ({"env": {"A": 1}}, "A"),
                            ({"limits": {"pids": -1}}, "limits.pids"), ({"limits": {"pids": 1.5}}, "limits.pids"),
                            ({"labels": {"a": {}}}, "a"), ({"mounts": {}}, "mounts"), ({"user": []}, "user"),
                            ({"network": "sometimes"}, "network"), ({"idle_stop_ms": "1s"}, "idle_stop_ms")]:
            self.assert_refused(self.put(body), 400, "invalid", field)

    def test_wrong_values(self):
        for body in ({"limits": {"memory": 0}}, {"limits": {"memory": 1}}, {"limits": {"cpus": 0}},
                     {"limits": {"pids": 0}}, {"user": "a b"}, {"workdir": "relative"}, {"env": {"1A": "x"}},
                     {"env": {"A B": "x"}}, {"mounts": [{"source": "/etc", "target": "/mnt"}]},
                     {"mounts": [{"source": "/", "target": "/mnt"}]}, {"mounts": [{"source": "x", "target": "/m"}]}):
            reply = self.put(body)
            self.assertIn(reply.status, (400, 403), (body, reply))

    def test_not_json(self):
        for body in (b"{", b"[]", b"nonsense", b'"text"', b'{"image":"a\\u0000b"}', b"\xff\xfe{}", b"{} {}",
                     b"[" * 40 + b"]" * 40):
            reply = self.put(body)
            self.assertEqual((reply.status, reply.code), (400, "invalid"), (body, reply))

    def test_content_type_is_required(self):
        self.assertEqual(self.put({}, headers={"Content-Type": "text/plain"}).status, 415)
        self.assertEqual(self.put({}, headers={"Content-Type": None}).status, 415)

    def test_web_pages_are_refused(self):
        for field in ("Origin: http://evil.test", "Origin: null", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-site"):
            name, value = field.split(": ")
            for method, path in (("GET", "/v1/sandboxes"), ("PUT", "/v1/sandboxes/a"), ("POST", "/v1/run")):
                reply = self.root.http(method, path, {} if method != "GET" else None, headers={name: value})
                self.assertEqual((reply.status, reply.code), (403, "denied"), (field, path, reply))
        self.assertEqual(self.root.http("GET", "/v1/sandboxes", headers={"Sec-Fetch-Site": "none"}).status, 200)
        self.assertEqual(self.root.get("/v1/sandboxes")["sandboxes"], [])

    def test_body_over_the_limit(self):
        reply = self.put({"env": {"A": "x" * (20 << 20)}})
        self.assertEqual(reply.status, 413, reply)
        reply = self.root.http("PUT", "/v1/sandboxes/a", None, {"Content-Type": "application/json",
                                                              "Content-Length": str(1 << 40)})
        self.assertEqual(reply.status, 413, reply)

    def test_unknown_paths_and_methods(self):
        for target in ("/", "/v1", "/v1/nothing", "/v2/sandboxes", "/v1/sandboxes/", "/v1/sandboxes/a/b/c"):
            self.assertEqual(self.root.http("GET", target).status, 404, target)
        reply = self.root.http("POST", "/healthz", {})
        self.assertEqual(reply.status, 405, reply)
        self.assertEqual(self.root.http("POST", "/v1/sandboxes/a", {}).status, 405)

    def test_names_in_the_path(self):
        for name in ("A", "..", "%2e%2e", "a%2fb", "a%00b", "x" * 64, "a_b", "%", "%zz"):
            reply = self.root.http("PUT", f"/v1/sandboxes/{name}", {})
            self.assertIn(reply.status, (400, 404), (name, reply))
        self.assert_refused(self.root.http("GET", "/v1/sandboxes/nobody"), 404, "not_found", "nobody")

    def test_exec_bodies(self):
        self.root.ok("up", "b")
        target = "/v1/sandboxes/b/execs"
        for body in ({}, {"argv": []}, {"argv": "ls"}, {"argv": [1]}, {"argv": [""]}, {"argv": ["ls"], "tty": 1},
                     {"argv": ["ls"], "timeout_ms": -1}, {"argv": ["ls"], "user": "a b"}, {"argv": ["ls"], "x": 1},
                     {"argv": ["ls"], "workdir": "a/../b"}, {"argv": ["ls"], "workdir": ""}, {"argv": ["ls"], "workdir": "a//b"}, {"argv": ["ls"], "on_disconnect": "maybe"},
                     {"argv": ["ls"], "env": {"A=B": "c"}}):
            reply = self.root.http("POST", target, body)
            self.assertEqual((reply.status, reply.code), (400, "invalid"), (body, reply))
        self.assertEqual(self.root.get(target)["execs"], [])
        self.root.ok("rm", "b")

    def test_run_needs_a_whole_body(self):
        for headers in ({}, {"Connection": "Upgrade", "Upgrade": "ripcord-exec/1"}):
            for body in ({}, {"spec": {}}, {"spec": {"x": 1}, "exec": {"argv": ["true"]}}, {"exec": {"argv": []}}):
                reply = self.root.http("POST", "/v1/run", body, headers=headers)
                self.assertEqual((reply.status, reply.code), (400, "invalid"), (body, reply))

    def test_unknown_execs(self):
        self.root.ok("up", "b")
        for target in ("/v1/sandboxes/b/execs/last", "/v1/sandboxes/b/execs/nope",
                       "/v1/sandboxes/b/execs/nope/stdout"):
            self.assert_refused(self.root.http("GET", target), 404, "not_found")
        self.root.ok("rm", "b")

    def test_bad_signals(self):
        self.root.ok("up", "b")
        self.root.ok("exec", "b", "--detach", "--", "sleep", "100")
        for body in ({"signal": "NOPE"}, {"signal": 9}, {"signal": "0"}, {"signal": "TERM", "x": 1}):
            reply = self.root.http("POST", "/v1/sandboxes/b/execs/last/signal", body)
            self.assertEqual(reply.status, 400, (body, reply))
        self.root.ok("rm", "-f", "b")
