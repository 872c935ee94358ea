"""The benchmark that holds our grader against other people's reads both layouts, and says where the two differ."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
GSM8K = {
    "question": "How many?",
    "ground_truth": "16 - 3 = <<16-3=13>>13\nA: 1,013",
    "small": {"is_correct": True, "solution": "It is 1013.\nA: 1013"},
    "large": {"is_correct": True, "solution": "It is 13.\nA: 13"},
}
MATH = {"gt": "10{,}000", "code": [r"so \boxed{10000}", r"so \boxed{9}"], "score": [False, False], "level": 3}


@pytest.fixture(scope="module")
def compared() -> Callable[[Path], Iterator[str]]:
    """Return the benchmark's function."""
    spec = importlib.util.spec_from_file_location(
        "graded_by_others", ROOT / "benchmarks" / "graded_by_others.py"
    )
    assert spec is not None and spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Callable[[Path], Iterator[str]] = module.compared
    return found


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (GSM8K, ["1 of 2", "we say wrong, they do not: read '13', truth '1013'"]),
        (MATH, ["1 of 2", "we say right, they do not: read '10000', truth '10{,}000'"]),
    ],
    ids=["a verdict a model", "a list of verdicts"],
)
def test_both_layouts_are_read_and_what_differs_is_named(
    row: dict[str, Any], said: list[str], compared: Callable[[Path], Iterator[str]], tmp_path: Path
) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text(json.dumps(row) + "\n")
    printed = list(compared(path))
    assert [text in line for text, line in zip(said, printed, strict=True)] == [True, True], printed


def test_a_row_of_another_layout_is_none(compared: Callable[[Path], Iterator[str]], tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text('{"text": "13"}\n')
    with pytest.raises(ValueError, match="a row has text: neither layout"):
        list(compared(path))
