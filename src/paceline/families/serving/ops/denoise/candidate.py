"""One technique of ``denoise`` on this rank: made, held against one rank's own images, and measured.

It is proved twice: with all steps exact its images must be those of a plain computation in float64, and as it is they
must be nearer to those than another image is. How near is a metric. Time is measured with messages where every rank has
a core, and replayed from what the ranks computed between their messages.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from paceline.families.serving.api.denoiser import Network
from paceline.families.serving.api.denoising import Denoiser, Setting
from paceline.families.serving.api.sampler import Sampler
from paceline.families.serving.core.simulation.profiling import clock_of, one_thread
from paceline.families.serving.ops.denoise.images import draw_images
from paceline.families.serving.ops.denoise.journal import Event, JournalComm, least, replay
from paceline.families.serving.ops.denoise.network import read
from paceline.worker.ranks.session import Case, CaseError, Session

ORACLE = "one step after the other by one process, in float64, from the same noise"
MOST_OFF = 1e-3
"""Of images whose steps are all exact, over the largest value: a sampler's steps carry float32's rounding on."""
NUM_EXACT = 4
"""Images that are computed with all steps exact."""
NUM_HELD_OUT = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What all techniques of a block stand on."""

    network: Network
    digest: str
    sampler: Sampler
    noise_BSS: Tensor
    expected_BSS: Tensor
    """What the noise becomes, float64; on rank 0 alone."""
    held_out_BSS: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Proved:
    """What a technique did while it was proved."""

    off: float
    deviation: float
    distance: float
    passes: float
    """Layers that all ranks computed, over those of one image after another."""
    sent: float
    """Bytes of all ranks for an image."""


@torch.inference_mode()
def ground_of(session: Session, *, num_images: int, num_steps: int, seed: int) -> Ground:
    """Draw the noise, and compute on rank 0 what it becomes."""
    generator = torch.Generator().manual_seed(seed)
    network, digest = read(torch.float32)
    side = network.shape.side
    noise_BSS = torch.randn(num_images, side, side, generator=generator)
    sampler, expected_BSS = Sampler(num_steps), torch.empty(0)
    if session.rank == 0:
        expected_BSS = plainly(read(torch.float64)[0], sampler, noise_BSS.double())
    device = torch.device(session.device.torch_type)
    return Ground(
        network=network.to(device),
        digest=digest,
        sampler=sampler,
        noise_BSS=noise_BSS.to(device),
        expected_BSS=expected_BSS,
        held_out_BSS=draw_images(NUM_HELD_OUT, side, generator),
    )


def plainly(network: Network, sampler: Sampler, images_BSS: Tensor) -> Tensor:
    """Return what noise becomes, one step after the other."""
    for step, at in enumerate(sampler.times[:-1]):
        noise_BSS = network(images_BSS, torch.tensor([at], dtype=torch.float64))
        images_BSS = sampler.advance(images_BSS, noise_BSS, step, step + 1)
    return images_BSS


