"""Options of ``paceline load``, and what they say of the load and of each server."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from paceline.base.counting import number_of
from paceline.base.errors import UserError
from paceline.base.techniques.technique import valid_name
from paceline.base.units import parse_duration
from paceline.cli.measuring.extra_fields import extra_fields
from paceline.cli.options import together
from paceline.families.serving.core.planning.points import calls_of_a_place, wrong_places
from paceline.families.serving.core.workloads.text_tokens import tokenizer_folder
from paceline.workflows.load import KEYS, Asked
from paceline.workflows.load_presets import (
    FORMS,
    objectives,
    own_pace,
    parse_sweep,
    requests_of_trace,
    traffic_of,
)

CONCURRENCY = 4
REQUESTS = 100
PROBE_REQUESTS = 200
TIMES_A_PLACE = 10
"""How often each place is taken where somebody says how many places, and nobody how many calls: the first and last
time, while the loop fills and empties, are few of them."""
FIRST_RATE = 4.0
"""Calls a second that a search begins with, where nobody says."""


def _per_server(*names: str, **settings: Any) -> Callable[[Any], Any]:
    """Add an option that is given once for all servers, or once for each in their order."""
    return click.option(*names, multiple=True, **settings)


load_options = together(
    click.option("--seed", type=int, default=None, help="Seed of calls, lengths and instants."),
    click.option(
        "--launches",
        type=click.IntRange(1),
        default=None,
        help="Repetitions with other calls; of one server 1, of two they are added until decided.",
    ),
    click.option(
        "--budget",
        default="3min",
        show_default=True,
        help="Of two servers: no launch begins after this time.",
    ),
    click.option(
        "--client-processes",
        type=click.IntRange(1),
        default=1,
        show_default=True,
        help="Of the load generator.",
    ),
    click.option("--no-real-time", is_flag=True, help="Do not ask to run before ordinary processes."),
    click.option(
        "--warm-up",
        type=click.IntRange(0),
        default=4,
        show_default=True,
        help="Calls before a launch's first.",
    ),
    click.option(
        "--slo",
        default=None,
        metavar="ttft=…,tpot=…",
        help="Objectives of a call, such as ttft=200ms,tpot=30ms.",
    ),
    click.option(
        "--until-saturated",
        is_flag=True,
        help="Search the highest rate at which 90 % of calls meet their objectives, from --rate on (default: 4).",
    ),
    click.option("--sweep", default=None, metavar="1,2,4", help="Several rates, or concurrency:1,2,4."),
    click.option(
        "--concurrency",
        type=click.IntRange(1),
        default=None,
        help=f"A closed loop: so many calls at a time. [default: {CONCURRENCY}]",
    ),
    click.option(
        "--rate",
        type=float,
        default=None,
        help="An open loop: calls (or sessions) a second. [default: of a trace its own]",
    ),
    click.option(
        "--arrivals",
        type=click.Choice(["poisson", "constant", "gamma", "at-once", "trace"]),
        default=None,
        help="Of an open loop; default: poisson, and of a trace its own instants.",
    ),
    click.option(
        "--duration", default=None, metavar="DURATION", help="Of an open loop or a trace, not --requests."
    ),
    click.option(
        "--requests",
        type=click.IntRange(1),
        default=None,
        help=f"Calls of a launch. [default: {REQUESTS}, {TIMES_A_PLACE} for each of --concurrency if that is more, "
        "and no more than a trace has]",
    ),
    click.option("--preset", default="random:512/128", show_default=True, help=f"{FORMS}."),
)
"""Options that say what is sent."""


server_options = together(
    _per_server(
        "--ready",
        metavar="DURATION",
        help="How long --start may take until the server answers. [default: 10min]",
    ),
    _per_server("--stop", metavar="COMMAND", help="Stops what --start started; default: ends it."),
    _per_server(
        "--start",
        metavar="COMMAND",
        help="Starts the server before its calls, so that two can share a device in turn.",
    ),
    _per_server(
        "--tokenizer",
        metavar="FOLDER|NAME",
        help="The model's folder, a tokenizer.json, or its name on the hub; default: the server's own count.",
    ),
    click.option("--no-verify", is_flag=True, help="Trust whoever answers over TLS."),
    click.option(
        "--authorities",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        default=None,
        help="Authorities that vouch for the server, in PEM.",
    ),
    click.option(
        "--key-header",
        default="",
        metavar="NAME",
        help="Header that takes the key as it is; default: Authorization: Bearer.",
    ),
    _per_server(
        "--key-variable",
        type=click.Choice(KEYS),
        help=f"Variable that holds the key. [default: {KEYS[0]}]",
    ),
    click.option(
        "--header",
        "headers",
        multiple=True,
        metavar="NAME=VALUE",
        help="A further header; it is in the record.",
    ),
    click.option(
        "--extra",
        multiple=True,
        metavar="KEY=VALUE|JSON",
        help="A further field of requests, its value in JSON or a text as it stands; or an object with several.",
    ),
    click.option("--rename", multiple=True, metavar="OLD=NEW", help="A field under another name."),
    click.option(
        "--leave-out",
        multiple=True,
        metavar="FIELD",
        help="A field that the server refuses; the usual ones are found out.",
    ),
    click.option(
        "--api",
        type=click.Choice(["chat", "completions"]),
        default=None,
        help="Default: what the server has.",
    ),
    _per_server("--name", help="Name in tables; default: host and port."),
    _per_server("--model", "-m", help="Its name at the server; default: the only one there."),
)
"""Options that say how servers are asked; those of one server are given once for all, or once for each."""


def traffic_and_sweep(options: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, Sequence[Any]] | None]:
    """Return the parameters of the load, and what is swept.

    Raises:
        UserError: Two of the options contradict each other.
    """
    searching, sweep = options["until_saturated"], options["sweep"]
    chosen = [f"--{n}" for n in ("rate", "concurrency", "sweep") if options[n] is not None]
    if len(chosen) > 1 or (searching and {"--concurrency", "--sweep"} & set(chosen)):
        both = [*chosen, *(["--until-saturated"] if searching else [])]
        raise UserError(f"{' and '.join(both)} contradict each other", expected="one of them")
    traffic = _traffic_of(options)
    swept = parse_sweep(sweep) if sweep else None
    opened = options["rate"] is not None or searching or (swept is not None and swept[0] == "rate_per_s")
    paced = traffic.get("arrivals") == "trace" and not chosen and not searching
    if paced and options["arrivals"] != "at-once":
        traffic |= _own_pace(options, traffic)
        traffic["arrivals"] = options["arrivals"] or "trace"
    elif opened or options["arrivals"] == "at-once":
        traffic["arrivals"] = options["arrivals"] or traffic.get("arrivals", "poisson")
        if options["rate"] is not None or searching:
            traffic["rate_per_s"] = options["rate"] if options["rate"] is not None else FIRST_RATE
            if not 0 < traffic["rate_per_s"] < math.inf:
                raise UserError(
                    f"{number_of(options['rate'], 'call', form='g')} a second",
                    where="--rate",
                    expected="a finite number above 0",
                )
    elif options["arrivals"] is not None:
        raise UserError("arrivals need a rate", where=f"--arrivals={options['arrivals']}", fix="--rate 1")
    else:
        traffic["arrivals"] = "closed"
        if swept is None:
            traffic["concurrency"] = options["concurrency"] or CONCURRENCY
    if "requests" not in traffic:
        traffic["requests"] = _requests(options, traffic, swept)
    traffic |= {"warm_up_calls": options["warm_up"], "client_processes": options["client_processes"]}
    if traffic.get("concurrency") and options["concurrency"] is None:
        # Nobody asked for so many places: a few calls take fewer.
        while traffic["concurrency"] > 1 and list(wrong_places(traffic)):
            traffic["concurrency"] -= 1
    _check_places(traffic, swept)
    traffic |= objectives(options["slo"])
    traffic |= {"until_saturated": True} if searching else {}
    traffic |= {"real_time": False} if options["no_real_time"] else {}
    return traffic, swept


def _traffic_of(options: dict[str, Any]) -> dict[str, Any]:
    traffic = traffic_of(options["preset"])
    if str(traffic.get("trace_format")) == "sharegpt":
        if not options["tokenizer"]:
            raise UserError(
                "conversations are cut by their tokens, which nobody counts here",
                where=f"--preset={options['preset']}",
                expected="the model's tokenizer",
                fix="--tokenizer=FOLDER of the model, its tokenizer.json, or its name on the hub",
            )
        traffic["tokenizer"] = str(tokenizer_folder(options["tokenizer"][0]))
    return traffic


def _check_places(traffic: dict[str, Any], swept: tuple[str, Sequence[Any]] | None) -> None:
    """Check that a closed loop's places can be taken.

    Raises:
        UserError: There are fewer places than processes that share them, or fewer calls or sessions than places.
    """
    places = _places(swept) or [traffic.get("concurrency")]
    for name, wrong, expected in (w for n in places for w in wrong_places({**traffic, "concurrency": n})):
        raise UserError(wrong, where=f"--{name.replace('_', '-')}", expected=expected)


def _places(swept: tuple[str, Sequence[Any]] | None) -> Sequence[Any]:
    """Return the places of closed loops that are swept."""
    return swept[1] if swept is not None and swept[0] == "concurrency" else ()


def _own_pace(options: dict[str, Any], traffic: dict[str, Any]) -> dict[str, Any]:
    """Return requests and rate of a trace that is sent at its own instants."""
    within_s = None if options["duration"] is None else _duration_s(options["duration"])
    if within_s is not None and options["requests"] is not None:
        raise UserError("a duration and a number of calls", where="--duration", expected="one of them")
    return own_pace(traffic, requests=options["requests"], most=REQUESTS, within_s=within_s)


def _duration_s(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise UserError(str(error), where="--duration", expected="60s or 5min") from None


def _requests(
    options: dict[str, Any], traffic: dict[str, Any], swept: tuple[str, Sequence[Any]] | None
) -> int:
    searching = options["until_saturated"]
    if options["requests"] is not None and options["duration"] is None:
        return _known(traffic, int(options["requests"]))
    if options["duration"] is None:
        most = max(map(int, (options["concurrency"] or 0, *_places(swept))))
        usual = max(
            PROBE_REQUESTS if searching else REQUESTS, most * calls_of_a_place(traffic) * TIMES_A_PLACE
        )
        return requests_of_trace(traffic, most=usual) or usual
    if options["requests"] is not None or "rate_per_s" not in traffic or searching:
        raise UserError(
            "a duration is of an open loop", where="--duration", expected="--rate with it, and no --requests"
        )
    return int(max(round(_duration_s(options["duration"]) * traffic["rate_per_s"]), 1))


def _known(traffic: dict[str, Any], requests: int) -> int:
    """Return the number of calls that somebody says, if conversations have so many."""
    known = requests_of_trace(traffic, most=requests) if traffic.get("trace_format") == "sharegpt" else None
    if known is not None and known < requests:
        raise UserError(
            f"the file has {number_of(known, 'exchange')} that can be asked for",
            where=f"--requests={requests}",
            fix=f"--requests={known}",
        )
    return requests


def asked_of(number: int, url: str, count: int, options: dict[str, Any]) -> Asked:
    """Return what is said of one of the servers."""

    def own(name: str, default: Any = None) -> Any:
        given = options[name]
        if len(given) not in (0, 1, count):
            raise UserError(
                f"{number_of(len(given), 'value')} for {number_of(count, 'server')}",
                where=f"--{name.replace('_', '-')}",
                expected=f"one for all, or {count}",
            )
        return default if not given else given[number] if len(given) == count else given[0]

    return Asked(
        url=url,
        name=_name(own("name")),
        model=own("model"),
        api=options["api"],
        leave_out=tuple(n for item in options["leave_out"] for n in item.split(",")),
        rename=_pairs("--rename", options["rename"]),
        extra=extra_fields(options["extra"]),
        headers=_pairs("--header", options["headers"]),
        key_variable=own("key_variable", KEYS[0]),
        key_header=options["key_header"],
        authorities=options["authorities"],
        verify=not options["no_verify"],
        tokenizer=tokenizer_folder(given) if (given := own("tokenizer")) else None,
        start=own("start", ""),
        stop=own("stop", ""),
        ready=duration_of("--ready", own("ready", "10min")),
    )


def duration_of(option: str, text: str) -> str:
    """Return a duration as it was written.

    Raises:
        UserError: It is none.
    """
    try:
        parse_duration(text)
    except ValueError as error:
        raise UserError(str(error), where=option, expected="90s or 10min") from None
    return text


def _name(name: str | None) -> str | None:
    if name is not None and not valid_name(name):
        raise UserError(
            f"'{name}' is no name of a server", where="--name", expected="lower-case letters, digits, '-'"
        )
    return name


def _pairs(option: str, items: Sequence[str]) -> dict[str, str]:
    found = {}
    for item in items:
        name, separator, value = item.partition("=")
        if not separator or not name:
            raise UserError(f"'{item}' has no value", where=option, expected="NAME=VALUE")
        found[name] = value
    return found
