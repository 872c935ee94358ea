"""Whatever a person asks for and does not get is named, and is an error where nothing of it is left."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import record_factory as factory
import suite_text
from click.testing import CliRunner, Result

from paceline.base.errors import UserError, UserErrors
from paceline.base.families.family import family_names, load_family
from paceline.cli import application
from paceline.spec import content
from paceline.spec.own.techniques import declared
from paceline.workflows.nightly.config import load_nightly

TECHNIQUE = """\
from paceline import technique


@technique(name="my-lab/{name}", family="{family}", implements=("{operation}",), summary="mine", requires={requires})
class Mine:
    pass
"""
DEVICES = "needs cuda, not cpu"


def invoke(*arguments: str | Path) -> Result:
    return CliRunner().invoke(application, [str(a) for a in arguments])


def technique(
    folder: Path, family: str, operation: str, *, name: str = "mine", requires: str = "None"
) -> Path:
    path = folder / f"{name}.py"
    text = TECHNIQUE.format(name=name, family=family, operation=operation, requires=requires)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    return suite_text.write(tmp_path)


def refused(*arguments: str | Path) -> str:
    """Return the message of a command that must end as a usage error."""
    result = invoke(*arguments)
    if isinstance(result.exception, UserError):
        return str(result.exception)
    assert result.exit_code == 2, result.output
    return result.stderr


def warned(*arguments: str | Path) -> str:
    """Return what a command that must go on prints beside its output."""
    result = invoke(*arguments)
    assert result.exit_code == 0, result.output
    return result.stderr


def test_a_filter_that_no_point_has_is_an_error_with_the_values_that_there_are(suite: Path) -> None:
    text = refused("plan", suite, "--filter", "size_bytes=5KiB")
    assert "--filter=size_bytes=5KiB: no point of the suites has size_bytes 5KiB" in text
    assert "expected: 4KiB, 1MiB — did you mean '4KiB'?" in text


def test_a_filter_by_what_no_point_has_is_an_error(suite: Path) -> None:
    assert "no point has hidden" in refused("plan", suite, "--filter", "hidden=64")


def test_of_several_values_those_that_no_point_has_are_named(suite: Path) -> None:
    plain = invoke("plan", suite, "--filter", "ranks=2", "--json")
    for given in (["--filter", "ranks=2,3"], ["--filter", "ranks=2", "--filter", "ranks=3"]):
        assert "--filter=ranks=3: no point of the suites has ranks 3" in warned("plan", suite, *given)
        shown = json.loads(invoke("plan", suite, *given, "--json").stdout)
        assert len(shown["warnings"]) == 1
        assert {**shown, "warnings": []} == json.loads(plain.stdout)


def test_filters_that_no_point_fits_together_are_an_error(tmp_path: Path) -> None:
    suite = suite_text.write(
        tmp_path, ("matrix:\n  size_bytes: [4KiB, 1MiB]\n  ranks: [2, 4]\n", ""),
        ("zip: []", "zip:\n  - {size_bytes: [4KiB, 1MiB], ranks: [2, 4]}"),
        ("tiers:\n  quick:\n    matrix: {ranks: [2]}\n    protocol: {launches: 2}\n", ""),
    )  # fmt: skip
    text = refused("plan", suite, "--filter", "size_bytes=4KiB", "--filter", "ranks=4")
    assert "--filter=size_bytes=4KiB --filter=ranks=4: no point fits all filters together" in text


def test_a_suite_that_filters_leave_nothing_of_is_named(suite: Path) -> None:
    text = warned("plan", suite, "collectives/all-gather", "--filter", "suite=collectives/example")
    assert "collectives/all-gather: no point of it is left" in text


def test_a_tier_that_omits_a_suite_is_named_with_its_reason(suite: Path) -> None:
    reason = "the quick tier keeps to all-reduce"
    assert f"collectives/reduce: the quick tier leaves it out: {reason}" in warned(
        "plan", suite, "collectives/reduce", "--tier", "quick"
    )
    for command in (["plan"], ["run", "--dry-run"], ["job", "export", "--output", "nowhere"]):
        text = refused(*command, "collectives/reduce", "--tier", "quick")
        assert reason in text
        assert "fix: --tier=standard" in text


def test_suites_of_which_nothing_runs_on_the_runner_are_an_error_with_the_reason(tmp_path: Path) -> None:
    suite = suite_text.write(tmp_path, ("ranks: [2, 4]", "ranks: [64]"))
    assert "nothing of it runs on local-cpu: " in (text := refused("plan", suite))
    assert "needs 64 ranks" in text


def test_a_technique_of_no_suite_is_an_error_with_the_nearest(suite: Path) -> None:
    assert "did you mean 'ring'?" in refused("plan", suite, "--techniques", "rnig")


def test_a_suite_without_any_of_the_techniques_is_left_out_and_named(suite: Path) -> None:
    given = ("plan", suite, "collectives/all-gather", "--techniques", "star,ring", "--json")
    plan = json.loads(invoke(*given).stdout)
    assert {b["suite"] for b in plan["blocks"]} == {"collectives/all-gather", "collectives/example"}
    given = ("plan", suite, "collectives/churn", "--techniques", "ring", "--json")
    plan = json.loads(invoke(*given).stdout)
    assert {b["suite"] for b in plan["blocks"]} == {"collectives/example"}
    assert plan["warnings"] == ["collectives/churn: it has none of the techniques ring"]


def test_a_technique_whose_every_case_is_skipped_is_an_error_alone_and_a_warning_beside_others(
    tmp_path: Path, suite: Path
) -> None:
    mine = technique(tmp_path, "collectives", "all_reduce", requires='{"devices": ("cuda",)}')
    given = ("plan", suite, "--technique", mine)
    text = refused(*given)
    assert f"{mine}:4: no case of 'my-lab/mine' would run: 4 × {DEVICES}" in text
    both = technique(tmp_path, "collectives", "all_reduce", name="other")
    both.write_text(
        both.read_text() + mine.read_text().partition("\n\n\n")[2].replace("class Mine", "class Two")
    )
    assert f"no case of 'my-lab/mine' would run: 4 × {DEVICES}" in warned("plan", suite, "--technique", both)


def test_a_file_that_techniques_leave_out_is_an_error_that_says_so(tmp_path: Path, suite: Path) -> None:
    mine = technique(tmp_path, "collectives", "all_reduce")
    text = refused("plan", suite, "--technique", mine, "--techniques", "ring")
    assert "fix: --techniques=my-lab/mine beside the others" in text
    assert (
        "my-lab/mine" in invoke("plan", suite, "--technique", mine, "--techniques", "ring,my-lab/mine").stdout
    )


def test_a_file_without_a_technique_is_an_error(tmp_path: Path, suite: Path) -> None:
    path = tmp_path / "empty.py"
    path.write_text("x = 1\n", encoding="utf-8")
    for command in ("plan", "run"):
        assert f"{path}: the file declares no technique" in refused(command, suite, "--technique", path)


def test_a_misspelt_operation_is_an_error_with_its_line_and_the_nearest(tmp_path: Path, suite: Path) -> None:
    path = technique(tmp_path, "training", "dataparallel")
    for given in (("plan", suite, "--technique", path), ("validate", path)):
        text = refused(*given)
        assert f"{path}:4:implements: 'my-lab/mine' implements 'dataparallel'" in text
        assert "did you mean 'data_parallel'?" in text


def test_a_misspelt_family_is_an_error_with_its_line_and_the_nearest(tmp_path: Path, suite: Path) -> None:
    path = technique(tmp_path, "trainig", "data_parallel")
    text = refused("run", suite, "--technique", path)
    assert f"{path}:4:family: " in text
    assert "did you mean 'training'?" in text


def test_a_file_that_fits_none_of_the_suites_is_an_error_that_names_those_it_fits(tmp_path: Path) -> None:
    path = technique(tmp_path, "collectives", "all_reduce")
    text = refused("plan", "collectives/all-gather", "training/disturbed", "--technique", path)
    assert f"{path}:4: 'my-lab/mine' implements all_reduce of collectives, which none of the suites" in text
    assert f"fix: paceline run collectives/all-reduce --technique {path}" in text


def test_a_file_joins_the_suites_that_it_fits_without_a_word_about_the_others(
    tmp_path: Path, suite: Path
) -> None:
    path = technique(tmp_path, "collectives", "all_reduce")
    given = ("plan", suite, "collectives/all-gather", "--technique", path)
    assert warned(*given) == ""
    plan = json.loads(invoke(*given, "--json").stdout)
    joined = {b["suite"] for b in plan["blocks"] for c in b["cases"] if c["label"] == "my-lab/mine"}
    assert joined == {"collectives/example"}
    assert not [s for s in plan["skipped"] if s["label"] == "my-lab/mine"]


def test_a_technique_that_fits_no_suite_beside_one_that_does_is_a_warning(
    tmp_path: Path, suite: Path
) -> None:
    path = technique(tmp_path, "collectives", "all_reduce")
    stranger = technique(tmp_path, "training", "data_parallel", name="stranger").read_text()
    path.write_text(path.read_text() + stranger.partition("\n\n\n")[2].replace("class Mine", "class Two"))
    assert "'my-lab/stranger' implements data_parallel of training" in warned(
        "plan", suite, "--technique", path
    )


@pytest.mark.parametrize("family", [f for f in family_names() if not load_family(f).internal])
def test_every_shipped_technique_implements_operations_of_its_family(family: str) -> None:
    for path in {source.path for source in content.techniques(family).values()}:
        assert declared(path)


def test_a_resumed_run_takes_no_other_selection(tmp_path: Path, suite: Path) -> None:
    text = refused("run", suite, "--resume", "abc", "--tier", "quick", "--results", tmp_path)
    assert "--resume: a run that is resumed has its plan" in text
    assert "--tier would change nothing" in text


def nightly(folder: Path, suites: str) -> Path:
    path = folder / "nightly.yaml"
    entry = f"  - {{suites: [{suites}], runners: [local-cpu], tier: quick}}\n"
    path.write_text(f"nightly: example\nmeasure:\n{entry}", encoding="utf-8")
    return path


def test_a_night_names_the_suites_that_its_tier_omits(tmp_path: Path) -> None:
    path = nightly(tmp_path, "collectives/reduce, collectives/all-reduce")
    text = warned("nightly", "--config", path, "--dry-run", "--results", tmp_path / "new")
    assert "collectives/reduce on local-cpu (quick): left out: the quick tier keeps to all-reduce" in text


def test_a_night_whose_entry_has_nothing_left_is_an_error(tmp_path: Path) -> None:
    path = nightly(tmp_path, "collectives/reduce")
    with pytest.raises(
        (UserError, UserErrors), match=r"nightly.yaml:3:measure.0: the quick tier leaves out all"
    ):
        load_nightly(path)


def test_a_night_of_which_nothing_runs_on_its_runners_is_an_error_with_the_reason(tmp_path: Path) -> None:
    suite = suite_text.write(tmp_path, ("ranks: [2, 4]", "ranks: [64]"), ("    matrix: {ranks: [2]}\n", ""))
    path = nightly(tmp_path, str(suite))
    text = refused("nightly", "--config", path, "--dry-run", "--results", tmp_path / "new")
    assert "nothing of it runs here: " in text
    assert "needs 64 ranks" in text


@pytest.fixture
def store(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    factory.simple(root)
    return root


@pytest.mark.parametrize(
    "arguments",
    [
        ["compare", "--metrics", "latncy"],
        ["compare", "latest", "latest", "--metrics", "latncy"],
        ["compare", "ring", "native", "--by", "technique", "--metrics", "latncy"],
        ["trend", "--metric", "latncy"],
        ["export", "csv", "--metrics", "latncy"],
    ],
    ids=" ".join,
)
def test_a_metric_that_no_run_has_is_an_error_with_the_nearest(arguments: list[str], store: Path) -> None:
    assert "did you mean 'latency'?" in refused(*arguments, "--results", store)


@pytest.mark.parametrize("option", [["--metric", "latncy"], ["--claim", "nope"]], ids=" ".join)
def test_a_waiver_of_what_no_run_has_is_an_error(option: list[str], store: Path) -> None:
    given = ["store", "waive", "collectives/example", "--technique", "ring", "--reason", "x"]
    assert f"has no {option[0][2:]} '{option[1]}'" in refused(
        *given, "--until", "2099-01-01", *option, "--results", store
    )


@pytest.mark.parametrize(
    "arguments",
    [["compare"], ["trend"], ["claims", "list"], ["claims", "check"], ["export", "csv"], ["site", "build"]],
    ids=" ".join,
)
def test_a_store_that_does_not_exist_is_an_error(arguments: list[str], tmp_path: Path) -> None:
    assert "no such store" in refused(*arguments, "--results", tmp_path / "nope")


@pytest.mark.parametrize(
    "arguments",
    [
        ["compare", "--by", "technique"],
        ["compare", "--by", "run"],
        ["compare", "--run", "latest"],
        ["compare", "latest", "latest", "--run", "latest"],
        ["compare", "--force"],
        ["compare", "--json", "--format", "md"],
    ],
    ids=" ".join,
)
def test_an_option_of_compare_that_would_change_nothing_is_an_error(
    arguments: list[str], store: Path
) -> None:
    refused(*arguments, "--results", store)


@pytest.mark.parametrize(
    ("option", "nearest"),
    [(["--family", "colectives"], "collectives"), (["--verdict", "reproducd"], "reproduced")],
)
def test_a_family_or_verdict_of_no_claim_is_an_error(option: list[str], nearest: str, store: Path) -> None:
    assert f"did you mean '{nearest}'?" in refused("claims", "list", *option, "--results", store)


def test_a_choice_of_claims_that_is_empty_says_so(store: Path) -> None:
    given = ("claims", "list", "--family", "serving", "--verdict", "outside", "--results", store)
    assert "no paper of serving is 'outside'" in warned(*given)
    assert json.loads(invoke(*given, "--json").stdout)["warnings"] == ["no paper of serving is 'outside'"]


def test_an_export_of_a_metric_that_a_technique_lacks_is_an_error(store: Path) -> None:
    factory.write(store, run := factory.make_run(), factory.launches(run, "native", [1.0, 1.1]))
    factory.write(store, run := factory.make_run(), factory.launches(run, "tree", [1.0, 1.1]))
    ids = [line.split()[0] for line in invoke("store", "ls", "--results", store).stdout.splitlines()]
    text = warned("export", "csv", *ids, "--techniques", "tree", "--results", store)
    assert "nothing fits --metrics and --techniques in " in text


def own_claims(folder: Path) -> Path:
    """Return a store with a run of a user's suite, which has a bound of its own and a paper's claim."""
    measure = {"metric": "latency", "technique": "ring"}
    bound = {
        "id": "mine",
        "quote": "my bound",
        "scope": "bound",
        "measure": measure,
        "expect": {"value_at_most": 9.0},
    }
    paper = {**bound, "id": "theirs", "paper": "pccl", "scope": "qualitative"}
    facts = {**factory.make_run().suites[0], "suite": "collectives/mine", "claims": [bound, paper]}
    run, root = factory.make_run(suites=[facts]), folder / "store"
    factory.write(root, run, factory.launches(run, "ring", [2.0] * 5, suite="collectives/mine"))
    return root


def test_claims_of_a_users_own_suite_show_wherever_commands_tell_claims(tmp_path: Path) -> None:
    root = own_claims(tmp_path)
    checked = json.loads(invoke("claims", "check", "--json", "--results", root).stdout)
    own = {c["claim"]: c["verdict"] for c in checked if c["suite"] == "collectives/mine"}
    assert own == {"mine": "conforms", "theirs": "conforms"}
    listed = json.loads(invoke("claims", "list", "--json", "--results", root).stdout)
    assert "mine" in {c["claim"] for c in listed["bounds"] if c["suite"] == "collectives/mine"}
    (row,) = [p for p in listed["papers"] if p["slug"] == "pccl"]
    assert "theirs" in {c["claim"] for c in row["claims"]}
    assert "bounds of the suites' own: " in invoke("claims", "list", "--results", root).stdout


@pytest.mark.full  # a whole site; the commands' answers are in the gate
def test_claims_of_a_users_own_suite_show_on_the_site(tmp_path: Path) -> None:
    root, site = own_claims(tmp_path), tmp_path / "site"
    assert invoke("site", "build", "--results", root, "--output", site).exit_code == 0
    assert "my bound" in (site / "claims.html").read_text(encoding="utf-8")
