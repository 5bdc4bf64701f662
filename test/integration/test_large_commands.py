"""Commands and environments as large as Linux takes: 128 KiB in one string, 2 MiB in all, any number of strings."""
import json
import signal
import threading
from pathlib import Path

from ripcord_test import Config, TestCase, needs, only_on, read_reply, serial, wait_until

STRING = 128 << 10  # MAX_ARG_STRLEN, with the final NUL
ALL = 2 << 20  # a quarter of the usual stack limit
COST = 9  # a NUL and a pointer
OURS = 16 << 10  # more than the variables of sandbox and image and the program's path take

COUNT = 'echo $#; printf %s "$@" | wc -c'


def size(strings):
    return sum(len(s) + COST for s in strings)


def words_of(total):
    """Words that take so much together, each as long as it may be."""
    words, full = [], STRING - 1 + COST
    while total >= full + COST:
        words.append("w" * (STRING - 1))
        total -= full
    return words + ["w" * (total - COST)]


class Case(TestCase):
    def setUp(self):
        super().setUp()
        self.root.start()

    def post(self, name, body, what="execs"):
        return self.root.http("POST", f"/v1/sandboxes/{name}/{what}", body)

    def finished(self, name, body, what="execs"):
        """The document of the exec, and its output."""
        reply = self.post(name, body, what)
        self.assertEqual(reply.status, 201, reply)
        x = reply.json()[what[:-1]]["id"]
        wait_until(lambda: self.root.exec_info(name, x)["state"] == "ended", 60, "the end of the command")
        return self.root.exec_info(name, x), self.root.http("GET", f"/v1/sandboxes/{name}/execs/{x}/stdout").body

    def refused(self, reply, *words):
        self.assertEqual((reply.status, reply.code), (400, "invalid"), reply)
        for word in words:
            self.assertIn(word, reply.json()["error"]["message"])
        self.assertIn("standard input", reply.json()["error"]["hint"])


