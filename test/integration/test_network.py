"""Network modes: what a sandbox reaches, what it does not reach, and that nothing is left afterwards.

The outside world is a network namespace of our own behind the host, with listeners on a public address
(TEST-NET-2) and on addresses that must be blocked. The host can reach each of them, and that is checked
first: so a test that finds an address blocked would fail without the rule.
"""
import os
import shutil
import signal
import socket
import subprocess
import threading
import unittest
from pathlib import Path

from ripcord_test import TestCase, alive, full_run_only, needs, serial, wait_until

PYTHON = "/usr/bin/python3"
OUTSIDE = "198.51.100.2"
PRIVATE = ["10.77.0.2", "172.16.77.2", "192.168.77.2", "100.64.77.2", "169.254.169.254"]
PORT = 8099

SERVER = f"""
import socket, sys
s = socket.create_server(("", {PORT}), backlog=64)
print("ready", flush=True)
while True:
    c, _ = s.accept()
    c.sendall(b"hello")
    c.close()
"""

# Says "hello" when ADDRESS:PORT answers, else the reason.
CLIENT = """
import socket, sys
try:
    with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=float(sys.argv[3])) as s:
        print(s.recv(5).decode())
except OSError as e:
    print(type(e).__name__)
"""


def ip(*args, check=True):
    return subprocess.run(["ip", *args], check=check, capture_output=True).stdout.decode()


def reaches(address, port, timeout=2):
    """From the host itself."""
    try:
        with socket.create_connection((address, port), timeout=timeout) as s:
            return s.recv(5) == b"hello"
    except OSError:
        return False


class Listener:
    """A service of the host on all its addresses."""

    def __enter__(self):
        self.socket = socket.create_server(("", 0), backlog=64)
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()
        return self

    def serve(self):
        try:
            while True:
                c, _ = self.socket.accept()
                c.sendall(b"hello")
                c.close()
        except OSError:
            pass

    def __exit__(self, *_):
        self.socket.close()


class Outside:
    """The namespace behind the host, and the routes to it; removed again whatever happens."""

    def __enter__(self):
        self.server = subprocess.Popen(["unshare", "-n", "python3", "-c", SERVER], stdout=subprocess.PIPE)
        try:
            self.server.stdout.readline()
            self.build()
        except BaseException:
            self.__exit__()
            raise
        return self

    def build(self):
        pid = str(self.server.pid)
        inside = ["nsenter", "-t", pid, "-n", "ip"]
        ip("link", "add", "rctest0", "type", "veth", "peer", "name", "out0", "netns", pid)
        ip("address", "add", "198.51.100.1/30", "dev", "rctest0")
        ip("link", "set", "rctest0", "up")
        for args in (["address", "add", f"{OUTSIDE}/30", "dev", "out0"], ["link", "set", "lo", "up"],
                     ["link", "set", "out0", "up"]):
            subprocess.run([*inside, *args], check=True)
        for address in PRIVATE:
            subprocess.run([*inside, "address", "add", f"{address}/32", "dev", "lo"], check=True)
            ip("route", "add", f"{address}/32", "via", OUTSIDE)

    def __exit__(self, *_):
        ip("link", "delete", "rctest0", check=False)  # the routes go with it
        self.server.kill()
        self.server.communicate()


def can_open():
    return os.geteuid() == 0 and (shutil.which("nft") or shutil.which("iptables")) and shutil.which("ip")


class NetworkCase(TestCase):
    def setUp(self):
        super().setUp()
        self.root.start()

    def inside(self, name, address, port=PORT, timeout=2):
        return self.root.ok("exec", name, "--", PYTHON, "-c", CLIENT, address, port, timeout).text.strip()

    def up(self, name, *options):
        self.root.ok("up", name, "--network", "open", *options)

    def address(self, name):
        text = self.root.ok("exec", name, "--", "ip", "-4", "-o", "address", "show", "dev", "eth0").text
        return text.split()[3].partition("/")[0]

    def shim(self, name):
        box = self.root.sandbox(name)["id"]
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    words = (entry / "cmdline").read_bytes().split(b"\0")
                except OSError:
                    continue
                if words[:2] == [b"ripcord-shim", box.encode()]:
                    return int(entry.name)
        raise AssertionError(f"no shim of {name}")

    def wait_network_gone(self):
        wait_until(lambda: not self.root.links(), 10, f"interfaces to go: {self.root.links()}")
        wait_until(lambda: not self.root.firewall(), 10, f"rules to go: {self.root.firewall()}")


