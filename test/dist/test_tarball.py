"""The archive of static programs: what is in it, its install script, and its life on machines that are not this one."""
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
import unittest
from pathlib import Path

import foreign
import packages_fixture
from foreign import Machine
from tarball_fixture import dist, folder, names_below, need_root, the_file, unpacked

PROGRAMS = {"ripcord", "ripcordd", "ripcord-shim", "ripcord-guest", "ripcord-relay", "ripcord-relay-net", "ripcord-packages", "ripcord-image",
            "ripcord-build", "ripcord-transfer"}
# package of the bill of materials -> what its code leaves in each program that has it, and what in one of them at least, with {}
# for the version. None: nothing that can be told from other bytes.
TRACES = {
    "libc6-dev": (rb"GLIBC_TUNABLES", None), "libssl-dev": (rb"CRYPTOGAMS by <appro@openssl.org>", rb"OpenSSL {} "),
    "libcurl-http": (rb"transfer closed with", None), "libsqlite3-dev": (rb"SQLite format 3", rb"[^0-9.]{}\0"),
    "zlib1g-dev": (rb"inflate [0-9.]+ Copyright", rb"inflate {} Copyright"), "libarchive-dev": (rb"GNU tar", rb"libarchive {}"),
    "libjansson-dev": (rb"unable to decode byte", None), "libuv1-dev": (rb"uv__io_stop", None),
    "libyaml-dev": (rb"did not find expected <document start>", None), "libzstd-dev": (rb"Unsupported frame parameter", rb"[^0-9.]{}\0"),
    "liblzma-dev": (None, rb"[^0-9.]{}\0"), "libgcc-12-dev": (None, None),
}


class Contents(unittest.TestCase):
    def programs(self):
        top = unpacked()
        return {p.name: p for folder_ in (top / "bin", top / "libexec" / "ripcord") for p in folder_.iterdir() if p.is_file()}

    def test_checksums(self):
        done = subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=dist(), capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        listed = {line.split()[1] for line in (dist() / "SHA256SUMS").read_text(encoding="ascii").splitlines()}
        self.assertEqual(listed, {p.name for p in dist().iterdir()} - {"SHA256SUMS"})

    def test_all_programs_are_static(self):
        self.assertEqual(set(self.programs()), PROGRAMS)
        for name, path in self.programs().items():
            text = subprocess.run(["readelf", "-lWd", path], check=True, capture_output=True, text=True).stdout
            self.assertNotRegex(text, r"INTERP|\(NEEDED\)", name)
            self.assertIn("DYN", subprocess.run(["readelf", "-h", path], check=True, capture_output=True, text=True).stdout, f"{name} is a PIE")

    def test_paths_of_the_build_are_not_inside(self):
        here = str(Path(__file__).resolve().parents[2]).encode()
        for name, path in self.programs().items():
            self.assertNotIn(here, path.read_bytes(), name)

    def test_times_and_owners(self):
        with tarfile.open(the_file("*-linux-x86_64.tar.xz")) as tar:
            members = tar.getmembers()
        self.assertEqual(len({m.mtime for m in members}), 1)
        self.assertEqual({(m.uid, m.gid, m.uname, m.gname) for m in members}, {(0, 0, "root", "root")})
        self.assertEqual({m.mode for m in members}, {0o755, 0o644})
        names = [m.name for m in members]
        self.assertEqual(len(names), len(set(names)))

    def test_manual_pages_completions_and_texts(self):
        top = unpacked()
        for name in ("share/man/man1/ripcord.1", "share/man/man1/ripcord-run.1", "share/man/man5/ripcord.yaml.5", "LICENSE", "README", "install",
                     "share/bash-completion/completions/ripcord.bash", "share/fish/vendor_completions.d/ripcord.fish",
                     "share/zsh/site-functions/_ripcord", "share/doc/ripcord/install.md", "share/ripcord/apparmor", "lib/systemd/system/ripcord.service"):
            self.assertGreater((top / name).stat().st_size, 100, name)


