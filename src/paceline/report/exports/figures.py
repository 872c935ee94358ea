"""Figures for papers: the site's charts as files of their own, as SVG or PNG.

A file holds its own style, made of the light colours of the site's style sheet, without variables, so that programs
that are no browsers (resvg, Inkscape, rsvg-convert) draw it as the site does.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.analysis.compare import Comparison
from paceline.analysis.evidence import image_class
from paceline.analysis.points import Point
from paceline.base.counting import number_of
from paceline.base.errors import PrerequisiteError, UserError
from paceline.report.boards.standing import Board
from paceline.report.boards.sweeps import sweep_charts
from paceline.report.charts.effects import MOST_ROWS, effect_chart
from paceline.report.charts.svg import NUM_COLOURS, WIDTH
from paceline.report.html import style_sheet
from paceline.report.tables.results import primary_metric

ZOOM = 3
"""Pixels of a PNG for a unit of the drawing: 300 dots per inch where a figure is 7.6 inches wide."""
FONTS = "Liberation Sans, Helvetica, Arial, DejaVu Sans, sans-serif"
NAMED = re.compile(r"--([\w-]+): light-dark\((#[0-9a-fA-F]{6}),")
PROBE = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20">'
    f'<text x="2" y="15" font-family="{FONTS}" font-size="14">M</text></svg>'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One drawing."""

    title: str
    svg: str
    """A file by itself."""


def figures(
    points: Sequence[Point], comparisons: Sequence[Comparison], *, chart: str | None, metrics: Sequence[str]
) -> list[Figure]:
    """Draw points of one or more runs.

    Args:
        points: What is drawn as sweeps.
        comparisons: What is drawn as effects.
        chart: "sweep" or "effects"; None means sweeps, and effects of suites without one.
        metrics: What is drawn; empty means the primary metric of each suite, and what its family wants drawn.

    Raises:
        UserError: Nothing can be drawn so, or there are more effects than a figure holds.
    """
    found: list[Figure] = []
    for board in _boards(points):
        own = [c for c in comparisons if any(c.point is p for p in board.points)]
        sweeps = [] if chart == "effects" else _sweeps(board, metrics)
        found += sweeps
        if chart == "effects" or (chart is None and not sweeps):
            found += _effects(board, own, metrics)
    if not found:
        what = "no number is swept over a parameter" if chart == "sweep" else "no comparison has an effect"
        raise UserError(
            f"nothing to draw: {what}",
            where="--chart",
            expected="a suite with two or more sizes, or techniques beside their baseline",
            fix="--chart=effects" if chart == "sweep" else "paceline compare",
        )
    return found


def _boards(points: Sequence[Point]) -> list[Board]:
    groups: dict[tuple[str, ...], list[Point]] = {}
    for point in points:
        groups.setdefault((point.run.run_id, *point.board), []).append(point)
    return [
        Board(
            suite=own[0].suite,
            family=own[0].family,
            host_class=own[0].board[1],
            runner=own[0].board[2],
            image_class=image_class(own[0].run),
            description="",
            tuning=None,
            points=tuple(own),
            history=(),
            num_superseded=0,
        )
        for own in groups.values()
        if any(p.cells for p in own)
    ]


def _sweeps(board: Board, metrics: Sequence[str]) -> list[Figure]:
    drawn = sweep_charts(board, metrics)
    return [Figure(title=f"{board.suite}: {c.title}", svg=standalone(str(c.graphic))) for c in drawn]


def _effects(board: Board, comparisons: Sequence[Comparison], metrics: Sequence[str]) -> list[Figure]:
    found = []
    for metric in metrics or (primary_metric(board.points),):
        own = [c for c in comparisons if c.metric == metric and c.effect.value == c.effect.value]
        if len(own) > MOST_ROWS:
            raise UserError(
                f"{number_of(len(own), 'effect')} of {metric} in {board.suite} are more than the {MOST_ROWS} "
                "that a figure holds",
                where="--chart=effects",
                fix="--techniques=NAME or --filter=KEY=VALUE chooses some",
            )
        if own:
            title = f"{board.suite}: {metric} against {own[0].point.baseline}"
            found.append(Figure(title=title, svg=standalone(str(effect_chart(own)))))
    return found


def standalone(chart: str) -> str:
    """Return a chart of the site as a file: with its namespace, size, white ground, title and style."""
    head, body = chart.split(">", 1)
    size = re.search(r'viewBox="0 0 (\d+) (\d+)"', head)
    assert size is not None, head
    label = re.search(r'aria-label="([^"]*)"', head)
    head = head.replace(
        "<svg ", f'<svg xmlns="http://www.w3.org/2000/svg" width="{size[1]}" height="{size[2]}" '
    )
    title = f"<title>{label[1]}</title>" if label else ""
    ground = f'<rect width="{size[1]}" height="{size[2]}" fill="#ffffff"/>'
    return f"{head}>{title}<style>{_rules()}</style>{ground}{body}\n"


def _rules() -> str:
    """Return the rules of charts with the light colours of the site's style sheet in the place of variables."""
    colour = dict(NAMED.findall(style_sheet()))
    series = {f"s{i}": colour[f"s{i}"] for i in range(NUM_COLOURS)} | {"base": colour["text"]}
    rules = [
        f"text{{font-family:{FONTS};font-size:12px;fill:{colour['text']}}}",
        f".tick,.axis-name{{fill:{colour['muted']}}}",
        f".grid{{stroke:{colour['line']};fill:none}}",
        f".axis,.none{{stroke:{colour['strong-line']};fill:none}}",
        ".line{stroke-width:2;fill:none;stroke-linejoin:round}",
        ".band{opacity:.12;stroke:none}",
        ".whisker{stroke-width:2;fill:none}",
        ".label{font-weight:bold}",
    ]
    for name, value in series.items():
        rules.append(f".line.{name}{{stroke:{value}}}")
        rules.append(f".dot.{name},.band.{name},text.label.{name}{{fill:{value}}}")
    for name, key in (("good", "good"), ("bad", "bad"), ("open", "muted")):
        rules.append(f".whisker.{name}{{stroke:{colour[key]}}}circle.{name}{{fill:{colour[key]}}}")
    rules.append(".line.d1{stroke-dasharray:6 3}.line.d2{stroke-dasharray:2 3}")
    return "".join(rules)


def png(figure: Figure) -> bytes:
    """Draw a figure as PNG, 2,280 pixels wide.

    Raises:
        PrerequisiteError: resvg-py is not installed, or there is no font.
    """
    try:
        import resvg_py  # noqa: PLC0415 - optional, for PNG alone
    except ImportError:
        raise PrerequisiteError(
            "PNG files need resvg-py", where="--output", fix="pip install resvg-py, or --output=FIGURE.svg"
        ) from None
    # without a font the renderer leaves texts out and says nothing
    probes = [bytes(resvg_py.svg_to_bytes(svg_string=drawn)) for drawn in (PROBE, PROBE.replace(">M<", "><"))]
    if probes[0] == probes[1]:
        raise PrerequisiteError(
            "this machine has no font, so a PNG would have no texts",
            where="--output",
            fix="apt install fonts-dejavu-core, or --output=FIGURE.svg",
        )
    return bytes(resvg_py.svg_to_bytes(svg_string=figure.svg, width=WIDTH * ZOOM))
