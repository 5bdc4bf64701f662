#!/usr/bin/env python3
"""The figures that README.md shows: docs/benchmark.json, and made from it docs/benchmark.svg and the README's table.

    tools/bench-chart.py build/bench/native.json    keep the figures of that run (`./dev bench native` calls it so)
    tools/bench-chart.py                            draw the kept figures again
    tools/bench-chart.py --check                    status 1 when chart or table do not show the kept figures

The same figures give the same bytes. The colours follow the reader's light or dark mode.
"""
import json
import re
import sys
from html import escape
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
KEPT, CHART, README = TOP / "docs/benchmark.json", TOP / "docs/benchmark.svg", TOP / "README.md"
TABLE = re.compile(r"(<!-- benchmark: [^\n]*-->\n).*?(<!-- end of benchmark -->)", re.S)

# Kept name -> the part of native.json and a pattern of the name there.
TIMES = {"run": "ripcord run", "bwrap": "bwrap --unshare-all", "runc": "runc run", "docker_run": "docker run --rm",
         "exec": "ripcord exec", "fork": "fork+exec of /usr/bin/true", "docker_exec": "docker exec"}
FIGURES = {"journal_gb": r"journal, GB/s", "client_gb": r"client, MB/s", "pss_alone": r"the only sandbox, idle: PSS .*",
           "pss_many": r"one of \d+, idle: PSS .*", "daemon_idle": r"daemon, anonymous memory idle, MiB",
           "daemon_many": r"daemon, anonymous memory with \d+ sandboxes, MiB", "docker_memory": r"dockerd \+ containerd RSS, MiB",
           "sandboxes": r"sandboxes", "created": r"created per second", "create_p99": r"create latency, ms", "removed": r"all removed, s"}

# Title of a part of the chart, and the bars: kept name, label.
PANELS = (
    ("Throw-away sandbox: create, run true, end", (
        ("bwrap", "bwrap --unshare-all"), ("run", "ripcord run"), ("runc", "runc run"), ("docker_run", "docker run --rm"))),
    ("Run true in a sandbox that is up", (
        ("fork", "fork and exec alone"), ("exec", "ripcord exec"), ("docker_exec", "docker exec"))),
)

STYLE = """
  text { font: 13px "DejaVu Sans", Verdana, Helvetica, Arial, sans-serif; fill: #424a53; }
  .title { font-weight: bold; font-size: 14px; fill: #1f2328; }
  .small { font-size: 11px; fill: #59636e; }
  .ours { font-weight: bold; fill: #1f2328; }
  .ground { fill: #ffffff; stroke: #d1d9e0; }
  .bar { fill: #afb8c1; }
  .ourbar { fill: #0969da; }
  @media (prefers-color-scheme: dark) {
    text { fill: #c9d1d9; }
    .title, .ours { fill: #f0f6fc; }
    .small { fill: #9198a1; }
    .ground { fill: #0d1117; stroke: #3d444d; }
    .bar { fill: #59636e; }
    .ourbar { fill: #4493f8; }
  }
"""
WIDTH, MARGIN, LEFT, BAR, STEP = 760, 20, 190, 18, 28


def round_off(value):
    """Two digits that mean something; more would be noise."""
    return round(value) if value >= 10 else round(value, 1 if value >= 1 else 2)


def keep(run):
    """The figures of a native.json that are shown. Programs that were not installed are left out."""
    kept = {"cpus": run["machine"]["cpus"], "kernel": ".".join(run["machine"]["kernel"].split(".")[:2]),
            "rounds": run["times"]["ripcord run"]["n"]}
    for name, key in TIMES.items():
        if key in run["times"]:
            kept[name] = round_off(run["times"][key]["p50"])
    for name, pattern in FIGURES.items():
        for key, value in run["figures"].items():
            if re.fullmatch(pattern, key):
                kept[name] = value
    kept["client_gb"] = round(kept["client_gb"] / 1000, 2)
    kept["create_p99"] = round_off(kept["create_p99"]["p99"])
    for name in ("created", "removed", "daemon_idle", "daemon_many", "docker_memory"):
        if name in kept:
            kept[name] = round_off(kept[name])
    return kept


