"""Schedules of pipelines: legal for all sizes, with the bubbles and the memory that their papers promise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from paceline.baselines.training import gpipe, interleaved_one_f_one_b, one_f_one_b, zb_h1, zb_h2
from paceline.baselines.training.gpipe import GPipe
from training_task import make_comm, make_model, make_task

from paceline.families.training.api.model import next_symbol_loss
from paceline.families.training.api.pipeline.deferred import WeightGradients, accumulate
from paceline.families.training.api.pipeline.schedule import Action, ScheduleError, Table, check, most_live
from paceline.families.training.ops.pipeline_parallel.simulator import Simulated, Times, simulate
from paceline.worker.ranks.session import UnsupportedError

TABLES: dict[str, Callable[[int, int], Table]] = {
    "gpipe": gpipe.table,
    "1f1b": one_f_one_b.table,
    "zb-h1": zb_h1.table,
    "zb-h2": zb_h2.table,
}
RANKS, COUNTS = st.integers(1, 9), st.integers(1, 40)
F, B, INPUT, W = 1.0, 2.0, 1.25, 0.75
"""Seconds of a forward, a whole backward and its halves; in binary, so that sums are exact."""


def play(table: Table, stages: int, *, share: float = 1.0, **changes: float) -> Simulated:
    times = {"forward": F, "inputs": INPUT, "weights": W} | changes
    played = Times(**{k: [v * share] * stages for k, v in times.items()})
    return simulate(table, played.of, num_stages=stages)


@pytest.mark.parametrize("name", TABLES)
@given(ranks=RANKS, microbatches=COUNTS)
def test_a_schedule_does_everything_once_and_never_waits_for_itself(
    name: str, ranks: int, microbatches: int
) -> None:
    check(TABLES[name](ranks, microbatches), num_stages=ranks, microbatches=microbatches)


@given(ranks=st.integers(1, 6), groups=st.integers(1, 5), chunks=st.integers(1, 4))
def test_an_interleaved_schedule_does_so_too(ranks: int, groups: int, chunks: int) -> None:
    table = interleaved_one_f_one_b.table(ranks, groups * ranks, chunks)
    check(table, num_stages=ranks * chunks, microbatches=groups * ranks)


def test_interleaving_needs_groups_of_as_many_microbatches_as_ranks() -> None:
    with pytest.raises(UnsupportedError, match="6 microbatches are no multiple of 4 ranks"):
        interleaved_one_f_one_b.table(4, 6, 2)


@given(ranks=RANKS, microbatches=COUNTS)
def test_gpipe_and_1f1b_have_the_bubble_of_gpipes_paper(ranks: int, microbatches: int) -> None:
    for name in ("gpipe", "1f1b"):
        played = play(TABLES[name](ranks, microbatches), ranks)
        assert played.makespan == (microbatches + ranks - 1) * (F + B)
        assert played.bubble == pytest.approx((ranks - 1) / (microbatches + ranks - 1))


@given(ranks=st.integers(2, 6), groups=st.integers(2, 5), chunks=st.integers(1, 4))
def test_chunks_divide_the_bubble(ranks: int, groups: int, chunks: int) -> None:
    table = interleaved_one_f_one_b.table(ranks, groups * ranks, chunks)
    played = play(table, ranks * chunks, share=1 / chunks)
    ideal = groups * ranks * (F + B)
    assert played.makespan - ideal == pytest.approx((ranks - 1) / chunks * (F + B))
    assert played.peak[0] == min(2 * (ranks - 1) + (chunks - 1) * ranks + 1, groups * ranks * chunks)


@given(ranks=RANKS, extra=st.integers(0, 20))
def test_zero_bubble_schedules_have_the_bubbles_and_the_memory_of_their_paper(ranks: int, extra: int) -> None:
    microbatches = 2 * ranks + extra
    equal = {"forward": 1.0, "inputs": 1.0, "weights": 1.0}
    plain, first, second = (
        play(TABLES[name](ranks, microbatches), ranks, **equal) for name in ("1f1b", "zb-h1", "zb-h2")
    )
    assert plain.longest_bubble == 3 * (ranks - 1)
    assert first.longest_bubble == ranks - 1
    assert second.longest_bubble == 0
    assert max(plain.peak) == max(first.peak) == ranks
    assert max(second.peak) == 2 * ranks - 1


def test_1f1b_keeps_fewer_activations_than_gpipe() -> None:
    assert [most_live(row) for row in one_f_one_b.table(4, 12)] == [4, 3, 2, 1]
    assert [most_live(row) for row in gpipe.table(4, 12)] == [12] * 4


def test_a_played_schedule_by_hand() -> None:
    """Two stages of unequal times, one microbatch, a slow link: F0, link, F1, B1, link, B0."""
    table = gpipe.table(2, 1)
    times = Times(forward=[1, 2], inputs=[1, 3], weights=[1, 1])
    played = simulate(table, times.of, num_stages=2, link_s=0.5)
    assert played.makespan == 1 + 0.5 + 2 + 4 + 0.5 + 2
    assert played.spans == (10.0, 6.0)
    assert played.busy == (3.0, 6.0)
    assert played.longest_bubble == 7.0


@given(ranks=st.integers(2, 9), extra=st.integers(0, 20))
def test_a_schedule_that_keeps_more_than_there_is_room_for_is_refused(ranks: int, extra: int) -> None:
    microbatches = 2 * ranks + extra
    for name in ("1f1b", "zb-h1"):
        limited(name, ranks, microbatches, ranks)
        with pytest.raises(ScheduleError, match=f"of {ranks} microbatches at one time"):
            limited(name, ranks, microbatches, ranks - 1)
    for name, most in (("gpipe", microbatches), ("zb-h2", 2 * ranks - 1)):
        with pytest.raises(
            ScheduleError,
            match=f"rank 0 keeps activations of {most} microbatches at one time, and the limit is {ranks}",
        ):
            limited(name, ranks, microbatches, ranks)
        limited(name, ranks, microbatches, most)


def limited(name: str, ranks: int, microbatches: int, limit: int) -> Simulated:
    table = TABLES[name](ranks, microbatches)
    return simulate(table, lambda action: 1.0, num_stages=ranks, live_limit=limit)


def of_pytorch(schedule: str, ranks: int, microbatches: int, chunks: int = 1) -> Table:
    """Return the table that PyTorch's own schedule has, without what it says of sums over ranks."""
    orders = pytest.importorskip("torch.distributed.pipelining._schedule_visualizer")
    return [
        [
            Action(a.computation_type.value, a.stage_index, a.microbatch_index)
            for a in row
            if a is not None and a.microbatch_index is not None
        ]
        for row in orders.get_schedule_ops(schedule, ranks, microbatches, chunks)
    ]


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
@pytest.mark.parametrize("rounds", [1, 2, 4])
def test_gpipe_is_pytorchs_but_for_the_order_of_backwards(ranks: int, rounds: int) -> None:
    """Ours go back from the last microbatch to the first, as they came; PyTorch's begin again with the first."""
    microbatches = ranks * rounds
    for own, theirs in zip(
        gpipe.table(ranks, microbatches), of_pytorch("GPipe", ranks, microbatches), strict=True
    ):
        assert own[:microbatches] == theirs[:microbatches]
        assert own[microbatches:] == theirs[: microbatches - 1 : -1]


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
@pytest.mark.parametrize("rounds", [1, 2, 4])
def test_1f1b_is_pytorchs_but_for_its_numbers_on_the_last_rank(ranks: int, rounds: int) -> None:
    """What PyTorch lists there, and does not do, counts forwards from one: there would be one too many."""
    microbatches = ranks * rounds
    own, theirs = one_f_one_b.table(ranks, microbatches), of_pytorch("1F1B", ranks, microbatches)
    assert own[:-1] == theirs[:-1]
    assert own[-1] == [Action(a.kind, a.stage, a.microbatch - (a.kind == "F")) for a in theirs[-1]]


