"""The training family without ranks: its language, its model, its loop's arithmetic, and what it counts as memory."""

from __future__ import annotations

import errno
import itertools
import math
import os
from collections import deque
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from paceline.baselines.training import demo, diloco, edit, flexdemo, one_bit_adam, qsdp, streaming_diloco
from shipped_suites import shipped
from training_task import make_comm, make_task, on_ranks

from paceline.drivers.job import build_job
from paceline.families.collectives.api.problem import chunk_bounds
from paceline.families.training.api.buckets import buckets
from paceline.families.training.api.codecs import (
    decode_float4,
    decode_levels,
    encode_float4,
    encode_levels,
    float4_bytes,
    level_bytes,
)
from paceline.families.training.api.decoupled import Extractor, Scheme, cosines, message_bytes
from paceline.families.training.api.flat import Flat
from paceline.families.training.api.model import Transformer, next_symbol_loss
from paceline.families.training.api.replica import BETAS, FlatReplica, Replica
from paceline.families.training.api.rounds import ends_round, nesterov_, num_rounds
from paceline.families.training.api.sharded import Unit
from paceline.families.training.api.sizes import SIZES
from paceline.families.training.core.data import corpus
from paceline.families.training.core.data.setting import Setting, local_batches
from paceline.families.training.core.loop import judging, measurement
from paceline.families.training.core.loop.figures import crossing
from paceline.families.training.core.loop.trained import Trained
from paceline.families.training.core.memory import held
from paceline.families.training.core.proofs import oracle
from paceline.families.training.spec import FAMILY
from paceline.spec import content
from paceline.spec.plans.plan import Selection, make_plan
from paceline.spec.profiles.profile import load_runner
from paceline.stats.estimates import launch_statistic
from paceline.worker.ranks.session import CaseError, UnsupportedError

CONTEXT = 16


