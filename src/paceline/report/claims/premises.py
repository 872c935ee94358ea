"""Premises in words: whose number a claim expects, at which scales it was measured, and what would settle it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from paceline.analysis.claims.points import Premised
from paceline.analysis.claims.results import UNMET, ClaimResult, Whose
from paceline.base.counting import number_of
from paceline.report.tables.results import format_param
from paceline.report.words.bounds import with_ends, written
from paceline.report.words.estimates import ABSENT
from paceline.spec.ledger.premises import SettledBy

WHOSE: Mapping[Whose, str] = {
    "paper": "the paper's own",
    "ours": "our testable form",
    "suite": "bound of the suite",
}
SETTLES: Mapping[SettledBy, str] = {
    "gpu": "needs GPU",
    "parameters": "needs ≥ N parameters",
    "time": "needs more time",
    "setting": "needs another setting",
}
"""What would settle a claim, as lists are chosen by."""
SCALE = (
    *("size", "model", "partner", "checkpoint", "served", "ranks", "devices", "servers", "link", "steps"),
    *("batch", "context", "questions", "samples", "requests", "tokens", "hidden"),
)
"""Parameters that tell how large a measurement was, in the order in which they are written."""
MOST_IN_SCALE = 5
DIGITS = 3


def said_text(claim: ClaimResult) -> str:
    """Return the paper's number with its place and scale, and against whom, as the suite quotes it."""
    if not claim.said:
        return ABSENT
    place = "; ".join(text for key in ("place", "scale") if (text := claim.said.get(key)))
    return "".join((f"{claim.said['number']} ({place})", against_text(claim)))


def against_text(claim: ClaimResult) -> str:
    """Say whom the paper beats, and why another arm stands in its place here, such as ``, against Adam``."""
    against = claim.against
    if not against:
        return ""
    here = f"; here another: {against['because']}" if against.get("because") else ""
    return f", against {against['paper']}{here}"


def scale_text(claim: ClaimResult) -> str:
    """Return the scale at which we measured: what the point that decided says of size, ranks and length."""
    params = next((p for p, estimate in claim.points if estimate is claim.worst), {})
    known = [key for key in SCALE if params.get(key) is not None][:MOST_IN_SCALE]
    return ", ".join(f"{key} {format_param(key, params[key])}" for key in known)


def premise_text(premise: Premised) -> str:
    """Say a premise, what was asked, and what was found; of one that is not met, by how much."""
    if premise.found is None:
        return f"{premise.says}: {premise.asked}; the run does not tell it"
    found = with_ends(premise.found, () if premise.bound is None else (premise.bound,))
    short = "" if premise.met or premise.bound is None else _short(premise.found.value, premise.bound)
    return f"{premise.says}: {premise.asked}, found {found}{short}"


def _short(value: float, bound: float) -> str:
    if value == bound:
        return ""
    return f", {written(abs(value - bound), DIGITS)} {'below' if value < bound else 'above'}"


def premises_text(claim: ClaimResult) -> str:
    """Return all premises of a claim where it was measured, those that are not met first."""
    return "; ".join(
        f"{name}: {premise_text(premise)}"
        for met, name in ((False, "not met"), (True, "met"))
        for premise in claim.premises
        if premise.met is met
    )


def remarks_text(claim: ClaimResult) -> str:
    """Return why a claim has its verdict, without the premises, which stand beside it in full."""
    unmet = "; ".join(f"{UNMET}{premise.says}" for premise in claim.premises if not premise.met)
    return (claim.reason or "").removeprefix(unmet).removeprefix("; ") if unmet else claim.reason or ""


def settled_text(claim: ClaimResult) -> str:
    """Return what would settle a claim: of each kind once, and the commands."""
    unmet = [p for p in claim.premises if not p.met]
    kinds = [_kind_text(kind, unmet) for kind in claim.settled_by]
    commands = dict.fromkeys(_command_text(p) for p in unmet if p.command or p.machine)
    return "; ".join([*kinds, *commands])


def _command_text(premise: Premised) -> str:
    command = f"`{premise.command}`" if premise.command else ""
    machine = f" ({premise.machine})" if premise.machine and command else premise.machine
    return f"{command}{machine}"


def _kind_text(kind: SettledBy, unmet: Iterable[Premised]) -> str:
    bound = next((p.bound for p in unmet if p.settled_by == kind and "parameters" in p.asked), None)
    if kind == "parameters" and bound is not None:
        return f"needs ≥ {number_of(bound, 'parameter', form='.3g')}"
    return "needs a larger model" if kind == "parameters" else SETTLES[kind]