class Bill(unittest.TestCase):
    """sbom.spdx.json against the programs themselves."""

    def setUp(self):
        self.top = unpacked()
        self.document = json.loads((self.top / "sbom.spdx.json").read_text(encoding="utf-8"))
        self.packages = {p["SPDXID"]: p for p in self.document["packages"]}
        self.files = {f["SPDXID"]: f for f in self.document["files"]}

    def test_same_as_beside_the_archive(self):
        self.assertEqual(the_file("*.spdx.json").read_bytes(), (self.top / "sbom.spdx.json").read_bytes())

    def test_files_and_digests(self):
        for entry in self.files.values():
            digests = {c["algorithm"]: c["checksumValue"] for c in entry["checksums"]}
            self.assertEqual(digests["SHA256"], hashlib.sha256((self.top / entry["fileName"]).read_bytes()).hexdigest())
        self.assertEqual({Path(f["fileName"]).name for f in self.files.values()}, PROGRAMS | {"LC_CTYPE"})

    def linked(self, file_id):
        return {self.packages[r["relatedSpdxElement"]]["name"]: self.packages[r["relatedSpdxElement"]] for r in self.document["relationships"]
                if r["spdxElementId"] == file_id and r["relationshipType"] == "STATIC_LINK"}

    def test_each_program_has_the_libraries_that_it_names(self):
        """And no other: a library that leaves its trace in a program must be named for it."""
        for file_id, entry in self.files.items():
            data, linked = (self.top / entry["fileName"]).read_bytes(), self.linked(file_id)
            self.assertLessEqual(set(linked), set(TRACES), "a trace for each library")
            for name, (trace, _) in TRACES.items():
                if trace and not entry["fileName"].endswith("LC_CTYPE"):
                    self.assertEqual(bool(re.search(trace, data)), name in linked, f"{name} in {entry['fileName']}")

    def test_each_library_has_the_version_that_it_names(self):
        data = b"".join(p.read_bytes() for p in (self.top / "libexec" / "ripcord").iterdir() if p.is_file())
        versions = {p["name"]: re.split(r"[-+]|\.dfsg", p["versionInfo"].rpartition(":")[2])[0] for p in self.packages.values()}
        self.assertLessEqual(set(TRACES), set(versions))
        for name, (_, trace) in TRACES.items():
            if trace:
                wanted = trace.replace(b"{}", re.escape(versions[name]).encode())
                self.assertTrue(re.search(wanted, data), f"{name} {versions[name]}")

    def test_licences(self):
        for package in self.packages.values():
            if package["name"] == "ripcord":
                continue
            self.assertNotIn(package["licenseConcluded"], ("", "NOASSERTION"), package["name"])
            text = (self.top / "licences" / f"{package['name']}.txt").read_text(encoding="utf-8")
            self.assertRegex(text, "(?i)copyright|public domain")
            for name in re.findall(r"/usr/share/common-licenses/([A-Za-z0-9.+-]*[A-Za-z0-9])", text):
                self.assertTrue((self.top / "licences" / "common-licenses" / name).is_file(), name)


