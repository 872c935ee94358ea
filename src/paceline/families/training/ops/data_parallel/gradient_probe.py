"""What rides along with techniques of data parallelism: how far ranks' own gradients lie apart, in a few steps.

A rank notes its gradient's norm and a sketch of it, before it is averaged with others; when training has ended the
sketches are brought together. A sketch (Charikar, Chen, Farach-Colton 2002) adds each element with a random sign to a
random one of ``WIDTH`` places, the same for all ranks, so that cosines of sketches estimate cosines of gradients, to
about 1/√WIDTH.

Most techniques leave a rank's own gradients in its parameters until ``exchange_gradients``. Those that average them
during backward (``ddp``, ``zero-2``, ``zero-3``, ``qsdp``) never do: there a hook on each parameter sees its gradient,
which autograd calls before it is accumulated, and so before any hook that exchanges it. Where a library puts tensors of
its own in the place of parameters (``fsdp``), and where a compiler would meet the hooks, nothing rides along.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from functools import partial
from itertools import accumulate, combinations, pairwise
from statistics import fmean, pstdev
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from paceline.families.training.core.loop.callback import Callback, Outcome, Trial
from paceline.families.training.core.proofs.sandbox import Sandbox
from paceline.worker.ranks.session import Block, Case, Session

APART = ("gradient_norm_cv", "gradient_cosine_similarity")
WIDTH = 4096
MOST_ELEMENTS = 1 << 22
"""Of larger models every so many elements are sketched; norms are those of all."""
_clock_ns = time.perf_counter_ns


class GradientProbe:
    """Takes notes of one rank's gradients.

    Args:
        gradients: Shapes and device of what it will see; the parameters themselves do.
        seed: Of signs and places, the same on all ranks.
        caught: Parameters whose gradients are never there in whole, and are caught on their way; default: none.
    """

    def __init__(
        self, gradients: Sequence[Tensor], seed: int, *, caught: Sequence[nn.Parameter] = ()
    ) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.stride = math.ceil(sum(g.numel() for g in gradients) / MOST_ELEMENTS)
        # of a parameter whose storage is freed there is no view to take
        ends = list(accumulate(math.ceil(g.numel() / self.stride) for g in gradients))
        self.bounds = list(pairwise([0, *ends]))
        device = gradients[0].device
        self.places = torch.randint(WIDTH, (ends[-1],), generator=generator).to(device)
        self.signs = (2.0 * torch.randint(2, (ends[-1],), generator=generator) - 1).to(device)
        self.notes: list[list[float]] = []
        self.seed, self.caught = seed, caught
        self._hooks: list[RemovableHandle] = []
        self._spent_ns = 0
        self._begin()

    def _begin(self) -> None:
        device = self.places.device
        self._seen = 0
        self._squares = torch.zeros((), dtype=torch.float64, device=device)
        self._sketch = torch.zeros(WIDTH, device=device)

    def listen(self) -> None:
        """Catch the gradients of the step that follows, where they are not there in whole when it ends."""
        begin = _clock_ns()
        self._begin()
        self._hooks = [
            p.register_hook(partial(self._catch, i))  # type: ignore[no-untyped-call]  # torch leaves it without types
            for i, p in enumerate(self.caught)
        ]
        self._spent_ns = _clock_ns() - begin

    def note(self, gradients: Sequence[Tensor] | None) -> int:
        """Note a step's gradients, or what was caught of them; return the nanoseconds that catching took.

        Args:
            gradients: None where this rank took no part in the step.
        """
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        if not self.caught:
            self._begin()
            for index, gradient in enumerate(gradients or ()):
                self._add(index, gradient)
        if self._seen == len(self.bounds):
            length = float(torch.linalg.vector_norm(self._sketch))
            sketch = self._sketch / length if length else self._sketch
            self.notes.append([math.sqrt(float(self._squares)), *sketch.tolist()])
        else:
            self.notes.append([math.nan] * (1 + WIDTH))
        self._begin()
        spent, self._spent_ns = self._spent_ns, 0
        return spent

    def _catch(self, index: int, gradient: Tensor) -> None:
        begin = _clock_ns()
        self._add(index, gradient)
        self._spent_ns += _clock_ns() - begin

    def _add(self, index: int, gradient: Tensor) -> None:
        start, stop = self.bounds[index]
        sampled = gradient.detach().reshape(-1)[:: self.stride].float()
        self._sketch.index_add_(0, self.places[start:stop], sampled * self.signs[start:stop])
        self._squares += torch.linalg.vector_norm(gradient, dtype=torch.float64).square()
        self._seen += 1


def distance(left: Sequence[float], right: Sequence[float]) -> float:
    """Return how far two notes of one gradient lie apart: of norms relatively, or of sketches, whichever is more."""
    norms = abs(left[0] - right[0]) / max(right[0], 1e-300)
    between = math.dist(left[1:], right[1:])
    return math.inf if math.isnan(norms + between) else max(norms, between)


def make_gradient_probe(session: Session, block: Block, case: Case, sandbox: Sandbox) -> GradientProbe | None:
    """Return what rides along; nothing where ranks' own gradients are not to be seen, or there are no others."""
    replica, params = sandbox.replica, block.params
    if session.world_size == 1:
        return None
    parameters = list(replica.model.parameters())
    caught = [] if replica.own_gradients else parameters
    if caught and (params["mode"] == "compiled" or any(hasattr(p, "to_local") for p in caught)):
        return None
    seed = session.draw_seed("sketches", block.block, case.label) % 2**62
    return GradientProbe(parameters, seed, caught=caught)


