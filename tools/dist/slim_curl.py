"""libcurl as a small static library: HTTP and HTTPS, and nothing else.

Debian's libcurl.a needs Kerberos, LDAP, SSH and eleven more libraries, and of some of them Debian has no static library. So
libcurl is built from the distribution's own source package, with its security patches. The package lists of the source are
fetched with a private configuration of apt: the machine's own configuration does not change.

The result stays in the cache folder (~/.cache/ripcord) under a key of all inputs, so a second build needs no network.
"""
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from common import cache_folder, output_of, say

# What src/lib/http/fetch uses. Without HTTP/2: it would bring one more parser of foreign bytes, and fetches are not faster
# with it (each transfer has a connection of its own).
OPTIONS = ("--disable-shared --enable-static --with-pic --with-openssl --with-zlib --enable-threaded-resolver --enable-ipv6 "
           "--enable-proxy --enable-http --enable-http-auth --disable-openssl-auto-load-config --without-ca-bundle "
           "--without-ca-path --without-brotli --without-zstd --without-libpsl --without-libidn2 --without-nghttp2 "
           "--without-librtmp --without-libssh2 --without-libgsasl --disable-ldap --disable-ldaps --disable-ftp --disable-file "
           "--disable-dict --disable-telnet --disable-tftp --disable-pop3 --disable-imap --disable-smb --disable-smtp "
           "--disable-gopher --disable-mqtt --disable-rtsp --disable-manual --disable-libcurl-option --disable-ntlm "
           "--disable-ntlm-wb --disable-tls-srp --disable-unix-sockets --disable-cookies --disable-doh --disable-mime "
           "--disable-netrc --disable-alt-svc --disable-hsts --disable-websockets --disable-headers-api "
           "--disable-get-easy-options --disable-dependency-tracking").split()
FLAGS = ["-O2", "-fPIE", "-fstack-protector-strong", "-fstack-clash-protection", "-fcf-protection", "-D_FORTIFY_SOURCE=2"]

PKG_CONFIG = """prefix=${{pcfiledir}}/../..
Name: libcurl
Description: HTTP and HTTPS only, from the source package curl {version}
Version: {upstream}
Requires.private: libssl libcrypto zlib
Libs: -L${{prefix}}/lib -lcurl
Cflags: -I${{prefix}}/include -DCURL_STATICLIB
"""


class Apt:
    """The machine's package sources with deb-src, in a private folder."""

    def __init__(self, folder):
        self.folder = folder
        for name in ("lists/partial", "cache/archives/partial", "parts"):
            (folder / name).mkdir(parents=True)
        self.copy_sources()
        config = folder / "apt.conf"
        config.write_text(f'Dir::Etc::sourcelist "/dev/null";\nDir::Etc::sourceparts "{folder}/parts";\n'
                          f'Dir::State::lists "{folder}/lists";\nDir::Cache "{folder}/cache";\n'
                          'APT::Sandbox::User "root";\nAcquire::Languages "none";\n', encoding="ascii")
        self.env = {**os.environ, "APT_CONFIG": str(config)}

    def copy_sources(self):
        etc = Path("/etc/apt")
        for path in [etc / "sources.list", *sorted((etc / "sources.list.d").glob("*"))]:
            if not path.is_file() or path.suffix not in (".list", ".sources"):
                continue
            text = path.read_text(encoding="utf-8")
            text = re.sub(r"(?m)^Types:.*$", "Types: deb-src", text)
            text = re.sub(r"(?m)^deb-src[ \t].*\n?", "", text)
            text = re.sub(r"(?m)^deb([ \t])", r"deb-src\1", text)
            (self.folder / "parts" / path.name).write_text(text, encoding="utf-8")

    def run(self, *argv, cwd=None):
        return subprocess.run(argv, env=self.env, cwd=cwd, check=True, capture_output=True, text=True).stdout

    def source_of(self, package, place):
        """Downloads the newest source package, whose files apt verifies. The path of its .dsc file."""
        self.run("apt-get", "update", "-q")
        self.run("apt-get", "source", "-q", "--download-only", "--only-source", package, cwd=place)
        return next(place.glob("*.dsc"))


def newest_version():
    """The version of the binary package that this machine would install: it changes with each security update."""
    policy = output_of("apt-cache", "policy", "libcurl4-openssl-dev")
    return re.search(r"Candidate: (\S+)", policy).group(1)


def key():
    """All that decides about the bytes of the library."""
    parts = [newest_version(), output_of("dpkg-query", "-W", "libssl-dev", "zlib1g-dev", "libc6-dev"), output_of("gcc", "--version"), OPTIONS, FLAGS]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def quiet(argv, cwd, env=None):
    done = subprocess.run(argv, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"dist: {' '.join(map(str, argv[:3]))} failed:\n{done.stdout[-8000:]}")


def unpack(dsc, source):
    """With the distribution's patches but for those that make the GnuTLS and NSS flavours, which rename the library."""
    quiet(["dpkg-source", "--no-check", "--skip-patches", "-x", dsc.name, source], dsc.parent)
    patches = source / "debian" / "patches"
    for name in (patches / "series").read_text(encoding="ascii").split("\n"):
        name = name.partition("#")[0].strip()
        if name and not re.search(r"gnutls|nss", name):
            quiet(["patch", "-s", "-p1", "--no-backup-if-mismatch", "-i", patches / name], source)


def compile_in(work, source):
    build = work / "build"
    build.mkdir()
    flags = " ".join([*FLAGS, f"-ffile-prefix-map={work}=."])
    env = {**os.environ, "CFLAGS": flags, "CC": "gcc", "CCACHE_DISABLE": "1", "LC_ALL": "C"}
    quiet([source / "configure", "--prefix=/usr", *OPTIONS], build, env)
    quiet(["make", f"-j{os.cpu_count()}", "-C", "lib"], build, env)
    library = build / "lib" / ".libs" / "libcurl.a"
    quiet(["objcopy", "--enable-deterministic-archives", library], build)
    return library


def keep(target, work, dsc, source, library):
    """Lays out the result in a temporary folder that becomes the target in one step."""
    version = re.search(r"(?m)^Version: (\S+)", dsc.read_text(encoding="utf-8")).group(1)
    new = work / "new"
    (new / "lib" / "pkgconfig").mkdir(parents=True)
    shutil.copy2(library, new / "lib")
    shutil.copytree(source / "include" / "curl", new / "include" / "curl", ignore=shutil.ignore_patterns("Makefile*", ".*"))
    shutil.copy2(source / "debian" / "copyright", new / "copyright")
    text = PKG_CONFIG.format(version=version, upstream=re.split(r"[-+]", version)[0])
    (new / "lib" / "pkgconfig" / "libcurl.pc").write_text(text, encoding="ascii")
    (new / "version").write_text(version + "\n", encoding="ascii")
    new.chmod(0o755)
    try:
        new.rename(target)
    except OSError:
        if not target.exists():  # another build was faster
            raise


def ensure():
    """The folder of the library: include/, lib/ with pkgconfig/, copyright, version."""
    target = cache_folder() / f"curl-{key()}"
    if target.exists():
        return target
    say("building a small libcurl from the source package")
    with tempfile.TemporaryDirectory(dir=cache_folder(), prefix="curl-build-") as name:
        work = Path(name)
        dsc = Apt(work / "apt").source_of("curl", work)
        unpack(dsc, work / "source")
        keep(target, work, dsc, work / "source", compile_in(work, work / "source"))
    return target