class Install(unittest.TestCase):
    """The script, on this machine, with the shells that people have."""

    def setUp(self):
        self.place = folder(self)

    def install(self, *options, shell=("sh",), top=None, code=0, **env):
        done = subprocess.run([*shell, (top or unpacked()) / "install", *options], capture_output=True, text=True, check=False,
                              env={"PATH": os.environ["PATH"], "HOME": str(self.place / "home"), **env})
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def test_each_shell_installs_the_same(self):
        expected = None
        for shell in (("dash",), ("bash", "--posix"), ("busybox", "sh")):
            prefix = self.place / shell[0]
            self.install("--prefix", prefix, shell=shell)
            found = {n: (prefix / n).stat().st_mode for n in names_below(prefix)}
            self.assertIn("libexec/ripcord/ripcordd", found)
            self.assertEqual(expected or found, found, shell)
            expected = found
            self.install("--prefix", prefix, "--uninstall", shell=shell)
            self.assertFalse(prefix.exists(), names_below(prefix) if prefix.exists() else "")

    def test_prefix_reaches_unit_and_profile(self):
        prefix = self.place / "opt" / "ripcord"
        self.install(PREFIX=str(prefix))
        self.assertIn(f"ExecStart={prefix}/bin/ripcord daemon", (prefix / "lib/systemd/system/ripcord.service").read_text("utf-8"))
        self.assertIn(f"{prefix}/libexec/ripcord", (prefix / "share/ripcord/apparmor").read_text("utf-8"))
        for name in names_below(prefix / "lib") + names_below(prefix / "share" / "ripcord"):
            path = prefix / "lib" / name if (prefix / "lib" / name).exists() else prefix / "share" / "ripcord" / name
            self.assertNotIn("/usr/local", path.read_text("utf-8"), name)

    def test_destdir_is_not_a_part_of_paths(self):
        self.install("--prefix=/usr", DESTDIR=str(self.place))
        self.assertIn("ExecStart=/usr/bin/ripcord daemon", (self.place / "usr/lib/systemd/system/ripcord.service").read_text("utf-8"))
        self.install("--prefix=/usr", f"--destdir={self.place}", "--uninstall")
        self.assertEqual(names_below(self.place), [])

    def test_upgrade_removes_what_the_new_version_lacks(self):
        prefix, older = self.place / "p", self.place / "older"
        shutil.copytree(unpacked(), older)
        (older / "libexec/ripcord/ripcord-gone").write_text("x", encoding="ascii")
        (older / "share/man/man1/ripcord-gone.1").write_text("x", encoding="ascii")
        self.install("--prefix", prefix, top=older)
        self.assertTrue((prefix / "libexec/ripcord/ripcord-gone").exists())
        (prefix / "bin" / "foreign").write_text("another program's", encoding="ascii")
        self.assertIn("replaced an installation", self.install("--prefix", prefix).stdout)
        self.assertEqual([n for n in names_below(prefix) if "gone" in n], [])
        self.install("--prefix", prefix, "--uninstall")
        self.assertEqual(names_below(prefix), ["bin/foreign"])

    def test_a_users_own_prefix(self):
        self.install("--prefix", self.place / "home" / ".local")
        units = [n for n in names_below(self.place) if n.endswith(".service")]
        self.assertTrue(units)
        self.assertEqual([n for n in units if "/lib/systemd/user/" in n], [], "systemd does not look there")

    def test_mistakes(self):
        for options, word in ((("--prefix", "relative"), "not an absolute path"), (("--prefix",), "needs a folder"), (("--frobnicate",), "unknown option"),
                              (("--prefix", self.place / "nothing", "--uninstall"), "nothing is installed")):
            self.assertIn(word, self.install(*options, code=1).stderr)
        self.assertEqual(names_below(self.place), [])