class Candidate:
    """A technique on this rank, on all ranks or on none.

    Args:
        session: Of the launch.
        case: The technique.
        ground: What it stands on.

    Raises:
        CaseError: It does not support the point, or cannot be made.
    """

    def __init__(self, session: Session, case: Case, ground: Ground) -> None:
        self.session, self.case, self.ground = session, case, ground
        loaded = session.loaded(case)
        clock, self.clock_name = clock_of(session.device.torch_type)
        self.comm = JournalComm(session.transport, clock, session.device.synchronize)
        self.setting = Setting(
            rank=session.rank, world_size=session.world_size, network=ground.network, sampler=ground.sampler
        )

        def make() -> Denoiser:
            with session.guard.watch():
                made: Denoiser = loaded.factory(self.setting, self.comm, **case.options)
            return made

        self.made = session.on_all_ranks(make)
        self.real_s: list[float] = []
        self._journals: list[list[Event]] = []

    @property
    def label(self) -> str:
        """Return the technique's name in the block."""
        return self.case.label

    def _images(self, noise_BSS: Tensor, exact: int) -> Tensor | None:
        with self.session.guard.watch():
            return self.made.denoise(noise_BSS.clone(), exact)

    @torch.inference_mode()
    def prove(self) -> Proved:
        """Denoise with all steps exact, then as the technique does, and judge both.

        Raises:
            CaseError: The images are none, or not those that they should be.
        """
        ground, session = self.ground, self.session
        exact = self._images(ground.noise_BSS[:NUM_EXACT], self.setting.num_steps)
        off, problem = math.inf, self._unlike(exact, NUM_EXACT)
        if problem is None and exact is not None:
            expected = ground.expected_BSS[:NUM_EXACT]
            off = float((exact.double().cpu() - expected).abs().max() / expected.abs().max())
            if not off <= MOST_OFF:
                problem = f"with all steps exact images are off by {off:.3g} of the largest value, over {MOST_OFF:g}"
        self._agree(problem)
        self.setting.passes = 0
        self.comm.counters.reset()
        free = self._images(ground.noise_BSS, 0)
        session.guard.check()
        problem, deviation, distance = self._unlike(free, len(ground.noise_BSS)), math.inf, math.inf
        if problem is None and free is not None:
            images = free.double().cpu()
            deviation = deviation_of(images, ground.expected_BSS)
            distance = energy_distance(images, ground.held_out_BSS.double())
            if not deviation < 1.0:
                problem = (
                    f"images are as far from those of the same noise as other images are ({deviation:.3g})"
                )
        self._agree(problem)
        counted = session.control.gather(
            [[float(self.setting.passes), float(sum(self.comm.counters.sent_bytes))]]
        )
        passes, sent = (sum(rank[0][k] for rank in counted) for k in (0, 1))
        count = len(ground.noise_BSS)
        whole = count * self.setting.num_steps * self.setting.num_layers
        return Proved(
            off=off, deviation=deviation, distance=distance, passes=passes / whole, sent=sent / count
        )

    def _unlike(self, images: Tensor | None, count: int) -> str | None:
        """Say why what was returned cannot be judged; only rank 0's is."""
        if self.comm.num_pending:
            self.comm.drop_pending()
            return "transfers were still in flight when it returned"
        if self.session.rank > 0:
            return None
        side = self.ground.network.shape.side
        if not isinstance(images, Tensor) or images.shape != (count, side, side):
            found = list(images.shape) if isinstance(images, Tensor) else type(images).__name__
            return f"rank 0 returned {found}, and images of [{count}, {side}, {side}] were asked for"
        return None if bool(images.isfinite().all()) else "values of images are not finite"

    def _agree(self, problem: str | None) -> None:
        problem = self.session.control.first_problem(problem)
        if problem is not None:
            raise CaseError("incorrect", problem)

    @torch.inference_mode()
    def measure(self) -> None:
        """Denoise all images once with messages, where every rank has a core, and once noting what is computed."""
        session, noise = self.session, self.ground.noise_BSS
        with one_thread():
            if cores_of(session) >= session.world_size or session.device.torch_type != "cpu":
                session.control.barrier()
                begin = time.perf_counter()
                self._images(noise, 0)
                session.device.synchronize()
                self.real_s.append(time.perf_counter() - begin)
            session.control.barrier()
            self.comm.begin_journal()
            self._images(noise, 0)
            self._journals.append(self.comm.take_journal())
            session.guard.check()
        self.comm.drop_pending()

    def virtual_s(self, link: Mapping[str, float]) -> float:
        """Return when rank 0 has the images, were each rank a device of its own.

        Raises:
            CaseError: Messages do not fit together, or others are sent every time.
        """
        own: list[Event] = []
        problem: str | None = None
        try:
            own = least(self._journals)
        except ValueError as error:
            problem = str(error)
        self._agree(problem)
        texts = self.session.control.gather_text(json.dumps(own))
        try:
            return replay([json.loads(text) for text in texts], rate=link["rate"], delay=link["delay"])[0]
        except ValueError as error:
            raise CaseError("incorrect", str(error)) from error


def cores_of(session: Session) -> int:
    """Return how many cores all ranks together may use."""
    texts = session.control.gather_text(json.dumps(sorted(os.sched_getaffinity(0))))
    return len({core for text in texts for core in json.loads(text)})


def deviation_of(images_BSS: Tensor, expected_BSS: Tensor) -> float:
    """Return how far images are off, over how far off another image is: 0 for the same ones, 1 for others."""
    other = expected_BSS.roll(1, 0) - expected_BSS
    return float(((images_BSS - expected_BSS).square().mean() / other.square().mean()).sqrt())


def energy_distance(images_BSS: Tensor, others_BSS: Tensor) -> float:
    """Return the energy distance between what two sets of images were drawn from, without bias.

    Székely and Rizzo, 2013, "Energy statistics": twice the mean distance between the sets, less the mean distances
    within each; distances are root mean squares over pixels. Chance can take it below zero.
    """
    first, second = (t.flatten(1) / math.sqrt(t[0].numel()) for t in (images_BSS, others_BSS))
    within = [float(torch.cdist(t, t).sum()) / (len(t) * (len(t) - 1)) for t in (first, second)]
    return 2 * float(torch.cdist(first, second).mean()) - sum(within)
