"""Tables in a terminal: as wide as it is, whatever they hold."""

from __future__ import annotations

import re
import shutil
import unicodedata
from collections.abc import Sequence

COLUMNS_ELSEWHERE = 100
"""Columns where standard output is no terminal and ``COLUMNS`` is not set."""
GAP = "  "
LEAST_COLUMN = 8
"""No column of a table that does not fit gets narrower."""
PLACES = re.compile(r"(?:(?<![\d±×−]) | (?=[\[(]))(?![^\[\]]*\])")
"""Spaces at which a line may end: not between a number and its unit, behind a sign, or inside an interval."""
JOINTS = "-_/,"
"""Characters behind which a word that is wider than its column is broken, where it has one."""
HANGING = "  "
"""Indents further lines of a broken text."""


def terminal_width() -> int:
    """Return ``COLUMNS``, else the width of the terminal, else ``COLUMNS_ELSEWHERE``."""
    return shutil.get_terminal_size((COLUMNS_ELSEWHERE, 24)).columns


def display_width(text: str) -> int:
    """Return how many columns a text takes: wide characters two, combining ones and other marks without width none."""
    return sum(_char_width(char) for char in text)


def _char_width(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def wrapped(text: str, width: int | None, indent: str = "") -> str:
    """Break a text into lines that take at most so many columns; without a width it stays as it is."""
    if width is None:
        return indent + text
    lines = _lines(text, max(LEAST_COLUMN, width - len(indent) - len(HANGING)))
    return f"\n{indent}{HANGING}".join([indent + lines[0], *lines[1:]])


def _words(text: str) -> list[str]:
    """Return what lines are made of; an option and its value stay together, so that a command can be pasted."""
    words: list[str] = []
    for word in PLACES.split(text):
        if words and words[-1].startswith("--") and " " not in words[-1] and not word.startswith("-"):
            words[-1] += f" {word}"
        else:
            words.append(word)
    return words


def _lines(text: str, width: int) -> list[str]:
    """Break a text at spaces (``PLACES``), and words that are wider than a line anywhere."""
    lines, line, used = [], "", 0
    for word in _words(text):
        size = display_width(word)
        if line and used + 1 + size <= width:
            line, used = f"{line} {word}", used + 1 + size
            continue
        lines += [line] if line else []
        line, used = word, size
        while used > width:
            head = _head(line, width)
            lines.append(head)
            line = line[len(head) :].lstrip(" ")
            used = display_width(line)
    return [*lines, line]


def _head(word: str, width: int) -> str:
    """Return as much of a word as fits, to its last joint where it has one, and one character at least."""
    used = joint = 0
    for place, char in enumerate(word):
        used += _char_width(char)
        if used > width and place:
            return word[: joint or place]
        if char in JOINTS:
            joint = place + 1
    return word


def laid_out(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    width: int | None,
    leaving: Sequence[str] = (),
) -> tuple[str, tuple[str, ...]]:
    """Lay a table out in columns.

    Columns that may leave do so, from the first on, until the rest fits as it is; then cells of the widest columns are
    broken into lines. The last cell of a row that leaves columns empty may reach into them.

    Args:
        headers: One a column.
        rows: Cells, as many as headers in each row.
        width: Columns of the terminal; None for as many as it takes.
        leaving: Headers of columns that may be left out, the least important first.

    Returns:
        The text, and the headers that were left out.
    """
    kept, left_out = list(range(len(headers))), []
    lines = [list(headers), *map(list, rows)]
    if width is not None:
        for name in leaving:
            if _total(_widths(lines)) <= width or len(kept) == 1:
                break
            places = [i for i, number in enumerate(kept) if headers[number] == name]
            left_out += [name] * bool(places)
            kept = [number for i, number in enumerate(kept) if i not in places]
            lines = [[headers[i] for i in kept], *([row[i] for i in kept] for row in rows)]
    widths = _widths(lines)
    if width is not None:
        widths = _narrowed(widths, [_longest_word(column) for column in zip(*lines, strict=True)], width)
    text = [_line(cells, widths, width) for cells in lines]
    text.insert(1, GAP.join("-" * w for w in widths))
    return "\n".join(text), tuple(left_out)


def listed(rows: Sequence[tuple[str, str]], width: int) -> str:
    """Write names with what they are about beside them; further lines of a text begin below its first."""
    widest = max(display_width(name) for name, _ in rows)
    room = max(LEAST_COLUMN, width - widest - len(GAP))
    return "\n".join(_line(row, (widest, room), None) for row in rows)


def _widths(lines: Sequence[Sequence[str]]) -> list[int]:
    """Return the width that each column needs; cells that reach into empty columns need none."""
    widths = [display_width(header) for header in lines[0]]
    for cells in lines[1:]:
        for i, cell in enumerate(cells[: _reaching(cells)]):
            widths[i] = max(widths[i], display_width(cell))
    return widths


def _reaching(cells: Sequence[str]) -> int:
    """Return the place of the cell that reaches into empty ones behind it; the number of cells where none does."""
    last = max((i for i, cell in enumerate(cells) if cell), default=0)
    return last if last < len(cells) - 1 else len(cells)


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _longest_word(column: Sequence[str]) -> int:
    return max(display_width(word) for cell in column for word in PLACES.split(cell))


def _narrowed(widths: Sequence[int], words: Sequence[int], width: int) -> list[int]:
    """Take from the widest columns until a table fits: first what can be had at spaces, then down to the least."""
    found = list(widths)
    for floors in (words, [LEAST_COLUMN] * len(found)):
        while _total(found) > width:
            free = [i for i, size in enumerate(found) if size > max(floors[i], LEAST_COLUMN)]
            if not free:
                break
            found[max(free, key=lambda i: found[i])] -= 1
    return found


def _line(cells: Sequence[str], widths: Sequence[int], width: int | None) -> str:
    """Write a row: as many lines as its highest cell has."""
    columns, reaching = list(widths), _reaching(cells)
    if reaching < len(cells):
        rest = display_width(cells[reaching]) if width is None else width - _total([*columns[:reaching], 0])
        columns = [*columns[:reaching], max(LEAST_COLUMN, rest)]
    broken = [_lines(cell, size) for cell, size in zip(cells, columns, strict=False)]
    lines = []
    for number in range(max(map(len, broken))):
        parts = [lines_of[number] if number < len(lines_of) else "" for lines_of in broken]
        padded = [p + " " * (size - display_width(p)) for p, size in zip(parts, columns, strict=True)]
        lines.append(GAP.join(padded).rstrip())
    return "\n".join(lines)
