"""`ripcord ssh-config`: the real ssh, scp and sftp into a sandbox with the real sshd."""
import atexit
import contextlib
import hashlib
import os
import shutil
import socket
import stat
import subprocess
import tempfile
import threading
import unittest
from pathlib import Path

from image_registries import free_port
from ripcord_test import TestCase, wait_until

TOOLS = [shutil.which(name) for name in ("ssh", "scp", "sftp", "ssh-keygen", "apt-get", "dpkg")]
LOCK = threading.Lock()
SERVER = {}  # the unpacked packages of Debian, for all tests of this run


def server():
    """A folder with Debian's sshd. It is unpacked and not installed: an installed one would start on this machine."""
    with LOCK:
        if not SERVER:
            folder = Path(tempfile.mkdtemp(prefix="ripcord-sshd-"))
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            SERVER["root"] = unpack(folder)
    return SERVER["root"]


def unpack(folder):
    folder.chmod(0o755)
    for package in ("openssh-server", "libwrap0"):
        done = subprocess.run(["apt-get", "download", package], cwd=folder, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode != 0:
            raise unittest.SkipTest(f"cannot download Debian's {package}: {done.stderr.strip()[-200:]}")
    for package in folder.glob("*.deb"):
        subprocess.run(["dpkg", "-x", package, folder / "root"], check=True, timeout=60)
    (folder / "root").chmod(0o755)
    return folder / "root"


@unittest.skipUnless(all(TOOLS), "openssh-client or apt is not installed")
class Ssh(TestCase):
    def setUp(self):
        super().setUp()
        work = tempfile.TemporaryDirectory(prefix="ripcord-ssh-")
        self.addCleanup(work.cleanup)
        self.here = Path(work.name)

    def up(self, *options):
        root = server()
        libraries = ":".join(f"/mnt/ssh/{p.relative_to(root)}" for p in root.rglob("*-linux-gnu") if p.is_dir())
        self.root.ok("up", "a", "--mount", f"{root}:/mnt/ssh:ro", "-e", "PATH=/usr/local/bin:/usr/bin:/bin:/mnt/ssh/usr/sbin",
                     "-e", f"LD_LIBRARY_PATH={libraries}", *options)
        self.configure()

    def configure(self):
        (self.here / "config").write_bytes(self.root.ok("ssh-config", "a").out)

    def call(self, program, *words, **kwargs):
        return subprocess.run([program, "-F", self.here / "config", *words], capture_output=True, timeout=60, check=False, cwd=self.here,
                              env=self.root.env(), **kwargs)

    def ssh(self, script, **kwargs):
        return self.call("ssh", "a.ripcord", script, **kwargs)

    def test_a_command(self):
        self.up("-e", "GREETING=hello  'world'", "-e", 'BAD=a"b')
        done = self.ssh('id -un; pwd; echo "[$GREETING] [$BAD]"; cat; echo problem >&2; exit 7', input=b"input\n")
        self.assertEqual((done.stdout, done.returncode), (b"agent\n/home/agent\n[hello  'world'] []\ninput\n", 7), done)
        self.assertIn(b"problem\n", done.stderr)
        self.assertEqual(self.shell("a", "ls -A ~ | grep -c ssh || true"), "0\n")  # nothing was written
        data = os.urandom(3_000_000)
        self.assertEqual(self.ssh("cat", input=data).stdout, data)

    def test_a_terminal(self):
        self.up()
        done = self.call("ssh", "-tt", "a.ripcord", "tty; test -t 0 && echo terminal", stdin=subprocess.DEVNULL)
        self.assertRegex(done.stdout.decode(), r"^/dev/pts/\d+\r\nterminal\r\n")

    def test_copies(self):
        self.up()
        data = os.urandom(2_000_000)
        (self.here / "file").write_bytes(data)
        self.assertEqual(self.call("scp", "file", "a.ripcord:copy").returncode, 0)
        self.assertEqual(self.shell("a", "sha256sum <copy").split()[0], hashlib.sha256(data).hexdigest())
        done = self.call("sftp", "-b", "-", "a.ripcord", input=b"mkdir d\nrename copy d/moved\nget d/moved back\n")
        self.assertEqual((done.returncode, (self.here / "back").read_bytes()), (0, data), done)

    def test_forwarded_ports_and_sockets(self):
        self.up()
        self.root.ok("exec", "a", "-d", "--", "python3", "-m", "http.server", "--bind", "127.0.0.1", "8765")
        port, path = free_port(), self.here / "sock"
        with subprocess.Popen(["ssh", "-F", self.here / "config", "-N", "-L", f"{port}:127.0.0.1:8765", "-L", f"{path}:127.0.0.1:8765",
                               "a.ripcord"], env=self.root.env(), stderr=subprocess.PIPE) as tunnel:
            try:
                for family, address in ((socket.AF_INET, ("127.0.0.1", port)), (socket.AF_UNIX, str(path))):
                    wait_until(lambda f=family, a=address: self.answers(f, a), 20, f"an answer at {address}")
            finally:
                tunnel.terminate()

    @staticmethod
    def answers(family, address):
        with contextlib.suppress(OSError), socket.socket(family) as s:
            s.settimeout(5)
            s.connect(address)
            s.sendall(b"GET / HTTP/1.0\r\n\r\n")
            return s.recv(100).startswith(b"HTTP/1.0 200")
        return False

    def test_a_stopped_sandbox_is_started_and_a_gone_client_ends_the_server(self):
        self.up()
        self.root.ok("stop", "a")
        self.assertEqual(self.ssh("echo up").stdout, b"up\n")
        with subprocess.Popen(["ssh", "-F", self.here / "config", "a.ripcord", "echo here; sleep 1000"], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, env=self.root.env()) as p:
            self.assertEqual(p.stdout.readline(), b"here\n")
            p.kill()
        wait_until(lambda: self.root.sandbox("a")["execs_live"] == 0, 20, "the server to end")

    def test_keys_are_made_once_and_are_private(self):
        self.up()
        folder = self.root.path / "state" / "ssh"
        before = {p.name: p.read_bytes() for p in folder.iterdir()}
        self.assertEqual(set(before), {"client", "client.pub", "host", "host.pub", "known_hosts"})
        self.assertEqual([stat.S_IMODE((folder / name).stat().st_mode) for name in (".", "client", "host")], [0o700, 0o600, 0o600])
        self.configure()
        self.assertEqual({p.name: p.read_bytes() for p in folder.iterdir()}, before)
        doc = self.root.ok("ssh-config", "a", "--json").json()
        self.assertEqual((doc["host"], doc["user"], doc["identity_file"]), ("a.ripcord", "agent", str(folder / "client")))
        (folder / "client").unlink()
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "client.new"], check=True, timeout=60)
        (folder / "client.new").rename(folder / "client")
        self.assertIn(b"Permission denied", self.ssh("true").stderr)

    def test_errors(self):
        self.assertIn(b"no sandbox 'a'", self.assert_exit(self.root.run("ssh-config", "a"), 3).err)
        self.root.ok("up", "a", "-e", "PATH=/nowhere")
        self.configure()
        done = self.ssh("true")
        if not Path("/usr/sbin/sshd").exists():
            self.assertEqual(done.returncode, 255)
            self.assertIn(b"ripcord: sandbox 'a': no ssh server inside (sshd was not found)\nhint: Install openssh-server", done.stderr)
        self.root.ok("up", "a", "--user", "0")
        self.assertIn(b"not available for its user '0'", self.assert_exit(self.root.run("ssh-config", "a"), 7).err)


if __name__ == "__main__":
    unittest.main()
