"""What every command has: help, machine-readable output, completion."""
import json
import subprocess

from ripcord_test import TestCase

COMMANDS = ["run", "up", "exec", "ls", "show", "ps", "logs", "kill", "stop", "rm", "doctor", "config", "version",
            "daemon"]


class Help(TestCase):
    def test_help_lists_the_commands(self):
        text = self.root.ok("--help").text
        for command in COMMANDS:
            self.assertIn(command, text)

    def test_each_command_has_help_and_starts_no_daemon(self):
        for command in COMMANDS:
            text = self.root.ok(command, "--help").text
            self.assertIn(command, text)
        self.assertIsNone(self.root.daemon_pid())

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

    def test_output_to_a_closed_pipe_is_no_crash(self):
        with self.root.popen("--help") as p:
            p.stdout.close()
            self.assertGreaterEqual(p.wait(20), 0)


class Machine(TestCase):
    def test_doctor(self):
        r = self.root.run("doctor")
        self.assertIn(r.code, (0, 1, 7), r)
        for word in ("kernel", "overlay", "cgroup", "seccomp"):
            self.assertIn(word, r.text.lower())
        json.loads(self.root.run("doctor", "--json").out)

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


class Completion(TestCase):
    def test_scripts_are_valid_shell(self):
        script = self.root.run("completion", "bash")
        if script.code != 0:
            self.skipTest("completion scripts are made at build time on this version")
        p = subprocess.run(["bash", "-n"], input=script.out, capture_output=True, check=False)
        self.assertEqual(p.returncode, 0, p.stderr)