class Arguments(Case):
    def test_the_longest_argument_and_one_byte_more(self):
        longest = "x" * (STRING - 1)
        self.root.ok("up", "a")
        for verb in (["run"], ["exec", "a"]):
            self.assertEqual(self.root.ok(*verb, "--", "sh", "-c", COUNT, "sh", longest).text.split(), ["1", "131071"])
        self.assertEqual(self.finished("a", {"argv": ["sh", "-c", COUNT, "sh", longest]})[1].split(), [b"1", b"131071"])
        before = len(self.root.get("/v1/sandboxes/a/execs")["execs"])
        boxes = {s["name"] for s in self.root.sandboxes()}  # a throw-away one may still be on its way out
        argv = ["sh", "-c", COUNT, "sh", longest + "x"]
        self.refused(self.post("a", {"argv": argv}), "argv[4]", "131072", "131071")
        upgrade = {"Connection": "Upgrade", "Upgrade": "ripcord-exec/1"}
        self.refused(self.root.http("POST", "/v1/run", {"exec": {"argv": argv}}, upgrade), "argv[4]")
        self.assertEqual(len(self.root.get("/v1/sandboxes/a/execs")["execs"]), before, "an exec was stored")
        self.assertLessEqual({s["name"] for s in self.root.sandboxes()}, boxes, "a sandbox was made")

    def test_two_mebibytes_and_more(self):
        self.root.ok("up", "a")
        argv = ["sh", "-c", COUNT, "sh"]
        words = words_of(ALL - OURS - size(argv))
        want = [str(len(words)), str(sum(map(len, words)))]
        for verb in (["run"], ["exec", "a"]):
            self.assertEqual(self.root.ok(*verb, "--", *argv, *words).text.split(), want)
        info, out = self.finished("a", {"argv": argv + words})
        self.assertEqual(out.decode().split(), want)
        self.assertEqual(info["argv_truncated"], {"words": len(argv + words), "bytes": sum(map(len, argv + words))})
        self.assertEqual(info["argv"][:4], argv)
        self.assertLess(len(json.dumps(info["argv"])), 33 << 10)
        before = len(self.root.get("/v1/sandboxes/a/execs")["execs"])
        self.refused(self.post("a", {"argv": argv + words_of(ALL - size(argv))}), "2097152", "2 MiB")
        self.assertEqual(len(self.root.get("/v1/sandboxes/a/execs")["execs"]), before, "an exec was stored")

    def test_what_only_the_kernel_can_know_is_a_failed_start(self):
        """The daemon counts what it knows; the program's path and the engine's variables come on top."""
        self.root.ok("up", "a")
        argv = ["/bin/" + "./" * 1000 + "true"]
        reply = self.post("a", {"argv": argv + words_of(ALL - 600 - size(argv))})
        self.assertEqual(reply.status, 201, reply)
        wait_until(lambda: self.root.exec_info("a")["state"] == "ended", 30, "its end")
        end = self.root.exec_info("a")["end"]
        self.assertEqual((end["cause"], end["status"]), ("start_failed", 125), end)
        self.assertIn("too large for Linux", end["message"])
        self.assertIn("standard input", end["hint"])
        self.assertEqual(self.root.ok("exec", "a", "--", "echo", "well").out, b"well\n")

    def test_twenty_thousand_words(self):
        self.root.ok("up", "a")
        words = [f"word-{i}" for i in range(20000)]
        for verb in (["run"], ["exec", "a"]):
            out = self.root.ok(*verb, "--", "sh", "-c", 'echo $#; shift 19999; echo "$1"', "sh", *words).text
            self.assertEqual(out.split(), ["20000", "word-19999"])
        info, out = self.finished("a", {"argv": ["sh", "-c", "echo $#", "sh"] + [""] * 220000})
        self.assertEqual((out, info["argv_truncated"]["words"]), (b"220000\n", 220004))

    def test_bytes_that_json_escapes(self):
        """Each of these is six bytes of the request."""
        self.root.ok("up", "a")
        words = ["\x01" * (STRING - 1)] * 15
        self.assertEqual(self.finished("a", {"argv": ["sh", "-c", COUNT, "sh"] + words})[1].split(), [b"15", b"1966065"])

    def test_a_terminal_and_input_with_a_large_command(self):
        self.root.ok("up", "a")
        words = words_of(1 << 20)
        result = self.root.ok("exec", "-i", "a", "--", "sh", "-c", "cat; echo $#", "sh", *words, stdin=b"typed\n")
        self.assertEqual(result.out, f"typed\n{len(words)}\n".encode())
        result = self.root.ok("exec", "-t", "a", "--", "sh", "-c", "test -t 1 && echo $#", "sh", *words)
        self.assertEqual(result.text.strip(), str(len(words)))

    def test_a_session(self):
        self.root.ok("up", "a")
        words, script = words_of(1 << 20), 'read line; echo "{\\"got\\":$line,\\"words\\":$#}"'
        result = self.root.ok("session", "a", "--payload", "-", "--env", "BIG=" + "e" * 100000, "--secret", "KEY",
                              "--", "sh", "-c", script, "sh", *words, stdin=b'{"turn":1}', env={"KEY": "k"})
        first = json.loads(result.out.splitlines()[0])
        self.assertEqual(first, {"got": {"turn": 1}, "words": len(words)})
        reply = self.post("a", {"argv": ["true", "x" * STRING], "payload": 1}, "sessions")
        self.refused(reply, "argv[1]")
        last = self.root.get("/v1/sandboxes/a/sessions/last")["session"]
        self.assertEqual(last["argv_truncated"]["words"], len(words) + 4)

    def test_the_document_survives_the_daemon(self):
        self.root.ok("up", "a")
        argv = ["sh", "-c", "sleep 1000", "sh"] + words_of(1 << 20)
        live = self.post("a", {"argv": argv}).json()["exec"]
        self.root.kill_daemon()
        self.root.start()
        again = self.root.exec_info("a", live["id"])
        self.assertEqual((again["argv"], again["argv_truncated"]), (live["argv"], live["argv_truncated"]))
        self.assertEqual(again["argv_truncated"], {"words": len(argv), "bytes": sum(map(len, argv))})
        self.root.ok("kill", "a", live["id"])
        wait_until(lambda: self.root.exec_info("a", live["id"])["state"] == "ended", 30, "its end")
        self.assertEqual(self.root.exec_info("a", live["id"])["argv_truncated"]["words"], len(argv))


