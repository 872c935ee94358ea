"""What a person says of a load in a few words, read into parameters: presets, objectives, sweeps."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paceline.base.account import with_home
from paceline.base.counting import number_of
from paceline.base.errors import UserError
from paceline.base.units import parse_duration
from paceline.families.serving.core.workloads.conversation_choice import choose
from paceline.families.serving.core.workloads.conversations import read_conversations
from paceline.families.serving.core.workloads.text_files import read_packed_text
from paceline.families.serving.core.workloads.text_tokens import load_tokenizer
from paceline.families.serving.core.workloads.traces import (
    AZURE,
    BAILIAN,
    BURSTGPT,
    COLUMNS,
    MOONCAKE,
    SHAREGPT,
    read_trace,
)

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "chat": {
        "workload": "sessions",
        "turns": 3,
        "prompt_tokens": 128,
        "output_tokens": 128,
        "lengths": "lognormal",
        "think_s": 1.0,
    },
    "random": {"workload": "independent", "prompt_tokens": 512, "output_tokens": 128, "lengths": "fixed"},
    "prefix-shared": {
        "workload": "shared-prefixes",
        "prefixes": 8,
        "prefix_tokens": 1024,
        "prompt_tokens": 128,
        "output_tokens": 128,
        "lengths": "uniform",
    },
    "agent": {
        "workload": "workflows",
        "turns": 2,
        "branches": 3,
        "prompt_tokens": 256,
        "output_tokens": 128,
        "lengths": "uniform",
        "think_s": 0.0,
    },
}
"""What stands behind a name: parameters of the operation ``endpoint``."""
FORMS = "chat, random:IN/OUT, prefix-shared, agent, trace:FILE or conversations:FILE"


def traffic_of(preset: str) -> dict[str, Any]:
    """Return the parameters of a preset.

    Raises:
        UserError: There is none of this name, or it lacks what stands behind the colon.
    """
    name, colon, rest = preset.partition(":")
    if name == "trace" and rest:
        path = _file(rest, preset)
        return {
            "workload": "trace",
            "trace": str(path),
            "trace_format": trace_format(path),
            "arrivals": "trace",
        }
    if name == "conversations" and rest:
        return {
            "workload": "trace",
            "trace": str(_file(rest, preset)),
            "trace_format": SHAREGPT,
            "trace_turns": "all",
        }
    if name == "random" and rest:
        lengths = rest.split("/")
        if len(lengths) == 2 and all(n.isdigit() and int(n) > 0 for n in lengths):
            return {**PRESETS["random"], "prompt_tokens": int(lengths[0]), "output_tokens": int(lengths[1])}
        raise UserError(f"'{rest}' is not IN/OUT", where="--preset", expected="random:512/128, in tokens")
    if name in PRESETS and not colon:
        return dict(PRESETS[name])
    raise UserError(f"'{preset}' is no preset", where="--preset", expected=FORMS)


def requests_of_trace(traffic: Mapping[str, Any], *, most: int) -> int | None:
    """Return how many requests the trace of a load has, ``most`` at the most; None where it has no trace.

    Raises:
        UserError: It cannot be read, or none of its conversations can be asked for.
    """
    if traffic.get("trace") is None:
        return None
    if traffic["trace_format"] == SHAREGPT:
        return _exchanges(traffic, most)
    return min(most, len(read_trace(Path(str(traffic["trace"])), str(traffic["trace_format"])).requests))


def _exchanges(traffic: Mapping[str, Any], most: int) -> int:
    file = read_conversations(Path(str(traffic["trace"])))
    tokenizer = load_tokenizer(Path(str(traffic["tokenizer"])))
    return int(choose(file, tokenizer, requests=most, whole=True, fewer=True).facts["requests"])


def own_pace(
    traffic: Mapping[str, Any], *, requests: int | None, most: int, within_s: float | None
) -> dict[str, Any]:
    """Return how many requests of a trace to send, and the rate at which they come at the trace's own instants.

    Args:
        traffic: Parameters of a preset that is a trace.
        requests: How many; None for all of them, or ``most``.
        most: How many where nobody says.
        within_s: Those that came within this time of the first, in seconds; None for no such limit.

    Raises:
        UserError: The trace cannot be read, has fewer requests, or all of these came at one instant.
    """
    trace = read_trace(Path(str(traffic["trace"])), str(traffic["trace_format"]))
    came = trace.requests
    number = requests or min(len(came), most)
    if within_s is not None:
        number = sum(r.at_s <= within_s for r in came)
    if number > len(came):
        raise UserError(
            f"the trace has {number_of(len(came), 'request')} that can be sent",
            where=f"--requests={number}",
            fix=f"--requests={len(came)}",
        )
    last_s = came[number - 1].at_s
    if last_s == 0.0:
        raise UserError(
            f"the first {number_of(number, 'request')} of the trace came at one instant: they have no pace of "
            "their own",
            where=str(traffic["trace"]),
            fix="--arrivals at-once, --rate, --concurrency, or more --requests",
        )
    return {"requests": number, "rate_per_s": number / last_s}


def _file(text: str, preset: str) -> Path:
    path = with_home(text).absolute()
    if not path.is_file():
        raise UserError("there is no such file", where=str(path), expected=f"a file, as in --preset={preset}")
    return path


def trace_format(path: Path) -> str:
    """Tell a trace's format by its first line.

    Raises:
        UserError: It is none that is known.
    """
    text, _ = read_packed_text(path, "the trace")
    first = text.partition("\n")[0]
    header = next(csv.reader([first]), [])
    for name in (AZURE, BURSTGPT):
        if set(COLUMNS[name][:3]) <= set(header):
            return name
    try:
        told = json.loads(first)
    except ValueError:
        told = None
    if isinstance(told, dict) and "timestamp" in told:
        # Mooncake tells milliseconds and blocks of 512 tokens, Bailian seconds, turns and blocks of 16.
        return BAILIAN if {"chat_id", "parent_chat_id", "turn"} & set(told) else MOONCAKE
    raise UserError(
        "its first line is of no trace that is known",
        where=f"{path}:1",
        expected="Mooncake or Bailian (JSON lines with timestamp), Azure or BurstGPT (CSV with their header)",
        fix="--preset conversations:FILE for ShareGPT's format",
    )


def objectives(text: str | None) -> dict[str, Any]:
    """Read ``ttft=200ms,tpot=30ms``.

    Raises:
        UserError: It says something else.
    """
    found: dict[str, Any] = {}
    for item in (text or "").split(","):
        if not item:
            continue
        key, _, value = item.partition("=")
        try:
            if key not in ("ttft", "tpot"):
                raise ValueError(f"'{key}' is no objective")
            found[f"slo_{key}"] = parse_duration(value)
        except ValueError as error:
            raise UserError(
                str(error), where="--slo", expected="ttft=200ms,tpot=30ms, or one of them"
            ) from None
    return found


def parse_sweep(text: str) -> tuple[str, list[Any]]:
    """Read ``1,2,4`` calls a second, or ``concurrency:1,2,4``.

    Raises:
        UserError: It is neither.
    """
    kind, separator, values = text.rpartition(":")
    kind = kind if separator else "rate"
    try:
        if kind == "rate":
            return "rate_per_s", [_positive(v) for v in values.split(",")]
        if kind == "concurrency":
            return "concurrency", [int(_positive(str(int(v)))) for v in values.split(",")]
    except ValueError:
        pass
    raise UserError(
        f"'{text}' is no sweep", where="--sweep", expected="1,2,4 (calls a second) or concurrency:1,2,4"
    )


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise ValueError(text)
    return value
