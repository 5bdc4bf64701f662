"""What the programs tools/check-*.py share: their command line, their self-tests, and positions in texts.

    tools/check-X.py [FOLDER]     checks the tree below FOLDER (default: this tree); prints a line for each problem
    tools/check-X.py --self-test  shows on made-up files that each rule can fail

The exit status is 1 if there is a problem.
"""
import re
import sys
import tempfile
from pathlib import Path

THIS_TREE = Path(__file__).resolve().parents[1]


def main(check_tree, self_test):
    """Ends the program. Both functions return the problems as lines; check_tree gets the folder as a Path."""
    arguments = sys.argv[1:]
    if arguments == ["--self-test"]:
        problems = list(self_test())
    elif len(arguments) > 1 or any(a.startswith("-") for a in arguments):
        sys.exit(f"usage: {sys.argv[0]} [FOLDER | --self-test]")
    else:
        problems = list(check_tree(Path(arguments[0]).resolve() if arguments else THIS_TREE))
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)


def check_made_up(files, check_tree):
    """The problems of a temporary tree that holds these files ({path: text})."""
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        for path, text in files.items():
            (top / path).parent.mkdir(parents=True, exist_ok=True)
            (top / path).write_text(text, encoding="utf-8")
        return list(check_tree(top))


def self_test_of_files(check_tree, bad, good):
    """Each file of bad ({path: (text, words)}) must have a problem that holds its words, and no file of good may have one."""
    found = check_made_up({**{path: text for path, (text, _) in bad.items()}, **good}, check_tree)
    for path, (_, words) in bad.items():
        if not any(problem.startswith(path) and words in problem for problem in found):
            yield f"missed: {path}"
    for problem in found:
        if problem.split(":")[0] in good:
            yield f"wrongly found: {problem}"


def line_of(text, pos):
    """The number of the line that holds this position."""
    return text.count("\n", 0, pos) + 1


def blank(match):
    """A match with all characters but line ends replaced by blanks, so that positions after it stay right."""
    return re.sub(r"[^\n]", " ", match.group())