def archive_with_names(*names):
    """A root file system as tar in pax format, whose names are UTF-8."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in names:
            info = tarfile.TarInfo(name)
            info.size = 2
            tar.addfile(info, io.BytesIO(b"x\n"))
    return data.getvalue()


class Foreign(unittest.TestCase):
    """Other userlands. The archive is installed with their own shell."""

    def machine(self, layout, **more):
        need_root()
        root = folder(self)
        layout(root)
        shutil.copytree(unpacked(), root / "archive")
        return self.enterContext(Machine(root, **more))

    def assert_works(self, m, ripcord, run=("run",), sh="sh"):
        report = m.ok(ripcord, "doctor").out
        self.assertNotRegex(report, "(?m)^fail", report)
        self.assert_runs(m, ripcord, run, sh)

    def assert_runs(self, m, ripcord, run=("run",), sh="sh"):
        done = m.run(ripcord, *run, "--", sh, "-c", "id -u; echo err >&2; exit 7")
        self.assertEqual((done.code, done.out, done.err), (7, "1000\n", "err\n"), m.log())

    def end(self, m, ripcord):
        names = m.ok(ripcord, "ls", "--quiet").out.split()
        if names:
            m.ok(ripcord, "rm", "--force", *names)
        m.end_daemon()
        foreign.wait_until(lambda: m.processes() == [], 20, f"the end of all processes: {m.processes()}")

    def test_split_usr_without_anything(self):
        """As Alpine, and less: no locale, no nsswitch.conf, no user names, no certificates."""
        m = self.machine(foreign.like_alpine)
        m.ok("/archive/install")
        self.assert_works(m, "ripcord")
        self.assertEqual(m.ok("ripcord", "run", "--", "/usr/bin/env", "true").code, 0)
        self.assertIn("Read-only", m.run("ripcord", "run", "--", "touch", "/bin/x").err)
        m.ok("ripcord", "up", "box")
        self.assertIn("still running", m.run("/archive/install", "--uninstall").err)
        self.names_beyond_ascii(m)
        self.builds(m)
        self.end(m, "ripcord")
        m.ok("/archive/install", "--uninstall")
        self.assertEqual(names_below(m.root / "usr" / "local"), [])

    def names_beyond_ascii(self, m):
        m.ok("ripcord", "image", "import", "-", "names", stdin=archive_with_names("zażółć/gęślą", "日本"))
        m.ok("sh", "-c", "ripcord image export names -o /tmp/names.tar && ripcord image rm names")
        m.ok("ripcord", "image", "import", "/tmp/names.tar", "again")
        found = m.ok("ripcord", "up", "names", "--image", "again", "--json")
        self.assertIn("created", found.out)
        m.ok("sh", "-c", "ripcord cp names:/zażółć /tmp/copy && test -f /tmp/copy/gęślą")

    def builds(self, m):
        m.ok("sh", "-c", "mkdir /tmp/c && cd /tmp/c && echo data >f && printf 'FROM host\\nCOPY f /srv/f\\nRUN cat /srv/f >/srv/g\\nUSER agent\\n' >Dockerfile")
        m.ok("ripcord", "image", "build", "-t", "mine", "/tmp/c")
        self.assertEqual(m.ok("ripcord", "run", "--image", "mine", "--", "cat", "/srv/g").out, "data\n")
        m.ok("sh", "-c", "printf 'FROM host\\nCOPY f /bin/f\\n' >/tmp/c/Dockerfile")
        self.assertIn("read-only", m.run("ripcord", "image", "build", "-t", "mine", "/tmp/c").err)

    def test_where_it_was_unpacked_and_after_a_move(self):
        m = self.machine(foreign.like_alpine)
        self.assert_works(m, "/archive/bin/ripcord")
        m.ok("/archive/bin/ripcord", "up", "box")
        m.ok("/archive/bin/ripcord", "exec", "box", "--", "sh", "-c", "echo kept >f")
        m.end_daemon()
        m.ok("mv", "/archive", "/elsewhere")
        self.assertEqual(m.ok("/elsewhere/bin/ripcord", "exec", "box", "--", "cat", "f").out, "kept\n")
        m.ok("ln", "-s", "/elsewhere/bin/ripcord", "/usr/bin/ripcord")
        m.ok("ripcord", "stop", "box")
        self.assertEqual(m.ok("ripcord", "exec", "box", "--", "cat", "f").out, "kept\n", "with a supervisor of the moved tree")
        self.end(m, "ripcord")

    def test_an_ordinary_user(self):
        m = self.machine(foreign.like_alpine)
        m.ok("sh", "-c", "mkdir /tmp/home && chown 1000:1000 /tmp/home")
        done = m.run("/archive/bin/ripcord", "run", "--", "sh", "-c", "id -u; exit 3", uid=1000)
        self.assertEqual((done.code, done.out), (3, "1000\n"), done)

    def upstream(self, m, trust):
        """An index behind TLS under a name of /etc/hosts; its authority is in the machine's bundle `trust`."""
        place = folder(self)
        certificates(place, "pypi.test")
        up = packages_fixture.Upstream(place)
        self.addCleanup(up.stop)
        up.url = f"https://pypi.test:{up.port}"
        up.add_wheel("demo", "1.5")
        foreign.put(m.root, "etc/hosts", "127.0.0.1 pypi.test\n")
        foreign.put(m.root, "etc/ripcord/ripcord.yaml", f"packages.pypi: {up.url}/simple/\npackages.npm: ''\npackages.private: yes\n")
        if trust:
            foreign.put(m.root, trust, (place / "ca.pem").read_text("ascii"))
        return up

    def fetch(self, m, ripcord="/archive/bin/ripcord"):
        return m.run(ripcord, "run", "--", "wget", "-q", "-O", "-", "http://127.0.0.1:7417/pypi/simple/demo/")

    def test_certificates_of_distributions(self):
        for trust in ("etc/pki/tls/certs/ca-bundle.crt", "etc/ssl/certs/ca-certificates.crt", "etc/ssl/ca-bundle.pem", "etc/ssl/cert.pem"):
            with self.subTest(trust):
                m = self.machine(foreign.like_alpine)
                self.upstream(m, trust)
                self.assertIn("demo-1.5", self.fetch(m).out, m.log())

    def test_without_certificates(self):
        m = self.machine(foreign.like_alpine)
        up = self.upstream(m, None)
        self.assertNotEqual(self.fetch(m).code, 0)
        self.assertIn("no CA certificates on this machine", m.ok("/archive/bin/ripcord", "events").out)
        self.assertEqual(up.requests, [])

    def test_modules_of_the_machine_are_not_loaded(self):
        """nsswitch.conf and openssl.cnf name modules that end the process which loads them."""
        m = self.machine(foreign.like_fedora)
        traps(m.root, self)
        self.upstream(m, "etc/pki/tls/certs/ca-bundle.crt")
        self.assertIn("demo-1.5", self.fetch(m).out, m.log())
        self.assert_works(m, "/archive/bin/ripcord")
        m.ok("sh", "-c", "mkdir /tmp/home && chown 1000:1000 /tmp/home")
        self.assertEqual(m.run("/archive/bin/ripcord", "run", "--", "true", uid=1000).code, 0)
        self.builds_digest(m)

    def builds_digest(self, m):
        """Digests are computed by OpenSSL."""
        m.ok("/archive/bin/ripcord", "image", "import", "-", "names", stdin=archive_with_names("a"))

    def test_programs_in_a_store(self):
        """As NixOS: with the line of docs/install.md."""
        m = self.machine(foreign.like_nixos, shell="/nix/store/0-busybox/bin/busybox")
        foreign.put(m.root, "etc/ripcord/ripcord.yaml", "mounts.roots: [/nix/store]\n")
        m.run = with_path(m.run, "/nix/store/0-busybox/bin")
        ripcord = "/archive/bin/ripcord"
        self.assertIn("command 'true' not found", m.run(ripcord, "doctor").out)  # as `run -- true` says here
        self.assert_runs(m, ripcord,
                         run=("run", "--mount", "/nix/store:/nix/store:ro", "--env", "PATH=/nix/store/0-busybox/bin"))


