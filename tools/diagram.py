#!/usr/bin/env python3
"""Draws docs/processes.svg from docs/processes.txt, whose first lines describe the format.

    tools/diagram.py            write the drawing
    tools/diagram.py --check    status 1 when the drawing is older than its text

The same text gives the same bytes. The colours follow the reader's light or dark mode.
"""
import shlex
import sys
from html import escape
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"
MARGIN, GAP, ROW, SPACE = 20, 84, 72, 20  # of the drawing, between columns, a row's height, between rows
LINE = 16  # between two lines of text in a box

STYLE = """
  text { font: 12px "DejaVu Sans", Verdana, Helvetica, Arial, sans-serif; fill: #424a53; }
  .title { font-weight: bold; font-size: 14px; fill: #1f2328; }
  .label { font-size: 11px; fill: #59636e; }
  .ground { fill: #ffffff; stroke: #d1d9e0; }
  .box { stroke-width: 1.5; }
  .client { fill: #f6f8fa; stroke: #818b98; }
  .daemon { fill: #ddf4ff; stroke: #0969da; }
  .helper { fill: #fff8e6; stroke: #9a6700; }
  .inside { fill: #ffebe9; stroke: #cf222e; stroke-dasharray: 5 3; }
  .outside { fill: #f6f8fa; stroke: #818b98; }
  .arrow { fill: none; stroke: #59636e; stroke-width: 1.4; }
  .head { fill: #59636e; }
  @media (prefers-color-scheme: dark) {
    text { fill: #c9d1d9; }
    .title { fill: #f0f6fc; }
    .label { fill: #9198a1; }
    .ground { fill: #0d1117; stroke: #3d444d; }
    .client { fill: #151b23; stroke: #656c76; }
    .daemon { fill: #0c2d4f; stroke: #4493f8; }
    .helper { fill: #2f2410; stroke: #d29922; }
    .inside { fill: #3a1618; stroke: #f85149; }
    .outside { fill: #151b23; stroke: #656c76; }
    .arrow { stroke: #9198a1; }
    .head { fill: #9198a1; }
  }
"""


class Box:
    def __init__(self, column, row, rows, kind, texts):
        self.column, self.row, self.rows, self.kind, self.texts = int(column), int(row), int(rows), kind, texts
        self.x = self.width = 0
        self.y = MARGIN + self.row * (ROW + SPACE)
        self.height = self.rows * (ROW + SPACE) - SPACE

    @property
    def right(self):
        return self.x + self.width

    def middle(self, row):
        """The height at which arrows of a row arrive."""
        return MARGIN + row * (ROW + SPACE) + ROW // 2

    def draw(self):
        yield f'<rect class="box {self.kind}" x="{self.x}" y="{self.y}" width="{self.width}" height="{self.height}" rx="7"/>'
        top = self.y + self.height // 2 - (len(self.texts) - 1) * LINE // 2 + 5
        for i, text in enumerate(self.texts):
            kind = ' class="title"' if i == 0 else ""
            yield f'<text{kind} x="{self.x + self.width // 2}" y="{top + i * LINE}" text-anchor="middle">{escape(text)}</text>'


def parse(text):
    """Columns' widths, boxes by id, arrows."""
    widths, boxes, arrows = {}, {}, []
    for number, line in enumerate(text.splitlines(), 1):
        words = shlex.split(line, comments=True)
        if not words:
            continue
        if words[0] == "column" and len(words) == 3:
            widths[int(words[1])] = int(words[2])
        elif words[0] == "box" and len(words) >= 7:
            boxes[words[1]] = Box(*words[2:6], words[6:])
        elif words[0] == "arrow" and len(words) == 4:
            arrows.append((boxes[words[1]], boxes[words[2]], words[3]))
        else:
            raise SystemExit(f"processes.txt:{number}: unknown line: {line}")
    for box in boxes.values():
        box.x = MARGIN + sum(widths[c] + GAP for c in range(box.column))
        box.width = widths[box.column]
    return widths, boxes, arrows


def head(x, y, left):
    """The point of an arrow that goes to the right, or to the left."""
    back = x + 8 if left else x - 8
    return f'<path class="head" d="M{x} {y}L{back} {y - 4}L{back} {y + 4}Z"/>'


def draw_arrow(source, target, label):
    shared = range(max(source.row, target.row), min(source.row + source.rows, target.row + target.rows))
    if shared:
        y = source.middle(shared[0])
        yield f'<path class="arrow" d="M{source.right} {y}H{target.x - 7}"/>'
        yield head(target.x, y, left=False)
        yield f'<text class="label" x="{(source.right + target.x) // 2}" y="{y - 6}" text-anchor="middle">{escape(label)}</text>'
        return
    # From the left side of one box to the right side of another, one row up or down.
    down = 1 if target.row > source.row else -1
    start, end = source.middle(source.row) + down * 24, target.middle(target.row) - down * 24
    bend = (source.x + target.right) // 2
    yield f'<path class="arrow" d="M{source.x} {start}H{bend}V{end}H{target.right + 7}"/>'
    yield head(target.right, end, left=True)
    yield f'<text class="label" x="{bend - 5}" y="{(start + end) // 2 + 4}" text-anchor="end">{escape(label)}</text>'


def draw(text):
    widths, boxes, arrows = parse(text)
    width = 2 * MARGIN + sum(widths.values()) + GAP * (len(widths) - 1)
    height = max(b.y + b.height for b in boxes.values()) + MARGIN
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img">',
             "<!-- Made by tools/diagram.py from docs/processes.txt: change that file. -->",
             "<title>The processes of ripcord</title>", f"<style>{STYLE}</style>",
             f'<rect class="ground" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>']
    for arrow in arrows:
        parts += draw_arrow(*arrow)
    for box in boxes.values():
        parts += box.draw()
    return "\n".join([*parts, "</svg>", ""])


def main():
    svg = draw((DOCS / "processes.txt").read_text(encoding="utf-8"))
    if "--check" not in sys.argv[1:]:
        (DOCS / "processes.svg").write_text(svg, encoding="utf-8")
    elif (DOCS / "processes.svg").read_text(encoding="utf-8") != svg:
        print("docs/processes.svg does not match docs/processes.txt: run tools/diagram.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