class Riding(Callback):
    """Notes a technique's gradients in the steps before evaluations.

    Args:
        trial: The technique.
    """

    def __init__(self, trial: Trial) -> None:
        self.session, self.replica = trial.session, trial.sandbox.replica
        self.gradient_probe = make_gradient_probe(trial.session, trial.block, trial.case, trial.sandbox)
        if self.gradient_probe is not None:
            self.stops_after_backward = frozenset(step - 1 for step in trial.evaluate_after)

    def before_step(self, step: int) -> None:
        """Begin to catch gradients."""
        assert self.gradient_probe is not None
        self.gradient_probe.listen()

    def after_backward(self, step: int) -> int:
        """Note this rank's gradients; nothing of it is training."""
        gradients = [p.grad for p in self.replica.model.parameters()]
        whole = [g for g in gradients if g is not None]
        return self._note(whole if len(whole) == len(gradients) else None)

    def left_out(self, step: int) -> int:
        """Note that there are none."""
        return self._note(None)

    def _note(self, gradients: Sequence[Tensor] | None) -> int:
        assert self.gradient_probe is not None
        self.session.device.synchronize()  # backward is the step's
        riding = _clock_ns()
        return self.gradient_probe.note(gradients) + _clock_ns() - riding

    def metrics(self, outcome: Outcome) -> dict[str, Any]:
        """Return how far ranks' gradients lie apart."""
        return apart(self.session, self.gradient_probe, outcome.absent)


def apart(session: Session, gradient_probe: GradientProbe | None, absent: dict[str, str]) -> dict[str, Any]:
    """Return the dispersion of norms and the mean cosine of two ranks' gradients in each noted step.

    Steps in which fewer than two ranks took part are left out. Why there are none is noted in ``absent``.
    """
    found: dict[str, list[float]] = {name: [] for name in APART}
    everyone = session.control.gather(gradient_probe.notes) if gradient_probe else []
    for step in zip(*everyone, strict=True):
        seen = [note for note in step if math.isfinite(note[0])]
        if len(seen) < 2:
            continue
        norms = [note[0] for note in seen]
        sketches = torch.tensor([note[1:] for note in seen], dtype=torch.float64)
        products = (sketches @ sketches.T).tolist()
        cosine = fmean(products[i][j] for i, j in combinations(range(len(seen)), 2))
        dispersion = pstdev(norms) / fmean(norms) if any(norms) else 0.0
        for name, value in zip(APART, (dispersion, cosine), strict=True):
            found[name].append(value)
    if not found[APART[0]]:
        absent |= dict.fromkeys(APART, "ranks' own gradients are never there in whole, or there is one rank")
        return {}
    return {name: {"samples": values} for name, values in found.items()}
