"""Whether answers keep to the API's document, which the daemon itself serves.

`Root.http()` passes every answer of the integration tests through check(). The validator comes with schemathesis.
"""
import json
import re
import sys

import installers

NO_ROUTE = (404, 405)  # also of paths and methods that no document can list
STATE = {"validators": None, "document": None, "missing": "not prepared"}


def prepare():
    """Makes the validator importable. Without it check() does nothing, and the contract's own tests say why."""
    folder, STATE["missing"] = installers.contract_tools()
    if folder and str(folder) not in sys.path:
        sys.path.append(str(folder))


def missing():
    """Why answers are not checked, or None."""
    return STATE["missing"]


class Document:
    """The operations of an OpenAPI document by method and path."""

    def __init__(self, doc):
        self.doc = doc
        self.paths = [(re.compile(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path))), path) for path in doc["paths"]]
        self.validators = {}

    def resolve(self, node):
        while "$ref" in node:
            target = self.doc
            for part in node["$ref"].lstrip("#/").split("/"):
                target = target[part]
            node = target
        return node

    def operation(self, method, path):
        """None: the document has no such path or method."""
        exact = self.doc["paths"].get(path)
        item = exact or next((self.doc["paths"][p] for pattern, p in self.paths if pattern.fullmatch(path)), {})
        return item.get("get" if method == "HEAD" else method.lower())

    def validator(self, schema):
        import jsonschema_rs  # only here: see prepare()
        key = json.dumps(schema, sort_keys=True)
        if key not in self.validators:
            self.validators[key] = jsonschema_rs.validator_for({**schema, "components": self.doc["components"]})
        return self.validators[key]

    def documents(self, kind, body):
        """The JSON documents of an answer."""
        if kind == "application/json":
            return [json.loads(body)]
        if kind == "application/x-ndjson":
            return [json.loads(line) for line in body.splitlines()]
        return []

    def problem(self, method, path, reply):
        """What of the answer is not in the document, or None."""
        operation = self.operation(method, path)
        if not operation:
            return None if reply.status in NO_ROUTE else f"an answer {reply.status} of an undocumented route"
        answer = operation["responses"].get(str(reply.status))
        if answer is None and reply.status >= 400:
            answer = operation["responses"].get("default", {"$ref": "#/components/responses/Error"})
        if answer is None:
            return f"the status {reply.status} is not documented"
        return None if method == "HEAD" else self.body_problem(self.resolve(answer), reply)

    def body_problem(self, answer, reply):
        kind = reply.headers.get("content-type", "").partition(";")[0]
        content = answer.get("content", {})
        if not kind and not reply.body:
            return None
        if "*/*" in content:  # of a service in a sandbox
            return None
        if kind not in content:
            return f"the type '{kind}' of a {reply.status} is not documented"
        for doc in self.documents(kind, reply.body):
            errors = list(self.validator(content[kind].get("schema", {})).iter_errors(doc))
            if errors:
                return f"{errors[0].message}, at {errors[0].instance_path} of {json.dumps(doc)[:1000]}"
        return None


def check(root, method, target, reply):
    """Fails if an answer of a daemon of these tests is not as its document says."""
    if STATE["missing"] or not target.startswith("/v1/") or reply.status == 101:
        return
    if STATE["document"] is None:
        got = root.http("GET", "/v1/openapi.json", checked=False)
        STATE["document"] = Document(got.json())
    problem = STATE["document"].problem(method, target.partition("?")[0], reply)
    if problem:
        raise AssertionError(f"{method} {target}: docs/openapi.yaml: {problem}")
