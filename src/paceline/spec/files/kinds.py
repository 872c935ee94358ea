"""What a YAML file is, by what it says and not by what it is called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paceline.base.errors import UserError, nearest
from paceline.spec.files.yaml_file import Located


@dataclass(frozen=True, slots=True, kw_only=True)
class FileKind:
    """One kind of file that people write."""

    key: str
    """The key that says that a file is of this kind, and names what it describes."""
    title: str
    use: str
    """The command that takes such a file; FILE stands for it."""
    keys: frozenset[str]
    """All keys at the top, or of an entry of a list."""


def _keys(text: str) -> frozenset[str]:
    return frozenset(text.split())


KINDS = (
    FileKind(
        key="suite",
        title="a suite",
        use="paceline run FILE",
        keys=_keys(
            "suite version family description workload baseline techniques matrix zip exclude tiers protocol metrics "
            "claims premises tuning"
        ),
    ),
    FileKind(
        key="runner",
        title="a runner profile",
        use="paceline run SUITE --runner FILE",
        keys=_keys(
            "runner description driver device backend max_ranks network links default_link env limits idle start "
            "scheduling isolation rules share_devices docker slurm hosts kubernetes fake"
        ),
    ),
    FileKind(
        key="nightly",
        title="a nightly file",
        use="paceline nightly --config FILE",
        keys=_keys(
            "nightly description measure budget wait idle retries quarantine alarm results site publish",
        ),
    ),
    FileKind(
        key="first_contact",
        title="a list for first contact",
        use="paceline first-contact --list FILE",
        keys=_keys("first_contact description runner steps"),
    ),
    FileKind(
        key="slug",
        title="a ledger of papers",
        use="paceline list papers",
        keys=_keys(
            "slug title family group tier method claim testable_claim baseline needs repo outside_reason headlines",
        ),
    ),
)
BY_KEY: Mapping[str, FileKind] = {kind.key: kind for kind in KINDS}


def kind_of(located: Located) -> FileKind | None:
    """Return what a file is, by the first key that says so, or None."""
    if isinstance(located.data, list):
        papers = any(isinstance(item, dict) and "slug" in item for item in located.data)
        return BY_KEY["slug"] if papers else None
    keys = [key for key in _top(located.data) if key in BY_KEY and key != "slug"]
    return BY_KEY[keys[0]] if keys else None


def recognise(located: Located) -> FileKind:
    """Return what a file is.

    Raises:
        UserError: None of the kinds; the nearest is named.
    """
    found = kind_of(located)
    if found is not None:
        return found
    keys = _top(located.data)
    close = _closest(keys)
    kinds = ", ".join(f"'{k.key}' ({k.title})" for k in KINDS if k.key != "slug")
    raise UserError(
        "the file is none of the kinds that Paceline reads"
        + (f": it begins with '{keys[0]}'" if keys else ""),
        where=located.where(()),
        expected=f"one of the keys {kinds}, or a list of entries with 'slug' (a ledger of papers)"
        + (f" — did you mean '{close.key}'?" if close else ""),
        fix=f"most of its keys are those of {close.title}: name it with {close.key}: NAME" if close else None,
    )


def refuse_other_kinds(located: Located, key: str) -> None:
    """Refuse a file that says that it is something else, with one error instead of one for each of its keys.

    Args:
        located: The file.
        key: Of the kind that is wanted.

    Raises:
        UserError: It is of another kind.
    """
    found = kind_of(located)
    if found is not None and found.key != key:
        raise UserError(
            f"this is {found.title}, not {BY_KEY[key].title}",
            where=located.where((found.key,)),
            expected=f"a file with the key '{key}'",
            fix=found.use.replace("FILE", str(located.path)),
        )


def _top(data: Any) -> list[str]:
    if isinstance(data, list):
        return list(dict.fromkeys(key for item in data if isinstance(item, dict) for key in item))
    return list(data) if isinstance(data, dict) else []


def _closest(keys: list[str]) -> FileKind | None:
    """Return the kind that shares most keys, else the one whose own key looks most like one of them."""
    shared = {kind.key: len(kind.keys & set(keys)) for kind in KINDS}
    best = max(shared, key=lambda key: shared[key])
    if shared[best] and list(shared.values()).count(shared[best]) == 1:
        return BY_KEY[best]
    similar = [match for key in keys if (match := nearest(key, BY_KEY))]
    return BY_KEY[similar[0]] if similar else None
