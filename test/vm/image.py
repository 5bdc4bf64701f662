"""Disk images for the virtual machines: Debian with systemd, made of packages and kept in the cache folder.

An image is a folder with the disk, its kernel and initrd, and the key that may log in. Its name holds a hash of everything
that it is made from, so a changed recipe makes a new image and an old one is never taken for it. Machines only read images
and write into a copy of their own.
"""
import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "integration"))

import host_image  # noqa: E402  (found through the line above)

PACKAGES = """
    linux-image-cloud-amd64 systemd systemd-sysv libpam-systemd dbus dbus-user-session polkitd sudo openssh-server uidmap
    iproute2 iptables nftables procps psmisc util-linux kmod e2fsprogs apparmor strace python3 python3-pip python3-yaml
    ca-certificates curl git gcc libc6-dev busybox-static zstd xz-utils
    docker.io docker-cli podman buildah crun netavark fuse-overlayfs slirp4netns
    libjansson4 libsqlite3-0 libyaml-0-2 libuv1 libcurl4 libssl3 libarchive13
""".split()
# Debian 13 has other names for libraries whose time_t has grown, and a package of its own for Docker's command line.
RENAMED = {
    "bookworm": {"docker-cli": ""},
    "trixie": {"libuv1": "libuv1t64", "libcurl4": "libcurl4t64", "libssl3": "libssl3t64", "libarchive13": "libarchive13t64"},
}
SUITES = tuple(RENAMED)
SETUP = HERE / "setup.sh"
DISK_SIZE = "10G"
LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/info/*", "/usr/share/locale/*")
MAKE_LIMIT = 1800
UNUSED_DAYS = 30


def say(text):
    print(f"vm: {text}", file=sys.stderr, flush=True)


def folder():
    path = host_image.cache_folder() / "vm"
    path.mkdir(exist_ok=True)
    return path


def packages(suite):
    return [name for name in (RENAMED[suite].get(name, name) for name in PACKAGES) if name]


def image_path(suite):
    inputs = json.dumps([suite, packages(suite), SETUP.read_text(encoding="utf-8"), DISK_SIZE, LEFT_OUT])
    return folder() / f"image-{suite}-{hashlib.sha256(inputs.encode()).hexdigest()[:16]}"


@contextlib.contextmanager
def locked(path):
    """Another run that makes the same image waits here, and then finds it."""
    with open(path, "w", encoding="ascii") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        yield


def make(suite, again=False):
    """Returns the folder of the image; makes the image if the cache does not have it."""
    image = image_path(suite)
    with locked(folder() / f"{suite}.lock"):
        if again or not image.exists():
            build(suite, image)
        os.utime(image)
    remove_unused()
    return image


def build(suite, image):
    if os.geteuid() != 0:
        raise SystemExit("vm: cannot make an image: only root may create its files (use sudo)")
    say(f"making an image of Debian {suite}, about two minutes")
    since = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=f"{image.name}-", dir=folder()) as work:
        tree, new = Path(work) / "tree", Path(work) / "image"
        new.mkdir()
        debootstrap(suite, tree)
        make_key(tree, new)
        for name, found in (("kernel", "vmlinuz-*"), ("initrd", "initrd.img-*")):
            shutil.copy(next((tree / "boot").glob(found)), new / name)
        with open(new / "disk", "wb") as disk:
            subprocess.run(["truncate", "-s", DISK_SIZE, disk.name], check=True)
        subprocess.run(["mke2fs", "-q", "-F", "-t", "ext4", "-E", "lazy_itable_init=1", "-d", tree, new / "disk"], check=True)
        if image.exists():
            image.rename(Path(work) / "old")
        new.rename(image)
    say(f"made {image} in {time.monotonic() - since:.0f} s")


def debootstrap(suite, tree):
    options = [f"--dpkgopt=path-exclude={path}" for path in LEFT_OUT]
    done = subprocess.run(["mmdebstrap", "--quiet", "--mode=root", "--variant=minbase", "--format=directory",
                           "--aptopt=APT::Install-Recommends false", "--dpkgopt=force-unsafe-io", *options,
                           f"--include={','.join(packages(suite))}", f"--customize-hook={SETUP}", suite, tree],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=MAKE_LIMIT, check=False)
    if done.returncode != 0:
        raise SystemExit(f"vm: mmdebstrap {suite} failed:\n{done.stdout.decode(errors='replace')[-4000:]}")


def make_key(tree, new):
    """A key pair of this image's own; all its users accept it."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "ripcord test machine", "-f", new / "key"], check=True)
    public = (new / "key.pub").read_text(encoding="ascii")
    for home, uid in (("root", 0), ("home/agent", 1000), ("home/plain", 1001)):
        ssh = tree / home / ".ssh"
        ssh.mkdir(mode=0o700, exist_ok=True)
        (ssh / "authorized_keys").write_text(public, encoding="ascii")
        for path in (ssh, ssh / "authorized_keys"):
            os.chown(path, uid, uid)


def remove_unused():
    """Removes images that nobody has used for long. A machine that runs keeps its open files."""
    for image in folder().glob("image-*"):
        if time.time() - image.stat().st_mtime > UNUSED_DAYS * 86400:
            say(f"removing {image}, unused for {UNUSED_DAYS} days")
            shutil.rmtree(image)