def about(f):
    return f"p50 of up to {f['rounds']} interleaved rounds; {f['cpus']} cores, Linux {f['kernel']}"


def draw(f):
    parts, y = [], MARGIN
    for title, bars in PANELS:
        bars = [(f[name], label) for name, label in bars if name in f]
        scale = (WIDTH - LEFT - MARGIN - 80) / max(value for value, _ in bars)
        y += 16
        parts.append(f'<text class="title" x="{MARGIN}" y="{y}">{escape(title)}</text>')
        y += 12
        for value, label in sorted(bars):
            ours = label.startswith("ripcord")
            width = max(2, round(value * scale))
            kind = ' class="ours"' if ours else ""
            parts += [f'<text{kind} x="{LEFT - 10}" y="{y + 14}" text-anchor="end">{escape(label)}</text>',
                      f'<rect class="{"ourbar" if ours else "bar"}" x="{LEFT}" y="{y}" width="{width}" height="{BAR}" rx="3"/>',
                      f'<text{kind} x="{LEFT + width + 8}" y="{y + 14}">{value} ms</text>']
            y += STEP
        y += 16
    parts.append(f'<text class="small" x="{MARGIN}" y="{y}">{escape("Shorter is better. " + about(f))}</text>')
    height = y + MARGIN - 4
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" role="img">',
        "<!-- Made by tools/bench-chart.py from docs/benchmark.json. -->",
        "<title>Time to run a command in a sandbox</title>", f"<style>{STYLE}</style>",
        f'<rect class="ground" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>', *parts, "</svg>", ""])


def table(f):
    def others(*pairs):
        return ", ".join(f"{label} {f[name]} ms" for name, label in pairs if name in f)

    rows = [("", "ripcord", "others"), ("---", "---", "---"),
            ("`true` in a throw-away sandbox", f"{f['run']} ms",
             others(("bwrap", "`bwrap --unshare-all`"), ("runc", "`runc run`"), ("docker_run", "`docker run --rm`"))),
            ("`true` in a sandbox that is up", f"{f['exec']} ms",
             others(("fork", "fork and exec alone"), ("docker_exec", "`docker exec`"))),
            ("output of a command: into its journal, to a client", f"{f['journal_gb']:.2f} GB/s, {f['client_gb']:.2f} GB/s", ""),
            ("memory of an idle sandbox (PSS)", f"{f['pss_alone']} KiB alone, {f['pss_many']} KiB as one of {f['sandboxes'] + 1:,}", ""),
            (f"memory of the daemon: idle, with {f['sandboxes']:,} sandboxes", f"{f['daemon_idle']} MiB, {f['daemon_many']} MiB",
             f"dockerd and containerd {f['docker_memory']} MiB" if "docker_memory" in f else ""),
            (f"{f['sandboxes']:,} sandboxes: created, removed",
             f"{f['created']} per second (p99 {f['create_p99']} ms), all in {f['removed']} s", "")]
    return "".join("| " + " | ".join(row) + " |\n" for row in rows) + f"\n{about(f)}.\n"


def main():
    given = sys.argv[1:]
    if given and given[0] != "--check":
        run = json.loads(Path(given[0]).read_text(encoding="utf-8"))
        KEPT.write_text(json.dumps(keep(run), indent=2) + "\n", encoding="utf-8")
    figures = json.loads(KEPT.read_text(encoding="utf-8"))
    readme = README.read_text(encoding="utf-8")
    if not TABLE.search(readme):
        raise SystemExit("README.md: the place of the benchmark table is missing")
    wanted = {CHART: draw(figures), README: TABLE.sub(lambda m: m[1] + table(figures) + m[2], readme)}
    if given == ["--check"]:
        stale = [path.relative_to(TOP) for path, text in wanted.items() if path.read_text(encoding="utf-8") != text]
        for path in stale:
            print(f"{path} does not show the figures of docs/benchmark.json: run tools/bench-chart.py")
        return 1 if stale else 0
    for path, text in wanted.items():
        path.write_text(text, encoding="utf-8")
    print("written: docs/benchmark.svg and the table in README.md, from docs/benchmark.json. Commit all three together, or restore "
          "them with git when the machine was not quiet.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
