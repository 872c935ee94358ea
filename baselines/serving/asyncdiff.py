"""AsyncDiff: every rank computes its share of the layers at the same time, on what the share before it said a step ago.

Chen, Ma, Fang, Tan and Wang, 2024, "AsyncDiff: Parallelizing Diffusion Models by Asynchronous Denoising"
(arXiv:2406.06911).

Algorithm: the L layers are cut into N components, one a rank. In the first ``warm_up`` steps every rank computes all
layers for itself and remembers what enters its component. From then on component n reads what component n - 1 said in
the step before, so that all components of a step compute at once: the noise of step s follows from images N - 1 steps
older, and is used at step s. With a stride of K the components compute once for K steps, at the time of the last of
them, and K ranks compute the last component, each at the time of one of the K steps: N = P - K + 1.
Cost: after warming up 1/N of a step's layers in 1/N of its time, 1/(N·K) with a stride; whole weights on every rank,
since every rank warms up. A step sends N - 2 streams from rank to rank, one to each copy of the last component, and
each copy an image of noise to rank 0.
Limits: N of 2 and more; what a component reads is as old as its distance from the images.
"""

from __future__ import annotations

import torch
from paceline.baselines.serving.sequential_denoising import whole_step

from paceline import technique
from paceline.families.serving.api.denoising import Comm, Setting, Tensor, UnsupportedError, chunk_bounds


@technique(
    name="asyncdiff",
    family="serving",
    implements=("denoise",),
    paper="asyncdiff",
    summary="ranks compute their layers at the same time, on what the layers before said a step ago",
    fidelity={
        "source": {
            "read": "code",
            "paper": "the abstract, read for this card",
            "code": "github.com/czg1225/AsyncDiff: asyncdiff/async_sd.py, tools.py, pipe_config.py, README.md, "
            "examples",
        },
        "deviations": (
            "A stream goes to the rank that reads it; the authors broadcast each to all ranks.",
            (
                "Components are the denoiser's layers, which cost the same each; the authors cut each model by hand "
                "into 2, 3 or 4 parts (pipe_config.py), with skip connections between them."
            ),
            "Any stride may be asked for; the authors allow 1 and 2.",
            "There is no shift of times (time_shift), which is off by default there.",
        ),
        "constants": {
            "warm_up": {
                "here": 1,
                "authors": "1, async_sd.py; 9 of 50 in the examples of SD 2.1 and SDXL, whose stride is 2, else 1 to 3",
                "official": 1,
                "source": "github.com/czg1225/AsyncDiff: asyncdiff/async_sd.py",
            },
            "stride": {
                "here": 1,
                "authors": "1, async_sd.py",
                "official": 1,
                "source": "github.com/czg1225/AsyncDiff: asyncdiff/async_sd.py",
            },
        },
        "checked_by": (
            "tests/unit/test_denoising.py::test_components_read_what_the_one_before_said_a_step_ago",
            "tests/unit/test_denoising.py::test_exact_steps_are_those_of_one_rank",
        ),
    },
)
class AsyncDiff:
    """Components side by side.

    Args:
        setting: Of the rank.
        comm: The communicator.
        warm_up: Steps that every rank computes whole, 1 at least.
        stride: Steps for which a component computes once.

    Raises:
        UnsupportedError: Fewer than two components are left.
    """

    def __init__(self, setting: Setting, comm: Comm, *, warm_up: int = 1, stride: int = 1) -> None:
        if warm_up < 1 or stride < 1:
            raise ValueError("warm_up and stride are 1 at least")
        ways = setting.world_size - stride + 1
        if ways < 2:
            raise UnsupportedError(
                f"two components at a stride of {stride} need {stride + 1} ranks; there are {setting.world_size}"
            )
        self._setting, self._comm, self._warm_up, self._stride = setting, comm, warm_up, stride
        # The last K ranks share the last component: with a stride of K, that many noises are needed at once.
        self._ways, self._place = ways, min(setting.rank, ways - 1)
        self._mine = range(*chunk_bounds(setting.num_layers, ways)[self._place])
        self._copies = range(ways - 1, setting.world_size)
        """Ranks that compute the last component."""

    def denoise(self, images_BSS: Tensor, exact: int) -> Tensor | None:
        """Warm up on every rank, then let all components compute at once."""
        setting, steps = self._setting, self._setting.num_steps
        # One warm-up step at least: the first asynchronous step reads the component before at the step before.
        warm = min(max(self._warm_up, exact), steps)
        for step in range(warm - 1):
            images_BSS = whole_step(setting, images_BSS, step, step + 1)
        before = range(self._mine.start)
        # The last warm-up step is cut in front of this rank's component, to keep what enters it: that is the
        # one-step-old input of the first asynchronous step.
        held = setting.layers(before, setting.embed(images_BSS), warm - 1)
        stream = setting.layers(range(self._mine.start, setting.num_layers), held, warm - 1)
        images_BSS = setting.advance(images_BSS, setting.noise(stream), warm - 1, warm)
        for first in range(warm, steps, self._stride):
            held, images_BSS = self._slot(held, images_BSS, first, min(first + self._stride, steps))
        return images_BSS if setting.rank == 0 else None

    def _slot(self, held: Tensor, images_BSS: Tensor, first: int, end: int) -> tuple[Tensor, Tensor]:
        """Compute this rank's component once for the steps from ``first`` to ``end``."""
        setting, comm, rank = self._setting, self._comm, self._setting.rank
        if rank == 0:
            # The first component alone has a fresh input; component n reads images that are n slots older.
            held = setting.embed(images_BSS)
        # Copy j of the last component predicts the noise of step first + j, with that step's time; the others compute
        # once, at the time of the slot's last step.
        step = first + rank - self._copies.start if rank in self._copies else end - 1
        if step >= end:
            step = end - 1  # the steps are over; what this copy says is not asked for
        stream = setting.layers(self._mine, held, step).contiguous()
        more = end < setting.num_steps
        sends, receives, following = [], [], held
        if more and rank < self._ways - 1:
            readers = self._copies if rank == self._ways - 2 else (rank + 1,)
            sends = [(stream, reader) for reader in readers]
        if more and rank > 0:
            following = torch.empty_like(stream)
            # By component and not by rank: all copies of the last one read the same component before it.
            receives = [(following, self._place - 1)]
        told = [torch.empty_like(images_BSS) for _ in range(first, end)]
        if rank == 0:
            receives += [(noise, self._copies[n]) for n, noise in enumerate(told)]
        elif rank in self._copies and rank - self._copies.start < end - first:
            sends.append((setting.noise(stream).contiguous(), 0))
        # Every rank starts all of the slot's messages before it waits, so the cycle 0 → 1 → … → copies → 0 cannot
        # deadlock; a pair has one message a slot and direction, so none is taken for another.
        comm.start(sends=sends, receives=receives).wait()
        if rank == 0:
            for step, noise in enumerate(told, start=first):
                images_BSS = setting.advance(images_BSS, noise, step, step + 1)
        return following, images_BSS
