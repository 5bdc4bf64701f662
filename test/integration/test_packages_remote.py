"""Network `packages` on engines of other machines: the tests of test_packages.py, and faults of a listener in the container:
broken streams, slow readers, a paused container."""
import hashlib
import os
import re
import signal
from pathlib import Path

import remote_engine
import test_packages
from ripcord_test import Config, only_on, wait_until
from test_packages import LISTENER, PROBE, PackagesCase

# 50 parallel requests, each on its own connection. Prints the sizes of the answers.
PARALLEL = f"""
import http.client, threading
sizes = []
def get():
    c = http.client.HTTPConnection("{LISTENER}", timeout=60)
    c.request("GET", "%s")
    sizes.append(len(c.getresponse().read()))
threads = [threading.Thread(target=get) for _ in range(50)]
for t in threads: t.start()
for t in threads: t.join()
print(*sorted(set(sizes)), len(sizes))
"""

POISON = f"""
import http.client
for method in ("PUT", "POST", "PATCH", "DELETE"):
    c = http.client.HTTPConnection("{LISTENER}", timeout=60)
    c.request(method, "%s", b"poison")
    print(c.getresponse().status)
"""

# Ten clients ask for far more than any buffer holds and do not read; the next clients are still served. Then one of the
# ten reads, and gets its complete answer.
SLOW = f"""
import http.client
path = "%s"
def ask():
    c = http.client.HTTPConnection("{LISTENER}", timeout=60)
    c.request("GET", path)
    return c, c.getresponse()
idle = [ask() for _ in range(10)]
for c, r in [ask() for _ in range(3)]:
    print(len(r.read()))
print(len(idle[0][1].read()))
"""


def command_line(pid):
    """The arguments of a process; empty if it has just ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


class RemoteCase(PackagesCase):
    tcp = False

    def setUp(self):
        self.remote = remote_engine.RemoteEngine(Config.backend, self.tcp)
        self.remote.__enter__()
        self.addCleanup(self.remote.__exit__)
        super().setUp()

    def configure(self, more="", upstreams=None):
        super().configure(more, upstreams)
        file = self.root.path / "ripcord.yaml"
        file.write_text(re.sub("(?m)^docker.host: .*", f"docker.host: {self.remote.host}", file.read_text("utf-8")), "utf-8")

    def assert_served_by(self, name, way):
        """`show` reports this way of reaching the package cache, after the supervisor has answered the daemon."""
        shown = lambda: self.root.ok("show", name, "--json").json().get("package_cache")
        wait_until(lambda: shown() == way, 10, f"'{name}' to be served by {way}")

    def start_sandbox(self, name, *options):
        super().start_sandbox(name, *options)
        self.assert_served_by(name, None if "none" in options else "stream")

    @staticmethod
    def all_of(tools):
        """One tool is enough here: test_packages.py tests the differences between tools."""
        return list(tools)[:1]

    def listeners(self):
        """Pids of the guests that listen in this root's sandboxes."""
        return [p for p in self.root.inside() if b"/.ripcord/guest\0listen\0" in command_line(p)]

    def run_python(self, name, text):
        return self.root.ok("exec", name, "--", "/usr/bin/python3", "-c", text, timeout=120).text

    def file_of(self, name, sandbox, size):
        """Adds a package upstream, and returns the path of its file on the listener."""
        self.up.add_wheel(name, "1.5", os.urandom(size))
        page = self.run_python(sandbox, "import urllib.request as u; print(u.urlopen"
                               f"('http://{LISTENER}/pypi/simple/{name}/').read().decode())")
        return "/pypi/" + re.search(r'href="\.\./\.\./([^"#]+)', page)[1]


@only_on("docker")
class Desktop(RemoteCase, test_packages.Install):
    """An engine in a virtual machine, whose socket is on this machine and which shares folders with it."""
    test_plain_pip_install = None  # about the environment of image `host`


@only_on("docker")
class Reach(RemoteCase, test_packages.Reach):
    test_nothing_else_is_reached = None  # tested in `OtherMachine`


@only_on("docker")
class Restart(RemoteCase, test_packages.Restart):
    """When the daemon is killed, the relay and its connections continue."""


