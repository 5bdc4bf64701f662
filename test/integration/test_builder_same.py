"""The same Dockerfiles on the native builder and on Docker's BuildKit: the images have the same configuration and the
same files."""
import io
import json
import os
import re
import tarfile
import unittest
from concurrent.futures import ThreadPoolExecutor

from ripcord_test import Config, only_on
from test_builder import BuildCase, base
from test_images import BUSYBOX, entry, tar

BUILDS_AT_ONCE = 2  # a build waits for its engine about half of the time


# ---- what an image is ----

def merged(archive):
    """(configuration, {path: what it is}) of a `docker save` archive: layers laid over each other."""
    tree = {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as outer:
        image = json.load(outer.extractfile("manifest.json"))[0]
        config = json.load(outer.extractfile(image["Config"]))
        for name in image["Layers"]:
            with tarfile.open(fileobj=io.BytesIO(outer.extractfile(name).read())) as layer:
                lay(tree, layer)
    return config, tree


def lay(tree, layer):
    for info in layer:
        path = info.name.removeprefix("./").strip("/")
        folder, _, name = path.rpartition("/")
        if name == ".wh..wh..opq":
            drop(tree, folder + "/")
        elif name.startswith(".wh."):
            gone = f"{folder}/{name[4:]}".lstrip("/")
            tree.pop(gone, None)
            drop(tree, gone + "/")
        elif path not in ("", "."):
            if not info.isdir():
                drop(tree, path + "/")
            content = layer.extractfile(info).read() if info.isfile() else info.linkname
            tree[path] = tree[info.linkname.removeprefix("./")] if info.islnk() else \
                (info.type if not info.isfile() else b"0", 0o777 if info.issym() else info.mode & 0o7777, info.uid, info.gid, content)


def drop(tree, prefix):
    for path in [p for p in tree if p.startswith(prefix)]:
        del tree[path]


def links(tree):
    """Which paths are one file."""
    files = {}
    for path, what in tree.items():
        files.setdefault(id(what), set()).add(path)
    return {frozenset(paths) for paths in files.values() if len(paths) > 1}


def said(config):
    """What an image's configuration says, without what is the same when it is not said."""
    words = {k: v for k, v in config["config"].items() if v and k != "ArgsEscaped"}
    return words | {k: config[k] for k in ("author", "os", "architecture") if config.get(k)}


def history(config):
    """What was done for the image, without the lines that BuildKit makes up for a base that has none, and without what newer
    BuildKits word in another way."""
    lines = [line["created_by"] for line in config["history"] if line.get("comment") == "buildkit.dockerfile.v0"]
    lines = [line.split()[0] if line.startswith(("EXPOSE", "HEALTHCHECK")) else line for line in lines]
    return [line.split("=")[0] if line.startswith("ARG") else re.sub(r"^RUN \|.*? /bin/sh", "RUN /bin/sh", line) for line in lines]


# ---- the Dockerfiles; B is given as a build argument ----
#
# A pair: what Debian's BuildKit does not know yet, and the same in words that it knows.

# An older BuildKit leaves the places of mounts.
MOUNTS = """FROM base:1 AS other
RUN mkdir -p /o/p && echo staged > /o/p/f
FROM base:1
RUN mkdir -p /full && echo kept > /full/kept
RUN --mount=type=cache,target=/c/a/b --mount=type=tmpfs,target=/t/u --mount=type=bind,from=other,source=/o,target=/bind/o \\
    touch /c/a/b/x /t/u/y && cat /bind/o/p/f > /seen
RUN --mount=type=bind,source=a.txt,target=/files/a.txt --mount=type=bind,target=/ctx,rw cat /files/a.txt /ctx/b.txt > /seen2; touch /ctx/new
RUN --mount=type=cache,target=/full --mount=type=tmpfs,target=/tmp touch /full/x /tmp/y
RUN --mount=type=cache,target=/mixed/c touch /mixed/stays
RUN --mount=type=cache,target=/full,id=private,sharing=private,uid=7,mode=0700 stat -c '%u %a' /full > /owner
"""

SAME = {
    "configuration": """FROM base:1
LABEL a=1 b="two words" base=
ENV X=1 Y="a b"
EXPOSE 80 90-91/udp
VOLUME ["/v", "/w x"]
STOPSIGNAL SIGINT
HEALTHCHECK --interval=5s --retries=2 CMD test -e /x
ENTRYPOINT ["sh", "-c"]
CMD echo $X
USER bob
ONBUILD RUN echo later
SHELL ["/bin/sh", "-ec"]
""",
    "copies": """FROM base:1
COPY . /all
COPY dir/ /d/
COPY dir/sub /file.d/new
COPY --chown=bob --chmod=600 a.txt b.txt /owned/deep/
COPY --chown=5 a.txt /five/
COPY a.txt /etc/passwd2
COPY dir /etc
COPY link /followed
ADD pack.tar /unpacked
""",
    "stages": """ARG WHICH=one
FROM base:1 AS one
RUN mkdir -p /o/p && echo 1 > /o/p/f && chmod 4711 /o/p/f
FROM one AS two
RUN rm -r /o/p && echo 2 > /o/g && ln -s g /o/l
FROM scratch AS bare
COPY --from=one /o /from-one
COPY --from=two --chown=3:4 /o/* /from-two/
COPY --from=base:1 /etc/passwd /passwd
COPY --from=0 /o/p/f /by-number
FROM $WHICH
COPY --from=bare / /bare
RUN mkdir /names && echo n > /names/a && ln /names/a /names/b
FROM $WHICH
COPY --from=3 /names /copied
""",
    "commands": """FROM base:1
WORKDIR /a
WORKDIR b/c
RUN pwd > where; echo $FROM_BASE > env; mkdir new; chmod 700 new; touch new/x
USER bob
WORKDIR /bobs
USER root
RUN rm -r /a/b/c/new /home && mkdir -p /cache/x /ctx /a/b/c/new && touch /a/b/c/new/y
RUN --mount=type=cache,target=/cache/x --mount=type=bind,target=/ctx touch /cache/x/y; cat /ctx/a.txt > /copied
RUN set -e; echo one > /script; \\
    # a comment between lines
    ln /script /hard
RUN ["/bin/sh", "-c", "echo exec > /exec"]
""",
    "onbuild and arguments": """FROM base:1 AS parent
ONBUILD ARG A=default
ONBUILD RUN echo $A > /triggered
FROM parent
ARG B
ARG TARGETARCH
ENV C=${B:-none} D=${B:+some}
RUN echo $B $TARGETARCH > /args
LABEL b=$B
""",
    "globs": """FROM base:1
COPY *.log /logs/
COPY g[12].log a.* /two/
COPY d?r/s* /sub
COPY ["sp ace.txt", "/with space/"]
COPY nothing* a.txt /some/
COPY dir/*/c /one
COPY */passwd /where/
""",
    "owners and modes of copies": """FROM base:1
COPY --chown=bob:staff dir /named
COPY --chown=1000 set.uid /number/
COPY --chown=0:50 closed /group
COPY --chmod=755 dir /opened
COPY --chmod=0600 --chown=7:8 a.txt b.txt /both/
ADD --chown=bob --chmod=640 dir /added
COPY set.uid closed /kept/
""",
    "special bits of copies": ("""FROM base:1
RUN true
COPY --chmod=4711 a.txt /set-uid
COPY --chmod=1777 a.txt /x/sticky
""", """FROM base:1
COPY a.txt /set-uid
COPY a.txt /x/sticky
RUN chmod 4711 /set-uid && chmod 1777 /x/sticky
"""),
    "copies with --link": ("""FROM base:1
RUN mkdir -p /there/x && chmod 700 /there && chown bob /there && touch /there/x/old
COPY --link a.txt /linked/deep/
COPY --link --chown=9:9 dir /linked/dir
COPY --link b.txt /there/x/
COPY --link --chmod=600 a.txt b.txt /there/y/
""", """FROM base:1
RUN mkdir -p /there/x && chmod 700 /there && chown bob /there && touch /there/x/old
COPY a.txt /linked/deep/
COPY --chown=9:9 dir /linked/dir
COPY b.txt /there/x/
COPY --chmod=600 a.txt b.txt /there/y/
"""),
    "copies with --parents and --exclude": ("""FROM base:1
RUN mkdir -p /there/dir && chown bob /there/dir
COPY --parents a.txt ./dir/sub/c closed/in /p/
COPY --parents dir/./s*/c /pivot
COPY --parents --chown=bob dir/sub/*.tmp /there/
COPY --parents --from=base:1 /etc/./pass* /e*/group /img/
COPY --parents nothing/* **/none /made/
COPY --exclude=sub --exclude=*.txt dir /without
COPY --exclude=* --exclude=!sub dir /taken/back/
COPY --exclude=g1.* *.log /logs/
ADD --exclude=*.tar pack.tar a.txt /added/
""", """FROM base:1
RUN mkdir -p /there/dir/sub /made && chown bob /there/dir && chown bob:1001 /there/dir/sub && mkdir -m 700 -p /p/closed && chmod 755 /p
COPY a.txt /p/
COPY dir/sub/c /p/dir/sub/
COPY closed/in /p/closed/
COPY dir/sub/c /pivot/sub/
COPY --chown=bob dir/sub/keep.tmp /there/dir/sub/
COPY --from=base:1 /etc/passwd /img/
COPY --from=base:1 /etc/group /img/etc/
COPY dir/passwd /without/
RUN ln -s nowhere /without/inner
COPY dir/sub /taken/back/sub/
COPY g2.log /logs/
COPY a.txt /added/
"""),
    "files in the Dockerfile": ("""FROM base:1
RUN true
ENV NAME=value
COPY <<one <<"two" /h/
first $NAME ${MISSING:-x} \\$NAME
one
second $NAME
two
COPY --chmod=755 --chown=bob <<-EOF /bin/tabs
	#!/bin/sh
		echo two
	EOF
COPY <<EOF a.txt /mixed/
EOF
ADD <<EOF /added
text
EOF
""", """FROM base:1
ENV NAME=value
RUN mkdir -p /h /mixed && echo 'first value x $NAME' > /h/one && echo 'second $NAME' > /h/two && touch /mixed/EOF && echo text > /added \\
 && chmod 755 /h && (echo '#!/bin/sh'; echo echo two) > /bin/tabs && chmod 755 /bin/tabs && chown bob:1001 /bin/tabs
COPY a.txt /mixed/
"""),
    "what .dockerignore leaves": """FROM base:1
COPY . /all/
COPY ignored /ignored
COPY dir/s** /star/
""",
    "folders onto folders": """FROM base:1
RUN mkdir -p /d/sub /e && echo old > /d/sub/c && echo stays > /d/stays && chmod 700 /d/sub && ln -s /d /l && ln -s /e/file /dangling
COPY dir /d
COPY dir/. /dot
COPY dir/sub/ dir/sub /e/
COPY dir /l
COPY a.txt /l/
COPY a.txt /e
COPY closed /e/closed/
COPY a.txt b.txt /new/
COPY a.txt /new/a.txt
COPY b.txt /new/a.txt
""",
    "links that are copied": """FROM base:1
COPY links /links
COPY links/to-dir /as-folder
COPY links/to-file /as-file
COPY links/to-file links/absolute /both/
""",
    "archives": """FROM base:1
RUN mkdir -p /over/p && echo mine > /over/p/f
ADD pack.tar pack.tgz /over/
ADD pack.tgz /fresh
ADD pack.txz /x/y/
ADD a.txt /plain
COPY pack.tgz /packed/
ADD a.txt pack.tar /mixed/
""",
    "working folders": """FROM base:1
ENV W=/from/env
WORKDIR $W
WORKDIR deeper
RUN pwd > here
RUN mkdir -p /real && ln -s /real /way && mkdir -m 750 /kept && chown bob /kept
WORKDIR /way/in
RUN touch made
WORKDIR /kept
USER bob
WORKDIR /of/bob
WORKDIR ../up/./here/
COPY a.txt ./
COPY a.txt relative/dir/
ADD dir rel
""",
    "where arguments are seen": """ARG GLOBAL=global
ARG BOTH=outer
ARG B=unused
FROM base:1 AS first
RUN echo "[$GLOBAL] [$BOTH] [$B]" > /none
ARG GLOBAL
ARG BOTH=inner
ARG B
RUN echo "[$GLOBAL] [$BOTH] [$B]" > /some
ENV BOTH=env
ARG BOTH=late
RUN echo "[$BOTH]" > /env-wins
ARG LATE=$GLOBAL-$BOTH
ENV KEPT=$LATE
FROM first
RUN echo "[$GLOBAL] [$BOTH] [$B] [$LATE] [$KEPT]" > /next
ARG TARGETPLATFORM
ARG BUILDARCH
LABEL p=$TARGETPLATFORM a=${BUILDARCH}
""",
    "variables with operators": """FROM base:1
ENV FULL=one.two.three EMPTY= HOME_OF=/a/b
ENV A=${FULL:-d} B1=${EMPTY:-d} E=${FULL:+s} F=${EMPTY:+s} H=${MISSING:+s}
ENV N=${MISSING:-${FULL}} Q='$FULL' DQ="$FULL x" BS=\\$FULL U=$MISSING-x
ENV FULL=changed SAME=$FULL
ENV old style with $FULL
LABEL "quoted key"="$FULL" multi="a\\
b" esc="a\\"b"
EXPOSE ${MISSING:-8080}/tcp
WORKDIR $HOME_OF/$MISSING
USER ${MISSING:-bob}
STOPSIGNAL ${MISSING:-9}
VOLUME $HOME_OF/v ${FULL}
""",
    "newer operators": ("""FROM base:1
ENV FULL=one.two.three EMPTY=
ENV C=${EMPTY-d} D=${MISSING-d} G=${EMPTY+s} H=${MISSING+s}
ENV P=${FULL#*.} PP=${FULL##*.} S=${FULL%.*} SS=${FULL%%.*} R=${FULL/o/0} RR=${FULL//o/0}
RUN echo "$P $RR" > /out
""", """FROM base:1
ENV FULL=one.two.three EMPTY=
ENV C= D=d G=s H=
ENV P=two.three PP=three S=one.two SS=one R=0ne.two.three RR=0ne.tw0.three
RUN echo "$P $RR" > /out
"""),
    "shells": """# escape=`
FROM base:1
RUN echo a `
  b > /joined
SHELL ["/bin/sh", "-exc"]
RUN echo $0 $- > /flags
CMD echo hello $NAME
ENTRYPOINT exec sh
FROM base:1
SHELL ["/bin/busybox", "sh", "-c"]
RUN echo "$FROM_BASE" > /by-busybox
CMD ["a", "b"]
ENTRYPOINT ["e"]
""",
    "users": """FROM base:1
RUN mkdir -m 777 /o
USER bob
RUN id > /o/bob; touch /o/b; mkdir /o/bd; echo $HOME > /o/home
USER 1234
RUN id -u > /o/number; id -g >> /o/number; touch /o/n
USER 1000:50
RUN touch /o/with-group
COPY a.txt /o/copied
USER 0
RUN touch /o/root
USER bob:staff
""",
    "volumes": """FROM base:1
RUN mkdir -p /data && echo before > /data/b
VOLUME /data /other
RUN echo after > /data/a && mkdir -p /other && echo x > /other/x
VOLUME /data
COPY a.txt /data/
""",
    "triggers": """FROM base:1 AS trigger
ONBUILD ENV FROM_TRIGGER=1
ONBUILD WORKDIR /triggered
ONBUILD COPY a.txt ./
ONBUILD RUN echo $FROM_TRIGGER > out
ONBUILD LABEL by=trigger
FROM trigger AS middle
RUN echo middle > more
FROM middle
ONBUILD USER bob
""",
    "health": """FROM base:1 AS checked
HEALTHCHECK --interval=1m30s --timeout=3s --start-period=10s --retries=5 CMD ["test", "-e", "/x"]
FROM checked AS none
HEALTHCHECK NONE
FROM none
MAINTAINER somebody <s@example.com>
HEALTHCHECK --timeout=500ms CMD test -e /y || exit 1
CMD ["x"]
ENTRYPOINT ["y"]
""",
    "scripts in the Dockerfile": ("""FROM base:1
RUN <<EOF
set -e
echo one \\
  two > /joined
EOF
RUN <<'EOF'
echo $FROM_BASE > /quoted
EOF
RUN <<-EOF
	echo tab > /tab
	EOF
RUN <<ONE cat > /one && cat <<TWO > /two
first
ONE
second
TWO
RUN <<EOF
#!/bin/cat
shown
EOF
RUN cat <<EOF | sed s/x/y/ > /piped
x $FROM_BASE
EOF
""", """FROM base:1
RUN echo one two > /joined; echo yes > /quoted; echo tab > /tab; echo first > /one; echo second > /two; echo y yes > /piped
"""),
    "mounts leave nothing": (MOUNTS, MOUNTS + "RUN rm -r /c /t /bind /files /ctx /mixed/c\n"),
    "what is taken away": """FROM base:1
RUN mkdir -p /d/e /opaque/x /swap /moved && echo 1 > /d/e/f && echo 2 > /d/g && echo 3 > /opaque/x/y && echo 4 > /swap/s && echo 5 > /file && echo 6 > /moved/m
RUN rm /d/g && rm -r /d/e && echo now a file > /d/e
RUN rm -r /opaque && mkdir /opaque && echo new > /opaque/z
RUN rm -r /swap && ln -s /d /swap && rm /file && mkdir /file && touch /file/in
RUN mv /moved /other && rm -r /home
RUN rm /opaque/z && rm /bin/wget && echo again > /d/g
COPY dir /opaque
""",
    "links and special bits": """FROM base:1
RUN mkdir /l && echo x > /l/a && ln /l/a /l/b && ln -s a /l/s && ln /bin/busybox /l/box
RUN ln /l/a /l/c && chmod 600 /l/b
RUN cp /bin/busybox /l/setuid && chmod 4755 /l/setuid && cp /l/a /l/setgid && chmod 2755 /l/setgid
RUN mkdir -m 1777 /l/sticky && mkdir /l/sgid && chmod 2775 /l/sgid && chown bob:staff /l/sgid && touch /l/sgid/in && mkdir /l/sgid/sub
RUN umask 077; touch /l/masked; mkdir /l/masked.d
RUN touch '/l/with space' /l/ünï && ln -s 'with space' '/l/an other'
RUN chown bob /l/a && mv /l/sticky /l/glue && cp -a /l /m
""",
    "nothing but files": """FROM scratch
COPY a.txt /
COPY dir /dir/
WORKDIR /w/x
ENV PATH=/none
USER 12:13
WORKDIR /w/y
COPY b.txt .
CMD ["/nothing"]
""",
}


@only_on("docker")
@unittest.skipUnless(os.path.exists(BUSYBOX), "busybox is not installed")
class SameAsDocker(BuildCase):
    engine = ("--engine", "native")
    maxDiff = 4000

    def prepare(self):
        result = self.root.run("image", "import", "-", stdin=base())
        self.assertEqual(result.code, 0, result)
        archive = self.root.path / "base.tar"
        archive.write_bytes(base())
        Config.backend.load(archive)
        self.addCleanup(Config.backend.api, "DELETE", "/images/base:1?force=1")

    def link(self, name, target):
        path = self.context / name
        path.parent.mkdir(exist_ok=True)
        path.symlink_to(target)

    def pack(self, name, mode):
        with tarfile.open(self.context / name, mode) as archive:
            for info, data in (entry("p", "d", mode=0o750, uid=9), entry("p/f", data=b"x", uid=8, mode=0o4755),
                               entry("way/deep", data=b"d", gid=3), entry("p/l", "l", "f"), entry("p/h", "h", "p/f", uid=8, mode=0o4755),
                               entry("./dot/", "d", mode=0o1777), entry("no/parents", data=b"n")):
                archive.addfile(info, io.BytesIO(data))

    def context_files(self):
        for name, text, mode in (("a.txt", "a", 0o644), ("b.txt", "b", 0o640), ("dir/sub/c", "c", 0o755), ("dir/passwd", "new", 0o644),
                                 ("g1.log", "1", 0o644), ("g2.log", "2", 0o600), ("gx.log", "x", 0o644), ("sp ace.txt", "s", 0o644),
                                 ("set.uid", "u", 0o6755), ("closed/in", "i", 0o400), ("ignored/keep.txt", "k", 0o644),
                                 ("ignored/x", "no", 0o644), ("ignored/deep/y", "no", 0o644), ("ignored/deep/keep.txt", "k", 0o644),
                                 ("dir/x.tmp", "no", 0o644), ("dir/sub/y.tmp", "no", 0o644), ("dir/sub/keep.tmp", "k", 0o644)):
            self.file(name, text, mode)
        (self.context / "closed").chmod(0o700)
        self.file(".dockerignore", "# what is not for images\nb.txt.not\nignored/**\n!ignored/**/keep.txt\n**/*.tmp\n!dir/sub/keep.tmp\n\n/gx.log/\n")
        self.link("link", "dir")
        self.link("dir/inner", "nowhere")
        for name, target in (("to-dir", "../dir"), ("to-file", "../a.txt"), ("absolute", "/a.txt"), ("dangling", "nowhere")):
            self.link(f"links/{name}", target)
        (self.context / "pack.tar").write_bytes(tar(entry("p", "d", mode=0o711, uid=9), entry("p/f", data=b"x", uid=8, mode=0o4755)))
        self.pack("pack.tgz", "w:gz")
        self.pack("pack.txz", "w:xz")
        for i, text in enumerate(SAME.values()):
            pair = text if isinstance(text, tuple) else (text, text)
            for engine, one in zip(("native", "docker"), pair):
                self.file(f"{engine}.{i}", one)

    def one(self, engine, i):
        """The result of the engine, or its error."""
        tag = f"same{i}-{os.getpid()}:1"
        result = self.root.run("image", "build", "--engine", engine, "--build-arg", "B=given", "--network", "none", "--progress", "plain",
                               "-f", self.context / f"{engine}.{i}", "-t", tag, self.context)
        if result.code != 0:
            return f"{engine}: {result.err.decode()}"
        if engine == "native":
            return merged(self.root.ok("image", "export", "--format", "docker", tag).out)
        self.addCleanup(Config.backend.api, "DELETE", f"/images/{tag}?force=1")
        return merged(Config.backend.api("GET", f"/images/{tag}/get").body)

    def test_images_are_the_same(self):
        self.assertGreaterEqual(len(SAME), 22)
        self.context_files()
        with ThreadPoolExecutor(BUILDS_AT_ONCE) as pool:
            made = [[pool.submit(self.one, engine, i) for engine in ("native", "docker")] for i in range(len(SAME))]
            for name, (mine, theirs) in zip(SAME, made):
                with self.subTest(name):
                    self.compare(mine.result(), theirs.result(), isinstance(SAME[name], str))

    def compare(self, mine, theirs, same_text):
        for one in (mine, theirs):
            if isinstance(one, str):
                self.fail(one)
        self.assertEqual(said(mine[0]), said(theirs[0]))
        if same_text:
            self.assertEqual(history(mine[0]), history(theirs[0]))
        different = {p: (mine[1].get(p), theirs[1].get(p)) for p in mine[1].keys() | theirs[1].keys()
                     if mine[1].get(p) != theirs[1].get(p)}
        self.assertEqual(different, {}, "(mine, theirs)")
        self.assertEqual(links(mine[1]), links(theirs[1]))
