"""Operations on files by JSON: what they answer, in which order, in pages, and that links and odd names do no harm."""
import base64
import json
import threading

from ripcord_test import needs
from test_file_http import HOME, NATIVE, FileHttpCase


def paths(doc):
    return [e["path"].removeprefix(HOME) for e in doc["entries"]]


class TestStat(FileHttpCase):
    def test_by_curl(self):
        self.shell("a", "echo hello > f; chmod 640 f; touch -d @1000000000.5 f")
        doc = json.loads(self.curl("-H", "Content-Type: application/json", "-d", json.dumps({"path": HOME + "f"}),
                                   "http://x/v1/sandboxes/a/files/stat"))
        etag = doc.pop("etag")
        self.assertEqual(doc, {"path": HOME + "f", "type": "file", "size": 6, "mode": "0640", "uid": 1000, "gid": 1000, "links": 1,
                               "modified": "2001-09-09T01:46:40.500Z"})
        self.assertEqual(self.read("f").headers["etag"], etag)

    def test_kinds(self):
        self.shell("a", "mkdir d; mkfifo p; ln -s d l; ln -s none dangling")
        self.assertEqual([self.done("stat", path=p)["type"] for p in ("d", "p", "l", "dangling")], ["folder", "other", "link", "link"])
        self.assertEqual(self.done("stat", path="l")["target"], "d")
        self.assertEqual(self.done("stat", path="l", follow=True)["type"], "folder")
        self.assert_refused(self.op("stat", path="dangling", follow=True), 404, "not_found", "dangling")
        self.assert_refused(self.op("stat", path="/root/x"), 403, "denied", "/root/x") if NATIVE else None

    def test_bad_requests(self):
        self.shell("a", "echo x > f")
        for name, body, words in (("stat", {}, "'path' is missing"), ("stat", {"path": "x"}, "absolute"), ("stat", {"path": 7}, "string"),
                                  ("stat", {"path": "/", "folow": True}, "'follow'"), ("stat", {"path": "/" + "x" * 4095}, "4095"),
                                  ("stat", {"path": "/a\0b"}, "NUL"), ("stat", {"path": "/", "path_base64": "Lw=="}, "only one"),
                                  ("stat", {"path_base64": "%"}, "base64"), ("stat", {"path": "/", "follow": "yes"}, "true or false"),
                                  ("list", {"path": "/", "limit": 0}, "between 1 and 10000"), ("list", {"path": "/", "depth": 65}, "64"),
                                  ("list", {"path": "/", "after": "%%"}, "base64"), ("chmod", {"path": "/", "mode": "4755"}, "mode"),
                                  ("chmod", {"path": "/", "mode": 755}, "octal"), ("chmod", {"path": HOME + "f"}, "'mode'"),
                                  ("find", {"path": "/", "type": "dir"}, "folder"), ("stat", {"path": "/", "user": "No Body"}, "user"),
                                  ("move", {"path": "/x"}, "'to' is missing"), ("mkdir", {"path": "/tmp/x", "owner": ""}, "owner")):
            reply = self.root.http("POST", f"/v1/sandboxes/a/files/{name}", body)
            self.assert_refused(reply, 400, "invalid", words)
        self.assert_refused(self.root.http("POST", "/v1/sandboxes/a/files/nope", {}), 404, "not_found", "route")
        self.assertEqual(self.root.http("GET", "/v1/sandboxes/a/files/stat").headers["allow"], "POST")
        self.assert_refused(self.root.http("POST", "/v1/sandboxes/none/files/stat", {"path": "/"}), 404, "not_found", "none")


