"""Names that were changed: old ones are read, and identities stay what they were."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import click
import pytest
import record_factory
from click.testing import CliRunner

from paceline.base import aliases
from paceline.base.aliases import (
    METRICS,
    OPTIONS,
    PARAMETERS,
    SUITES,
    TECHNIQUES,
    VALUES,
    Renamed,
    RenamedValues,
)
from paceline.base.errors import UserErrors
from paceline.base.families.contracts import contract_id
from paceline.base.families.family import family_names, load_family
from paceline.cli import application
from paceline.cli.options import renamed_option
from paceline.cli.reproducing.earlier_code import concurrent_option
from paceline.records.earlier_runs import scan
from paceline.records.format.earlier_names import named_today
from paceline.records.format.record_file import content_of
from paceline.records.identity import record_id, series_key
from paceline.records.store.folder import read_record, record_paths
from paceline.spec import content
from paceline.spec.files import yaml_file
from paceline.spec.files.earlier_names import suite_named_today
from paceline.spec.plans.plan import Selection, make_plan
from paceline.spec.profiles.profile import load_runner
from paceline.spec.suites.grammar import Versus
from paceline.spec.suites.suite_file import load_suite
from paceline.workflows.nightly.attempts import note_attempt, read_attempts

TABLES = [
    SUITES,
    METRICS,
    aliases.SUITE_KEYS,
    OPTIONS,
    *TECHNIQUES.values(),
    *PARAMETERS.values(),
    *VALUES.values(),
]


@pytest.mark.parametrize("names", TABLES)
def test_a_name_is_changed_once_and_two_never_become_one(names: Renamed | RenamedValues) -> None:
    assert not set(names.table) & set(names.table.values())
    assert len(set(names.table.values())) == len(names.table)


def test_no_old_name_stands_for_something_today() -> None:
    assert not set(SUITES.table) & set(content.suite_files())
    assert set(SUITES.table.values()) <= set(content.suite_files())
    for family, names in TECHNIQUES.items():
        assert not set(names.table) & set(content.techniques(family))
    metrics = {m.name for f in family_names() for m in load_family(f).metrics}
    assert not set(METRICS.table) & metrics
    assert set(METRICS.table.values()) <= metrics
    for (family, parameter), values in VALUES.items():
        found = load_family(family).parameter(parameter)
        assert found is not None
        assert all(found.parse(new) == new for new in values.table.values())
        assert not set(values.table) & set(found.choices)
    for family, names in PARAMETERS.items():
        known = {p.name for p in load_family(family).parameters}
        assert not set(names.table) & known
        assert set(names.table.values()) <= known


def test_a_record_of_an_older_version_is_read_by_the_names_of_today() -> None:
    measurement = {
        "line": "measurement",
        "family": "training",
        "suite": "training/bad-shards",
        "technique": "alone",
        "label": "alone",
    }
    assert named_today(measurement) == measurement | {
        "suite": "training/corrupted-data",
        "technique": "no-communication",
        "label": "no-communication",
    }
    side = {"metric": "latency", "technique": "alone", "versus": {"technique": "alone", "where": {}}}
    suite = {
        "suite": "training/drift",
        "family": "training",
        "why": "It matters.",
        "baseline": "alone",
        "claims": [{"id": "c", "why": "So.", "measure": side}],
        "tuning": {"suite": "training/disturbed", "metric": "latency", "untuned": {"alone": "nothing"}},
    }
    skipped = {"suite": "training/disturbed", "label": "alone", "params": {}, "reason": "so"}
    run = {
        "line": "run",
        "suites": [suite],
        "plan": {"skipped": [skipped]},
        "techniques": {"training/alone": {"file": "alone.py"}},
    }
    found = named_today(run)
    assert found["suites"][0]["suite"] == "training/gradient-consistency"
    assert found["suites"][0]["description"] == "It matters."
    assert found["suites"][0]["baseline"] == "no-communication"
    (claim,) = found["suites"][0]["claims"]
    assert claim["description"] == "So."
    assert claim["measure"]["technique"] == claim["measure"]["versus"]["technique"] == "no-communication"
    assert found["suites"][0]["tuning"] == {
        "suite": "training/stragglers-and-dropout",
        "metric": "latency",
        "untuned": {"no-communication": "nothing"},
    }
    assert found["plan"]["skipped"][0]["label"] == "no-communication"
    assert list(found["techniques"]) == ["training/no-communication"]
    assert named_today(found) == found


def test_what_is_no_record_is_left_to_the_check_of_records() -> None:
    for line in (
        {"line": "measurement", "family": 3},
        {"line": "run", "suites": [7], "plan": 1},
        {"line": "event"},
    ):
        assert named_today(line) == line


def test_metrics_of_an_older_record_are_those_of_today() -> None:
    measurement = {
        "line": "measurement",
        "family": "training",
        "metric": {"name": "token_s", "unit": "s"},
        "absent": {"idle_share": "one rank", "loss": "no"},
        "accounting": {"votes": {"critical_tokens": [1]}},
    }
    found = named_today(measurement)
    assert found["metric"] == {"name": "time_per_token", "unit": "s"}
    assert found["absent"] == {"comm_time_fraction": "one rank", "loss": "no"}
    assert found["accounting"] == {"votes": {"critical_path_tokens": [1]}}
    side = {"metric": "token_s", "technique": "ddp", "versus": {"metric": "token_s"}}
    suite = {
        "suite": "training/x",
        "family": "training",
        "metrics": {"token_s": 0.02},
        "claims": [{"measure": side}],
    }
    (facts,) = named_today({"line": "run", "suites": [suite]})["suites"]
    assert facts["metrics"] == {"time_per_token": 0.02}
    measured = facts["claims"][0]["measure"]
    assert measured["metric"] == measured["versus"]["metric"] == "time_per_token"


def test_a_later_parameter_at_its_default_is_no_part_of_an_identity() -> None:
    for family, later in aliases.LATER.items():
        defaults = {p.name: p.default for p in load_family(family).parameters}
        assert later == {name: defaults[name] for name in later}
    told = {"rate_per_s": 4.0, "trace_turns": "first", "trace_min_tokens": 4, "tokenizer": None}
    assert aliases.params_first("serving", told) == {"rate_per_s": 4.0}
    assert aliases.params_first("serving", told | {"trace_min_tokens": 8}) == {
        **{"rate_per_s": 4.0, "trace_min_tokens": 8}
    }


def test_parameters_of_an_older_record_are_those_of_today() -> None:
    params = {"ranks": 2, "away": "nothing", "learning": "measured", "beside": "bare-script", "steps": 40}
    today = {
        "ranks": 2,
        "absent_rank": "none",
        "require_convergence": False,
        "reference_timer": "bare-script",
        "steps": 40,
    }
    found = named_today({"line": "measurement", "family": "training", "params": params})
    assert found["params"] == today
    assert aliases.params_first("training", today) == params
    assert aliases.params_first("training", today | {"require_convergence": True})["learning"] == "required"
    assert aliases.params_first("training", {"ranks": 1, "evaluations": 0}) == {"ranks": 1, "evaluations": 0}
    # a suite of calibration lies in another folder than its family's
    run = {
        "line": "run",
        "suites": [{"suite": "calibration/bare-script", "family": "training"}],
        "plan": {"skipped": [{"suite": "calibration/bare-script", "params": params}]},
    }
    assert named_today(run)["plan"]["skipped"][0]["params"] == today


@pytest.mark.parametrize(
    ("suite", "given", "note"),
    [
        (
            "training/stragglers-and-dropout",
            "away=nothing",
            "'away=nothing' is called 'absent_rank=none' now",
        ),
        ("training/churn", "fault=nothing", "'fault=nothing' is called 'fault=none' now"),
        (
            "training/ablations",
            "learning=measured",
            "'learning=measured' is called 'require_convergence=false' now",
        ),
        ("serving/fairness", "heavy=4", "'heavy=4' is called 'heavy_tenant_factor=4' now"),
    ],
)
def test_old_filters_are_known_on_the_command_line(suite: str, given: str, note: str) -> None:
    told = CliRunner().invoke(application, ["plan", suite, "--filter", given, "--json"])
    assert told.exit_code == 0, told.output
    assert f"the filter {note}" in told.stderr
    assert "is called" not in CliRunner().invoke(application, ["plan", "training/churn", "--json"]).stderr


OLD_PARAMETERS = """
suite: training/old
version: 1
family: training
description: It was written long ago.
workload: {op: data_parallel, size: nano, learning: measured, beside: nothing}
baseline: ddp
techniques: [ddp, ddp-ring]
matrix:
  ranks: [2]
  away: [nothing, last-rank]
