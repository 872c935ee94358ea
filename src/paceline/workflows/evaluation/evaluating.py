"""From options to an outcome: makes the source, the journal and the plan, and runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.base.counting import number_of
from paceline.base.errors import UserError
from paceline.base.units import parse_duration
from paceline.families.reasoning.core.backends.chat import ChatClient
from paceline.families.reasoning.core.problems.files import Problems, fingerprint
from paceline.families.reasoning.core.problems.tables import ANSWERS, QUESTIONS, Columns
from paceline.workflows.evaluation.abilities import ABILITIES, find_abilities
from paceline.workflows.evaluation.asked import (
    ENDPOINT,
    KNOWN,
    LOCAL,
    Asked,
    Where,
    budget_of,
    limits_of,
    model_of,
    options_of,
    prices_of,
    problems_of,
)
from paceline.workflows.evaluation.evaluate import Outcome, Plan, evaluate, folder_of
from paceline.workflows.evaluation.figures import write
from paceline.workflows.evaluation.journal import Journal
from paceline.workflows.evaluation.known_truth import KnownTruth
from paceline.workflows.evaluation.methods import Chosen, check_needs, choose
from paceline.workflows.evaluation.pace import Pace, Prices
from paceline.workflows.evaluation.sources import WHOLE, Asking, CallFailedError, EndpointSource, LocalSource
from paceline.workflows.stores import default_results

LOCAL_ABILITIES = frozenset({"logprobs", "n", "seed", "continuation"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What an evaluation gave, and where it is kept."""

    outcome: Outcome
    folder: Path
    setting: Mapping[str, Any]
    prices: Prices | None


class ReplaySource:
    """Nobody to ask: what is not kept is missing; implements ``Source``."""

    batches = True

    def draw(self, problem: int, question: str, indices: Sequence[int]) -> None:
        """Refuse."""
        raise CallFailedError(
            f"{number_of(len(indices), 'trace was', 'traces were')} never drawn, and --replay asks nobody"
        )

    def probe(self, problem: int, question: str, text: str, tokens: int) -> None:
        """Refuse."""
        raise CallFailedError("a probe was never asked for, and --replay asks nobody")


def evaluate_as_asked(options: Mapping[str, Any], *, say: Callable[[str], None]) -> Done:
    """Evaluate what the command line's options say; see there.

    Raises:
        UserError: An option makes no sense, a file cannot be read, a method needs what is not there, or the server
            refuses a plain request.
    """
    where, methods = model_of(options["model"]), choose(options["methods"])
    prices = prices_of(options["price"])
    budget, limits = budget_of(options["budget"], prices), limits_of(options["limit"])
    without = _without(options["without"])
    if where.kind == LOCAL:
        _refuse_fields(options)
    # What is said to be lacking needs no server to refuse a method.
    check_needs(
        methods, frozenset(ABILITIES) - without, options["temperature"], "the server, as --without says,"
    )
    known = problems_of(_asked(options))
    _say_left_out(known, say)
    asking, folder = _asking(options), options["output"]
    folder = folder or folder_of(default_results(), options["model"], options["problems"])
    setting = _setting(options, where, known, asking)
    with Journal(folder, setting, resume=options["resume"] or options["replay"]) as journal:
        pace = Pace(
            requests=limits["requests"],
            tokens=limits["tokens"],
            budget=budget,
            prices=prices,
            totals=journal.totals,
        )
        plan = Plan(
            problems=known.problems,
            instruction=options["instruction"],
            methods=methods,
            samples=options["samples"],
            temperature=options["temperature"],
            seed=options["seed"],
            concurrency=options["concurrency"],
            prices=prices,
        )
        with _source(where, asking, journal, pace, plan, without, options) as source:
            outcome = evaluate(plan, source, journal, pace, identity=setting["model"], say=say)
        write(folder, outcome, prices, setting)
    return Done(outcome=outcome, folder=folder, setting=setting, prices=prices)


@contextmanager
def _source(
    where: Where,
    asking: Asking,
    journal: Journal,
    pace: Pace,
    plan: Plan,
    without: frozenset[str],
    options: Mapping[str, Any],
) -> Iterator[Any]:
    """Make what draws traces, and refuse methods that need what it lacks; ends with the context."""
    if options["replay"]:
        yield ReplaySource()
    elif where.kind == KNOWN:
        with KnownTruth(where.place, plan.problems) as server:
            yield from _endpoint(server.url, "mock", asking, journal, pace, plan, without, options)
    elif where.kind == ENDPOINT:
        yield from _endpoint(where.place, where.name, asking, journal, pace, plan, without, options)
    else:
        check_needs(plan.methods, LOCAL_ABILITIES, plan.temperature, "the model")
        yield LocalSource(_network(where.place, options), asking, journal, pace, tags=_tags(options["tags"]))


