"""Suite files: every mistake is found, at its line and key, with what would have been accepted."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import suite_text
import yaml

from paceline.base.errors import UserError
from paceline.spec import content
from paceline.spec.suites.grammar import Protocol, Tier, merge_protocol, suite_schema
from paceline.spec.suites.suite_file import load_suite

SIZES = "B, kB, KB, MB, GB, TB, KiB, MiB, GiB, TiB"

MISTAKES = [
    # text, replaced by, line and key, what is said, nearest match
    ("version: 1\n", "version: 1\nverison: 2\n", "3:verison", "unknown key 'verison'", "version"),
    ("matrix:\n", "matirx:\n", "10:matirx", "unknown key 'matirx'", "matrix"),
    ("margin:", "margn:", "22:metrics.latency.margn", "unknown key 'margn'", "margin"),
    ("launches: 5", "lanches: 5", "20:protocol.lanches", "unknown key 'lanches'", "launches"),
    ("launches: 2", "lanches: 2", "19:tiers.quick.protocol.lanches", "unknown key 'lanches'", "launches"),
    ("  - ring\n", "  - {technique: ring, option: {}}\n", "9:techniques.1.option", "unknown key", "options"),
    (
        "versus: native",
        "versus: {techniqe: a}",
        "27:claims.0.measure.versus.techniqe",
        "unknown",
        "technique",
    ),
    ("    quote:", "    qoute:", "26:claims.0.qoute", "unknown key 'qoute'", "quote"),
    ("  quick:", "  quik:", "17:tiers.quik", "'quik' is not valid", "quick"),
    ("4KiB", "4KB5", "11:matrix.size_bytes.0", f"is not a size; write a number and one of: {SIZES}", None),
    (
        "4KiB",
        "4 kb",
        "11:matrix.size_bytes.0",
        f"has the unknown unit 'kb'; a size takes one of: {SIZES}",
        None,
    ),
    ("1MiB", "'1000'", "11:matrix.size_bytes.1", "'1000' has no unit", None),
    ("launches: 5", "timeout: 5 parsecs", "20:protocol.timeout", "has the unknown unit 'parsecs'", None),
    ("[2, 4]", "[2, 0]", "12:matrix.ranks.1", "0 is below the least accepted value, 1", None),
    ("[2, 4]", "[]", "12:matrix.ranks", "the list is empty", None),
    ("op: all_reduce", "op: allreduce", "5:workload.op", "'allreduce' is not a legal op", "all_reduce"),
    ("op: all_reduce", "oops: 1", "5:workload.oops", "family has no parameter 'oops'", "op"),
    ("ranks: [2]", "rnks: [2]", "18:tiers.quick.matrix.rnks", "no parameter 'rnks'", "ranks"),
    ("ring, ranks: 4", "ring, rank: 4", "15:exclude.0.rank", "no parameter 'rank'", "ranks"),
    ("{technique: ring, r", "{technique: rng, r", "15:exclude.0.technique", "no technique 'rng'", "ring"),
    ("baseline: native\n", "", "1:baseline", "the key 'baseline' is missing", None),
    ("baseline: native", "baseline: nativ", "6:baseline", "'nativ' is not among the techniques", "native"),
    (
        "tiers:\n",
        "tiers:\n  full: {techniques: [ring]}\n",
        "17:tiers.full.techniques",
        "not among the tier",
        None,
    ),
    ("tiers:\n", "tiers:\n  full: {techniques: []}\n", "17:tiers.full.techniques", "at least 1 item", None),
    ("  - ring\n", "  - rnig\n", "9:techniques.1", "unknown technique 'rnig'", "ring"),
    ("  - ring\n", "  - ring\n  - ring\n", "7:techniques", "'ring' is listed twice", None),
    (
        "  - ring\n",
        "  - ring\n  - {technique: tree, as: ring}\n",
        "7:techniques",
        "'ring' is listed twice",
        None,
    ),
    (
        "  - ring\n",
        "  - {technique: ring, options: {x: 1}}\n",
        "9:techniques.1.options.x",
        "has no option 'x'",
        None,
    ),
    ("collectives/example", "../../etc/passwd", "1:suite", "is not a suite name", None),
    ("collectives/example", "collectives/..", "1:suite", "is not a suite name", None),
    ("collectives/example", "collectives/a/b", "1:suite", "is not a suite name", None),
    ("collectives/example", "/collectives", "1:suite", "is not a suite name", None),
    ("collectives/example", "kernels/example", "1:suite", "must begin with its family", None),
    ("  - ring\n", "  - {technique: ring, as: ../x}\n", "9:techniques.1", "'../x' is not a label", None),
    ("id: one", "id: ../one", "24:claims.0.id", "'../one' is not a claim id", None),
    ("family: collectives", "family: ../x", "3:family", "unknown family '../x'", None),
    ("family: collectives", "family: colectives", "3:family", "unknown family", "collectives"),
    ("  latency: {", "  latncy: {", "22:metrics.latncy", "family has no metric 'latncy'", "latency"),
    ("margin: 0.02", "margin: .nan", "22:metrics.latency.margin", "should be a finite number", None),
    ("margin: 0.02", "margin: .inf", "22:metrics.latency.margin", "should be a finite number", None),
    ("margin: 0.02", "margin: -1", "22:metrics.latency.margin", "greater than or equal to 0", None),
    ("ratio_at_most: 1.5", "value_at_most: .nan", "28:claims.0.expect.value_at_most", "finite number", None),
    ("ratio_at_most: 1.5", "", "28:claims.0.expect", "give exactly one of: ratio_at_most", None),
    ("1.5}", "1.5, equal_within: 0}", "28:claims.0.expect", "found 2", None),
    ("1.5}", "1.5, value_at_least: 1}", "28:claims.0.expect", "found 2", None),
    ("1.5}", "1.5, ratio_at_least: 2}", "28:claims.0.expect", "at least 2 and at most 1.5", None),
    ("versus: native, ", "", "27:claims.0.measure", "'ratio_at_most' compares two sides", None),
    ("versus: native", "versus: natve", "27:claims.0.measure.versus", "no technique 'natve'", "native"),
    ("metric: latency", "metric: latncy", "27:claims.0.measure.metric", "no metric 'latncy'", "latency"),
    ("paper: pccl", "paper: pcll", "25:claims.0.paper", "no paper 'pcll' in the ledger", "pccl"),
    ("where: {ranks: 2}", "where: {ranks: two}", "27:claims.0.measure.where.ranks", "is not a count", None),
    ("launches: 5", "launches: 0", "20:protocol.launches", "greater than or equal to 1", None),
    ("launches: 5", "max_samples: 3", "20:protocol", "max_samples 3 is below min_samples 10", None),
    ("launches: 2", "max_samples: 3", "19:tiers.quick.protocol", "max_samples 3 is below min_samples", None),
    ("zip: []", "zip: [{dtype: [int32], root: [0, 1]}]", "13:zip.0", "must be of equal length", None),
    (
        "tiers:",
        "tiers:\n  full: {zip: [{dtype: [int32], root: [0, 1]}]}",
        "17:tiers.full.zip.0",
        "equal",
        None,
    ),
]


@pytest.mark.parametrize(("old", "new", "place", "said", "match"), MISTAKES)
def test_a_mistake_is_named_with_file_line_and_key(
    tmp_path: Path, old: str, new: str, place: str, said: str, match: str | None
) -> None:
    path = suite_text.write(tmp_path, (old, new))
    with pytest.raises(UserError) as caught:
        load_suite(path)
    errors = getattr(caught.value, "errors", (caught.value,))
    found = {e.where: e for e in errors}
    assert f"{path}:{place}" in found, str(caught.value)
    error = found[f"{path}:{place}"]
    assert said in error.what
    if match is not None:
        assert error.expected and f"did you mean '{match}'?" in error.expected
    assert caught.value.exit_code == 2


def test_the_unchanged_suite_is_legal(tmp_path: Path) -> None:
    assert suite_text.load(tmp_path).name == "collectives/example"


def test_all_mistakes_of_a_file_are_told_at_once(tmp_path: Path) -> None:
    changes = [("4KiB", "4KB5"), ("baseline: native", "baseline: nativ"), ("paper: pccl", "paper: pcll")]
    with pytest.raises(UserError) as caught:
        suite_text.load(tmp_path, *changes)
    assert len(caught.value.errors) == 3  # type: ignore[attr-defined]


def test_a_union_complains_once_for_each_place(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        suite_text.load(tmp_path, ("launches: 2", "launches: .nan"))
    assert [e.what for e in caught.value.errors] == ["Input should be a finite number"]  # type: ignore[attr-defined]


def test_a_document_that_is_no_mapping_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="must hold a mapping"):
        suite_text.load(tmp_path, text="- a\n- b\n")


def test_a_technique_under_a_second_label_keeps_its_defaults(tmp_path: Path) -> None:
    suite = suite_text.load(tmp_path, ("  - ring\n", "  - ring\n  - {technique: ring, as: twin}\n"))
    entries = suite.entries(suite.model.techniques, "here")
    assert [(e.label, e.source.info.name) for e in entries] == [
        ("native", "native"),
        ("ring", "ring"),
        ("twin", "ring"),
    ]


def test_a_tier_overlays_single_protocol_keys() -> None:
    protocol = Protocol(launches=7, max_seconds=3)
    merged = merge_protocol(protocol, Tier(protocol={"launches": 2}))
    assert merged == Protocol(launches=2, max_seconds=3)
    assert merge_protocol(protocol, None) is protocol
    with pytest.raises(ValueError, match="finite"):
        merge_protocol(protocol, Tier.model_construct(protocol={"max_seconds": float("nan")}))


def _documents() -> list[Any]:
    return [pytest.param(path, id=name) for name, path in content.suite_files().items()]


@pytest.mark.parametrize("path", _documents())
def test_the_json_schema_accepts_every_shipped_suite(path: Path) -> None:
    _validator().validate(yaml.safe_load(path.read_text()))


@cache
def _validator() -> jsonschema.Draft202012Validator:
    """Return what holds documents against the schema, which is checked itself, once."""
    schema = suite_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("version: 1\n", "version: 1\nverison: 2\n"),
        ("baseline: native\n", ""),
        ("launches: 5", "launches: 0"),
        ("[2, 4]", "2"),
        ("margin: 0.02", "margin: -1"),
        ("  quick:", "  quik:"),
        ("version: 1", "version: 0"),
        ("id: one", "id: [one]"),
    ],
)
def test_the_json_schema_rejects_what_the_grammar_rejects(old: str, new: str) -> None:
    assert old in suite_text.LEGAL
    schema = suite_schema()
    jsonschema.validate(yaml.safe_load(suite_text.LEGAL), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(yaml.safe_load(suite_text.LEGAL.replace(old, new, 1)), schema)
