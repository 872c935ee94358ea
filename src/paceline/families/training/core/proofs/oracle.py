"""Judges what was trained: loss on held-out text, distance of replicas, equality with one process."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from paceline.families.training.api.model import loss_of
from paceline.families.training.api.own import Batch, OwnBatch, on_device
from paceline.worker.ranks.session import Session

LEAST_FALL = 0.005
"""Share of the untrained model's loss that training must take away, or nothing was learnt."""
EXACT_TOLERANCE = 2e-5
"""Distance from the serial reference after a step, relative to its length, that the order of float32 sums may cause,
beyond ``rounding_share`` and the last place of each weight. Measured on nano, tiny and mini with 2 and 4 shares and 3
to 30 draws: 5·10⁻⁷ (SGD) and 2.5·10⁻⁶ (Adam) in float32; 1.7·10⁻⁴ and 4.9·10⁻⁴ or more with gradients in float16."""
PLAIN_TOLERANCE = 5e-6
"""The same after a step of plain SGD in float32, where nothing divides by what rounding has moved. Measured on
conformance's points and on tiny, with 2 and 4 shares: 1.6·10⁻⁷ of exact techniques, 2.2·10⁻⁷ of displacements, and
1.0·10⁻⁶ of PowerSGD, which makes a gradient of two products."""
WEIGHTS_TOLERANCE = 1e-6
"""Distance of any tensor of weights from the serial reference after a step of plain SGD in float32, relative to its
norm, nothing left out: what it means that a step equals synchronous training. Measured as above: 1.4·10⁻⁷, and 2.6·10⁻⁷
of PowerSGD. It is the narrower of the two where a tensor is small beside the others, or beside its step."""
GRADIENT_NOISE = 1e-5
"""Error of an element of a gradient from the order of float32 sums, relative to its tensor's root mean square; up to
6e-6 was seen, on elements that cancel. It excuses updates by Adam alone; plain SGD is held to the sum itself."""
DIAGNOSIS_SHARE, DIAGNOSIS_FLOOR = 0.01, 1e-4
"""Errors of a figure about ranks that float32 may cause: of itself, and absolute."""
OWN_DEVIATIONS = 4.0
"""How many times as far as a device's own runs lie apart a technique may lie from one process, beside the tolerances:
two runs differ by √2 of what one does, and the farthest of two pairs is a sample of that."""
OWN_NOISES = 8.0
"""How many times the deviation of a device's gradients may decide an update by Adam: two gradients lie √2 deviations
apart, and where one is 4 deviations from zero or more, the other has its sign but for one draw in 400."""
MOST_OWN, MOST_OWN_PLAIN = 0.2, 0.05
"""Largest part of a step that this may come to, with Adam and with plain SGD. Beyond it nothing is proved. With Adam a
gradient that is not averaged at all ends about the whole way off, for it has other signs; with plain SGD a sum in the
place of a mean ends 1 − 1/n of the way off or more, but gradients of large shares are alike."""
CLOSE = 1e-5
"""Distance of two runs that differ in the order of sums alone, relative to their weights."""
EVALUATION_ROWS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnDeviation:
    """How far one process's own repetitions of a step lie apart on a device; zero where they have the same bits."""

    of_way: float = 0.0
    """Relative to the step's length, over all tensors, beyond what rounding may explain."""
    of_norm: float = 0.0
    """Relative to the norm of a tensor of weights, of the tensor where it is most."""

    def undecidable(self, *, plain: bool) -> str | None:
        """Say why nothing can be proved on the device, or None where something can.

        Args:
            plain: Whether the step is one of plain SGD.
        """
        most = (MOST_OWN_PLAIN if plain else MOST_OWN) / OWN_DEVIATIONS
        # Written with not: NaN compares false, and proves nothing.
        if not self.of_way <= most:
            said = f"one process that repeats a step on this device ends {self.of_way:.2g} of the way from itself"
            return f"{said}; beyond {most:.2g} a wrong technique cannot be told from it"
        return None


REPEATABLE = OwnDeviation()


def learnt(curve: Sequence[float]) -> bool:
    """Return whether a curve of held-out losses, in nats, ends lower than it begins by ``LEAST_FALL`` of it or more."""
    # Of its size: losses of the user's own may be negative.
    return curve[0] - curve[-1] >= LEAST_FALL * abs(curve[0])


