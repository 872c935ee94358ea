"""Folders laid out as repositories of data sets on the hub are: ``--configuration`` and ``--split`` choose their files.

Layouts and cards are those of openai/gsm8k, HuggingFaceH4/MATH-500, opencompass/AIME2025, math-ai/amc23 and
Hothan/OlympiadBench; the rows are made here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from evaluation_runs import run
from warm import Warm, warm

from paceline.base.errors import UserError
from paceline.families.reasoning.core.problems import rows as problems_rows
from paceline.families.reasoning.core.problems.folders import files_of, split_of
from paceline.workflows.evaluation.asked import Asked, problems_of

GSM8K_CARD = """---
annotations_creators:
- crowdsourced
language:
- en
license:
- mit
pretty_name: Grade School Math 8K
dataset_info:
- config_name: main
  features:
  - name: question
    dtype: string
  - name: answer
    dtype: string
  splits:
  - name: train
    num_examples: 3
  - name: test
    num_examples: 2
- config_name: socratic
  features:
  - name: question
    dtype: string
  - name: answer
    dtype: string
configs:
- config_name: main
  data_files:
  - split: train
    path: main/train-*
  - split: test
    path: main/test-*
- config_name: socratic
  data_files:
  - split: train
    path: socratic/train-*
  - split: test
    path: socratic/test-*
---

# Dataset Card for GSM8K
"""
AIME_CARD = """---
license: mit
configs:
- config_name: AIME2025-I
  data_files:
  - split: test
    path: aime2025-I.jsonl
- config_name: AIME2025-II
  data_files:
  - split: test
    path: aime2025-II.jsonl
---
"""
AMC_CARD = """---
dataset_info:
  features:
  - name: id
    dtype: int64
  splits:
  - name: test
    num_examples: 2
configs:
- config_name: default
  data_files:
  - split: test
    path: data/test-*
---
"""
OLYMPIAD_PARTS = (
    "OE_MM_maths_en_COMP",
    "OE_TO_maths_en_COMP",
    "OE_TO_physics_en_COMP",
    "TP_TO_maths_en_COMP",
)
OLYMPIAD_CARD = "---\nconfigs:\n" + "".join(
    f'- config_name: {one}\n  data_files:\n  - split: train\n    path: "OlympiadBench/{one}/{one}.parquet"\n'
    for one in OLYMPIAD_PARTS
)
OLYMPIAD_CARD += "---\n"


@pytest.fixture(scope="module")
def libraries() -> Iterator[Warm]:
    # Without threads of pyarrow's allocator: what has some must not fork.
    env = {"JE_ARROW_MALLOC_CONF": "background_thread:false", **problems_rows.WITHOUT_TORCH}
    with warm("pyarrow.parquet", "huggingface_hub", env=env) as process:
        yield process


@pytest.fixture(autouse=True)
def _forked(request: pytest.FixtureRequest, libraries: Warm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork what reads; one test starts it plainly."""
    if request.function is not test_the_command_takes_both_options:
        monkeypatch.setattr(problems_rows, "subprocess", libraries)


def parquet(path: Path, *rows: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(list(rows)), path)


