"""An image for test engines, made of packages that this machine has: nothing is downloaded.

Nothing can be pulled where the tests run, and a debootstrap costs most of a minute. The native engine's image
`host` shows a sandbox the machine's own programs; so does this one, so that a test meets the same programs on
every engine. Files of a few packages and of what they depend on become one layer, in the form of `docker save`,
kept in the cache folder until one of the packages changes.
"""
import hashlib
import io
import json
import os
import platform
import subprocess
import tarfile
from pathlib import Path

NAME = "ripcord/default:latest"
PACKAGES = ("base-files bash coreutils dash findutils grep iproute2 libc-bin libpython3-stdlib mawk procps python3-minimal "
            "sed tar util-linux").split()
# Needed by maintainers' scripts only.
LEFT_OUT = {"debconf", "debconf-2.0", "dpkg", "init-system-helpers", "perl-base", "sensible-utils"}
USELESS = ("/usr/share/doc/", "/usr/share/man/", "/usr/share/locale/", "/usr/share/lintian/", "/usr/share/info/")
LINKS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
EXTRA = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/usr/bin/awk", "/etc/alternatives/awk")
# (path, mode, owner)
FOLDERS = (("etc", 0o755, 0), ("proc", 0o755, 0), ("sys", 0o755, 0), ("dev", 0o755, 0), ("run", 0o755, 0),
           ("tmp", 0o1777, 0), ("var", 0o755, 0), ("var/tmp", 0o1777, 0), ("root", 0o700, 0), ("home", 0o755, 0),
           ("home/agent", 0o755, 1000), ("home/agent/.config", 0o755, 1000), ("home/agent/.config/pnpm", 0o755, 1000),
           ("cache", 0o755, 1000))
TEXTS = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/bash\nagent:x:1000:1000::/home/agent:/bin/bash\n"
                  "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    "etc/group": "root:x:0:\ntty:x:5:\nagent:x:1000:\nnogroup:x:65534:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    "home/agent/.config/pnpm/rc": (Path(__file__).parents[2] / "images" / "default" / "pnpmrc").read_text(encoding="utf-8"),
}
ENV = ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"]


def cache_folder():
    """Where results are kept between runs."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    path = base / "ripcord"
    path.mkdir(parents=True, exist_ok=True)
    return path


def installed():
    """name -> (version, names it depends on) of every installed package, and of every name that one provides."""
    form = "${Package}\t${db:Status-Status}\t${Version}\t${Pre-Depends}, ${Depends}\t${Provides}\n"
    text = subprocess.run(["dpkg-query", "-W", "-f", form], check=True, capture_output=True, text=True).stdout
    names = lambda field: [[w.split()[0].split(":")[0] for w in part.split("|") if w.split()]
                           for part in field.split(",") if part.strip()]
    found = {}
    for line in text.splitlines():
        name, state, version, depends, provides = line.split("\t")
        if state == "installed":
            found[name] = (name, version, names(depends))
            for (virtual, *_) in names(provides):
                found.setdefault(virtual, found[name])
    return found


def closure(packages):
    """{package: version} of these and of all that they need."""
    known, chosen, ahead = installed(), {}, list(packages)
    while ahead:
        wanted = ahead.pop()
        if wanted in LEFT_OUT or wanted not in known:
            continue
        name, version, depends = known[wanted]
        if name not in chosen and name not in LEFT_OUT:
            chosen[name] = version
            ahead += [next((n for n in names if n in known), "") for names in depends if names]
    return chosen


def package_files(packages):
    """Paths with links in folders resolved: /bin/sh is usr/bin/sh on a merged system."""
    names = sorted(packages)
    listed = subprocess.run(["dpkg-query", "-L", *names], check=True, capture_output=True, text=True).stdout
    paths = {p for p in listed.splitlines() if p.startswith("/") and not p.startswith(USELESS)} | set(EXTRA)
    real = {os.path.join(os.path.realpath(os.path.dirname(p)), os.path.basename(p)) for p in paths if p != "/."}
    return sorted(p for p in real if os.path.lexists(p) and p not in LINKS)


def add_text(tar, name, text):
    info = tarfile.TarInfo(name)
    data = text if isinstance(text, bytes) else text.encode()
    info.size, info.mode = len(data), 0o644
    tar.addfile(info, io.BytesIO(data))


def write_layer(path, packages):
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        for link in LINKS:
            if os.path.islink(link):
                tar.add(link, arcname=link[1:])
        made = {name for name, _, _ in FOLDERS} | set(TEXTS)
        for file in package_files(packages):
            if file[1:] not in made:
                tar.add(file, arcname=file[1:], recursive=False)
        for name, mode, owner in FOLDERS:
            info = tarfile.TarInfo(name)
            info.type, info.mode, info.uid, info.gid = tarfile.DIRTYPE, mode, owner, owner
            tar.addfile(info)
        for name, text in TEXTS.items():
            add_text(tar, name, text)


def digest(path):
    with open(path, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def image_config(layer_digest):
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    return {"architecture": machine, "os": "linux", "created": "2020-01-01T00:00:00Z",
            "config": {"Env": ENV, "Cmd": ["/bin/sh"]}, "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer_digest}"]},
            "history": [{"created": "2020-01-01T00:00:00Z", "created_by": "host_image.py"}]}


def write_archive(target, layer, name):
    """What `docker load` takes: one layer, its configuration and its name."""
    layer_digest = digest(layer)
    config = json.dumps(image_config(layer_digest)).encode()
    config_name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = [{"Config": config_name, "RepoTags": [name], "Layers": [f"{layer_digest}/layer.tar"]}]
    with tarfile.open(target, "w") as tar:
        add_text(tar, config_name, config)
        tar.add(layer, arcname=f"{layer_digest}/layer.tar")
        add_text(tar, "manifest.json", json.dumps(manifest))


def archive(kind="test", name=NAME, packages=PACKAGES):
    """The path of an image's archive; made when none of this very content is kept."""
    packages = closure(packages)
    recipe = json.dumps([packages, FOLDERS, TEXTS, ENV, EXTRA, name], sort_keys=True) + Path(__file__).read_text("utf-8")
    target = cache_folder() / f"{kind}-image-{hashlib.sha256(recipe.encode()).hexdigest()[:16]}.tar"
    if not target.exists():
        for old in target.parent.glob(f"{kind}-image-*.tar"):
            old.unlink(missing_ok=True)
        layer, new = target.with_suffix(f".layer-{os.getpid()}"), target.with_suffix(f".new-{os.getpid()}")
        write_layer(layer, packages)
        write_archive(new, layer, name)
        layer.unlink()
        new.rename(target)
    return target
