"""Suites: what is measured, as it was read from ``suites/<family>/<name>.yaml`` (``suite_file``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from paceline.base.errors import UserError, UserErrors, expected_one_of
from paceline.base.families.family import Family, Scalar
from paceline.base.techniques.declarations import Place, accepts, described
from paceline.base.techniques.technique import TechniqueSource, valid_name
from paceline.spec.files.yaml_file import KeyPath, Located
from paceline.spec.ledger.papers import Paper
from paceline.spec.suites.grammar import (
    SuiteModel,
    TechniqueEntry,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A technique as a suite uses it: what runs, under which label, with which options."""

    source: TechniqueSource
    label: str
    options: Mapping[str, Scalar]


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """A checked suite file together with its family and techniques."""

    model: SuiteModel
    path: Path
    located: Located
    family: Family
    sources: Mapping[str, TechniqueSource]
    papers: Mapping[str, Paper]
    code_folder: Path | None = None
    """Where a user's own code lies that points name; None: beside the file."""

    @property
    def name(self) -> str:
        """``family/name``."""
        return self.model.suite

    def entries(
        self, given: Iterable[str | TechniqueEntry], where: str, at: KeyPath | None = None
    ) -> list[Entry]:
        """Resolve technique entries to sources and complete options.

        Args:
            given: The entries.
            where: Their place.
            at: Key of the one entry, so that an option's own line is named.

        Raises:
            UserErrors: Unknown techniques, labels used twice, options that are unknown or of another type.
        """
        errors: list[UserError] = []
        entries: list[Entry] = []
        for item in given:
            try:
                entry = _entry(
                    item,
                    self.sources,
                    where,
                    lambda key: self.located.where((*at, "options", key)) if at else where,
                )
                if any(e.label == entry.label for e in entries):
                    raise UserError(
                        f"the technique '{entry.label}' is listed twice",
                        where=where,
                        expected="one entry, or another label with 'as:'",
                    )
                entries.append(entry)
            except UserError as error:
                errors.append(error)
        if errors:
            raise UserErrors(errors)
        return entries


def _entry(
    item: str | TechniqueEntry, sources: Mapping[str, TechniqueSource], where: str, option_at: Place
) -> Entry:
    entry = TechniqueEntry(technique=item) if isinstance(item, str) else item
    source = sources.get(entry.technique)
    if source is None:
        raise UserError(
            f"unknown technique '{entry.technique}'",
            where=where,
            expected=expected_one_of(entry.technique, sources),
            fix="paceline list techniques",
        )
    options = dict(source.info.options)
    for key, value in entry.options.items():
        if key not in options:
            raise UserError(
                f"the technique '{entry.technique}' has no option '{key}'",
                where=option_at(key),
                expected=expected_one_of(key, options),
            )
        annotation = source.options[key].annotation
        if not accepts(value, annotation):
            raise UserError(
                f"the option '{key}' of '{entry.technique}' cannot be {value!r}",
                where=option_at(key),
                expected=described(annotation, value),
            )
        options[key] = value
    label = entry.label or entry.technique
    if not valid_name(label):
        raise UserError(f"'{label}' is not a label", where=where, expected="lower-case letters, digits, '-'")
    return Entry(source=source, label=label, options=options)
