"""Techniques of a user's own files, given on the command line, in suites that do not name them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from paceline.spec.grammar import Tuning
from paceline.spec.suite import Suite


def with_user_techniques(suite: Suite, files: Iterable[Path]) -> Suite:
    """Return the suite with the techniques of a user's files in every list of techniques."""
    paths = {p.resolve() for p in files}
    names = [n for n, s in suite.sources.items() if s.path in paths]
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