exclude: [{technique: ddp-ring, away: last-rank}]
tuning: {in_words: nothing}
metrics: {eval_loss: {}}
claims:
  - id: one
    quote: Nothing is faster.
    description: So it is.
    measure: {metric: eval_loss, technique: ddp-ring, versus: {where: {away: nothing}}, where: {away: last-rank}}
    expect: {difference_at_most: 1.0}
"""


def test_parameters_and_values_of_a_suite_that_was_written_long_ago_are_those_of_today(
    tmp_path: Path,
) -> None:
    path = tmp_path / "old.yaml"
    path.write_text(OLD_PARAMETERS)
    suite = load_suite(path)
    assert suite.model.workload["require_convergence"] is False
    assert suite.model.workload["reference_timer"] == "none"
    assert suite.model.matrix["absent_rank"] == ["none", "last-rank"]
    assert suite.model.exclude == [{"technique": "ddp-ring", "absent_rank": "last-rank"}]
    (claim,) = suite.model.claims
    assert isinstance(claim.measure.versus, Versus)
    assert claim.measure.where == {"absent_rank": "last-rank"}
    assert claim.measure.versus.where == {"absent_rank": "none"}
    assert f"{path}:6: 'measured' is called 'false' now" in suite.located.notes
    assert f"{path}:11: 'away' is called 'absent_rank' now" in suite.located.notes
    today = tmp_path / "today.yaml"
    today.write_text(
        OLD_PARAMETERS.replace("learning: measured", "require_convergence: false")
        .replace("beside", "reference_timer")
        .replace("away", "absent_rank")
        .replace(": nothing", ": none")
        .replace("[nothing,", "[none,")
    )
    runner = load_runner(content.find_runner("local-cpu"))
    plans = [make_plan([load_suite(p)], runner, Selection(tier="full")).data for p in (path, today)]
    assert plans[0]["blocks"] == plans[1]["blocks"]


def test_what_earlier_runs_took_counts_for_a_suite_that_is_called_otherwise_now() -> None:
    head = (
        b'{"line":"measurement","record_id":"r","run_id":"u","suite":"training/drift","suite_version":1,'
        b'"family":"training","block":"b","case_id":"c"}'
    )
    run = record_factory.make_run().model_dump_json().encode()
    found = scan([run, head])
    assert found is not None
    assert found.suites == ["training/gradient-consistency"]
    assert found.blocks["b"].suite == "training/gradient-consistency"


def test_an_attempt_of_a_night_is_one_at_the_suite_by_its_name_of_today(tmp_path: Path) -> None:
    note_attempt(tmp_path, ("training/drift", "local-cpu", "quick"), ["b"], "2026-11-01")
    note_attempt(tmp_path, ("training/precision", "local-cpu", "quick"), ["b"], "2026-11-02")
    assert read_attempts(tmp_path) == {
        (("training/gradient-consistency", "local-cpu", "quick"), "b"): "2026-11-01",
        (("training/precision", "local-cpu", "quick"), "b"): "2026-11-02",
    }


def test_a_waiver_of_an_older_version_is_about_what_is_called_otherwise_now() -> None:
    data = {"suite": "training/bad-shards", "technique": "alone", "metric": "token_s", "reason": "known"}
    found = named_today({"line": "event", "kind": "waiver", "data": data})["data"]
    assert found == data | {
        "suite": "training/corrupted-data",
        "technique": "no-communication",
        "metric": "time_per_token",
    }
    chosen = {"line": "event", "kind": "baseline_set", "data": {"suites": ["training/drift", "training/own"]}}
    assert named_today(chosen)["data"]["suites"] == ["training/gradient-consistency", "training/own"]


def test_published_records_with_old_names_are_read_and_their_identities_still_fit() -> None:
    root = content.shipped_root() / "results" / "published"
    texts = {path: content_of(path) for path in record_paths(root)}
    read: set[str] = set()
    for old, new in METRICS.table.items():
        holding = [path for path, text in texts.items() if f'"name":"{old}"'.encode() in text]
        if not holding:
            continue
        record = read_record(min(holding, key=lambda path: len(texts[path])))
        found = [m for m in record.measurements if m.metric.name == new]
        assert found
        for m in found:
            today = contract_id(m.family, load_family(m.family).metric(new))
            key = series_key(m.family, m.case_id, m.technique, record.run.host_class, today)
            assert m.metric.contract_id != today or m.series_key == key
            assert m.record_id == record_id(m.family, m.run_id, m.block, m.label, m.launch, new)
        read.add(old)
    assert len(read) >= 10


def test_a_renamed_metric_keeps_its_contract() -> None:
    """The ids are those that published records have, and a later version's is that of the first name, too."""
    metric = load_family("training").metric("time_per_token")
    assert contract_id("training", metric) == "77bf770db335"
    assert contract_id("training", load_family("training").metric("bare_time_per_token")) == "d79a6c4e7575"
    before = replace(metric, name="token_s")
    assert contract_id("training", metric, 2) == contract_id("training", before, 2) != "77bf770db335"


