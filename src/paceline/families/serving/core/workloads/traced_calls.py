"""Calls of a point from somebody else's file, and what a record keeps of how that file was read. Free of torch."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from paceline.base.counting import number_of
from paceline.base.errors import UserError
from paceline.base.families.family import Params
from paceline.families.serving.core.load.calls import Call
from paceline.families.serving.core.model_sizes import SIZES, context_of
from paceline.families.serving.core.workloads.conversation_calls import folded, session_calls
from paceline.families.serving.core.workloads.conversation_choice import Choice, LengthLimits, choose
from paceline.families.serving.core.workloads.conversations import read_conversations
from paceline.families.serving.core.workloads.text_tokens import load_tokenizer
from paceline.families.serving.core.workloads.traces import (
    SHAREGPT,
    Trace,
    Traced,
    calls_of,
    read_trace,
    scaled,
)

TRACED = "trace"
FIRST_TURNS, ALL_TURNS = "first", "all"


def speaks(params: Params) -> bool:
    """Return whether a point's trace is of conversations."""
    return params["trace_format"] == SHAREGPT


def check_spoken(params: Params) -> list[str]:
    """Return what is wrong with a point whose trace is of conversations."""
    wrong: list[str] = []
    if not params["tokenizer"]:
        wrong.append("trace_format: sharegpt needs a model's folder, by its absolute path, as 'tokenizer'")
    if params["arrivals"] == TRACED:
        wrong.append(
            "conversations have no instants: take arrivals: poisson, constant, gamma, closed or at-once"
        )
    if params["trace_scale"] != 1.0:
        wrong.append(
            "conversations are not scaled: lower trace_max_prompt and trace_max_total in place of trace_scale"
        )
    context = context_of(params)
    if context is not None and _count(params, "trace_max_total") > context:
        wrong.append(f"trace_max_total is above {context}, which the {params['model']} model knows")
    return wrong


def spoken_sessions(params: Params) -> Choice:
    """Choose what a point asks of its file of conversations; every launch asks the same.

    Raises:
        PrerequisiteError: The package that reads the tokenizer is not installed.
        UserError: A file cannot be read, or has too few exchanges.
    """
    path = Path(str(params["trace"]))
    try:
        state = path.stat()
    except OSError as error:
        raise UserError(f"cannot read the conversations: {error}", where=str(path)) from error
    return _chosen(
        path,
        (state.st_mtime_ns, state.st_size),
        Path(str(params["tokenizer"])),
        _count(params, "requests"),
        params["trace_turns"] == ALL_TURNS,
        LengthLimits(
            min_tokens=_count(params, "trace_min_tokens"),
            max_prompt_tokens=_count(params, "trace_max_prompt"),
            max_total_tokens=_count(params, "trace_max_total"),
        ),
    )


@functools.lru_cache(maxsize=4)
def _chosen(
    path: Path, state: tuple[int, int], tokenizer: Path, requests: int, whole: bool, limits: LengthLimits
) -> Choice:
    """Read and choose; kept, since a file of a gigabyte is asked for by every point's check, launch and record."""
    return choose(
        read_conversations(path), load_tokenizer(tokenizer), requests=requests, whole=whole, limits=limits
    )


def spoken_calls(
    choice: Choice,
    params: Params,
    vocabulary: int,
    seed: int,
    instants: Sequence[float | None],
    tenant_of: Callable[[], str],
) -> list[Call]:
    """Return the calls of chosen conversations, in tokens that the point's model knows."""
    return session_calls(
        choice,
        instants,
        prompt_of=lambda exchange: folded(exchange.tokens, vocabulary),
        think_s=float(str(params["think_s"])),
        seed=seed,
        tenant_of=tenant_of,
    )


def traced_calls(params: Params, vocabulary: int, seed: int, instants: Sequence[float | None]) -> list[Call]:
    """Take the first requests of a trace; its own instants, stretched to the rate, where arrivals are its own.

    Raises:
        UserError: The trace cannot be read, has too few requests, or no two instants to stretch.
    """
    trace = _trace_of(params)
    wanted = trace.requests[: len(instants)]
    if len(wanted) < len(instants):
        raise UserError(
            f"the trace has {number_of(len(wanted), 'request')} that can be served",
            where=str(params["trace"]),
            expected=f"{len(instants)}, as 'requests' says",
            fix=f"requests: {len(wanted)}",
        )
    calls = calls_of(
        wanted,
        vocabulary,
        seed=seed,
        scale=float(str(params["trace_scale"])),
        context=context_of(params),
        block=trace.block,
    )
    if params["arrivals"] != TRACED:
        return [replace(c, at_s=at_s) for c, at_s in zip(calls, instants, strict=True)]
    # One factor: the trace's bursts stay, at the point's rate.
    stretched = _stretched(params, wanted)
    return [replace(c, at_s=(c.at_s or 0.0) * stretched) for c in calls]


def _stretched(params: Params, wanted: Sequence[Traced]) -> float:
    """Return the factor on a trace's instants that gives the point's rate."""
    last_s = wanted[-1].at_s
    if len(wanted) > 1 and last_s == 0.0:
        raise UserError(
            f"the first {number_of(len(wanted), 'request')} of the trace have one instant, which no factor "
            "spreads to a rate",
            where=str(params["trace"]),
            fix="arrivals: at-once, or poisson",
        )
    return len(wanted) / float(str(params["rate_per_s"])) / last_s if last_s else 1.0


def _trace_of(params: Params) -> Trace:
    return read_trace(Path(str(params["trace"])), str(params["trace_format"]))


def trace_facts(params: Params) -> dict[str, Any]:
    """Return what a record keeps of a point's trace, with all that was left out or changed; nothing where it has none.

    Raises:
        PrerequisiteError: The package that reads the tokenizer is not installed.
        UserError: A file cannot be read.
    """
    if params["workload"] != TRACED:
        return {}
    if speaks(params):
        choice = spoken_sessions(params)
        told = "sent as words"
        if params.get("model") is not None:
            vocabulary = SIZES[str(params["model"])]["vocab"]
            known = choice.facts["tokenizer"]["vocabulary"]
            told = f"folded from {known} into {vocabulary}: equal words stay equal"
        return {"trace": {"format": SHAREGPT, **choice.facts, "tokens": told}}
    trace = _trace_of(params)
    used = trace.requests[: _count(params, "requests")]
    facts: dict[str, Any] = {
        "sha256": trace.sha256,
        "requests": len(trace.requests),
        "used": len(used),
        "left_out": trace.left_out,
    }
    if trace.missing:
        facts["missing"] = trace.missing
    if trace.notes:
        facts["notes"] = trace.notes
    scale = float(str(params["trace_scale"]))
    if scale != 1.0:
        facts["scaled"] = _scaling(used, scale)
    if params["arrivals"] == TRACED:
        facts["instants_times"] = _stretched(params, used)
    return {"trace": {"format": params["trace_format"], **facts}}


def _scaling(used: Sequence[Traced], scale: float) -> dict[str, float]:
    """Return what scaling did to lengths: how many were rounded, how many of those up to one token, and the sums."""
    lengths = [n for r in used for n in (r.prompt_tokens, r.output_tokens)]
    return {
        "factor": scale,
        "rounded": sum(not math.isclose(n * scale, scaled(n, scale)) for n in lengths),
        "raised_to_one": sum(round(n * scale) < 1 for n in lengths),
        "tokens": sum(scaled(n, scale) for n in lengths),
        "tokens_before": sum(lengths),
    }


def _count(params: Params, name: str) -> int:
    value = params[name]
    assert isinstance(value, int)
    return value
