"""Parallel stages of a build: their order, stages that are not needed, and the end of the others when one fails."""
import json
import os
import re
import signal
import unittest

from ripcord_test import only_on
from test_builder import BuildCase
from test_images import BUSYBOX

# Two stages that wait for each other through a cache mount: one after the other they would never end.
MEET = ("RUN --mount=type=cache,target=/m,id=meet touch /m/{0}; for i in $(seq 600); do test -e /m/{1} && echo {0} met {1} && exit 0; "
        "sleep 0.1; done; exit 9\n")


@only_on("native")
@unittest.skipUnless(os.path.exists(BUSYBOX), "busybox is not installed")
class Stages(BuildCase):
    @unittest.skipUnless((os.cpu_count() or 1) > 1, "one processor")
    def test_independent_ones_run_at_once(self):
        said, _ = self.build("FROM base:1 AS one\n" + MEET.format("a", "b") + "FROM base:1 AS two\n" + MEET.format("b", "a") +
                             "FROM base:1 AS unused\nRUN exit 1\n"
                             "FROM scratch\nCOPY --from=one /etc/passwd /one\nCOPY --from=two /etc/passwd /two\n")
        self.assertIn("a met b", said)
        self.assertIn("b met a", said)
        self.assertNotIn("unused", said)

    def test_those_that_need_others_wait(self):
        said, _ = self.build("FROM base:1 AS a\nRUN echo from-a > /a\nFROM a AS b\nRUN cat /a > /b\n"
                             "FROM base:1 AS c\nRUN --mount=type=bind,from=b,target=/x cat /x/b > /c\n"
                             "FROM base:1\nCOPY --from=c /c /d\nRUN echo has $(cat /d)\n")
        self.assertIn("has from-a", said)
        order = [re.search(rf"#(\d+) \[{s} [^\n]*RUN", said) for s in "abc"]
        self.assertEqual([int(m.group(1)) for m in order], sorted(int(m.group(1)) for m in order))

    @unittest.skipUnless((os.cpu_count() or 1) > 1, "one processor")
    def test_one_that_fails_ends_the_others(self):
        self.file("Dockerfile", "FROM base:1 AS slow\nRUN --mount=type=cache,target=/m,id=f touch /m/slow; sleep 1000\n"
                  "FROM base:1 AS bad\nRUN --mount=type=cache,target=/m,id=f until test -e /m/slow; do sleep 0.1; done; exit 7\n"
                  "FROM base:1\nCOPY --from=slow /x /\nCOPY --from=bad /x /\n")
        result = self.root.run("image", "build", "--json", self.context, timeout=60)
        self.assert_exit(result, 2)
        events = [json.loads(line) for line in result.text.splitlines()]
        self.assertIn("exit status 7", events[-1]["error"]["message"])
        ended = [e["error"] for e in events if e["event"] == "step_end" and "error" in e]
        self.assertEqual(len(ended), 2, events)
        self.assertIn("exit status 7", ended[0])
        self.assertIn("cancelled", ended[1])
        self.assert_nothing_left()
        result = self.root.run("image", "build", "--progress", "plain", self.context, timeout=60)
        self.assertIn("Dockerfile:4", result.err.decode())

    @unittest.skipUnless((os.cpu_count() or 1) > 1, "one processor")
    def test_a_cancelled_build_ends_all(self):
        self.file("Dockerfile", "FROM base:1 AS a\nRUN echo begun; sleep 1000\nFROM base:1 AS b\nRUN echo begun; sleep 1000\n"
                  "FROM base:1\nCOPY --from=a /x /\nCOPY --from=b /x /\n")
        with self.root.popen("image", "build", "--progress", "plain", self.context) as p:
            seen = 0
            for line in p.stderr:
                seen += b" begun" in line and b"RUN" not in line
                if seen == 2:
                    break
            p.send_signal(signal.SIGINT)
            p.communicate(timeout=60)
        self.assertEqual(seen, 2)
        self.assert_nothing_left()
