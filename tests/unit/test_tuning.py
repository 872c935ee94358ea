"""Settings are chosen among equally many trials, and what nobody tried is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import suite_text

from paceline.base.errors import UserError
from paceline.spec import content
from paceline.spec.own.techniques import with_user_techniques
from paceline.spec.suites.grammar import Tuning, TuningInWords
from paceline.spec.suites.suite_file import load_suite

TRIALS = """\
suite: training/trials
version: 1
family: training
description: Trials.
workload: {op: data_parallel, batch: 8}
baseline: ddp-ring
techniques:
  - ddp-ring
  - diloco
  - {technique: diloco, as: diloco-gentle, options: {outer_rate: 0.4}}
  - noloco
  - {technique: noloco, as: noloco-again}
metrics:
  eval_loss: {margin: 0.01}
"""
TUNED = """\
suite: training/tuned
version: 1
family: training
description: Tuned.
workload: {op: data_parallel, batch: 8, context: 32}
baseline: ddp-ring
techniques:
  - ddp-ring
  - {technique: diloco, options: {outer_rate: 0.4}}
tiers:
  full: {techniques: [ddp-ring, {technique: diloco, options: {outer_rate: 0.4}}]}
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
        "had 1 trial",
        None,
    ),
    ("{ddp-ring: has", "{ddp: has", "16:tuning.untuned.ddp", "no technique 'ddp'", "ddp-ring"),
    ("  untuned: {ddp-ring: has no settings}\n", "", "8:techniques.0", "'ddp-ring' had 1 trial", None),
    ("training/trials", "training/trails", "13:tuning.suite", "training/trails", "training/trials"),
    ("training/trials", "training/tuned", "13:tuning.suite", "rest on trials themselves", None),
    ("metric: eval_loss", "metric: eval_los", "15:tuning.metric", "does not compare 'eval_los'", "eval_loss"),
]


UNTUNED = "  untuned: {ddp-ring: has no settings}"
OTHERS = [
    # a technique that had no trials may be a tuned one but for one option, or as it is by default
    ("{technique: diloco, as: mean, options: {outer_rate: 0.4, outer_momentum: 0.0}}", None),
    ("{technique: diloco, as: mean, options: {outer_rate: 0.4}}", None),
    ("{technique: diloco, as: mean, options: {outer_rate: 0.3, outer_momentum: 0.0}}", "settings of its own"),
    ("{technique: local-sgd, as: mean, options: {sync_every: 7}}", None),
    ("{technique: edit, as: mean, options: {outer_rate: 0.3, outer_momentum: 0.0}}", "settings of its own"),
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
    assert isinstance(tuning, Tuning) and tuning.trials == 2


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


@pytest.mark.parametrize(("entry", "said"), OTHERS)
def test_what_had_no_trials_has_no_settings_of_its_own(folder: Path, entry: str, said: str | None) -> None:
    changes = [
        ("  - ddp-ring\n", f"  - ddp-ring\n  - {entry}\n"),
        (UNTUNED, UNTUNED.replace("}", ", mean: is an ablation}")),
    ]
    if said is None:
        suite_text.load(folder, *changes, text=TUNED)
        return
    with pytest.raises(UserError, match=said):
        suite_text.load(folder, *changes, text=TUNED)


def test_a_tier_may_use_no_other_settings_than_were_tried(folder: Path) -> None:
    tier = "  full: {techniques: [ddp-ring, {technique: diloco, options: {outer_rate: 0.4}}]}"
    with pytest.raises(UserError, match="nobody tried the settings of 'diloco'") as caught:
        suite_text.load(folder, (tier, tier.replace("0.4", "0.9")), text=TUNED)
    (error,) = caught.value.errors  # type: ignore[attr-defined]
    assert error.where.endswith("11:tiers.full.techniques.1")


def test_trials_are_of_the_same_work(folder: Path) -> None:
    with pytest.raises(UserError, match="settings were tried at batch 8"):
        suite_text.load(folder, ("batch: 8", "batch: 16"), text=TUNED)


def test_one_setting_under_two_labels_is_one_trial(folder: Path) -> None:
    with pytest.raises(UserError, match="'noloco' had 1 trial in training/trials"):
        suite_text.load(folder, ("  - ddp-ring\n", "  - ddp-ring\n  - noloco\n"), text=TUNED)


def test_a_technique_of_the_command_line_is_said_to_be_untuned(folder: Path, tmp_path: Path) -> None:
    own = tmp_path / "mine.py"
    own.write_text(
        '''"""Mine."""
from paceline import technique
from paceline.families.training.api.replica import FlatReplica


@technique(name="mine", family="training", implements=("data_parallel",), summary="mine")
class Mine(FlatReplica):
    """Mine."""
'''
    )
    suite = load_suite(suite_text.write(folder, text=TUNED), extra=[own])
    tuning = with_user_techniques(suite, [own]).model.tuning
    assert isinstance(tuning, Tuning) and tuning.untuned["mine"] == "given on the command line"


CLAIM = """\
claims:
  - id: as-good
    quote: as good
    measure: {metric: eval_loss, technique: diloco, versus: ddp-ring}
    expect: {ratio_at_most: 1.01}
"""
BY_TRIALS = TUNED[TUNED.index("tuning:") :]


@pytest.mark.parametrize("metric", ["eval_loss", "train_loss", "time_to_target"])
def test_a_claim_of_a_loss_says_how_settings_were_chosen(folder: Path, metric: str) -> None:
    claimed = CLAIM.replace("eval_loss", metric)
    with pytest.raises(UserError, match=f"'as-good' claims {metric}, and nothing says how") as caught:
        suite_text.load(folder, (BY_TRIALS, claimed), text=TUNED)
    (error,) = caught.value.errors  # type: ignore[attr-defined]
    assert error.where.endswith("15:claims.0.measure.metric")
    assert "in_words" in (error.expected or "")


def test_a_claim_of_what_no_setting_changes_says_nothing(folder: Path) -> None:
    suite_text.load(folder, (BY_TRIALS, CLAIM.replace("eval_loss", "wire_bytes")), text=TUNED)


def test_trials_and_words_are_both_an_answer(folder: Path) -> None:
    suite_text.load(folder, (BY_TRIALS, BY_TRIALS + CLAIM), text=TUNED)
    said = "tuning: {in_words: nothing was tried}\n"
    tuning = suite_text.load(folder, (BY_TRIALS, said + CLAIM), text=TUNED).model.tuning
    assert isinstance(tuning, TuningInWords)
    assert tuning.in_words == "nothing was tried"


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("{in_words: ''}", "at least 1 character"),
        ("{in_words: nothing, trials: 3}", "unknown key 'in_words'"),
        ("{suite: training/trials, trials: 2}", "the key 'metric' is missing"),
    ],
)
def test_what_is_neither_form_is_named_in_one_of_their_words(folder: Path, given: str, problem: str) -> None:
    with pytest.raises(UserError, match=problem) as caught:
        suite_text.load(folder, (BY_TRIALS, f"tuning: {given}\n"), text=TUNED)
    assert "tuning-" not in str(caught.value)


def test_trials_may_say_in_words_that_they_rest_on_no_trials(folder: Path) -> None:
    path = folder / "suites" / "training" / "trials.yaml"
    path.write_text(TRIALS + "tuning: {in_words: these are the trials}\n")
    assert isinstance(suite_text.load(folder, text=TUNED).model.tuning, Tuning)
