"""The share of the gap between ranks alone and the baseline, by hand; and dialects, of which ranks read one each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from paceline.families.training.core.data import corpus
from paceline.families.training.core.planning.parameters import wrong_data
from paceline.families.training.ops.data_parallel.gap import add_gap_closed
from paceline.worker.ranks.session import Block, Case, CaseError


def case(label: str, technique: str | None = None) -> Case:
    role = "baseline" if label == "ddp" else "technique"
    return Case(
        case_id=label, label=label, technique=technique or label, module="m", sha256="", role=role, options={}
    )


def closed(
    losses: dict[str, float | None], rate: float | None = 1.0
) -> tuple[dict[str, float], dict[str, str]]:
    """Return the shares of techniques with last losses, and why some have none; None is a failure."""
    cases = [case(label, "no-communication" if label == "alone" else None) for label in losses]
    block = Block(
        block="b", suite="s", family="training", params={}, ranks=4, link={}, protocol={}, baseline="ddp",
        cases=tuple(cases),
    )  # fmt: skip
    results: list[tuple[Case, Any]] = []
    for one in cases:
        loss = losses[one.label]
        metrics = {} if loss is None else {"eval_loss": {"samples": [9.0, loss]}}
        if loss is not None and rate is not None:
            metrics["excess_loss"] = {"samples": [8.0, loss - rate]}
        found = {"metrics": metrics, "absent": {}}
        results.append((one, CaseError("crashed", "it did") if loss is None else found))
    add_gap_closed(block, results)
    ok = {one.label: found for one, found in results if not isinstance(found, CaseError)}
    return (
        {
            label: f["metrics"]["gap_closed"]["samples"][0]
            for label, f in ok.items()
            if "gap_closed" in f["metrics"]
        },
        {label: f["absent"]["gap_closed"] for label, f in ok.items() if "gap_closed" in f["absent"]},
    )


def test_a_share_lies_between_ranks_alone_and_the_baseline() -> None:
    found, absent = closed({"ddp": 2.0, "alone": 3.0, "half": 2.5, "worse": 3.25, "better": 1.9})
    assert found == pytest.approx({"ddp": 1.0, "alone": 0.0, "half": 0.5, "worse": -0.25, "better": 1.1})
    assert not absent


@pytest.mark.parametrize(
    ("losses", "rate", "reason"),
    [
        ({"ddp": 2.0, "alone": 2.09}, 1.0, "alone ends 0.09 nats above ddp; a gap has 0.1 at least"),
        ({"ddp": 2.0, "alone": 2.03}, None, "alone ends 0.03 nats above ddp; a gap has 0.04 at least"),
        ({"ddp": 2.0, "alone": 1.5}, 1.0, "alone ends -0.5 nats above ddp"),
        (
            {"ddp": None, "alone": 2.5, "other": 2.2},
            1.0,
            "there is no loss of alone or of ddp in this launch",
        ),
        ({"ddp": 2.0, "alone": None}, 1.0, "there is no loss of alone or of ddp in this launch"),
    ],
)
def test_without_a_gap_there_is_no_share(
    losses: dict[str, float | None], rate: float | None, reason: str
) -> None:
    found, absent = closed(losses, rate)
    assert not found
    assert absent
    assert all(reason in said for said in absent.values())


def test_where_nobody_is_alone_nothing_is_said() -> None:
    assert closed({"ddp": 2.0, "other": 3.0}) == ({}, {})


def test_rows_are_of_dialects_in_turn_whoever_reads_them() -> None:
    language = corpus.load("dialects:0.5")
    whole = language.train(7, 3, range(16), 16, 20)
    for ranks in (1, 2, 4):
        parts = [language.train(7, 3, range(rank, 16, ranks), 16, 20) for rank in range(ranks)]
        joined = np.empty_like(whole)
        for rank, part in enumerate(parts):
            joined[rank::ranks] = part
        assert (joined == whole).all()
    assert isinstance(language, corpus.Dialects)
    for row in range(8):
        alone = language.each[row % 4].train(7, 3, range(row, row + 1), 16, 20)
        assert (whole[row] == alone[0]).all()
        assert not any(
            (whole[row] == language.each[(row + n) % 4].train(7, 3, range(row, row + 1), 16, 20)[0]).all()
            for n in (1, 2, 3)
        )


def test_dialects_differ_by_their_shift_and_have_the_mean_entropy_rate() -> None:
    near, far = corpus.load("dialects:0.1"), corpus.load("dialects:1.0")
    assert isinstance(near, corpus.Dialects)
    assert isinstance(far, corpus.Dialects)
    assert len({one.fingerprint for one in (*near.each, *far.each, corpus.markov())}) == 9
    assert far.entropy_rate == pytest.approx(np.mean([one.entropy_rate for one in far.each]))

    def apart(language: corpus.Dialects) -> float:
        counts = [
            np.bincount(one.held_out(1, 400, 40).reshape(-1), minlength=64) / 16000 for one in language.each
        ]
        return float(np.abs(counts[0] - counts[1]).sum())

    assert apart(far) > 3 * apart(near)
    # the one shift that fine-tuning has is that of the first dialect
    assert corpus.markov(shift=0.5).fingerprint == corpus.load("dialects:0.5").each[0].fingerprint  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "data", ["dialects", "dialects:", "dialects:x", "dialects:0", "dialects:-1", "dialects:5", "dialects:nan"]
)
def test_dialects_need_a_shift(data: str) -> None:
    assert "dialects:SHIFT" in str(wrong_data(data))
    assert wrong_data("dialects:0.5") is None