class Closed(NetworkCase):
    def test_none_and_packages_have_only_loopback(self):
        for mode in ("none", "packages"):
            self.root.ok("up", mode, "--network", mode)
            names = self.shell(mode, "sed -n 's/^ *\\([^ ]*\\):.*/\\1/p' /proc/net/dev").split()
            self.assertEqual(names, ["lo"])
            self.assertEqual(self.shell(mode, "tail -n +2 /proc/net/route"), "")
        self.assertEqual(self.root.links(), [])
        self.assertEqual(self.root.firewall(), [])

    def test_show_warns_where_packages_is_as_none(self):
        """On engines that cannot lead to the package cache."""
        self.root.ok("up", "a")
        (engine,) = [e for e in self.root.get("/v1/engines")["engines"] if e["default"]]
        said = self.assertNotIn if "network_packages" in engine["capabilities"] else self.assertIn
        said("as with 'none'", self.root.ok("show", "a").text)
        said("as with 'none'", " ".join(self.root.ok("show", "a", "--json").json()["warnings"]))
        wait_until(lambda: self.root.ok("show", "a", "--json").json().get("package_cache") == "socket", 10,
                   "the nearer way to be taken: the engines of tests are on this machine")
        self.root.ok("up", "b", "--network", "none")
        self.assertNotIn("as with 'none'", self.root.ok("show", "b").text)
        self.assertNotIn("package_cache", self.root.ok("show", "b", "--json").json())


