"""Packages that a technique requires: looked for before a run and told with their versions; none missing is a crash."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path

import pytest
from click.testing import CliRunner

import paceline
from paceline.base.errors import UserError
from paceline.base.techniques.requirements import lacking
from paceline.cli import application
from paceline.spec import content
from paceline.spec.own.techniques import declared

TECHNIQUE = '''"""Does what the backend does."""
from paceline import technique

@technique(
    name="lab/needy",
    family="collectives",
    implements=("all_reduce",),
    summary="needs a package",
    requires={{"packages": {packages!r}}},
)
class Needy:
    """The backend's own."""

    def __init__(self, problem, comm) -> None:
        self.comm = comm

    def run(self, buffer) -> None:
        """Sum."""
        self.comm.backend.all_reduce(buffer)


def cost(problem):
    """Say nothing: the backend decides."""
    return None
'''


def written(folder: Path, *packages: str) -> Path:
    path = folder / "needy.py"
    path.write_text(TECHNIQUE.format(packages=packages), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("package", "said"),
    [
        ("click", None),
        ("click>=1", None),
        ("yaml>=5.0", None),
        ("no_such_thing", "needs no_such_thing, which is not installed here: pip install 'no_such_thing'"),
        ("click>=99.1", f"needs click>=99.1, and {metadata.version('click')} is installed here"),
        ("yaml>=99", f"needs yaml>=99, and {metadata.version('PyYAML')} is installed here"),
    ],
)
def test_a_package_is_there_missing_or_too_old(package: str, said: str | None) -> None:
    found = lacking([package])
    assert found == [] if said is None else found[0].startswith(said)


def test_a_version_is_compared_by_numbers_and_not_by_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: "3.10.0")
    assert lacking(["click>=3.9", "click>=3.10"]) == []
    assert lacking(["click>=3.10.1"])


@pytest.mark.parametrize("package", ["triton==3.5", "triton >= 3", "triton>=", "a-b", ""])
def test_what_is_no_package_is_refused_with_its_line(package: str, tmp_path: Path) -> None:
    path = written(tmp_path, package)
    with pytest.raises(UserError) as caught:
        declared(path)
    assert caught.value.where == f"{path}:9:requires.packages"
    assert caught.value.what == f"'{package}' is no package to require"


SAID = "lab/needy will be unsupported: it needs no_such_thing, which is not installed here"


def test_a_plan_says_what_is_missing(tmp_path: Path) -> None:
    path = written(tmp_path, "no_such_thing")
    command = ["plan", "collectives/all-reduce", "--tier", "quick", "--technique", str(path), "--json"]
    planned = json.loads(CliRunner().invoke(application, command).stdout)
    assert any(text.startswith(SAID) for text in planned["warnings"])


@pytest.mark.full
@pytest.mark.usefixtures("fixed_plans")
def test_a_run_says_what_is_missing_and_the_case_is_unsupported(tmp_path: Path) -> None:
    path = written(tmp_path, "no_such_thing")
    with pytest.warns(UserWarning, match=SAID):
        run = paceline.run(
            "collectives/all-reduce",
            tier="quick",
            techniques=["lab/needy"],
            files=[path],
            filters={"size_bytes": "4KiB"},
            launches=1,
            results=tmp_path / "store",
            allow_concurrent=True,
        )
    assert run.statuses == {"ok": 1, "unsupported": 1}
    assert "needs no_such_thing, which is not installed here" in " ".join(run.failures)


def test_doctor_lists_what_techniques_require(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from paceline.drivers import capabilities

    folder = tmp_path / "baselines" / "collectives"
    folder.mkdir(parents=True)
    written(folder, "no_such_thing", "click>=1")
    monkeypatch.setenv(content.ENVIRONMENT_VARIABLE, str(tmp_path))
    found = {c.name: c for c in capabilities._packages()}
    assert found["package click>=1"].ok and metadata.version("click") in found["package click>=1"].detail
    missing = found["package no_such_thing"]
    assert not missing.ok and missing.fix == "pip install 'no_such_thing'" and "lab/needy" in missing.detail
