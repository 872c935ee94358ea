"""What a decoder keeps of the tokens before: packing, bytes in closed form, reading against whole texts, mutants."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mutant_files import module_of
from paceline.baselines.serving.full_cache import FullCache
from paceline.baselines.serving.kv_quant import QuantisedKeysValues
from paceline.baselines.serving.xquant import XQuant
from torch import Tensor

from paceline.families.reasoning.core.problems.embedded import LEVELS, PADDING
from paceline.families.reasoning.core.reasoner.network import Network, Shape, initialise
from paceline.families.serving.api.caching import Cache, CachedModel, Kept
from paceline.families.serving.api.quantised import packed, quantised, restored, unpacked
from paceline.families.serving.ops.cache.child import network_of
from paceline.families.serving.ops.cache.flops import rebuild_flops
from paceline.families.serving.ops.cache.reading import (
    Moment,
    Reading,
    WrongCacheError,
    check_kept,
    read,
    whole_losses,
    wrong_moment,
)
from paceline.families.serving.ops.cache.texts import Texts, draw_texts

WIDTH, LAYERS = 128, 4
MUTANTS = Path(__file__).parents[1] / "mutants" / "caches"


class KeepsAll:
    """Keys and values as they are: the harness's own reading must then be the plain one."""

    def keep(
        self, model: CachedModel, layer: int, x_B1D: Tensor, kept: Sequence[Mapping[str, Tensor]]
    ) -> Kept:
        keys, values = model.layers[layer].keys_values(x_B1D)
        return {"keys": keys, "values": values}

    def keys_values(
        self, model: CachedModel, layer: int, kept: Sequence[Mapping[str, Tensor]]
    ) -> tuple[Tensor, Tensor]:
        return kept[layer]["keys"], kept[layer]["values"]


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def strong() -> Network:
    return network_of("strong")


@pytest.fixture(scope="module")
def texts() -> Texts:
    return draw_texts(3, 12, 256)


@pytest.fixture(scope="module")
def beginnings(texts: Texts) -> Texts:
    return Texts(tokens_BT=texts.tokens_BT[:, :40], counted_BT=texts.counted_BT[:, :40])


def loss(reading: Reading, texts: Texts) -> float:
    return float(reading.losses_BT[texts.counted_BT[:, 1:]].mean())


