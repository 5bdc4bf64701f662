"""Changes of files as they happen: SSE and JSON lines, new folders, renames, an overflow that is reported, clients that go."""
import json

from ripcord_test import full_run_only, needs, wait_until
from test_file_http import HOME, Connection, FileHttpCase


class Watch:
    """A stream of events, read as they come."""

    def __init__(self, case, path, accept="application/x-ndjson", **options):
        self.c = Connection(case.socket_path())
        target = case.target(path, **options).replace("/files?", "/files/watch?")
        self.c.request("GET", target, headers={"Accept": accept})
        self.reply = self.c.getresponse()
        self.sse = accept == "text/event-stream"

    def next(self):
        while True:
            line = self.reply.readline()
            if not line:
                return None
            if self.sse and line.startswith(b"data: "):
                return json.loads(line[6:])
            if not self.sse and line.strip():
                return json.loads(line)

    def until(self, event, name=None):
        """All events up to this one, as (event, path below home, to)."""
        found = []
        while True:
            e = self.next()
            if e is None:
                raise AssertionError(f"the stream ended after {found}")
            found.append((e["event"], e["path"].removeprefix(HOME), e.get("to", "").removeprefix(HOME)))
            if e["event"] == event and name in (None, found[-1][1]):
                return found

    def close(self):
        self.reply.close()
        self.c.close()


class TestWatch(FileHttpCase):
    def watch(self, path, **options):
        w = Watch(self, path, **options)
        self.addCleanup(w.close)
        self.assertEqual((w.reply.status, w.next()["event"]), (200, "ready"))
        return w

    def test_a_folder(self):
        self.shell("a", "mkdir d")
        w = self.watch("d")
        self.shell("a", "cd d; echo 1 > f; chmod 600 f; mv f g; mkdir e; touch e/below; rm g; touch end")
        found = w.until("created", "d/end")
        self.assertEqual([f for f in found if f[0] != "modified"],
                         [("created", "d/f", ""), ("attributes", "d/f", ""), ("moved", "d/f", "d/g"), ("created", "d/e", ""),
                          ("removed", "d/g", ""), ("created", "d/end", "")])
        self.assertIn(("modified", "d/f", ""), found)

    def test_sse(self):
        w = self.watch("", accept="text/event-stream")
        self.assertEqual(w.reply.getheader("Content-Type"), "text/event-stream")
        self.shell("a", "mkdir new")
        self.assertEqual(w.next(), {"event": "created", "path": HOME + "new", "type": "folder"})

    def test_a_tree(self):
        self.shell("a", "mkdir -p t/a/b")
        w = self.watch("t", recursive=1)
        self.shell("a", "cd t; touch a/b/1; mkdir -p x/y/z; touch x/y/z/2; mv a moved; touch moved/b/3; ln -s /etc link; rm -r x; touch end")
        found = w.until("created", "t/end")
        for wanted in (("created", "t/a/b/1", ""), ("created", "t/x/y/z/2", ""), ("moved", "t/a", "t/moved"), ("created", "t/moved/b/3", ""),
                       ("created", "t/link", ""), ("removed", "t/x", "")):
            self.assertIn(wanted, found)
        self.shell("a", "mv t/moved /home/agent/away; touch away/b/4; mv away t/back; touch t/back/b/5 t/end2")
        found = w.until("created", "t/end2")
        self.assertIn(("removed", "t/moved", ""), found)
        self.assertIn(("created", "t/back/b/5", ""), found)
        self.assertFalse([f for f in found if f[1].startswith("t/moved/b/4")], found)

    def test_many_new_folders_at_once(self):
        """A file is reported however soon after its folder it was made."""
        self.shell("a", "mkdir t")
        w = self.watch("t", recursive=1)
        self.shell("a", "cd t; for i in $(seq 1 60); do mkdir -p d$i/e/f; echo x > d$i/e/f/leaf; done; touch end")
        found = w.until("created", "t/end")
        if "overflow" not in {f[0] for f in found}:
            for i in range(1, 61):
                if ("created", f"t/d{i}/e/f/leaf", "") not in found and ("modified", f"t/d{i}/e/f/leaf", "") not in found:
                    found += w.until("created", f"t/d{i}/e/f/leaf")

    def test_a_file(self):
        self.shell("a", "mkdir d; echo 1 > d/f")
        w = self.watch("d/f")
        self.shell("a", "cd d; touch other; echo 2 > f; echo 3 > tmp; mv tmp f; rm f")
        found = w.until("removed", "d/f")
        self.assertEqual({f[1] for f in found}, {"d/f"})
        self.assertEqual({f[0] for f in found}, {"modified", "created", "removed"})

    def test_the_end(self):
        self.shell("a", "mkdir -p d/e")
        w = self.watch("d/e", recursive=1)
        self.shell("a", "rm -r d")
        self.assertEqual(w.until("gone")[-1], ("gone", "d/e", ""))
        self.assertIsNone(w.next())
        w = self.watch("")
        self.root.ok("stop", "a")
        self.assertEqual(w.next()["event"], "error")
        self.assertIsNone(w.next())

    def test_refusals(self):
        def get(path, **options):
            return self.root.http("GET", self.target(path, **options).replace("/files?", "/files/watch?"))
        self.shell("a", "touch f; mkdir shut; chmod 0 shut")
        self.assert_refused(get("none"), 404, "not_found", "none")
        self.assert_refused(get("f", recursive=1), 409, "conflict", "not a folder")
        self.assert_refused(get("shut"), 403, "denied", "shut")
        self.assert_refused(get("", recursive="maybe"), 400, "invalid", "recursive")

    @full_run_only
    @needs("files in the root")
    def test_an_overflow_is_reported(self):
        """The client does not read; afterwards new folders are watched again."""
        self.shell("a", "mkdir t")
        w = self.watch("t", recursive=1)
        self.shell("a", "cd t; seq 1 25000 | xargs touch; mkdir late", timeout=120)
        w.until("overflow")
        wait_until(lambda: not self.shell("a", "touch t/late/x; rm t/late/x"), 5, "a change")
        w.until("created", "t/late/x")

    def test_a_client_that_goes(self):
        """Its helper ends at once, also when nothing happens."""
        for _ in range(70):  # more than there may be helpers at a time
            w = Watch(self, "")
            self.assertEqual(w.next()["event"], "ready")
            w.close()
        self.assertEqual(self.done("stat", path="")["type"], "folder")