class Variables(Case):
    def test_the_longest_variable_and_one_byte_more(self):
        self.root.ok("up", "a")
        longest = "v" * (STRING - 1 - len("BIG="))
        script = ["sh", "-c", 'printf %s "$BIG" | wc -c']
        self.assertEqual(self.finished("a", {"argv": script, "env": {"BIG": longest}})[1].split(), [b"131067"])
        self.refused(self.post("a", {"argv": script, "env": {"BIG": longest + "v"}}), "'BIG'", "131072", "131071")
        self.refused(self.root.http("PUT", "/v1/sandboxes/b", {"env": {"BIG": longest + "v"}}), "'BIG'")
        self.refused(self.root.http("PUT", "/v1/sandboxes/a", {"env": {"BIG": longest + "v"}}), "'BIG'")
        self.assertEqual([s["name"] for s in self.root.sandboxes()], ["a"])
        self.assertEqual(self.root.sandbox("a")["spec"]["env"], {})

    def test_five_thousand_of_a_sandbox(self):
        options = [w for i in range(5000) for w in ("--env", f"VAR_{i}=value {i}")]
        self.root.ok("up", "a", *options)
        script = "env | grep -c ^VAR_; echo $VAR_4999"
        check = lambda: self.assertEqual(self.shell("a", script), "5000\nvalue 4999\n")
        check()
        self.root.ok("stop", "a")
        check()
        self.root.kill_daemon(signal.SIGTERM)
        check()
        self.root.kill_daemon()
        check()
        self.assertEqual(self.root.ok("up", "a", *options).text.split(), ["a:", "unchanged"])
        self.assertEqual(len(self.root.sandbox("a")["spec"]["env"]), 5000)

    def test_two_mebibytes_of_a_sandbox(self):
        env = {f"V{i:02}": w[3 + 1:] for i, w in enumerate(words_of(ALL - OURS))}
        reply = self.root.http("PUT", "/v1/sandboxes/a", {"env": env})
        self.assertEqual(reply.status, 201, reply)
        script = 'printf %s "$V00$V07$V15" | md5sum'
        once = self.shell("a", script)
        self.root.ok("stop", "a")
        self.root.kill_daemon()
        self.assertEqual(self.shell("a", script), once)
        self.assertEqual(self.root.sandbox("a")["spec"]["env"], env)
        self.assertNotIn("env", self.root.sandboxes()[0]["spec"], "a list of many would be too long")
        self.refused(self.post("a", {"argv": ["true", "x" * (100 << 10)]}), "too large", "2 MiB")
        self.refused(self.root.http("PUT", "/v1/sandboxes/a", {"env": {"MORE": "x" * (100 << 10)}}), "2 MiB")
        self.assertEqual(self.root.sandbox("a")["spec"]["env"], env, "it was stored")

    def test_thousands_of_a_command_beside_those_of_the_sandbox(self):
        spec = {"env": {f"A_{i}": "sandbox" for i in range(5000)}}
        env = {f"A_{i}": "command" for i in range(0, 5000, 2)} | {f"B_{i}": "" for i in range(50000)}
        self.assertEqual(self.root.http("PUT", "/v1/sandboxes/a", spec).status, 201)
        script = "env | grep -c =sandbox; env | grep -c =command; env | grep -c ^B_"
        self.assertEqual(self.finished("a", {"argv": ["sh", "-c", script], "env": env})[1].split(),
                         [b"2500", b"2500", b"50000"])


class Requests(Case):
    def test_a_body_over_the_limit(self):
        for given in ({}, {"Content-Length": None, "Transfer-Encoding": "chunked"}):
            body = json.dumps({"argv": ["x" * (17 << 20)]}).encode()
            if given:
                body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
            reply = self.root.http("POST", "/v1/sandboxes/a/execs", body, given)
            self.assertEqual((reply.status, reply.code), (413, "limit"), reply)

    def test_a_body_of_too_many_values(self):
        """Each could take a hundred times its size in the daemon."""
        body = b'{"argv":[' + b"[]," * 1000000 + b"[]]}"
        reply = self.root.http("POST", "/v1/sandboxes/a/execs", body)
        self.assertEqual((reply.status, reply.code), (413, "limit"), reply)
        self.assertIn("too many JSON values", reply.json()["error"]["message"])

    @only_on("native")
    @serial("machine")
    def test_many_clients_take_turns_instead_of_memory(self):
        if Config.sanitized:
            self.skipTest("a sanitizer keeps freed memory")
        self.root.ok("up", "a")
        # 12 MiB of request for each: together 192 MiB.
        body = json.dumps({"argv": ["true"] + ["\x01" * (STRING - 1)] * 15}).encode()
        head = (b"POST /v1/sandboxes/a/execs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body))
        replies = []

        def client():
            with self.root.connect() as s:
                s.sendall(head + body)
                replies.append(read_reply(s))

        threads = [threading.Thread(target=client) for _ in range(16)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual([r.status for r in replies], [201] * 16, [r for r in replies if r.status != 201])
        status = Path(f"/proc/{self.root.daemon_pid()}/status").read_text(encoding="ascii")
        peak = int(status.split("VmHWM:")[1].split()[0]) >> 10
        self.assertLess(peak, 150, "MiB of the daemon")

    @needs("own kernel objects")
    def test_an_idle_supervisor_keeps_nothing_of_it(self):
        self.root.ok("up", "a")
        shim = next(p for p in self.root.processes()
                    if Path(f"/proc/{p}/comm").read_text(encoding="ascii").startswith("ripcord-shim")
                    and self.root.sandbox("a")["id"] in Path(f"/proc/{p}/cmdline").read_text(encoding="ascii"))

        def private():
            text = Path(f"/proc/{shim}/smaps_rollup").read_text(encoding="ascii")
            return int(text.split("Private_Dirty:")[1].split()[0])

        self.root.ok("exec", "a", "--", "true")
        for _ in range(3):
            self.root.ok("exec", "a", "--", "true", *words_of(ALL - OURS))
        self.root.ok("exec", "a", "--", "true", *["x"] * 100000)
        wait_until(lambda: private() < 200, 10, "the shim to give back its memory")