@settings(max_examples=60, deadline=None)
@given(bits=st.sampled_from([1, 2, 3, 4, 8]), eighths=st.integers(1, 9), seed=st.integers(0, 2**32))
def test_packed_codes_come_back_and_fill_whole_bytes(bits: int, eighths: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randint(0, 2**bits, (2, 3, 8 * eighths), generator=generator, dtype=torch.uint8)
    kept = packed(codes, bits)
    assert kept.dtype == torch.uint8
    assert kept.numel() * 8 == codes.numel() * bits
    assert torch.equal(unpacked(kept, bits), codes)


@settings(max_examples=60, deadline=None)
@given(
    bits=st.sampled_from([2, 3, 4, 8]),
    group=st.sampled_from([8, 16, 64]),
    size=st.floats(1e-3, 1e3),
    seed=st.integers(0, 2**32),
)
def test_a_number_is_off_by_half_a_step_at_most(bits: int, group: int, size: float, seed: int) -> None:
    x = torch.randn(3, 5, 64, generator=torch.Generator().manual_seed(seed)) * size
    codes, scales = quantised(x, bits, group)
    steps = scales[..., 0].float().repeat_interleave(group, -1)
    largest = x.abs().max()
    # float16 keeps 11 digits of the offset and of the step, and the last code is 2^bits − 1 steps away.
    rounding = largest * 2.0**-10 + steps * (2**bits - 1) * 2.0**-10
    assert bool(((restored(codes, scales, bits) - x).abs() <= 0.5 * steps + rounding).all())
    assert codes.shape == (3, 5, 64 * bits // 8)
    assert scales.shape == (3, 5, 64 // group, 2)
    assert scales.dtype == torch.float16


def test_equal_numbers_come_back_and_impossible_widths_are_refused() -> None:
    codes, scales = quantised(torch.full((1, 1, 16), 3.0), 2, 16)
    assert torch.equal(restored(codes, scales, 2), torch.full((1, 1, 16), 3.0))
    for bits, group in ((5, 16), (4, 12), (4, 48)):
        with pytest.raises(ValueError, match=f"codes of {bits} bits"):
            quantised(torch.zeros(1, 1, 64), bits, group)


def test_texts_are_drawn_from_their_seed_and_count_what_follows_the_problem(texts: Texts) -> None:
    again = draw_texts(3, 12, 256)
    assert torch.equal(again.tokens_BT, texts.tokens_BT)
    assert not torch.equal(draw_texts(4, 12, 256).tokens_BT[0], texts.tokens_BT[0])
    assert texts.tokens_BT.shape[0] == 12 > len(LEVELS)
    assert not texts.counted_BT[:, 0].any()
    assert not (texts.counted_BT & (texts.tokens_BT == PADDING)).any()
    assert (texts.counted_BT.sum(1) > 5).all()


def test_reading_position_by_position_is_one_pass_over_whole_texts(strong: Network, texts: Texts) -> None:
    whole = whole_losses(strong, texts)
    counted = texts.counted_BT[:, 1:]
    reading = read(strong, texts, KeepsAll, bits=4)
    assert reading.losses_BT.shape == whole.shape
    assert torch.allclose(reading.losses_BT[counted], whole[counted], atol=2e-4)
    assert reading.bytes_per_token == 2 * LAYERS * WIDTH * 4
    assert float(whole[counted].mean()) < 0.2, "the model has learned these texts"


def test_a_network_that_nobody_trained_is_read_alike(beginnings: Texts) -> None:
    network = Network(Shape(width=32, layers=3, heads=2, symbols=37, context=256))
    initialise(network, torch.Generator().manual_seed(1))
    with torch.no_grad():
        for layer in network.layers:
            torch.nn.init.normal_(layer.mix.weight, std=0.2, generator=torch.Generator().manual_seed(2))
            torch.nn.init.normal_(layer.down.weight, std=0.2, generator=torch.Generator().manual_seed(3))
            torch.nn.init.normal_(layer.attention_gain, generator=torch.Generator().manual_seed(4))
    network.requires_grad_(False)
    reading = read(network, beginnings, KeepsAll, bits=4)
    assert torch.allclose(reading.losses_BT, whole_losses(network, beginnings), atol=1e-3)


@pytest.mark.parametrize(
    ("make", "bits", "size", "rebuilt"),
    [
        (FullCache, 4, 2 * LAYERS * WIDTH * 2, 0),
        (QuantisedKeysValues, 4, 2 * LAYERS * (WIDTH * 4 // 8 + 4), 0),
        (lambda: QuantisedKeysValues(group=32), 3, 2 * LAYERS * (WIDTH * 3 // 8 + 16), 0),
        (XQuant, 4, LAYERS * (WIDTH * 4 // 8 + 4), 4 * LAYERS * WIDTH**2),
        (XQuant, 2, LAYERS * (WIDTH * 2 // 8 + 4), 4 * LAYERS * WIDTH**2),
        (
            lambda: XQuant(across=True, base_bits=8),
            2,
            WIDTH + 4 + (LAYERS - 1) * (WIDTH // 4 + 4),
            4 * LAYERS * WIDTH**2,
        ),
    ],
)
def test_bytes_and_operations_are_the_closed_forms(
    make: Callable[[], Cache], bits: int, size: int, rebuilt: int, strong: Network, beginnings: Texts
) -> None:
    reading = read(strong, beginnings, make, bits=bits, shown=(9, 30))
    assert reading.bytes_per_token == size
    assert rebuild_flops(strong, reading.moments, make, bits=bits) == rebuilt


@pytest.mark.full
def test_inputs_in_four_bits_lose_less_than_keys_and_values_in_two(strong: Network, texts: Texts) -> None:
    plain = loss(read(strong, texts, FullCache, bits=4), texts)
    inputs = loss(read(strong, texts, XQuant, bits=4), texts)
    both = loss(read(strong, texts, QuantisedKeysValues, bits=2), texts)
    assert abs(plain - float(whole_losses(strong, texts)[texts.counted_BT[:, 1:]].mean())) < 1e-3
    assert inputs - plain < 0.02
    assert both - plain > 10 * abs(inputs - plain)


@pytest.mark.full
def test_differences_across_layers_lose_less_than_inputs_of_the_same_bits(
    strong: Network, texts: Texts
) -> None:
    across = loss(read(strong, texts, lambda: XQuant(across=True, base_bits=4), bits=2), texts)
    assert across < loss(read(strong, texts, XQuant, bits=2), texts)


def wrong_cache(name: str) -> Any:
    """Return the module of a known-wrong cache."""
    return module_of(MUTANTS / f"{name}.py")


@pytest.mark.parametrize(
    ("name", "technique", "reason"),
    [
        ("forgets_the_first", "ForgetsTheFirst", r"keys of layer 0 are .*\[12, 0, 128\]"),
        ("keeps_a_view", "KeepsAView", "'codes' is .*, no plain tensor"),
    ],
)
def test_a_wrong_cache_is_refused(
    name: str, technique: str, reason: str, strong: Network, beginnings: Texts
) -> None:
    with pytest.raises(WrongCacheError, match=reason):
        read(strong, beginnings, getattr(wrong_cache(name), technique), bits=4)


def test_who_remembers_elsewhere_is_found_by_a_process_that_remembers_nothing(
    strong: Network, beginnings: Texts
) -> None:
    shown = (20, 30)
    moments = read(strong, beginnings, wrong_cache("remembers").Remembers, bits=4, shown=shown).moments
    assert [(m.layer, m.keys_BTF.shape[1] - 1) for m in moments] == [
        (layer, place) for place in shown for layer in range(LAYERS)
    ]
    problem = wrong_moment(strong, moments, wrong_cache("remembers").Remembers, bits=4)
    assert problem is not None
    assert "keys of layer 0 at position 20 are off by" in problem
    for make in (FullCache, XQuant, lambda: XQuant(across=True)):
        honest: Sequence[Moment] = read(strong, beginnings, make, bits=3, shown=shown).moments
        assert wrong_moment(strong, honest, make, bits=3) is None


@pytest.mark.parametrize(
    ("kept", "reason"),
    [
        ({}, "no table of tensors"),
        ([torch.zeros(2, 1)], "list, no table"),
        ({"x": 3}, "'x' is int"),
        ({"x": torch.zeros(2, 2)}, r"\[2, 2\], no plain tensor of \[2, 1, …\]"),
        ({"x": torch.zeros(3, 1, 4)}, r"\[3, 1, 4\], no plain"),
        ({"x": torch.nn.Parameter(torch.zeros(2, 1, 4))}, "no plain tensor"),
        ({"x": torch.zeros(2, 1, 4, dtype=torch.float64)}, "float64"),
    ],
)
def test_what_cannot_be_counted_is_refused(kept: object, reason: str) -> None:
    with pytest.raises(WrongCacheError, match=reason):
        check_kept(kept, 2)  # type: ignore[arg-type]
