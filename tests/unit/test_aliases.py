"""Names that were changed: old ones are read, and identities stay what they were."""

from __future__ import annotations

import itertools

import pytest

from paceline.base import aliases
from paceline.base.aliases import METRICS, PARAMETERS, SUITES, TECHNIQUES, VALUES, Renamed
from paceline.base.family import family_names, load_family
from paceline.records.names import named_today
from paceline.records.record import record_id, series_key
from paceline.spec import content

TABLES = [SUITES, METRICS, aliases.SUITE_KEYS, *TECHNIQUES.values(), *PARAMETERS.values(), *VALUES.values()]


@pytest.mark.parametrize("names", TABLES)
def test_a_name_is_changed_once_and_two_never_become_one(names: Renamed) -> None:
    assert not set(names.table) & set(names.table.values())
    assert len(set(names.table.values())) == len(names.table)


def test_no_old_name_stands_for_something_today() -> None:
    assert not set(SUITES.table) & set(content.suite_files())
    assert set(SUITES.table.values()) <= set(content.suite_files())
    for family, names in TECHNIQUES.items():
        assert not set(names.table) & set(content.techniques(family))
    metrics = {m.name for f in family_names() for m in load_family(f).metrics}
    assert not set(METRICS.table) & metrics
    assert set(METRICS.table.values()) <= metrics
    for family, names in PARAMETERS.items():
        known = {p.name for p in load_family(family).parameters}
        assert not set(names.table) & known
        assert set(names.table.values()) <= known


def test_a_record_of_an_older_version_is_read_by_the_names_of_today() -> None:
    measurement = {
        "line": "measurement",
        "family": "training",
        "suite": "training/bad-shards",
        "technique": "alone",
        "label": "alone",
    }
    assert named_today(measurement) == measurement | {
        "suite": "training/corrupted-data",
        "technique": "no-communication",
        "label": "no-communication",
    }
    side = {"metric": "latency", "technique": "alone", "versus": {"technique": "alone", "where": {}}}
    suite = {
        "suite": "training/drift",
        "family": "training",
        "why": "It matters.",
        "baseline": "alone",
        "claims": [{"id": "c", "why": "So.", "measure": side}],
        "tuning": {"suite": "training/disturbed", "metric": "latency", "untuned": {"alone": "nothing"}},
    }
    skipped = {"suite": "training/disturbed", "label": "alone", "params": {}, "reason": "so"}
    run = {
        "line": "run",
        "suites": [suite],
        "plan": {"skipped": [skipped]},
        "techniques": {"training/alone": {"file": "alone.py"}},
    }
    found = named_today(run)
    assert found["suites"][0]["suite"] == "training/gradient-consistency"
    assert found["suites"][0]["description"] == "It matters."
    assert found["suites"][0]["baseline"] == "no-communication"
    (claim,) = found["suites"][0]["claims"]
    assert claim["description"] == "So."
    assert claim["measure"]["technique"] == claim["measure"]["versus"]["technique"] == "no-communication"
    assert found["suites"][0]["tuning"] == {
        "suite": "training/stragglers-and-dropout",
        "metric": "latency",
        "untuned": {"no-communication": "nothing"},
    }
    assert found["plan"]["skipped"][0]["label"] == "no-communication"
    assert list(found["techniques"]) == ["training/no-communication"]
    assert named_today(found) == found


def test_what_is_no_record_is_left_to_the_check_of_records() -> None:
    for line in (
        {"line": "measurement", "family": 3},
        {"line": "run", "suites": [7], "plan": 1},
        {"line": "event"},
    ):
        assert named_today(line) == line


def test_identities_are_digests_over_first_names() -> None:
    for family, names in TECHNIQUES.items():
        for old, new in names.table.items():
            assert record_id(family, "r", "b", old, 0, "m") == record_id(family, "r", "b", new, 0, "m")
            assert series_key(family, "c", old, None, "d") == series_key(family, "c", new, None, "d")
    for one, other in itertools.combinations(("alone", "ddp", "diloco"), 2):
        assert record_id("training", "r", "b", one, 0, "m") != record_id("training", "r", "b", other, 0, "m")
