"""Ranks that share denoising: images as their headers say, work and bytes counted, time replayed from journals."""

from __future__ import annotations

import itertools
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from mutant_files import module_of
from paceline.baselines.serving import asyncdiff, fewer_steps, layer_split, sequential_denoising
from thread_ranks import on_ranks_of_threads
from torch import Tensor

from paceline.families.collectives.api.problem import chunk_bounds
from paceline.families.serving.api.denoiser import Network, Shape
from paceline.families.serving.api.denoising import Setting, UnsupportedError
from paceline.families.serving.api.sampler import FIRST_TIME, Sampler, scales
from paceline.families.serving.ops.denoise.candidate import deviation_of, energy_distance, plainly
from paceline.families.serving.ops.denoise.images import draw_images
from paceline.families.serving.ops.denoise.journal import Event, JournalComm, least, replay
from paceline.families.serving.ops.denoise.network import WEIGHTS, read
from paceline.families.serving.ops.denoise.training import train
from paceline.worker.communication.transport import ThreadHub, ThreadTransport
from paceline.worker.fences.guard import ContractBreachError

MUTANTS = Path(__file__).parents[1] / "mutants" / "denoising"
SHAPE = Shape(side=8, patch=4, width=16, layers=6, heads=2)
STEPS, IMAGES = 9, 5
CLOSE = 1e-9


def drawn_network() -> Network:
    """Return a network whose layers all matter, in float64."""
    generator = torch.Generator().manual_seed(3)
    network = Network(SHAPE).double().requires_grad_(False)
    for weight in network.parameters():
        weight.copy_(0.4 * torch.randn(weight.shape, generator=generator) / math.sqrt(weight.shape[-1]))
    return network


NETWORK, SAMPLER = drawn_network(), Sampler(STEPS)
NOISE = torch.randn(IMAGES, 8, 8, generator=torch.Generator().manual_seed(4)).double()


class Rank:
    """One rank with a technique."""

    def __init__(
        self, make: Callable[..., Any], number: int, hub: ThreadHub, size: int, **options: Any
    ) -> None:
        self.comm = JournalComm(ThreadTransport(hub, number), time.thread_time_ns, lambda: None)
        self.setting = Setting(rank=number, world_size=size, network=NETWORK, sampler=SAMPLER)
        self.made = make(self.setting, self.comm, **options)
        self.images: Tensor | None = None

    @torch.inference_mode()
    def denoised(self, exact: int) -> Rank:
        self.images = self.made.denoise(NOISE.clone(), exact)
        return self


def denoised(make: Callable[..., Any], size: int, exact: int = 0, **options: Any) -> list[Rank]:
    hub = ThreadHub(size, timeout_s=60)
    ranks = [Rank(make, number, hub, size, **options) for number in range(size)]
    return on_ranks_of_threads(lambda rank: ranks[rank].denoised(exact), size)


def off(ranks: list[Rank], expected: Tensor) -> float:
    assert ranks[0].images is not None
    return float((ranks[0].images - expected).abs().max() / expected.abs().max())


def shown(network: Network, layers: range, stream: Tensor, step: int) -> Tensor:
    for number in layers:
        stream = network.layers[number](
            stream, network.times(torch.tensor([SAMPLER.times[step]], dtype=torch.float64))
        )
    return stream


def old_news(ways: int, warm_up: int, stride: int) -> Tensor:
    """Return what AsyncDiff's images are, by what each component last said: no ranks, no messages."""
    parts = [range(*bounds) for bounds in chunk_bounds(SHAPE.layers, ways)]
    images, said = NOISE, [torch.empty(0)] * ways
    for step in range(min(warm_up, STEPS)):
        stream = NETWORK.embed(images)
        for place, part in enumerate(parts):
            stream = said[place] = shown(NETWORK, part, stream, step)
        images = SAMPLER.advance(images, NETWORK.read_out(stream), step, step + 1)
    for first in range(warm_up, STEPS, stride):
        end = min(first + stride, STEPS)
        heard = [NETWORK.embed(images), *said[:-1]]
        noises = [NETWORK.read_out(shown(NETWORK, parts[-1], heard[-1], step)) for step in range(first, end)]
        said = [shown(NETWORK, part, stream, end - 1) for part, stream in zip(parts, heard, strict=True)]
        for step, noise in enumerate(noises, start=first):
            images = SAMPLER.advance(images, noise, step, step + 1)
    return images