class TestList(FileHttpCase):
    def setUp(self):
        super().setUp()
        self.shell("a", "mkdir -p t/b/c t/b2; touch t/a t/b/x t/b/c/deep t/b2/y t/z; ln -s / t/loop; ln -s b t/bl")

    def test_order_and_depth(self):
        self.assertEqual(paths(self.done("list", path="t")), ["t/a", "t/b", "t/b2", "t/bl", "t/loop", "t/z"])
        whole = ["t/a", "t/b", "t/b/c", "t/b/c/deep", "t/b/x", "t/b2", "t/b2/y", "t/bl", "t/loop", "t/z"]
        self.assertEqual(paths(self.done("list", path="t", depth=64)), whole)
        self.assertEqual(paths(self.done("list", path="t/", depth=2)), [p for p in whole if p != "t/b/c/deep"])
        self.assertEqual(paths(self.done("list", path="t/bl")), ["t/bl/c", "t/bl/x"])  # the path itself may be a link
        self.assertEqual(self.done("list", path="t/b/c")["entries"][0]["type"], "file")
        self.assert_refused(self.op("list", path="t/a"), 409, "conflict", "t/a")
        self.assert_refused(self.op("list", path="none"), 404, "not_found", "none")

    def test_pages(self):
        whole = paths(self.done("list", path="t", depth=64))
        for limit in (1, 2, 3, 9, 10):
            found, after, pages = [], {}, 0
            while True:
                doc = self.done("list", path="t", depth=64, limit=limit, **after)
                found += paths(doc)
                pages += 1
                if "after" not in doc:
                    break
                self.assertEqual(len(doc["entries"]), limit)
                after = {"after": doc["after"]}
            self.assertEqual(found, whole, limit)
            self.assertEqual(pages, len(whole) // limit + 1)

    def test_a_cursor_outlives_its_entry(self):
        doc = self.done("list", path="t", depth=64, limit=4)
        self.assertEqual(paths(doc)[-1], "t/b/c/deep")
        self.shell("a", "rm -r t/b/c; touch t/b/d")
        self.assertEqual(paths(self.done("list", path="t", depth=64, after=doc["after"]))[:2], ["t/b/d", "t/b/x"])

    def test_many_names_in_pages(self):
        """More than one pass of the folder keeps; sorted by bytes all the same."""
        self.shell("a", "mkdir many; cd many; seq 1 17000 | xargs touch")
        found, after = [], {}
        while True:
            doc = self.done("list", path="many", limit=10000, **after)
            found += paths(doc)
            if "after" not in doc:
                break
            after = {"after": doc["after"]}
        self.assertEqual(found, sorted(f"many/{i}" for i in range(1, 17001)))

    def test_names_that_are_not_text(self):
        self.shell("a", r"""mkdir odd; cd odd; touch "$(printf 'b\377')" "$(printf 'a\nb')"; ln -s "$(printf '\376')" l""")
        entries = self.done("list", path="odd")["entries"]
        self.assertEqual(entries[0]["path"], HOME + "odd/a\nb")
        self.assertEqual(base64.b64decode(entries[1]["path_base64"]), HOME.encode() + b"odd/b\xff")
        self.assertNotIn("path", entries[1])
        self.assertEqual(base64.b64decode(entries[2]["target_base64"]), b"\xfe")
        reply = self.root.http("POST", "/v1/sandboxes/a/files/remove", {"path_base64": entries[1]["path_base64"]})
        self.assertEqual(reply.json(), {"removed": 1})
        self.assertEqual(len(self.done("list", path="odd")["entries"]), 2)

    def test_folders_that_cannot_be_read_are_counted(self):
        self.shell("a", "chmod 0 t/b")
        doc = self.done("list", path="t", depth=64)
        self.assertEqual((doc["skipped"], "t/b" in paths(doc), "t/b/x" in paths(doc)), (1, True, False))
        self.shell("a", "chmod 755 t/b")


class TestFind(FileHttpCase):
    def test_globs(self):
        self.shell("a", "mkdir -p t/src/lib t/.git; touch t/main.c t/src/a.c t/src/lib/b.c t/src/lib/b.h t/.git/x.c 't/[q].c'; ln -s / t/root")
        for glob, wanted in (("*.c", [".git/x.c", "[q].c", "main.c", "src/a.c", "src/lib/b.c"]), ("src/*.c", ["src/a.c"]),
                             ("src/**/*.c", ["src/a.c", "src/lib/b.c"]), ("**/lib/*", ["src/lib/b.c", "src/lib/b.h"]),
                             ("[!a-l[]*.c", [".git/x.c", "main.c"]), (r"\[q\].c", ["[q].c"]), ("?.h", ["src/lib/b.h"]), ("none", []),
                             ("**", [".git", ".git/x.c", "[q].c", "main.c", "root", "src", "src/a.c", "src/lib", "src/lib/b.c", "src/lib/b.h"]),
                             ("src/**", ["src/a.c", "src/lib", "src/lib/b.c", "src/lib/b.h"])):
            found = self.done("find", path="t", glob=glob)
            self.assertEqual([p.removeprefix("t/") for p in paths(found)], wanted, glob)
        self.assertEqual(paths(self.done("find", path="t", type="folder")), ["t/.git", "t/src", "t/src/lib"])
        self.assertEqual(paths(self.done("find", path="t", type="link")), ["t/root"])
        self.assertEqual(paths(self.done("find", path="t", glob="*.c", depth=1)), ["t/[q].c", "t/main.c"])
        first = self.done("find", path="t", glob="*.c", limit=2)
        rest = self.done("find", path="t", glob="*.c", after=first["after"])
        self.assertEqual(len(paths(first) + paths(rest)), 5)

    def test_a_hostile_glob_ends(self):
        self.shell("a", "touch " + "a" * 200)
        self.assertEqual(self.done("find", path="", glob="*a" * 60 + "b")["entries"], [])


class TestChange(FileHttpCase):
    def test_mkdir(self):
        doc = self.done("mkdir", path="d", mode="770")
        self.assertEqual((doc["created"], doc["type"], doc["mode"]), (1, "folder", "0770"))
        self.assert_refused(self.op("mkdir", path="d"), 409, "conflict", "exists")
        self.assertEqual(self.done("mkdir", path="d", parents=True)["created"], 0)
        self.assert_refused(self.op("mkdir", path="x/y/z"), 404, "not_found", "parents")
        self.assertEqual(self.done("mkdir", path="x/y/z", parents=True)["mode"], "0755")
        self.shell("a", "touch f; ln -s f l")
        for path in ("f", "l"):
            self.assert_refused(self.op("mkdir", path=path, parents=True), 409, "conflict")
        self.assert_refused(self.op("mkdir", path="/etc/x"), 403, "denied", "/etc/x")
        self.assertEqual(self.done("mkdir", path="/etc/x", user="root")["uid"], 0)

    def test_remove(self):
        self.shell("a", "mkdir -p d/e keep; touch f d/e/g keep/k; ln -s ../keep d/l; ln -s keep kl")
        self.assertEqual(self.done("remove", path="f"), {"removed": 1})
        self.assert_refused(self.op("remove", path="f"), 404, "not_found", "f")
        self.assertEqual(self.done("remove", path="f", missing_ok=True), {"removed": 0})
        self.assert_refused(self.op("remove", path="d"), 409, "conflict", "recursive")
        self.done("remove", path="d", recursive=True)
        self.done("remove", path="kl", recursive=True)
        self.assertEqual(self.shell("a", "ls; ls keep"), "keep\nk\n")
        self.assert_refused(self.op("remove", path="/etc/passwd"), 403, "denied", "/etc/passwd")
        self.assert_refused(self.op("remove", path="/etc", recursive=True), 403, "denied")
        for path in ("/", HOME + ".", HOME + ".."):
            self.assert_refused(self.op("remove", path=path, recursive=True), 400, "invalid", "name")

    def test_move(self):
        self.shell("a", "mkdir d t; echo 1 > a; echo 2 > b; echo x > d/x; ln -s a l")
        self.assertEqual(self.done("move", path="a", to="c")["path"], HOME + "c")
        self.assert_refused(self.op("move", path="c", to="b"), 409, "conflict", "overwrite")
        self.done("move", path="c", to="b", overwrite=True)
        self.assertEqual(self.done("move", path="l", to="l2")["type"], "link")
        self.done("move", path="d", to="n/m/d", parents=True)
        self.assert_refused(self.op("move", path="n", to="n/m/q"), 409, "conflict", "itself")
        self.assert_refused(self.op("move", path="none", to="q"), 404, "not_found")
        self.done("move", path="b", to="/tmp/b")  # another file system
        self.done("move", path="n", to="/tmp/n")
        self.assertEqual(self.shell("a", "cat /tmp/b /tmp/n/m/d/x; ls"), "1\nx\nl2\nt\n")

    def test_a_folder_of_the_image_moves(self):
        """In an overlay rename(2) says EXDEV for it."""
        self.shell("a", "test -d /etc/skel || test -d /etc/alternatives")
        self.done("move", path="/etc/alternatives", to="/etc/alternatives2", user="root")
        self.assertEqual(self.shell("a", "test ! -e /etc/alternatives && ls /etc/alternatives2 | head -c 1 | wc -c"), "1\n")

    def test_copy(self):
        self.shell("a", "mkdir -p d/e; echo x > d/e/f; chmod 750 d/e/f; touch -d @5 d/e/f; ln -s /etc/passwd d/l; mkfifo d/p; echo old > g")
        self.assert_refused(self.op("copy", path="d", to="c"), 409, "conflict", "recursive")
        self.assertEqual(self.done("copy", path="d", to="c", recursive=True), {"entries": 4, "bytes": 2, "skipped": 1})
        self.assertEqual(self.shell("a", "stat -c '%a %Y' c/e/f; readlink c/l; ls c"), "750 5\n/etc/passwd\ne\nl\n")
        self.assert_refused(self.op("copy", path="d/e/f", to="g"), 409, "conflict", "overwrite")
        self.done("copy", path="d/e/f", to="g", overwrite=True)
        self.assert_refused(self.op("copy", path="d", to="d/e/x", recursive=True), 409, "conflict", "itself")
        self.shell("a", "touch secret; chmod 0 secret")
        self.assert_refused(self.op("copy", path="secret", to="s"), 403, "denied", "secret")
        self.assertEqual(self.shell("a", "cat g; ls -A | grep -c tmp || true"), "x\n0\n")

    def test_chmod(self):
        self.shell("a", "mkdir -p d/e; touch d/f d/e/g; ln -s /etc/passwd d/l")
        self.assertEqual(self.done("chmod", path="d/f", mode="600"), {"entries": 1})
        self.assertEqual(self.done("chmod", path="d", mode="0500", recursive=True)["entries"], 4)
        self.assertEqual(self.shell("a", "stat -c '%a %n' d d/e d/f d/e/g; stat -c %a /etc/passwd"), "500 d\n500 d/e\n500 d/f\n500 d/e/g\n644\n")
        self.done("chmod", path="d", mode="0", recursive=True)
        self.assertEqual(self.shell("a", "stat -c %a d"), "0\n")
        self.done("chmod", path="d", mode="700")
        self.assert_refused(self.op("chmod", path="/etc/passwd", mode="777"), 403, "denied", "/etc/passwd")
        self.assert_refused(self.op("chmod", path="d", owner="root"), 403, "denied")
        if NATIVE:
            self.done("chmod", path="d", owner="root", user="root", mode="755")
            self.assertEqual(self.shell("a", "stat -c '%U %a' d"), "root 755\n")

    @needs("files in the root")
    def test_links_that_change_lead_nowhere(self):
        """A folder that becomes a link to one of root's while root removes, changes and copies it."""
        self.shell("a", "mkdir -p trap")
        self.root.ok("exec", "--user", "root", "a", "--", "sh", "-c", "mkdir -p /srv/x/y; touch /srv/x/y/f /srv/x/f; chmod 700 /srv/x")
        stop = threading.Event()

        def swap():
            while not stop.is_set():
                self.root.run("exec", "a", "--", "sh", "-c", "for i in 1 2 3 4 5 6 7 8 9; do mkdir -p trap/d/y; touch trap/d/y/f; "
                              "mv trap/d trap/o; ln -s /srv/x trap/d; rm trap/d; rm -rf trap/o; done")
        worker = threading.Thread(target=swap)
        worker.start()
        try:
            for _ in range(25):
                self.op("remove", path="trap/d/y" if _ % 2 else "trap/d", recursive=True)
                self.op("remove", path="trap", recursive=True, user="root")
                self.op("chmod", path="trap", mode="777", recursive=True, user="root")
                self.op("mkdir", path="trap", parents=True)
        finally:
            stop.set()
            worker.join()
        self.assertEqual(self.root.ok("exec", "--user", "root", "a", "--", "sh", "-c", "stat -c %a /srv/x; ls /srv/x /srv/x/y").text,
                         "700\n/srv/x:\nf\ny\n\n/srv/x/y:\nf\n")

    def test_a_stopped_sandbox(self):
        self.shell("a", "mkdir kept")
        self.root.ok("stop", "a")
        self.assertEqual(paths(self.done("list", path=""))[-1], "kept")


class TestGrep(FileHttpCase):
    def setUp(self):
        super().setUp()
        self.shell("a", "mkdir -p t/sub; printf 'one\\nTwo needle\\nthree\\nfour\\nfive needle needle\\n' > t/a; "
                        "printf 'no line break needle' > t/sub/b; printf 'x\\0needle' > t/bin; ln -s /etc t/link; echo needle > t/zed; chmod 0 t/zed")

    def found(self, **body):
        doc = self.done("grep", **body)
        return [(m["path"].removeprefix(HOME + "t/"), m["line"], m.get("column"), m["text"]) for m in doc["matches"]], doc

    def test_matches(self):
        found, doc = self.found(path="t", pattern="needle")
        self.assertEqual(found, [("a", 2, 5, "Two needle"), ("a", 5, 6, "five needle needle"), ("sub/b", 1, 15, "no line break needle")])
        self.assertEqual((doc["searched"], doc["skipped"], "after" in doc), (3, 2, False))  # binary, and not readable
        self.assertEqual(len(self.found(path="t", pattern="NEEDLE", ignore_case=True)[0]), 3)
        self.assertEqual(self.found(path="t", pattern="n.edle")[0], [])
        self.assertEqual(len(self.found(path="t", pattern="^(five|Two) n.e", regex=True)[0]), 2)
        self.assertEqual(self.found(path="t", pattern="needle", glob="b")[0], [("sub/b", 1, 15, "no line break needle")])
        self.assertEqual(len(self.found(path="t", pattern="needle", depth=1)[0]), 2)
        self.assertEqual(len(self.found(path="t/a", pattern="needle")[0]), 2)
        self.assert_refused(self.op("grep", path="t", pattern="(", regex=True), 400, "invalid", "pattern")
        self.assert_refused(self.op("grep", path="t", pattern="a\nb"), 400, "invalid", "line break")
        self.assert_refused(self.op("grep", path="none", pattern="x"), 404, "not_found", "none")

    def test_context(self):
        found = self.done("grep", path="t/a", pattern="four", context=1)["matches"]
        self.assertEqual([(m["line"], m.get("context", False)) for m in found], [(3, True), (4, False), (5, True)])
        found = self.done("grep", path="t/a", pattern="needle", context=20)["matches"]
        self.assertEqual([(m["line"], m.get("context", False)) for m in found],
                         [(1, True), (2, False), (3, True), (4, True), (5, False)])

    def test_long_lines_and_odd_bytes(self):
        self.shell("a", "head -c 200000 /dev/zero | tr '\\0' a > t/long; echo needle >> t/long; echo second needle >> t/long; "
                        "printf 'n\\377edle needle\\n' > t/odd")
        found = self.done("grep", path="t", pattern="needle", glob="[lo]*")["matches"]
        self.assertEqual([(m["line"], m.get("cut", False)) for m in found], [(1, True), (2, False), (1, False)])
        self.assertIn("needle", found[0]["text"])
        self.assertLessEqual(len(found[0]["text"]), 1024)
        self.assertEqual(base64.b64decode(found[2]["text_base64"]), b"n\xffedle needle")

    def test_pages(self):
        self.shell("a", "mkdir many; cd many; for i in $(seq 1 30); do printf 'x needle\\nneedle\\n' > f$i; done")
        total, after = 0, {}
        while True:
            doc = self.done("grep", path="many", pattern="needle", limit=7, **after)
            total += len(doc["matches"])
            self.assertLessEqual(len(doc["matches"]), 8)
            if "after" not in doc:
                break
            after = {"after": doc["after"]}
        self.assertEqual(total, 60)

    def test_a_hostile_pattern_and_a_hostile_file_end(self):
        """Neither time nor memory of the helper is without a limit, and the daemon goes on."""
        reply = self.op("grep", path="t", pattern="(((a{1,255}){1,255}){1,255}){1,255}", regex=True)
        self.assertGreaterEqual(reply.status, 400)
        self.shell("a", "yes needle | head -c 3000000 > t/big")
        doc = self.done("grep", path="t/big", pattern="needle", limit=10000)
        self.assertEqual(len(doc["matches"]), 10000)
        self.assertEqual(self.done("stat", path="t")["type"], "folder")


class TestEdit(FileHttpCase):
    def test_exact_replacements(self):
        self.shell("a", "printf 'a b a\\nb\\n' > f; ln f hard; chmod 640 f")
        doc = self.done("edit", path="f", edits=[{"old": "b\n", "new": "B!\n"}, {"old": "a", "new": "", "count": 2}])
        self.assertEqual((doc["replaced"], doc["size"], doc["mode"]), (3, 7, "0640"))
        self.assertEqual(self.shell("a", "cat hard"), " b \nB!\n")
        self.done("edit", path="f", edits=[{"old": "B", "new": "long text"}], atomic=True)
        self.assertEqual(self.shell("a", "cat f hard; stat -c %a f; ls -A | grep -c tmp || true"), " b \nlong text!\n b \nB!\n640\n0\n")

    def test_nothing_changes_when_one_does_not_fit(self):
        self.shell("a", "printf 'a b a' > f; echo x > ro; chmod 444 ro; mkdir d")
        for edits, words in (([{"old": "a", "new": "x"}], ("found 2 times, expected 1", "count")),
                             ([{"old": "b", "new": "x"}, {"old": "b", "new": "y"}], ("edit 2: found 0", "exact text")),
                             ([{"old": "a", "new": "x", "count": 3}], ("found 2 times",))):
            self.assert_refused(self.op("edit", path="f", edits=edits), 409, "conflict", *words)
        self.assertEqual(self.shell("a", "cat f"), "a b a")
        self.assert_refused(self.op("edit", path="ro", edits=[{"old": "x", "new": "y"}]), 403, "denied", "ro")
        self.assert_refused(self.op("edit", path="d", edits=[{"old": "x", "new": "y"}]), 409, "conflict", "d")
        for body, word in (({}, "'edits' is missing"), ({"edits": []}, "1 to 256"), ({"edits": [{"old": "a"}]}, "'new' is missing"),
                           ({"edits": [{"old": "", "new": "x"}]}, "empty"), ({"edits": [{"old": "a", "new": "b", "times": 1}]}, "times"),
                           ({"old": "a", "new": "b"}, "unknown field"), ({"edits": [7]}, "objects")):
            self.assert_refused(self.op("edit", path="f", **body), 400, "invalid", word)

    def test_versions_and_bytes(self):
        tag = self.written("f", b"\xff a", 201)["etag"]
        new = self.done("edit", path="f", edits=[{"old_base64": base64.b64encode(b"\xff").decode(), "new": "ok"}], if_match=tag)
        self.assertEqual(self.read("f").body, b"ok a")
        self.assert_refused(self.op("edit", path="f", edits=[{"old": "ok", "new": "no"}], if_match=tag), 409, "conflict", "etag")
        self.assertEqual(new["etag"], self.read("f").headers["etag"])

    def test_a_large_file(self):
        self.shell("a", "head -c 17M /dev/zero > f; yes | head -c 10000000 > g")
        self.assert_refused(self.op("edit", path="f", edits=[{"old": "x", "new": "y"}]), 429, "limit", "16 MiB")
        self.assertEqual(self.done("edit", path="g", edits=[{"old": "y", "new": "Y", "count": 5000000}])["replaced"], 5000000)
        self.assert_refused(self.op("edit", path="g", edits=[{"old": "Y", "new": "yyyyy", "count": 5000000}]), 429, "limit", "16 MiB")