@pytest.mark.parametrize("command", [["compare", "--metrics"], ["trend", "--metric"], ["show"]])
def test_an_old_name_of_a_metric_is_known_on_the_command_line(command: list[str], tmp_path: Path) -> None:
    results = ["--results", str(record_factory.simple(tmp_path).parents[1])]
    told = CliRunner().invoke(application, [*command, "hops", *results])
    assert "the metric 'hops' is called 'cross_rank_moves_per_token' now" in told.stderr


def test_identities_are_digests_over_first_names() -> None:
    for family, names in TECHNIQUES.items():
        for old, new in names.table.items():
            assert record_id(family, "r", "b", old, 0, "m") == record_id(family, "r", "b", new, 0, "m")
            assert series_key(family, "c", old, None, "d") == series_key(family, "c", new, None, "d")
    for one, other in itertools.combinations(("alone", "ddp", "diloco"), 2):
        assert record_id("training", "r", "b", one, 0, "m") != record_id("training", "r", "b", other, 0, "m")


SUITE = """
suite: training/old
version: 1
family: training
why: It was written long ago.
workload: {op: data_parallel, size: nano}
baseline: ddp
techniques: [ddp, {technique: alone, as: alone}]
matrix: {ranks: [2]}
exclude: [{technique: alone, ranks: 2}]
tuning: {in_words: nothing}
metrics: {token_s: {}}
claims:
  - id: one
    quote: Nothing is faster.
    why: So it is.
    measure: {metric: token_s, technique: ddp, versus: {technique: alone}}
    expect: {ratio_at_least: 1.0}
"""


