"""Gold answers as data sets write them are read; a row that cannot be read is named, and left out only where asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from paceline.base.errors import UserError, UserErrors
from paceline.families.reasoning.core.planning.naming import PARTIAL, wrong_problems
from paceline.families.reasoning.core.problems.files import read, read_all


def lines(path: Path, rows: list[Any]) -> str:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return str(path)


@pytest.mark.parametrize(
    ("answer", "truth"),
    [
        (r"117^\circ", "117"),
        (r"204^{\circ}", "204"),
        ("88°", "88"),
        ("$61$", "61"),
        (r"\boxed{007}", "7"),
        (r"\boxed 7", "7"),
        (r"\(540\)", "540"),
        (r"\text{25}", "25"),
        ("16.0", "16"),
        ("x = 31", "31"),
        ("１２", "12"),
    ],
)
def test_gold_numbers_are_read_as_they_are_written(tmp_path: Path, answer: str, truth: str) -> None:
    (found,) = read("aime", lines(tmp_path / "a.jsonl", [{"problem": "How many?", "answer": answer}]))
    assert found.answer == truth


@pytest.mark.parametrize("answer", ["1000^\\circ", "-5", "2 or 3", "\\frac{1}{2}", "many", "\\boxed{3, 4}"])
def test_what_is_no_whole_number_is_named_with_its_row(tmp_path: Path, answer: str) -> None:
    path = lines(tmp_path / "a.jsonl", [{"problem": "How many?", "answer": answer}])
    with pytest.raises(UserError, match=r"a\.jsonl:1:answer: it is '") as caught:
        read("aime", path)
    assert "--allow-partial" in str(caught.value)


@pytest.mark.parametrize(
    ("solution", "truth"),
    [
        (r"so it is $\boxed 9$.", "9"),
        (r"so it is $\boxed 48\%$ of all", "48"),
        (r"so $x=\boxed\frac{5}{7}$", r"\frac{5}{7}"),
        (r"so $x=\boxed\frac57.$", r"\frac57"),
        (r"so it is $\fbox{12}$", "12"),
        (r"so it is $\boxed \text{Monday}$", r"\text{Monday}"),
    ],
)
def test_boxes_without_braces_are_read(tmp_path: Path, solution: str, truth: str) -> None:
    row = {"problem": "What?", "level": "Level 3", "solution": solution}
    (found,) = read("math-500", lines(tmp_path / "m.jsonl", [row]))
    assert found.answer == truth


@pytest.mark.parametrize("level", ["Level ?", "?", None, "", "Level", "unknown"])
def test_a_level_that_is_not_stated_is_0(tmp_path: Path, level: str | None) -> None:
    row = {"problem": "What?", "level": level, "answer": "4"}
    (found,) = read(
        "math-500",
        lines(
            tmp_path / "m.jsonl",
            [
                row,
            ],
        ),
    )
    assert found.level == 0
    del row["level"]
    (found,) = read("math-500", lines(tmp_path / "m.jsonl", [row]))
    assert found.level == 0


def test_a_question_has_as_many_choices_as_its_row(tmp_path: Path) -> None:
    row = {"Question": "Which?", "Correct Answer": "right"}
    row |= {f"Incorrect Answer {n}": f"wrong {n}" for n in range(1, 7)}
    (found,) = read("gpqa", lines(tmp_path / "q.jsonl", [row]))
    assert found.choices == "ABCDEFG"
    assert f"{found.answer}) right" in found.question
    row["Incorrect Answer 6"] = ""
    (found,) = read("gpqa", lines(tmp_path / "q.jsonl", [row]))
    assert found.choices == "ABCDEF"


def test_rows_that_cannot_be_read_are_left_out_named_and_counted_where_that_is_asked(tmp_path: Path) -> None:
    rows: list[Any] = [
        {"problem": "a", "answer": "1"},
        {"problem": "b", "answer": "many"},
        "{no json",
        {"problem": "a", "answer": "1"},
        {"problem": "c", "answer": "3"},
    ]
    path = lines(tmp_path / "a.jsonl", rows)
    with pytest.raises(UserError):
        read("aime", path)
    for found in (read_all("aime", path, allow_partial=True), read_all("aime", path + PARTIAL)):
        assert [p.answer for p in found.problems] == ["1", "3"]
        assert found.facts()["problems_left_out"] == 3
        named = " ".join(found.left_out)
        assert all(f"{path}:{number}" in named for number in (2, 3, 4))
    whole = read_all("aime", lines(tmp_path / "b.jsonl", rows[:1]), allow_partial=True)
    assert whole.facts() == {}
    with pytest.raises(UserError, match="there is no problem; 1 row cannot be read"):
        read_all("aime", lines(tmp_path / "c.jsonl", rows[1:2]), allow_partial=True)


def test_a_suite_asks_for_it_behind_the_source() -> None:
    assert wrong_problems(f"aime:/data/a.jsonl{PARTIAL}") is None
    assert "absolute path" in (wrong_problems(f"aime:a.jsonl{PARTIAL}") or "")
    assert wrong_problems(f"aime:{PARTIAL}") is not None


def test_ten_unreadable_rows_are_told_and_no_more(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", [{"problem": f"q{i}", "answer": "many"} for i in range(50)])
    with pytest.raises(UserErrors) as caught:
        read("aime", path)
    assert len(caught.value.errors) == 10