def held_out_loss(
    model: nn.Module, weights: Sequence[Tensor], sequences: Batch, device: torch.device
) -> float:
    """Return the loss of a model with the given weights on held-out sequences, in nats per symbol.

    The weights are copied into the model: give it one that nobody trains.
    """
    with torch.no_grad():
        for parameter, weight in zip(model.parameters(), weights, strict=True):
            # Into the family's own model: a technique's modules may be wrapped, sharded or changed.
            parameter.copy_(weight)
        total = 0.0
        parts = (
            sequences.split(EVALUATION_ROWS)
            if isinstance(sequences, OwnBatch)
            else torch.split(sequences, EVALUATION_ROWS)
        )
        for rows in parts:
            # Weighted by rows, since the last part may be shorter.
            total += float(loss_of(model, on_device(rows, device))) * len(rows)
    return total / len(sequences)


def losses(
    session: Session,
    model: nn.Module,
    snapshots: Sequence[Sequence[Tensor]],
    sequences: Batch,
    *,
    shared: bool,
) -> list[float]:
    """Return the mean over ranks of each snapshot's held-out loss.

    Args:
        session: The rank.
        model: Takes the weights.
        snapshots: This rank's weights at each evaluation.
        sequences: Held-out sequences, equal on all ranks.
        shared: All ranks hold the same weights, so that each judges an equal part of the sequences.
    """
    device = next(model.parameters()).device
    own = sequences
    if shared and len(sequences) % session.world_size == 0:
        own = sequences[session.rank :: session.world_size]
    found = [held_out_loss(model, weights, own, device) for weights in snapshots]
    everyone = session.control.gather([found])
    # fsum: the mean does not depend on the order of ranks.
    return [math.fsum(rank[0][i] for rank in everyone) / len(everyone) for i in range(len(found))]


def digests(session: Session, snapshots: Sequence[Sequence[Tensor]]) -> list[bool]:
    """Tell for each snapshot whether all ranks hold the same weights, bit for bit."""
    everyone = session.control.gather_text(" ".join(map(digest, snapshots)))
    rows = [text.split() for text in everyone]
    return [len({row[i] for row in rows}) == 1 for i in range(len(snapshots))]


