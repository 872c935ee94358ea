"""Calls of a point, drawn from a seed: lengths, tenants, sessions, shared prefixes, instants. Free of torch."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from paceline.base.families.family import Params
from paceline.families.serving.core.load.arrivals import draw_arrivals
from paceline.families.serving.core.load.calls import Call, Workload
from paceline.families.serving.core.model_sizes import FIRST_TOKEN
from paceline.families.serving.core.workloads.traced_calls import (
    TRACED,
    speaks,
    spoken_calls,
    spoken_sessions,
    traced_calls,
)

CLOSED, AT_ONCE = "closed", "at-once"
INDEPENDENT, SESSIONS, WORKFLOWS = "independent", "sessions", "workflows"
SHARED = "shared-prefixes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """How long prompts and answers are."""

    kind: str
    """fixed, uniform (half of the mean to one and a half) or lognormal (sigma 1, cut at four times the mean)."""

    def draw(self, mean: int, rng: random.Random) -> int:
        """Return a length of at least one token."""
        match self.kind:
            case "fixed":
                return mean
            case "uniform":
                return rng.randint(max(1, mean // 2), max(1, mean + mean // 2))
            case "lognormal":
                # Less half of the variance: the mean of the distribution is the asked one, before it is cut.
                drawn = mean * math.exp(rng.gauss(-0.5, 1.0))
                return max(1, min(round(drawn), 4 * mean))
        raise ValueError(f"'{self.kind}' is no kind of lengths")


def draw_workload(params: Params, vocabulary: int, seed: int) -> Workload:
    """Draw the calls of a launch.

    Args:
        params: Of the point, resolved.
        vocabulary: Tokens that the model knows.
        seed: Same seed, same calls.
    """
    rng = random.Random(seed)
    spoken = params["workload"] == TRACED and speaks(params)
    choice = spoken_sessions(params) if spoken else None
    instants = instants_of(params, seed, num_roots(params) if choice is None else len(choice.sessions))
    match params["workload"]:
        case "sessions":
            calls = _sessions(params, vocabulary, rng, instants)
        case "workflows":
            calls = _workflows(params, vocabulary, rng, instants)
        case "trace" if choice is not None:
            calls = spoken_calls(choice, params, vocabulary, seed, instants, lambda: _tenant(params, rng))
        case "trace":
            calls = traced_calls(params, vocabulary, seed, instants)
        case "shared-prefixes":
            calls = _shared(params, vocabulary, rng, instants)
        case _:
            calls = _independent(params, vocabulary, rng, instants)
    concurrency = int(str(params["concurrency"])) if params["arrivals"] == CLOSED else None
    return Workload(calls=tuple(calls), concurrency=concurrency)


def count_of(params: Params, name: str) -> int:
    """Return a parameter that is a whole number."""
    value = params[name]
    assert isinstance(value, int)
    return value


def num_roots(params: Params) -> int:
    """Return how many calls wait for no other one."""
    return math.ceil(count_of(params, "requests") / calls_together(params))


def calls_together(params: Params) -> int:
    """Return how many calls a session or workflow has; 1 where calls stand alone."""
    if params["workload"] == SESSIONS:
        return count_of(params, "turns")
    if params["workload"] == WORKFLOWS:
        return 1 + count_of(params, "turns") * (count_of(params, "branches") + 1)
    return 1


def instants_of(params: Params, seed: int, count: int) -> list[float | None]:
    """Draw when that many calls (or sessions) are due: seconds behind the start, None in a closed loop."""
    kind = str(params["arrivals"])
    if kind == CLOSED:
        return [None] * count
    if kind == AT_ONCE:
        return [0.0] * count
    if kind == TRACED:
        return [0.0] * count  # the trace's own are taken
    rate = float(str(params["rate_per_s"]))
    burstiness = float(str(params.get("burstiness") or 1.0))
    drawn = draw_arrivals(kind, rate_per_s=rate, count=count, seed=seed, burstiness=burstiness)
    return [float(t) for t in drawn]


def _tokens(count: int, vocabulary: int, rng: random.Random) -> tuple[int, ...]:
    return tuple(rng.randrange(FIRST_TOKEN, vocabulary) for _ in range(count))


def _tenant(params: Params, rng: random.Random) -> str:
    """Draw who calls: the first of several tenants has ``heavy_tenant_factor`` times the calls of each other one."""
    tenants, heavy = count_of(params, "tenants"), float(str(params["heavy_tenant_factor"]))
    place = rng.random() * (heavy + tenants - 1)
    return f"tenant-{0 if place < heavy else 1 + int(place - heavy)}"


def _independent(
    params: Params, vocabulary: int, rng: random.Random, instants: list[float | None]
) -> list[Call]:
    lengths = Lengths(kind=str(params["lengths"]))
    return [
        Call(
            number=number,
            tenant=_tenant(params, rng),
            prompt=_tokens(lengths.draw(count_of(params, "prompt_tokens"), rng), vocabulary, rng),
            output_tokens=lengths.draw(count_of(params, "output_tokens"), rng),
            at_s=at_s,
        )
        for number, at_s in enumerate(instants)
    ]


def _shared(params: Params, vocabulary: int, rng: random.Random, instants: list[float | None]) -> list[Call]:
    """Prompts begin with one of several long prefixes, each of which belongs to a tenant."""
    lengths = Lengths(kind=str(params["lengths"]))
    prefixes = [
        (_tenant(params, rng), _tokens(count_of(params, "prefix_tokens"), vocabulary, rng))
        for _ in range(count_of(params, "prefixes"))
    ]
    calls = []
    for number, at_s in enumerate(instants):
        # The prefix belongs to a tenant: fairness and locality then pull in different directions.
        tenant, prefix = rng.choice(prefixes)
        own = _tokens(lengths.draw(count_of(params, "prompt_tokens"), rng), vocabulary, rng)
        calls.append(
            Call(
                number=number,
                tenant=tenant,
                prompt=prefix + own,
                output_tokens=lengths.draw(count_of(params, "output_tokens"), rng),
                at_s=at_s,
            )
        )
    return calls


def _sessions(
    params: Params, vocabulary: int, rng: random.Random, instants: list[float | None]
) -> list[Call]:
    """Turns of a session carry all of what was said before; a person thinks between an answer and the next turn."""
    lengths = Lengths(kind=str(params["lengths"]))
    think_s = float(str(params["think_s"]))
    calls: list[Call] = []
    for at_s in instants:
        tenant, before = _tenant(params, rng), None
        for _ in range(count_of(params, "turns")):
            if len(calls) == count_of(params, "requests"):
                break
            prompt = _tokens(lengths.draw(count_of(params, "prompt_tokens"), rng), vocabulary, rng)
            number = len(calls)
            calls.append(
                Call(
                    number=number,
                    tenant=tenant,
                    prompt=prompt,
                    output_tokens=lengths.draw(count_of(params, "output_tokens"), rng),
                    at_s=at_s if before is None else None,
                    after=() if before is None else (before,),
                    pause_s=0.0 if before is None else rng.expovariate(1.0 / think_s) if think_s else 0.0,
                    carries=before is not None,
                )
            )
            before = number
    return calls


def _workflows(
    params: Params, vocabulary: int, rng: random.Random, instants: list[float | None]
) -> list[Call]:
    """Agents' work: a call hands out branches, which carry on from it at once, and the next call waits for all of them.

    That next call carries on from the one that handed out, and is told what the branches said: as many tokens as they
    were asked for, which are drawn, since a client that joins texts may change them.
    """
    lengths = Lengths(kind=str(params["lengths"]))
    most = count_of(params, "requests")
    calls: list[Call] = []

    def ask(tenant: str, at_s: float | None, after: tuple[int, ...], told: int) -> int:
        prompt = told + lengths.draw(count_of(params, "prompt_tokens"), rng)
        think_s = float(str(params["think_s"]))
        call = Call(
            number=len(calls),
            tenant=tenant,
            prompt=_tokens(prompt, vocabulary, rng),
            output_tokens=lengths.draw(count_of(params, "output_tokens"), rng),
            at_s=at_s,
            after=after,
            pause_s=rng.expovariate(1.0 / think_s) if after and think_s else 0.0,
            carries=bool(after),
        )
        calls.append(call)
        return call.number

    for at_s in instants:
        tenant = _tenant(params, rng)
        lead = ask(tenant, at_s, (), 0)
        for _ in range(count_of(params, "turns")):
            room = min(count_of(params, "branches"), most - len(calls))
            branches = tuple(ask(tenant, None, (lead,), 0) for _ in range(room))
            if len(calls) == most:
                break
            # As many tokens as were asked of the branches: what a call costs has to be the same for every server.
            told = sum(calls[n].output_tokens for n in branches)
            lead = ask(tenant, None, (lead, *branches), told)
            if len(calls) == most:
                break
    return calls
