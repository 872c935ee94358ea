"""Servers under load by one command: what a person asks for becomes a suite of the serving family, and nothing more.

The suite is an ordinary one. It can be kept (``--save-suite``), changed and run again by ``paceline run``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from paceline.base.errors import UserError
from paceline.families.serving.core.load.exact_words import ExactWords
from paceline.families.serving.core.load.probe import APIS, Server, check_address, find_server
from paceline.families.serving.core.load.sending.asking import Asking
from paceline.families.serving.core.load.sending.target import Tls
from paceline.families.serving.core.load.trials import LONG_WORDS, SHORT_WORDS, Access, Api, trial_text
from paceline.families.serving.core.model_sizes import FIRST_TOKEN
from paceline.families.serving.core.workloads.text_tokens import load_tokenizer
from paceline.families.serving.core.workloads.traces import SHAREGPT
from paceline.families.serving.ops.endpoint.served import (
    NoServerError,
    TakenError,
    outlives,
    served,
    variables_of_commands,
)
from paceline.families.serving.ops.endpoint.target import MOCK, mock_of, side_of
from paceline.workflows.choosing import Say

SUITE = "serving/load"
MARGIN = 0.02
"""Of two servers' times, unless somebody says another: below that nobody moves a deployment."""
HEADLINE = ("ttft_p50", "tpot_p50", "e2e_p50", "output_tokens_per_s")
DIAGNOSTIC = (
    *("ttft_p90", "ttft_p99", "tpot_p90", "itl_p50", "itl_p99"),
    *("e2e_p99", "e2e_mean", "requests_per_s", "goodput"),
)
SHARES = ("slo_attainment", "failed")
"""Compared by difference, by margins of their own."""
LAUNCHES, MOST_LAUNCHES = 5, 60
BUDGET = "3min"
OPEN_SLACK_S, CLOSED_S = 600.0, 3600.0
"""What a side of a launch may take behind its last instant, and in a closed loop."""
KEYS = ("OPENAI_API_KEY", "OPENAI_API_KEY_2")
SECRET_HEADERS = ("authorization", "api-key", "x-api-key", "cookie", "proxy-authorization")
OF_SERVERS = (
    "VLLM_",
    "SGLANG_",
    "SGL_",
    "LLAMA_",
    "LMDEPLOY_",
    "TRTLLM_",
    "TLLM_",
    "OLLAMA_",
    "HF_TOKEN",
    "PYTHONPATH",
)
"""How variables begin by which people set servers up."""
LAST_LINES = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One server as a person names it."""

    url: str
    name: str | None = None
    model: str | None = None
    api: Api | None = None
    """None tries what the preset is most like, then the other."""
    leave_out: tuple[str, ...] = ()
    rename: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    key_variable: str = KEYS[0]
    key_header: str = ""
    authorities: Path | None = None
    verify: bool = True
    tokenizer: Path | None = None
    start: str = ""
    stop: str = ""
    ready: str = "10min"


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A server that was found, as a technique of the suite."""

    label: str
    options: Mapping[str, Any]
    server: Server | None
    """None where it is the harness's own mock."""
    counted_by: str
    """How words become tokens."""


def find_sides(asked: Sequence[Asked], traffic: Mapping[str, Any], *, say: Say) -> list[Side]:
    """Find out how each server wants to be asked, starting those that a command starts.

    Args:
        asked: The servers.
        traffic: Parameters of the load.
        say: Called with what a person has to wait for or to know.

    Raises:
        UserError: A server cannot be asked, or two have one name.
        InfrastructureError: Nobody answers.
    """
    sides = [_side(one, traffic, say) for one in asked]
    labels = [side.label for side in sides]
    if len(set(labels)) < len(labels):
        names = ["a", "b", "c", "d"]
        sides = [
            Side(label=f"{s.label}-{n}", options=s.options, server=s.server, counted_by=s.counted_by)
            for s, n in zip(sides, names, strict=False)
        ]
    return sides


