"""Tables as LaTeX: booktabs, every text escaped, only what pdfLaTeX has without further fonts."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from paceline.report.tables.results import Table

PACKAGES = ("booktabs", "graphicx")
"""What a document needs for these tables; both are in every distribution of TeX."""
SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "|": "$|$",
    '"': "''",
    "`": r"\textasciigrave{}",
}
"""What means something to LaTeX."""
SYMBOLS = {
    "\u00a0": "~",
    "\u202f": "~",
    "×": r"$\times$",
    "±": r"$\pm$",
    "·": r"$\cdot$",
    "−": "$-$",
    "–": "--",
    "—": "---",
    "…": r"\ldots{}",
    "≈": r"$\approx$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "≠": r"$\neq$",
    "→": r"$\rightarrow$",
    "←": r"$\leftarrow$",
    "↔": r"$\leftrightarrow$",
    "∞": r"$\infty$",
    "√": r"$\surd$",
    "Δ": r"$\Delta$",
    "Σ": r"$\Sigma$",
    "α": r"$\alpha$",
    "β": r"$\beta$",
    "γ": r"$\gamma$",
    "ε": r"$\epsilon$",
    "λ": r"$\lambda$",
    "μ": r"$\mu$",
    "µ": r"$\mu$",
    "σ": r"$\sigma$",
    "τ": r"$\tau$",
    "°": r"$^{\circ}$",
    "§": r"\S{}",
    "ß": r"\ss{}",
    "æ": r"\ae{}",
    "Æ": r"\AE{}",
    "ø": r"\o{}",
    "Ø": r"\O{}",
    "ł": r"\l{}",
    "Ł": r"\L{}",
    "ı": r"\i{}",
    "’": "'",
    "‘": "`",
    "“": "``",
    "”": "''",
    **{char: f"$^{{{digit}}}$" for digit, char in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")},
}
ACCENTS = {
    "\u0300": "`",
    "\u0301": "'",
    "\u0302": "^",
    "\u0303": "~",
    "\u0304": "=",
    "\u0306": "u",
    "\u0307": ".",
    "\u0308": '"',
    "\u030a": "r",
    "\u030b": "H",
    "\u030c": "v",
    "\u0327": "c",
}
"""Combining marks, and the commands that set them in every encoding of fonts."""
HYPHENS = re.compile("-(?=-)")
TEXT_COLUMN = "l"
COMMENT_BREAKS = re.compile(r"[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]+")


def escape(text: str) -> str:
    """Return LaTeX that prints a text.

    A character that the usual fonts lack is printed as its number, such as ``U+4E2D``; line ends become spaces.
    """
    plain = unicodedata.normalize("NFC", " ".join(text.split()))
    # two hyphens would become a dash
    return "-{}".join("".join(map(_char, part)) for part in HYPHENS.split(plain))


def _char(char: str) -> str:
    known = SYMBOLS.get(char) or SPECIAL.get(char)
    if known is not None:
        return known
    if " " <= char <= "~":
        return char
    apart = unicodedata.normalize("NFD", char)
    base, marks = apart[0], apart[1:]
    if base.isascii() and base.isalpha() and marks and all(mark in ACCENTS for mark in marks):
        letter = base
        for mark in marks:
            letter = f"\\{ACCENTS[mark]}{{{letter}}}"
        return letter
    return f"U+{ord(char):04X}"


def comment(lines: Sequence[str]) -> str:
    """Return lines as comments; nothing of a text leaves its line."""
    return "".join(
        f"% {COMMENT_BREAKS.sub(' ', line).encode('ascii', 'replace').decode()}\n" for line in lines
    )


def latex_table(table: Table, label: str) -> str:
    """Return a floating table that is no wider than the text.

    Args:
        table: Of the results.
        label: Behind ``tab:``, for references.
    """
    lines = [
        r"\begin{table}[t]",
        r"\centering",
        rf"\caption{{{escape(table.title)}}}",
        rf"\label{{tab:{label}}}",
        r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        rf"\begin{{tabular}}{{{TEXT_COLUMN * len(table.headers)}}}",
        r"\toprule",
        _row(table.headers),
        r"\midrule",
        *(_row(row) for row in table.rows),
        r"\bottomrule",
        r"\end{tabular}}",
    ]
    under = [*table.notes, *table.failures]
    if under:
        notes = r" \\ ".join(escape(note) for note in under)
        lines += [r"\par\smallskip", rf"\parbox{{\linewidth}}{{\footnotesize {notes}}}"]
    return "\n".join([*lines, r"\end{table}", ""])


def _row(cells: Sequence[str]) -> str:
    # a cell that begins with "[" would be taken for the optional argument of the "\\" before it
    texts = [escape(cell) for cell in cells]
    return " & ".join(f"{{{t}}}" if t.startswith(("[", "*")) else t for t in texts) + r" \\"


def latex_document(tables: Sequence[Table], heads: Sequence[str], *, standalone: bool) -> str:
    """Return all tables.

    Args:
        tables: In their order.
        heads: What stands above them as comments: where the numbers are from.
        standalone: Whether the text is a document of its own; else it is to be read by ``input``.
    """
    needs = [f"needs \\usepackage{{{name}}}" for name in PACKAGES]
    body = "\n".join(latex_table(table, f"paceline-{number}") for number, table in enumerate(tables, 1))
    if not standalone:
        return f"{comment([*heads, *needs])}\n{body}"
    packages = "".join(f"\\usepackage{{{name}}}\n" for name in PACKAGES)
    return (
        f"{comment(heads)}\\documentclass{{article}}\n\\usepackage[T1]{{fontenc}}\n\\usepackage{{textcomp}}\n{packages}"
        f"\\begin{{document}}\n{body}\\end{{document}}\n"
    )
