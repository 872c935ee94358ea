"""``docs/operations.md`` has every operation with all that its specification says, and its links lead somewhere."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from pathlib import Path

import pytest

from paceline.base.families.family import family_names, load_family
from paceline.base.families.operation import Operation
from paceline.cli.inspection.operations import operations_named
from paceline.cli.operation_pages import anchor
from paceline.spec import content
from paceline.spec.techniques.interface import field_docs, interface_of, made_by

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
OPERATIONS = operations_named()


def section(heading: str, text: str = TEXT) -> str:
    """Return what stands below a heading of the third level."""
    return re.split(r"\n##+ ", text.split(f"\n### {heading}\n")[1], maxsplit=1)[0]


@pytest.mark.parametrize("place", OPERATIONS)
def test_an_operation_has_a_section_with_all_that_it_is_made_of(place: str) -> None:
    family, operation = load_family(place.partition("/")[0]), OPERATIONS[place]
    found = section(place)
    assert found.startswith(operation.summary)
    named = set(re.findall(r"`([^`]+)`", found))
    parameters = {p.name for p in family.parameters_for(operation.name)} - {family.operation_key}
    assert parameters <= named
    assert {m.name for m in operation.metrics} <= named
    assert {f.name for f in (*fields(operation.properties), *fields(operation.requirements))} <= named
    assert {a.name for a in operation.arguments} <= named
    for source in content.techniques(family.name).values():
        if operation.name in source.info.implements:
            assert f"[{source.info.name}](../baselines/{family.name}/{source.path.name})" in found


@pytest.mark.parametrize("family", [name for name in family_names() if load_family(name).operations])
def test_every_parameter_is_explained_once(family: str) -> None:
    text = TEXT.split(f"\n## {family.capitalize()}\n")[1].split("\n## ")[0]
    for parameter in load_family(family).parameters:
        if parameter.name != load_family(family).operation_key:
            rows = [
                r for r in text.splitlines() if r.startswith(f"| `{parameter.name}` | {parameter.doc[:20]}")
            ]
            assert len(rows) == 1, parameter.name
            assert all(f"`{choice}`" in rows[0] for choice in parameter.choices)
            assert ("required" in rows[0]) or not parameter.required


def test_every_link_within_the_page_leads_to_a_heading() -> None:
    anchors = [anchor(heading) for heading in re.findall(r"^#+ (.+)$", TEXT, re.M)]
    assert len(anchors) == len(set(anchors)), "two headings have one anchor"
    targets = set(re.findall(r"\]\(#([^)]+)\)", TEXT))
    assert targets
    assert targets <= set(anchors)


def test_every_link_to_metrics_leads_to_a_family() -> None:
    headings = re.findall(r"^#+ (.+)$", (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8"), re.M)
    targets = set(re.findall(r"\]\(metrics\.md#([^)]+)\)", TEXT))
    assert targets == {name for name in family_names() if load_family(name).operations}
    assert targets <= set(map(anchor, headings))


def test_an_operations_summary_is_a_sentence() -> None:
    assert [p for p, o in OPERATIONS.items() if not re.fullmatch(r"[A-Zs].* .*\.", o.summary)] == []
    assert len({o.summary for o in OPERATIONS.values()}) == len(OPERATIONS)


@pytest.mark.parametrize("place", OPERATIONS)
def test_every_operation_says_what_techniques_are_called_with(place: str) -> None:
    family, operation = place.partition("/")[0], OPERATIONS[place]
    interface = interface_of(family, operation)
    if interface is None:
        # The harness reads options of these alone; whoever is called has arguments or methods.
        assert place == "serving/endpoint"
        return
    assert operation.arguments or interface.methods
    assert all(m.doc for m in interface.methods), "a method without a sentence"


def test_an_interface_that_is_not_there_is_told() -> None:
    operation = OPERATIONS["serving/serve"]
    for name in ("api.scheduling:Planner", "api.nowhere:Scheduler"):
        with pytest.raises(LookupError):
            interface_of("serving", replace(operation, interface=name))


def defined(family: str, operation: Operation, technique: str) -> set[str]:
    """Return the methods that a technique's class has, those of its bases among them, as far as its file tells."""
    source = content.techniques(family)[technique]
    return set(re.findall(r"^    def (\w+)\(", source.path.read_text(encoding="utf-8"), re.M))


@pytest.mark.parametrize(
    "place",
    [
        "serving/predict",
        "serving/decode",
        "serving/cache",
        "serving/overlap",
        "kernels/tile_choice",
    ],
)
def test_techniques_have_the_methods_that_their_operation_calls(place: str) -> None:
    family, operation = place.partition("/")[0], OPERATIONS[place]
    interface = interface_of(family, operation)
    assert interface is not None
    called = {m.name for m in interface.methods}
    for source in content.techniques(family).values():
        if operation.name in source.info.implements:
            assert called <= defined(family, operation, source.info.name), source.info.name


@pytest.mark.parametrize("place", OPERATIONS)
def test_techniques_of_an_operation_are_made_with_the_same_arguments(place: str) -> None:
    family, operation = place.partition("/")[0], OPERATIONS[place]
    made = {
        tuple(argument.partition(":")[0] for argument in made_by(source)[0])
        for source in content.techniques(family).values()
        if operation.name in source.info.implements
    }
    assert len(made) <= 1, made


def test_what_stands_below_a_field_is_its_meaning() -> None:
    docs = field_docs(OPERATIONS["collectives/all_reduce"].properties)
    assert docs["exact"].startswith("Results are right")  # of the base
    assert docs["max_relative_l2"].startswith("Bound of the relative L2 error")
    assert all(
        all(field_docs(kind)[f.name] for f in fields(kind))
        for o in OPERATIONS.values()
        for kind in (o.properties, o.requirements)
    )
