"""``paceline check`` in real process groups: a family's example passes, a known-wrong technique of each does not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from paceline.cli import application
from paceline.drivers.machine import lease

MUTANTS = Path(__file__).resolve().parents[1] / "mutants"

pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("fixed_plans")]

WRONG = {
    "collectives/dropped_tail": "elements differ",
    "collectives/lies_about_cost": "wire_bytes is 4100.0, formula 2050.0",
    "kernels/short_reduction": "are outside the bound",
    "training/halves_gradients": "beside one process on the whole batch",
    "serving/raises": "RuntimeError: no idea",
    "caches/forgets_the_first": "were asked for",
    "reasoning/knows_the_answer": "none of its traces answers",
    # asks for others, asks otherwise or answers otherwise: as the coin falls
    "reasoning/tosses_a_coin": "on the same traces it ",
}
"""Each with what is said of it."""


@pytest.mark.parametrize("mutant", sorted(WRONG))
def test_a_known_wrong_technique_does_not_conform(mutant: str) -> None:
    ranks = ["--ranks", "2"] if mutant.startswith(("collectives", "training")) else []
    given = ["check", str(MUTANTS / f"{mutant}.py"), "--brief", *ranks]
    done = CliRunner().invoke(application, given)
    assert done.exit_code == 1, done.output
    assert "does not conform" in done.stdout and WRONG[mutant] in done.stdout


def test_the_example_that_a_technique_begins_from_conforms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = CliRunner().invoke(application, ["new", "technique", "my-lab/gather-add"])
    assert "check it: paceline check gather_add.py" in made.output
    done = CliRunner().invoke(application, ["check", "gather_add.py", "--brief", "--ranks", "2", "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["problems"] == [] and [r["status"] for r in told["results"]] == ["ok", "ok"]
    assert all(r["measured"]["wire_bytes"] == r["predicted"]["wire_bytes"] for r in told["results"])


BUILT_ON = """from paceline import technique
from paceline.baselines.serving.sequential_operators import SequentialOperators


@technique(name="the-same", family="serving", implements=("overlap",), summary="as the shipped one")
class Same(SequentialOperators):
    pass
"""


def test_a_technique_that_builds_on_a_shipped_one_conforms(tmp_path: Path) -> None:
    path = tmp_path / "the_same.py"
    path.write_text(BUILT_ON)
    done = CliRunner().invoke(application, ["check", str(path), str(path), "--brief"])
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("the-same: conforms"), "a file that is named twice is one"


@pytest.mark.parametrize(
    ("given", "code", "words"),
    [
        (["ring", "--family", "collectives", "--runner", "fake"], 2, "computes nothing"),
        ([str(MUTANTS / "collectives" / "imports_socket.py")], 2, "socket"),
    ],
)
def test_what_cannot_be_checked_is_refused(given: list[str], code: int, words: str) -> None:
    done = CliRunner().invoke(application, ["check", *given, "--brief"])
    said = f"{done.output}{done.exception}"
    assert done.exit_code == code or getattr(done.exception, "exit_code", None) == code, said
    assert words in said


def test_a_check_waits_for_the_machine_as_runs_do() -> None:
    held = lease.take("another", wait_s=0.0)
    try:
        done = CliRunner().invoke(application, ["check", "ring", "--family", "collectives", "--wait", "0s"])
    finally:
        held.release()
    assert "another" in f"{done.output}{done.exception}"
    assert done.exit_code != 0
