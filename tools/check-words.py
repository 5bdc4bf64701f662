#!/usr/bin/env python3
"""Fails for forms of English that people must read twice.

It reads the string literals (messages, hints, help) and the comments of src/ and include/, README.md, CONTRIBUTING.md,
docs/, the manual page of the configuration, the OpenAPI document, and the shell programs that users and developers see.
CONTRIBUTING.md says how we write.

    tools/check-words.py [FOLDER]     checks the tree below FOLDER (default: this tree)
    tools/check-words.py --self-test  proves that each form is found
"""
import re

import check_lib
from check_lib import blank, line_of

# form, what to write instead, an example
FORMS = [
    (r"(?<![Tt]here )\b(?:is|are) no (?!longer\b|more\b)\w+", "'is not a …'", "standard input is no terminal"),
    (r"(?<![Tt]here )\b(?:is|are) none\b", "'there is no …', 'must be one of …'", "'x' is none of text, man"),
    (r"\b[Ww]hoever\b", "'any client that …'", "for whoever has the token"),
    (r"\b(?:those|everybody|somebody|nobody|one) who\b", "'clients that …', 'processes that …'", "to those who have the token"),
    (r"\b(?:process(?:es)?|(?:program|command|client|caller|daemon|server|helper|peer|guest|sandbox)s?) who\b",
     "'a process that …'", "the process who opens it"),
    (r"\bwho does\b", "the name of the program", "says who does that"),
    (r"\btells?\b", "'shows', 'reports', 'says'", "`ripcord doctor` tells the fix"),
    (r"\blies in no\b", "'is outside …'", "'/etc' lies in no allowed folder"),
    (r"\bnothing is at\b", "'no such …'", "nothing is at '/v1/x'"),
    (r"\bis not one\b(?! of)", "'invalid …'", "signal 99 is not one"),
    (r"\bis not from\b", "'must be between A and B'", "1 is not from 6291456 to 1125899906842624"),
    (r"\bis meant\b", "the name of the thing", "the one that is meant"),
    (r"(?<!\bout )\bof it\b", "'its …', or the name of the thing", "has not sent all of it"),
    (r"(?:\d|%l*[ud]) not\b", "what was counted", "pypi: 0 from the cache, 12 not, 58.9 MiB fetched for it"),
    (r"\b(?:print|show)s? what opens\b", "the name of the thing", "print what opens the daemon over TCP"),
    (r"\b(?:one|those) that nobody\b", "the plural, and 'never'", "one that nobody has used yet is not opened for it"),
    (r"\b[Ww]hat only\b", "the name of the thing", "What only links lead to is known when it is done"),
    # "Docker Hub" is a name, and `hub.*` an old group of keys.
    (r"\b(?:keeper|broom|porter|walls|kin|meddle|(?<!Docker )[Hh]ub(?! ?\.))\b", "the field's own word", "the keeper of the package cache"),
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


def texts_of_comments(source):
    for match in COMMENT.finditer(source):
        yield line_of(source, match.start()), re.sub(r"\s*\n\s*\*?\s*", " ", match.group())


def complaints(text):
    for form, instead, _ in FORMS:
        match = form.search(text)
        if match:
            yield f"'{match.group()}': write {instead}"


SOURCES = ("src/**/*.[ch]", "include/*.h")
PROSE = ("docs/**/*.md", "*.md", "docs/openapi.yaml", "man/*.5", "dev", "tools/dev/*.sh", "tools/*.sh", "images/default/bin/*")


def check_tree(top):
    for patterns, readers in ((SOURCES, (texts_of_source, texts_of_comments)), (PROSE, (texts_of_prose,))):
        for path in sorted({path for pattern in patterns for path in top.glob(pattern) if path.is_file()}):
            source = path.read_text(encoding="utf-8")
            for line, text in (found for reader in readers for found in reader(source)):
                for complaint in complaints(text):
                    yield f"{path.relative_to(top)}:{line}: {complaint}"


def self_test():
    yield from (f"missed: {example}" for form, _, example in FORMS if not form.search(example))
    fine = ["there is no daemon", "NULL: there is none", "it is no longer there", "'x' is not a terminal", "one of them is not one of ours",
            "a user who has the token", "links that lead out of it", "pull from Docker Hub", "the old keys `hub.*`", "exit status 1, not 2"]
    yield from (f"wrongly found: {text}" for text in fine if list(complaints(text)))
    joined = [text for _, text in texts_of_source('f("is " /* no */\n  "no terminal");')]
    if joined != ["is no terminal"]:
        yield f"literals are not joined: {joined}"
    commented = [text for _, text in texts_of_comments("int x; /* NULL: it is\n * no name. */")]
    if not commented or not list(complaints(commented[0])):
        yield f"comments are not joined: {commented}"


if __name__ == "__main__":
    check_lib.main(check_tree, self_test)
