"""Network `packages` on engines that are not on this machine: the same tests as of those that are (test_packages.py), and
what only a listener in the container can meet: streams that break, slow readers, a container that is paused."""
import hashlib
import os
import re
import signal
from pathlib import Path

import far_engine
import test_packages
from ripcord_test import Config, only_on, wait_until
from test_packages import LISTENER, PROBE, PackagesCase

# So many at once, each on a connection of its own; the sizes of what came.
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

# Ten ask for far more than any buffer holds and read nothing: the next ones are served all the same. Then one of the ten
# reads, and gets all of it.
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
    """Empty when it has just ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


class FarCase(PackagesCase):
    tcp = False

    def setUp(self):
        self.far = far_engine.Far(Config.backend, self.tcp)
        self.far.__enter__()
        self.addCleanup(self.far.__exit__)
        super().setUp()

    def configure(self, more="", upstreams=None):
        super().configure(more, upstreams)
        file = self.root.path / "ripcord.yaml"
        file.write_text(re.sub("(?m)^docker.host: .*", f"docker.host: {self.far.host}", file.read_text("utf-8")), "utf-8")

    def assert_way(self, name, way):
        """What `show` says, once the daemon has got its answer."""
        said = lambda: self.root.ok("show", name, "--json").json().get("registry")
        wait_until(lambda: said() == way, 10, f"'{name}' to be served by {way}")

    def up_box(self, name, *options):
        super().up_box(name, *options)
        self.assert_way(name, None if "none" in options else "stream")

    @staticmethod
    def all_of(tools):
        """How tools differ is shown where the package cache is local."""
        return list(tools)[:1]

    def listeners(self):
        """Pids of the guests that listen in this root's sandboxes."""
        return [p for p in self.root.inside() if b"/.ripcord/guest\0listen\0" in command_line(p)]

    def run_python(self, name, text):
        return self.root.ok("exec", name, "--", "/usr/bin/python3", "-c", text, timeout=120).text

    def file_of(self, name, box, size):
        """The path of a new package's file, as the listener has it."""
        self.up.add_wheel(name, "1.5", os.urandom(size))
        page = self.run_python(box, "import urllib.request as u; print(u.urlopen"
                               f"('http://{LISTENER}/pypi/simple/{name}/').read().decode())")
        return "/pypi/" + re.search(r'href="\.\./\.\./([^"#]+)', page)[1]


@only_on("docker")
class Desktop(FarCase, test_packages.Install):
    """A machine of its own behind a socket of this one, which shares folders with us."""
    test_plain_pip_install = None  # about the environment of image `host`


@only_on("docker")
class Reach(FarCase, test_packages.Reach):
    test_nothing_else_is_reached = None  # `Elsewhere` shows it


@only_on("docker")
class Restart(FarCase, test_packages.Restart):
    """With the daemon killed, the relay and what it carries live on."""


@only_on("docker")
class Elsewhere(FarCase):
    tcp = True

    def setUp(self):
        super().setUp()
        self.root.start()
        self.root.ok("up", "a")

    def test_one_is_not_the_other(self):
        """Each sandbox is counted by itself, has no interface but lo, and `show` says how it is served."""
        self.up.add_wheel("demo", "1.5")
        self.root.ok("up", "b")
        self.assert_way("a", "stream")
        self.assertIn("engine's stream", self.root.ok("show", "a").text)
        self.assertEqual(self.fetch("a"), "200")
        self.assertEqual(self.root.ok("show", "a", "--json").json()["packages"]["pypi"]["requests"], 1)
        self.assertEqual(self.root.ok("show", "b", "--json").json().get("packages", {}).get("pypi", {}).get("requests", 0), 0)
        seen = self.run_python("a", PROBE % ([("127.0.0.1", 7417), ("127.0.0.1", self.up.port)],)).splitlines()
        self.assertEqual(seen[1:], ["names lo", "routes 0", "reaches 127.0.0.1 7417"])
        self.root.ok("up", "c", "--network", "none")
        self.assert_way("c", None)
        self.assertEqual(len(self.listeners()), 2)

    def test_poisoning_is_impossible(self):
        """What one sandbox sends in place of a file the next one does not get."""
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

    def test_slow_readers_hold_up_nobody(self):
        path = self.file_of("demo", "a", 8 << 20)
        sizes = self.run_python("a", SLOW % path).split()
        self.assertEqual(len(sizes), 4)
        self.assertEqual(len(set(sizes)), 1)
        self.assertGreater(int(sizes[0]), 8 << 20)

    def is_served(self):
        return self.root.run("exec", "a", "--", "/usr/bin/python3", "-c", test_packages.FETCH).text.strip() == "200"

    def test_what_breaks_comes_back(self):
        """The listener is killed, the stream is cut, the container is paused: it is served again."""
        self.up.add_wheel("demo", "1.5")
        (before,) = self.listeners()
        os.kill(before, signal.SIGKILL)
        wait_until(lambda: self.listeners() not in ([], [before]), 30, "another listener")
        wait_until(self.is_served, 30, "the package cache to be reached again")
        (before,) = self.listeners()
        self.far.cut()
        wait_until(lambda: before not in self.listeners(), 30, "the listener to end with its stream")
        wait_until(self.is_served, 60, "the package cache to be reached again")
        self.root.ok("pause", "a")
        self.root.ok("resume", "a")
        self.assertTrue(self.is_served())

    def test_relay_killed(self):
        """What it carried ends with it; the next one carries again."""
        self.up.add_wheel("demo", "1.5")
        self.assertTrue(self.is_served())
        (relay,) = [p for p in self.root.processes() if command_line(p).startswith(b"ripcord-relay\0")]
        os.kill(relay, signal.SIGKILL)
        wait_until(lambda: self.root.sandboxes()[0]["state"] != "running", 30, "the daemon to know")
        self.root.ok("up", "a")
        self.assertTrue(self.is_served())
        self.root.ok("rm", "-f", "a")
        self.assertEqual(self.root.wait_clean(), {})
