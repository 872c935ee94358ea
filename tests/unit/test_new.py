"""What ``paceline new`` writes validates, plans and is of the family that was asked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from paceline.base.errors import UserError
from paceline.base.families.family import family_names, load_family
from paceline.cli import application
from paceline.cli.authoring.new import SUITES, example_families
from paceline.spec.own.techniques import declared
from paceline.spec.suites.suite_file import load_suite

FAMILIES = [f for f in family_names() if not load_family(f).internal]


def invoke(*arguments: str | Path) -> Result:
    return CliRunner().invoke(application, [str(a) for a in arguments])


def test_every_family_has_examples() -> None:
    assert example_families() == FAMILIES == sorted(SUITES)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_new_suite_is_of_its_family_and_validates_and_plans_as_written(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert invoke("new", "suite", f"{family}/foo").exit_code == 0
    path = Path("foo.yaml")
    suite = load_suite(path)
    assert (suite.name, suite.family.name) == (f"{family}/foo", family)
    assert invoke("validate", path).exit_code == 0
    for tier in ("quick", "standard", "full"):
        plan = json.loads(invoke("plan", path, "--tier", tier, "--json").stdout)
        assert plan["blocks"]
        assert not plan["skipped"]
        assert {len(b["cases"]) for b in plan["blocks"]} == {2}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("given", [["{family}/foo-bar"], ["--family", "{family}", "my-lab/foo-bar"]])
def test_a_new_technique_loads_and_joins_the_suite_that_is_named(
    family: str, given: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = invoke("new", "technique", *(g.format(family=family) for g in given))
    assert result.exit_code == 0, result.exception
    (source,) = declared(Path("foo_bar.py"))
    assert source.info.family == family
    assert source.info.name == given[-1].removeprefix("{family}/")
    assert invoke("validate", "foo_bar.py").exit_code == 0
    compile(Path("foo_bar.py").read_text(), "foo_bar.py", "exec")
    command = result.stdout.rpartition("paceline run ")[2].split()
    plan = json.loads(invoke("plan", *command, "--json").stdout)
    assert source.info.name in {c["label"] for b in plan["blocks"] for c in b["cases"]}
    assert not plan["warnings"]


@pytest.mark.parametrize("kind", ["suite", "technique"])
def test_a_family_that_does_not_exist_is_an_error_with_the_nearest(kind: str, tmp_path: Path) -> None:
    result = invoke("new", kind, "--family", "reasonning", "foo", "--output", tmp_path / "foo")
    assert isinstance(result.exception, UserError)
    assert "did you mean 'reasoning'?" in str(result.exception)


def test_a_suite_below_no_family_is_an_error(tmp_path: Path) -> None:
    result = invoke("new", "suite", "my-lab/foo", "--output", tmp_path / "foo.yaml")
    assert isinstance(result.exception, UserError)
    assert "'my-lab/foo' begins with no family" in str(result.exception)
    assert not list(tmp_path.iterdir())


def test_two_families_that_contradict_each_other_are_an_error(tmp_path: Path) -> None:
    result = invoke("new", "suite", "--family", "kernels", "training/foo", "--output", tmp_path / "foo.yaml")
    assert isinstance(result.exception, UserError)
    assert "'training/foo' is of training" in str(result.exception)
