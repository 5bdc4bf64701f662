"""Lists over HTTP and on the command line: pages, filters, order."""
from ripcord_test import TestCase


class Lists(TestCase):
    def pages(self, target, key, limit=2):
        """All items of a list, page by page; each page but the last is full."""
        items, after = [], ""
        mark = "&" if "?" in target else "?"
        while True:
            doc = self.root.get(f"{target}{mark}limit={limit}{after}")
            items += doc[key]
            if doc["next"] is None:
                self.assertLessEqual(len(doc[key]), limit)
                return items
            self.assertEqual(len(doc[key]), limit)
            after = f"&after={doc['next']}"

    def names(self, query=""):
        return [sb["name"] for sb in self.root.get("/v1/sandboxes" + query)["sandboxes"]]

    def test_sandboxes(self):
        for name, label in (("a-2", "tier=db"), ("b-1", "tier=web"), ("a-1", "tier=web"), ("c", "other=")):
            self.root.ok("up", name, "--label", label)
        self.root.ok("stop", "b-1")
        everyone = ["a-1", "a-2", "b-1", "c"]
        self.assertEqual(self.names(), everyone)
        for limit in (1, 2, 3, 4, 1000):
            self.assertEqual([sb["name"] for sb in self.pages("/v1/sandboxes", "sandboxes", limit)], everyone)
        self.assertEqual(self.names("?prefix=a-"), ["a-1", "a-2"])
        self.assertEqual(self.names("?label=tier"), ["a-1", "a-2", "b-1"])
        self.assertEqual(self.names("?label=tier%3Dweb"), ["a-1", "b-1"])
        self.assertEqual(self.names("?label=tier%3Dweb&state=stopped"), ["b-1"])
        self.assertEqual(self.names("?state=stopped&state=running"), everyone)
        self.assertEqual(self.names("?label=tier&label=other"), [])
        self.assertEqual([sb["name"] for sb in self.pages("/v1/sandboxes?state=running", "sandboxes")], ["a-1", "a-2", "c"])
        self.assertEqual(self.names(f"?engine={self.root.sandbox('c')['engine']}"), everyone)
        self.assertEqual(self.root.ok("ls", "-q", "--label", "tier=web", "--state", "running", "--prefix", "a").text, "a-1\n")
        # A sandbox that is made or removed between two pages does not disturb the others.
        first = self.root.get("/v1/sandboxes?limit=2")
        self.root.ok("rm", "-f", "a-2")
        self.root.ok("up", "a-0")
        self.assertEqual(self.names(f"?after={first['next']}"), ["b-1", "c"])

    def test_execs(self):
        for box, n in (("a", 5), ("b", 2)):
            self.root.ok("up", box)
            for i in range(n):
                self.root.ok("exec", box, "--", "echo", str(i))
        words = [x["argv"][1] for x in self.pages("/v1/sandboxes/a/execs", "execs")]
        self.assertEqual(words, ["4", "3", "2", "1", "0"])
        everything = [(x["sandbox"], x["argv"][1]) for x in self.root.get("/v1/execs?all=1")["execs"]]
        self.assertEqual(everything, [("a", w) for w in words] + [("b", "1"), ("b", "0")])
        for limit in (1, 2, 5, 6, 7, 8):
            paged = [(x["sandbox"], x["argv"][1]) for x in self.pages("/v1/execs?all=1", "execs", limit)]
            self.assertEqual(paged, everything, limit)
        self.root.ok("exec", "-d", "a", "--", "sleep", "60")
        self.root.ok("exec", "-d", "b", "--", "sleep", "61")
        live = [x["argv"][1] for x in self.pages("/v1/execs", "execs", 1)]
        self.assertEqual(live, ["60", "61"])
        self.assertEqual(self.root.get("/v1/sandboxes/a/sessions?limit=1"), {"sessions": [], "next": None})

    def test_bad_questions(self):
        self.root.ok("up", "a")
        for target, word in (("/v1/sandboxes?limit=0", "limit"), ("/v1/sandboxes?limit=1001", "limit"),
                             ("/v1/sandboxes?limit=x", "limit"), ("/v1/sandboxes?state=sleeping", "sleeping"),
                             ("/v1/sandboxes/a/execs?after=x", "after"), ("/v1/execs?after=a", "after"),
                             ("/v1/execs?after=a%2F-1", "after"), ("/v1/sandboxes/a/sessions?after=0", "after")):
            self.assert_refused(self.root.http("GET", target), 400, "invalid", word)
        self.assert_refused(self.root.http("GET", "/v1/sandboxes?engine=nope"), 400, "invalid", "nope", "native")
        self.assert_exit(self.root.run("ls", "--state", "sleeping"), 2)
