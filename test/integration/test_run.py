"""`ripcord run`: streams, status, stdin, limits of time, signals, and nothing left behind."""
import hashlib
import os
import re
import shutil
import signal
import subprocess
import time
import unittest

from ripcord_test import Config, TestCase, full_run_only, needs, smoke, wait_until


def digest_of_zeros(size):
    digest = hashlib.sha256()
    block = bytes(1 << 20)
    for _ in range(size >> 20):
        digest.update(block)
    return digest.hexdigest()


class Streams(TestCase):
    @smoke
    def test_streams_apart_and_exit_status(self):
        r = self.root.run("run", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
        self.assertEqual((r.code, r.out, r.err), (7, b"out\n", b"err\n"), r)

    def test_command_without_double_dash(self):
        self.assertEqual(self.root.ok("run", "echo", "-n", "a b").out, b"a b")

    def test_arguments_arrive_exactly(self):
        words = ["", " ", "a'b", 'a"b', "$HOME", "*", "ü", "new\nline", "--help", "\\"]
        out = self.root.ok("run", "--", "printf", "%s\\0", *words).out
        self.assertEqual(out, b"".join(w.encode() + b"\0" for w in words))

    @smoke
    def test_stdin_reaches_the_command(self):
        self.assertEqual(self.root.ok("run", "-i", "--", "cat", stdin=b"hi\n").out, b"hi\n")

    def test_stdin_closed_early_and_empty(self):
        self.assertEqual(self.root.ok("run", "-i", "--", "wc", "-c", stdin=b"").out.strip(), b"0")
        self.assertEqual(self.root.ok("run", "-i", "--", "head", "-c1", stdin=bytes(4 << 20)).out, b"\0")

    def test_without_i_stdin_is_empty(self):
        self.assertEqual(self.root.ok("run", "--", "cat", stdin=b"not for it").out, b"")

    def test_streams_by_their_names(self):
        script = "cat /dev/stdin; echo o > /dev/stdout; echo e > /dev/stderr; echo x | tee /proc/self/fd/2 > /dev/null"
        done = self.root.ok("run", "-i", "--", "sh", "-c", script, stdin=b"in\n")
        self.assertEqual((done.out, done.err), (b"in\no\n", b"e\nx\n"))

    def test_binary_stdin_and_stdout_are_exact(self):
        data = os.urandom(3 << 20)
        self.assertEqual(self.root.ok("run", "-i", "--", "cat", stdin=data).out, data)

    def test_both_streams_flood_at_once(self):
        script = "head -c 8M /dev/zero & head -c 8M /dev/zero >&2; wait"
        r = self.root.ok("run", "--", "sh", "-c", script)
        self.assertEqual((len(r.out), len(r.err)), (8 << 20, 8 << 20))

    def test_output_of_many_mib_is_exact(self):
        size = (1 << 30) if not (Config.quick or Config.sanitized) else (64 << 20)
        digest = hashlib.sha256()
        with self.root.popen("run", "--", "head", "-c", str(size), "/dev/zero") as p:
            while piece := p.stdout.read(1 << 20):
                digest.update(piece)
            err = p.stderr.read()
        self.assertEqual(p.returncode, 0, err)
        self.assertEqual(digest.hexdigest(), digest_of_zeros(size))

    def test_a_reader_that_goes_away_ends_the_command(self):
        with self.root.popen("run", "--", "yes") as p:
            self.assertEqual(p.stdout.read(4), b"y\ny\n")
            p.stdout.close()
            p.wait(30)
        self.assertEqual(self.root.wait_clean(), {})


class Status(TestCase):
    def test_not_found_is_127(self):
        r = self.assert_exit(self.root.run("run", "--", "no-such-program"), 127)
        self.assertIn(b"no-such-program", r.err)

    def test_not_executable_is_126(self):
        self.assert_exit(self.root.run("run", "--", "/etc/passwd"), 126)

    @smoke
    def test_death_by_signal_is_128_and_signal(self):
        self.assert_exit(self.root.run("run", "--", "sh", "-c", "kill -TERM $$"), 128 + signal.SIGTERM)

    def test_no_command_is_our_failure(self):
        self.assertIn(self.root.run("run").code, (2, 125))

    def test_every_exit_status_passes(self):
        for code in (0, 1, 2, 125, 255):
            self.assert_exit(self.root.run("run", "--", "sh", "-c", f"exit {code}"), code)


class Options(TestCase):
    @smoke
    def test_env_workdir_and_user(self):
        r = self.root.ok("run", "--env", "A=b c", "--env", "E=", "--workdir", "/tmp", "--user", "0", "--",
                         "sh", "-c", 'echo "$A,$E,$PWD,$(id -u)"')
        self.assertEqual(r.text, "b c,,/tmp,0\n")

    def test_user_with_group(self):
        self.assertEqual(self.root.ok("run", "--user", "1234:5678", "--", "sh", "-c", "id -u; id -g").text,
                         "1234\n5678\n")

    def test_the_caller_s_environment_stays_out(self):
        r = self.root.ok("run", "--", "env", env={"SECRET_OF_CALLER": "sek-123"})
        self.assertNotIn(b"sek-123", r.out)
        names = {line.split("=")[0] for line in r.text.splitlines()}
        self.assertTrue({"PATH", "HOME"} <= names, names)

    def test_timeout_kills_the_whole_tree(self):
        since = time.monotonic()
        r = self.root.run("run", "--timeout", "1s", "--", "sh", "-c", "sleep 100 & sleep 100")
        took = time.monotonic() - since
        self.assertTrue(0.9 < took < 20, took)
        self.assertNotEqual(r.code, 0)
        self.assertRegex(r.err.lower(), b"timeout|timed out|time limit")

    def test_missing_workdir_is_our_error_and_names_it(self):
        r = self.root.run("run", "--workdir", "/no/such/place", "--", "true")
        self.assertIn(r.code, (125, 126, 127))
        self.assertIn(b"/no/such/place", r.err)
        self.assertIn(b"hint:", r.err)

    @smoke
    def test_memory_given_holds(self):
        eat = "x = bytearray(200 << 20); print('survived')"
        r = self.root.run("run", "--memory", "64M", "--", "/usr/bin/python3", "-c", eat)
        self.assertNotIn(b"survived", r.out)
        self.assertNotEqual(r.code, 0)


@needs("host image")
class Programs(TestCase):
    """The machine's own programs run inside."""

    def program(self, path, *args):
        if not os.path.exists(path):
            raise unittest.SkipTest(f"this machine has no {path}")
        return self.root.ok("run", "--", path, *args).text

    def test_python3(self):
        code = "import ssl, sqlite3, json; print(sum(range(10)))"
        self.assertEqual(self.program("/usr/bin/python3", "-c", code), "45\n")

    def test_node(self):
        self.assertEqual(self.program("/usr/bin/node", "-e", "console.log(6*7)"), "42\n")

    def test_npm(self):
        self.assertRegex(self.program("/usr/bin/npm", "--version"), r"^\d+\.")

    def test_git(self):
        script = "git init -q r && cd r && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x && git log --oneline"
        if not shutil.which("git"):
            raise unittest.SkipTest("this machine has no git")
        self.assertIn(" x\n", self.root.ok("run", "--", "sh", "-c", script).text)

    def test_gcc_compiles_and_runs(self):
        if not os.path.exists("/usr/bin/gcc"):
            raise unittest.SkipTest("this machine has no gcc")
        script = 'echo "int main(void){return 42;}" > a.c && gcc a.c && ./a.out'
        self.assert_exit(self.root.run("run", "--", "sh", "-c", script), 42)


class Ending(TestCase):
    def start_sleeper(self):
        p = self.root.popen("run", "--", "sh", "-c", "echo up; exec sleep 1000", start_new_session=True)
        self.assertEqual(p.stdout.readline(), b"up\n")
        return p

    @smoke
    def test_ctrl_c_ends_it_and_leaves_nothing(self):
        with self.start_sleeper() as p:
            p.send_signal(signal.SIGINT)
            self.assertNotEqual(p.wait(30), 0)
        self.assertEqual(self.root.wait_clean(), {})

    def test_ctrl_c_reaches_a_handler_inside(self):
        script = 'trap "echo caught; exit 3" INT; echo up; while :; do sleep 0.1; done'
        with self.root.popen("run", "--", "sh", "-c", script) as p:
            self.assertEqual(p.stdout.readline(), b"up\n")
            p.send_signal(signal.SIGINT)
            self.assertEqual(p.wait(30), 3)
            self.assertEqual(p.stdout.read(), b"caught\n")

    @smoke
    def test_killed_client_leaves_nothing(self):
        with self.start_sleeper() as p:
            p.kill()
            p.wait(30)
        self.assertEqual(self.root.wait_clean(), {})

    def test_run_leaves_no_row_and_no_file(self):
        self.root.start()
        self.root.ok("run", "--", "true")
        wait_until(lambda: not [f for f in self.root.files() if re.search("execs/[0-9a-f]{16}", f)], 20, "the run to be gone")
        self.assertEqual(self.root.wait_clean(), {})
        before = self.root.snapshot()
        for _ in range(5):
            self.root.ok("run", "--", "sh", "-c", "echo x > f; sleep 0.01")
        self.assertEqual(self.root.wait_clean(), {})
        wait_until(lambda: self.root.files() == before["files"], 10, "the state folder to be as before")
        self.assertEqual(self.root.snapshot(), before)

    @smoke
    def test_a_daemonised_child_neither_hangs_nor_survives(self):
        since = time.monotonic()
        self.root.ok("run", "--", "sh", "-c", "setsid sleep 300 & echo started")
        self.assertLess(time.monotonic() - since, 30)
        self.assertEqual(self.root.wait_clean(), {})

    @full_run_only
    def test_run_in_parallel_keeps_streams_apart(self):
        def popen(i):
            return self.root.popen("run", "--", "sh", "-c", f"seq {i} {i} | head -1; exit {i}",
                                   stderr=subprocess.DEVNULL)
        self.root.start()
        running = [(i, popen(i)) for i in range(1, 21)]
        for i, p in running:
            with p:
                self.assertEqual((p.communicate(timeout=120)[0], p.returncode), (b"%d\n" % i, i))
