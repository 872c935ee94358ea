"""Claims that hold on the published runs: which other arms of their suites would fulfil them too, and why that may be.

An arm that does as well in the technique's place belongs into the claim's ``null_arm``, or here with a reason.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import pytest

from paceline.analysis.claims.costs import speaks_for_other
from paceline.analysis.claims.points import Sides
from paceline.analysis.claims.results import ClaimResult, evaluate, with_own_suites
from paceline.base.families.family import Family, load_family
from paceline.records.origin.provenance import suite_facts
from paceline.records.store.folder import RunRecord
from paceline.spec import content
from paceline.spec.suites.suite import Suite
from paceline.spec.suites.suite_file import load_suite
from paceline.workflows.stores import load_stores

HOLDING = ("reproduced", "consistent with a model")
WAITS_FOR_NOBODY = "the claim is about synchronous rounds, for which all wait; it waits for nobody either"
NO_TURNS = "it keeps alike requests together, too, and gives nobody a turn, which dlpm-gap-is-bounded asks"
FAIR_AND_BLIND = "it is fair without looking at prefixes, of which dlpm-locality and dlpm-throughput ask"
ON_ONE_SERVER = "on one server it is dlpm"
OF_ITS_OWN = "it works in parallel by a method of its own, with a claim and a paper of its own"
WITHIN_FIVE = "it exchanges, too, and loses less than five times what is allowed; each has a claim of its own"
EXACT = "it averages whole gradients, as the opponent does"
EXCHANGES_ALWAYS = "it exchanges all the time, for the bytes that one merge saves"
OF_THE_DATA = "the claim is about what is seen of data that differ, whoever trains on them"
KNOWN: Mapping[tuple[str, str], str] = {
    (
        "fewer-bits-than-everybody",
        "fedavg-of-8",
    ): "it samples as few, with a server, which decentralised learning is without",
    ("fedfix-sooner-than-synchronous", "async-fedavg"): WAITS_FOR_NOBODY,
    ("fedfix-sooner-than-synchronous", "fedasync"): WAITS_FOR_NOBODY,
    ("fedfix-sooner-than-synchronous", "fedcompass"): WAITS_FOR_NOBODY,
    ("fedcompass-leaves-few-idle", "async-fedavg"): WAITS_FOR_NOBODY,
    ("fedcompass-leaves-few-idle", "fedasync"): WAITS_FOR_NOBODY,
    ("dlpm-throughput-in-virtual-time", "cache-aware-router"): NO_TURNS,
    ("dlpm-throughput-in-virtual-time", "lpm"): NO_TURNS,
    ("dlpm-throughput-in-virtual-time", "d2lpm"): ON_ONE_SERVER,
    ("dlpm-gap-against-lpm", "d2lpm"): ON_ONE_SERVER,
    ("dlpm-locality-in-virtual-time", "d2lpm"): "it is the same paper's, for several servers",
    ("dlpm-locality-in-virtual-time", "cache-aware-router"): NO_TURNS,
    ("dlpm-gap-against-lpm", "vtc"): FAIR_AND_BLIND,
    ("dlpm-fairness", "vtc"): FAIR_AND_BLIND,
    ("merged-parts-shorten-the-chain", "hogwild"): OF_ITS_OWN,
    ("merged-parts-shorten-the-chain", "thread-weaver"): OF_ITS_OWN,
    ("threads-shorten-the-chain", "hogwild"): OF_ITS_OWN,
    ("threads-shorten-the-chain", "multiverse"): OF_ITS_OWN,
    ("threads-shorten-the-chain-on-average", "hogwild"): OF_ITS_OWN,
    ("threads-shorten-the-chain-on-average", "multiverse"): OF_ITS_OWN,
    ("one-bit-adam-loss-where-data-differ", "ddp"): EXACT,
    **{
        ("one-bit-adam-loss-where-data-differ", label): WITHIN_FIVE
        for label in (
            *("co2", "delayed-diloco", "demo", "diloco", "eager-updates", "edit"),
            *("intellect-1", "local-sgd", "noloco", "powersgd", "sparseloco", "streaming-diloco"),
        )
    },
    (
        "sooner-than-an-all-gather",
        "scan-ring",
    ): "pipelined-scan is held against it",
    (
        "speculation-loses-where-drafters-are-bad",
        "distributed-speculative-inference",
    ): "it loses nowhere, which is its claim",
    ("the-merge-is-worth-it", "ddp-ring"): EXCHANGES_ALWAYS,
    ("the-merge-is-worth-it", "local-sgd"): EXCHANGES_ALWAYS,
    (
        "as-fast-as-federated-averaging",
        "d-psgd",
    ): "gossip of all is as fast, for the bits that fewer-bits-than-everybody counts",
    ("losses-disperse", "ddp-ring"): OF_THE_DATA,
    ("losses-disperse-half", "ddp-ring"): OF_THE_DATA,
}
"""By claim and label: what is known to do as well, and why the claim says something all the same."""


def rivals_of(
    facts: Sequence[Mapping[str, Any]], arms: Mapping[str, Mapping[str, str]], records: Sequence[RunRecord]
) -> set[tuple[str, str]]:
    """Return claims that hold with the labels of other techniques that may do as well in their technique's place.

    Args:
        facts: Of suites.
        arms: By suite and label the technique.
        records: What was measured.
    """
    held = {(r.suite, r.claim_id) for r in evaluate(records, facts) if r.verdict in HOLDING}
    asked = [{**f, "claims": list(_asked_of(f, arms[f["suite"]], held))} for f in facts if f["suite"] in arms]
    return {_named(r) for r in evaluate(records, asked) if r.verdict == "says nothing" and _measured(r)}


def _asked_of(
    facts: Mapping[str, Any], arms: Mapping[str, str], held: Collection[tuple[str, str]]
) -> Iterator[Mapping[str, Any]]:
    for claim in facts["claims"]:
        if (facts["suite"], claim["id"]) in held:
            yield from _asked(claim, arms, load_family(facts["family"]))


def _asked(claim: Mapping[str, Any], arms: Mapping[str, str], family: Family) -> Iterator[Mapping[str, Any]]:
    """Yield a claim once for each arm of another technique, in the place of the side that the claim speaks for."""
    sides = Sides.of(claim)
    gains, loses, side = sides.technique, sides.other, "technique"
    if sides.other is not None and speaks_for_other(sides, claim["expect"], family):
        gains, loses, side = sides.other, sides.technique, "versus"
    for label, technique in arms.items():
        if label != loses and technique != arms.get(gains):
            null = {"technique": None, "versus": None, side: label}
            yield {**claim, "id": f"{claim['id']} {label}", "null_arm": null}


def _measured(result: ClaimResult) -> bool:
    return result.null is not None and result.null.estimate is not None


def _named(result: ClaimResult) -> tuple[str, str]:
    claim, _, label = result.claim_id.partition(" ")
    return claim, label


@pytest.fixture(scope="module")
def suites() -> list[Suite]:
    return [load_suite(path) for path in content.suite_files().values()]


@pytest.fixture(scope="module")
def arms(suites: list[Suite]) -> dict[str, dict[str, str]]:
    return {
        s.name: {e.label: e.source.info.name for e in s.entries(s.model.techniques, s.name)} for s in suites
    }


@pytest.fixture(scope="module")
def records() -> list[RunRecord]:
    return load_stores(content.shipped_root() / "results" / "published").records


@pytest.fixture(scope="module")
def found(
    suites: list[Suite], arms: dict[str, dict[str, str]], records: list[RunRecord]
) -> set[tuple[str, str]]:
    return rivals_of(with_own_suites(suite_facts(suites), records), arms, records)


def test_no_other_arm_does_as_well_as_a_technique_whose_claim_holds(found: set[tuple[str, str]]) -> None:
    assert sorted(found - set(KNOWN)) == []


def test_what_is_known_to_do_as_well_does(found: set[tuple[str, str]]) -> None:
    assert sorted(set(KNOWN) - found) == []


def test_an_arm_that_a_claim_keeps_silent_about_is_found(
    suites: list[Suite], arms: dict[str, dict[str, str]], records: list[RunRecord]
) -> None:
    (suite,) = [s for s in suites if s.name == "training/compressed-gradients"]
    (facts,) = suite_facts([suite])
    silent = {**facts, "claims": [{**c, "null_arm": None} for c in facts["claims"]]}
    assert ("fewer-bits-than-ef21", "error-feedback") in rivals_of([silent], arms, records)
