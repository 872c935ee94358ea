"""What conforms hangs on no time: a client that a busy machine made late is asked again, and nobody else is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import seeds

from paceline.families.serving.core.load.findings.certificate import NO_ANSWERS, SAYS_NOTHING, blames_client
from paceline.records.store.folder import RunRecord, sealed_paths
from paceline.workflows import conformance as asked
from paceline.workflows.conformance import run_suites

SUITE = """
suite: serving/hasty
version: 1
family: serving
description: Nobody can send calls so fast.
workload: {op: endpoint, prompt_tokens: 12, output_tokens: 4, arrivals: constant}
baseline: openai-server
techniques: [openai-server]
matrix: {requests: [1000], rate_per_s: [1000000]}
protocol: {launches: 1, timeout: 120s}
"""
LATE = f"{SAYS_NOTHING}calls were sent up to 1.19 ms late (p99); 1.00 ms is 5 % of the median time to first token"


@pytest.fixture(scope="module")
def late(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunRecord, Path]:
    """Return the record of a client that is too slow on every machine, and the folder of its runs."""
    folder = tmp_path_factory.mktemp("late")
    (folder / "suite.yaml").write_text(SUITE.lstrip())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asked, "MORE_TRIES", 1)
        return run_suites([folder / "suite.yaml"], folder=folder, seed=seeds.current()), folder


def test_a_client_that_is_always_late_stays_invalid(late: tuple[RunRecord, Path]) -> None:
    record, folder = late
    assert {m.status for m in record.measurements} == {"invalid"}
    assert all(blames_client(m.reason) for m in record.measurements), record.measurements[0].reason
    assert {m.value for m in record.measurements} == {None}
    assert [len(list(sealed_paths(f / "results"))) for f in (folder, folder / "again-0")] == [1, 1]


@pytest.fixture
def runs(late: tuple[RunRecord, Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Replace what is measured by measurements that a test lists; return what was asked for."""
    endings: list[Any] = []

    def measured(suites: Any, selection: Any, *_: Any, **__: Any) -> RunRecord:
        endings.append(selection.only)
        model = late[0].measurements[0]
        given: Sequence[tuple[str, str, str | None]] = endings.pop(0)
        made = [
            model.model_copy(update={"label": name, "status": status, "reason": reason})
            for name, status, reason in given
        ]
        return replace(late[0], measurements=tuple(made))

    monkeypatch.setattr(asked, "_measured", measured)
    yield endings


def labels(asked_for: Any) -> list[str]:
    return sorted(label for _, _, label in asked_for)


def test_cases_with_a_late_client_are_measured_again_and_no_others(runs: list[Any], tmp_path: Path) -> None:
    runs += [
        [("orca", "ok", None), ("vtc", "invalid", LATE), ("wrong", "incorrect", "another token")],
        [("vtc", "ok", None)],
    ]
    record = run_suites([], folder=tmp_path)
    assert {(m.label, m.status) for m in record.measurements} == {
        ("orca", "ok"),
        ("vtc", "ok"),
        ("wrong", "incorrect"),
    }
    first, second = runs
    assert first is None
    assert labels(second) == ["vtc"]


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ("incorrect", LATE),
        ("invalid", "faster than the link"),
        ("invalid", f"{SAYS_NOTHING}{NO_ANSWERS} 12 has a whole answer: refused 12"),
        ("crashed", "RuntimeError: no idea"),
        ("refused", None),
    ],
)
def test_what_is_not_the_clients_is_measured_once(
    status: str, reason: str | None, runs: list[Any], tmp_path: Path
) -> None:
    runs += [[("vtc", status, reason)]]
    (found,) = run_suites([], folder=tmp_path).measurements
    assert (found.status, found.reason) == (status, reason)
    assert runs == [None]
