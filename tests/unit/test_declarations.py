"""What techniques promise and require is declared by each operation, and everything else is refused with its place."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from syntax_trees import tree_of

from paceline.base.errors import UserError
from paceline.base.families.family import family_names, load_family
from paceline.base.families.operation import Operation
from paceline.base.techniques.declarations import accepts, field_types, filled
from paceline.base.techniques.options import taken_by
from paceline.base.techniques.requirements import Requirements
from paceline.base.techniques.technique import REGISTRY
from paceline.cli import application
from paceline.families.training.core.planning.promises import EqualsDdp, Training
from paceline.spec import content
from paceline.spec.own.techniques import declared
from paceline.spec.suites.suite_file import load_suite

OPERATIONS = {
    f"{name}/{operation.name}": (name, operation)
    for name in family_names()
    for operation in load_family(name).operations.values()
}
DECLARATIONS: set[type] = {
    kind for _, operation in OPERATIONS.values() for kind in (operation.properties, operation.requirements)
}
PROPERTIES_LINE, REQUIRES_LINE = 9, 10
"""Lines of the one property and the one requirement in what ``written`` writes."""


def written(folder: Path, family: str, *operations: str, **arguments: dict[str, Any]) -> Path:
    """Write a technique with one property, on line 9, and one requirement, on line 10."""
    (promise, value), *_ = [*arguments.get("properties", {}).items(), (None, None)]
    (need, needed), *_ = [*arguments.get("requires", {}).items(), (None, None)]
    path = folder / "probe.py"
    path.write_text(
        '"""A probe."""\n'
        "from paceline import technique\n"
        "@technique(\n"
        '    name="lab/probe",\n'
        f'    family="{family}",\n'
        f"    implements={operations!r},\n"
        '    summary="A probe.",\n'
        "    properties={\n"
        f"{f'        {promise!r}: {value!r}' if promise else ''}\n"
        f"    }}, requires={{{f'{need!r}: {needed!r}' if need else ''}}},\n"
        ")\n"
        "class Probe:\n"
        '    """A probe."""\n',
        encoding="utf-8",
    )
    return path


def mistake(path: Path) -> UserError:
    with pytest.raises(UserError) as caught:
        declared(path)
    return caught.value


def misspelt(name: str) -> str:
    return f"{name[:-1]}{'x' if name[-1] != 'x' else 'y'}"


@pytest.mark.parametrize("of", OPERATIONS)
def test_a_misspelt_property_is_refused_with_its_place_and_the_nearest_name(of: str, tmp_path: Path) -> None:
    family, operation = OPERATIONS[of]
    known = list(field_types(operation.properties))
    name = misspelt(known[0]) if known else "exact"
    path = written(tmp_path, family, operation.name, properties={name: True})
    error = mistake(path)
    assert error.where == f"{path}:{PROPERTIES_LINE}:properties.{name}"
    assert error.what == f"techniques of {operation.name} have no property '{name}'"
    assert error.expected is not None
    assert (f"did you mean '{known[0]}'" if known else "there is none") in error.expected


@pytest.mark.parametrize("of", OPERATIONS)
def test_a_misspelt_requirement_is_refused_with_its_place_and_the_nearest_name(
    of: str, tmp_path: Path
) -> None:
    family, operation = OPERATIONS[of]
    for known in field_types(operation.requirements):
        path = written(tmp_path, family, operation.name, requires={misspelt(known): ()})
        error = mistake(path)
        assert error.where == f"{path}:{REQUIRES_LINE}:requires.{misspelt(known)}"
        assert f"did you mean '{known}'" in str(error.expected)


@pytest.mark.parametrize("of", OPERATIONS)
def test_every_property_and_requirement_refuses_a_value_of_another_type(of: str, tmp_path: Path) -> None:
    family, operation = OPERATIONS[of]
    for kind, argument, line in (
        (operation.properties, "properties", PROPERTIES_LINE),
        (operation.requirements, "requires", REQUIRES_LINE),
    ):
        for name in field_types(kind):
            path = written(tmp_path, family, operation.name, **{argument: {name: 1j}})
            error = mistake(path)
            assert error.where == f"{path}:{line}:{argument}.{name}", error
            assert error.expected, error


@pytest.mark.parametrize("of", OPERATIONS)
def test_an_operation_is_asked_for_what_its_points_have(of: str, tmp_path: Path) -> None:
    """A requirement that no point of the operation could be held to would be skipped without a word."""
    _, operation = OPERATIONS[of]
    parameters = {p.name for p in operation.parameters}
    requirements = set(field_types(operation.requirements))
    assert ("min_ranks" in requirements) == ("ranks" in parameters)
    assert ("dtypes" in requirements) == ("dtype" in parameters)
    assert requirements <= set(field_types(Requirements))


@pytest.mark.parametrize("kind", sorted(DECLARATIONS, key=repr))
def test_declarations_are_frozen_typed_and_documented(kind: type) -> None:
    assert kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert kind.__doc__
    assert Any not in field_types(kind).values()
    for part in kind.__mro__[:-1]:
        node = tree_of(inspect.getsource(part)).body[0]
        assert isinstance(node, ast.ClassDef)
        if part in (Requirements, *Requirements.__mro__):
            continue  # their names say it, in the words of ``unmet``
        for field, after in zip(node.body, [*node.body[1:], None], strict=True):
            if isinstance(field, ast.AnnAssign):
                assert isinstance(after, ast.Expr), f"{part.__name__}.{ast.unparse(field.target)}"
    defaults: object = filled(kind, {})
    assert all(
        accepts(list(v) if isinstance(v, tuple) else v, field_types(kind)[f.name]) or v is None
        for f in dataclasses.fields(kind)
        for v in [getattr(defaults, f.name)]
    )


def test_what_another_operation_of_the_technique_knows_is_no_mistake(tmp_path: Path) -> None:
    path = written(tmp_path, "training", "data_parallel", "fine_tune", properties={"slope_error": 0.5})
    assert declared(path)[0].info.properties == {"slope_error": 0.5}
    path = written(tmp_path, "training", "data_parallel", "fine_tune", properties={"slop_error": 0.5})
    assert mistake(path).what == "techniques of data_parallel or fine_tune have no property 'slop_error'"


@pytest.mark.parametrize(
    ("value", "key", "expected"),
    [
        ({"optimiser": "sgd", "arguments": {}}, ".optimiser", "did you mean 'optimizer'"),
        ({"optimizer": "sgdd", "arguments": {}}, ".optimizer", "did you mean 'sgd'"),
        ({"optimizer": "sgd", "arguments": {}, "max_ranks": "two"}, ".max_ranks", "a whole number"),
        ({"optimizer": "sgd"}, "", "a dict whose values"),
        ("sgd", "", "a dict with the keys optimizer, arguments"),
    ],
)
def test_a_mistake_inside_a_property_is_found_where_it_is(
    value: object, key: str, expected: str, tmp_path: Path
) -> None:
    path = written(tmp_path, "training", "data_parallel", properties={"equals_ddp": value})
    with pytest.raises(UserError) as caught:
        declared(path)
    error = getattr(caught.value, "errors", [caught.value])[0]
    assert error.where == f"{path}:{PROPERTIES_LINE}:properties.equals_ddp{key}"
    assert expected in str(error.expected)


def test_planning_and_validating_refuse_it_too(tmp_path: Path) -> None:
    path = written(tmp_path, "training", "data_parallel", properties={"equals_dpp": {}})
    where = f"{path}:{PROPERTIES_LINE}:properties.equals_dpp"
    for command in (
        ["validate", str(path)],
        ["plan", "training/sharding", "--technique", str(path)],
        ["run", "training/sharding", "--technique", str(path)],
    ):
        result = CliRunner().invoke(application, command)
        assert result.exit_code != 0
        assert where in result.output + str(result.exception), result.output
    with pytest.raises(UserError, match="did you mean 'equals_ddp'"):
        content.techniques("training", extra=[path])


SUITE_OF = {
    of: next(
        (
            path
            for name, path in content.suite_files().items()
            if name.startswith(f"{family}/") and f"op: {operation.name}" in path.read_text(encoding="utf-8")
        ),
        None,
    )
    for of, (family, operation) in OPERATIONS.items()
}


@pytest.mark.parametrize("of", OPERATIONS)
@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [("rate_limt", 0.5, "did you mean 'rate_limit'"), ("rate_limit", "x", "a number")],
)
@pytest.mark.one_in(3)
def test_a_suites_option_that_is_misspelt_or_of_another_type_is_refused_with_its_line(
    of: str, name: str, value: object, expected: str, tmp_path: Path
) -> None:
    family, operation = OPERATIONS[of]
    probe = written(tmp_path, family, operation.name)
    text = probe.read_text(encoding="utf-8")
    probe.write_text(
        f"{text}\n    def __init__(self, *, rate_limit: float = 1.5) -> None: ...\n", encoding="utf-8"
    )
    given = SUITE_OF[of] or next(
        p for n, p in content.suite_files().items() if n.startswith(f"{family}/")
    )  # of an operation that shares its suite with others
    suite = yaml.safe_load(given.read_text(encoding="utf-8"))
    suite["techniques"].append({"technique": "lab/probe", "options": {name: value}})
    path = tmp_path / "suite.yaml"
    path.write_text(yaml.safe_dump(suite, sort_keys=False), encoding="utf-8")
    with pytest.raises(UserError) as caught:
        load_suite(path, extra=[probe])
    (error,) = (e for e in getattr(caught.value, "errors", [caught.value]) if "lab/probe" in e.what)
    line = 1 + next(
        i for i, row in enumerate(path.read_text(encoding="utf-8").splitlines()) if f"{name}:" in row
    )
    assert error.where == f"{path}:{line}:techniques.{len(suite['techniques']) - 1}.options.{name}"
    assert expected in str(error.expected)
    suite["techniques"][-1]["options"] = {"rate_limit": 2}
    path.write_text(yaml.safe_dump(suite, sort_keys=False), encoding="utf-8")
    try:
        load_suite(path, extra=[probe])
    except UserError as other:  # what a suite says of its tuning counts techniques
        assert "rate_limit" not in str(other)


CONSTRUCTOR = "    def __init__(self, problem, comm, {}) -> None: ...\n"


@pytest.mark.parametrize(
    ("parameters", "options", "found"),
    [
        (
            "*, k: int = 4, by: Literal['row', 'all'] = 'row', to: int | None = None",
            None,
            {"k": 4, "by": "row", "to": None},
        ),
        ("bits: int = 2, *, k: int = 4", None, {"k": 4}),
        ("k: int = 4", {"k": 4}, {"k": 4}),
        ("bits: int = 2, k: int = 4", {"k": 4}, {"k": 4}),
        ("**others", {"k": 4}, {"k": 4}),
        ("*, k: int = 4", {"k": 5}, "the option 'k' is 4 in the constructor and 5 in options="),
        ("*, k: int = 4", {"q": 4}, "options= has 'q', which the constructor lacks"),
        ("*, k: int", None, "the option 'k' has no default that can be read"),
        ("*, k: int = 2 + K", None, "the option 'k' has no default that can be read"),
        ("*, k=4", None, "the option 'k' has no annotation"),
        ("*, k: int = 'four'", None, "the option 'k' is 'four' by default"),
    ],
)
def test_the_constructors_keyword_only_parameters_are_the_options(
    parameters: str, options: dict[str, Any] | None, found: object, tmp_path: Path
) -> None:
    path = written(tmp_path, "kernels", "gemm")
    text = path.read_text(encoding="utf-8")
    if options is not None:
        text = text.replace('    summary="A probe.",\n', f'    summary="A probe.", options={options!r},\n')
    path.write_text(text + CONSTRUCTOR.format(parameters), encoding="utf-8")
    if isinstance(found, dict):
        (source,) = declared(path)
        assert source.info.options == found
        assert ("options" in source.lines) == (options is not None)
        return
    error = mistake(path)
    line = len(path.read_text(encoding="utf-8").splitlines())
    assert error.what == found
    assert str(error.where).startswith(f"{path}:{line}:")


def test_an_inherited_constructor_declares_no_option_and_an_old_file_is_told(tmp_path: Path) -> None:
    path = written(tmp_path, "kernels", "gemm")
    assert declared(path)[0].info.options == {}
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace('"A probe.",\n', '"A probe.", options={"k": 4},\n'), encoding="utf-8")
    assert declared(path)[0].info.options == {"k": 4}
    told = CliRunner().invoke(application, ["validate", str(path)]).output
    assert f"note: {path}:7:options: the constructor's keyword-only parameters declare options" in told


def test_source_and_signature_declare_the_same_options() -> None:
    """The control plane reads the source, the worker the signature."""
    pytest.importorskip("torch")
    for family in ("collectives", "kernels", "training", "serving", "reasoning"):
        for name, source in content.techniques(family).items():
            try:
                importlib.import_module(source.module)
            except ImportError:
                continue
            assert REGISTRY[family, name][0].options == source.info.options, name
            assert list(source.info.options) == list(source.options)


def test_a_formula_is_given_the_options_that_it_names() -> None:
    options = {"k": 4, "decay": 0.5}
    assert taken_by(lambda task, *, k: k, options) == {"k": 4}
    assert taken_by(lambda task, **others: others, options) == options
    assert taken_by(lambda task: task, options) == {}


def test_a_misspelt_requirement_says_its_line_before_anybody_knows_the_operation(tmp_path: Path) -> None:
    path = written(tmp_path, "kernels", "gemm", requires={"min_ranks": 2})
    assert mistake(path).what == "techniques of gemm have no requirement 'min_ranks'"
    path = written(tmp_path, "kernels", "gemm", requires={"min_rank": 2})
    assert mistake(path).what == "techniques have no requirement 'min_rank'"


def test_a_declaration_is_filled_from_what_was_written() -> None:
    found = filled(
        Training,
        {"exact": True, "equals_ddp": {"optimizer": "sgd", "arguments": {"k": 1}}, "slope_error": 1.0},
    )
    assert found == Training(exact=True, equals_ddp=EqualsDdp(optimizer="sgd", arguments={"k": 1}))
    assert filled(Requirements, {"dtypes": ["float32"]}).dtypes == ("float32",)


@pytest.mark.parametrize(
    ("value", "annotation", "fits"),
    [
        (1, bool, False),
        (True, int, False),
        (1, float, True),
        (1e999, float, False),
        (None, int | None, True),
        (["a"], tuple[str, ...], True),
        ("a", tuple[str, ...], False),
        ({"a": 1}, dict[str, int], True),
        ({"a": "b"}, dict[str, int], False),
    ],
)
def test_a_value_fits_its_annotation_and_no_other(value: object, annotation: object, fits: bool) -> None:
    assert accepts(value, annotation) is fits


def test_every_property_and_requirement_is_in_the_guide() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "adding-a-technique.md").read_text(encoding="utf-8")
    section = guide.partition("## What it may promise and require")[2].partition("\n## ")[0]
    for kind in (*DECLARATIONS, EqualsDdp):
        assert [name for name in field_types(kind) if f"`{name}`" not in section] == []


def test_operations_without_promises_say_so() -> None:
    assert isinstance(OPERATIONS["reasoning/solve"][1], Operation)
    assert not field_types(OPERATIONS["reasoning/solve"][1].properties)


OWN_NAMES = "    def __init__(self, task, comm, bits: int = 2, *, sync_every: int = 8) -> None: ...\n"


@pytest.mark.parametrize(
    ("promise", "key", "said", "suggested"),
    [
        (
            {"equals_ddp": {"optimizer": "sgd", "arguments": {"sync_evry": 1}}},
            "equals_ddp.arguments.sync_evry",
            "the property 'equals_ddp' names 'sync_evry', which is no argument of the technique",
            "sync_every",
        ),
        (
            {"unbiased_with": {"bit": 32}},
            "unbiased_with.bit",
            "the property 'unbiased_with' names 'bit', which is no argument of the technique",
            "bits",
        ),
        (
            {"inexact_with": {"bits": 32}},
            "inexact_with.bits",
            "the property 'inexact_with' names 'bits', which is no option of the technique",
            None,
        ),
    ],
)
def test_a_property_speaks_of_arguments_and_options_that_there_are(
    promise: dict[str, Any], key: str, said: str, suggested: str | None, tmp_path: Path
) -> None:
    path = written(tmp_path, "training", "data_parallel", properties=promise)
    path.write_text(path.read_text(encoding="utf-8") + OWN_NAMES, encoding="utf-8")
    error = mistake(path)
    assert (error.where, error.what) == (f"{path}:{PROPERTIES_LINE}:properties.{key}", said)
    if suggested:
        assert f"did you mean '{suggested}'" in str(error.expected)


@pytest.mark.parametrize(
    "promise",
    [
        {"equals_ddp": {"optimizer": "sgd", "arguments": {"bits": 32, "sync_every": 1}}},
        {"unbiased_with": {"bits": 32}},
        {"inexact_with": {"sync_every": 1}},
    ],
)
def test_what_the_constructor_has_is_no_mistake(promise: dict[str, Any], tmp_path: Path) -> None:
    path = written(tmp_path, "training", "data_parallel", properties=promise)
    path.write_text(path.read_text(encoding="utf-8") + OWN_NAMES, encoding="utf-8")
    assert declared(path)[0].info.properties == promise


def test_arguments_of_a_constructor_that_is_inherited_are_not_judged(tmp_path: Path) -> None:
    promise = {"equals_ddp": {"optimizer": "sgd", "arguments": {"anything": 1}}}
    path = written(tmp_path, "training", "data_parallel", properties=promise)
    assert declared(path)[0].arguments is None
