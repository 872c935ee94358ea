"""Sessions in virtual time: answers are known beforehand, so that every prompt is; when a call comes is not.

The token at place p of a simulated call's answer is one and the same function of p: a simulator computes no model, and
what its caches find are beginnings, which differ by their prompts. Free of torch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from paceline.families.serving.core.load.calls import Call, carried
from paceline.families.serving.core.model_sizes import FIRST_TOKEN
from paceline.families.serving.core.simulation.log import Log

ANSWERS = 50
"""How many tokens answers are made of."""


def answer_token(place: int) -> int:
    """Return the token of an answer at a place, counted from the begin of the prompt."""
    return FIRST_TOKEN + place % ANSWERS


def text_of(call: Call) -> tuple[int, ...]:
    """Return a call's prompt and answer."""
    assert isinstance(call.prompt, tuple)
    places = range(len(call.prompt), len(call.prompt) + call.output_tokens)
    return (*call.prompt, *(answer_token(p) for p in places))


def told_in_full(calls: Sequence[Call]) -> tuple[Call, ...]:
    """Return calls with whole prompts: those that carry on begin with what was said before."""
    told: dict[int, Call] = {}
    for call in calls:
        before = told[call.after[0]] if call.carries else None
        # In full beforehand: answers are known, so prefixes that sessions share can be found without a model.
        prompt = call.prompt if before is None else carried(text_of(before), (), call.prompt)
        told[call.number] = replace(call, prompt=prompt, carries=False)
    return tuple(told.values())


def due_times(calls: Sequence[Call], log: Log) -> Mapping[int, float]:
    """Return when each call was due: at its instant, or when those it waits for had ended and its pause was over."""
    ended: dict[int, float] = defaultdict(float)
    for token in log.tokens:
        ended[token.call] = max(ended[token.call], token.at_s)
    return {c.number: max(ended[n] for n in c.after) + c.pause_s if c.after else c.at_s or 0.0 for c in calls}


def at_start(call: Call) -> Call:
    """Return a call that is there at the start, whomever it waits for."""
    return replace(call, at_s=0.0, after=(), pause_s=0.0, carries=False)


def at_load(calls: Sequence[Call], rate_per_s: float) -> list[Call]:
    """Return calls whose instants are stretched so that they come at a rate; their pattern stays."""
    last_s = max(c.at_s or 0.0 for c in calls)
    # One factor for all: bursts and pauses keep their shape, and only their scale is the load's.
    factor = (len(calls) / rate_per_s) / last_s if last_s else 0.0
    return [c if c.at_s is None else replace(c, at_s=c.at_s * factor) for c in calls]
