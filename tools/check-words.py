#!/usr/bin/env python3
"""Fails for forms of English that people must read twice, in every text that users see.

It reads the string literals of src/ and tools/dev (messages, hints, help), README.md, docs/, the manual page of the
configuration and the OpenAPI document. CONTRIBUTING.md says how we write.

    tools/check-words.py [FOLDER]     checks the tree below FOLDER (default: this tree)
    tools/check-words.py --self-test  proves that each form is found
"""
import re

import check_lib
from check_lib import blank, line_of

# form, what to write instead, an example
FORMS = [
    (r"(?<![Tt]here )\b(?:is|are) no (?!longer\b|more\b)\w+", "'is not a …'", "standard input is no terminal"),
    (r"\b(?:is|are) none\b", "'there is no …', 'must be one of …'", "'x' is none of text, man"),
    (r"\b[Ww]hoever\b", "'any client that …'", "for whoever has the token"),
    (r"\b(?:those|everybody|somebody|nobody|one) who\b", "'clients that …', 'processes that …'", "to those who have the token"),
    (r"\btells?\b", "'shows', 'reports', 'says'", "`ripcord doctor` tells the fix"),
    (r"\blies in no\b", "'is outside …'", "'/etc' lies in no allowed folder"),
    (r"\bnothing is at\b", "'no such …'", "nothing is at '/v1/x'"),
    (r"\bis not one\b(?! of)", "'invalid …'", "signal 99 is not one"),
    (r"\bis not from\b", "'must be between A and B'", "1 is not from 6 to 9"),
    (r"\bis meant\b", "the name of the thing", "the one that is meant"),
    (r"\b(?:all|some|most|nothing|none|much) of it\b", "the name of the thing", "has not sent all of it"),
]
FORMS = [(re.compile(form), instead, example) for form, instead, example in FORMS]

COMMENT = re.compile(r"/\*.*?\*/", re.S)
# Adjacent literals are one text.
LITERAL = re.compile(r'"(?:\\.|[^"\\\n])*"(?:\s+"(?:\\.|[^"\\\n])*")*')
PIECE = re.compile(r'"((?:\\.|[^"\\\n])*)"')
CODE = re.compile(r"```.*?```", re.S)


def texts_of_source(source):
    source = COMMENT.sub(blank, source)
    for match in LITERAL.finditer(source):
        yield line_of(source, match.start()), "".join(PIECE.findall(match.group()))


def texts_of_prose(prose):
    for number, line in enumerate(CODE.sub(blank, prose).split("\n"), 1):
        yield number, line


def complaints(text):
    for form, instead, _ in FORMS:
        match = form.search(text)
        if match:
            yield f"'{match.group()}': write {instead}"


def check_tree(top):
    sources = [p for p in sorted(top.glob("src/**/*.[ch]"))]
    prose = sorted(top.glob("docs/**/*.md")) + [top / "README.md", top / "CONTRIBUTING.md", top / "docs/openapi.yaml", top / "man/ripcord.yaml.5"]
    for paths, texts in ((sources, texts_of_source), (prose, texts_of_prose)):
        for path in paths:
            for line, text in texts(path.read_text(encoding="utf-8")):
                for complaint in complaints(text):
                    yield f"{path.relative_to(top)}:{line}: {complaint}"


def self_test():
    yield from (f"missed: {example}" for form, _, example in FORMS if not form.search(example))
    fine = ["there is no daemon", "it is no longer there", "'x' is not a terminal", "one of them is not one of ours"]
    yield from (f"wrongly found: {text}" for text in fine if list(complaints(text)))
    joined = [text for _, text in texts_of_source('f("is " /* no */\n  "no terminal");')]
    if joined != ["is no terminal"]:
        yield f"literals are not joined: {joined}"


if __name__ == "__main__":
    check_lib.main(check_tree, self_test)