def test_a_suite_that_was_written_long_ago_is_read_and_says_what_is_called_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "old.yaml"
    path.write_text(SUITE)
    suite = load_suite(path)
    assert suite.model.description == "It was written long ago."
    (claim,) = suite.model.claims
    assert claim.description == "So it is."
    assert isinstance(claim.measure.versus, Versus)
    assert claim.measure.versus.technique == "no-communication"
    assert [e.label for e in suite.entries(suite.model.techniques, "")] == ["ddp", "no-communication"]
    assert suite.model.exclude == [{"technique": "no-communication", "ranks": 2}]
    assert f"{path}:5: 'why' is called 'description' now" in suite.located.notes
    assert f"{path}:16: 'why' is called 'description' now" in suite.located.notes
    assert sum("'alone' is called 'no-communication' now" in note for note in suite.located.notes) == 4


def test_a_mistake_in_an_old_suite_is_named_by_the_line_that_it_is_on(tmp_path: Path) -> None:
    path = tmp_path / "old.yaml"
    path.write_text(SUITE.replace("why: It was", "why: 3 # It was").replace("id: one", "id: One"))
    with pytest.raises(UserErrors) as found:
        load_suite(path)
    assert f"{path}:5:description" in str(found.value) or f"{path}:14:claims.0.id" in str(found.value)


