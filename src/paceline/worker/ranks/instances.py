"""Several instances of a block within a launch: which samples belong to which, and one result of them all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from paceline.worker.ranks.session import Block
from paceline.worker.timing.interleaved import Limits, Series, summarise

SUMMED = ("requested", "ok", "failed", "dropped", "prepare_s", "measure_s", "timed_s", "fixed_s")
"""Of accounting and harness: what adds up over instances."""

OF_ONE_SERIES = ("positions", "warmup", "cross_rank", "flags", "stop_reason")
"""What is said of a metric's samples in one instance alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one instance of a technique gave."""

    result: dict[str, Any]
    """As of a launch with one instance."""
    timed: Mapping[str, Series] = field(default_factory=dict)
    """By metric the series behind it."""


def num_instances(block: Block) -> int:
    """Return how many times a block is run within a launch."""
    return int(block.protocol.get("instances", 1))


def salt(instance: int) -> tuple[object, ...]:
    """Return what tells the draws of an instance from those of the first, whose draws are those of a block alone."""
    return ("instance", instance) if instance else ()


def limits_of(protocol: Mapping[str, Any], rounds: int | None) -> Limits:
    """Return the limits of an instance.

    Args:
        protocol: The block's.
        rounds: Of the first instance, None for itself. Later ones make as many, so that all weigh alike; they give up
            after twice the protocol's time.
    """
    limits = Limits.of(protocol)
    if rounds is None:
        return limits
    return replace(limits, min_samples=rounds, max_samples=rounds, max_seconds=2 * limits.max_seconds)


def joined(series: Sequence[Series]) -> Series:
    """Return the samples of all instances as one series, in their order."""
    whole = Series(
        label=series[0].label, warmup_reason=series[0].warmup_reason, stop_reason=series[0].stop_reason
    )
    for item in series:
        after = (
            whole.positions[-1] + 2 if whole.positions else 0
        )  # not right after the last call of another instance
        whole.positions += [after + position for position in item.positions]
        whole.samples += item.samples
        whole.per_rank += item.per_rank
        whole.skew += item.skew
        whole.warmup += item.warmup
    return whole


def merged(parts: Sequence[Part], flags: Sequence[str] = ()) -> dict[str, Any]:
    """Return one result of a technique's instances; of one alone its own, unchanged.

    Samples of a metric follow each other instance by instance; ``instances`` beside them says how many each gave. What
    all instances counted alike, such as bytes, is kept once. What some instance lacks is absent.

    Args:
        parts: One for each instance, in order.
        flags: Of the measuring, for the metrics that were timed.
    """
    if len(parts) == 1:
        return parts[0].result
    results = [part.result for part in parts]
    first = results[0]
    whole = {**first, "metrics": {}, "absent": {}}
    for result in results:
        whole["absent"] = {**result.get("absent", {}), **whole["absent"]}
    for name in dict.fromkeys(name for result in results for name in result["metrics"]):
        given = [result["metrics"].get(name) for result in results]
        if None in given:
            whole["absent"].setdefault(name, "not every instance of the launch gave it")
            continue
        if all(name in part.timed for part in parts):
            data = summarise(joined([part.timed[name] for part in parts]), flags)
            whole["metrics"][name] = {**data, "instances": [len(part.timed[name].samples) for part in parts]}
        else:
            whole["metrics"][name] = _together(given)
            whole["absent"].pop(name, None)
    for key in ("accounting", "harness"):
        tables = [result[key] for result in results if key in result]
        if tables:
            whole[key] = {**tables[0], **{k: sum(t[k] for t in tables) for k in SUMMED if k in tables[0]}}
    whole["harness"]["instances"] = [
        {k: result["harness"][k] for k in ("prepare_s", "measure_s")} for result in results
    ]
    whole["correctness"] = _correctness([result["correctness"] for result in results])
    return whole


def _together(given: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    samples = [list(data["samples"]) for data in given]
    if all(len(values) == 1 and values == samples[0] for values in samples):
        return dict(given[0])
    together = [value for values in samples for value in values]
    kept = {k: v for k, v in given[0].items() if k not in OF_ONE_SERIES}
    return {**kept, "samples": together, "instances": [len(values) for values in samples]}


def _correctness(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what was proven: calls of all instances, the largest error, the seeds of all inputs."""
    whole = dict(found[0])
    for key in ("timed_calls_verified", "inputs_seen_twice"):
        if key in whole:
            whole[key] = sum(c[key] for c in found)
    whole["max_relative_l2"] = max(c["max_relative_l2"] for c in found)
    if "input_seed" in whole:
        whole["input_seeds"] = [c["input_seed"] for c in found]
    return whole