@unittest.skipUnless(can_open(), "network 'open' needs root, ip, and nft or iptables")
@needs("routed network")
@serial("network")
class Open(NetworkCase):
    def test_a_share_of_the_connections_that_the_machine_tracks(self):
        """One entry for each datagram to another port, as fast as it can. A neighbour still gets its connection."""
        count = Path("/proc/sys/net/netfilter/nf_conntrack_count")
        with Outside():
            self.up("a")
            self.up("b")
            before = int(count.read_text())
            self.root.ok("exec", "a", "--", PYTHON, "-c", f"""
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for port in range(20000, 40000):
    try:
        s.sendto(b"x", ("{OUTSIDE}", port))
    except OSError:  # "refused", of an earlier port
        pass
""")
            taken = int(count.read_text()) - before
            self.assertTrue(500 < taken < 6000, taken)
            self.assertEqual(self.inside("b", OUTSIDE), "hello")

    def test_reaches_the_world_and_nothing_private(self):
        with Outside():
            for address in (OUTSIDE, *PRIVATE):
                self.assertTrue(reaches(address, PORT), f"the host does not reach {address}: nothing can be tested")
            self.up("a")
            self.assertEqual(self.inside("a", OUTSIDE), "hello")
            for address in PRIVATE:
                self.assertNotEqual(self.inside("a", address, timeout=0.7), "hello", address)
            for user in ("0", "1000"):
                r = self.root.ok("exec", "a", "--user", user, "--", PYTHON, "-c", CLIENT, PRIVATE[0], PORT, 0.7)
                self.assertNotIn("hello", r.text)

    def test_does_not_reach_the_host(self):
        with Listener() as host:
            self.up("a")
            gateway = self.shell("a", "ip -4 route show default").split()[2]
            own = [l.split()[3].partition("/")[0] for l in ip("-4", "-o", "address").splitlines()]
            self.assertIn(gateway, own)
            for address in own:
                self.assertTrue(reaches(address, host.port), address)
                self.assertNotEqual(self.inside("a", address, host.port, 0.7), "hello", address)

    def test_sandboxes_do_not_reach_each_other(self):
        self.up("a")
        self.up("b")
        self.root.ok("exec", "--detach", "b", "--", PYTHON, "-c", SERVER)
        address = self.address("b")
        self.assertNotEqual(address, self.address("a"))
        wait_until(lambda: self.inside("b", address) == "hello", 10, "the server in b")
        self.assertNotEqual(self.inside("a", address, timeout=0.7), "hello")
        self.assertFalse(reaches(address, PORT, 0.7), "the host reaches in")

    def test_no_ipv6_but_loopback(self):
        self.up("a")
        self.assertEqual(self.shell("a", "ip -6 -o address | awk '{print $2, $4}'"), "lo ::1/128\n")
        self.assertNotIn("default", self.shell("a", "ip -6 route"))
        self.assertIn(self.inside("a", "2001:db8::1", timeout=1), ("OSError", "PermissionError"))
        link = self.root.links()[0]
        self.assertEqual(ip("-6", "-o", "address", "show", "dev", link), "")

    def test_the_interface_cannot_be_changed_from_inside(self):
        self.up("a")
        for command in ("ip address add 198.18.0.9/32 dev eth0", "ip link set eth0 down", "ip link add x type dummy",
                        "echo 0 > /proc/sys/net/ipv6/conf/eth0/disable_ipv6"):
            r = self.root.run("exec", "a", "--user", "0", "--", "sh", "-c", command)
            self.assertNotEqual(r.code, 0, command)
        code = "import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, 255)"
        r = self.root.run("exec", "a", "--user", "0", "--", PYTHON, "-c", code)
        self.assertIn(b"PermissionError", r.err)

    def test_reverse_path_is_checked(self):
        self.up("a")
        link = self.root.links()[0]
        self.assertEqual(Path(f"/proc/sys/net/ipv4/conf/{link}/rp_filter").read_text(), "1\n")

    def test_names_are_resolved(self):
        name = "pypi.org"
        try:
            socket.getaddrinfo(name, 443, socket.AF_INET)
        except OSError:
            self.skipTest(f"this machine cannot resolve {name}")
        self.up("a")
        code = f"import socket; print(socket.getaddrinfo('{name}', 443, socket.AF_INET)[0][4][1])"
        self.assertEqual(self.root.ok("exec", "a", "--", PYTHON, "-c", code).text, "443\n")
        self.assertIn("nameserver", self.shell("a", "cat /etc/resolv.conf"))

    def test_a_package_registry_answers(self):
        url = "https://pypi.org/simple/six/"
        code = f"import urllib.request; print(urllib.request.urlopen('{url}', timeout=20).status)"
        probe = subprocess.run([PYTHON, "-c", code], capture_output=True, check=False, env={"PATH": "/usr/bin"})
        if probe.stdout.strip() != b"200":
            self.skipTest(f"this machine itself does not reach {url}")
        self.up("a")
        self.assertEqual(self.root.ok("exec", "a", "--", PYTHON, "-c", code).text, "200\n")

    def test_resolv_conf_follows_the_mode(self):
        self.up("a")
        self.root.ok("exec", "a", "--user", "0", "--", "sh", "-c", "echo '# mine' >> /etc/resolv.conf")
        self.assertIn("# mine", self.shell("a", "cat /etc/resolv.conf"))
        self.root.ok("up", "a", "--network", "none")
        self.assertNotIn("nameserver", self.shell("a", "cat /etc/resolv.conf"))
        self.assertEqual(self.shell("a", "ls /sys/class/net 2>/dev/null; tail -n +2 /proc/net/route"), "")
        self.wait_network_gone()

    def test_ten_at_once(self):
        with Outside():
            names = [f"o{i}" for i in range(10)]
            started = [self.root.popen("up", n, "--network", "open") for n in names]
            for name, p in zip(names, started):
                _, err = p.communicate(timeout=60)
                self.assertEqual(p.returncode, 0, (name, err))
            self.assertEqual(len(self.root.links()), 10)
            self.assertEqual(len({self.address(n) for n in names}), 10)
            for name in names:
                self.assertEqual(self.inside(name, OUTSIDE), "hello", name)
            self.root.ok("stop", *names)
            self.wait_network_gone()


