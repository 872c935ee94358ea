"""Matrices and vectors: read by their rows, compared as the library alone compares them."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest

from paceline.families.reasoning.core.answers.text import canonical_formula, tidy
from paceline.families.reasoning.core.grading.free_text import Grader

COLUMN = r"\begin{pmatrix} 6 \\ -1 \\ 9 \end{pmatrix}"
SQUARE = r"\begin{pmatrix} 0 & 3 \\ -5 & 8 \end{pmatrix}"
MATRICES = [
    (COLUMN, COLUMN, True),
    (COLUMN, r"\begin{pmatrix}6\\-1\\9\end{pmatrix}", True),
    (COLUMN, "\\begin{bmatrix}\n6 \\\\\n-1 \\\\\n9\n\\end{bmatrix}", True),
    (COLUMN, r"\begin{pmatrix} 9 \\ -1 \\ 6 \end{pmatrix}", False),
    (COLUMN, r"\begin{pmatrix} 6 \\ 1 \\ 9 \end{pmatrix}", False),
    (COLUMN, r"\begin{pmatrix} 6 & -1 & 9 \end{pmatrix}", False),
    (SQUARE, r"\begin{bmatrix}0&3\\-5&8\end{bmatrix}", True),
    (SQUARE, r"\begin{pmatrix} 0 & -5 \\ 3 & 8 \end{pmatrix}", False),
    (SQUARE, r"\begin{pmatrix} 0 & 3 \\ -5 & 9 \end{pmatrix}", False),
    (
        r"\begin{pmatrix} 2/7 \\ -1/7 \end{pmatrix}",
        r"\begin{pmatrix} \frac27 \\ -\frac17 \end{pmatrix}",
        True,
    ),
    (
        r"\begin{pmatrix} 2/7 \\ -1/7 \end{pmatrix}",
        r"\begin{pmatrix} \frac27 \\ \frac17 \end{pmatrix}",
        False,
    ),
    (r"\begin{pmatrix} \quad 4 \\ \ 2 \end{pmatrix}", r"\begin{pmatrix} 4 \\ 2 \end{pmatrix}", True),
]


@pytest.fixture(scope="module")
def formulas() -> Iterator[Grader]:
    with Grader("math", timeout_s=60) as grader:
        yield grader


@pytest.mark.parametrize(("truth", "answer", "equal"), MATRICES)
def test_matrices_are_compared_as_by_the_library_alone(
    formulas: Grader, truth: str, answer: str, equal: bool
) -> None:
    text = rf"It is $\boxed{{{answer}}}$."
    assert formulas.equal(formulas.extract(text), truth) is equal
    library: Any = importlib.import_module("math_verify")
    alone = library.verify(*(library.parse(rf"\boxed{{{one}}}") for one in (truth, answer)))
    assert alone is equal


def test_a_row_ends_alike_however_it_is_set_and_its_end_is_no_space() -> None:
    ways = [
        COLUMN,
        r"\begin{pmatrix}6\\-1\\9\end{pmatrix}",
        "\\begin{pmatrix}\n6 \\\\\n-1 \\\\[2pt]\n9 \\\\\n\\end{pmatrix}",
    ]
    assert {canonical_formula(way) for way in ways} == {r"\begin{pmatrix}6\\-1\\9\end{pmatrix}"}
    assert tidy(r"1\ 2") == "1 2"


def test_an_array_in_brackets_is_a_matrix_and_space_between_rows_is_none_of_it(formulas: Grader) -> None:
    array = r"\left[\begin{array}{cc} 0 & 3 \\ -5 & 8 \end{array}\right]"
    assert formulas.equal(formulas.extract(rf"\boxed{{{array}}}"), SQUARE)
    spaced = r"\begin{pmatrix} 6 \\[4pt] -1 \\[4pt] 9 \end{pmatrix}"  # which the library alone does not read
    assert formulas.equal(formulas.extract(rf"\boxed{{{spaced}}}"), COLUMN)
    assert not formulas.equal(formulas.extract(rf"\boxed{{{array.replace('3', '4')}}}"), SQUARE)