def jsonl(path: Path, *rows: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def gsm8k(folder: Path, card: str = GSM8K_CARD) -> Path:
    """Lay a folder out as openai/gsm8k: both configurations have the same questions."""
    for part, note in (("main", "So"), ("socratic", "How? ** So")):
        for split, numbers in (("train", range(3)), ("test", range(10, 12))):
            rows = ({"question": f"Question {n}?", "answer": f"{note}:\n#### {n}"} for n in numbers)
            parquet(folder / part / f"{split}-00000-of-00001.parquet", *rows)
    if card:
        (folder / "README.md").write_text(card)
    (folder / ".gitattributes").write_text("*.parquet filter=lfs diff=lfs merge=lfs -text\n")
    return folder


def aime(folder: Path, card: str = AIME_CARD) -> Path:
    for part, answer in (("I", "70"), ("II", "468")):
        jsonl(folder / f"aime2025-{part}.jsonl", {"question": f"Of part {part}?", "answer": answer})
    if card:
        (folder / "README.md").write_text(card)
    return folder


def olympiad(folder: Path) -> Path:
    for place, part in enumerate(OLYMPIAD_PARTS):
        row = {
            "id": place,
            "question": f"Of {part}?",
            "final_answer": [str(place)],
            "is_multiple_answer": False,
        }
        parquet(folder / "OlympiadBench" / part / f"{part}.parquet", row)
    (folder / "README.md").write_text(OLYMPIAD_CARD)
    return folder


def answers(source: str, configuration: str | None = None, split: str | None = None) -> list[str]:
    found = problems_of(Asked(source=source, configuration=configuration, split=split))
    return [one.answer for one in found.problems]


def refused(source: str, configuration: str | None = None, split: str | None = None) -> UserError:
    with pytest.raises(UserError) as told:
        answers(source, configuration, split)
    return told.value


@pytest.mark.parametrize("card", [GSM8K_CARD, ""], ids=["card", "names alone"])
def test_gsm8k_is_read_by_configuration_and_split(tmp_path: Path, card: str) -> None:
    folder = gsm8k(tmp_path, card)
    assert answers(f"gsm8k:{folder}", "main", "test") == ["10", "11"]
    # Unless they are named, the format's configuration and the split test are read.
    assert answers(f"gsm8k:{folder}") == ["10", "11"]
    assert answers(f"gsm8k:{folder}", None, "train") == ["0", "1", "2"]
    assert answers(f"gsm8k:{folder}", "socratic", "train") == ["0", "1", "2"]
    assert answers(f"gsm8k:{folder}/main", None, "test") == ["10", "11"]
    other = refused(f"gsm8k:{folder}", "mian", "test")
    assert (
        "it has no configuration 'mian'" in other.what and "main" in str(other) and "socratic" in str(other)
    )
    split = refused(f"gsm8k:{folder}", "main", "validation")
    there = "train, test" if card else "test, train"
    assert split.what == f"it has no split 'validation' in its configuration 'main'; there are: {there}"
    twice = refused(f"gsm8k:{folder}", "main,socratic", "test")
    assert "the problem is there twice" in str(twice) and "socratic/test-00000-of-00001.parquet" in str(twice)


def test_the_command_takes_both_options(tmp_path: Path) -> None:
    folder = gsm8k(tmp_path / "gsm8k")
    done = run(
        "--model=mock:right=1",
        f"--problems=gsm8k:{folder}",
        "--configuration=socratic",
        "--split=train",
        "--methods=greedy",
        f"--output={tmp_path / 'out'}",
    )
    assert [row.status for row in done.outcome.rows] == ["answered"] * 3


def test_both_parts_of_aime_2025_are_read(tmp_path: Path) -> None:
    folder = aime(tmp_path)
    assert answers(f"aime:{folder}", "AIME2025-I") == ["70"]
    assert answers(f"aime:{folder}", "AIME2025-I,AIME2025-II", "test") == ["70", "468"]
    several = refused(f"aime:{folder}")
    assert several.what == "it has 2 configurations, and none was named"
    assert "AIME2025-I, AIME2025-II" in str(several)
    assert several.fix == "--configuration=AIME2025-I,AIME2025-II"
    (folder / "aime2025-II.jsonl").unlink()
    gone = refused(f"aime:{folder}", "AIME2025-II")
    assert "the folder has none of them: AIME2025-II" in gone.what and "hf download" in str(gone.fix)
    assert answers(f"aime:{aime(tmp_path / 'bare', card='')}") == ["70", "468"]


def test_one_file_and_its_card_are_the_data_set_of_math_500(tmp_path: Path) -> None:
    row = {"problem": "P?", "solution": r"\boxed{2}", "answer": "2", "subject": "Algebra", "level": 1}
    jsonl(tmp_path / "test.jsonl", {**row, "unique_id": "test/algebra/1.json"})
    (tmp_path / "README.md").write_text(
        "---\ntask_categories:\n- text-generation\nlanguage:\n- en\n---\n# MATH-500\n"
    )
    assert answers(f"math-500:{tmp_path}") == answers(f"math-500:{tmp_path}", None, "test") == ["2"]
    assert refused(f"math-500:{tmp_path}", None, "train").what == "it has no split 'train'; there are: test"
    nothing = refused(f"math-500:{tmp_path}", "default")
    assert nothing.what == "it has no configuration 'default', nor any other"
    for option in (("main", None), (None, "test")):
        alone = refused(f"math-500:{tmp_path / 'test.jsonl'}", *option)
        assert alone.what == "one file has neither configurations nor splits"


def test_amc23_and_a_part_of_olympiadbench_are_read(tmp_path: Path) -> None:
    rows = ({"id": n, "question": f"Q{n}?", "answer": f"{n}.0", "url": "u"} for n in (27, 36))
    parquet(tmp_path / "amc" / "data" / "test-00000-of-00001.parquet", *rows)
    (tmp_path / "amc" / "README.md").write_text(AMC_CARD)
    assert answers(f"amc:{tmp_path / 'amc'}") == ["27", "36"]
    assert answers(f"amc:{tmp_path / 'amc'}", "default", "test") == ["27", "36"]
    bench = olympiad(tmp_path / "bench")
    assert answers(f"olympiadbench:{bench}") == ["1"]  # text alone, of mathematics, in English
    assert answers(f"olympiadbench:{bench}", "OE_TO_physics_en_COMP,OE_TO_maths_en_COMP", "train") == [
        "2",
        "1",
    ]
    assert "there are: train" in refused(f"olympiadbench:{bench}", "OE_TO_maths_en_COMP", "test").what


def test_a_revision_of_the_hub_is_the_same_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    revision = "0123456789abcdef0123456789abcdef01234567"
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    cached = tmp_path / "home" / "hub" / "datasets--openai--gsm8k"
    gsm8k(cached / "snapshots" / revision)
    assert answers(f"gsm8k:openai/gsm8k@{revision}") == ["10", "11"]
    assert answers(f"gsm8k:openai/gsm8k@{revision}", "socratic", "train") == ["0", "1", "2"]
    assert "main" in str(refused(f"gsm8k:openai/gsm8k@{revision}", "mian"))


CARDS = {
    "text": "data_files: test.csv",
    "list": "data_files: ['test.csv']",
    "mapping": "data_files: {train: test.csv}",
    "paths": "data_files: [{split: train, path: [test.csv, more.csv]}]",
    "folder": "data_dir: sub",
}


@pytest.mark.parametrize("form", CARDS)
def test_a_card_may_write_its_files_in_every_form(tmp_path: Path, form: str) -> None:
    for path in (tmp_path / "test.csv", tmp_path / "sub" / "train.csv"):
        path.parent.mkdir(exist_ok=True)
        path.write_text("question,answer\nQ?,1\n")
    (tmp_path / "README.md").write_text(f"---\nconfigs:\n- config_name: a\n  {CARDS[form]}\n---\n")
    assert answers(str(tmp_path), "a", "train") == ["1"]


@pytest.mark.parametrize(
    ("card", "said"),
    [
        ("configs: [", "its YAML cannot be read"),
        ("configs: [1, 2]", "its YAML cannot be read"),
        ("configs:\n- config_name: a\n  data_files: ../a.csv", "names files outside it"),
        ("configs:\n- config_name: a\n  data_files: [{split: test}]", "its YAML cannot be read"),
    ],
)
def test_a_card_that_cannot_be_followed_is_named(tmp_path: Path, card: str, said: str) -> None:
    (tmp_path / "a.csv").write_text("question,answer\nQ?,1\n")
    (tmp_path / "README.md").write_text(f"---\n{card}\n---\n")
    told = refused(str(tmp_path), "a")
    assert said in told.what and str(told.where).endswith("README.md")


def test_the_cards_default_is_taken(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text(f"question,answer\n{name}?,{ord(name)}\n")
    parts = "".join(
        f"- config_name: {n}\n  data_files: {n}.csv\n  default: {str(n == 'b').lower()}\n" for n in "ab"
    )
    (tmp_path / "README.md").write_text(f"---\nconfigs:\n{parts}---\n")
    assert answers(str(tmp_path)) == ["98"]


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("main/test-00000-of-00001.parquet", "test"),
        ("train.jsonl", "train"),
        ("MATH/test/algebra/1.json", "test"),
        ("data/test_hard-00000-of-00001.parquet", "test_hard"),
        ("my_dev.csv", "validation"),
        ("contest.csv", None),
        ("aime2025-I.jsonl", None),
    ],
)
def test_names_say_splits_by_whole_words(name: str, split: str | None) -> None:
    assert split_of(name) == split


def test_names_decide_only_where_all_of_them_say_a_split(tmp_path: Path) -> None:
    for name in ("algebra_test.csv", "geometry.csv"):
        (tmp_path / name).write_text("question,answer\nQ?,1\n")
    assert [one.name for one in files_of(tmp_path)] == ["algebra_test.csv", "geometry.csv"]
    assert [one.name for one in files_of(tmp_path, split="test")] == ["algebra_test.csv"]
    (tmp_path / "geometry.csv").rename(tmp_path / "geometry_train.csv")
    assert [one.name for one in files_of(tmp_path)] == ["algebra_test.csv"]
