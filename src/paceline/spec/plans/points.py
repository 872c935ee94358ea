"""The points of a suite: every combination of its parameters, resolved, and which of them a rule or a filter means."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

from paceline.base.errors import UserError, expected_one_of
from paceline.base.families.family import Parameter, Scalar
from paceline.spec.own.code import place_of, with_code
from paceline.spec.profiles.profile import RunnerProfile
from paceline.spec.suites.grammar import RawScalar, Tier
from paceline.spec.suites.suite import Suite


def points_in(suite: Suite, tier: Tier | None, runner: RunnerProfile) -> Iterator[dict[str, Scalar]]:
    """Yield every resolved point: workload, matrix and zipped lists, with defaults filled in."""
    model = suite.model
    workload: dict[str, RawScalar] = {**model.workload, **(tier.workload if tier else {})}
    matrix = {**model.matrix, **(tier.matrix if tier else {})}
    zips = tier.zip if tier and tier.zip is not None else model.zip
    axes: list[list[dict[str, RawScalar]]] = [[{k: v} for v in values] for k, values in matrix.items()]
    for group in zips:
        length = len(next(iter(group.values()), []))
        axes.append([{k: values[i] for k, values in group.items()} for i in range(length)])
    for combination in itertools.product(*axes):
        raw = dict(workload)
        for part in combination:
            raw.update(part)
        raw = {key: value for key, value in raw.items() if value is not None}
        yield _resolve(suite, raw, runner)


def _resolve(suite: Suite, raw: Mapping[str, RawScalar], runner: RunnerProfile) -> dict[str, Scalar]:
    family = suite.family
    operation = str(raw.get(family.operation_key, ""))
    params: dict[str, Scalar] = {}
    relevant = family.parameters_for(operation)
    for parameter in relevant:
        if parameter.name in raw:
            params[parameter.name] = parameter.parse(raw[parameter.name])
        elif parameter.required:
            raise UserError(
                f"the {family.name} family needs '{parameter.name}' for {family.operation_key} {operation}",
                where=suite.located.where(("workload",)),
                expected=parameter.doc,
            )
        else:
            params[parameter.name] = parameter.default
    _refuse_strangers(suite, raw, relevant, operation)
    if "link" in params and params["link"] is None:
        params["link"] = runner.model.default_link
    try:
        whole = dict(family.completed(params, raw.keys()))
    except UserError as error:
        place = place_of(suite, error.where or "")
        raise UserError(error.what, where=place, expected=error.expected, fix=error.fix) from error
    return with_code(suite, whole)


def _refuse_strangers(
    suite: Suite, raw: Mapping[str, RawScalar], relevant: Sequence[Parameter], operation: str
) -> None:
    names = {p.name for p in relevant}
    for key in raw:
        if key not in names:
            section = "matrix" if key in suite.model.matrix else "workload"
            raise UserError(
                f"'{key}' has no meaning for {suite.family.operation_key} {operation}",
                where=suite.located.where((section, key)),
                expected=expected_one_of(key, names),
            )


def excluded(rule: Mapping[str, RawScalar], params: Mapping[str, Scalar], label: str, suite: Suite) -> bool:
    """Say whether a rule of a suite leaves a technique out of a point."""
    for key, value in rule.items():
        if key == "technique":
            if value != label:
                return False
            continue
        parameter = suite.family.parameter(key)
        assert parameter is not None
        if key not in params or params[key] != parameter.parse(value):
            return False
    return True


def matches(params: Mapping[str, Scalar], suite: Suite, filters: Sequence[tuple[str, str]]) -> bool:
    """Say whether a point fits filters: one value of every key."""
    fits: dict[str, bool] = {}
    for key, text in filters:
        fits[key] = fits.get(key, False) or _fits(params, suite, key, text)
    return all(fits.values())


def _fits(params: Mapping[str, Scalar], suite: Suite, key: str, text: str) -> bool:
    if key == "suite":
        return text == suite.name
    return key in params and same_value(suite.family.parameter(key), params[key], text)


def same_value(parameter: Parameter | None, value: Scalar, text: str) -> bool:
    """Say whether a text means a parameter's value, as a suite's author may write it or as it is shown."""
    if str(value) == text:
        return True
    for read in (str, int, float, {"true": True, "false": False}.__getitem__):
        try:
            if parameter is not None and parameter.parse(read(text)) == value:
                return True
        except (KeyError, ValueError):
            continue
    return False
