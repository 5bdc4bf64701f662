#!/usr/bin/env python3
"""Fails if the route table (src/daemon/api/routes.c) and docs/openapi.yaml differ.

Compared are the methods of each path and the query parameters of each route, and whether it takes an `Idempotency-Key`
(ROUTE_KEY), in both directions. Old paths (the table of
renames) stand in the document as deprecated and are passed over.

    tools/check-routes.py              checks the tree
    tools/check-routes.py --self-test  proves that the rule can fail
"""
import re

import yaml

import check_lib

TABLE = "src/daemon/api/routes.c"
DOCUMENT = "docs/openapi.yaml"
ROW = re.compile(r'^\s*\{"([A-Z]+)",\s*"([^"]+)",\s*\w+,\s*([\w |]+),\s*\{([^}]*)\}\},', re.M)
KEY = "Idempotency-Key"
PROXIED = "/v1/sandboxes/{}/ports/{}/{}"  # any method, recognised before the table (src/daemon/api/port-proxy.h)
RENAME = re.compile(r'^\s*\{"([^"]+)",\s*"[^"]+"\},', re.M)
METHODS = ("get", "put", "post", "patch", "delete")


def routes_of_table(text):
    """{(method, path with {} for each parameter): query parameters and KEY}, and the old paths."""
    rows = {(m, p.replace("*", "{}")): set(re.findall(r'"(\w+)"', q) + [KEY] * ("ROUTE_KEY" in flags))
            for m, p, flags, q in ROW.findall(text)}
    return rows, RENAME.findall(text.partition("renames[]")[2])


def query_of(document, parameters):
    names = set()
    for p in parameters:
        while "$ref" in p:
            p = document["components"]["parameters"][p["$ref"].rpartition("/")[2]]
        if p["in"] == "query" or p["name"] == KEY:
            names.add(p["name"])
    return names


def routes_of_document(document):
    found = {}
    for path, item in document["paths"].items():
        for method in METHODS:
            if method in item:
                parameters = item.get("parameters", []) + item[method].get("parameters", [])
                found[method.upper(), re.sub(r"\{\w+\}", "{}", path)] = query_of(document, parameters)
    return found


def check(top):
    table, old = routes_of_table((top / TABLE).read_text(encoding="utf-8"))
    document = routes_of_document(yaml.safe_load((top / DOCUMENT).read_text(encoding="utf-8")))
    document = {k: v for k, v in document.items() if k[1] != PROXIED and not any(k[1].startswith(o) for o in old)}
    for method, path in sorted(table.keys() - document.keys()):
        yield f"{DOCUMENT}: {method} {path} is missing"
    for method, path in sorted(document.keys() - table.keys()):
        yield f"{TABLE}: {method} {path} is missing"
    for key in sorted(table.keys() & document.keys()):
        for name in sorted(table[key] ^ document[key]):
            where = DOCUMENT if name in table[key] else TABLE
            yield f"{where}: {' '.join(key)} has no parameter '{name}'"


def self_test():
    table = '{"GET", "/a/*", handle_a, ROUTE_LIVE | 0, {"b"}},\n{"PUT", "/a/*", handle_b, 0, {NULL}},\n'
    paths = "paths:\n  /a/{x}:\n    get: {parameters: [{name: b, in: query}]}\n    put: {}\n"
    key = paths.replace("b, in: query}", "b, in: query}, {name: Idempotency-Key, in: header}")
    tries = [(table, paths, 0), (table, key, 1), (table.replace("ROUTE_LIVE", "ROUTE_KEY"), key, 0),
             (table.replace('"b"', '"c"'), paths, 2), (table, paths.replace("put", "post"), 2)]
    for text, document, wanted in tries:
        problems = check_lib.check_made_up({TABLE: text, DOCUMENT: document}, check)
        if len(problems) != wanted:
            yield f"self-test: {wanted} problems expected, found {problems}"


if __name__ == "__main__":
    check_lib.main(check, self_test)
