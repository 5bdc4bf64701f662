"""What every command has: help, machine-readable output, completion."""
import contextlib
import fcntl
import json
import os
import re
import shlex
import shutil
import signal
import struct
import subprocess
import tempfile
import termios
import unittest
from pathlib import Path

from ripcord_test import Config, TestCase

SOME_COMMANDS = ["run", "up", "exec", "ls", "show", "ps", "logs", "kill", "stop", "rm", "doctor", "config", "version", "cache",
                 "image", "daemon"]


def commands(root):
    """All commands, as the program lists them."""
    section = root.ok("--help").text.partition("\nCommands:\n")[2].partition("\n\n")[0]
    return [line.split()[0] for line in section.splitlines()]


class Help(TestCase):
    def test_help_lists_the_commands(self):
        self.assertEqual(set(SOME_COMMANDS) - set(commands(self.root)), set())

    def test_each_command_has_help_and_starts_no_daemon(self):
        for command in commands(self.root):
            text = self.root.ok(command, "--help").text
            self.assertIn(command, text)
        self.assertIsNone(self.root.daemon_pid())

    def test_each_command_has_a_manual_page_with_all_its_options(self):
        for command in commands(self.root):
            page = (Config.bin / "man" / f"ripcord-{command}.1").read_text(encoding="utf-8").replace("\\-", "-")
            options = re.findall(r"(?m)^ {2}(?:-\w, | {4})(--[a-z-]+)", self.root.ok(command, "--help").text)
            self.assertIn("--json", options)
            self.assertEqual([o for o in options if f"\\fB{o}\\fR" not in page], [], command)

    def test_the_manual_pages_of_image_and_cache_name_each_action(self):
        for command, actions in (("image", "build import export pull push ls show rm prune lint"), ("cache", "ls show verify prune rm warm")):
            page = (Config.bin / "man" / f"ripcord-{command}.1").read_text(encoding="utf-8")
            for action in actions.split():
                self.assertRegex(page, rf"(?m)^\.B ripcord\n{command} {action}\b")

    def test_the_manual_has_every_key_of_the_configuration(self):
        page = (Path(__file__).parents[2] / "man" / "ripcord.yaml.5").read_text(encoding="utf-8")
        for key in self.root.ok("config", "--json").json()["config"]:
            self.assertRegex(page, rf'(?m)^\.BR .*\b{re.escape(key)}\b')

    def test_words_of_other_tools_lead_to_ours(self):
        for words, ours in ((["top"], "ps"), (["destroy"], "rm"), (["image", "load"], "image import"), (["load"], "image import"),
                            (["versoin"], "version")):
            done = self.assert_exit(self.root.run(*words), 2)
            self.assertIn(f"Did you mean 'ripcord {ours}'?", done.err.decode())
        for word in ("lorem", "xyz", "creation"):
            self.assertNotIn(b"Did you mean", self.root.run(word).err)
        for word, hint in (("volume", "--mount"), ("restart", "ripcord up NAME"), ("login", "~/.docker/config.json")):
            done = self.assert_exit(self.root.run(word), 2)
            self.assertIn(f"unknown command '{word}'\nhint: ", done.err.decode())
            self.assertIn(hint, done.err.decode())

    def test_commands_of_other_tools_that_mean_the_same(self):
        done = self.assert_exit(self.root.run("start", "typo"), 3)
        self.assertIn(b"no sandbox 'typo'", done.err)
        self.root.ok("create", "a")
        self.root.ok("stop", "a")
        self.root.ok("start", "a")
        self.assertEqual(self.root.ok("list", "-q").out, b"a\n")
        self.assertEqual(self.root.ok("inspect", "a", "--json").json()["sandbox"]["state"], "running")
        self.assertEqual(self.root.ok("images", "--json").out, self.root.ok("image", "ls", "--json").out)
        self.root.ok("pause", "a")
        self.root.ok("unpause", "a")
        self.assertEqual(self.root.ok("image", "list", "--json").out, self.root.ok("image", "ls", "--json").out)
        self.assertEqual(self.root.ok("cache", "list", "--json").out, self.root.ok("cache", "ls", "--json").out)
        self.assert_exit(self.root.run("rmi", "no-such-image"), 3)
        self.root.ok("remove", "a")
        self.assertEqual(self.root.sandboxes(), [])
        self.assertIn(b"Usage: ripcord up NAME", self.root.ok("start", "--help").out)

    def test_options_of_other_tools(self):
        self.assertEqual(self.root.ok("run", "--rm", "-m", "64M", "--pids-limit", "50", "--", "echo", "hi").out, b"hi\n")
        self.root.ok("ls", "-a")
        for command, option, value, problem, hint in (
                ("run", "-p", "8080:80", "no port of a sandbox is published", "ripcord port NAME PORT"),
                ("up", "--publish", "8080:80", "no port of a sandbox is published", "ripcord port NAME PORT"),
                ("run", "--name", "x", "'run' removes its sandbox", "ripcord up NAME"),
                ("run", "--privileged", "true", "a sandbox never has the rights", "--user 0"),
                ("run", "--ro-bind", "/a", "it takes one word here", "SRC:DST:ro")):
            done = self.assert_exit(self.root.run(command, option, value), 125 if command == "run" else 2)
            self.assertIn(f"ripcord: {option}: {problem}", done.err.decode())
            self.assertIn(hint, done.err.decode().partition("hint: ")[2])
        self.assertIn(b"option '--rm' takes no value", self.assert_exit(self.root.run("run", "--rm=yes", "--", "true"), 125).err)
        self.assertIn(b"unknown option '--rm'", self.assert_exit(self.root.run("exec", "a", "--rm", "--", "true"), 125).err)

    def test_typos_get_a_plausible_word_or_none(self):
        for words, near in ((["exce"], "ripcord exec"), (["runn"], "ripcord run"), (["sl"], "ripcord ls"), (["imgae"], "ripcord image"),
                            (["lits"], "ripcord ls"), (["imags"], "ripcord image"), (["strat"], "ripcord up --no-create"),
                            (["ls", "--state", "runing"], "running"), (["ls", "--engine", "nativ"], "native"),
                            (["up", "a", "--isolation", "confind"], "confined"), (["up", "a", "--network", "opne"], "open"),
                            (["up", "a", "--memroy", "1G"], "--memory"), (["image", "pul"], "ripcord image pull")):
            self.assertRegex(self.assert_exit(self.root.run(*words), 2).err.decode(), rf"Did you mean '{near}( |')", words)
        for words in (["xyzzy"], ["xs"], ["q"], ["a"], ["kubernetes"], ["ls", "--state", "up"], ["ls", "--state", "zzz"], ["ls", "--xyzzy"],
                      ["up", "a", "--isolation", "vm"], ["up", "a", "--network", "host"], ["image", "xyzzy"], ["cache", "zip"]):
            done = self.assert_exit(self.root.run(*words), 2)
            self.assertNotIn(b"Did you mean", done.err, words)

    def test_help_of_one_action(self):
        for words in (["image", "pull", "--help"], ["help", "image", "pull"], ["pull", "-h"]):
            text = self.root.ok(*words).text
            self.assertTrue(text.startswith("Usage: ripcord image pull NAME [AS]\n\npull downloads an image"), text)
            for word in ("--platform", "--plain-http", "--json", "ripcord image pull debian:12-slim"):
                self.assertIn(word, text)
            for word in ("--tag", "push uploads", "ripcord image build", "lint"):
                self.assertNotIn(word, text)
        text = self.root.ok("image", "lint", "--help").text
        self.assertIn("# ripcord: ignore=RULE", text)  # its second paragraph
        for action in "build import export pull push ls show rm prune lint".split():
            text = self.root.ok("image", action, "--help").text
            self.assertRegex(text, rf"^Usage: ripcord image {action}\b")
            self.assertLess(len(text), len(self.root.ok("image", "--help").text) / 2)
        for action in "ls show verify prune rm warm".split():
            self.assertRegex(self.root.ok("cache", action, "--help").text, rf"^Usage: ripcord cache {action}\b")
        self.assertIn(b"has no action 'xyzzy'", self.assert_exit(self.root.run("help", "image", "xyzzy"), 2).err)
        self.assertIn(b"has no action 'x'", self.assert_exit(self.root.run("help", "exec", "x"), 2).err)

    def test_tables_fit_the_terminal(self):
        self.root.ok("up", "a-name-that-is-never-cut")
        long = "echo " + "ü" * 40
        running = self.root.ok("exec", "a-name-that-is-never-cut", "-d", "--", "sh", "-c", long).text.strip()
        whole = self.root.ok("ps", "-a").text
        self.assertIn("ü" * 20, whole)
        for width in (40, 120, 130, 400):
            table = self.on_a_terminal(width, "ps", "-a")
            rows = table.splitlines()
            self.assertIn(running, rows[1])
            self.assertIn("a-name-that-is-never-cut", rows[1])
            if width == 400:
                self.assertEqual(len(rows[1]), len(whole.splitlines()[1]))
            elif width > 100:
                self.assertLessEqual(max(map(len, rows)), width)
            if width < 135:
                self.assertTrue(rows[1].endswith("…"), rows)

    def on_a_terminal(self, width, *words):
        """What a command prints on a terminal so wide."""
        leader, follower = os.openpty()
        try:
            fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
            with self.root.popen(*words, stdout=follower, env={"TERM": "dumb"}) as p:
                os.close(follower)
                out = b""
                with contextlib.suppress(OSError):
                    while piece := os.read(leader, 4096):
                        out += piece
                self.assertEqual(p.wait(20), 0)
            return out.decode().replace("\r\n", "\n")
        finally:
            os.close(leader)

    def test_engines_that_do_not_exist(self):
        done = self.assert_exit(self.root.run("up", "a", "--engine", "fake"), 2)
        self.assertIn("--engine: unknown value 'fake'; supported: native, docker\n", done.err.decode())
        self.root.start()
        reply = self.root.http("PUT", "/v1/sandboxes/a", {"engine": "fake"})
        self.assert_refused(reply, 400, "invalid", "field 'engine': unknown engine 'fake'; supported: native, docker")
        for method, target in (("GET", "/v1/sandboxes?engine="), ("GET", "/v1/images?engine="), ("POST", "/v1/images/prune?engine="),
                               ("GET", "/v1/images/show?name=x&engine="), ("DELETE", "/v1/images?name=x&engine=")):
            reply = self.root.http(method, target + "fake")
            self.assert_refused(reply, 400, "invalid", "unknown engine 'fake'; supported: native, docker")
            self.assertEqual(reply.json()["error"]["details"]["parameter"], "engine")

    def test_the_daemon_logs_json(self):
        for args in (["--json", "daemon"], ["daemon", "--json"]):
            with self.root.popen(*args) as p:
                line = p.stderr.readline()
                p.terminate()
                p.wait(20)
            self.assertIn("serves", json.loads(line)["message"])

    def test_ps_has_totals(self):
        self.root.ok("up", "a")
        self.root.ok("exec", "a", "--", "true")
        doc = self.root.ok("ps", "a", "--json").json()
        self.assertEqual(doc["execs"], [])
        self.assertEqual(doc["totals"]["execs"], 1)
        self.assertIn("totals", self.root.ok("ps", "--json").json())

    def test_no_command_is_invalid_and_shows_usage(self):
        r = self.assert_exit(self.root.run(), 2)
        self.assertIn(b"run", r.out + r.err)

    def test_no_colour_into_a_pipe(self):
        self.root.ok("up", "a")
        for args in (["ls"], ["show", "a"], ["doctor"], ["--help"]):
            self.assertNotIn(b"\033[", self.root.run(*args).out)

    def test_version_needs_no_daemon(self):
        self.assertRegex(self.root.ok("version").text, r"\d+\.\d+\.\d+")
        self.assertIn("version", json.loads(self.root.ok("version", "--json").out))
        self.assertIsNone(self.root.daemon_pid())

    def test_output_to_a_closed_pipe_ends_quietly(self):
        for command in ("--help", "doctor", "config"):
            with self.root.popen(command) as p:
                p.stdout.close()
                self.assertIn(p.wait(20), (0, 1, -signal.SIGPIPE), command)