class Box:
    """Holds a tensor where nobody looks."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


@pytest.mark.parametrize("name", SIZES)
def test_the_closed_form_counts_the_models_parameters(name: str) -> None:
    with torch.device("meta"):  # no memory: the largest has 70 G parameters
        model = Transformer(SIZES[name], vocabulary=64, context=CONTEXT)
    assert sum(p.numel() for p in model.parameters()) == SIZES[name].parameters(64)


def test_the_thin_model_has_a_hundred_tensors() -> None:
    assert len(list(Transformer(SIZES["thin"], vocabulary=64, context=CONTEXT).parameters())) >= 100


def test_the_operations_of_a_token_are_those_that_torch_counts() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    size, context, rows = SIZES["tiny"], 64, 4
    model = Transformer(size, vocabulary=64, context=context)
    counter = FlopCounterMode(display=False)
    with counter:
        next_symbol_loss(model, torch.zeros(rows, context + 1, dtype=torch.long)).backward()
    counted = counter.get_total_flops() / (rows * context)
    assert counted == pytest.approx(size.flops_per_token(64, context), rel=0.15)


def test_the_true_chain_reaches_its_entropy_rate_and_no_less() -> None:
    language = corpus.markov()
    chance = np.diff(language.cumulative, axis=1, prepend=0.0)
    drawn = language.train(5, 0, range(400), 400, 200)
    pair = drawn[:, :-2] * 64 + drawn[:, 1:-1]
    losses = -np.log(chance[pair, drawn[:, 2:]])
    by_row = losses.mean(axis=1)
    error = by_row.std(ddof=1) / math.sqrt(len(by_row))
    assert abs(by_row.mean() - language.entropy_rate) < 4 * error
    assert error < 0.01
    symbols = np.bincount(drawn.ravel(), minlength=64) / drawn.size
    unigram = -(symbols * np.log(symbols)).sum()
    assert language.entropy_rate + 0.3 < unigram < math.log(64)


def test_every_number_of_ranks_sees_the_same_batch() -> None:
    language = corpus.markov()
    whole = language.train(7, 3, range(12), 12, 20)
    for ranks in (2, 3, 4):
        parts = [language.train(7, 3, range(r, 12, ranks), 12, 20) for r in range(ranks)]
        joined = np.empty_like(whole)
        for r, part in enumerate(parts):
            joined[r::ranks] = part
        assert (joined == whole).all()
    assert not (language.train(7, 4, range(12), 12, 20) == whole).all()
    assert not (language.train(8, 3, range(12), 12, 20) == whole).all()
    assert not (language.held_out(7, 12, 20) == whole).all()


@pytest.mark.parametrize(
    ("first", "said"),
    [
        ({0: math.inf, 1: math.inf}, None),
        ({0: 6, 1: 5, 2: 6}, "diverged: rank 1's loss is not finite in step 6"),
        ({0: 5, 1: 5, 2: math.inf}, "diverged: the losses of ranks 0 and 1 are not finite in step 6"),
        ({0: 7, 1: 7, 2: 7, 3: 9}, "diverged: the losses of ranks 0, 1 and 2 are not finite in step 8"),
        ({0: 0, 1: 0}, "diverged: the losses of all 2 ranks are not finite in step 1"),
        ({3: 4}, "diverged: rank 3's loss is not finite in step 5"),
    ],
)
def test_ranks_whose_losses_were_the_first_that_are_not_finite_are_named(
    first: dict[int, float], said: str | None
) -> None:
    assert judging.diverged(first) == said


def test_a_step_in_which_a_rank_took_no_part_has_no_loss_to_be_finite() -> None:
    rows = [[6.0]]
    session: Any = SimpleNamespace(control=SimpleNamespace(gather=lambda own: [rows, own]))
    away = Trained(losses=[1.0, math.nan, 1.0], took=[True, False, True])
    with pytest.raises(CaseError, match="rank 0's loss is not finite in step 7"):
        judging.check_finite(session, away, [0, 1])
    judging.check_finite(session, away, [1])
    there = Trained(losses=[1.0, math.nan, 1.0], took=[True, True, True])
    with pytest.raises(CaseError, match="rank 1's loss is not finite in step 2"):
        judging.check_finite(session, there, [0, 1])


def test_bytes_come_from_files_and_are_fingerprinted(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f"{number:02}.txt").write_bytes(bytes([number]) * 40_000)
    first = corpus.load(f"bytes:{tmp_path}")
    assert first.entropy_rate is None
    kept, drawn = set(first.held_out(1, 500, 8).ravel()), set(first.train(1, 0, range(500), 500, 8).ravel())
    assert kept == {0, 10}
    assert not kept & drawn
    (tmp_path / "03.txt").write_bytes(b"x" * 40_000)
    corpus.file_bytes.cache_clear()
    assert corpus.load(f"bytes:{tmp_path}").fingerprint != first.fingerprint


def test_a_file_alone_is_data_too_and_fingerprinted_alike(tmp_path: Path) -> None:
    block, path = corpus.LEAST_BYTES, tmp_path / "text"
    path.write_bytes(b"".join(bytes([number]) * block for number in range(20)) + b"end")
    first = corpus.load(f"bytes:{path}")
    kept, drawn = set(first.held_out(1, 500, 8).ravel()), set(first.train(1, 0, range(500), 500, 8).ravel())
    # what is left over is the twenty-first block, and held out
    assert kept <= {0, 10, *b"end"} and {0, 10} <= kept
    assert not kept & drawn
    with path.open("r+b") as file:
        file.seek(3 * block)
        file.write(b"x")
    corpus.file_bytes.cache_clear()
    assert corpus.load(f"bytes:{path}").fingerprint != first.fingerprint


def test_a_file_that_is_too_short_is_named(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"x" * corpus.LEAST_BYTES)
    with pytest.raises(CaseError, match=r"text has 0 bytes to train and 65536 to judge; 64 KiB of each"):
        corpus.load(f"bytes:{tmp_path / 'text'}")


def test_data_that_is_neither_a_file_nor_a_folder_or_cannot_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe, path = tmp_path / "pipe", tmp_path / "text"
    os.mkfifo(pipe)
    with pytest.raises(CaseError, match=f"{pipe} is neither a file nor a folder"):
        corpus.load(f"bytes:{pipe}")
    path.write_bytes(b"x")
    with pytest.raises(CaseError, match=f"there is no file or folder {path / 'below'}"):
        corpus.load(f"bytes:{path / 'below'}")

    def open_(self: Path, *_: Any) -> Any:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))

    monkeypatch.setattr(Path, "open", open_)
    with pytest.raises(CaseError, match=f"{path} cannot be read: Permission denied"):
        corpus.load(f"bytes:{path}")


def test_the_standard_library_is_at_hand() -> None:
    found = corpus.load("bytes")
    assert b"import" in found.train(1, 0, range(64), 64, 512).astype(np.uint8).tobytes()


def test_a_folder_without_data_is_named(tmp_path: Path) -> None:
    with pytest.raises(CaseError, match=r"0 files, has 0 bytes to train and 0 to judge"):
        corpus.load(f"bytes:{tmp_path}")
    with pytest.raises(CaseError, match=f"there is no file or folder {tmp_path / 'gone'}"):
        corpus.load(f"bytes:{tmp_path / 'gone'}")


def test_a_file_that_vanishes_after_it_was_listed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        (tmp_path / f"{number}.txt").write_bytes(b"x" * 100)
    read = Path.read_bytes

    def read_bytes(path: Path) -> bytes:
        (tmp_path / "2.txt").unlink(missing_ok=True)
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    with pytest.raises(CaseError, match=r"2\.txt cannot be read: No such file"):
        corpus.load(f"bytes:{tmp_path}")


def test_the_rate_warms_up_and_falls_to_a_tenth() -> None:
    task = make_task()
    rates = [task.rate(s) for s in range(100)]
    assert rates[0] == pytest.approx(0.001)
    assert rates[9] == max(rates) == pytest.approx(0.01)
    assert rates[-1] == pytest.approx(0.001, rel=0.01)
    assert task.rate(5000) == pytest.approx(0.001)


def test_a_flat_model_is_the_same_model() -> None:
    sequences = torch.from_numpy(corpus.markov().train(1, 0, range(4), 4, CONTEXT + 1))
    plain, flat = Replica(make_task(), make_comm()), FlatReplica(make_task(), make_comm())
    for step in range(3):
        for replica in (plain, flat):
            replica.set_rate(0.01)
            replica.forward_backward(sequences)
            replica.update(step)
    assert oracle.relative_distance(flat.weights(), plain.weights()) < 1e-6
    assert oracle.relative_distance(flat.weights(), make_task().model.parameters()) > 1e-3  # type: ignore[arg-type]
    flat.flat.values.zero_()
    assert not any(p.any() for p in flat.model.parameters())


def test_pieces_of_a_vector_have_the_parameters_shapes() -> None:
    model = make_task().model
    flat = Flat(model)
    pieces = flat.pieces(torch.arange(flat.values.numel(), dtype=torch.float32))
    assert [p.shape for p in pieces] == [p.shape for p in model.parameters()]
    assert pieces[-1].flatten()[-1] == flat.values.numel() - 1


def test_memory_is_counted_by_kind_and_once() -> None:
    task = make_task()
    replica = diloco.DiLoCo(task, make_comm())
    count = task.num_parameters
    replica.forward_backward(torch.zeros(4, CONTEXT + 1, dtype=torch.long))
    replica.update(0)
    found = held.state_bytes(replica)
    assert found["parameter"] == 4 * count
    assert found["gradient"] == 4 * count
    assert 8 * count <= found["optimizer"] <= 8 * count + 64
    assert found["extra"] == 8 * count
    assert found["state"] == sum(found[kind] for kind in held.STATE)
    replica.hidden = {"deep": deque([Box(torch.zeros(1000)), np.zeros(500)])}  # type: ignore[attr-defined]
    again = held.state_bytes(replica)
    assert again["scratch"] == found["scratch"] + 8000
    assert again["state"] == found["state"]
    adam = one_bit_adam.OneBitAdam(make_task(), make_comm())
    assert held.state_bytes(adam)["optimizer"] >= 8 * count


def test_the_outer_step_is_nesterovs() -> None:
    weights, momentum = torch.tensor([1.0]), torch.tensor([0.5])
    nesterov_(weights, momentum, torch.tensor([2.0]), rate=0.1, momentum_share=0.9)
    assert momentum.item() == pytest.approx(0.9 * 0.5 + 2)
    assert weights.item() == pytest.approx(1 - 0.1 * (2 + 0.9 * momentum.item()))


def test_four_bits_hold_powers_of_two_exactly_and_the_rest_to_the_nearest() -> None:
    exact = torch.tensor([1.0, -0.5, 0.25, -(2.0**-6), 0.0] * 1000) * 3
    message = torch.empty(float4_bytes(exact.numel()), dtype=torch.uint8)
    encode_float4(exact, message)
    assert torch.equal(decode_float4(message, exact.numel()), exact)
    drawn = torch.randn(9001, generator=torch.Generator().manual_seed(1))
    message = torch.empty(float4_bytes(9001), dtype=torch.uint8)
    assert message.numel() == 3 * 4 + 4501
    encode_float4(drawn, message)
    found = decode_float4(message, 9001)
    levels = torch.cat([torch.zeros(1), 2.0 ** -torch.arange(7.0)])
    for start in range(0, 9001, 4096):
        block, coded = drawn[start : start + 4096], found[start : start + 4096]
        scale = block.abs().max()
        nearest = (block.abs()[:, None] / scale - levels).abs().min(dim=1).values * scale
        assert torch.allclose((coded - block).abs(), nearest, atol=1e-6)


def test_fragments_take_turns_and_each_is_applied_once_a_round() -> None:
    sync_every, fragments, delay = 20, 4, 4
    found: dict[tuple[int, str], list[int]] = {}
    for step in range(100):
        for fragment, action in streaming_diloco.due(step, sync_every, fragments, delay):
            found.setdefault((fragment, action), []).append(step)
    begins = [found[(f, "begin")] for f in range(fragments)]
    assert len({step for steps in begins for step in steps}) == sum(map(len, begins))
    for f in range(fragments):
        assert [b - a for a, b in itertools.pairwise(found[(f, "begin")])] == [20] * (len(begins[f]) - 1)
        assert [s + 2 for s in found[(f, "begin")]][: len(found[(f, "advance")])] == found[(f, "advance")]
        assert [s + 4 for s in found[(f, "begin")]][: len(found[(f, "apply")])] == found[(f, "apply")]


def test_buckets_are_views_of_their_vectors_and_hold_every_parameter_once() -> None:
    model = make_task().model
    before = [p.detach().clone() for p in model.parameters()]
    found = buckets(model, 8192, 3)
    assert [p.data_ptr() for b in found for p in b.parameters] == [
        p.data_ptr() for p in reversed(list(model.parameters()))
    ]
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert all(b.values.numel() * 4 <= 8192 or len(b.parameters) == 1 for b in found)
    for bucket in found:
        bucket.values.zero_()
    assert not any(p.any() for p in model.parameters())


def test_rounds_cover_all_steps() -> None:
    for every, steps in ((20, 100), (20, 101), (7, 7), (50, 20), (1, 3)):
        assert sum(ends_round(s, every, steps) for s in range(steps)) == num_rounds(every, steps)
        assert ends_round(steps - 1, every, steps)


def test_a_target_is_reached_between_evaluations_or_not_at_all() -> None:
    assert crossing([4.0, 3.0, 2.0], 2.5) == pytest.approx(1.5)
    assert crossing([4.0, 3.0, 2.0], 5.0) == 0.0
    assert crossing([4.0, 3.0, 2.0], 2.0) == pytest.approx(2.0)
    assert crossing([4.0, 3.0, 2.0], 1.0) is None


def test_the_last_sample_is_the_value_of_a_curve() -> None:
    assert launch_statistic([4.0, 2.0, 3.0], "last") == 3.0


GOOD = {p.name: p.default for p in FAMILY.parameters} | {"op": "data_parallel"}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, None),
        ({"batch": 15}, "cannot be split between 2 ranks"),
        ({"steps": 30}, "fewer than two windows"),
        ({"data_overlap": 1.5}, "at most 1"),
        ({"data_overlap": 0.3}, "no whole number"),
        ({"evaluations": 300}, "do not fit"),
        ({"data": "poems"}, "not one of: markov"),
        ({"data": "bytes", "target_excess": 0.5}, "known entropy rate"),
        ({"microbatches": 2}, "microbatches 2 is for pipeline_parallel"),
        ({"op": "pipeline_parallel", "microbatches": 4, "batch": 16, "ranks": 3}, None),
        ({"op": "pipeline_parallel", "microbatches": 5}, "cannot be split into 5 microbatches"),
        (
            {"op": "pipeline_parallel", "corrupted_rank": "last-rank"},
            "corrupted_rank last-rank is for data_parallel",
        ),
        ({"op": "sequence_parallel", "dtype": "bfloat16"}, "dtype bfloat16 is for data_parallel"),
        ({"dtype": "bfloat16", "mode": "compiled"}, None),
    ],
)
def test_an_illegal_point_is_named(changes: dict[str, Any], said: str | None) -> None:
    problems = FAMILY.check(GOOD | changes)
    assert (said is None and not problems) or (said is not None and any(said in p for p in problems))


def test_a_job_holds_the_other_familys_techniques_that_one_builds_on(tmp_path: Path) -> None:
    suite = shipped("training/data-parallel")
    selection = Selection(tier="quick", techniques=["one-bit-adam", "ddp"])
    plan = make_plan([suite], load_runner(content.find_runner("local-cpu")), selection)
    build_job(tmp_path / "job", plan, [suite], {"run_id": "x"})
    assert (tmp_path / "job" / "baselines" / "collectives" / "onebit.py").is_file()
    assert not (tmp_path / "job" / "baselines" / "kernels").exists()


def shares_of_rounding(gradient: list[float]) -> list[float]:
    weight = torch.nn.Parameter(torch.zeros(len(gradient)))
    optimizer = torch.optim.AdamW([weight], lr=0.01, betas=BETAS)
    weight.grad = torch.tensor(gradient)
    optimizer.step()
    (share,) = oracle.rounding_share(optimizer, [weight], 0)
    return [float(s) for s in share]


def test_rounding_decides_only_updates_of_gradients_near_zero() -> None:
    large, small, none = shares_of_rounding([1.0, 1e-7, 0.0])
    assert large == pytest.approx(0.01 * oracle.GRADIENT_NOISE / math.sqrt(3), rel=0.01)
    assert small == none == pytest.approx(0.02)
    plain = torch.nn.Parameter(torch.zeros(3))
    (share,) = oracle.rounding_share(torch.optim.SGD([plain], lr=0.5), [plain], 0)
    assert not share.any()


def test_what_is_allowed_does_not_count_and_no_more() -> None:
    reference, found, allowed = torch.tensor([3.0, 4.0]), torch.tensor([3.0, 4.5]), torch.tensor([0.0, 0.5])
    assert oracle.relative_distance([found], [reference]) == pytest.approx(0.1)
    assert oracle.relative_distance([found], [reference], allowed=[allowed]) == 0
    assert oracle.relative_distance([found], [reference], allowed=[allowed.flip(0)]) == pytest.approx(0.1)


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_levels_are_at_most_half_a_step_away_and_ends_are_exact(bits: int) -> None:
    values = torch.randn(2500, generator=torch.Generator().manual_seed(bits))
    message = torch.empty(level_bytes(2500, bits), dtype=torch.uint8)
    assert message.numel() == 3 * 8 + 2500 * bits // 8 + (2500 * bits % 8 > 0)
    encode_levels(values, message, bits)
    found = decode_levels(message, 2500, bits)
    for start in range(0, 2500, 1024):
        block, coded = values[start : start + 1024], found[start : start + 1024]
        span = float(block.max() - block.min())
        assert float((block - coded).abs().max()) <= 0.501 * span / ((1 << bits) - 1)
        assert float(coded.min()) == float(block.min())
        assert float(coded.max()) == pytest.approx(float(block.max()), rel=1e-5)


def test_levels_drawn_at_random_have_the_values_as_their_mean() -> None:
    values = torch.tensor([0.0, 0.2, 0.9, 3.0])
    generator = torch.Generator().manual_seed(4)
    draws = 4000
    many = values.repeat(draws)  # blocks of them have the same ends
    message = torch.empty(level_bytes(4 * draws, 2), dtype=torch.uint8)
    encode_levels(many, message, 2, generator=generator)
    mean = decode_levels(message, 4 * draws, 2).double().reshape(draws, 4).mean(dim=0)
    assert float((mean - values).abs().max()) < 4 * 0.5 / math.sqrt(draws)
    message = torch.empty(level_bytes(4, 2), dtype=torch.uint8)
    encode_levels(values, message, 2)
    assert decode_levels(message, 4, 2).tolist() == [0.0, 0.0, 1.0, 3.0]


def test_equal_values_and_none_survive_levels() -> None:
    message = torch.empty(level_bytes(5, 4), dtype=torch.uint8)
    encode_levels(torch.full((5,), -2.5), message, 4)
    assert decode_levels(message, 5, 4).tolist() == [-2.5] * 5
    assert level_bytes(0, 4) == 0
    assert decode_levels(torch.empty(0, dtype=torch.uint8), 0, 4).numel() == 0


def test_with_32_bits_values_travel_as_they_are() -> None:
    values = torch.randn(5, generator=torch.Generator().manual_seed(6))
    message = torch.empty(level_bytes(5, 32), dtype=torch.uint8)
    encode_levels(values, message, 32, generator=torch.Generator().manual_seed(7))
    assert message.numel() == 20
    assert torch.equal(decode_levels(message, 5, 32), values)


def test_a_unit_frees_its_storage_and_autograd_sees_it_filled_again() -> None:
    weight, bias = torch.nn.Parameter(torch.randn(3, 4)), torch.nn.Parameter(torch.randn(3))
    kept = [weight.detach().clone(), bias.detach().clone()]
    units = [Unit([weight, bias], rank, chunk_bounds(15, 2)) for rank in range(1)]
    unit = units[0]
    assert not unit.is_whole
    assert weight.untyped_storage().nbytes() == 0
    flat = torch.cat([k.reshape(-1) for k in kept])

    def fill() -> None:
        for chunk, (start, stop) in zip(unit.allocate(), unit.bounds, strict=True):
            chunk.copy_(flat[start:stop])

    fill()
    x = torch.randn(2, 4, requires_grad=True)
    y = torch.nn.functional.linear(x, weight, bias).sum()
    unit.free()
    fill()
    y.backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None
    assert torch.allclose(x.grad, kept[0].sum(dim=0).expand(2, 4))
    gradients = unit.take_gradients()
    assert [len(g) for g in gradients] == [8, 7]
    assert weight.grad is None
    assert [(p.numel(), start, len(v)) for p, start, v in unit.pieces()] == [(12, 0, 8)]


def test_cosines_are_orthonormal() -> None:
    matrix = cosines(64, torch.device("cpu"))
    assert torch.allclose(matrix @ matrix.T, torch.eye(64), atol=1e-5)
    assert torch.allclose(matrix[0], torch.full((64,), 0.125))


@pytest.mark.parametrize("scheme", ["dct", "random", "striding"])
@pytest.mark.parametrize("count", [5000, 4096, 100])
def test_components_add_up_to_the_vector_they_were_taken_from(scheme: Scheme, count: int) -> None:
    vector = torch.randn(count, generator=torch.Generator().manual_seed(count))
    extractor = Extractor(count, 4096 if scheme == "dct" else 64, scheme, torch.device("cpu"))
    message = torch.empty(extractor.message_bytes, dtype=torch.uint8)
    rest = vector.clone()
    for step in range(1 if scheme == "dct" else 200):
        places = extractor.places(step, 7)
        sent = extractor.zeros()
        extractor.encode(rest, message, places)
        extractor.add_decoded(message, sent, places)
        rest.sub_(extractor.restore(sent))
    bound = 0.02 if scheme == "dct" else 0.2
    assert float(rest.norm() / vector.norm()) < bound


def test_the_largest_coefficient_of_a_pure_wave_carries_all_of_it() -> None:
    matrix = cosines(64, torch.device("cpu"))
    wave = torch.outer(matrix[3], matrix[5]).reshape(-1) * 8
    extractor = Extractor(4096, 1, "dct", torch.device("cpu"))
    message = torch.empty(extractor.message_bytes, dtype=torch.uint8)
    extractor.encode(wave, message, extractor.places(0, 7))
    sent = extractor.zeros()
    extractor.add_decoded(message, sent, extractor.places(0, 7))
    assert torch.allclose(extractor.restore(sent), wave, atol=0.02)
    assert sent.nonzero().tolist() == [[0, 3 * 64 + 5]]


def test_all_schemes_send_the_same_bytes() -> None:
    lengths = {message_bytes(54000, 64, scheme) for scheme in ("dct", "random", "striding")}
    assert max(lengths) - min(lengths) <= 1


def test_a_long_pseudo_gradient_weighs_little_and_an_infinite_one_nothing() -> None:
    assert edit.penalty_weights([2.0, 2.0], 1.0) == [0.5, 0.5]
    small, large = edit.penalty_weights([1.0, 3.0], 1.0)
    assert large / small == pytest.approx(math.exp(-2))
    assert small + large == pytest.approx(1)
    assert edit.penalty_weights([5.0, math.inf], 1.0) == [1.0, 0.0]
    assert edit.penalty_weights([math.inf, math.inf], 1.0) == [0.0, 0.0]
    assert edit.penalty_weights([1.0, 3.0], 1e9) == pytest.approx([0.5, 0.5])


def test_a_norm_is_odd_beside_its_own_past_and_leaves_no_trace_in_it() -> None:
    replica = edit.Edit(make_task(), make_comm(), fill_rounds=4)
    assert not any(replica._is_odd(0, norm) for norm in (1.0, 1.2, 0.8, 1.1))
    before = replica.average[0].clone()
    assert replica._is_odd(0, 3.0)
    assert replica._is_odd(0, math.nan)
    assert torch.equal(replica.average[0], before)
    assert not replica._is_odd(0, 1.15)
    assert not replica._is_odd(1, 3.0)  # another unit has a past of its own


def test_the_past_by_which_a_norm_is_odd_survives_a_checkpoint() -> None:
    replica, fresh = (edit.Edit(make_task(), make_comm(), fill_rounds=4) for _ in range(2))
    for norm in (1.0, 1.2, 0.8, 1.1):
        replica._is_odd(0, norm)
    assert not fresh._is_odd(0, 3.0), "without a past nothing is odd"
    fresh.load_state_dict(replica.state_dict())
    assert fresh._is_odd(0, 3.0)


def test_a_unit_whose_replicas_are_all_odd_goes_back() -> None:
    replica = edit.Edit(make_task(), make_comm(), fill_rounds=1)
    replica.rounds.fill_(1)
    begin = replica.slow[0].clone()
    replica.units[0].values.add_(1.0)
    replica.waiting.fill_(True)
    replica.average[:, 0] = 1e-9
    replica.finish()
    assert torch.equal(replica.units[0].values, begin)
    assert torch.equal(replica.slow[0], begin)
    assert not replica.waiting.any()


class OfRanks:
    """As much of a session as drawing batches needs."""

    def __init__(self, rank: int, world_size: int) -> None:
        self.rank, self.world_size = rank, world_size


def make_setting() -> Setting:
    return Setting(
        corpus=corpus.load("markov"),
        size="nano",
        context=CONTEXT,
        batch_size=8,
        steps=8,
        optimizer="sgd",
        peak_rate=0.1,
        warmup_steps=0,
        device=torch.device("cpu"),
        model_seed=1,
        data_seed=2,
        shared_seed=3,
    )


def test_ranks_read_alike_as_much_as_they_are_told() -> None:
    setting = make_setting()
    sessions: list[Any] = [OfRanks(0, 2), OfRanks(1, 2)]
    for alike, rows in ((0.0, 0), (0.5, 2), (1.0, 4)):
        first, second = (local_batches(setting, session, data_overlap=alike) for session in sessions)
        same = (first == second).all(dim=2).all(dim=0)
        assert same.tolist() == [True] * rows + [False] * (4 - rows)


def test_gradients_of_ranks_are_compared() -> None:
    same = torch.tensor([3.0, 4.0])
    found = oracle.dispersion([1.0, 3.0], [same, same * 3])
    assert found["loss_dispersion"] == pytest.approx(1.0)
    assert found["gradient_norm_dispersion"] == pytest.approx(0.5)
    assert found["gradient_cosine"] == pytest.approx(1.0)
    apart = oracle.dispersion([1.0, 1.0], [torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])])
    assert apart["gradient_cosine"] == 0
    assert apart["loss_dispersion"] == apart["gradient_norm_dispersion"] == 0


def test_bad_data_begins_half_way_and_on_one_rank_alone() -> None:
    setting = make_setting()
    session: Any = OfRanks(1, 2)
    clean, bad = local_batches(setting, session), local_batches(setting, session, corrupted=True)
    assert torch.equal(clean[:4], bad[:4])
    assert not torch.equal(clean[4:], bad[4:])
    assert int(bad.min()) >= 0
    assert int(bad.max()) < 64


def test_the_last_rank_alone_is_slow_by_its_own_computation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measurement, "compute_seconds", lambda setting, sequences: 0.25)
    sessions: list[Any] = [OfRanks(rank, 3) for rank in range(3)]
    batches = torch.zeros(1, 1, 2)
    for factor, expected in ((1.0, [0.0, 0.0, 0.0]), (2.0, [0.0, 0.0, 0.25])):
        block: Any = SimpleNamespace(params={"slow_factor": factor})
        assert [measurement._extra_seconds(s, block, make_setting(), batches) for s in sessions] == expected


def test_operations_of_a_rank_follow_from_the_time_of_a_token() -> None:
    (derived,) = [d for d in FAMILY.derived if d.name == "model_flops_per_rank"]
    params: dict[str, Any] = {"size": "tiny", "data": "markov", "context": 64, "ranks": 2}
    weights = 12 * 4 * 80**2 + 64 * 80
    operations = 6 * weights + 6 * 4 * 64 * 80
    assert derived.compute(params, 1e-3) == pytest.approx(operations / 1e-3 / 2)
    assert derived.compute(params, 0.0) is None


def test_two_rounds_may_meet_in_the_last_step() -> None:
    def peak(steps: int, sync_every: int) -> float:
        return edit.cost(
            make_task(world_size=2, steps=steps), sync_every=sync_every, by_time=False
        ).peak_bytes

    once = peak(20, 20)
    assert peak(21, 20) == peak(5, 1) == 2 * once
    assert peak(40, 20) == peak(1, 1) == once


@pytest.mark.parametrize("options", [{"weight_bits": 3}, {"gradient_bits": 16}])
def test_codes_of_other_widths_are_not_supported(options: dict[str, int]) -> None:
    with pytest.raises(UnsupportedError, match="1, 2, 4 or 8 bits"):
        qsdp.Qsdp(make_task(), make_comm(), **options)


def test_a_past_of_no_rounds_is_not_supported() -> None:
    with pytest.raises(UnsupportedError, match="at least 1"):
        edit.Edit(make_task(), make_comm(), fill_rounds=0)


def test_a_weight_may_be_rounded_to_its_other_neighbour_and_no_farther() -> None:
    torch.manual_seed(0)
    begin = torch.rand(1 << 18) + 0.5
    update = torch.randn(1 << 18) * 1e-5
    found, other = begin - update, begin - (update + torch.randn(1 << 18) * 1e-11)
    assert not torch.equal(found, other)
    (allowed,) = oracle.last_place([other])
    assert oracle.relative_distance([found], [other], [begin]) > oracle.EXACT_TOLERANCE
    assert oracle.relative_distance([found], [other], [begin], [allowed]) == 0
    for wrong in (begin, begin - 0.9 * update, begin - update.roll(1), found + 3 * allowed):
        assert oracle.relative_distance([wrong], [other], [begin], [allowed]) > oracle.EXACT_TOLERANCE


@pytest.mark.parametrize("kind", [demo.DeMo, flexdemo.FlexDeMo])
def test_a_factor_of_the_learning_rate_scales_steps_of_signs(kind: type[Replica]) -> None:
    def moved(factor: float) -> list[torch.Tensor]:
        def step(replica: Replica) -> list[torch.Tensor]:
            before = [w.clone() for w in replica.weights()]
            replica.set_rate(0.01)
            replica.forward_backward(torch.arange(4 * 17).view(4, 17) % 64)
            replica.exchange_gradients(0)
            replica.update(0)
            replica.exchange_parameters(0)
            return [w - b for w, b in zip(replica.weights(), before, strict=True)]

        return on_ranks(partial(kind, rate_factor=factor), 2, step)[0][1]

    whole, half = moved(1.0), moved(0.5)
    assert any(bool(w.any()) for w in whole)
    for left, right in zip(whole, half, strict=True):
        assert torch.allclose(left, 2 * right, atol=1e-7)


def test_a_loss_below_the_entropy_of_the_language_is_impossible() -> None:
    judging.check_possible(2.79, 2.8, 8192)
    judging.check_possible(1.0, None, 8192)
    with pytest.raises(CaseError, match=r"2.7 nats is below the language's 2.8"):
        judging.check_possible(2.7, 2.8, 8192)
    judging.check_possible(2.7, 2.8, 64)