@pytest.mark.parametrize(("size", "stride"), [(2, 1), (3, 1), (4, 1), (3, 2), (4, 2), (5, 3)])
@pytest.mark.parametrize("warm_up", [1, 3, STEPS - 1])
def test_components_read_what_the_one_before_said_a_step_ago(size: int, stride: int, warm_up: int) -> None:
    ways = size - stride + 1
    ranks = denoised(asyncdiff.AsyncDiff, size, warm_up=warm_up, stride=stride)
    expected = old_news(ways, warm_up, stride)
    assert off(ranks, expected) < CLOSE
    assert off(ranks, plainly(NETWORK, SAMPLER, NOISE)) > 100 * CLOSE
    assert [rank.images is None for rank in ranks] == [number > 0 for number in range(size)]
    assert sum(rank.comm.num_pending for rank in ranks) == 0


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize(
    "make",
    [
        sequential_denoising.SequentialDenoising,
        fewer_steps.FewerSteps,
        layer_split.LayerSplit,
        asyncdiff.AsyncDiff,
    ],
)
def test_exact_steps_are_those_of_one_rank(make: Callable[..., Any], size: int) -> None:
    if size == 1 and make is asyncdiff.AsyncDiff:
        with pytest.raises(
            UnsupportedError, match="two components at a stride of 1 need 2 ranks; there are 1"
        ):
            denoised(make, size)
        return
    assert off(denoised(make, size, exact=STEPS), plainly(NETWORK, SAMPLER, NOISE)) < CLOSE
    # the first steps alone: what follows is the technique's own
    some = denoised(make, size, exact=STEPS // 2)
    if make in (sequential_denoising.SequentialDenoising, layer_split.LayerSplit):
        assert off(some, plainly(NETWORK, SAMPLER, NOISE)) < CLOSE
    elif make is asyncdiff.AsyncDiff:
        assert off(some, old_news(size, STEPS // 2, 1)) < CLOSE


def test_fewer_steps_are_a_sampler_over_fewer_times() -> None:
    images = NOISE
    for step in range(0, STEPS, 2):
        noise = NETWORK(images, torch.tensor([SAMPLER.times[step]], dtype=torch.float64))
        images = SAMPLER.advance(images, noise, step, min(step + 2, STEPS))
    (rank,) = denoised(fewer_steps.FewerSteps, 1)
    assert off([rank], images) < CLOSE
    assert rank.setting.passes == IMAGES * SHAPE.layers * math.ceil(STEPS / 2)


@pytest.mark.parametrize(("size", "stride", "warm_up"), [(2, 1, 1), (3, 1, 2), (3, 2, 3), (6, 1, 1)])
def test_work_and_bytes_are_those_of_the_header(size: int, stride: int, warm_up: int) -> None:
    ranks = denoised(asyncdiff.AsyncDiff, size, warm_up=warm_up, stride=stride)
    ways, slots = size - stride + 1, math.ceil((STEPS - warm_up) / stride)
    widths = [last - first for first, last in chunk_bounds(SHAPE.layers, ways)]
    own = [widths[min(number, ways - 1)] for number in range(size)]
    assert [r.setting.passes for r in ranks] == [
        IMAGES * (warm_up * SHAPE.layers + slots * width) for width in own
    ]
    stream, image = IMAGES * SHAPE.patches * SHAPE.width * 8, IMAGES * 64 * 8
    streams = (slots - 1) * (ways - 2 + stride) * stream
    told = (STEPS - warm_up) * image
    sent = sum(sum(r.comm.counters.sent_bytes) for r in ranks)
    assert sent == streams + told


def test_split_layers_send_a_stream_to_each_next_rank_and_an_image_back() -> None:
    ranks = denoised(layer_split.LayerSplit, 3)
    stream, image = IMAGES * SHAPE.patches * SHAPE.width * 8, IMAGES * 64 * 8
    assert sum(sum(r.comm.counters.sent_bytes) for r in ranks) == STEPS * (2 * stream + image)
    assert sum(r.setting.passes for r in ranks) == IMAGES * STEPS * SHAPE.layers


@pytest.mark.parametrize("name", ["forgets_a_layer", "never_exact"])
def test_a_wrong_technique_is_far_off_where_it_should_be_exact(name: str) -> None:
    ranks = denoised(module_of(MUTANTS / f"{name}.py").Mutant, 2, exact=STEPS)
    assert off(ranks, plainly(NETWORK, SAMPLER, NOISE)) > 1e-2


def test_a_collective_of_the_backend_is_refused() -> None:
    with pytest.raises(ContractBreachError, match=r"comm\.backend\.broadcast: send messages"):
        denoised(module_of(MUTANTS / "asks_the_backend.py").Mutant, 1)


def test_other_images_deviate_by_one_and_the_same_by_nothing() -> None:
    expected = plainly(NETWORK, SAMPLER, NOISE)
    assert deviation_of(expected, expected) == 0.0
    assert deviation_of(expected.roll(1, 0), expected) == pytest.approx(1.0)
    assert deviation_of(expected + 1e-3, expected) < 0.01


# Sampler, model and images


def test_a_sampler_that_knows_the_noise_ends_at_the_image() -> None:
    image = draw_images(1, 8, torch.Generator().manual_seed(0)).double()
    for steps in (1, 4, 40):
        sampler, images = Sampler(steps), NOISE
        for step, at in enumerate(sampler.times[:-1]):
            share, sigma = scales(at)
            images = sampler.advance(images, (images - share * image) / sigma, step, step + 1)
        assert float((images - image).abs().max()) < 1e-9


def test_times_end_at_none_and_scales_keep_the_variance() -> None:
    assert (SAMPLER.times[0], SAMPLER.times[-1], len(SAMPLER.times)) == (FIRST_TIME, 0.0, STEPS + 1)
    assert scales(0.0) == (1.0, 0.0)
    assert all(math.isclose(a**2 + s**2, 1.0) for a, s in map(scales, SAMPLER.times))


def test_the_kept_denoiser_says_the_noise_in_held_out_images() -> None:
    """As well as its log says, and far better than one that knows nothing of images."""
    network, digest = read(torch.float32)
    generator = torch.Generator().manual_seed(11)
    images = draw_images(192, network.shape.side, generator)
    times = FIRST_TIME * torch.rand(len(images), 1, 1, generator=generator)
    noise = torch.randn(images.shape, generator=generator)
    angles = math.pi * times / 2
    with torch.inference_mode():
        said = network(angles.cos() * images + angles.sin() * noise, times)
    loss = float((said - noise).square().mean())
    lines = [json.loads(line) for line in WEIGHTS.with_suffix(".log.jsonl").read_text().splitlines()]
    assert loss == pytest.approx(lines[-1]["loss"], rel=0.25)
    assert loss < 0.1
    assert len(digest) == 12


def test_images_of_the_kept_denoiser_are_nearer_to_held_out_ones_than_noise_or_greys() -> None:
    network, _ = read(torch.float32)
    generator = torch.Generator().manual_seed(12)
    noise = torch.randn(48, 16, 16, generator=generator)
    with torch.inference_mode():
        images = plainly(network.double(), Sampler(20), noise.double())
    others = draw_images(256, 16, generator).double()
    found = energy_distance(images, others)
    means = others.mean((1, 2), keepdim=True)[:48].expand(-1, 16, 16)
    assert found < 0.2 * energy_distance(means, others)
    assert found < 0.05 * energy_distance(noise.double(), others)


def test_an_energy_distance_is_that_of_all_pairs() -> None:
    first, second = NOISE[:3], NOISE[2:] + 1.0

    def mean(pairs: list[tuple[Tensor, Tensor]]) -> float:
        return sum(float((a - b).square().mean().sqrt()) for a, b in pairs) / len(pairs)

    between = mean(list(itertools.product(first, second)))
    within = [mean(list(itertools.permutations(some, 2))) for some in (first, second)]
    assert energy_distance(first, second) == pytest.approx(2 * between - sum(within))


def test_training_is_the_same_for_a_seed_and_learns(tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    try:
        for name, seed in (("a", 1), ("b", 1), ("c", 2)):
            train(tmp_path / name, tmp_path / f"{name}.log", steps=2, seed=seed)
    finally:
        torch.set_num_threads(threads)
    kept = [(tmp_path / name).read_bytes() for name in "abc"]
    assert kept[0] == kept[1] != kept[2]
    losses = [json.loads(line)["loss"] for line in WEIGHTS.with_suffix(".log.jsonl").read_text().splitlines()]
    assert losses[-1] < 0.2 * losses[0]


def test_a_damaged_weight_file_is_told(tmp_path: Path) -> None:
    content = bytearray(WEIGHTS.read_bytes())
    damaged = tmp_path / "denoiser.safetensors"
    damaged.write_bytes(bytes(content).replace(b'"layers":"12"', b'"layers":"11"'))
    with pytest.raises(ValueError, match="no denoiser of the shape that its metadata states"):
        read(torch.float32, damaged)


# Journals


def sends(number: int, *messages: tuple[int, int]) -> Event:
    return ("start", number, list(messages), [])


def takes(number: int, *senders: int) -> Event:
    return ("start", number, [], list(senders))


def waits(number: int) -> Event:
    return ("wait", number, [], [])


def computes(seconds: float) -> Event:
    return ("compute", seconds, [], [])


def test_a_replay_is_what_one_reckons_by_hand() -> None:
    first = [
        computes(1.0),
        sends(0, (1, 100), (1, 50)),
        computes(2.0),
        waits(0),
        takes(1, 1),
        waits(1),
        computes(1.0),
    ]
    second = [takes(0, 0), takes(1, 0), waits(1), computes(4.0), waits(0), sends(2, (0, 10)), waits(2)]
    # rank 0 sends at 1; its messages have left at 2 and 2.5 and arrive 0.25 later; it computes until 3
    # rank 1 has the second message at 2.75, computes until 6.75, and its message arrives at 6.85 + 0.25
    assert replay([first, second], rate=100.0, delay=0.25) == pytest.approx([8.1, 6.85])


def test_one_who_waits_for_what_is_computed_beside_waits_no_longer_than_that() -> None:
    both = [[sends(0, (other, 0)), takes(1, other), computes(3.0), waits(1)] for other in (1, 0)]
    assert replay(both, rate=1.0, delay=1.0) == [3.0, 3.0]
    assert replay(both, rate=1.0, delay=5.0) == [5.0, 5.0]


def test_journals_that_do_not_fit_together_are_refused() -> None:
    with pytest.raises(ValueError, match="ranks 0, 1 wait for messages that nobody sends"):
        replay(
            [[takes(0, 1), waits(0), sends(1, (1, 4))], [takes(0, 0), waits(0), sends(1, (0, 4))]],
            rate=1,
            delay=0,
        )
    with pytest.raises(ValueError, match="rank 0 sends 1 message to rank 1, which receives 0"):
        replay([[sends(0, (1, 4))], []], rate=1, delay=0)
    with pytest.raises(ValueError, match="communicates otherwise"):
        least([[computes(1.0), waits(0)], [computes(1.0), sends(0, (1, 4))]])
    with pytest.raises(ValueError, match="longer"):
        least([[computes(1.0)], [computes(1.0), waits(0)]])
    assert least([[computes(2.0), waits(7)], [computes(1.0), waits(7)]]) == [computes(1.0), waits(7)]


def test_a_journal_holds_what_lies_between_messages_and_moves_nothing() -> None:
    now = [0]
    hub = ThreadHub(2, timeout_s=60)
    comm = JournalComm(ThreadTransport(hub, 0), lambda: now[0], lambda: None)
    comm.begin_journal()
    now[0] += 3_000_000_000
    message, empty = torch.ones(4), torch.empty(0)
    transfer = comm.start(sends=[(message, 1), (empty, 1)], receives=[(torch.ones(2), 1)])
    now[0] += 1_000_000_000
    transfer.wait()
    transfer.wait()
    comm.send(message, 1)
    now[0] += 2_000_000_000
    journal = comm.take_journal()
    assert [e for e in journal if e[0] != "compute" or e[1]] == [
        computes(3.0),
        ("start", 0, [(1, 16)], [1]),
        computes(1.0),
        waits(0),
        sends(1, (1, 16)),
        waits(1),
        computes(2.0),
    ]
    assert comm.num_pending == 0
    with pytest.raises(ValueError, match="rank 0 cannot exchange with rank 2 of 2"):
        comm.begin_journal()
        comm.send(message, 2)
    comm.take_journal()


@pytest.mark.parametrize("size", [2, 4])
def test_components_at_once_take_a_share_of_the_time(size: int) -> None:
    """Were every layer to take as long: (w + (S - w) / N) of S steps, from the technique's own journal."""
    seconds = {}
    for make in (asyncdiff.AsyncDiff, layer_split.LayerSplit):
        ranks = [Rank(make, number, ThreadHub(size), size) for number in range(size)]
        journals = []
        for rank in ranks:
            rank.comm._clock = lambda rank=rank: rank.setting.passes * 10**9
            rank.comm.begin_journal()
            with torch.inference_mode():
                rank.made.denoise(NOISE, 0)
            journals.append(rank.comm.take_journal())
        seconds[make] = replay(journals, rate=math.inf, delay=0.0)[0] / (IMAGES * SHAPE.layers)
    widest = max(last - first for first, last in chunk_bounds(SHAPE.layers, size)) / SHAPE.layers
    assert seconds[asyncdiff.AsyncDiff] == pytest.approx(1 + (STEPS - 1) * widest)
    assert seconds[layer_split.LayerSplit] == pytest.approx(STEPS)
