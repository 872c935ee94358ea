"""Points with a model and data of the user's own: their parameters, their identity, and what is no such point."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from suite_text import load

from paceline.base.aliases import params_first
from paceline.base.errors import UserError
from paceline.base.families.family import load_family
from paceline.drivers.job import build_job
from paceline.records.format.record import Run
from paceline.records.origin.own_code import OWN, own_code_facts, write_code
from paceline.spec import content
from paceline.spec.plans.plan import Plan, Selection, make_plan
from paceline.spec.profiles.profile import load_runner
from paceline.spec.suites.suite import Suite
from paceline.spec.suites.suite_file import load_suite
from paceline.workflows.footprints import needs_of

SUITE = """\
suite: training/mine
version: 1
family: training
description: A network of mine.
workload: {op: data_parallel, model: net.py:make, data: net.py:batches, loss: net.py:loss}
baseline: ddp
techniques: [ddp, diloco]
matrix: {ranks: [2]}
"""
NET = "from parts import Part\n\ndef make(): ...\ndef batches(): ...\ndef loss(): ...\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "parts.py").write_text("Part = 1\n")
    return tmp_path


def planned(suite: Suite) -> Plan:
    return make_plan([suite], load_runner(content.find_runner("local-cpu")), Selection())


def params_of(folder: Path, *changes: tuple[str, str]) -> dict[str, Any]:
    (block,) = planned(load(folder, *changes, text=SUITE)).blocks
    return dict(block["params"])


def test_a_point_has_no_size_and_counts_samples_and_holds_its_codes_digest(folder: Path) -> None:
    params = params_of(folder)
    assert (params["size"], params["context"], params["loss"]) == (None, 1, "net.py:loss")
    assert len(params["sources"]) == 12


def test_tokens_of_a_sample_can_be_said(folder: Path) -> None:
    assert params_of(folder, ("op: data_parallel,", "op: data_parallel, context: 128,"))["context"] == 128


def test_another_text_of_the_module_or_of_what_it_imports_is_another_case(folder: Path) -> None:
    suite = load(folder, text=SUITE)
    ids = {planned(suite).blocks[0]["cases"][0]["case_id"]}
    for file in ("net.py", "parts.py"):
        # another folder: files do not change while a command runs
        other = folder / file.removesuffix(".py")
        other.mkdir()
        for name in ("net.py", "parts.py"):
            (other / name).write_text((folder / name).read_text() + ("# new\n" if name == file else ""))
        ids.add(planned(load(other, text=SUITE)).blocks[0]["cases"][0]["case_id"])
    assert len(ids) == 3


def test_points_without_a_model_of_ones_own_are_what_they_were() -> None:
    family = load_family("training")
    params = {p.name: p.default for p in family.parameters_for("data_parallel")}
    assert {"model", "loss", "sources"} <= params.keys()
    assert {"model", "loss", "sources"}.isdisjoint(params_first("training", params))


def test_a_suite_may_hold_its_files_to_a_digest(folder: Path) -> None:
    digest = params_of(folder)["sources"]
    stated = ("op: data_parallel,", f"op: data_parallel, sources: {digest},")
    assert params_of(folder, stated)["sources"] == digest
    with pytest.raises(UserError, match=f"the code is {digest}, not 000000000000"):
        params_of(folder, ("op: data_parallel,", "op: data_parallel, sources: '000000000000',"))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("net.py:make", "nets.py:make", "workload.model: there is no file"),
        ("net.py:loss", "net.py:less", "workload.loss: net.py does not have 'less'"),
        ("net.py:batches", "net.py:batch", "workload.data: net.py does not have 'batch'"),
        ("net.py:make", "net.py", "is not of the form FILE.py:NAME"),
        ("net.py:batches", "marcov", "data 'marcov' is not one of: markov"),
    ],
)
def test_mistakes_have_their_place(folder: Path, old: str, new: str, said: str) -> None:
    with pytest.raises(UserError, match=said) as refused:
        params_of(folder, (old, new))
    assert "example.yaml:5" in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            [("op: data_parallel,", "op: data_parallel, size: nano,")],
            "size nano is one of the family's model",
        ),
        ([("model: net.py:make, ", ""), (", loss: net.py:loss", "")], "name it, model: FILE.py:FACTORY"),
        ([("model: net.py:make, ", "")], "is of a model of one's own, and there is none"),
        ([("data: net.py:batches", "data: markov")], "is for data of one's own"),
        (
            [("op: data_parallel,", "op: data_parallel, corrupted_rank: last-rank,")],
            "corrupted_rank last-rank is for",
        ),
        ([("op: data_parallel,", "op: data_parallel, data_overlap: 0.5,")], "data_overlap 0.5 is for"),
    ],
)
def test_what_has_no_meaning_for_it_is_refused(
    folder: Path, changes: list[tuple[str, str]], said: str
) -> None:
    plan = planned(load(folder, *changes, text=SUITE))
    assert not plan.num_cases
    assert all(said in skipped["reason"] for skipped in plan.data["skipped"])


def test_only_data_parallelism_trains_on_data_of_ones_own(folder: Path) -> None:
    text = SUITE.replace("model: net.py:make, ", "").replace(", loss: net.py:loss", "")
    plan = planned(load(folder, ("data_parallel", "fine_tune"), text=text.replace(", diloco", "")))
    assert "which only data_parallel trains on" in plan.data["skipped"][0]["reason"]


def test_a_family_model_has_a_context_of_two_or_more(folder: Path) -> None:
    text = (
        "suite: training/t\nversion: 1\nfamily: training\ndescription: t\nbaseline: ddp\ntechniques: [ddp]\n"
    )
    plan = planned(
        load(folder, text=text + "workload: {op: data_parallel, context: 1}\nmatrix: {ranks: [2]}\n")
    )
    assert "context 1 is below the least accepted value, 2" in plan.data["skipped"][0]["reason"]


def test_a_job_holds_the_code_and_says_where_it_is(folder: Path, tmp_path: Path) -> None:
    suite = load(folder, text=SUITE)
    plan = planned(suite)
    facts = {"run_id": "x", "plan_sha256": plan.sha256}
    build_job(tmp_path / "job", plan, [suite], facts)
    own = tmp_path / "job" / "own" / plan.blocks[0]["params"]["sources"]
    assert (own / "0" / "net.py").read_text() == NET
    assert (own / "0" / "parts.py").is_file()
    index = json.loads((own / "index.json").read_text())
    assert index["places"]["net.py:make"] == {"module": "net", "name": "make", "root": "0"}
    assert index["folder"] == str(folder)
    assert any(
        name.endswith("net.py") for name in json.loads((tmp_path / "job" / "job.json").read_text())["files"]
    )


def test_points_that_name_other_objects_in_the_same_files_find_each_their_own(
    folder: Path, tmp_path: Path
) -> None:
    changes = (("model: net.py:make, ", ""), ("ranks: [2]", "ranks: [2], model: [net.py:make, net.py:other]"))
    (folder / "net.py").write_text(f"{NET}def other(): ...\n")
    suite = load(folder, *changes, text=SUITE)
    plan = planned(suite)
    (digest,) = {block["params"]["sources"] for block in plan.blocks}
    build_job(tmp_path / "job", plan, [suite], {"run_id": "x", "plan_sha256": plan.sha256})
    places = json.loads((tmp_path / "job" / "own" / digest / "index.json").read_text())["places"]
    assert {places[f"net.py:{name}"]["name"] for name in ("make", "other")} == {"make", "other"}


def run_with(suite: Suite, facts: dict[str, Any]) -> Run:
    return Run.model_validate(
        {
            "line": "run",
            "format": 1,
            "run_id": "01a227f7-6220-7bbd-8b1b-b2ed08e6c9df",
            "started": "2026-11-29T15:00:00Z",
            "reason": "manual",
            "argv": [],
            "tool_version": "0",
            "suites": [{"suite": suite.name, OWN: facts}],
        }
    )


def test_a_record_holds_the_texts_and_gives_the_same_digest_back(folder: Path, tmp_path: Path) -> None:
    suite = load(folder, text=SUITE)
    plan = planned(suite)
    run = run_with(suite, own_code_facts(suite, plan.blocks))
    files, missing = write_code(run, suite.name, tmp_path / "again")
    assert (sorted(files), missing) == (["net.py", "parts.py"], [])
    again = tmp_path / "again"
    (again / "example.yaml").write_text(SUITE)
    assert params_of(again)["sources"] == plan.blocks[0]["params"]["sources"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"text": "other"}, "its text does not fit its digest"),
        ({"text_left_out": "9 bytes", "text": None}, "9 bytes"),
    ],
)
def test_a_text_that_a_record_does_not_hold_is_told(
    folder: Path, tmp_path: Path, change: dict[str, Any], why: str
) -> None:
    suite = load(folder, text=SUITE)
    facts = own_code_facts(suite, planned(suite).blocks)
    (code,) = facts.values()
    file = code["files"]["0/net.py"]
    file |= change
    code["files"]["0/net.py"] = {key: value for key, value in file.items() if value is not None}
    _, missing = write_code(run_with(suite, facts), suite.name, tmp_path / "again")
    assert len(missing) == 1
    assert missing[0].endswith(f"the record does not hold net.py: {why}")


@pytest.mark.parametrize("module", ["../net.py", "/etc/net.py"])
def test_a_record_writes_nothing_beside_the_suites_folder(folder: Path, tmp_path: Path, module: str) -> None:
    suite = load(folder, text=SUITE)
    text = "evil = 1\n"
    file = {"sha256": hashlib.sha256(text.encode()).hexdigest(), "text": text}
    facts = {
        "abc": {
            "names": {"model": f"{module}:make"},
            "files": {"0/net.py": file, "0/../x.py": file, "7/y.py": file},
        }
    }
    files, missing = write_code(run_with(suite, facts), suite.name, tmp_path / "again")
    assert files == []
    assert len(missing) == 3


def test_nobody_foretells_the_memory_or_the_time_of_a_model_of_ones_own(folder: Path) -> None:
    plan = planned(load(folder, text=SUITE))
    assert needs_of(plan) == []
    assert load_family("training").estimate_s(plan.blocks[0]["params"]) is None


def test_the_pages_example_is_a_suite() -> None:
    suite = load_suite(Path(__file__).parents[2] / "docs" / "examples" / "training" / "network.yaml")
    plan = planned(suite)
    assert plan.num_cases == 3
    assert not plan.data["skipped"]
