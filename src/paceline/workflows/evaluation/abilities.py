"""What a server can do, found out by requests of one token before any question is sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paceline.base.errors import UserError
from paceline.workflows.evaluation.journal import Journal
from paceline.workflows.evaluation.sources import LOGPROBS, WHOLE, CallFailedError, EndpointSource

ABILITIES = ("logprobs", "n", "seed", "continuation", *WHOLE)
FACT = "abilities"
BEHIND = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hello, I"}]
NOT_THE_FIELDS = (401, 403, 404)
"""Statuses that no field of a request has brought about."""


def find_abilities(
    source: EndpointSource, journal: Journal, wanted: frozenset[str], without: frozenset[str], samples: int
) -> frozenset[str]:
    """Return which of the wanted abilities a server has, and leave them in the source; asked once an evaluation.

    Args:
        source: Of the server.
        journal: Keeps what was found, for later runs: of ``n`` for how many texts, of others whether they are there.
        wanted: What methods need, or what saves tokens.
        without: What the server is said to lack, and is not asked for.
        samples: Texts that one request should give. Servers have a most, as llama.cpp its slots.

    Raises:
        UserError: The server refuses a plain request.
    """
    known: dict[str, int] = dict(journal.facts.get(FACT, {}))
    too_few = {"n"} if 0 < known.get("n", 0) < samples else set()
    new = wanted - without - (set(known) - too_few)
    if new or FACT not in journal.facts:
        known |= _asked(source, new, samples)
        # By name: what a later run wants beyond this is asked for then.
        journal.replace_fact(FACT, known)
    source.abilities = frozenset(name for name, has in known.items() if has) - without
    return source.abilities


def _asked(source: EndpointSource, wanted: frozenset[str], samples: int) -> dict[str, int]:
    fields = {name: one for name, one in _fields(source.interface, samples).items() if name in wanted}
    found = _together(source, fields)
    if found is None:
        found = _plain(source)
        for name, one in fields.items():
            found[name] = (_together(source, {name: one}) or {}).get(name, 0)
    if "continuation" in wanted:
        source.abilities = frozenset(name for name, has in found.items() if has)
        found["continuation"] = int(_continues(source))
    return found


def _fields(interface: str, samples: int) -> dict[str, dict[str, Any]]:
    """Return, by ability, the fields of a request that ask for it."""
    whole = {name: {name: value} for name, value in WHOLE.items()}
    return {"n": {"n": samples}, "logprobs": dict(LOGPROBS[interface]), "seed": {"seed": 1}, **whole}


def _together(source: EndpointSource, fields: Mapping[str, Mapping[str, Any]]) -> dict[str, int] | None:
    """Ask with all fields at once; None where that is refused."""
    body = {key: value for one in fields.values() for key, value in one.items()}
    try:
        answer = source.hello(body)
    except CallFailedError as error:
        if not fields or error.status is None or error.status in NOT_THE_FIELDS:
            raise _unusable(source, error) from None
        # Of a status of 500 too: servers break at a field that their model has no answer to.
        return None
    # What is taken no notice of is not there.
    count = len(answer.choices)
    has = {"n": count if count >= fields.get("n", {"n": 2})["n"] else 0}
    has["logprobs"] = int(bool(answer.choices[0].logprobs))
    return {name: has.get(name, 1) for name in fields}


def _plain(source: EndpointSource) -> dict[str, int]:
    """Ask with nothing beside, so that a refusal is known for one of the request and not of its fields."""
    try:
        source.hello({})
    except CallFailedError as error:
        if "max_completion_tokens" not in str(error):
            raise _unusable(source, error) from None
        source.abilities = frozenset({"max_completion_tokens"})
        try:
            source.hello({})
        except CallFailedError as second:
            raise _unusable(source, second) from None
        return {"max_completion_tokens": 1}
    return {}


def _continues(source: EndpointSource) -> bool:
    """Tell whether an answer goes on behind its own text: then nothing of a template stands behind that."""
    if source.interface == "completions":
        return True
    try:
        whole = source.hello({"messages": BEHIND})
        open_ended = source.hello(
            {"messages": BEHIND, "continue_final_message": True, "add_generation_prompt": False}
        )
    except CallFailedError:
        return False
    return open_ended.prompt_tokens < whole.prompt_tokens


def _unusable(source: EndpointSource, error: CallFailedError) -> UserError:
    interface = source.interface
    other = "completions" if interface == "chat" else "chat"
    fixes = {
        None: "start the server, or check the address",
        401: "set OPENAI_API_KEY to a key of this server",
        403: "set OPENAI_API_KEY to a key that may use the model",
        404: f"check the address (it ends in /v1 mostly) and the model's name; a server without this path: "
        f"--interface={other}",
    }
    template = interface == "chat" and "template" in str(error)
    if source.extra and error.status not in (None, *NOT_THE_FIELDS):
        # Every request has them, so that the plain one may be refused for them alone.
        names = ", ".join(source.extra)
        fixes[error.status] = f"see what the server says of {names}, which --extra puts into every request"
    return UserError(
        f"a plain request is refused: {error}",
        where="--model",
        expected=f"a server that answers at {'/chat/completions' if interface == 'chat' else '/completions'} "
        "and counts tokens in 'usage'",
        fix="--interface=completions: the model has no chat template"
        if template
        else fixes.get(error.status, f"see what the server says; --interface={other} asks in the other way"),
    )
