"""Techniques of a user's own files, given on the command line, in suites that do not name them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from paceline.base.errors import UserError, UserErrors
from paceline.base.families.family import load_family
from paceline.base.techniques.technique import TechniqueSource, read_source
from paceline.spec import content
from paceline.spec.files.models import validate
from paceline.spec.files.yaml_file import load
from paceline.spec.suites.grammar import SuiteModel, Tuning
from paceline.spec.suites.suite import Suite
from paceline.spec.techniques.rules import technique_errors

MAX_SHOWN = 12


def join_user_techniques(
    suites: Sequence[Suite], files: Sequence[Path]
) -> tuple[list[Suite], list[UserError]]:
    """Return the suites with the techniques that each is fit for, and what fits none of them though its file does.

    Raises:
        UserError: A file declares nothing, something that no family knows, or only what fits none of the suites.
    """
    strangers: list[UserError] = []
    for path in files:
        sources = declared(path)
        lost = [s for s in sources if not any(fits(s, suite) for suite in suites)]
        found = [_stranger(source, path) for source in lost]
        if len(lost) == len(sources):
            raise found[0] if len(found) == 1 else UserErrors(found)
        strangers += found
    return [with_user_techniques(s, files) for s in suites], strangers


def declared(path: Path) -> list[TechniqueSource]:
    """Return the techniques of a file.

    Raises:
        UserError: It declares none, or one of a family or for an operation that does not exist, or one that promises or
            requires what its operations do not know.
    """
    sources = read_source(path.resolve(), module=f"user:{path.stem}")
    if not sources:
        raise UserError(
            "the file declares no technique",
            where=str(path),
            expected="a class or function under @technique(...), at the top level of the file",
            fix="paceline new technique NAME writes one",
        )
    errors = [error for source in sources for error in technique_errors(source, path)]
    if errors:
        raise UserErrors(errors) if len(errors) > 1 else errors[0]
    return sources


def fits(source: TechniqueSource, suite: Suite) -> bool:
    """Tell whether a suite has an operation that a technique implements."""
    return source.info.family == suite.family.name and bool(
        _operations_of(suite.model, suite.family.operation_key) & set(source.info.implements)
    )


def _operations_of(model: SuiteModel, key: str) -> set[str]:
    lists = [model.matrix, *model.zip]
    fixed = [model.workload]
    for tier in model.tiers.values():
        lists += [tier.matrix, *(tier.zip or [])]
        fixed.append(tier.workload)
    values = [v for group in lists for v in group.get(key, [])] + [f[key] for f in fixed if key in f]
    return {str(value) for value in values}


def _stranger(source: TechniqueSource, path: Path) -> UserError:
    """Say that a technique fits none of the suites, and which it would fit."""
    info = source.info
    others = suites_for(source)
    shown = ", ".join(others[:MAX_SHOWN]) + (" …" if len(others) > MAX_SHOWN else "")
    return UserError(
        f"'{info.name}' implements {', '.join(info.implements)} of {info.family}, which none of the suites measures",
        where=f"{path}:{source.line}",
        expected=f"a suite that does: {shown}" if others else "a suite of your own that does",
        fix=f"paceline run {others[0]} --technique {path}"
        if others
        else f"paceline new suite {info.family}/NAME",
    )


def suites_for(source: TechniqueSource) -> list[str]:
    """Return the known suites that measure what a technique implements, those that are named like it first."""
    key = load_family(source.info.family).operation_key
    found = []
    for name, path in content.suite_files().items():
        if name.startswith(f"{source.info.family}/"):
            model = validate(SuiteModel, load(path))
            if _operations_of(model, key) & set(source.info.implements):
                found.append(name)
    like = {f"{source.info.family}/{operation.replace('_', '-')}" for operation in source.info.implements}
    return sorted(found, key=lambda name: name not in like)


def with_user_techniques(suite: Suite, files: Iterable[Path]) -> Suite:
    """Return the suite with those techniques of a user's files that it is fit for in every list of techniques."""
    paths = {p.resolve() for p in files}
    names = [n for n, s in suite.sources.items() if s.path in paths and fits(s, suite)]
    listed = [t if isinstance(t, str) else t.technique for t in suite.model.techniques]
    added = [n for n in names if n not in listed]
    tiers = {
        name: tier.model_copy(update={"techniques": [*tier.techniques, *added]}) if tier.techniques else tier
        for name, tier in suite.model.tiers.items()
    }
    update: dict[str, object] = {"techniques": [*suite.model.techniques, *added], "tiers": tiers}
    tuning = suite.model.tuning
    if isinstance(tuning, Tuning):
        untuned = tuning.untuned | dict.fromkeys(added, "given on the command line")
        update["tuning"] = tuning.model_copy(update={"untuned": untuned})
    return replace(suite, model=suite.model.model_copy(update=update))
