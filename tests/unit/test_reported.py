"""What a name of a self-reported metric says, and where such a figure is found."""

from __future__ import annotations

import pytest

from paceline.base.errors import UserError
from paceline.base.families.family import load_family
from paceline.families.programs.api.program import command_words, reported_lines, variables
from paceline.families.programs.core.reported import (
    ReadingError,
    full_name,
    place_of,
    places_of,
    reported_named,
    value_in,
)

OUTPUT = 'step 1: 900.5 tokens/s\nstep 2: 1000.5 tokens/s\n{"loss": 2.5, "time": {"step": 3}}\nbye\n'


@pytest.mark.parametrize(
    ("name", "unit", "better", "compared", "factor"),
    [
        ("tokens_per_s", "token/s", "higher", "ratio", 1),
        ("train_samples_per_s", "samples/s", "higher", "ratio", 1),
        ("triad_mb_per_s", "B/s", "higher", "ratio", 1e6),
        ("step_s", "s", "lower", "ratio", 1),
        ("step_ms", "s", "lower", "ratio", 1e-3),
        ("peak_gib", "B", "lower", "ratio", 2**30),
        ("valid_accuracy", "ratio", "higher", "difference", 1),
        ("loss", "1", "lower", "difference", 1),
        ("steps", "1", "neither", "difference", 1),
    ],
)
def test_a_name_says_unit_and_direction(
    name: str, unit: str, better: str, compared: str, factor: float
) -> None:
    found = reported_named(full_name(name))
    assert found is not None
    metric = found.metric
    assert (metric.unit, metric.better, metric.compared_by, found.factor) == (unit, better, compared, factor)
    assert load_family("programs").metric(f"reported_{name}") == metric
    assert "self-reported" in metric.contract["verified"]


@pytest.mark.parametrize("name", ["", "Tokens", "a b", "1st", "tokens/s"])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is no name of a metric"):
        full_name(name)
    assert reported_named("reported_" + name) is None


def test_a_name_that_nobody_reports_is_no_metric_of_the_family() -> None:
    family = load_family("programs")
    assert family.has("reported_loss") and family.has("wall_time")
    assert not family.has("loss") and not family.has("reported_Loss")
    with pytest.raises(UserError, match="the programs family has no metric 'loss'"):
        family.metric("loss")
    assert not load_family("kernels").has("reported_loss")


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (r"([0-9.]+) tokens/s", 1000.5),
        (r"[0-9.]+(?= tokens)", 1000.5),
        ("json:loss", 2.5),
        ("json:time.step", 3.0),
        ("json:loss@result.json", 7.0),
    ],
)
def test_a_figure_is_read_from_its_last_place(where: str, value: float) -> None:
    files = {"result.json": '{\n "loss": 7\n}'}
    assert place_of(where).read(OUTPUT, "", files) == value


def test_a_pattern_is_looked_for_among_errors_where_the_output_has_none() -> None:
    assert place_of("loss ([0-9.]+)").read("nothing", "loss 3.5", {}) == 3.5
    assert place_of("loss ([0-9.]+)").read("loss 1", "loss 3.5", {}) == 1.0


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("([0-9.]+) samples/s", "matches nothing that it printed"),
        ("(tokens)", "'tokens', and no finite number"),
        ("json:accuracy", "no JSON object in its output has the key 'accuracy'"),
        ("json:time", "no finite number"),
        ("json:loss@other.json", "the run has not written other.json"),
    ],
)
def test_a_figure_that_is_not_there_is_no_number(where: str, why: str) -> None:
    with pytest.raises(ReadingError, match="no") as error:
        place_of(where).read(OUTPUT, "", {})
    assert why in str(error.value)


@pytest.mark.parametrize("value", ["NaN", "Infinity", "true", "null", '"x"'])
def test_what_json_calls_a_value_need_not_be_a_number(value: str) -> None:
    with pytest.raises(ReadingError):
        place_of("json:loss").read(f'{{"loss": {value}}}', "", {})


def test_json_that_is_cut_off_hides_no_other_line() -> None:
    assert value_in('{"loss": 1}\n{"loss": 2\n{"other": 3}', "loss") == 1


@pytest.mark.parametrize(
    ("where", "why"),
    [("(", "is no regular expression"), ("json:", "names no key"), ("json:@file", "names no key")],
)
def test_a_place_that_cannot_be_read_is_an_error(where: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        places_of({"loss": where})


def test_commands_are_split_as_a_shell_would_and_an_input_stays_one_word() -> None:
    assert command_words("a 'b c' --n={input}", given="1 2") == ("a", "b c", "--n=1 2")
    assert command_words("echo {input} | wc", given="a b", shell=True) == (
        "/bin/sh",
        "-c",
        "echo 'a b' | wc",
    )
    with pytest.raises(ValueError, match="no closing quotation"):
        command_words("a 'b")
    with pytest.raises(ValueError, match="the command is empty"):
        command_words("  ")


def test_variables_and_metrics_are_read_line_by_line_or_refused() -> None:
    assert variables("A=1 B='two words' C=") == {"A": "1", "B": "two words", "C": ""}
    assert variables("") == {}
    with pytest.raises(ValueError, match="'1A=2' is no NAME=VALUE"):
        variables("1A=2")
    assert reported_lines("loss = loss=([0-9.]+)\n\ntokens_per_s = json:rate\n") == {
        "loss": "loss=([0-9.]+)",
        "tokens_per_s": "json:rate",
    }
    with pytest.raises(ValueError, match="'loss' is no NAME = WHERE"):
        reported_lines("loss")
    with pytest.raises(ValueError, match="'loss' is read from two places"):
        reported_lines("loss = a\nloss = b")