class Machine(TestCase):
    def test_doctor_agrees_with_run(self):
        self.root.ok("run", "--", "true")
        self.assertRegex(self.root.ok("doctor").text, "(?m)^ok    start: a sandbox started")
        report = self.root.ok("doctor", "--json").json()
        self.assertIs(report["ok"], True)
        self.assertEqual({frozenset(line) for line in report["checks"]}, {frozenset(("name", "status", "detail", "fix"))})
        self.assertEqual([line["name"] for line in report["checks"]][:3], ["daemon", "start", "kept sandbox"])

    def test_doctor_tries_the_folder_that_it_is_called_in(self):
        with tempfile.TemporaryDirectory() as folder:
            for cwd, detail in ((folder, "^this folder can be mounted$"), ("/etc", "^not tried here: ")):
                checks = self.root.ok("doctor", "--json", cwd=cwd).json()["checks"]
                self.assertRegex(next(c["detail"] for c in checks if c["name"] == "mount" and c["status"] == "ok"), detail)

    def test_doctor_passes_the_error_of_run_on(self):
        (self.root.path / "ripcord.yaml").write_text("defaults.user: nobody-of-that-name\n")
        refused = self.assert_exit(self.root.run("run", "--", "true"), 125)
        r = self.assert_exit(self.root.run("doctor", "--json"), 7)
        start = r.json()["checks"][1]
        self.assertEqual((r.json()["ok"], start["name"], start["status"]), (False, "start", "fail"))
        self.assertIn(start["detail"].encode(), refused.err)
        self.assertIn(start["fix"].encode(), refused.err)

    def test_doctor_says_why_no_daemon_runs(self):
        (self.root.path / "ripcord.yaml").write_text("nonsense_key: 1\n")
        r = self.assert_exit(self.root.run("doctor"), 7)
        self.assertRegex(r.text, "(?s)^fail  daemon: .*nonsense_key.*fix: Run 'ripcordd --help-config'")
        checks = self.root.run("doctor", "--json").json()["checks"]
        self.assertEqual([(c["name"], c["status"]) for c in checks], [("daemon", "fail")])

    def test_config_shows_values_and_where_they_come_from(self):
        (self.root.path / "ripcord.yaml").write_text("")
        self.assertTrue(self.root.ok("config").text.strip())
        self.assertIsInstance(json.loads(self.root.ok("config", "--json").out), (dict, list))

    def test_bad_configuration_names_file_and_key(self):
        for text, word in [("nonsense_key: 1\n", "nonsense_key"), ("a: [\n", "ripcord.yaml"),
                           ("a: 1\na: 2\n", "a")]:
            (self.root.path / "ripcord.yaml").write_text(text)
            r = self.root.run("ls")
            self.assertNotEqual(r.code, 0, text)
            self.assertIn(word.encode(), r.err)
        (self.root.path / "ripcord.yaml").unlink()


