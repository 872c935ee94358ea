"""Calls of conversations: one for each exchange, the later ones of a session after the answer to the one before."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from paceline.families.serving.core.load.arrivals import POISSON, draw_arrivals
from paceline.families.serving.core.load.calls import Call, Messages, Prompt, Workload
from paceline.families.serving.core.model_sizes import FIRST_TOKEN
from paceline.families.serving.core.workloads.conversation_choice import (
    Choice,
    Exchange,
    LengthLimits,
    choose,
)
from paceline.families.serving.core.workloads.conversations import read_conversations
from paceline.families.serving.core.workloads.text_tokens import load_tokenizer

Form = Literal["chat", "text", "tokens"]
"""How prompts are sent: as the messages of a chat, as one text, or as the tokenizer's ids."""


def conversation_workload(
    path: Path,
    tokenizer: Path,
    *,
    requests: int,
    rate_per_s: float | None = None,
    arrivals: str = POISSON,
    burstiness: float = 1.0,
    concurrency: int | None = None,
    whole: bool = False,
    form: Form = "chat",
    limits: LengthLimits | None = None,
    think_s: float = 0.0,
    seed: int = 0,
) -> tuple[Workload, dict[str, Any]]:
    """Return the calls of a file of conversations, and what to tell of their choice, such as ``run_load``'s header.

    Args:
        path: ShareGPT's format or chats of ``messages``; a list or JSON lines, as they are or packed with gzip.
        tokenizer: Folder of a model, or ``tokenizer.json``.
        requests: How many calls.
        rate_per_s: Calls (or sessions) a second of an open loop.
        arrivals: How they are drawn at that rate; such files have no instants of their own.
        burstiness: Of ``gamma`` arrivals.
        concurrency: Places of a closed loop, in place of a rate.
        whole: Whether whole conversations are asked for, each turn after the answer to the one before, in place of the
            first two turns of each.
        form: How prompts are sent.
        limits: On lengths; None takes vLLM's.
        think_s: Mean time between an answer and the next turn.
        seed: Of the choice, the instants and the times between turns.

    Raises:
        PrerequisiteError: The package that reads the tokenizer is not installed.
        UserError: A file cannot be read, or has too few exchanges.
        ValueError: There is neither a rate nor a number of places, or both.
    """
    if (rate_per_s is None) == (concurrency is None):
        raise ValueError("an open loop needs rate_per_s, a closed one concurrency; expected one of both")
    choice = choose(
        read_conversations(path),
        load_tokenizer(tokenizer),
        requests=requests,
        whole=whole,
        limits=limits,
        seed=seed,
    )
    instants: Sequence[float | None] = [None] * len(choice.sessions)
    if rate_per_s is not None:
        drawn = draw_arrivals(
            arrivals, rate_per_s=rate_per_s, count=len(choice.sessions), seed=seed, burstiness=burstiness
        )
        instants = [float(t) for t in drawn]
    calls = session_calls(
        choice,
        instants,
        prompt_of=lambda exchange: _prompt(exchange, form),
        think_s=think_s,
        seed=seed,
        chat=form == "chat",
    )
    workload = Workload(calls=tuple(calls), concurrency=concurrency)
    return workload, {"conversations": {"file": path.name, "form": form, **choice.facts}}


def _prompt(exchange: Exchange, form: Form) -> Prompt:
    return exchange.tokens if form == "tokens" else Messages(exchange.messages)


def session_calls(
    choice: Choice,
    instants: Sequence[float | None],
    *,
    prompt_of: Callable[[Exchange], Prompt],
    think_s: float,
    seed: int,
    chat: bool = False,
    tenant_of: Callable[[], str] = str,
) -> list[Call]:
    """Return a call for each exchange.

    Args:
        choice: What is asked for.
        instants: Of each session's first call; None in a closed loop.
        prompt_of: What is sent of an exchange.
        think_s: Mean time between an answer and the next turn.
        seed: Of these times.
        chat: Whether calls are chats.
        tenant_of: Draws who calls, once for each session.
    """
    rng = random.Random(f"{seed}:think")
    calls: list[Call] = []
    for exchanges, at_s in zip(choice.sessions, instants, strict=True):
        tenant = tenant_of()
        for place, exchange in enumerate(exchanges):
            later = place > 0
            calls.append(
                Call(
                    number=len(calls),
                    tenant=tenant,
                    prompt=prompt_of(exchange),
                    output_tokens=exchange.answer_tokens,
                    at_s=None if later else at_s,
                    after=(len(calls) - 1,) if later else (),
                    pause_s=rng.expovariate(1.0 / think_s) if later and think_s else 0.0,
                    carries=later,
                    chat=chat,
                )
            )
    return calls


def folded(tokens: Sequence[int], vocabulary: int) -> tuple[int, ...]:
    """Return tokens of one vocabulary as tokens of another: equal ones stay equal, and special ones are left free."""
    return tuple(FIRST_TOKEN + token % (vocabulary - FIRST_TOKEN) for token in tokens)
