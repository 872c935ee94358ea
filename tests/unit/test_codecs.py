"""Properties of the codecs that lossy collectives share."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from paceline.families.collectives.api import codecs
from paceline.families.collectives.core.passes import bias_z

COUNTS = st.one_of(st.integers(1, 70), st.sampled_from([255, 256, 257, 4095, 4096, 4097, 8193, 12_325]))
SEEDS = st.integers(0, 2**31 - 1)
LAYER = 4096


def gaussian(count: int, seed: int) -> Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(seed))


def empty(size: int) -> Tensor:
    """Return a poisoned message: what a codec forgets to write shows."""
    return torch.full((size,), 0xAB, dtype=torch.uint8)


def buckets(values: Tensor, clip_sigmas: float = 6.0) -> Tensor:
    message = empty(codecs.bucket_bytes(values.numel()))
    codecs.encode_buckets(values, message, clip_sigmas=clip_sigmas)
    return codecs.decode_buckets(message)


def signs(values: Tensor) -> Tensor:
    message = empty(codecs.sign_bytes(values.numel()))
    codecs.encode_signs(values, message)
    return codecs.decode_signs(message, values.numel())


def ternary(values: Tensor, generator: torch.Generator, clip_sigmas: float = 0.0) -> Tensor:
    message = empty(codecs.ternary_bytes(values.numel(), LAYER))
    codecs.encode_ternary(values, message, generator, layer=LAYER, clip_sigmas=clip_sigmas)
    return codecs.decode_ternary(message, values.numel(), layer=LAYER)


def top_k(values: Tensor, k: int, bits: int = 2) -> Tensor:
    message = empty(codecs.top_k_bytes(values.numel(), k, bits))
    codecs.encode_top_k(values, message, k, bits)
    positions, decoded = codecs.decode_top_k(message, values.numel(), k, bits)
    assert positions.unique().numel() == positions.numel()
    return torch.zeros_like(values).index_add_(0, positions, decoded)


def relative(actual: Tensor, expected: Tensor) -> float:
    return float((actual.double() - expected.double()).norm() / expected.double().norm())


# Packing


@given(COUNTS, st.sampled_from([1, 2, 4]), SEEDS)
def test_packed_codes_come_back(count: int, bits: int, seed: int) -> None:
    codes = torch.randint(0, 1 << bits, (count,), generator=torch.Generator().manual_seed(seed)).to(
        torch.uint8
    )
    packed = codecs.pack(codes, bits)
    assert packed.dtype == torch.uint8
    assert packed.numel() == codecs.packed_bytes(count, bits) == math.ceil(count * bits / 8)
    assert torch.equal(codecs.unpack(packed, bits, count), codes)


@given(COUNTS, SEEDS)
def test_packed_indices_come_back(count: int, seed: int) -> None:
    indices = torch.randint(0, 4096, (count,), generator=torch.Generator().manual_seed(seed))
    packed = codecs.pack_indices(indices)
    assert packed.dtype == torch.uint8
    assert packed.numel() == codecs.index_bytes(count) == math.ceil(count / 2) * 3
    assert torch.equal(codecs.unpack_indices(packed, count), indices)


def test_every_twelve_bit_index_survives() -> None:
    indices = torch.arange(4096)
    assert torch.equal(codecs.unpack_indices(codecs.pack_indices(indices), 4096), indices)


# Sizes


def test_message_sizes_are_the_sums_of_their_parts() -> None:
    assert codecs.bucket_bytes(1000) == 1000 + 256 * 4
    assert codecs.sign_bytes(1001) == 4 + 126
    assert codecs.ternary_bytes(16_385, 16_384) == 2 * 4 + 4097
    assert codecs.top_k_bytes(4096, 64) == 8 + 96 + 16
    assert codecs.top_k_bytes(4097, 64) == 16 + 99 + 17
    assert codecs.top_k_bytes(10, 64) == 8 + 15 + 3


def test_empty_messages_are_not_sent() -> None:
    assert codecs.bucket_bytes(0) == codecs.sign_bytes(0) == 0
    assert buckets(torch.empty(0)).numel() == signs(torch.empty(0)).numel() == 0


# Error


@given(st.sampled_from([257, 4096, 12_325]), SEEDS)
@settings(max_examples=25)
def test_buckets_keep_gaussian_values_within_two_percent(count: int, seed: int) -> None:
    values = gaussian(count, seed) * 3 + 0.5
    assert relative(buckets(values), values) < 0.02


@given(COUNTS, SEEDS)
@settings(max_examples=50)
def test_buckets_keep_the_sum(count: int, seed: int) -> None:
    values = gaussian(count, seed)
    assert float(buckets(values).double().sum()) == pytest.approx(
        float(values.double().sum()), abs=1e-4 * count
    )


@given(COUNTS, SEEDS)
@settings(max_examples=50)
def test_signs_keep_every_sign_and_the_mean_magnitude(count: int, seed: int) -> None:
    values = gaussian(count, seed)
    decoded = signs(values)
    assert torch.equal(decoded >= 0, values >= 0)
    assert torch.allclose(decoded.abs(), values.abs().mean().expand(count))


@given(COUNTS, SEEDS, st.sampled_from([1, 3, 64]))
@settings(max_examples=50)
def test_top_k_sends_each_chunks_largest_with_their_signs(count: int, seed: int, k: int) -> None:
    values = gaussian(count, seed)
    decoded = top_k(values, k)
    for start in range(0, count, 4096):
        chunk, sent = values[start : start + 4096], decoded[start : start + 4096]
        chosen = sent.nonzero().view(-1)
        assert chosen.numel() == min(k, chunk.numel())
        assert torch.equal(sent[chosen] > 0, chunk[chosen] > 0)
        rest = torch.ones_like(chunk, dtype=torch.bool)
        rest[chosen] = False
        if bool(rest.any()):
            assert chunk[chosen].abs().min() >= chunk[rest].abs().max()
        assert float(sent.abs().sum()) == pytest.approx(float(chunk[chosen].abs().sum()), rel=1e-4)
    plain = top_k(values, k, 32)
    assert torch.equal(plain, torch.where(decoded == 0, 0.0, values)), (
        "with 32 bits values travel as they are"
    )


@given(COUNTS, SEEDS)
@settings(max_examples=50)
def test_payloads_that_a_codec_cannot_damage_come_back_exactly(count: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    plus_minus = torch.randint(0, 2, (count,), generator=generator).mul_(2).sub_(1).float()
    assert torch.equal(buckets(plus_minus), plus_minus)
    assert torch.equal(signs(plus_minus), plus_minus)
    assert torch.equal(ternary(plus_minus, generator), plus_minus)
    spikes = torch.zeros(count)
    spikes[seed % count :: 4096] = plus_minus[seed % count :: 4096]
    assert torch.equal(top_k(spikes, 64), spikes)


@pytest.mark.parametrize("count", [1, 5, 4097])
def test_zeros_come_back_as_zeros(count: int) -> None:
    zeros = torch.zeros(count)
    for decoded in (buckets(zeros), signs(zeros), ternary(zeros, torch.Generator()), top_k(zeros, 64)):
        assert torch.equal(decoded.abs(), zeros)


@given(COUNTS, SEEDS, st.sampled_from([0.0, 2.5]))
@settings(max_examples=50)
def test_ternary_values_are_zero_or_the_layers_scale(count: int, seed: int, clip_sigmas: float) -> None:
    values = gaussian(count, seed)
    decoded = ternary(values, torch.Generator().manual_seed(seed), clip_sigmas)
    for start in range(0, count, LAYER):
        layer, sent = values[start : start + LAYER], decoded[start : start + LAYER]
        levels = sent[sent != 0].abs().unique()
        assert levels.numel() <= 1
        assert bool(((sent == 0) | ((sent > 0) == (layer > 0))).all())
        if clip_sigmas == 0.0 and levels.numel():
            assert float(levels[0]) == float(layer.abs().max())


# Statistics


def standard_scores(encode: Callable[[Tensor], Tensor], values: Tensor, draws: int) -> Tensor:
    """Return how many standard errors the mean of repeated codings lies from each value."""
    samples = torch.stack([encode(values) for _ in range(draws)]).double()
    return (samples.mean(dim=0) - values) / (samples.std(dim=0) / math.sqrt(draws)).clamp(min=1e-12)


def is_unbiased(encode: Callable[[Tensor], Tensor]) -> bool:
    """Tell whether the mean squared standard score of many values is that of a fair codec (1 ± five deviations)."""
    values = gaussian(2000, 7)
    values = values[values.abs() > 0.3]  # rare draws of tiny values make their standard errors unreliable
    scores = standard_scores(encode, values, draws=600)
    scores = scores[values.abs() < values.abs().max()]
    return abs(float(scores.square().mean()) - 1) < 5 * math.sqrt(2 / scores.numel())


def test_ternary_is_unbiased() -> None:
    generator = torch.Generator().manual_seed(11)
    assert is_unbiased(lambda values: ternary(values, generator))


def test_clipped_ternary_is_seen_to_be_biased() -> None:
    generator = torch.Generator().manual_seed(11)
    assert not is_unbiased(lambda values: ternary(values, generator, clip_sigmas=1.0))


@pytest.mark.parametrize(("clip_sigmas", "unbiased"), [(0.0, True), (2.5, False)])
def test_the_gain_of_repeated_calls_tells_a_clipped_codec_from_a_fair_one(
    clip_sigmas: float, unbiased: bool
) -> None:
    generator = torch.Generator().manual_seed(13)
    values = gaussian(8192, 17)
    norm = float(values @ values)
    gains = [float(ternary(values, generator, clip_sigmas) @ values) / norm for _ in range(40)]
    score = bias_z(gains)
    assert score is not None
    assert (abs(score) <= 3) == unbiased, score


def test_calls_that_are_too_few_or_all_alike_have_no_gain_score() -> None:
    assert bias_z([1.01, 0.99, 1.0, 1.02]) is None
    assert bias_z([0.9] * 8) is None
    assert bias_z([1.0, 1.1, 0.9, 1.1, 0.9]) == pytest.approx(0.0, abs=1e-12)


def test_clipping_lowers_the_variance_of_ternary_values() -> None:
    generator = torch.Generator().manual_seed(3)
    values = gaussian(4096, 3)
    assert relative(ternary(values, generator, 2.5), values) < relative(ternary(values, generator), values)


def test_equal_seeds_give_equal_ternary_values() -> None:
    values = gaussian(5000, 1)
    first, second = (ternary(values, torch.Generator().manual_seed(5)) for _ in range(2))
    assert torch.equal(first, second)


# Known-wrong codecs: the checks above must be able to fail


def test_the_statistical_check_rejects_a_shifted_chance() -> None:
    generator = torch.Generator().manual_seed(11)

    def shifted(values: Tensor) -> Tensor:
        scale = values.abs().max()
        draw = torch.rand(values.shape, generator=generator) + 0.02
        return torch.where(draw < values.abs() / scale, values.sign() * scale, torch.zeros(()))

    assert not is_unbiased(shifted)


def test_the_statistical_check_rejects_rounding_to_the_nearest_level() -> None:
    def nearest(values: Tensor) -> Tensor:
        scale = values.abs().max()
        return torch.round(values / scale) * scale

    assert not is_unbiased(nearest)


@pytest.mark.parametrize("wrong", ["swapped-halves", "one-off", "eleven-bits"])
def test_the_round_trip_rejects_wrong_index_codecs(wrong: str) -> None:
    indices = torch.arange(4096).flip(0)
    packed = codecs.pack_indices(indices)
    damaged = {
        "swapped-halves": lambda: codecs.unpack_indices(packed, 4096).roll(2048),
        "one-off": lambda: codecs.unpack_indices(packed, 4096) + 1,
        "eleven-bits": lambda: codecs.unpack_indices(codecs.pack_indices(indices & 2047), 4096),
    }[wrong]()
    assert not torch.equal(damaged, indices)


def test_signs_without_a_scale_are_seen_as_a_gross_error() -> None:
    values = gaussian(4096, 2) * 100
    assert relative(signs(values), values) < 0.65
    assert relative(values.sign(), values) > 0.95


def test_half_as_wide_buckets_lose_by_clipping_what_they_gain() -> None:
    """The authors' clip is 3: within it the error is that of half as wide buckets, beyond it the tail's spread."""
    values = gaussian(1 << 20, 3)
    beyond = math.erfc(3 / math.sqrt(2))
    mean = 2 * math.exp(-4.5) / math.sqrt(2 * math.pi) / beyond
    narrow = math.sqrt((1 - beyond) * (6 / 256) ** 2 / 12 + beyond * (1 + 3 * mean - mean**2))
    assert relative(buckets(values, 3.0), values) == pytest.approx(narrow, rel=0.03)
    assert relative(buckets(values), values) == pytest.approx(12 / 256 / math.sqrt(12), rel=0.03)


def test_bucket_edges_instead_of_means_cost_accuracy() -> None:
    values = gaussian(1 << 16, 2)
    sigma = values.std()
    edges = torch.floor(values / (12 * sigma / 256)) * (12 * sigma / 256)
    assert relative(buckets(values), values) < 0.6 * relative(edges, values)
