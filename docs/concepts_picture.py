"""Draws docs/images/concepts.svg: how the terms of docs/explanation/concepts.md belong together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

_WIDTH: Final = 960
_HEIGHT: Final = 520
_STYLE: Final = """
  text { font: 14px sans-serif; fill: #1f2937; text-anchor: middle; }
  .title { font-weight: 600; font-size: 15px; }
  .small { font-size: 12px; fill: #4b5563; }
  .frame { fill: none; stroke: #9ca3af; stroke-dasharray: 5 4; }
  .box { fill: #eef2ff; stroke: #4f46e5; }
  .data { fill: #ecfdf5; stroke: #059669; }
  .fault { fill: #fef2f2; stroke: #dc2626; }
  .arrow { stroke: #374151; stroke-width: 1.5; fill: none; marker-end: url(#head); }
"""


@dataclass(frozen=True, slots=True)
class _Box:
    """A rectangle with a title and one line of text, by its left upper corner."""

    x: int
    y: int
    width: int
    height: int
    title: str
    text: str = ""
    kind: str = "box"

    def svg(self) -> str:
        middle = self.x + self.width // 2
        title_y = self.y + (self.height // 2 - 4 if self.text else self.height // 2 + 5)
        lines = [
            f'<rect class="{self.kind}" x="{self.x}" y="{self.y}" width="{self.width}" '
            f'height="{self.height}" rx="6"/>',
            f'<text class="title" x="{middle}" y="{title_y}">{escape(self.title)}</text>',
        ]
        if self.text:
            lines.append(
                f'<text class="small" x="{middle}" y="{title_y + 19}">{escape(self.text)}</text>'
            )
        return "\n".join(lines)


_BOXES: Final = (
    _Box(70, 110, 170, 70, "Producer", "a client library, in a worker"),
    _Box(365, 110, 230, 70, "Brokers", "streams: partitions, topics, queues"),
    _Box(720, 110, 170, 70, "Consumer", "a client library, in a worker"),
    _Box(365, 215, 230, 50, "Fault", "kill, freeze, cut, ...", "fault"),
    _Box(60, 300, 190, 60, "Sends", "called, acknowledged, failed", "data"),
    _Box(365, 300, 230, 60, "Log", "read completely after the load", "data"),
    _Box(720, 300, 170, 60, "Deliveries", "given, confirmed, refused", "data"),
    _Box(290, 435, 380, 60, "Verdict", "pass, fail or unknown; findings with example messages"),
)
#: From x, y to x, y, with a text above the middle.
_ARROWS: Final = (
    (240, 145, 363, 145, "lanes"),
    (595, 145, 718, 145, "groups"),
    (480, 215, 480, 182, ""),
    (155, 180, 155, 298, ""),
    (520, 265, 520, 298, ""),
    (805, 180, 805, 298, ""),
    (155, 360, 330, 433, ""),
    (480, 360, 480, 433, ""),
    (805, 360, 630, 433, ""),
)


def concepts_picture() -> str:
    """The picture as an SVG document."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        'aria-label="A round: producers send lanes of messages to brokers, consumers read them, faults hit '
        'the brokers; sends, log and deliveries are captured and compared for the verdict">',
        f"<style>{_STYLE}</style>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="#374151"/></marker></defs>',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        '<rect class="frame" x="20" y="20" width="920" height="490" rx="8"/>',
        '<text class="title" x="480" y="44">Scenario: brokers, load, faults, requirements; '
        "one or more variants</text>",
        '<rect class="frame" x="45" y="60" width="870" height="335" rx="8"/>',
        '<text x="480" y="84">Round: one run of one variant, with a seed</text>',
        *(box.svg() for box in _BOXES),
        '<text class="small" x="105" y="382">captured data</text>',
    ]
    for x1, y1, x2, y2, text in _ARROWS:
        parts.append(f'<path class="arrow" d="M{x1},{y1} L{x2},{y2}"/>')
        if text:
            parts.append(
                f'<text class="small" x="{(x1 + x2) // 2}" y="{y1 - 8}">{escape(text)}</text>'
            )
    return "\n".join([*parts, "</svg>"]) + "\n"