def with_path(run, path):
    return lambda *argv, env=None, **kwargs: run(*argv, env={"PATH": path, **(env or {})}, **kwargs)


def certificates(place, name):
    """An authority of our own and a certificate for that name."""
    def openssl(words):
        subprocess.run(["openssl", *words.split()], cwd=place, check=True, capture_output=True)
    (place / "ext").write_text(f"subjectAltName=DNS:{name}\n", encoding="ascii")
    openssl("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout ca.key -out ca.pem -days 30 -subj /CN=test-ca")
    openssl(f"req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout server.key -out server.csr -subj /CN={name}")
    openssl("x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out server.pem -days 30 -extfile ext")


TRAP = "#include <unistd.h>\n__attribute__((constructor)) static void trap(void) { _exit(99); }\n"
ASKS_NAMES = "#include <netdb.h>\nint main(void) { struct addrinfo *a; return getaddrinfo(\"x.invalid\", \"1\", 0, &a) == 0; }\n"
ASKS_OPENSSL = "#include <openssl/evp.h>\nint main(void) { return !EVP_MD_fetch(0, \"SHA256\", 0); }\n"


def traps(root, test):
    """Puts modules there that end their process, with the libc that they need, and shows with other static programs that they do."""
    place = folder(test)
    library = root / "usr/lib/x86_64-linux-gnu"
    library.mkdir(parents=True)
    compile_c(place, TRAP, "trap.so", "-shared", "-fPIC")
    shutil.copy2(place / "trap.so", library / "libnss_trap.so.2")
    for name in ("libc.so.6", "ld-linux-x86-64.so.2"):
        shutil.copy2(f"/lib/x86_64-linux-gnu/{name}", library / name)
    shutil.copy2("/lib64/ld-linux-x86-64.so.2", root / "usr/lib64")
    foreign.put(root, "usr/lib/ssl/openssl.cnf", "openssl_conf = x\n[x]\nproviders = p\n[p]\ntrap = t\n[t]\nactivate = 1\n"
                                                 "module = /usr/lib/x86_64-linux-gnu/libnss_trap.so.2\n")
    compile_c(place, ASKS_NAMES, "names", "-static")
    compile_c(place, ASKS_OPENSSL, "openssl", "-static", "-lcrypto")
    with Machine(root) as m:
        for name in ("names", "openssl"):
            shutil.copy2(place / name, root / name)
            test.assertEqual(m.run(f"/{name}").code, 99, f"the trap works for {name}")


def compile_c(place, text, name, *options):
    (place / "x.c").write_text(text, encoding="ascii")
    subprocess.run(["gcc", "-o", place / name, place / "x.c", *options], check=True, capture_output=True)