@pytest.mark.parametrize(("ranks", "chunks"), [(1, 2), (2, 2), (4, 2), (8, 2), (2, 4), (4, 3)])
@pytest.mark.parametrize("rounds", [1, 2, 4])
def test_interleaved_1f1b_is_pytorchs(ranks: int, chunks: int, rounds: int) -> None:
    microbatches = ranks * rounds
    own = interleaved_one_f_one_b.table(ranks, microbatches, chunks)
    assert own == of_pytorch("Interleaved1F1B", ranks, microbatches, chunks)


LEGAL = one_f_one_b.table(2, 2)
WRONG: dict[str, tuple[Table, str]] = {
    "missing": ([LEGAL[0][:-1], LEGAL[1]], "stage 0 does 'F' with microbatch 1"),
    "twice": ([[*LEGAL[0], LEGAL[0][-1]], LEGAL[1]], "B1 of stage 0 occurs 2 times"),
    "elsewhere": ([LEGAL[1], LEGAL[0]], "which lies on rank 1"),
    "outside": ([[*LEGAL[0], Action("F", 0, 2)], LEGAL[1]], "outside 2 stages and 2 microbatches"),
    "circle": ([list(reversed(LEGAL[0])), LEGAL[1]], "in a circle: rank 0 for B1 of stage 0; rank 1 for F0"),
    "half": (
        [[Action("F", 0, 0), Action("I", 0, 0)], [Action("F", 1, 0), Action("B", 1, 0)]],
        "stage 0 does 'FI' with microbatch 0",
    ),
    "weights-first": (
        [[Action("F", 0, 0), Action("W", 0, 0), Action("I", 0, 0)], [Action("F", 1, 0), Action("B", 1, 0)]],
        "in a circle: rank 0 for W0 of stage 0",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_table_is_refused(name: str) -> None:
    table, said = WRONG[name]
    with pytest.raises(ScheduleError, match=said):
        check(table, num_stages=2, microbatches=1 if name in ("half", "weights-first") else 2)


def test_an_empty_table_has_no_makespan() -> None:
    with pytest.raises(ScheduleError, match="empty"):
        simulate([[], []], lambda action: 1.0, num_stages=2)


def test_forwards_before_and_after_a_backward_are_both_kept() -> None:
    """A pipeline runs the next forward before this backward: what that one keeps must not be lost with this one."""
    weight = torch.nn.Parameter(torch.ones(2, 3))
    later = WeightGradients()
    later.defer = True
    first, second = (later.linear(torch.full((1, 3), v, requires_grad=True), weight) for v in (1.0, 2.0))
    first.sum().backward()
    accumulate(later.take())
    second.sum().backward()
    accumulate(later.take())
    assert weight.grad is not None
    assert weight.grad.tolist() == [[3.0] * 3] * 2


class Mixed(GPipe):
    """Whole backwards of even microbatches, split ones of odd ones: legal, since each has one or the other."""

    def schedule(self, ranks: int, microbatches: int) -> Table:
        """Return F and then backwards."""
        rows = []
        for rank in range(ranks):
            row = [Action("F", rank, m) for m in range(microbatches)]
            for m in range(microbatches):
                row += [Action("I", rank, m), Action("W", rank, m)] if m % 2 else [Action("B", rank, m)]
            rows.append(row)
        return rows


def test_a_table_may_split_some_backwards_and_not_others() -> None:
    sequences = torch.randint(64, (4, 10), generator=torch.Generator().manual_seed(0))
    whole, mixed = make_model(context=9), make_model(context=9)
    next_symbol_loss(whole, sequences).backward()
    task = make_task(model=mixed, context=9, microbatches=4)
    Mixed(task, make_comm()).forward_backward(sequences)
    for name, gradient in gradients(whole).items():
        torch.testing.assert_close(gradients(mixed)[name], gradient, rtol=1e-4, atol=1e-7)


def gradients(model: torch.nn.Module) -> dict[str, Any]:
    return {n: p.grad for n, p in model.named_parameters()}


def test_weights_gradients_that_come_later_are_the_same() -> None:
    sequences = torch.randint(64, (3, 10), generator=torch.Generator().manual_seed(0))
    plain, split = make_model(context=9), make_model(context=9)
    next_symbol_loss(plain, sequences).backward()
    later = WeightGradients()
    later.attach(split)
    later.defer = True
    next_symbol_loss(split, sequences).backward()
    early = gradients(split)
    missing = {n for n, g in early.items() if g is None}
    assert missing == {n for n, _ in plain.named_parameters() if ".weight" in n and "embedding" not in n}
    accumulate(later.take())
    assert later.take() == []
    for name, gradient in gradients(plain).items():
        torch.testing.assert_close(gradients(split)[name], gradient, rtol=1e-5, atol=1e-7)
