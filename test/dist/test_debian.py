"""The Debian packages: what lintian says, and their life on Debian 12 and 13: installation, upgrade under running sandboxes, removal,
purge. The machines have no systemd; test/vm has."""
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import foreign
from foreign import Machine
from tarball_fixture import folder, need_root, the_file

MIRROR_PACKAGES = "busybox-static,ca-certificates,python3-minimal"
# Logs and caches of the package manager, and what changes with every package.
UNINTERESTING = re.compile(r"(proc|sys|dev|run|tmp|old)(/|$)|var/(log|cache|lib/(apt|dpkg|systemd|ucf))(/|$)|etc/(ld\.so\.cache|mtab)$|root/\.")
TICKS = "i=0; while [ $i -lt 600 ]; do i=$((i+1)); echo tick $i; sleep 0.2; done"


def package(name="ripcord"):
    return the_file(f"{name}_*.deb")


def field(path, name):
    return subprocess.run(["dpkg-deb", "-f", path, name], check=True, capture_output=True, text=True).stdout.strip()


def newer(place, path):
    """The same package under a higher version, as the next release would be."""
    tree = place / "tree"
    subprocess.run(["dpkg-deb", "-R", path, tree], check=True)
    control = tree / "DEBIAN" / "control"
    control.write_text(re.sub(r"(?m)^Version: .*", "Version: 99.0", control.read_text("utf-8")), encoding="utf-8")
    target = place / "ripcord_99.0_amd64.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "-b", tree, target], check=True, capture_output=True)
    return target


class Checks(unittest.TestCase):
    def test_lintian(self):
        if not shutil.which("lintian"):
            raise unittest.SkipTest("lintian is missing: ./dev test --soak installs it")
        work = Path(__file__).resolve().parents[2] / "build-deb"
        changes = sorted(work.glob("*.changes"))
        self.assertEqual(len(changes), 1)
        # The lintian of Debian 12 does not know the field Static-Built-Using of its dpkg.
        done = subprocess.run(["lintian", "--suppress-tags", "unknown-field", "--display-level", ">=warning", "--fail-on", "error,warning", changes[0]],
                              capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)

    def test_libraries_of_static_programs_are_named(self):
        """debian/rules has a list of them, which must not lack one."""
        text = field(package(), "Static-Built-Using")
        for source in ("glibc", "jansson", "libarchive", "libzstd", "openssl", "xz-utils", "zlib"):
            self.assertRegex(text, rf"\b{source} \(= \S+\)")


