"""A suite's file, and all mistakes in it.

``load_suite`` reads a file against the grammar and adds every check that needs the family, the techniques or the
ledger, so that all mistakes of a file are reported at once, each with its place and the valid values.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from pydantic import ValidationError

from paceline.base.errors import UserError, UserErrors, expected_one_of
from paceline.base.families.family import MOST_HEADLINE, Parameter, load_family
from paceline.base.techniques.technique import TechniqueSource, valid_name
from paceline.spec import content
from paceline.spec.files.earlier_names import suite_named_today
from paceline.spec.files.kinds import refuse_other_kinds
from paceline.spec.files.models import validate
from paceline.spec.files.yaml_file import KeyPath, load
from paceline.spec.ledger.papers import load_papers
from paceline.spec.suites.described import described_errors
from paceline.spec.suites.grammar import (
    Claim,
    Protocol,
    RawScalar,
    SuiteModel,
    TechniqueEntry,
    Tier,
    Tuning,
    TuningInWords,
    Versus,
    merge_protocol,
)
from paceline.spec.suites.instances import instance_errors
from paceline.spec.suites.opponents import opponent_errors
from paceline.spec.suites.premise_checks import premise_errors
from paceline.spec.suites.quotes import quote_errors
from paceline.spec.suites.selections import selection_errors
from paceline.spec.suites.suite import Suite
from paceline.spec.suites.tuning import (
    SUITE_IN_WORDS,
    Choice,
    edge_errors,
    trial_errors,
    unstated_errors,
    workload_errors,
)

OF_ANY_FAMILY = ("calibration", "tour")
"""Suites below these names have any family: those that measure the harness itself, and those of `make bench`."""


def load_suite(
    path: Path,
    *,
    extra: Iterable[Path] = (),
    techniques: Callable[[str], Mapping[str, TechniqueSource]] | None = None,
) -> Suite:
    """Read and check a suite file.

    Args:
        path: The YAML file.
        extra: Python files with further techniques, given on the command line.
        techniques: Gives those of a family, where somebody has read them already.

    Raises:
        UserErrors: Everything that is wrong with the file, each with ``file:line:key`` and the valid values.
    """
    located = suite_named_today(load(path))
    refuse_other_kinds(located, "suite")
    model = validate(SuiteModel, located)
    if model.suite.count("/") != 1 or not valid_name(model.suite):
        raise UserError(
            f"'{model.suite}' is not a suite name",
            where=located.where(("suite",)),
            expected="family/name in lower-case letters, digits and '-' (names become file paths)",
        )
    try:
        family = load_family(model.family)
    except UserError as error:
        raise UserError(error.what, where=located.where(("family",)), expected=error.expected) from None
    suite = Suite(
        model=model,
        path=path,
        located=located,
        family=family,
        sources=dict(techniques(model.family))
        if techniques
        else content.techniques(model.family, extra=extra),
        papers=load_papers(),
    )
    errors = list(_errors(suite))
    if errors:
        raise UserErrors(errors)
    return suite


def _errors(suite: Suite) -> Iterator[UserError]:
    model, where = suite.model, suite.located.where
    if model.suite.split("/")[0] not in (model.family, *OF_ANY_FAMILY):
        yield UserError(
            f"the suite's name must begin with its family, '{model.family}/'",
            where=where(("suite",)),
        )
    yield from _parameter_errors(suite, ("workload",), {k: [v] for k, v in model.workload.items()})
    yield from _parameter_errors(suite, ("matrix",), model.matrix)
    for i, group in enumerate(model.zip):
        yield from _parameter_errors(suite, ("zip", i), group)
    for i, rule in enumerate(model.exclude):
        yield from _rule_errors(suite, ("exclude", i), rule)
    labels = yield from _technique_errors(suite, ("techniques",), model.techniques)
    if labels and model.baseline not in labels:
        yield UserError(
            f"the baseline '{model.baseline}' is not among the techniques",
            where=where(("baseline",)),
            expected=expected_one_of(model.baseline, labels),
        )
    for name in model.metrics:
        if not suite.family.has(name):
            yield UserError(
                f"the {model.family} family has no metric '{name}'",
                where=where(("metrics", name)),
                expected=expected_one_of(name, (m.name for m in suite.family.metrics)),
            )
    headline = [name for name, setting in model.metrics.items() if not setting.diagnostic]
    if model.metrics and not 1 <= len(headline) <= MOST_HEADLINE:
        yield UserError(
            f"the suite has {len(headline)} headline metrics",
            where=where(("metrics",)),
            expected=f"1 to {MOST_HEADLINE}, and diagnostic: true for the others",
        )
    for tier_name, tier in model.tiers.items():
        yield from _tier_errors(suite, tier_name, tier)
    yield from instance_errors(model, suite.family, suite.located)
    yield from _claim_errors(suite, list(dict.fromkeys(_labels(suite))))
    if labels:
        yield from described_errors(model, _choices(suite).values(), suite.located)
        yield from _tuning_errors(suite)


def _tuning_errors(suite: Suite) -> Iterator[UserError]:
    tuning = suite.model.tuning
    if tuning is None:
        yield from unstated_errors(suite.model.claims, suite.family.tuned_metrics, suite.located)
    if isinstance(tuning, TuningInWords):
        yield from _edges_in_words(suite, tuning.in_words)
    if not isinstance(tuning, Tuning):
        return
    where = suite.located.where(("tuning", "suite"))
    try:
        path = content.find_suite(tuning.suite)
    except UserError as error:
        yield UserError(error.what, where=where, expected=error.expected, fix="paceline list suites")
        return
    if tuning.suite == suite.name or isinstance(
        validate(SuiteModel, suite_named_today(load(path))).tuning, Tuning
    ):
        yield UserError(
            f"the trials of '{tuning.suite}' rest on trials themselves",
            where=where,
            expected="a suite that names no suite of trials",
        )
        return
    trials = load_suite(path)
    if tuning.metric not in trials.model.metrics:
        yield UserError(
            f"'{tuning.suite}' does not compare '{tuning.metric}'",
            where=suite.located.where(("tuning", "metric")),
            expected=expected_one_of(tuning.metric, trials.model.metrics),
        )
    yield from workload_errors(tuning, suite.model.workload, trials.model.workload, suite.located)
    yield from trial_errors(tuning, _choices(suite), [*_choices(trials).values()], suite.located)


def _edges_in_words(suite: Suite, words: str) -> Iterator[UserError]:
    """Yield what words leave out of trials in suites that they name; mistakes of those are told where they are read."""
    files = content.suite_files()
    for name in dict.fromkeys(SUITE_IN_WORDS.findall(words)):
        if name == suite.name or name not in files:
            continue
        model = validate(SuiteModel, suite_named_today(load(files[name])))
        if model.family == suite.model.family:
            trials = _choices(replace(suite, model=model))
            yield from edge_errors(words, _choices(suite), [*trials.values()], suite.located)


def _choices(suite: Suite) -> dict[KeyPath, Choice]:
    lists: list[tuple[KeyPath, list[str | TechniqueEntry]]] = [(("techniques",), suite.model.techniques)]
    lists += [
        (("tiers", n, "techniques"), t.techniques) for n, t in suite.model.tiers.items() if t.techniques
    ]
    found: dict[KeyPath, Choice] = {}
    for at, items in lists:
        for place, item in enumerate(items):
            try:
                (entry,) = suite.entries([item], suite.located.where((*at, place)))
            except UserErrors:
                continue  # told where techniques are checked
            info = entry.source.info
            found[*at, place] = Choice(
                technique=info.name, label=entry.label, options=entry.options, defaults=info.options
            )
    return found


def _parameter_errors(
    suite: Suite, at: tuple[str | int, ...], values: Mapping[str, list[RawScalar]]
) -> Iterator[UserError]:
    for key, items in values.items():
        parameter = suite.family.parameter(key)
        if parameter is None:
            yield _unknown_parameter(suite, (*at, key), key)
            continue
        if not items:
            yield UserError("the list is empty", where=suite.located.where((*at, key)))
        for i, item in enumerate(items):
            if item is None and "zip" in at:
                continue
            try:
                parameter.parse(item)
            except ValueError as error:
                place = (*at, key, i) if (*at, key, i) in suite.located.lines else (*at, key)
                yield UserError(str(error), where=suite.located.where(place), expected=_kind(parameter, item))


def _rule_errors(
    suite: Suite, at: tuple[str | int, ...], rule: Mapping[str, RawScalar]
) -> Iterator[UserError]:
    rest = {k: [v] for k, v in rule.items() if k != "technique"}
    yield from _parameter_errors(suite, at, rest)
    if "technique" in rule:
        labels = _labels(suite)
        if rule["technique"] not in labels:
            name = str(rule["technique"])
            yield UserError(
                f"the suite has no technique '{name}'",
                where=suite.located.where((*at, "technique")),
                expected=expected_one_of(name, labels),
            )


def _technique_errors(
    suite: Suite, at: tuple[str | int, ...], items: list[str | TechniqueEntry]
) -> Generator[UserError, None, list[str]]:
    labels: list[str] = []
    for i, item in enumerate(items):
        try:
            labels.append(suite.entries([item], suite.located.where((*at, i)), (*at, i))[0].label)
        except UserErrors as error:
            yield from error.errors
    for label in {x for x in labels if labels.count(x) > 1}:
        yield UserError(
            f"the technique '{label}' is listed twice",
            where=suite.located.where(at),
            expected="one entry, or another label with 'as:'",
        )
    return labels


def _tier_errors(suite: Suite, name: str, tier: Tier) -> Iterator[UserError]:
    at = ("tiers", name)
    yield from _parameter_errors(suite, (*at, "workload"), {k: [v] for k, v in tier.workload.items()})
    yield from _parameter_errors(suite, (*at, "matrix"), tier.matrix)
    for i, group in enumerate(tier.zip or []):
        yield from _parameter_errors(suite, (*at, "zip", i), group)
    for i, rule in enumerate(tier.exclude):
        yield from _rule_errors(suite, (*at, "exclude", i), rule)
    if tier.techniques is not None:
        labels = yield from _technique_errors(suite, (*at, "techniques"), tier.techniques)
        if labels and suite.model.baseline not in labels:
            yield UserError(
                f"the baseline '{suite.model.baseline}' is not among the tier's techniques",
                where=suite.located.where((*at, "techniques")),
            )
    try:
        merge_protocol(suite.model.protocol, tier)
    except ValidationError as error:
        problem = error.errors()[0]
        key = str(problem["loc"][0]) if problem["loc"] else ""
        unknown = problem["type"] == "extra_forbidden"
        yield UserError(
            f"unknown key '{key}'" if unknown else str(problem["msg"]).removeprefix("Value error, "),
            where=suite.located.where((*at, "protocol", *([key] if key else []))),
            expected=expected_one_of(key, Protocol.model_fields) if unknown else None,
        )


def _claim_errors(suite: Suite, labels: list[str]) -> Iterator[UserError]:
    seen: set[str] = set()
    for i, claim in enumerate(suite.model.claims):
        at: tuple[str | int, ...] = ("claims", i)
        if not valid_name(claim.id) or "/" in claim.id:
            yield UserError(
                f"'{claim.id}' is not a claim id",
                where=suite.located.where((*at, "id")),
                expected="lower-case letters, digits and '-'",
            )
        if claim.id in seen:
            yield UserError(
                f"the claim id '{claim.id}' is used twice", where=suite.located.where((*at, "id"))
            )
        seen.add(claim.id)
        if claim.paper is not None and claim.paper not in suite.papers:
            yield UserError(
                f"no paper '{claim.paper}' in the ledger",
                where=suite.located.where((*at, "paper")),
                expected=expected_one_of(claim.paper, suite.papers),
            )
        yield from _measure_errors(suite, (*at, "measure"), claim, labels)
    yield from premise_errors(suite.model, suite.family, labels, suite.located)
    yield from selection_errors(suite.model, suite.family, suite.located)
    yield from opponent_errors(suite.model, _papers_of(suite), suite.located)
    yield from quote_errors(suite.model, suite.papers, suite.located)


def _measure_errors(
    suite: Suite, at: tuple[str | int, ...], claim: Claim, labels: list[str]
) -> Iterator[UserError]:
    measure = claim.measure
    if not suite.family.has(measure.metric):
        yield UserError(
            f"the {suite.family.name} family has no metric '{measure.metric}'",
            where=suite.located.where((*at, "metric")),
            expected=expected_one_of(measure.metric, (m.name for m in suite.family.metrics)),
        )
    versus = Versus(technique=measure.versus) if isinstance(measure.versus, str) else measure.versus
    for name, key in (
        (measure.technique, "technique"),
        (versus and versus.technique, "versus"),
    ):
        if name and name not in labels:
            yield UserError(
                f"the suite has no technique '{name}'",
                where=suite.located.where((*at, key)),
                expected=expected_one_of(name, labels),
            )
    needs_other_side = not claim.expect.kind.startswith("value")
    if needs_other_side and versus is None:
        yield UserError(
            f"'{claim.expect.kind}' compares two sides",
            where=suite.located.where(at),
            expected="a 'versus' technique, or value_at_most / value_at_least",
        )
    yield from _parameter_errors(suite, (*at, "where"), {k: [v] for k, v in measure.where.items()})
    if versus is not None:
        yield from _parameter_errors(
            suite,
            (*at, "versus", "where"),
            {k: [v] for k, v in versus.where.items()},
        )


def _unknown_parameter(suite: Suite, at: tuple[str | int, ...], key: str) -> UserError:
    return UserError(
        f"the {suite.family.name} family has no parameter '{key}'",
        where=suite.located.where(at),
        expected=expected_one_of(key, (p.name for p in suite.family.parameters)),
    )


def _labels(suite: Suite) -> list[str]:
    return [(i if isinstance(i, str) else i.label or i.technique) for i in _items(suite)]


def _items(suite: Suite) -> list[str | TechniqueEntry]:
    items = list(suite.model.techniques)
    for tier in suite.model.tiers.values():
        items += tier.techniques or []
    return items


def _papers_of(suite: Suite) -> dict[str, str | None]:
    """Return the paper of each label's technique; None of those that have none, or that nobody knows."""
    found: dict[str, str | None] = {}
    for item, label in zip(_items(suite), _labels(suite), strict=True):
        source = suite.sources.get(item if isinstance(item, str) else item.technique)
        found[label] = source.info.paper if source is not None else None
    return found


def _kind(parameter: Parameter, given: RawScalar) -> str:
    examples = {
        "size": "a size such as 4KiB (or a whole number of bytes)",
        "count": "a whole number",
        "number": "a number",
        "flag": "true or false",
        "duration": "a duration such as 5ms",
        "rate": "a rate such as 100mbit",
        "text": "text",
        "choice": expected_one_of(str(given), parameter.choices),
    }
    return examples[parameter.kind]
