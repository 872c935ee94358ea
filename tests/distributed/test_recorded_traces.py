"""Every trace of a run is kept beside its record; rules answer on them alone, and they become a table."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from measured import record_of

from paceline.base.errors import UserError
from paceline.families.reasoning.core.block.recorded import check_questions, source
from paceline.families.reasoning.core.problems.embedded import decode, draw, extract
from paceline.families.reasoning.core.questions.reading import Procedural
from paceline.families.reasoning.core.recordings.trace_files import read, save
from paceline.records.format.record_file import files_beside
from paceline.records.store.folder import RunRecord, read_record
from paceline.report.exports.choice import Choice
from paceline.report.exports.formats import render
from paceline.spec.suites.suite_file import load_suite

TECHNIQUES = ("rebase", "self-consistency", "glimp-router")
POINT = {"questions": 3, "samples": 2, "orders": 2, "levels": "1-3", "partner": "strong"}


def run(
    folder: Path,
    model: str,
    *,
    techniques: tuple[str, ...] = TECHNIQUES,
    launches: int = 2,
    **changes: object,
) -> RunRecord:
    point = ", ".join(f"{name}: {value}" for name, value in (POINT | changes).items())
    path = folder / "suite.yaml"
    path.write_text(
        "suite: reasoning/recorded\nversion: 1\nfamily: reasoning\ndescription: What was drawn once is kept.\n"
        f"workload: {{op: solve, model: '{model}', {point}}}\nbaseline: {techniques[0]}\n"
        f"techniques: [{', '.join(techniques)}]\nprotocol: {{launches: {launches}}}\n"
    )
    suite = load_suite(path)
    return record_of([suite], folder)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> RunRecord:
    record = run(tmp_path_factory.mktemp("traces"), "weak")
    assert [m.reason for m in record.measurements if m.status != "ok"] == []
    return record


def figures(record: RunRecord) -> dict[tuple[str, str, int], list[float]]:
    timed = ("question_s", "time_per_token")
    return {
        (m.technique, m.metric.name, m.launch): m.samples
        for m in record.measurements
        if m.metric.name not in timed
    }


def test_rules_answer_on_recorded_traces_as_they_did_on_the_models(first: RunRecord, tmp_path: Path) -> None:
    again = run(tmp_path, f"recorded:{files_beside(first.path)}")
    assert [m.reason for m in again.measurements if m.status != "ok"] == []
    assert figures(again) == figures(first)


def test_what_was_never_drawn_is_not_made_up(first: RunRecord, tmp_path: Path) -> None:
    beside = f"recorded:{files_beside(first.path)}"
    again = run(tmp_path, beside, techniques=("self-consistency", "greedy"), launches=1)
    ends = {m.technique: (m.status, m.reason or "") for m in again.measurements}
    assert ends["self-consistency"][0] == "ok"
    assert ends["greedy"][0] == "unsupported"
    assert "recorded" in ends["greedy"][1]


def test_traces_of_another_point_are_refused(first: RunRecord, tmp_path: Path) -> None:
    beside = files_beside(first.path)
    asked = {
        "model": f"recorded:{beside}",
        "temperature": 0.8,
        "problems": "procedural",
        "context": 2048,
        **POINT,
    }
    assert source(asked, 1).header["launch"] == 1
    changes: dict[str, tuple[object, str]] = {
        "levels": ("1-2", "levels 1-3 and not 1-2"),
        "samples": (3, "2 samples and not 3"),
        "partner": ("none", "partner strong and not none"),
        "context": (64, "context 2048 and not 64"),
    }
    for name, (value, reason) in changes.items():
        with pytest.raises(UserError, match=reason):
            source(asked | {name: value}, 0)
    with pytest.raises(UserError, match="none of the recorded traces is of launch 2"):
        source(asked, 2)
    with pytest.raises(UserError, match="there are no recorded traces"):
        source(asked | {"model": "recorded:/nowhere"}, 0)

    one = read(sorted(beside.iterdir())[0])
    save(tmp_path / "weak.npz", one.header, one.archives)
    stronger = {**one.header, "params": {**one.header["params"], "model": "strong"}}
    save(tmp_path / "strong.npz", stronger, one.archives)
    with pytest.raises(
        UserError, match="2 of the recorded traces are of launch 0 of this point, of strong, weak"
    ):
        source(asked | {"model": f"recorded:{tmp_path}"}, 0)
    assert source(asked | {"model": f"recorded:{tmp_path}#strong"}, 0).path.name == "strong.npz"
    with pytest.raises(UserError, match="of other problems"):
        check_questions(one, Procedural(draw(1, 3, levels=range(1, 4))).asked)


def test_traces_become_a_table(first: RunRecord) -> None:
    table = pd.read_parquet(io.BytesIO(render("traces", [first], Choice())))
    own = table[table["index"].notna()]
    samples, questions = int(str(POINT["samples"])), int(str(POINT["questions"]))
    assert len(own) == 2 * questions * samples
    assert set(own.groupby(["launch", "question"]).size()) == {samples}
    assert set(table["role"]) == {"model", "partner"}
    for row in own.itertuples():
        assert len(row.tokens) == len(row.logprobs) == len(row.entropies)
        assert np.all(row.logprobs <= 0)
        assert 0 < row.begun_s < row.latest_s
        assert decode(tuple(row.before)) == row.problem
        assert decode(tuple(row.tokens)) == row.text
        assert extract(tuple(row.tokens)) == row.answer
        assert row.right == (row.answer == row.truth)
    with pytest.raises(UserError, match="traces are of a launch"):
        render("traces", [first], Choice(techniques=("rebase",)))


def test_a_record_without_its_files_and_with_changed_ones_says_so(first: RunRecord, tmp_path: Path) -> None:
    alone = tmp_path / "2026" / "11" / first.path.name
    alone.parent.mkdir(parents=True)
    alone.write_bytes(first.path.read_bytes())
    with pytest.raises(UserError, match="the runs keep no traces here"):
        render("traces", [read_record(alone)], Choice())
    for path in files_beside(first.path).iterdir():
        one = read(path)
        files_beside(alone).mkdir(exist_ok=True)
        save(files_beside(alone) / path.name, {**one.header, "suite": "other/suite"}, one.archives)
    with pytest.raises(UserError, match="not those that the record names"):
        render("traces", [read_record(alone)], Choice())


def test_a_damaged_file_says_so(first: RunRecord, tmp_path: Path) -> None:
    whole = sorted(files_beside(first.path).iterdir())[0]
    assert read(whole).header["launch"] == 0
    data = whole.read_bytes()
    for name, content_of_it in {
        "cut.npz": data[: len(data) // 2],
        "empty.npz": b"",
        "text.npz": b"not traces",
        "changed.npz": data[:200] + bytes(len(data) - 200),
    }.items():
        path = tmp_path / name
        path.write_bytes(content_of_it)
        with pytest.raises(UserError, match=r"cannot be read as recorded traces") as caught:
            read(path)
        assert str(path) in str(caught.value)
