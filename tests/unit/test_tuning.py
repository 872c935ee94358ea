"""Settings are chosen among equally many trials, and what nobody tried is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import suite_text

from paceline import content
from paceline.errors import UserError
from paceline.suite import load_suite

TRIALS = """\
suite: training/trials
version: 1
family: training
why: Trials.
workload: {op: data_parallel}
baseline: ddp-ring
techniques:
  - ddp-ring
  - diloco
  - {technique: diloco, as: diloco-gentle, options: {outer_rate: 0.4}}
  - noloco
metrics:
  eval_loss: {margin: 0.01}
"""
TUNED = """\
suite: training/tuned
version: 1
family: training
why: Tuned.
workload: {op: data_parallel}
baseline: ddp-ring
techniques:
  - ddp-ring
  - {technique: diloco, options: {outer_rate: 0.4}}
tuning:
  suite: training/trials
  trials: 2
  metric: eval_loss
  untuned: {ddp-ring: has no settings}
"""
MISTAKES = [
    (
        "outer_rate: 0.4",
        "outer_rate: 0.5",
        "9:techniques.1",
        "nobody tried the settings of 'diloco'",
        "diloco-gentle",
    ),
    (
        "trials: 2",
        "trials: 3",
        "9:techniques.1",
        "'diloco' had 2 trials in training/trials, others 3",
        "untuned",
    ),
    (
        "technique: diloco, options: {outer_rate: 0.4}",
        "technique: noloco",
        "9:techniques.1",
        "had 1 trials",
        None,
    ),
    ("{ddp-ring: has", "{ddp: has", "14:tuning.untuned.ddp", "no technique 'ddp'", "ddp-ring"),
    ("  untuned: {ddp-ring: has no settings}\n", "", "8:techniques.0", "'ddp-ring' had 1 trials", None),
    ("training/trials", "training/trails", "11:tuning.suite", "training/trails", "training/trials"),
    ("training/trials", "training/tuned", "11:tuning.suite", "rest on trials themselves", None),
    ("metric: eval_loss", "metric: eval_los", "13:tuning.metric", "does not compare 'eval_los'", "eval_loss"),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A content root with the suite of trials."""
    suites = tmp_path / "suites" / "training"
    suites.mkdir(parents=True)
    (suites / "trials.yaml").write_text(TRIALS)
    (suites / "tuned.yaml").write_text(TUNED)
    monkeypatch.setenv(content.ENVIRONMENT_VARIABLE, str(tmp_path))
    return tmp_path


def test_settings_that_were_tried_as_often_as_others_are_legal(folder: Path) -> None:
    tuning = suite_text.load(folder, text=TUNED).model.tuning
    assert tuning is not None and tuning.trials == 2


@pytest.mark.parametrize(("old", "new", "place", "said", "expected"), MISTAKES)
def test_unfair_settings_are_refused_with_their_place(
    folder: Path, old: str, new: str, place: str, said: str, expected: str | None
) -> None:
    path = suite_text.write(folder, (old, new), text=TUNED)
    with pytest.raises(UserError) as caught:
        load_suite(path)
    found = {e.where: e for e in getattr(caught.value, "errors", (caught.value,))}
    assert f"{path}:{place}" in found, str(caught.value)
    error = found[f"{path}:{place}"]
    assert said in error.what
    assert expected is None or expected in (error.expected or "")


def test_trials_of_trials_are_refused(folder: Path) -> None:
    (folder / "suites" / "training" / "again.yaml").write_text(
        TUNED.replace("training/tuned", "training/again").replace("training/trials", "training/tuned")
    )
    with pytest.raises(UserError, match="rest on trials themselves"):
        load_suite(folder / "suites" / "training" / "again.yaml")