OPTION_CALLS = [
    ("--share", ["run", "collectives/all-reduce", "--dry-run", "--runner", "fake"]),
    ("--partly", ["job", "collect", "no-such-folder"]),
    ("--lift", ["doctor"]),
]


@pytest.mark.parametrize(("old", "call"), OPTION_CALLS)
def test_an_old_option_means_the_new_one_and_warns(
    old: str, call: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PACELINE_STATE", str(tmp_path))
    value = ["some-runner"] if old == "--lift" else []
    new = OPTIONS.today(old)
    before = CliRunner().invoke(application, [*call, old, *value])
    after = CliRunner().invoke(application, [*call, new, *value])
    assert f"the option '{old}' is called '{new}' now" in before.stderr
    assert new not in after.stderr
    assert (before.exit_code, before.stdout) == (after.exit_code, after.stdout)
    shown = CliRunner().invoke(application, [*call[: 2 if call[0] == "job" else 1], "--help"]).stdout
    assert new in shown
    assert f"{old} " not in shown


def test_an_old_option_reaches_the_command() -> None:
    @click.command()
    @renamed_option("--allow-partial", is_flag=True)
    @renamed_option("--unquarantine", default=None)
    def command(allow_partial: bool, unquarantine: str | None) -> None:
        click.echo(f"{allow_partial} {unquarantine}")

    for given, found in (
        ([], "False None"),
        (["--partly"], "True None"),
        (["--lift", "a"], "False a"),
        (["--allow-partial", "--unquarantine", "b"], "True b"),
        (["--lift", "a", "--unquarantine", "b"], "False b"),
    ):
        assert CliRunner().invoke(command, given).stdout == f"{found}\n"


def test_earlier_code_is_called_by_the_option_that_it_knows(tmp_path: Path) -> None:
    options = tmp_path / "src" / "paceline" / "cli" / "options.py"
    options.parent.mkdir(parents=True)
    options.write_text('"--share"')
    assert concurrent_option(tmp_path) == "--share"
    options.write_text('"--allow-concurrent"')
    assert concurrent_option(tmp_path) == "--allow-concurrent"
    (options.parent / "shared").mkdir()
    assert concurrent_option(tmp_path) == "--allow-concurrent"
    options.rename(options.parent / "shared" / "options.py")
    assert concurrent_option(tmp_path) == "--allow-concurrent"


def test_old_names_of_suites_and_techniques_are_known_on_the_command_line() -> None:
    told = CliRunner().invoke(
        application, ["plan", "training/precision", "--techniques", "alone", "--tier", "full", "--json"]
    )
    assert told.exit_code == 0, told.output
    told = CliRunner().invoke(application, ["plan", "kernels/tile-choice", "--tier", "quick"])
    assert "the suite 'kernels/tile-choice' is called 'kernels/gemm-autotuning' now" in told.stderr


def test_what_was_read_keeps_its_old_names_beside_what_is_made_of_it() -> None:
    text = "why: old\nfamily: kernels\nclaims: [{why: because, measure: {metric: time}}]\n"
    read = yaml_file.parse(text, Path("suite.yaml"))
    today = suite_named_today(read)
    assert today.data == {
        "description": "old",
        "family": "kernels",
        "claims": [{"description": "because", "measure": {"metric": "time"}}],
    }
    assert read == yaml_file.parse(text, Path("suite.yaml"))
    assert len(today.notes) == 2
    assert suite_named_today(today) is today
