"""What points on the reference engine may not ask for, and how much one of their calls can need. Free of torch."""

from __future__ import annotations

import math

from paceline.base.counting import number_of
from paceline.base.errors import PrerequisiteError, UserError
from paceline.base.families.family import Params
from paceline.families.serving.core.model_sizes import SIZES
from paceline.families.serving.core.workloads.drawn import (
    CLOSED,
    SESSIONS,
    SHARED,
    WORKFLOWS,
    calls_together,
    count_of,
    draw_workload,
)
from paceline.families.serving.core.workloads.traced_calls import TRACED, check_spoken, speaks


def longest_context(params: Params) -> int:
    """Return the most tokens that a call can have, with its answer."""
    # The largest factor of each kind: lognormal lengths are cut at four times the mean.
    times = {"fixed": 1.0, "uniform": 1.5, "lognormal": 4.0}[str(params["lengths"])]
    turn = math.ceil(times * (count_of(params, "prompt_tokens") + count_of(params, "output_tokens")))
    if params["workload"] == SESSIONS:
        return turn * count_of(params, "turns")
    if params["workload"] == WORKFLOWS:
        told = count_of(params, "branches") * math.ceil(times * count_of(params, "output_tokens"))
        return turn + count_of(params, "turns") * (told + turn)
    return turn + (count_of(params, "prefix_tokens") if params["workload"] == SHARED else 0)


def check_trace(params: Params) -> list[str]:
    """Return what is wrong with a point's trace, or with its missing."""
    traced = params["workload"] == TRACED
    if params["arrivals"] == TRACED and not traced:
        return ["arrivals of a trace need workload: trace"]
    if not traced:
        return []
    if not params["trace"]:
        return ["workload: trace needs the file's absolute path as 'trace'"]
    wrong = check_spoken(params) if speaks(params) else []
    if wrong:
        return wrong
    try:
        draw_workload(params, SIZES[str(params.get("model") or "tiny")]["vocab"], 0)
    except (UserError, PrerequisiteError) as error:
        return [str(error)]
    return []


def wrong_places(params: Params) -> list[tuple[str, str, str]]:
    """Return why the places of a closed loop cannot be taken: the parameter, what is wrong, and what is expected.

    Args:
        params: Of the point: the load, and ``client_processes``.
    """
    if params["arrivals"] != CLOSED:
        return []
    places, processes = count_of(params, "concurrency"), count_of(params, "client_processes")
    requests, together = count_of(params, "requests"), calls_of_a_place(params)
    loop = f"{number_of(places, 'place')} of a closed loop"
    wrong = []
    if processes > places:
        what = f"{number_of(processes, 'process', 'processes')} share {loop}"
        wrong.append(("client_processes", what, f"at most {places}: each has a place of its own"))
    if requests < places * together:
        each = "" if together == 1 else f", each a session of {together}"
        what = f"{number_of(requests, 'call')} cannot take {loop}{each}"
        wrong.append(("requests", what, f"{places * together} or more, better ten times as many"))
    return wrong


def calls_of_a_place(params: Params) -> int:
    """Return how many calls the place of a closed loop makes before it is free again."""
    # a file's sessions have as many calls as they have
    return 1 if params["workload"] == TRACED else calls_together(params)


def check_arrivals_in_virtual_time(params: Params) -> list[str]:
    """Return what is wrong with arrivals where no client waits for answers."""
    if params["arrivals"] == CLOSED:
        return ["virtual time has open loops: take poisson, constant, gamma, at-once or trace"]
    return []


def check_sizes(params: Params) -> list[str]:
    """Return why the engine cannot serve a point's calls; lengths of a trace are known only when it is read."""
    if params["workload"] == TRACED:
        return []
    wrong: list[str] = []
    longest = longest_context(params)
    context = SIZES[str(params["model"])]["max_context"]
    if longest > context:
        wrong.append(
            f"a call can have {number_of(longest, 'token')}, and the {params['model']} model knows {context}"
        )
    room = count_of(params, "block_size") * count_of(params, "num_blocks")
    if longest > room:
        wrong.append(f"a call can have {number_of(longest, 'token')}, and the cache has room for {room}")
    # Decodes are never split over steps, so a full batch of them has to fit.
    if count_of(params, "token_budget") < count_of(params, "max_batch"):
        wrong.append("token_budget is below max_batch: a step could not give every call a token")
    if count_of(params, "requests") < calls_together(params):
        wrong.append(
            f"{params['workload']} have {number_of(calls_together(params), 'call')} each, more than there are requests"
        )
    return wrong
