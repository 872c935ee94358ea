"""Calls of a backend's own collectives are counted, also those that a library's reducer makes."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.testing import conformance

TENSORS = 14
"""Of parameters, in size nano: six in each of two layers, the embedding, and the gain of the last norm."""


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float | None]:
    folder: Path = tmp_path_factory.mktemp("calls")
    found = conformance(
        ["ddp", "ddp-naive", "ddp-ring", "fsdp"],
        family="training",
        operations=("data_parallel",),
        ranks=(2,),
        folder=folder,
    )
    assert [r.problem for r in found if r.problem] == []
    return {r.technique: r.measured.get("backend_calls") for r in found}


def test_one_call_a_tensor_or_one_for_the_only_bucket(calls: dict[str, float | None]) -> None:
    assert calls["ddp-naive"] == TENSORS
    assert calls["ddp"] == 1


def test_messages_of_our_own_are_no_calls_and_hidden_calls_are_no_zero(
    calls: dict[str, float | None],
) -> None:
    assert calls["ddp-ring"] == 0
    assert calls["fsdp"] is None
