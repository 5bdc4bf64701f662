"""The archive with static programs: ripcord-VERSION-linux-x86_64.tar.xz, and its bill of materials beside it."""
import io
import lzma
import os
import platform
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

from common import HERE, say

import sbom
import slim_curl

BUILD = HERE / "build-dist"
PREFIX = "/usr/local"  # packaging/tarball/install replaces it in units
LOCALE = Path("/usr/lib/locale/C.utf8/LC_CTYPE")
COMMON_LICENCES = Path("/usr/share/common-licenses")
PACKAGING = HERE / "packaging" / "tarball"


def configure(release, curl):
    """A new build folder when the options change, else the same one."""
    arguments = ["-Dstatic=true", "--buildtype=release", "--strip", f"--prefix={PREFIX}", "-Dwerror=false",
                 f"-Dc_args=-ffile-prefix-map={HERE}=.", "-Dc_link_args=-Wl,-Map=%.map", f"-Dpkg_config_path={curl}/lib/pkgconfig"]
    note = BUILD / ".dist-options"
    if note.exists() and note.read_text(encoding="utf-8") == repr(arguments):
        return
    shutil.rmtree(BUILD, ignore_errors=True)
    run(["meson", "setup", BUILD, HERE, *arguments], release)
    note.write_text(repr(arguments), encoding="utf-8")


def run(argv, release, **more):
    done = subprocess.run(argv, env={**release.environment(), **more}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"dist: {' '.join(map(str, argv[:2]))} failed:\n{done.stdout[-8000:]}")


def compile_into(stage, release, curl):
    say("compiling the static programs")
    configure(release, curl)
    run(["ninja", "-C", BUILD], release)
    run(["meson", "install", "-C", BUILD, "--no-rebuild"], release, DESTDIR=str(stage))


def check_static(path):
    """A program that needs a library of the machine would fail on another one, where no test of ours runs."""
    headers = subprocess.run(["readelf", "-lWd", path], check=True, capture_output=True, text=True).stdout
    if re.search(r"INTERP|\(NEEDED\)", headers):
        raise SystemExit(f"dist: '{path.name}' is not static")


def programs_of(tree):
    """Name in the archive -> path, of all programs."""
    found = {str(p.relative_to(tree)): p for folder in ("bin", "libexec/ripcord") for p in sorted((tree / folder).iterdir()) if p.is_file()}
    for path in found.values():
        check_static(path)
    return found


def add_locale(tree):
    target = tree / "libexec" / "ripcord" / "locale" / "C.utf8"
    target.mkdir(parents=True)
    shutil.copyfile(LOCALE, target / "LC_CTYPE")
    return "libexec/ripcord/locale/C.utf8/LC_CTYPE"


def add_licences(tree, libraries):
    """A text for each library, and those that the texts refer to."""
    place = tree / "licences"
    (place / "common-licenses").mkdir(parents=True)
    shutil.copyfile(PACKAGING / "licences.txt", place / "README")
    for library in libraries:
        text = library.copyright_file.read_text(encoding="utf-8", errors="replace")
        (place / f"{library.name}.txt").write_text(text, encoding="utf-8")
        for name in re.findall(r"/usr/share/common-licenses/([A-Za-z0-9.+-]*[A-Za-z0-9])", text):
            shutil.copyfile(COMMON_LICENCES / name, place / "common-licenses" / name)


def add_documents(tree, release):
    shutil.copy2(PACKAGING / "install", tree / "install")
    shutil.copyfile(HERE / "LICENSE", tree / "LICENSE")
    text = (PACKAGING / "README").read_text(encoding="utf-8").replace("@VERSION@", release.version)
    (tree / "README").write_text(text, encoding="utf-8")
    documents = tree / "share" / "doc" / "ripcord"
    documents.mkdir(parents=True)
    shutil.copyfile(HERE / "docs" / "install.md", documents / "install.md")


def add_bill(tree, release, curl):
    """Writes the bill of materials. Returns all libraries."""
    programs = programs_of(tree)
    maps = {name: BUILD / "src" / "bin" / f"{path.name}.map" for name, path in programs.items()}
    libraries = sbom.libraries_of(maps, curl)
    locale = add_locale(tree)
    libraries[locale] = [sbom.Finder(curl).library_of(LOCALE)]
    text = sbom.document(release.version, release.epoch, {**programs, locale: tree / locale}, libraries, {locale})
    (tree / "sbom.spdx.json").write_text(text, encoding="utf-8")
    return {l.name: l for each in libraries.values() for l in each}.values()


def member(tree, path, top, epoch):
    info = tarfile.TarInfo(str(Path(top) / path.relative_to(tree)))
    info.mtime, info.uname, info.gname = epoch, "root", "root"
    if path.is_dir():
        info.type, info.mode = tarfile.DIRTYPE, 0o755
        return info, None
    data = path.read_bytes()
    info.size, info.mode = len(data), 0o755 if os.access(path, os.X_OK) else 0o644
    return info, io.BytesIO(data)


def pack(tree, top, target, epoch):
    """A tar that depends on names and contents alone, compressed by one thread."""
    paths = [tree, *sorted(tree.rglob("*"))]
    if any(p.is_symlink() for p in paths):
        raise SystemExit("dist: the tree has a symbolic link, which the install script does not expect")
    with lzma.open(target, "wb", preset=9, check=lzma.CHECK_CRC64) as out, tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for path in paths:
            tar.addfile(*member(tree, path, top, epoch))


def tree_of(release, work):
    """Builds the whole tree in the folder `work`, as it is in the archive."""
    curl = slim_curl.ensure()
    stage, tree = work / "stage", work / "tree"
    compile_into(stage, release, curl)
    shutil.move(stage / PREFIX.lstrip("/"), tree)
    left = [p for p in stage.rglob("*") if not p.is_dir()]
    if left:
        raise SystemExit(f"dist: installed outside of the prefix: {left}")
    add_documents(tree, release)
    add_licences(tree, add_bill(tree, release, curl))
    return tree


def built_tree(release):
    """The tree of this run; it is built once."""
    work = BUILD.with_name("build-dist-tree")
    if release.tree is None:
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        release.tree = tree_of(release, work)
    return release.tree


def make(release):
    if platform.machine() != "x86_64":
        raise SystemExit("dist: the tarball is made on x86_64 only")
    name = f"ripcord-{release.version}-linux-x86_64"
    tree = built_tree(release)
    bill = release.out / f"{name}.spdx.json"
    shutil.copyfile(tree / "sbom.spdx.json", bill)
    archive = release.out / f"{name}.tar.xz"
    say("packing the archive")
    pack(tree, name, archive, release.epoch)
    return [archive, bill]
