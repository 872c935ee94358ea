"""Files are known by what they say: each kind under any name, and one error for what is none of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from paceline.base.errors import UserError, UserErrors
from paceline.cli import application
from paceline.spec import content
from paceline.spec.files.kinds import BY_KEY
from paceline.spec.ledger.papers import Paper, load_papers
from paceline.spec.profiles.profile import RunnerModel, load_runner
from paceline.spec.suites.grammar import SuiteModel
from paceline.spec.suites.suite_file import load_suite
from paceline.workflows.nightly.config import NightlyModel, load_nightly

ROOT = content.shipped_root()
FILES = {
    "suite": ROOT / "suites" / "collectives" / "reduce.yaml",
    "runner": ROOT / "runners" / "local-cpu.yaml",
    "nightly": ROOT / "docs" / "examples" / "nightly-cpu.yaml",
    "slug": ROOT / "baselines" / "papers.yaml",
}
LOADERS = {"suite": load_suite, "runner": load_runner, "nightly": load_nightly, "slug": load_papers}


def validate(path: Path) -> tuple[int, str]:
    result = CliRunner().invoke(application, ["validate", str(path)])
    return result.exit_code, result.output


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("name", ["my-night.yaml", "nightly.yaml", "papers.yaml", "runners/x.yml", "plain"])
@pytest.mark.one_in(3)
def test_every_kind_is_known_under_every_name(kind: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(FILES[kind].read_text())
    assert validate(path) == (0, "1 file checked, 0 mistakes\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nightlly: x\nmeasure: []\nbudget: 8h\n", "did you mean 'nightly'?"),
        ("measure: []\nbudget: 8h\n", "most of its keys are those of a nightly file"),
        ("suit: a/b\nfamily: kernels\nworkload: {}\n", "did you mean 'suite'?"),
        ("description: x\ndriver: local\n", "did you mean 'runner'?"),
        ("- {title: A paper, family: kernels}\n", "did you mean 'slug'?"),
        ("colour: blue\n", "it begins with 'colour'"),
        ("[1, 2]\n", "none of the kinds"),
        ("words\n", "none of the kinds"),
    ],
)
def test_a_file_of_no_kind_is_one_mistake_with_the_kinds_and_the_nearest(
    text: str, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(text)
    code, output = validate(path)
    assert code == 2
    assert "1 file checked, 1 mistake" in output
    assert f"error: {path}:1: the file is none of the kinds" in output
    assert said in output
    assert all(kind.title in output for kind in BY_KEY.values())


@pytest.mark.parametrize("wanted", LOADERS)
@pytest.mark.parametrize("given", FILES)
def test_a_file_of_another_kind_is_one_mistake_that_names_the_command_for_it(wanted: str, given: str) -> None:
    if wanted == given:
        assert LOADERS[wanted](FILES[given])
        return
    with pytest.raises(UserError) as found:
        LOADERS[wanted](FILES[given])
    assert not isinstance(found.value, UserErrors)
    assert f"this is {BY_KEY[given].title}, not {BY_KEY[wanted].title}" in str(found.value)
    assert "fix: paceline " in str(found.value)


def test_the_keys_of_the_kinds_are_those_of_their_grammars() -> None:
    grammars = {"suite": SuiteModel, "runner": RunnerModel, "nightly": NightlyModel, "slug": Paper}
    for key, model in grammars.items():
        assert BY_KEY[key].keys == set(model.model_fields)
