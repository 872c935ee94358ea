"""Which cases are isolated, how a profile asks for it, and what marks and grades their numbers get."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import seeds

from paceline.analysis.points import grade_of
from paceline.drivers.collect import ISOLATED_FLAGS, Collector
from paceline.families.kernels.core import starting
from paceline.families.kernels.core.sandboxed import cases
from paceline.records.format.record import Measurement
from paceline.report.tables.results import FLAGS
from paceline.spec import content
from paceline.spec.plans.plan import Selection, make_plan
from paceline.spec.profiles.profile import load_runner
from paceline.spec.suites.suite_file import load_suite
from paceline.spec.techniques import fence
from paceline.worker.case_error import CaseError
from paceline.worker.ranks.session import Session

pytestmark = pytest.mark.gate

SUITE = """
suite: kernels/own
version: 1
family: kernels
description: Something is measured.
workload: {op: gemm, m: 8, n: 8, k: 8}
baseline: torch-eager
techniques: [torch-eager]
protocol: {launches: 1}
"""
RUN: Any = SimpleNamespace(imported_from=None, code={"commit": "abc", "dirty": False})


def asked(
    monkeypatch: pytest.MonkeyPatch, wanted: str, found: str, module: str = "user:mine", device: str = "cpu"
) -> Any:
    """Ask what isolates a case where the runner wants something and something can be had."""
    monkeypatch.setenv(cases.VARIABLE, wanted)
    monkeypatch.setattr(cases, "available", lambda kind: (found, "there is none"))
    monkeypatch.setattr(cases, "_readable_by_all", lambda case: True)
    session: Any = SimpleNamespace(device=SimpleNamespace(torch_type=device))
    return cases.isolation_of(session, SimpleNamespace(module=module))  # type: ignore[arg-type]


def test_a_users_file_is_isolated_and_a_shipped_technique_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(monkeypatch, "auto", "bubblewrap") == "bubblewrap"
    assert asked(monkeypatch, "auto", "bubblewrap", module="paceline.baselines.kernels.torch_eager") is None
    assert asked(monkeypatch, "auto", "unisolated") == "unisolated"
    assert asked(monkeypatch, "auto", "bubblewrap", device="cuda") == "unisolated"


@pytest.mark.parametrize("wanted", ["bubblewrap", "user-namespaces"])
def test_a_sandbox_that_is_asked_for_and_cannot_be_had_measures_nothing(
    monkeypatch: pytest.MonkeyPatch, wanted: str
) -> None:
    with pytest.raises(CaseError, match=f"isolation: {wanted} cannot be had here: there is none") as caught:
        asked(monkeypatch, wanted, "unisolated")
    assert caught.value.status == "unsupported"
    with pytest.raises(CaseError, match="on an accelerator"):
        asked(monkeypatch, wanted, "bubblewrap", device="cuda")


def lines_of(
    folder: Path, said: str | None, *, module: str = "user:mine", **changes: Any
) -> list[Measurement]:
    """Return the lines of a result whose rank has said what its technique ran in."""
    (folder / "suite.yaml").write_text(SUITE)
    plan = make_plan(
        [load_suite(folder / "suite.yaml")],
        load_runner(content.find_runner("local-cpu")),
        Selection(seed=seeds.current()),
    )
    (block,) = plan.blocks
    block["family"] = changes.pop("family", block["family"])
    plan.data["runner"].update(changes)
    block["cases"][0]["module"] = module
    event = {"event": "result", "time_s": 1.0, "launch": 0, "block": block["block"], "label": "torch-eager"}
    event |= {"status": "ok", "metrics": {"latency": {"samples": [1e-3]}}, "correctness": {"passed": True}}
    lines = Collector(plan, "run").lines(event if said is None else {**event, "isolation": said})
    return [x for x in lines if isinstance(x, Measurement) and x.metric.name == "latency"]


def test_a_number_says_what_isolated_it_and_without_a_sandbox_is_of_grade_c(tmp_path: Path) -> None:
    grades = {}
    for isolation, flag in ISOLATED_FLAGS.items():
        (line,) = lines_of(tmp_path, isolation)
        assert (line.isolation, line.flags) == (isolation, [flag])
        grades[isolation] = grade_of(RUN, 5, flags=line.flags)
    (line,) = lines_of(tmp_path, None, module="paceline.baselines.kernels.torch_eager")
    assert (line.isolation, line.flags, grade_of(RUN, 5, flags=line.flags)) == (None, [], "B")
    assert grades == {"bubblewrap": "B", "user-namespaces": "B", "unisolated": "C"}
    assert set(ISOLATED_FLAGS.values()) <= set(FLAGS)


@pytest.mark.parametrize(
    "said, changes, isolation",
    [
        (None, {}, "unisolated"),
        ("a fortress", {}, "unisolated"),
        ("bubblewrap", {"isolation": "unisolated"}, "unisolated"),
        ("bubblewrap", {"device": "cuda"}, "unisolated"),
        ("bubblewrap", {"family": "collectives"}, "unisolated"),
        ("bubblewrap", {"module": "paceline.baselines.kernels.torch_eager"}, None),
    ],
)
def test_a_rank_is_not_believed_that_its_candidate_ran_in_a_sandbox_where_none_is_made(
    tmp_path: Path, said: str | None, changes: dict[str, Any], isolation: str | None
) -> None:
    (line,) = lines_of(tmp_path, said, **changes)
    assert (line.isolation, line.flags) == (isolation, [isolation] if isolation else [])


@pytest.mark.parametrize(
    "module, result, isolation",
    [
        ("user:mine", {"status": "ok"}, "unisolated"),
        ("user:mine", {"status": "ok", "isolation": "bubblewrap"}, "bubblewrap"),
        ("user:mine", {"status": "crashed"}, None),
        ("paceline.baselines.collectives.ring", {"status": "ok"}, None),
    ],
)
def test_a_number_of_a_users_file_says_what_isolated_it_in_every_family(
    module: str, result: dict[str, Any], isolation: str | None
) -> None:
    told: list[dict[str, Any]] = []
    events = SimpleNamespace(emit=lambda event, **fields: told.append(fields))
    session: Any = SimpleNamespace(rank=0, events=events)
    case: Any = SimpleNamespace(module=module, case_id="c", label="l")
    Session.emit_result(session, cast(Any, SimpleNamespace(block="b")), case, result)
    assert told[0].get("isolation") == isolation


def test_who_is_asked_for_more_than_calls_computes_beside_its_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting.sandboxes, "open_sandboxed", lambda *facts: "a sandbox")
    monkeypatch.setattr(starting, "_started", lambda *facts: "a process")
    session: Any = SimpleNamespace(launch=0, loaded=lambda case: SimpleNamespace(refusal=None))
    block: Any = SimpleNamespace(block="b")
    case: Any = SimpleNamespace(label="l")
    server: Any = None
    assert starting.open_process(session, block, case, server) == "a sandbox"
    assert starting.open_process(session, block, case, server, requests="some.module") == "a process"


def test_a_profile_keeps_what_it_asks_for(tmp_path: Path) -> None:
    text = Path(content.find_runner("local-cpu")).read_text()
    (tmp_path / "own.yaml").write_text(
        text.replace("runner: local-cpu", "runner: own") + "isolation: unisolated\n"
    )
    assert load_runner(tmp_path / "own.yaml").resolved()["isolation"] == "unisolated"
    # The default is in no record, so that runs of before and of today have one profile.
    assert "isolation" not in load_runner(content.find_runner("local-cpu")).resolved()


def test_only_a_users_kernel_in_a_sandbox_may_import_what_it_likes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "mine.py"
    file.write_text("import ctypes\n")
    monkeypatch.setattr(fence, "available", lambda wanted: (wanted.replace("auto", "bubblewrap"), ""))
    assert fence.fence_errors(file, "kernels", "auto") == []
    assert len(fence.fence_errors(file, "kernels")) == 1
    assert len(fence.fence_errors(file, "collectives", "auto")) == 1
