"""The page ``docs/constants.md``: constants of techniques beside those of their authors, from fidelity cards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from paceline.base.counting import number_of
from paceline.base.techniques.fidelity import Constant
from paceline.base.techniques.technique import TechniqueSource

HEADERS = ("technique", "paper", "constant", "here", "official", "where that stands", "which is")
NOT_COMPARED = "not compared"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One constant of one technique."""

    technique: str
    """``family/name``."""
    paper: str
    """Slug of the ledger; empty for techniques without one."""
    name: str
    constant: Constant


def compared_text(constant: Constant) -> str:
    """Say how a constant stands beside the official one: same, differs and why, or that nobody compared them."""
    if not constant.compared:
        return NOT_COMPARED
    return "same" if constant.same else f"differs: {constant.differs}"


def rows_of(sources: Iterable[TechniqueSource]) -> list[Row]:
    """Return the constants of all cards, by family and name of their techniques."""
    cards = [(f"{s.info.family}/{s.info.name}", s.info.paper or "", s.info.fidelity) for s in sources]
    return [
        Row(technique=technique, paper=paper, name=name, constant=constant)
        for technique, paper, card in sorted(cards, key=lambda found: found[0])
        if card is not None
        for name, constant in card.constants.items()
    ]


def constants_page(sources: Iterable[TechniqueSource], *, command: str) -> str:
    """Return the page.

    Args:
        sources: All techniques; those without a card have no row.
        command: What writes this page.
    """
    rows = rows_of(sources)
    compared = [row for row in rows if row.constant.compared]
    return "\n".join((*_how_to_read(rows, compared, command), *_table(compared), *_rest(rows))) + "\n"


def _how_to_read(rows: Sequence[Row], compared: Sequence[Row], command: str) -> Iterator[str]:
    same = sum(row.constant.same for row in compared)
    techniques = {row.technique for row in compared}
    yield "# Constants beside the authors'"
    yield ""
    yield (
        f"Written by `{command}` from the techniques' [fidelity cards](adding-a-technique.md). For readers who ask "
        "whether a technique runs with the numbers of its paper."
    )
    yield ""
    yield (
        f"{number_of(len(rows), 'constant')} on cards: {same} same, {len(compared) - same} that differ by a declared "
        f"deviation, {len(rows) - len(compared)} not compared. {number_of(len(techniques), 'technique')} of "
        f"{len({row.technique for row in rows})} with constants have one at least that was compared. `here` is the "
        "default; a suite may set another one. What differs says why: `paceline validate` refuses a card that does not."
    )
    yield ""


def _table(rows: Sequence[Row]) -> Iterator[str]:
    yield _line(HEADERS)
    yield _line("---" for _ in HEADERS)
    for row in rows:
        given = row.constant
        cells = (
            row.name,
            f"`{given.here}`",
            f"`{given.official}`",
            given.source,
            compared_text(given),
        )
        yield _line((row.technique, row.paper, *cells))


def _rest(rows: Sequence[Row]) -> Iterator[str]:
    yield ""
    yield "## Not compared"
    yield "Nobody read an official value beside these for their card; what it says of the authors' stands behind them."
    yield ""
    yield _line(("technique", "constants"))
    yield _line(("---", "---"))
    left: dict[str, list[str]] = {}
    for row in rows:
        if not row.constant.compared:
            left.setdefault(row.technique, []).append(f"{row.name} ({row.constant.authors})")
    for technique, told in left.items():
        yield _line((technique, "; ".join(told)))


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(" ".join(cell.replace("|", "\\|").split()) for cell in cells) + " |"