def _endpoint(
    url: str,
    name: str,
    asking: Asking,
    journal: Journal,
    pace: Pace,
    plan: Plan,
    without: frozenset[str],
    options: Mapping[str, Any],
) -> Iterator[Any]:
    interface = options["interface"]
    client = ChatClient(
        url, interface=interface, timeout_s=_seconds(options["timeout"]), tags=_tags(options["tags"])
    )
    source = EndpointSource(
        client,
        name,
        asking,
        journal,
        pace,
        interface=interface,
        abilities=frozenset(),
        retries=options["retries"],
        concurrency=plan.concurrency,
        extra=options_of(options["extras"], "--extra"),
    )
    try:
        wanted = _wanted(plan.methods, plan.samples)
        found = find_abilities(source, journal, wanted, without, plan.samples)
        check_needs(plan.methods, found, plan.temperature, f"{name} at {client.url}")
        # Asked for where a method needs it alone: it makes answers of some servers slow.
        needed = {need for one in plan.methods for need in one.needs}
        source.abilities = found - ({"logprobs"} - needed)
        yield source
    finally:
        source.close()


def _wanted(methods: Sequence[Chosen], samples: int) -> frozenset[str]:
    needed = {need for one in methods for need in one.needs}
    drawing = ({"n"} if samples > 1 else set()) | set(WHOLE) if "samples" in needed else set()
    return frozenset({"seed"} | drawing | (needed - {"samples"}))


def _network(place: str, options: Mapping[str, Any]) -> Any:
    from paceline.families.reasoning.core.backends.pretrained import load_as  # noqa: PLC0415 - imports torch

    return load_as(place, options["dtype"], options["device"])


def _asked(options: Mapping[str, Any]) -> Asked:
    named = {
        "questions": options["question_fields"],
        "answers": options["answer_fields"],
        "choices": options["choice_fields"],
    }
    given = {name: value for name, value in named.items() if value}
    columns = Columns(**({"questions": QUESTIONS, "answers": ANSWERS} | given)) if given else None
    return Asked(
        source=options["problems"],
        columns=columns,
        kind=options["kind"],
        configuration=options["configuration"],
        split=options["split"],
        partial=options["partial"],
        count=options["count"],
        seed=options["seed"],
    )


def _asking(options: Mapping[str, Any]) -> Asking:
    system = options["system"]
    if system.startswith("@"):
        path = Path(system[1:])
        if not path.is_file():
            raise UserError("there is no such file", where=f"--system={system}", fix="--system='You are …'")
        system = path.read_text(encoding="utf-8").strip()
    return Asking(
        system=system,
        temperature=options["temperature"],
        max_tokens=options["max_tokens"],
        seed=options["seed"],
        stop=options["stops"],
        template_options=options_of(options["template_options"], "--template-option"),
    )


def _setting(options: Mapping[str, Any], where: Where, known: Problems, asking: Asking) -> dict[str, Any]:
    """Return what decides the model's answers: a journal of another setting is not gone on with."""
    return {
        "model": f"{where.name}@{where.place}" if where.kind == ENDPOINT else where.name,
        "interface": options["interface"] if where.kind != "transformers" else "chat",
        "problems": fingerprint(known.problems),
        "instruction": options["instruction"],
        "system": asking.system,
        "temperature": asking.temperature,
        "max_tokens": asking.max_tokens,
        "seed": asking.seed,
        "stop": list(asking.stop),
        "template_options": dict(asking.template_options),
        "extra": options_of(options["extras"], "--extra"),
        "tags": options["tags"],
        "dtype": options["dtype"] if where.kind == "transformers" else None,
    }


def _without(text: str) -> frozenset[str]:
    given = frozenset(filter(None, (part.strip() for part in text.split(","))))
    if given - set(ABILITIES):
        raise UserError(
            f"a server is not asked for {', '.join(sorted(given - set(ABILITIES)))}",
            where=f"--without={text}",
            expected=f"some of: {', '.join(ABILITIES)}",
            fix="--without=logprobs,n",
        )
    return given


def _refuse_fields(options: Mapping[str, Any]) -> None:
    """Refuse options of requests where none is sent.

    Raises:
        UserError: There is one.
    """
    given = {"--extra": options["extras"], "--without": options["without"]}
    given["--interface"] = options["interface"] != "chat"
    for option, value in given.items():
        if value:
            raise UserError(
                "it says how a server is asked, and a network in this process is none",
                where=option,
                expected="--model=openai:URL#NAME",
                fix=f"leave {option} out; its tokenizer says whether it is asked by chats",
            )


def _tags(text: str | None) -> tuple[str, str] | None:
    if text is None:
        return None
    begin, comma, end = text.partition(",")
    if not comma or not end:
        raise UserError(
            "two marks are needed",
            where=f"--thinking-tags={text}",
            expected="OPEN,CLOSE; or ,CLOSE where the chat template opens the thinking itself",
            fix="--thinking-tags='<think>,</think>'",
        )
    return begin, end


def _seconds(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise UserError(str(error), where=f"--timeout={text}", expected="a duration such as 10min") from error


def _say_left_out(known: Problems, say: Callable[[str], None]) -> None:
    if known.left_out:
        say(f"{number_of(len(known.left_out), 'row was', 'rows were')} left out:")
        for line in known.left_out[:20]:
            say(f"  {line}")
