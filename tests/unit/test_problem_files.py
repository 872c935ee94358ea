"""Published problems from files and from the hub's cache; mistakes are told by file, line and key."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.base.errors import PrerequisiteError, UserError, UserErrors
from paceline.families.reasoning.core.problems import rows as problems_rows
from paceline.families.reasoning.core.problems.files import FORMATS, TextProblem, draw, fingerprint, read

REVISION = "0123456789abcdef0123456789abcdef01234567"

GSM8K = [
    {"question": "How many eggs?", "answer": "She has 16 - 3 = <<16-3=13>>13.\n#### 13"},
    {"question": "How many dollars?", "answer": "#### 1,234"},
    {"question": "How much is left?", "answer": "Half.\n#### -0.50"},
]
MATH = [
    {
        "problem": "Compute $1+1$.",
        "solution": "It is $\\boxed{2}$.",
        "answer": "2",
        "subject": "Prealgebra",
        "level": 1,
        "unique_id": "test/prealgebra/1.json",
    },
    {
        "problem": "Where?",
        "answer": "\\left( 3, \\frac{\\pi}{2} \\right)",
        "subject": "Precalculus",
        "level": 5,
    },
]
GPQA = {
    "Question": "Which energy?",
    "Correct Answer": "10^-4 eV\n",
    "Incorrect Answer 1": "10^-8 eV",
    "Incorrect Answer 2": "10^-9 eV",
    "Incorrect Answer 3": "10^-11 eV",
    "Explanation": None,
}


def lines(path: Path, rows: Sequence[Any]) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def message(format_name: str, source: Path | str, **options: Any) -> str:
    with pytest.raises(UserError) as caught:
        read(format_name, str(source), **options)
    return str(caught.value)


def made(count: int) -> list[TextProblem]:
    return [
        TextProblem(key=i * 7919 % 1009, level=i % 5 + 1, question=f"q{i}", answer=str(i), kind="number")
        for i in range(count)
    ]


def test_gsm8k_answers_are_the_numbers_behind_the_mark(tmp_path: Path) -> None:
    found = read("gsm8k", str(lines(tmp_path / "test.jsonl", [*GSM8K, ""])))
    assert [(p.question, p.answer, p.kind, p.level) for p in found] == [
        ("How many eggs?", "13", "number", 0),
        ("How many dollars?", "1234", "number", 0),
        ("How much is left?", "-1/2", "number", 0),
    ]


def test_math_answers_stay_formulas_and_levels_are_kept(tmp_path: Path) -> None:
    older = {"problem": "Older?", "solution": "So $\\boxed{\\frac{1}{2}}$.", "level": "Level 3"}
    found = read("math-500", str(lines(tmp_path / "math.jsonl", [*MATH, older])))
    assert [(p.answer, p.level, p.kind) for p in found] == [
        ("2", 1, "math"),
        ("\\left( 3, \\frac{\\pi}{2} \\right)", 5, "math"),
        ("\\frac{1}{2}", 3, "math"),
    ]


@pytest.mark.parametrize(
    ("row", "answer"),
    [
        ({"id": 60, "problem": "Every morning?", "answer": "204", "year": "2024"}, "204"),
        ({"ID": "2024-I-1", "Problem": "Every morning?", "Answer": 25, "Solution": "no box"}, "25"),
        ({"question": "Every morning?", "answer": "033"}, "33"),
        ({"problem": "Every morning?", "solution": "\\boxed{073}", "url": "…"}, "73"),
        ({"problem": "Every morning?", "answer": 0.0}, "0"),
    ],
)
def test_aime_is_read_as_its_data_sets_spell_it(tmp_path: Path, row: dict[str, Any], answer: str) -> None:
    (found,) = read("aime", str(lines(tmp_path / "aime.jsonl", [row])))
    assert (found.question, found.answer, found.kind) == ("Every morning?", answer, "number")


def test_choices_come_in_an_order_that_seed_and_row_decide(tmp_path: Path) -> None:
    rows = [{**GPQA, "Question": f"Which of {i}?"} for i in range(40)]
    path = str(lines(tmp_path / "gpqa.jsonl", rows))
    found = read("gpqa", path)
    assert found == read("gpqa", path)
    for one in found:
        right = next(line for line in one.question.splitlines() if line.startswith(f"{one.answer}) "))
        assert right.endswith("10^-4 eV")
        assert one.kind == "choice"
    assert {one.answer for one in found} == set("ABCD")
    other = read("gpqa", path, seed=1)
    assert [p.key for p in other] == [p.key for p in found]
    assert [p.answer for p in other] != [p.answer for p in found]
    lines(tmp_path / "gpqa.jsonl", rows[::-1])
    assert read("gpqa", path) == found[::-1]


def test_every_kind_of_file_gives_the_same_problems(tmp_path: Path) -> None:
    wanted = read("gsm8k", str(lines(tmp_path / "a.jsonl", GSM8K)))
    (tmp_path / "a.json").write_text(json.dumps(GSM8K))
    with (tmp_path / "a.csv").open("w", newline="", encoding="utf-8-sig") as file:
        writer = csv.DictWriter(file, ["question", "answer"])
        writer.writeheader()
        writer.writerows(GSM8K)
    pq.write_table(pa.Table.from_pylist(GSM8K), tmp_path / "a.parquet")
    for suffix in ("json", "csv", "parquet"):
        assert read("gsm8k", str(tmp_path / f"a.{suffix}")) == wanted, suffix
    assert "datasets" not in sys.modules  # a rank keeps to torch and numpy


@pytest.mark.parametrize(
    ("format_name", "rows", "told"),
    [
        ("gsm8k", [GSM8K[0], "{not json"], r":2: it is no JSON"),
        (
            "gsm8k",
            ['{"question": "a", "question": "b"}'],
            ":1: it is no JSON: the key 'question' is there twice",
        ),
        ("gsm8k", ["[1, 2]"], "row 0: it is int, and no row"),
        ("gsm8k", ["7"], ":1: it is int, and no row"),
        ("gsm8k", [{"question": "a"}], ":1:answer: the field is missing"),
        ("gsm8k", [{"question": "a", "answer": "42"}], ":1:answer: it does not end in a number"),
        ("gsm8k", [{"question": "a", "answer": "#### many"}], ":1:answer: it does not end in a number"),
        ("gsm8k", [{"question": 5, "answer": "#### 1"}], ":1:question: it is int"),
        ("gsm8k", [{"question": " ", "answer": "#### 1"}], ":1:question: it is empty"),
        ("gsm8k", ['{"question": NaN, "answer": "#### 1"}'], ":1:question: it is NaN"),
        ("gsm8k", [{"question": None, "answer": "#### 1"}], ":1:question: it is NoneType"),
        ("math-500", [{**MATH[0], "level": 6}], ":1:level: it is 6"),
        ("math-500", [{**MATH[0], "level": True}], ":1:level: it is True"),
        ("math-500", [{**MATH[0], "answer": ["2"]}], ":1:answer: it is list"),
        ("math-500", [{"problem": "a", "level": 1, "solution": "none"}], ":1:solution: it has no box"),
        ("aime", [{"problem": "a", "answer": 1000}], ":1:answer: it is '1000'"),
        ("aime", [{"problem": "a", "answer": -1}], ":1:answer: it is '-1'"),
        ("aime", [{"problem": "a", "answer": 1.5}], ":1:answer: it is '1.5'"),
        ("aime", ['{"problem": "a", "answer": NaN}'], ":1:answer: it is NaN"),
        ("aime", [{"problem": "a", "answer": False}], ":1:answer: it is bool"),
        (
            "gpqa",
            [{**GPQA, "Incorrect Answer 2": "10^-4 eV"}],
            ":1:Incorrect Answer 2: it is the right answer",
        ),
        ("gpqa", [{**GPQA, "Correct Answer": None}], ":1:Correct Answer: it is NoneType"),
        ("gsm8k", [GSM8K[0], GSM8K[1], GSM8K[0]], ":3: the problem is there twice"),
        ("gsm8k", [], "there is no problem"),
        ("gsm", GSM8K, "did you mean 'gsm8k'?"),
    ],
)
def test_what_is_wrong_with_a_row_is_told_with_its_place(
    tmp_path: Path, format_name: str, rows: list[Any], told: str
) -> None:
    said = message(
        format_name, lines(tmp_path / "p.jsonl" if rows != ["[1, 2]"] else tmp_path / "p.json", rows)
    )
    assert told in said
    assert "expected: " in said


def test_a_repeated_problem_names_its_first_place(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "p.jsonl", [GSM8K[0], {**GSM8K[0], "question": "  How many\neggs?", "answer": "#### 1"}]
    )
    assert f"each problem once; {path}:1 has it" in message("gsm8k", path)


def test_several_mistakes_are_told_together_and_not_hundreds(tmp_path: Path) -> None:
    path = lines(tmp_path / "p.jsonl", [{"question": f"q{i}"} for i in range(300)])
    with pytest.raises(UserErrors) as caught:
        read("gsm8k", str(path))
    assert [error.where for error in caught.value.errors] == [f"{path}:{i}:answer" for i in range(1, 11)]


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("p.csv", b"question,answer\na,#### 1,c\n", ":2: 3 cells"),
        ("p.csv", b'question,answer\n"a,#### 1\n', "it is no CSV"),
        ("p.csv", b'question,answer\n"a\nb",#### 1\nc,none\n', ":4:answer: it does not end"),
        ("p.jsonl", b'{"question": "\xff"}\n', ":1: byte 14 is no UTF-8"),
        ("p.json", b"[{", "p.json: it is no JSON"),
        ("p.txt", b"a", "files ending in '.txt' are not read"),
        ("p.parquet", b"no table", "it cannot be read: "),
    ],
)
def test_a_file_that_cannot_be_read_is_told_with_the_place(
    tmp_path: Path, name: str, content: bytes, told: str
) -> None:
    (tmp_path / name).write_bytes(content)
    assert told in message("gsm8k", tmp_path / name)


def test_a_missing_source_is_told(tmp_path: Path) -> None:
    assert "there is no such file" in message("gsm8k", tmp_path / "none.jsonl")
    assert "the folder has no such file" in message("gsm8k", tmp_path)
    assert "a data set of the hub as NAME@REVISION" in message("gsm8k", "openai/gsm8k")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return where a revision of someone/problems lies in the hub's cache, which is asked without a network."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    folder = tmp_path / "hub" / "hub" / "datasets--someone--problems" / "snapshots" / REVISION
    folder.mkdir(parents=True)
    return folder


def test_a_revision_of_the_hub_is_read_from_its_cache_by_the_formats_part_and_split(hub: Path) -> None:
    parts = "".join(
        f"- config_name: {name}\n  data_files:\n  - split: train\n    path: {name}-train.jsonl\n"
        f"  - split: test\n    path: {name}-test.jsonl\n"
        for name in ("main", "socratic")
    )
    (hub / "README.md").write_text(f"---\nconfigs:\n{parts}---\n")
    for name, row in (("main-train", 0), ("main-test", 1), ("socratic-train", 2), ("socratic-test", 2)):
        lines(hub / f"{name}.jsonl", [GSM8K[row]])
    (found,) = read("gsm8k", f"someone/problems@{REVISION}")
    assert found.answer == "1234"
    said = message("gsm8k", f"someone/problems@{REVISION}", split="dev")
    assert "it has no split 'dev' in its configuration 'main'; there are: train, test" in said
    other = message("gsm8k", f"someone/problems@{REVISION[::-1]}")
    assert f"someone/problems@{REVISION[::-1]}: it cannot be read: " in other
    assert f"hf download --repo-type dataset --revision {REVISION[::-1]} someone/problems" in other


def test_a_missing_library_names_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyarrow").mkdir()
    (tmp_path / "pyarrow" / "__init__.py").write_text("raise ImportError\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    (tmp_path / "a.parquet").write_bytes(b"")
    with pytest.raises(PrerequisiteError, match=r"pip install 'paceline\[hf\]'"):
        read("gsm8k", str(tmp_path / "a.parquet"))


def test_reading_that_takes_too_long_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*_: object, **__: object) -> None:
        raise subprocess.TimeoutExpired("read", 1)

    monkeypatch.setattr(problems_rows.subprocess, "run", slow)
    assert "it was not read within 3600 s" in message("gsm8k", f"someone/problems@{REVISION}")


@given(seed=st.integers(0, 1 << 40), count=st.integers(0, 30), fewer=st.integers(0, 30))
def test_fewer_of_a_draw_are_the_beginning_of_more(seed: int, count: int, fewer: int) -> None:
    problems = made(30)
    more = draw(problems, seed, max(count, fewer))
    assert draw(problems[::-1], seed, min(count, fewer)) == more[: min(count, fewer)]
    assert len({p.key for p in more}) == len(more)


def test_a_draw_keeps_to_its_levels_and_to_what_there_is() -> None:
    problems = made(30)
    assert {p.level for p in draw(problems, 3, 12, levels=(2, 4))} == {2, 4}
    assert draw(problems, 3, 10) != draw(problems, 4, 10)
    with pytest.raises(UserError, match=r"13 problems asked for, and there are 12 of the levels 2, 4"):
        draw(problems, 3, 13, levels=(2, 4))
    counts = [0] * 30
    for seed in range(600):
        counts[int(draw(problems, seed, 1)[0].answer)] += 1
    assert min(counts) > 5


def test_a_fingerprint_tells_every_change_and_the_order() -> None:
    problems = made(5)
    changed = [replace(problems[0], answer="99"), *problems[1:]]
    marks = {fingerprint(p) for p in (problems, problems[::-1], problems[:4], changed)}
    assert len(marks) == 4
    assert fingerprint(problems) == fingerprint(made(5))


def test_every_format_is_documented() -> None:
    page = Path(__file__).parents[2] / "docs" / "reasoning-models.md"
    assert not [name for name in FORMATS if f"`{name}`" not in page.read_text()]