@unittest.skipUnless(can_open(), "network 'open' needs root, ip, and nft or iptables")
@needs("routed network")
@serial("network")
class Gone(NetworkCase):
    def test_with_the_last_one(self):
        self.up("a")
        self.up("b")
        self.assertEqual(len(self.root.links()), 2)
        self.root.ok("stop", "a")
        wait_until(lambda: len(self.root.links()) == 1, 10, "the first interface to go")
        self.assertTrue(self.root.firewall())
        self.root.ok("rm", "-f", "b")
        self.wait_network_gone()

    def test_after_run(self):
        self.root.ok("run", "--network", "open", "--", "true")
        self.wait_network_gone()

    def test_stopped_and_started_again(self):
        with Outside():
            self.up("a")
            for _ in range(3):
                self.root.ok("stop", "a")
                self.up("a")
                self.assertEqual(self.inside("a", OUTSIDE), "hello")

    def test_shim_killed(self):
        self.up("a")
        os.kill(self.shim("a"), signal.SIGKILL)
        self.wait_network_gone()

    def test_daemon_killed_and_shim_too(self):
        self.up("a")
        shim = self.shim("a")
        self.root.kill_daemon()
        os.kill(shim, signal.SIGKILL)
        wait_until(lambda: not alive(shim), 10, "the shim to end")
        self.assertTrue(self.root.firewall())
        self.root.ok("ls")
        self.wait_network_gone()

    def test_rules_stand_while_the_daemon_is_dead(self):
        loop = ("import subprocess, sys, time\n"
                "n, end = 0, time.monotonic() + 4\n"
                "while n < 5 or time.monotonic() < end:\n"
                "    n += 1\n"
                "    for a in sys.argv[2:]:\n"
                "        r = subprocess.run([sys.executable, '-c', sys.argv[1], a, '%d', '0.3'], capture_output=True)\n"
                "        print(a, r.stdout.decode().strip(), flush=True)\n" % PORT)
        with Outside():
            self.up("a")
            self.root.ok("exec", "--detach", "a", "--", PYTHON, "-c", loop, CLIENT, OUTSIDE, PRIVATE[0])
            self.root.kill_daemon()
            self.assertTrue(self.root.firewall())
            self.assertEqual(len(self.root.links()), 1)
            threading.Event().wait(2)
            self.root.ok("ls")
            self.assertTrue(alive(self.shim("a")))
            wait_until(lambda: self.root.exec_info("a")["end"], 60, "the loop to end")
            lines = self.root.ok("logs", "a").text.splitlines()
        self.assertGreater(lines.count(f"{OUTSIDE} hello"), 3, lines)
        self.assertGreater(len([l for l in lines if l.startswith(PRIVATE[0])]), 3, lines)
        self.assertNotIn(f"{PRIVATE[0]} hello", lines)

    def test_rules_that_somebody_removed_are_made_again(self):
        if not shutil.which("nft"):
            self.skipTest("no nft")
        self.up("a")
        table = self.root.firewall()[0].split()
        subprocess.run(["nft", "delete", *table], check=True)
        self.assertEqual(self.root.firewall(), [])
        self.up("b")
        self.assertEqual(len(self.root.firewall()), 1)

    @full_run_only
    def test_without_nft(self):
        """The same with iptables: the daemon runs where nft is not installed."""
        nft = shutil.which("nft")
        if not nft or not shutil.which("iptables-restore"):
            self.skipTest("needs both nft and iptables")
        self.root.kill_daemon(signal.SIGTERM)
        script = f"mount --bind /dev/null {nft} && exec {self.root.argv()[0]} daemon"
        with Outside(), Listener() as host, subprocess.Popen(
                ["unshare", "-m", "sh", "-c", script], env=self.root.env(), stderr=subprocess.DEVNULL):
            wait_until(lambda: (self.root.path / "run" / "ripcord.sock").exists() and self.root.daemon_pid(), 10,
                       "the daemon")
            self.up("a")
            self.assertIn(f"-N RIPCORD-{self.root.root_id[:8]}-F", self.root.firewall())
            self.assertEqual(self.inside("a", OUTSIDE), "hello")
            for address in PRIVATE:
                self.assertNotEqual(self.inside("a", address, timeout=0.7), "hello", address)
            self.assertNotEqual(self.inside("a", "198.51.100.1", host.port, 0.7), "hello")
            self.root.ok("rm", "-f", "a")
            self.wait_network_gone()
            self.root.kill_daemon(signal.SIGTERM)

    @full_run_only
    def test_forward_policy_drop(self):
        """As Docker sets it up: what we accept must be accepted there too, and taken back after."""
        if not shutil.which("iptables") or not shutil.which("nft"):
            self.skipTest("needs both nft and iptables")
        before = subprocess.run(["iptables", "-S", "FORWARD"], capture_output=True, check=True).stdout
        if not before.startswith(b"-P FORWARD ACCEPT"):
            self.skipTest("the FORWARD policy of this machine is not ours to change")
        subprocess.run(["iptables", "-w", "-P", "FORWARD", "DROP"], check=True)
        try:
            with Outside():
                self.up("a")
                self.assertEqual(self.inside("a", OUTSIDE), "hello")
                self.assertNotEqual(self.inside("a", PRIVATE[0], timeout=0.7), "hello")
                self.root.ok("rm", "-f", "a")
                self.wait_network_gone()
        finally:
            subprocess.run(["iptables", "-w", "-P", "FORWARD", "ACCEPT"], check=True)
        after = subprocess.run(["iptables", "-S", "FORWARD"], capture_output=True, check=True).stdout
        self.assertEqual(after, before)