def _side(asked: Asked, traffic: Mapping[str, Any], say: Say) -> Side:
    for name in asked.headers:
        if name.lower() in SECRET_HEADERS:
            raise UserError(
                f"the header {name} holds a secret, and records show headers",
                where="--header",
                fix=f"export {asked.key_variable}=…, and --key-header={name} where it is not a bearer's",
            )
    if not asked.url.startswith(MOCK):
        check_address(asked.url)
    options: dict[str, Any] = {
        "url": asked.url,
        "leave_out": ",".join(asked.leave_out),
        "rename": ",".join(f"{old}={new}" for old, new in asked.rename.items()),
        "extra": json.dumps(asked.extra, sort_keys=True) if asked.extra else "",
        "headers": json.dumps(asked.headers, sort_keys=True) if asked.headers else "",
        "key_variable": asked.key_variable,
        "key_header": asked.key_header,
        "authorities": str(asked.authorities.absolute()) if asked.authorities else "",
        "verify": asked.verify,
        "start": asked.start,
        "stop": asked.stop,
        "folder": str(Path.cwd()) if asked.start else "",
        "ready": asked.ready,
    }
    label = asked.name or _label(asked.url)
    if asked.url.startswith(MOCK):
        try:
            mock_of(asked.url)
        except ValueError as error:
            raise UserError(str(error), where=asked.url) from None
        mine = {"url": asked.url, **({"api": asked.api} if asked.api else {})}
        return Side(label=label, options=mine, server=None, counted_by="the mock counts words")
    server = _found(asked, options, traffic, say)
    options |= {
        "url": server.url,
        "model": server.model,
        "api": server.api,
        "leave_out": ",".join(server.leave_out),
        "rename": ",".join(f"{old}={new}" for old, new in server.rename.items()),
    }
    per_word, counted_by = _words(asked, server, say)
    options |= {
        "tokens_per_word": round(per_word, 4),
        "added_tokens": 0.0 if asked.tokenizer else round(server.counting.added_tokens, 1),
        "tokenizer": str(asked.tokenizer or ""),
        "length_counts": server.counting.length_counts,
    }
    return Side(label=label, options=_said(options), server=server, counted_by=counted_by)


def _found(asked: Asked, options: Mapping[str, Any], traffic: Mapping[str, Any], say: Say) -> Server:
    """Find out how a server wants to be asked; one that a command starts is started for it."""
    access = Access(
        key=os.environ.get(asked.key_variable) or None,
        key_header=asked.key_header,
        key_variable=asked.key_variable,
        tls=Tls(authorities=str(asked.authorities) if asked.authorities else None, verify=asked.verify),
        headers=dict(asked.headers),
    )
    try:
        asking = Asking(
            leave_out=asked.leave_out,
            rename=dict(asked.rename),
            extra=dict(asked.extra),
            headers=dict(asked.headers),
        )
    except ValueError as error:
        raise UserError(str(error), where="--leave-out, --rename, --extra or --header") from None
    talks = traffic["workload"] == "sessions" or traffic.get("trace_format") == SHAREGPT
    usual: tuple[Api, ...] = ("chat", "completions") if talks else APIS
    apis = (asked.api,) if asked.api else usual

    def ask() -> Server:
        return find_server(asked.url, access, model=asked.model, apis=apis, asking=asking)

    return _started(asked, options, ask, say) if asked.start else ask()


def _started(asked: Asked, options: Mapping[str, Any], ask: Callable[[], Server], say: Say) -> Server:
    """Ask a server that its command starts, and end it.

    Raises:
        UserError: There is no server, another one answers there, or it answers still when it was ended.
    """
    base = asked.url.rstrip("/")
    told = {**options, "url": base if base.endswith("/v1") else f"{base}/v1"}
    side = side_of({**DEFAULTS, "model": "", "api": "completions", "tokens_per_word": 1.0, **told})
    log = Path.cwd() / "paceline-load-start.log"
    log.unlink(missing_ok=True)
    say(f"starting '{asked.start}'; it has {asked.ready} to answer at {side.url}, and writes to {log}")
    kept = variables_of_commands(os.environ)
    if missed := [n for n in sorted(os.environ) if n.startswith(OF_SERVERS) and n not in kept]:
        say(
            f"the command does not get {', '.join(missed)} of this shell: --start '{missed[0]}=… {asked.start}'"
        )
    try:
        with served(side, log):
            found = ask()
    except TakenError as error:
        raise UserError(
            error.reason,
            where="--start",
            expected=f"nobody at {asked.url}, so that each launch starts its own server",
            fix="end what answers there; --stop=COMMAND where that is what --start started; or another port",
        ) from None
    except NoServerError as error:
        words = "".join(f"\n    {line}" for line in (error.last_words or "").splitlines()[-LAST_LINES:])
        raise UserError(
            error.reason + words,
            where="--start",
            expected=f"a server at {asked.url} within {asked.ready} (--ready)",
            fix=f"look into {log}",
        ) from None
    if outlives(side):
        ended_by = asked.stop or asked.start
        raise UserError(
            f"the server answers still, though '{ended_by}' has ended",
            where="--stop" if asked.stop else "--start",
            expected=f"nobody at {asked.url}, so that each launch starts its own server",
            fix="--stop=COMMAND that ends it, such as 'docker stop NAME'",
        )
    log.unlink()  # what a command wrote matters where it gave no server
    return found


