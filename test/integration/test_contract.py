"""The API's document: it is served, and nothing that a program generates from it breaks the daemon or gets another answer."""
import os
import re
import subprocess
import sys

import contract
import installers
from ripcord_test import Config, TestCase, alone, only_on

# What schemathesis checks of each answer: no 5xx, and status, type and schema as documented.
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
SECONDS = 600 if Config.soak else 60
# A usual run repeats the same requests each time; what is found by chance belongs to the soak.
PHASES = ("--phases", "coverage,fuzzing,stateful") if Config.soak else ("--phases", "examples,coverage", "--seed", "1")
# 501 and 502 are answers too: this machine, an engine or a registry cannot do what was asked. No other 5xx is allowed.
CONFIG = """
[checks.not_a_server_error]
expected-statuses = ["2xx", "3xx", "4xx", 501, 502]
"""
# Their answers may follow for ever. Other tests read them.
ENDLESS = ("/v1/events", *(f"/v1/sandboxes/{{name}}/{end}" for end in (
    "files/watch", "execs/{id}/stream", "execs/{id}/stdout", "execs/{id}/stderr", "sessions/{id}/events")))
HOOKS = """
import schemathesis

@schemathesis.serializer("application/x-tar", "application/vnd.ripcord.thin-context")
def archive(context, value):
    return value if isinstance(value, bytes) else str(value).encode()
"""


class Document(TestCase):
    def test_it_is_served(self):
        self.root.start()
        doc = self.root.get("/v1/openapi.json")
        self.assertEqual(doc["openapi"], "3.1.0")
        self.assertIn("/v1/sandboxes/{name}", doc["paths"])
        self.assertIs(doc["paths"]["/v1/caches/packages"]["get"].get("deprecated", False), False)

    def test_answers_are_checked(self):
        """The check of every answer in these tests can fail."""
        if contract.missing():
            self.skipTest(contract.missing())
        self.root.ok("up", "a")
        reply = self.root.http("GET", "/v1/sandboxes/a")
        document = contract.Document(self.root.get("/v1/openapi.json"))
        self.assertIsNone(document.problem("GET", "/v1/sandboxes/a", reply))
        wrong = reply.body.replace(b'"state":"running"', b'"state":"asleep"')
        self.assertNotEqual(wrong, reply.body)
        for status, headers, body, word in ((200, reply.headers, wrong, "asleep"), (299, reply.headers, reply.body, "299"),
                                            (200, {"content-type": "text/html"}, reply.body, "text/html")):
            changed = type(reply)(status, headers, body)
            self.assertIn(word, document.problem("GET", "/v1/sandboxes/a", changed))
        self.assertIn("undocumented", document.problem("GET", "/v1/nothing", reply))


@alone
@only_on("native")
class Fuzzed(TestCase):
    def test_schemathesis(self):
        folder, missing = installers.contract_tools()
        if missing:
            self.skipTest(missing)
        self.root.configure("http.listen: 127.0.0.1:0\n")
        self.root.start()
        daemon, listen = self.root.daemon_pid(), self.root.get("/v1/version")["listen"]
        token = self.root.ok("token").text.strip()
        (self.root.path / "st.toml").write_text(CONFIG, encoding="ascii")
        (self.root.path / "hooks.py").write_text(HOOKS, encoding="ascii")
        done = subprocess.run(
            (sys.executable, "-m", "schemathesis.cli", "--config-file", "st.toml", "run", f"http://{listen}/v1/openapi.json", "--header",
             f"Authorization: Bearer {token}", "--checks", CHECKS, "--max-time", str(SECONDS), "--request-timeout", "60",
             *(word for path in ENDLESS for word in ("--exclude-path", path)),
             "--exclude-deprecated", *PHASES, "--generation-database", "none", "--no-color", "--continue-on-failure"),
            env={**os.environ, "PYTHONPATH": str(folder), "SCHEMATHESIS_HOOKS": "hooks"}, cwd=self.root.path, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SECONDS + 120, check=False)
        text = done.stdout.decode(errors="replace")
        self.assertEqual(done.returncode, 0, text[-20000:])
        self.assertRegex(text, re.compile(r"[1-9]\d* generated"))
        self.assertEqual(self.root.daemon_pid(), daemon)
