"""Accounts for the time of passes: what a technique's own clock leaves out, and what it saves by remembering."""

from __future__ import annotations

from collections.abc import Sequence

CLOCK_SHARE = 0.2
"""A pass may take this much longer on the judge's clock than on the technique's, beyond what messages cost."""
LEAST_ALLOWANCE_NS = 500_000
MOST_CONTROLLED_NS = 3_000_000
"""A control kernel cannot excuse more than this, however slow the machine is."""
LEAST_NEW_PASSES = 4
MAX_SLOWDOWN = 1.5
"""On inputs that share nothing with earlier ones; more means that results are remembered."""
MOST_SLOWDOWN = 3.0
"""A machine that becomes busier explains no more than this."""


def unaccounted_ns(passes: Sequence[int], unaccounted: Sequence[int]) -> float:
    """Return the time that a technique's clock does not account for: the lower quartile over its faster half of passes.

    Waiting for messages and for a core adds to some passes of anybody. A clock that hides time moves the median only
    by hiding it in most passes, and those then make up the faster half.
    """
    middle = sorted(passes)[(len(passes) - 1) // 2]
    faster = sorted(u for p, u in zip(passes, unaccounted, strict=True) if p <= middle)
    return float(faster[len(faster) // 4])


def clock_allowance_ns(passes: Sequence[tuple[Sequence[int], Sequence[int]]]) -> float:
    """Return how much longer than a pass its judge may wait: twice what messages cost the techniques of this block.

    The least of all techniques is taken, so that one that hides time does not raise its own allowance.

    Args:
        passes: For each technique: nanoseconds of its passes, and of what its judge waited longer.
    """
    found = [unaccounted_ns(elapsed, unaccounted) for elapsed, unaccounted in passes if elapsed]
    return max(2.0 * min(found, default=0.0), LEAST_ALLOWANCE_NS)


def controlled_allowance_ns(allowance_ns: float, control: Sequence[tuple[int, int]]) -> float:
    """Return what a disputed technique is allowed, once an idle process has made the same passes in turn with it.

    What messages cost changes with what else the machine does. Someone that computes nothing and hides nothing shows
    what they cost now.

    Args:
        allowance_ns: What was allowed before.
        control: The idle process's passes: their nanoseconds, and what the judge waited longer.
    """
    if not control:
        return allowance_ns
    passes, unaccounted = zip(*control, strict=True)
    return max(allowance_ns, min(2.0 * unaccounted_ns(passes, unaccounted), MOST_CONTROLLED_NS))


def _quartile(values: Sequence[int]) -> float:
    return float(sorted(values)[len(values) // 4])


def slowdown_in_turn(usual_ns: float, passes: Sequence[int], new: Sequence[int]) -> float:
    """Return how much slower passes on new inputs were than others that came in turn with them, in random order.

    Both are lower quartiles: of whoever remembers nothing, the two have one distribution on any machine, however busy.
    A technique that guesses that it is in doubt, and stops remembering, is slower than its samples said: so the passes
    on new inputs are compared with those as well, as far as a busier machine cannot explain it.

    Args:
        usual_ns: Median of the technique's passes before the dispute.
        passes: Its passes on varied draws since, in nanoseconds.
        new: Its passes on new inputs since.
    """
    since_the_samples = _quartile(new) / max(usual_ns, 1.0)
    in_turn = _quartile(new) / max(_quartile(passes), 1.0)
    return since_the_samples if since_the_samples > MOST_SLOWDOWN else in_turn


def late(new: Sequence[tuple[int, int]], count: int) -> list[tuple[int, int]]:
    """Return those passes on new inputs that fall into the second half of ``count`` passes."""
    return [(index, ns) for index, ns in new if 2 * index >= count]


def slowdown_on_new_inputs(passes: Sequence[int], new: Sequence[tuple[int, int]]) -> float:
    """Return the lower quartile of the ratios of late passes on new inputs to the faster of the passes beside each.

    Late ones are those of the second half: before, a memory may still be filling, and what it makes faster in less than
    half of all passes does not move their median. A busy machine would have to disturb three quarters of them. A
    technique that slows some passes down to look even needs half of its passes for that, and then its median shows it.

    Args:
        passes: Nanoseconds of passes on varied draws, without waiting for a core.
        new: For each pass on new inputs: how many passes came before it, and its nanoseconds.
    """
    # As above, the faster neighbour, and a quartile instead of a mean: single disturbed passes decide nothing.
    ratios = sorted(ns / max(min(passes[max(i - 1, 0) : i + 1]), 1) for i, ns in late(new, len(passes)))
    return ratios[len(ratios) // 4]
