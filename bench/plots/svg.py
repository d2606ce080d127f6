"""A horizontal bar chart as SVG: groups of bars, ours in colour, the peer in grey, whiskers from
the lowest to the highest round.

Light and dark follow the reader's setting; the colours keep their contrast in both.
"""

from dataclasses import dataclass
from html import escape

from .results import Measure

WIDTH, LABELS, FIGURES = 760, 230, 150
BAR, GAP, GROUP = 20, 7, 16

STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2328 }
.title { font-weight: 600; font-size: 15px } .note { fill: #59636e; font-size: 12px }
.group { font-weight: 600 } .ours { fill: #0969da } .peer { fill: #afb8c1 } \
.whisker { stroke: #59636e; stroke-width: 1.2 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .note { fill: #9198a1 } .ours { fill: #4493f8 } .peer { fill: #59636e } \
.whisker { stroke: #b1bac4 }
}
"""


@dataclass(frozen=True)
class Bar:
    label: str
    measure: Measure
    figure: str
    is_ours: bool


@dataclass(frozen=True)
class Chart:
    title: str
    note: str
    groups: dict  # a heading (may be empty) -> bars


def render(chart):
    most = max(bar.measure.high for bars in chart.groups.values() for bar in bars)
    scale = (WIDTH - LABELS - FIGURES) / most
    y, parts = 64, []
    for heading, bars in chart.groups.items():
        if heading:
            parts.append(f'<text class="group" x="12" y="{y + 10}">{escape(heading)}</text>')
            y += GROUP + 6
        for bar in bars:
            parts.append(draw(bar, y, scale))
            y += BAR + GAP
        y += GROUP
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" width="{WIDTH}" '
        f'height="{y}" role="img">',
        f"<title>{escape(chart.title)}</title>",
        f"<style>{STYLE}</style>",
        f'<text class="title" x="12" y="24">{escape(chart.title)}</text>',
        f'<text class="note" x="12" y="44">{escape(chart.note)}</text>',
    ]
    return "\n".join([*head, *parts, "</svg>\n"])


def draw(bar, y, scale):
    width, middle = bar.measure.median * scale, y + BAR / 2
    low, high = LABELS + bar.measure.low * scale, LABELS + bar.measure.high * scale
    kind = "ours" if bar.is_ours else "peer"
    return "\n".join(
        [
            f'<text x="{LABELS - 10}" y="{middle + 4.5:.1f}" '
            f'text-anchor="end">{escape(bar.label)}</text>',
            f'<rect class="{kind}" x="{LABELS}" y="{y}" width="{max(width, 1):.1f}" '
            f'height="{BAR}" rx="2"/>',
            f'<line class="whisker" x1="{low:.1f}" x2="{high:.1f}" y1="{middle:.1f}" '
            f'y2="{middle:.1f}"/>',
            f'<text x="{max(high, LABELS + width) + 8:.1f}" '
            f'y="{middle + 4.5:.1f}">{escape(bar.figure)}</text>',
        ]
    )
