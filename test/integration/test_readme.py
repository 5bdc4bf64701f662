"""README.md is true: its console blocks run as they are written, and its drawings show what their sources say.

A line that begins with `$ ` is a command, lines that begin with `> ` continue it, and the others are its output. All commands run
in one shell. A command must end with status 0, unless the next one is `echo $?`. The output is compared where the README shows
any; `…` stands for any text, and alone on a line for any lines. Blocks with ./dev are left out; those with Docker run on Docker.
"""
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import packages_fixture
from ripcord_test import Config, TestCase, alive, only_on, wait_until

TOP = Path(__file__).resolve().parents[2]
PORT = 18000  # in the README
MARK = "== end of command"
# Restores the status of the command before, which the next one may print.
PROLOGUE = f'mark() {{ local status=$?; echo; echo "{MARK} $status"; return "$status"; }}\n'


class Command:
    """A command of the README, and what is shown of its output."""

    def __init__(self, line, text):
        self.line, self.text, self.shown = line, text, []
        self.may_fail = False

    def pattern(self):
        parts = [r"(?:.*\n)*" if line == "…" else re.escape(line).replace("…", ".*") + r"\n" for line in self.shown]
        return re.compile("".join(parts))


def blocks(text):
    """The commands of each console block."""
    found, inside = [], False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            inside = line == "```console"
            if inside:
                found.append([])
        elif inside and line.startswith("$ "):
            found[-1].append(Command(number, line[2:]))
        elif inside and line.startswith("> ") and found[-1]:
            found[-1][-1].text += "\n" + line[2:]
        elif inside:
            found[-1][-1].shown.append(line)
    for block in found:
        for command, after in zip(block, block[1:]):
            command.may_fail = after.text == "echo $?"
    return found


def chosen(text, docker):
    """The commands to run, of all blocks: those with Docker, or the others."""
    all_blocks = [b for b in blocks(text) if not any("./dev" in c.text for c in b)]
    return [c for b in all_blocks if any("docker" in c.text for c in b) == docker for c in b]


def run(commands, folder, env):
    """Status and output of each command; of those behind an early end of the shell, None."""
    script = folder / "readme.sh"
    script.write_text(PROLOGUE + "".join(f"{c.text}\nmark\n" for c in commands), encoding="utf-8")
    with open(folder / "readme.out", "wb") as out:
        subprocess.run(["bash", script], cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, timeout=120,
                       check=False)
    # A slow step may write a progress line, which the README does not show.
    text = re.sub(r"(?m)^ripcord: [^\n]*…\n", "", (folder / "readme.out").read_text(encoding="utf-8"))
    parts = re.split(rf"\n{MARK} (\d+)\n", text)
    results = [(int(status), text) for text, status in zip(parts[::2], parts[1::2])]
    return results + [(None, parts[-1])] * (len(commands) - len(results))


def problems(commands, results):
    found = []
    for command, (status, output) in zip(commands, results):
        if output and not output.endswith("\n"):
            output += "\n"
        if status != 0 and not (status is not None and command.may_fail):
            found.append(f"README.md:{command.line}: '{command.text}' ended with status {status}: {output}")
        elif command.shown and not command.pattern().fullmatch(output):
            found.append(f"README.md:{command.line}: '{command.text}' wrote another output than is shown: {output}")
    return found


class Readme(TestCase):
    def setUp(self):
        super().setUp()
        self.folder = Path(tempfile.mkdtemp(prefix="ripcord-readme-"))
        self.addCleanup(subprocess.run, ["rm", "-rf", self.folder], check=False)
        self.demo = self.folder / "ripcord-tour" / "demo"  # the RIPCORD_ROOT of the tour
        self.demo.mkdir(parents=True)
        self.tour = self.new_root(self.demo)
        packages_fixture.TestCase.prepare()
        self.up = packages_fixture.Upstream(packages_fixture.TestCase.certificates)
        self.addCleanup(self.up.stop)
        self.up.add_wheel("requests", "2.99")
        upstreams = self.folder / "upstreams.json"
        upstreams.write_text(json.dumps([self.up.as_pypi("own-pypi")]), encoding="utf-8")
        self.tour.configure(f"packages.pypi: ''\nregistry.npm: ''\nregistry.upstreams: {upstreams}\n")
        self.readme = (TOP / "README.md").read_text(encoding="utf-8")

    def env(self):
        more = {"DOCKER_HOST": Config.backend.host, "RIPCORD_ROOT": str(self.demo)} if Config.backend else {}
        return {"PATH": f"{Config.bin}:{os.environ['PATH']}", "HOME": str(self.folder), "LC_ALL": "C.UTF-8", **more}

    def daemon(self):
        """The process id in the tour's lock, while that process runs."""
        try:
            pid = int((self.demo / "run" / "daemon.lock").read_text(encoding="ascii"))
        except OSError:
            return None
        return pid if alive(pid) else None

    @only_on("native")
    def test_tour(self):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if probe.connect_ex(("127.0.0.1", PORT)) == 0:
                self.skipTest(f"port {PORT}, which the README uses, is in use")
        commands = chosen(self.readme, docker=False)
        self.assertGreater(len(commands), 30)
        self.assertEqual(problems(commands, run(commands, self.folder, self.env())), [])
        # The last section shows how to end everything.
        wait_until(lambda: not self.daemon(), 10, "the daemon to end")
        self.assertEqual(self.tour.processes(), [])

    @only_on("docker")
    def test_docker(self):
        commands = chosen(self.readme, docker=True)
        self.assertGreater(len(commands), 3)
        self.assertEqual(problems(commands, run(commands, self.folder, self.env())), [])


@only_on("native")
class Checks(TestCase):
    """Of the test above, and of what README.md includes."""

    def judge(self, text, *outputs):
        commands = chosen(f"```console\n{text}\n```\n", docker=False)
        self.assertEqual(len(commands), len(outputs))
        return [p.partition(":")[2].partition(":")[0] for p in problems(commands, outputs)]

    def test_what_is_wrong_is_found(self):
        text = "$ a\n$ b\none …\n$ c\n…\nlast\n$ d\n$ echo $?\n7"
        good = [(0, "anything\n"), (0, "one more\n"), (0, "x\ny\nlast\n"), (7, ""), (0, "7\n")]
        self.assertEqual(self.judge(text, *good), [])
        for i, bad in enumerate([(1, ""), (0, "two\n"), (0, "last\nx\n"), (None, ""), (0, "8\n")]):
            self.assertEqual(len(self.judge(text, *good[:i], bad, *good[i + 1:])), 1, bad)

    def test_which_blocks(self):
        text = "```console\n$ ./dev x\n```\n```console\n$ docker x\n$ y\n```\n```sh\n$ no\n```\n```console\n$ cat <<E\n> z\n> E\n```\n"
        self.assertEqual([c.text for c in chosen(text, docker=False)], ["cat <<E\nz\nE"])
        self.assertEqual([c.text for c in chosen(text, docker=True)], ["docker x", "y"])

    def test_drawings_are_current(self):
        for tool in "diagram.py", "bench-chart.py":
            done = subprocess.run([sys.executable, TOP / "tools" / tool, "--check"], capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))

    def test_lines_and_links(self):
        text = (TOP / "README.md").read_text(encoding="utf-8")
        self.assertEqual([line for line in text.splitlines() if len(line) > 120], [])
        links = re.findall(r"\]\(([^):#]+)[^)]*\)", text)
        self.assertEqual([link for link in links if not (TOP / link).exists()], [])
