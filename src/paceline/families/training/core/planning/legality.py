"""What makes a point legal whatever ranks share, and how long it takes; free of torch."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.base.counting import number_of
from paceline.base.families.family import Params
from paceline.families.training.api.sizes import SYNTHETIC, num_symbols, size_of
from paceline.families.training.core.planning.configuration import HUB
from paceline.families.training.core.planning.metrics import flops_per_token
from paceline.families.training.core.planning.parameters import OWN_MODEL, is_own_data, wrong_data

SHARE_ROUNDING = 1e-6
PROVED_STEPS = 6
"""Steps of a technique's proofs."""
ESTIMATED_RATE = 8e10
"""Operations a second, for the estimate: what was seen on two cores with models of 0.3 million parameters."""
START_S = 2.0


def problems(
    params: Params,
    *,
    whole_batch: bool = False,
    least_windows: int = 2,
    own: Sequence[str] = (),
    published_shapes: bool = False,
) -> list[str]:
    """Return what makes a resolved point illegal.

    Args:
        params: Of the point.
        whole_batch: Whether every rank reads all sequences of a step.
        least_windows: Samples of throughput that a run must hold: the first is warm-up.
        own: What the operation itself has found.
        published_shapes: Whether its techniques leave layers whole, so that those of published models do.
    """
    found: list[str] = []
    ranks, batch, steps = (number(params, key) for key in ("ranks", "batch", "steps"))
    rows = batch if whole_batch else batch // ranks
    if not whole_batch and batch % ranks:
        found.append(f"batch {batch} cannot be split between {number_of(ranks, 'rank')}")
    if str(params["size"]).startswith(HUB):
        return [f"size {params['size']} is of a published kind, which only data_parallel trains"]
    size = size_of(params)
    if size.heads % size.num_kv_heads:
        found.append(
            f"kv_heads {size.kv_heads} does not divide the {size.heads} heads of size {params['size']}"
        )
    if size.published and not published_shapes:
        found.append(
            f"size {params['size']} has the layers of a published model, which only data_parallel trains"
        )
    found += own
    if params.get(OWN_MODEL) is None and is_own_data(str(params["data"])):
        found.append(
            f"data {params['data']} gives batches for a model of one's own: name it, model: FILE.py:FACTORY"
            if OWN_MODEL in params
            else f"data {params['data']} is one's own, which only data_parallel trains on"
        )
    if number(params, "context") < 2 and not is_own_data(str(params["data"])):
        found.append("context 1 is below the least accepted value, 2")
    if steps < 2 * number(params, "window"):
        found.append(
            f"steps {steps} holds fewer than two windows of {params['window']}: the first is warm-up"
        )
    if least_windows > 2 and steps < least_windows * number(params, "window"):
        found.append(f"steps {steps} holds fewer than three windows of {params['window']}: one of them saves")
    if steps < number(params, "evaluations"):
        found.append(f"{params['evaluations']} evaluations do not fit into {steps} steps")
    return found + _data_problems(params, rows)


def _data_problems(params: Params, rows: int) -> list[str]:
    """Return what is illegal about what is read.

    Args:
        params: Of the point.
        rows: Sequences of a step that one rank reads.
    """
    found: list[str] = []
    overlap = params["data_overlap"]
    assert isinstance(overlap, int | float)
    if overlap > 1:
        found.append(f"data_overlap is a share, at most 1, and not {overlap}")
    # Within rounding: a share such as 0.1 is no exact double.
    elif abs(overlap * rows - round(overlap * rows)) > SHARE_ROUNDING:
        found.append(f"data_overlap {overlap} of {rows} sequences a rank is no whole number")
    data = str(params["data"])
    if (wrong := wrong_data(data)) is not None:
        found.append(wrong)
    if params["target_excess"] is not None and data.partition(":")[0] not in SYNTHETIC:
        found.append(f"target_excess needs data with a known entropy rate: {', '.join(SYNTHETIC)}")
    return found


def estimate_s(params: Params, *, start_s: float = START_S) -> float | None:
    """Return seconds of one technique: training, proofs on every rank, evaluations; at what two cores do.

    A rank's proofs are of the whole batch; an evaluation is a third of a step's operations. Waiting for links and for
    cores that other ranks have is left out. None for a model of one's own.

    Args:
        params: Of the point.
        start_s: Seconds until its processes stand.
    """
    size, context = size_of(params), number(params, "context")
    steps, ranks = number(params, "steps"), number(params, "ranks")
    operations = flops_per_token(params)
    if params.get(OWN_MODEL) is not None:
        return None  # of a user's own nobody knows
    if operations is None:  # whatever is left out, it is at most a third
        operations = size.flops_per_token(num_symbols(size, str(params["data"])), context)
    # A proof's step is the technique's, and the whole batch once more on each rank, by the process beside it.
    rows = float((steps + PROVED_STEPS * (1 + ranks)) * number(params, "batch"))
    # One more evaluation, of the untrained weights; forward alone is a third of forward and backward.
    rows += (number(params, "evaluations") + 1) * number(params, "eval_batch") / 3
    return start_s + rows * context * operations / ESTIMATED_RATE + steps * 0.005 * ranks


def number(params: Params, key: str) -> int:
    """Return a parameter that counts something."""
    value = params[key]
    assert isinstance(value, int)
    return value