def _label(url: str) -> str:
    if url.startswith(MOCK):
        return "mock"
    parts = urlsplit(url)
    name = f"{parts.hostname or 'server'}-{parts.port}" if parts.port else str(parts.hostname)
    return "".join(c if c.isalnum() else "-" for c in name.lower()).strip("-") or "server"


def _words(asked: Asked, server: Server, say: Say) -> tuple[float, str]:
    """Return tokens of a word, and who counted them.

    Raises:
        UserError: The tokenizer cannot be read, or counts no words.
    """
    if asked.tokenizer is not None:
        tokenizer = load_tokenizer(asked.tokenizer)
        ExactWords(tokenizer.count).text(range(FIRST_TOKEN, FIRST_TOKEN + LONG_WORDS))
        short, long = (tokenizer.count(trial_text(words)) for words in (SHORT_WORDS, LONG_WORDS))
        by_server = server.counting.prompt_tokens
        around = None if by_server is None else by_server[0] - short
        if by_server is not None and (by_server[1] - long != around or by_server[0] < short):
            say(
                f"of two texts the server counts {by_server[0]} and {by_server[1]}, the tokenizer "
                f"{tokenizer.name} {short} and {long}: is it another model's?"
            )
            around = None
        added = f"; the server adds {around} to a prompt" if around else ""
        return long / LONG_WORDS, f"the tokenizer {tokenizer.name}, exactly{added}"
    if server.counting.tokens_per_word is not None:
        return server.counting.tokens_per_word, "the server's usage"
    return 1.0, "nobody: the server tells no usage, and a word was taken as a token"


DEFAULTS: Mapping[str, Any] = {
    "leave_out": "",
    "rename": "",
    "extra": "",
    "headers": "",
    "key_variable": KEYS[0],
    "key_header": "",
    "authorities": "",
    "verify": True,
    "start": "",
    "stop": "",
    "folder": "",
    "ready": "10min",
    "added_tokens": 0.0,
    "tokenizer": "",
    "length_counts": False,
}


def _said(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options without those that are as usual."""
    return {name: value for name, value in options.items() if DEFAULTS.get(name, ...) != value}


def suite_of(
    sides: Sequence[Side],
    workload: Mapping[str, Any],
    *,
    sweep: tuple[str, Sequence[Any]] | None = None,
    margin: float = MARGIN,
    launches: int = 1,
    budget: str = BUDGET,
) -> str:
    """Return the suite as YAML.

    Args:
        sides: Servers; the first is the baseline.
        workload: Parameters of ``endpoint``.
        sweep: A parameter and its values.
        margin: Of the headline metrics, relative.
        launches: Of a single server; two are measured until decided.
        budget: Time after which no launch of two begins.
    """
    several = len(sides) > 1
    protocol: dict[str, Any] = {"timeout": f"{_timeout_s(workload, sweep):.0f}s"}
    if several:
        protocol |= {"until": "decided", "launches": f"{LAUNCHES}..{MOST_LAUNCHES}", "budget": budget}
    else:
        protocol["launches"] = launches
    searching = bool(workload.get("until_saturated"))
    metrics: dict[str, Any] = {
        name: {"margin": margin} for name in (("max_rate",) if searching else HEADLINE)
    }
    if not searching:
        metrics |= {name: {"margin": margin, "diagnostic": True} for name in DIAGNOSTIC}
        metrics |= {name: {"diagnostic": True} for name in SHARES}
    data = {
        "suite": SUITE,
        "version": 1,
        "family": "serving",
        "description": "Servers at their addresses under one load, from outside.",
        "workload": {"op": "endpoint", **workload},
        "baseline": sides[0].label,
        "techniques": [
            {"technique": "openai-server", "as": side.label, "options": dict(side.options)} for side in sides
        ],
        **({"matrix": {sweep[0]: list(sweep[1])}} if sweep else {}),
        "protocol": protocol,
        "metrics": metrics,
        "tuning": {"in_words": "Nothing was tuned: servers run as whoever runs them has set them up."},
    }
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=120)


def _timeout_s(workload: Mapping[str, Any], sweep: tuple[str, Sequence[Any]] | None) -> float:
    """Return the longest that a side of a launch may take: far above what it should."""
    if workload.get("until_saturated"):
        return 2 * CLOSED_S
    if workload.get("arrivals") == "closed":
        return CLOSED_S
    rates = list(sweep[1]) if sweep and sweep[0] == "rate_per_s" else [workload.get("rate_per_s", 1.0)]
    return float(workload.get("requests", 100)) / min(float(r) for r in rates) + OPEN_SLACK_S