class Generated(TestCase):
    """What is made from the table of options."""

    def test_completion_is_valid_shell(self):
        for shell in ("bash", "zsh", "fish"):
            script = self.root.ok("help", f"--format={shell}").out
            self.assertIn(b"ripcord", script)
            if not shutil.which(shell):
                continue
            p = subprocess.run([shell, "-n"], input=script, capture_output=True, check=False)
            self.assertEqual((p.returncode, p.stderr), (0, b""), shell)

    def test_completion_offers_commands_and_options(self):
        script = self.root.ok("help", "--format=bash").text
        for word in ("run", "exec", "--memory", "--timeout"):
            self.assertIn(word, script)

    def complete(self, *words):
        """What bash offers for the last word."""
        script = self.root.ok("help", "--format=bash").text
        script += f"\nCOMP_WORDS=({' '.join(shlex.quote(w) for w in ('ripcord',) + words)}) COMP_CWORD={len(words)}\n"
        script += '_ripcord; ((${#COMPREPLY[@]} == 0)) || printf "%s\\n" "${COMPREPLY[@]}"\n'
        env = {**self.root.env(), "RIPCORD_ROOT": str(self.root.path), "PATH": f"{Config.bin}:/usr/bin:/bin"}
        p = subprocess.run(["bash"], input=script.encode(), env=env, cwd="/usr/lib", capture_output=True, timeout=60, check=True)
        self.assertEqual(p.stderr, b"")
        return p.stdout.decode().split()

    def test_completion_offers_what_there_is(self):
        self.root.ok("up", "box")
        self.root.ok("up", "bay")
        self.root.ok("exec", "box", "--", "true")
        exec_id = self.root.ok("ps", "box", "-aq").text.strip()
        self.assertEqual(self.complete("ex"), ["exec"])
        self.assertEqual(self.complete("stop", "b"), ["bay", "box"])
        self.assertEqual(self.complete("stop", "box", "ba"), ["bay"])
        self.assertEqual(self.complete("exec", "box", "b"), [])
        self.assertEqual(self.complete("logs", "box", ""), ["last", exec_id])
        self.assertEqual(self.complete("logs", "--follow", "box", exec_id[:3]), [exec_id])
        self.assertEqual(self.complete("cp", "bo"), ["box:"])
        self.assertEqual(self.complete("cp", "os-"), ["os-release"])
        self.assertEqual(self.complete("cp", "box", ":", "file", "ba"), ["bay:"])
        self.assertEqual(self.complete("cp", "box", ":"), [])
        self.assertEqual(self.complete("image", "pu"), ["pull", "push"])
        self.assertIn("host", self.complete("up", "x", "--image", ""))
        self.assertEqual(self.complete("up", "x", "--network", "p"), ["packages"])
        self.assertEqual(self.complete("--root", str(self.root.path), "stop", "b"), ["bay", "box"])
        self.assertEqual(self.complete("help", "doc"), ["doctor"])

    def test_completion_does_not_start_a_daemon(self):
        before = sorted(os.listdir(self.root.path))
        self.assertEqual(self.complete("ex"), ["exec"])
        self.assertEqual(self.complete("up", "x", "--memo"), ["--memory"])
        self.assertEqual(self.complete("stop", ""), [])
        self.assertEqual(self.complete("logs", "box", ""), ["last"])
        self.assertEqual(self.complete("image", "rm", ""), [])
        self.assertEqual(self.complete("up", "x", "--image", ""), ["host", "default"])
        self.assertEqual(self.complete("cp", "os-"), ["os-release"])
        self.assertEqual(sorted(os.listdir(self.root.path)), before, "completion made something")
        self.assertFalse(self.root.accepts())
        for shell in ("zsh", "fish"):
            script = self.root.ok("help", f"--format={shell}").text
            asked = re.findall(r"[({;] ?(ripcord [^)]*)", script)
            self.assertGreaterEqual(len(asked), 4, shell)
            self.assertEqual([a for a in asked if not a.startswith("ripcord --no-start ")], [], shell)

    def test_no_start_refuses_without_a_daemon(self):
        r = self.root.run("--no-start", "ls")
        self.assertEqual((r.code, r.out), (8, b""))
        self.assertIn(f"no daemon runs in '{self.root.path}/run'".encode(), r.err)
        self.assertIn(b"--no-start", r.err)
        self.assertFalse(self.root.accepts())
        self.root.start()
        self.assertEqual(self.root.ok("ls", "-q", "--no-start").out, b"")

    def test_the_tables_as_json(self):
        doc = self.root.ok("help", "--json").json()
        self.assertEqual([c["name"] for c in doc["commands"]], commands(self.root))
        one = self.root.ok("help", "exec", "--json").json()
        self.assertIn({"name": "tty", "letter": "t"}, [{k: o[k] for k in ("name", "letter")} for o in one["options"]])

    def test_manual_pages_are_well_formed(self):
        if not shutil.which("mandoc"):
            raise unittest.SkipTest("this machine has no mandoc to check the pages with")
        for command in commands(self.root):
            page = self.root.ok("help", "--format=man", command).out
            p = subprocess.run(["mandoc", "-T", "lint", "-W", "error"], input=page, capture_output=True, check=False)
            self.assertEqual((p.returncode, p.stdout), (0, b""), command)


class Library(TestCase):
    """The public C library (include/ripcord.h)."""

    def test_example(self):
        self.root.start()
        done = subprocess.run([Config.bin / "test/unit/example-hello"], env={**self.root.env(), "RIPCORD_ROOT": str(self.root.path)},
                              capture_output=True, timeout=60, check=False)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"hello from a sandbox\n", b""))