class Life(unittest.TestCase):
    suite = "bookworm"

    def setUp(self):
        need_root()
        self.place = folder(self)
        self.root = self.place / "root"
        options = ["--quiet", "--variant=minbase", f"--include={MIRROR_PACKAGES}", "--dpkgopt=force-unsafe-io", "--dpkgopt=path-exclude=/usr/share/doc/*"]
        subprocess.run(["mmdebstrap", *options, self.suite, self.root], check=True, capture_output=True)
        self.root.chmod(0o755)
        self.m = self.enterContext(Machine(self.root, state=""))
        self.m.ok("sh", "-c", "cat >/etc/resolv.conf", stdin=Path("/etc/resolv.conf").read_bytes())
        for path in [package(), package("libripcord0"), package("libripcord-dev"), newer(self.place, package())]:
            shutil.copy(path, self.root / "opt")
        self.m.ok("apt-get", "update", "-q", timeout=300)

    def apt(self, *argv, code=0):
        """Without a terminal and without an answer to any question."""
        env = {"DEBIAN_FRONTEND": "noninteractive"}
        done = self.m.run("apt-get", "-q", "-y", "-o", "Dpkg::Use-Pty=0", *argv, env=env, timeout=600)
        self.assertEqual(done.code, code, done)
        self.assertNotRegex(done.out + done.err, r"(?i)debconf: \(|warning: .*ripcord|ripcord: some|rmdir|cannot|No such file", done)
        return done.out

    def files(self):
        found = set()
        for path in self.root.rglob("*"):
            name = str(path.relative_to(self.root))
            if not UNINTERESTING.match(name):
                found.add(name)
        return found

    def ripcord(self, *argv):
        return self.m.ok("ripcord", *argv).out

    def test_life(self):
        # The recommended packages stay after a purge, so they are there before.
        self.apt("install", *field(package(), "Recommends").replace(",", " ").split())
        self.apt("install", "--no-install-recommends", *self.library_dependencies())
        before = self.files()
        self.apt("install", f"/opt/{package().name}")
        self.installed()
        box = self.upgraded()
        self.removed(box)
        self.apt("install", f"/opt/{package().name}")
        self.assertEqual(self.ripcord("exec", "box", "--", "cat", "kept"), "kept\n", "files outlive a removal")
        self.apt("purge", "ripcord")
        self.assertEqual(self.m.processes(), [])
        self.assertEqual(sorted(self.files() - before), [])
        self.assertEqual(sorted(before - self.files()), [])

    def library_dependencies(self):
        """Packages that the daemon needs, by the names that this release has."""
        names = []
        for part in field(package(), "Depends").split(","):
            name = part.split()[0]
            found = self.m.run("sh", "-c", f"apt-cache show {name} >/dev/null 2>&1 && echo {name} || echo {name}t64").out.strip()
            names.append(found)
        return names

    def installed(self):
        for path in ("usr/share/man/man1/ripcord-run.1.gz", "usr/share/bash-completion/completions/ripcord.bash", "usr/share/zsh/vendor-completions/_ripcord",
                     "usr/share/fish/vendor_completions.d/ripcord.fish", "usr/share/man/man5/ripcord.yaml.5.gz"):
            self.assertTrue((self.root / path).is_file(), path)
        units = [p for p in (self.root / "lib/systemd/system/ripcord.service", self.root / "usr/lib/systemd/system/ripcord.service") if p.is_file()]
        self.assertTrue(units and "ExecStart=/usr/bin/ripcord" in units[0].read_text("utf-8"))
        self.assertTrue((self.root / "etc/systemd/system/multi-user.target.wants/ripcord.service").is_symlink(), "the service is enabled")
        profile = self.root / "etc/apparmor.d/ripcord"
        self.assertEqual(profile.is_symlink(), (self.root / "etc/apparmor.d/abi/4.0").exists())
        self.assertNotRegex(self.ripcord("doctor"), "(?m)^fail")
        done = self.m.run("ripcord", "run", "--", "python3", "-c", "print(6 * 7); raise SystemExit(3)")
        self.assertEqual((done.code, done.out), (3, "42\n"), done)

    def upgraded(self):
        """The daemon is replaced; a command in a sandbox does not notice."""
        self.ripcord("up", "box")
        self.ripcord("exec", "box", "--", "sh", "-c", "echo kept >kept")
        self.ripcord("exec", "box", "--detach", "--", "sh", "-c", TICKS)
        old = self.m.daemon()
        inode = (self.root / "usr/libexec/ripcord/ripcordd").stat().st_ino
        self.apt("install", "/opt/ripcord_99.0_amd64.deb")
        self.assertNotEqual((self.root / "usr/libexec/ripcord/ripcordd").stat().st_ino, inode, "the file was replaced")
        foreign.wait_until(lambda: not Path(f"/proc/{old}").exists(), 30, "the end of the old daemon")
        ticks = lambda: self.ripcord("logs", "box").splitlines()
        count = len(ticks())
        self.assertNotEqual(self.m.daemon(), old)
        foreign.wait_until(lambda: len(ticks()) > count, 30, "more output of the command")
        found = ticks()
        self.assertEqual(found, [f"tick {i}" for i in range(1, len(found) + 1)], "no line is lost")
        return found

    def removed(self, _):
        self.apt("remove", "ripcord")
        foreign.wait_until(lambda: self.m.processes() == [], 20, f"the end of all processes: {self.m.processes()}")
        self.assertFalse((self.root / "usr/libexec/ripcord").exists())
        self.assertFalse((self.root / "etc/apparmor.d/ripcord").is_symlink())
        self.assertTrue((self.root / "var/lib/ripcord/ripcord.db").is_file(), "state stays until a purge")

    def test_library(self):
        """examples/hello.c compiled against the package runs a command."""
        self.apt("install", "gcc", "libc6-dev", "pkg-config", *[f"/opt/{package(n).name}" for n in ("ripcord", "libripcord0", "libripcord-dev")])
        example = Path(__file__).resolve().parents[2] / "examples" / "hello.c"
        shutil.copy(example, self.root / "opt")
        self.m.ok("sh", "-c", "cd /opt && gcc -o hello hello.c $(pkg-config --cflags --libs libripcord)")
        self.assertIn("hello", self.m.ok("/opt/hello").out)
        self.apt("purge", "ripcord")


class LifeOnTrixie(Life):
    suite = "trixie"