def digest(weights: Sequence[Tensor]) -> str:
    """Return a digest of weights, bit for bit."""
    found = hashlib.sha256()
    for weight in weights:
        found.update(weight.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def divergence(session: Session, weights: Sequence[Tensor]) -> float:
    """Return the largest distance of a rank's weights from the mean of all, over the mean's norm."""
    # float64: distances are small beside the weights, and float32 would round them away.
    vector = torch.cat([w.detach().reshape(-1).double().cpu() for w in weights])
    mean = vector.clone()
    if session.world_size > 1:
        session.control.sum_in_place(mean)
        mean /= session.world_size
    distance = float((vector - mean).norm()) / max(float(mean.norm()), 1e-300)
    return max(rank[0][0] for rank in session.control.gather([[distance]]))


def dispersion(losses: Sequence[float], gradients: Sequence[Tensor]) -> dict[str, float]:
    """Return how far ranks lie apart, from the loss and the gradient of each, (P,), in float64."""
    norms = torch.stack([g.double().norm() for g in gradients])
    dots = weights = 0.0
    for i, g in enumerate(gradients):
        for j in range(i):
            # Pair by pair from whole gradients: the technique derives the same
            # from norms alone, and this is to check it.
            dots += float(g.double() @ gradients[j].double())
            weights += float(norms[i] * norms[j])
    return {
        "loss_dispersion": float(torch.tensor(losses, dtype=torch.float64).std(correction=0)),
        "gradient_norm_dispersion": float(norms.std(correction=0) / norms.mean()),
        "gradient_cosine": dots / weights if len(gradients) > 1 else 1.0,
    }


def agrees(said: float, true: float) -> bool:
    """Tell whether a technique's figure about ranks is right."""
    return abs(said - true) <= DIAGNOSIS_FLOOR + DIAGNOSIS_SHARE * abs(true)


def rounding_share(
    optimizer: Optimizer, weights: Sequence[nn.Parameter], step: int, noise: Sequence[float] | None = None
) -> list[Tensor]:
    """Return how far rounding of the gradients alone may move each weight in a step, beside its shape.

    Adam divides by the root of the mean square: where a gradient is near zero, the order of its sum decides the whole
    update, on any machine differently. Zero for SGD, which keeps the proportion.

    Args:
        optimizer: After the step.
        weights: Its parameters, with the gradients of the step.
        step: From 0.
        noise: Deviation of the gradient of each, beside what the order of sums does, on a device that does not repeat
            itself; None where it does.
    """
    if not isinstance(optimizer, AdamW):
        return [torch.zeros_like(w) for w in weights]
    (group,) = optimizer.param_groups
    shares = []
    for number, weight in enumerate(weights):
        if not weight.requires_grad:
            shares.append(torch.zeros_like(weight))
            continue
        assert weight.grad is not None
        # Bias-corrected, as AdamW's own step: in the first steps the raw moment is too small by 1 − β₂^t.
        mean_square = optimizer.state[weight]["exp_avg_sq"] / (1 - group["betas"][1] ** (step + 1))
        error = GRADIENT_NOISE * weight.grad.square().mean().sqrt()
        if noise is not None:
            error = error + OWN_NOISES * noise[number]
        # At most 2: Adam's normalised update lies about within ±1, so a flipped sign is the most that noise can do.
        shares.append(group["lr"] * (error / (mean_square.sqrt() + group["eps"])).clamp(max=2))
    return shares


def last_place(weights: Sequence[Tensor]) -> list[Tensor]:
    """Return the distance of each weight to the next larger number of its dtype, beside its shape.

    A sum of a weight and its update is rounded to one of two neighbours, and the last bit of the update decides which:
    where updates are small beside weights, as in the first steps of a warm-up, that is all of the difference of two
    honest ways of summing.
    """
    sizes = [w.detach().abs() for w in weights]
    return [torch.nextafter(size, torch.full_like(size, math.inf)) - size for size in sizes]


def relative_distance(
    weights: Sequence[Tensor],
    reference: Sequence[Tensor],
    begin: Sequence[Tensor] | None = None,
    allowed: Sequence[Tensor] | None = None,
) -> float:
    """Return ‖w − r‖ / ‖r − b‖ over all tensors together, in float64.

    Args:
        weights: w.
        reference: r.
        begin: b; zero by default.
        allowed: What each element may differ before it counts.
    """
    square = norm = 0.0
    for number, (w, r) in enumerate(zip(weights, reference, strict=True)):
        apart, moved = squares(
            w, r, None if begin is None else begin[number], None if allowed is None else allowed[number]
        )
        square, norm = square + apart, norm + moved
    return math.sqrt(square) / max(math.sqrt(norm), 1e-300)


def squares(
    weight: Tensor, reference: Tensor, begin: Tensor | None = None, allowed: Tensor | None = None
) -> tuple[float, float]:
    """Return ‖w − r‖² and ‖r − b‖² of one tensor, in float64; arguments as in ``relative_distance``."""
    wide = reference.detach().double()
    apart = (weight.detach().double() - wide).abs()
    if allowed is not None:
        # Allowed is subtracted for each element and not from the norm: no element may use what another has left.
        apart = (apart - allowed).clamp(min=0)
    moved = wide if begin is None else wide - begin.double()
    return float(apart.square().sum()), float(moved.square().sum())


def distance_from_step(
    weights: Sequence[Tensor],
    reference: Sequence[Tensor],
    begin: Sequence[Tensor],
    allowed: Sequence[Tensor],
    *,
    plain: bool,
    own: OwnDeviation = REPEATABLE,
) -> str | None:
    """Say how far weights lie from where an exact step leads, or None where rounding explains it.

    Args:
        weights: A technique's after a step.
        reference: Where the step leads.
        begin: Where it began.
        allowed: What each element may differ before it counts beside the step's length.
        plain: Whether it is one of plain SGD in float32, which is held to more.
        own: How far the device's own repetitions of the step lie apart.
    """
    distance = relative_distance(weights, reference, begin, allowed)
    # Written with not: NaN compares false and must fail.
    if not distance <= (PLAIN_TOLERANCE if plain else EXACT_TOLERANCE) + OWN_DEVIATIONS * own.of_way:
        return f"{distance:.2g} of the way"
    pairs = zip(weights, reference, strict=True)
    # Tensor by tensor and with nothing allowed: in the sum over all, an error in a small tensor would drown.
    farthest = max((relative_distance([w], [r]) for w, r in pairs), default=0.0)
    if plain and not farthest <= WEIGHTS_TOLERANCE + OWN_DEVIATIONS * own.of_norm:
        return f"{farthest:.2g} of a tensor's norm"
    return None