@only_on("docker")
class OtherMachine(RemoteCase):
    tcp = True

    def setUp(self):
        super().setUp()
        self.root.start()
        self.root.ok("up", "a")

    def test_sandboxes_are_separate(self):
        """Each sandbox has its own counters and no interface except lo, and `show` says how it reaches the package cache."""
        self.up.add_wheel("demo", "1.5")
        self.root.ok("up", "b")
        self.assert_served_by("a", "stream")
        self.assertIn("engine's stream", self.root.ok("show", "a").text)
        self.assertEqual(self.fetch("a"), "200")
        self.assertEqual(self.root.ok("show", "a", "--json").json()["packages"]["pypi"]["requests"], 1)
        self.assertEqual(self.root.ok("show", "b", "--json").json().get("packages", {}).get("pypi", {}).get("requests", 0), 0)
        seen = self.run_python("a", PROBE % ([("127.0.0.1", 7417), ("127.0.0.1", self.up.port)],)).splitlines()
        self.assertEqual(seen[1:], ["names lo", "routes 0", "reaches 127.0.0.1 7417"])
        self.root.ok("up", "c", "--network", "none")
        self.assert_served_by("c", None)
        self.assertEqual(len(self.listeners()), 2)

    def test_poisoning_is_impossible(self):
        """A sandbox sends other bytes for a file; the next sandbox still gets the right file."""
        self.root.ok("up", "b")
        path = self.file_of("demo", "a", 50000)
        tries = self.run_python("a", POISON % path).split()
        self.assertTrue(all(int(status) >= 400 for status in tries), tries)
        self.assertEqual(len(tries), 4)
        got = self.run_python("b", f"import hashlib, urllib.request as u\n"
                              f"print(hashlib.sha256(u.urlopen('http://{LISTENER}{path}').read()).hexdigest())").strip()
        self.assertEqual(got, hashlib.sha256(self.up.files["/files/demo-1.5-py3-none-any.whl"]).hexdigest())

    def test_many_at_once(self):
        path = self.file_of("demo", "a", 300000)
        size, n = self.run_python("a", PARALLEL % path).split()
        self.assertGreater(int(size), 300000)
        self.assertEqual(n, "50")
        self.assertEqual(self.up.count("demo-1.5-py3-none-any.whl"), 1)

    def test_slow_readers_delay_no_other_reader(self):
        path = self.file_of("demo", "a", 8 << 20)
        sizes = self.run_python("a", SLOW % path).split()
        self.assertEqual(len(sizes), 4)
        self.assertEqual(len(set(sizes)), 1)
        self.assertGreater(int(sizes[0]), 8 << 20)

    def is_served(self):
        return self.root.run("exec", "a", "--", "/usr/bin/python3", "-c", test_packages.FETCH).text.strip() == "200"

    def test_the_listener_recovers(self):
        """After its guest is killed, its stream is cut, or the container is paused and resumed."""
        self.up.add_wheel("demo", "1.5")
        (before,) = self.listeners()
        os.kill(before, signal.SIGKILL)
        wait_until(lambda: self.listeners() not in ([], [before]), 30, "another listener")
        wait_until(self.is_served, 30, "the package cache to be reached again")
        (before,) = self.listeners()
        self.remote.cut()
        wait_until(lambda: before not in self.listeners(), 30, "the listener to end with its stream")
        wait_until(self.is_served, 60, "the package cache to be reached again")
        self.root.ok("pause", "a")
        self.root.ok("resume", "a")
        self.assertTrue(self.is_served())

    def test_relay_killed(self):
        """The connections of a killed relay end with it; the next relay serves new ones."""
        self.up.add_wheel("demo", "1.5")
        self.assertTrue(self.is_served())
        (relay,) = [p for p in self.root.processes() if command_line(p).startswith(b"ripcord-relay\0")]
        os.kill(relay, signal.SIGKILL)
        wait_until(lambda: self.root.sandboxes()[0]["state"] != "running", 30, "the daemon to know")
        self.root.ok("up", "a")
        self.assertTrue(self.is_served())
        self.root.ok("rm", "-f", "a")
        self.assertEqual(self.root.wait_clean(), {})
