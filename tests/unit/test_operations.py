"""Families are put together from the folders of their operations."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from paceline.base.families.family import Metric, Parameter, Params, Scalar
from paceline.base.families.operation import Operation, family_of, merged


def parameter(name: str) -> Parameter:
    return Parameter(name=name, kind="count", doc="A number.", default=1)


def metric(name: str) -> Metric:
    return Metric(name=name, unit="s", better="lower", doc="A time.", contract={"timer": "none"})


def operation(
    name: str, parameters: str, metrics: str, fixed: Mapping[str, Scalar] | None = None
) -> Operation:
    def check(params: Params) -> list[str]:
        return [f"checked by {name}"]

    return Operation(
        name=name,
        summary=f"{name} does its work.",
        parameters=tuple(map(parameter, parameters)),
        metrics=tuple(map(metric, metrics)),
        check=check,
        estimate_s=lambda params: float(len(name)),
        isolated=name == "apart",
        fixed=fixed or {},
    )


def test_a_family_has_the_parameters_and_metrics_of_its_operations_in_an_order_that_agrees_with_each() -> (
    None
):
    family = family_of(
        [operation("one", "ac", "xz"), operation("apart", "abc", "xyz")],
        name="toy",
        summary="For tests.",
        default_metrics=("x",),
    )
    assert [p.name for p in family.parameters] == ["op", "a", "b", "c"]
    assert family.parameters[0].doc == "one: one does its work. apart: apart does its work."
    assert [p.name for p in family.parameters_for("one")] == ["op", "a", "c"]
    assert [p.name for p in family.parameters_for("apart")] == ["op", "a", "b", "c"]
    assert [m.name for m in family.metrics] == ["x", "y", "z"]


def test_rules_are_those_of_the_points_operation() -> None:
    family = family_of(
        [operation("one", "a", "x"), operation("apart", "a", "x")],
        name="toy",
        summary="For tests.",
        default_metrics=("x",),
    )
    assert family.check({"op": "apart"}) == ["checked by apart"]
    assert family.estimate_s({"op": "one"}) == 3.0
    assert (family.is_isolated("one"), family.is_isolated("apart")) == (False, True)
    assert family.runner_module("one") == "paceline.families.toy.ops.one.run"


def test_what_an_operation_cannot_change_is_named_with_those_that_can() -> None:
    family = family_of(
        [operation("one", "ab", "x"), operation("other", "ab", "x", {"b": 1}), operation("third", "a", "x")],
        name="toy",
        summary="For tests.",
        default_metrics=("x",),
    )
    assert family.check({"op": "other", "a": 1, "b": 2}) == [
        "b 2 is for one, and not for other",
        "checked by other",
    ]
    assert family.check({"op": "other", "a": 1, "b": 1}) == ["checked by other"]
    assert family.check({"op": "one", "a": 1, "b": 2}) == ["checked by one"]


def test_metrics_of_different_operations_stand_as_the_family_orders_them() -> None:
    operations = [operation("one", "a", "xyz"), operation("other", "a", "xuz")]
    layout = {"name": "toy", "summary": "For tests.", "default_metrics": ("x",)}
    plain = family_of(operations, **layout)
    assert [m.name for m in plain.metrics] == ["x", "y", "u", "z"]
    ordered = family_of(operations, in_order=(("u", "y"), ("u", "gone")), **layout)
    assert [m.name for m in ordered.metrics] == ["x", "u", "y", "z"]


def test_parameters_of_different_operations_stand_as_the_family_orders_them() -> None:
    operations = [operation("one", "abd", "x"), operation("other", "acd", "x")]
    layout = {"name": "toy", "summary": "For tests.", "default_metrics": ("x",)}
    assert [p.name for p in family_of(operations, **layout).parameters] == ["op", "a", "b", "c", "d"]
    ordered = family_of(operations, in_order=(("c", "b"), ("c", "gone")), **layout)
    assert [p.name for p in ordered.parameters] == ["op", "a", "c", "b", "d"]


def test_the_choice_of_an_operation_says_what_each_is() -> None:
    family = family_of(
        [operation("one", "a", "x"), operation("other", "a", "x")],
        name="toy",
        summary="For tests.",
        default_metrics=("x",),
    )
    assert family.parameters[0].doc == "one: one does its work. other: other does its work."


def test_one_name_for_two_things_and_contradicting_orders_are_refused() -> None:
    with pytest.raises(ValueError, match="'a' differently"):
        merged([(parameter("a"),), (Parameter(name="a", kind="flag", doc="Another."),)])
    with pytest.raises(ValueError, match="order these differently"):
        merged([tuple(map(parameter, "ab")), tuple(map(parameter, "ba"))])
