"""The cases of cases.txt. expected.json has BuildKit's recorded result of each."""
import json
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
EXPECTED = HERE / "expected.json"


@dataclass
class Case:
    name: str
    tags: list
    lines: list = field(default_factory=list)

    @property
    def dockerfile(self):
        text = "".join(self.lines)
        if "escaped" not in self.tags:
            return text.encode()
        return text.rstrip("\n").encode().decode("unicode_escape").encode("latin-1")

    @property
    def args(self):
        return dict(tag[4:].split("=", 1) for tag in self.tags if tag.startswith("arg:"))

    @property
    def target(self):
        return next((tag[7:] for tag in self.tags if tag.startswith("target:")), "")

    def ours(self, program):
        """The answer of our parser: build/test/unit/dockerfile-config."""
        with tempfile.NamedTemporaryFile() as f:
            f.write(self.dockerfile)
            f.flush()
            argv = [program, f.name, self.target or "-", *(f"{k}={v}" for k, v in self.args.items())]
            done = subprocess.run(argv, stdout=subprocess.PIPE, check=True, timeout=60)
        return json.loads(done.stdout)


def load():
    cases = []
    for line in (HERE / "cases.txt").read_text("utf-8").splitlines(keepends=True):
        if line.startswith("=== "):
            name, *tags = line[4:].split()
            cases.append(Case(name, tags))
        elif cases:
            cases[-1].lines.append(line)
    names = [c.name for c in cases]
    assert len(names) == len(set(names)), "a name is used twice"
    return cases


def normal(config):
    """The configuration without empty values: Docker writes empty lists, BuildKit leaves them out."""
    kept = {"Env", "Cmd", "Entrypoint", "Shell", "Labels", "ExposedPorts", "Volumes", "OnBuild", "Healthcheck", "User",
            "WorkingDir", "StopSignal"}
    return {k: v for k, v in config.items() if k in kept and v}
