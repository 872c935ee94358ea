r"""Published sets in the layouts that their files have, quirks of their rows included, and tables of one's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from paceline.base.errors import UserError, UserErrors
from paceline.families.reasoning.core.problems.files import read
from paceline.families.reasoning.core.problems.tables import Columns
from paceline.workflows.evaluation.asked import Asked, problems_of


def written(tmp_path: Path, *rows: dict[str, Any]) -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


LAYOUTS: list[tuple[str, dict[str, Any], str, str]] = [
    # AI-MO/aimo-validation-amc holds floats
    ("amc", {"id": 4, "problem": "P", "answer": 142.0, "url": "u"}, "P", "142"),
    ("amc", {"id": 5, "problem": "P", "answer": 0.5, "url": "u"}, "P", "1/2"),
    # Hothan/OlympiadBench: what stands before several questions
    (
        "olympiadbench",
        {
            "question": "Find $T$.",
            "final_answer": ["$\\frac{2}{3}$"],
            "context": "Let $T = 1$.",
            "image_1": None,
        },
        "Let $T = 1$.\n\nFind $T$.",
        r"\frac{2}{3}",
    ),
    # openai/gsm8k
    ("gsm8k", {"question": "How many?", "answer": "48/2 = <<48/2=24>>24\n#### 1,072"}, "How many?", "1072"),
    # hendrycks/competition_math
    (
        "math-500",
        {"problem": "Find x.", "level": "Level ?", "type": "Geometry", "solution": r"So $x=\boxed 5$."},
        "Find x.",
        "5",
    ),
    (
        "math-500",
        {"problem": "P", "level": "Level 5", "type": "Algebra", "solution": r"\fbox{\frac12}"},
        "P",
        r"\frac12",
    ),
    # Maxwell-Jia/AIME_2024, HuggingFaceH4/aime_2024, opencompass/AIME2025 (both parts), math-ai/aime25
    ("aime", {"ID": "2024-II-4", "Problem": "P", "Solution": "S", "Answer": 33}, "P", "33"),
    (
        "aime",
        {"id": 60, "problem": "P", "solution": "S", "answer": "033", "url": "u", "year": "2024"},
        "P",
        "33",
    ),
    ("aime", {"question": "Q", "answer": r"336^\circ"}, "Q", "336"),
    ("aime", {"problem": "P", "answer": "70", "id": "0"}, "P", "70"),
    # AI-MO/aimo-validation-amc, math-ai/amc23
    ("amc", {"id": 0, "problem": "P", "answer": 142.0, "url": "u"}, "P", "142"),
    ("amc", {"id": 0, "question": "Q", "answer": "27.0", "url": "u"}, "Q", "27"),
    # Hothan/OlympiadBench, He et al., 2024
    (
        "olympiadbench",
        {
            "id": 1606,
            "question": "Q",
            "solution": ["S"],
            "final_answer": ["$\\frac{1}{2}$", "$3$"],
            "is_multiple_answer": True,
            "unit": None,
            "answer_type": "Numerical",
            "image_1": None,
        },
        "Q",
        r"\frac{1}{2}, 3",
    ),
    # ChilleD/SVAMP, and the authors' SVAMP.json
    (
        "svamp",
        {
            "ID": "chal-1",
            "Body": "Each pack is 76",
            "Question": "How much?",
            "Answer": 228.0,
            "Equation": "(76*3)",
            "Type": "M",
        },
        "Each pack is 76. How much?",
        "228",
    ),
    # math-ai/minervamath
    ("minerva", {"question": "Q", "answer": "4.49e33"}, "Q", "4.49e33"),
]


@pytest.mark.parametrize(("form", "row", "question", "answer"), LAYOUTS)
def test_a_row_of_a_published_layout_is_understood(
    tmp_path: Path, form: str, row: dict[str, Any], question: str, answer: str
) -> None:
    (one,) = read(form, str(written(tmp_path, row)))
    assert (one.question, one.answer) == (question, answer)


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("gsm8k", {"question": "Q", "answer": "no number"}, "answer"),
    ("math-500", {"problem": "P", "level": "Level 6", "solution": r"\boxed{1}"}, "level"),
    ("math-500", {"problem": "P", "solution": "no box"}, "solution"),
    ("aime", {"problem": "P", "answer": "1000"}, "answer"),
    ("amc", {"problem": "P", "answer": "(B)"}, "answer"),
    ("olympiadbench", {"question": "Prove it.", "final_answer": []}, "final_answer"),
    ("olympiadbench", {"question": "See <image_1>.", "final_answer": ["1"]}, "question"),
    ("svamp", {"Body": "B", "Question": "Q", "Answer": "many"}, "Answer"),
]


@pytest.mark.parametrize(("form", "row", "key"), REFUSED)
def test_a_row_that_cannot_be_read_is_named_and_left_out_on_request(
    tmp_path: Path, form: str, row: dict[str, Any], key: str
) -> None:
    good = next(known for name, known, _, _ in LAYOUTS if name == form)
    path = written(tmp_path, good, row)
    with pytest.raises(UserError, match=rf"rows\.jsonl:2:{key}: .*\n(?:.*\n)*.*--allow-partial"):
        problems_of(Asked(source=f"{form}:{path}"))
    found = problems_of(Asked(source=f"{form}:{path}", partial=True))
    assert len(found.problems) == 1
    assert len(found.left_out) == 1 and f"rows.jsonl:2:{key}" in found.left_out[0]


def test_a_table_of_ones_own_is_read_by_its_columns(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text('frage,loesung,thema\n"Was ist 2+3?",5,a\n"Was ist 2,5*2?","1,000",b\n')
    columns = Columns(questions=("frage",), answers=("loesung",))
    found = problems_of(Asked(source=str(path), columns=columns))
    assert [(one.question, one.answer, one.kind) for one in found.problems] == [
        ("Was ist 2+3?", "5", "number"),
        ("Was ist 2,5*2?", "1000", "number"),
    ]
    with pytest.raises(UserErrors, match=r"mine\.csv:2:question: the field is missing"):
        problems_of(Asked(source=str(path)))
    path.write_text('question,answer\n"What is x?","$x^2$"\n"And y?",3\n')
    assert {one.kind for one in problems_of(Asked(source=str(path))).problems} == {"math"}
    with pytest.raises(UserError, match="a number; --answers=math reads formulas"):
        problems_of(Asked(source=str(path), kind="number"))
    with pytest.raises(UserError, match="no kind 'numbers'"):
        problems_of(Asked(source=str(path), kind="numbers"))
    with pytest.raises(UserError, match="no format 'gsm9k'"):
        problems_of(Asked(source="gsm9k:/nowhere.jsonl"))
    with pytest.raises(UserError, match="says its columns and answers itself"):
        problems_of(Asked(source=f"gsm8k:{path}", columns=columns))


@pytest.mark.parametrize(
    ("row", "names", "answer"),
    [
        ({"question": "Q", "choices": ["r", "s", "t"], "answer": 2}, ("choices",), "C"),
        ({"question": "Q", "choices": ["r", "s", "t"], "answer": "b"}, ("choices",), "B"),
        ({"question": "Q", "choices": ["r", "s", "t"], "answer": "s"}, ("choices",), "B"),
        (
            {"question": "Q", "choices": {"text": ["r", "s"], "label": ["A", "B"]}, "answer": "A"},
            ("choices",),
            "A",
        ),
        ({"question": "Q", "one": "r", "two": "s", "answer": "s"}, ("one", "two"), "B"),
    ],
)
def test_choices_are_a_list_or_columns(
    tmp_path: Path, row: dict[str, Any], names: tuple[str, ...], answer: str
) -> None:
    columns = Columns(choices=names)
    (one,) = problems_of(Asked(source=str(written(tmp_path, row)), columns=columns)).problems
    assert (one.kind, one.answer) == ("choice", answer)
    assert one.question.startswith("Q\n\nA) r\nB) s")
    with pytest.raises(UserError, match="a letter of"):
        problems_of(Asked(source=str(written(tmp_path, {**row, "answer": "none"})), columns=columns))


def test_fewer_questions_are_drawn_by_the_seed(tmp_path: Path) -> None:
    path = written(tmp_path, *({"question": f"Q{n}", "answer": n} for n in range(20)))
    drawn = [problems_of(Asked(source=str(path), count=5, seed=seed)).problems for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_a_folder_stands_for_its_files_as_math_is_published(tmp_path: Path) -> None:
    """The archive of MATH has a file for each problem, in a folder for each subject."""
    for place, (subject, answer) in enumerate((("algebra", "2"), ("algebra", "3"), ("geometry", "5"))):
        folder = tmp_path / ".data" / "MATH" / "test" / subject
        folder.mkdir(parents=True, exist_ok=True)
        row = {
            "problem": f"P{place}",
            "level": "Level 1",
            "type": subject,
            "solution": rf"So \boxed{{{answer}}}.",
        }
        (folder / f"{place}.json").write_text(json.dumps(row, indent=4))
    (tmp_path / ".data" / "MATH" / ".cache").mkdir()
    (tmp_path / ".data" / "MATH" / ".cache" / "x.json").write_text("{}")
    (tmp_path / ".data" / "MATH" / "README.md").write_text("no rows")
    found = read("math-500", str(tmp_path / ".data" / "MATH"))
    assert [(one.question, one.answer) for one in found] == [("P0", "2"), ("P1", "3"), ("P2", "5")]
    (tmp_path / ".data" / "MATH" / "test" / "geometry" / "2.json").write_text('{"problem": "P2"}')
    with pytest.raises(UserError, match="the field is missing") as told:
        read("math-500", str(tmp_path / ".data" / "MATH"))
    assert "geometry/2.json" in str(told.value.where)


def test_both_parts_of_a_contest_are_a_folder(tmp_path: Path) -> None:
    for part, answer in (("I", "70"), ("II", "468")):
        row = {"question": f"Of part {part}", "answer": answer}
        (tmp_path / f"aime2025-{part}.jsonl").write_text(json.dumps(row) + "\n")
    assert sorted(one.answer for one in read("aime", str(tmp_path))) == ["468", "70"]


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_a_table_may_be_separated_as_programs_for_tables_do(tmp_path: Path, mark: str) -> None:
    path = tmp_path / "own.csv"
    cells = (("Nr", "Frage", "Antwort"), ("1", '"Was ist 2+2, und 1;\t2?"', "4"))
    path.write_text("".join(mark.join(row) + "\n" for row in cells), encoding="utf-8-sig")
    (one,) = problems_of(
        Asked(source=str(path), columns=Columns(questions=("Frage",), answers=("Antwort",)))
    ).problems
    assert (one.question, one.answer, one.kind) == ("Was ist 2+2, und 1;\t2?", "4", "number")
