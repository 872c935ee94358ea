"""The command line: quick and light to start, and every mistake ends with a message and its documented exit code."""

from __future__ import annotations

import importlib
import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import record_factory as factory
import suite_text
from click.testing import CliRunner, Result
from figures import Figures

from paceline.base.errors import (
    EXIT_CODES,
    EXIT_FAULT,
    EXIT_INFRASTRUCTURE,
    EXIT_INTERRUPTED,
    EXIT_UNREAD,
    EXIT_USAGE,
    PacelineError,
    UserError,
)
from paceline.base.families.family import load_family
from paceline.cli import COMMANDS, application, main
from paceline.cli.options import print_json
from paceline.records.format.record_file import run_id_of

HEAVY = (
    "torch",
    "pandas",
    "scipy",
    "numpy",
    "pyarrow",
    "pydantic",
    "yaml",
    "rich",
    "jinja2",
    "tabulate",
    "psutil",
)


def paceline(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "paceline.cli", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **environment},
    )


def invoke(*arguments: str | Path) -> Result:
    return CliRunner().invoke(application, [str(a) for a in arguments])


def processor_seconds(*arguments: str) -> float:
    """Return the least processor time of three starts: waiting for other processes does not count."""
    found = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], capture_output=True, check=True, timeout=60)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(found)


@pytest.mark.measured
def test_help_is_instant(figure: Figures) -> None:
    more_s = processor_seconds("-m", "paceline.cli", "--help") - processor_seconds("-c", "pass")
    figure("processor time of help beyond Python's own", more_s, unit="s", most=0.3)


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['paceline', '--help']\n"
        "from paceline.cli import main\n"
        "try: main()\nexcept SystemExit as end: assert not end.code\n"
        f"sys.stderr.write(' '.join(m for m in {HEAVY!r} if m in sys.modules))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert result.stderr == ""
    assert "Commands:" in result.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan", "collectives/all-reduce", "--json"],
        ["validate"],
        ["list", "techniques"],
        ["show", "ring"],
        ["store", "ls", "--results", "."],
        ["compare", "--help"],
        ["claims", "list", "--results", "."],
    ],
)
@pytest.mark.one_in(3)
def test_the_control_plane_never_imports_torch(arguments: list[str], tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"  # any import of it now raises
        f"sys.argv = ['paceline', *{arguments!r}]\n"
        "from paceline.cli import main\nmain()"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=tmp_path, check=False
    )
    assert result.returncode == 0, result.stderr


def every_command() -> list[list[str]]:
    found = []
    for name in COMMANDS:
        found.append([name])
        module, _, attribute = COMMANDS[name][0].partition(":")
        command = getattr(importlib.import_module(f"paceline.cli.{module}"), attribute)
        if isinstance(command, click.Group):
            found += [[name, child] for child in command.commands]
    return found


@pytest.mark.parametrize("command", every_command(), ids=" ".join)
def test_every_command_explains_itself_and_its_options(command: list[str]) -> None:
    result = invoke(*command, "--help")
    assert result.exit_code == 0, result.output
    assert result.output.startswith("Usage: ")
    current: Any = application
    for name in command:
        current = current.get_command(click.Context(current), name)
    assert current.help
    undocumented = [
        p.name
        for p in current.params
        if isinstance(p, click.Option) and not (p.help or p.type.name == "choice")
    ]
    assert undocumented == []


def test_the_overview_lists_every_command_and_exit_code() -> None:
    output = " ".join(invoke("--help").output.split())
    assert all(f" {name} " in output for name in COMMANDS)
    assert all(f"{code} {text}" in output for code, text in EXIT_CODES.items())
    assert invoke("--version").output.startswith("paceline, version ")


MISTAKES = [
    (["plann"], "did you mean 'plan'?"),
    (["plan"], "Missing argument"),
    (["plan", "collectives/all-reduc"], "did you mean 'collectives/all-reduce'?"),
    (["plan", "collectives/all-reduce", "--tier", "quik"], "'quik' is not one of"),
    (["plan", "collectives/all-reduce", "--filter", "x"], "expected: key=value"),
    (
        ["plan", "collectives/all-reduce", "--filter", "ranks=2,4,size_bytes=4096"],
        "--filter ranks=2,4 --filter size_bytes=4096",
    ),
    (["plan", "collectives/all-reduce", "--filter", "rank=2"], "did you mean 'ranks'?"),
    (["plan", "collectives/all-reduce", "--techniques", "rng"], "did you mean 'ring'?"),
    (["plan", "collectives/all-reduce", "--runner", "locl-cpu"], "did you mean 'local-cpu'?"),
    (["plan", "collectives/all-reduce", "--launches", "0"], "must be greater than or equal to 1"),
    (["plan", "collectives/all-reduce", "--launches", "9..4"], "the range ends before it begins"),
    (["plan", "collectives/all-reduce", "--launches", "2..9"], "needs 3 launches before its first look"),
    (
        ["plan", "collectives/all-reduce", "--launches", "5", "--budget", "1min"],
        "a fixed number of launches (5) takes no budget; give a range such as 5..60",
    ),
    (["plan", "collectives/all-reduce", "--budget", "soon"], "Invalid value for '--budget'"),
    (["run"], "no suite given"),
    (["run", "collectives/all-reduce", "--filter", "ranks=77"], "no point of the suites has ranks 77"),
    (["plan", "collectives/all-reduce", "--filter", "ranks=77"], "no point of the suites has ranks 77"),
    (["show", "latency"], "a metric of several families"),
    (["run", "--resume", "/abs/path"], "fits 0 interrupted runs"),
    (["run", "--resume", "none", "--results", "{}"], "fits 0 interrupted runs"),
    (["compare", "none", "--results", "{}"], "has no run 'none'"),
    (["compare", "latest", "--margin", "nan", "--results", "{}"], "'nan' is not a number of at least 0"),
    (["gate", "latest", "--margin", "-1", "--results", "{}"], "'-1' is not a number of at least 0"),
    (["gate", "--results", "{}"], "has no run 'latest'"),
    (["show", "rin"], "did you mean"),
    (["list", "things"], "'things' is not one of"),
    (["schema", "things"], "'things' is not one of"),
    (["validate", "{}/none.yaml"], "no such file"),
    (["store", "verify", "--results", "{}/none"], "no such store"),
    (["store", "ls", "--results", "{}/none"], "no such store"),
    (["store", "merge", "{}/none", "--results", "{}"], "no such store or record"),
    (["store", "retract", "none", "--reason", "x", "--results", "{}"], "has no run 'none'"),
    (["store", "retract", "none", "--results", "{}"], "Missing option '--reason'"),
    (["job", "collect", "{}", "--results", "{}"], "not a job folder"),
    (["job", "export", "collectives/all-reduce", "--output", "{}"], "exists already"),
]


@pytest.mark.parametrize(
    ("arguments", "said"), MISTAKES, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_bad_input_ends_with_exit_code_2_and_says_what_is_expected(
    arguments: list[str], said: str, tmp_path: Path
) -> None:
    result = invoke(*(a.format(tmp_path) for a in arguments))
    error = result.exception
    code, text = (
        (error.exit_code, str(error))
        if isinstance(error, PacelineError)
        else (result.exit_code, result.output)
    )
    assert (code, said in text) == (2, True), f"{error!r} {text}"


def test_an_error_goes_to_the_error_stream_without_a_traceback(tmp_path: Path) -> None:
    path = suite_text.write(tmp_path, ("4KiB", "4KB5"), ("baseline: native", "baseline: nativ"))
    result = paceline("plan", path)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(f"error: {path}:11:matrix.size_bytes.0: ")
    assert f"\n{path}:6:baseline: " in result.stderr
    assert "did you mean 'native'?" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_missing_content_folder_is_named(tmp_path: Path) -> None:
    result = paceline("list", "suites", PACELINE_CONTENT=str(tmp_path / "none"))
    assert result.returncode == 2
    assert "PACELINE_CONTENT: the content folder" in result.stderr


def test_validate_lists_mistakes_as_text_and_as_json(tmp_path: Path) -> None:
    path = suite_text.write(tmp_path, ("[2, 4]", "[2]\n  root: [0]"))
    text = invoke("validate", path)
    assert text.exit_code == 2
    assert f"{path}:13:matrix.root" in text.output
    shown = json.loads(invoke("validate", path, "--json").output)
    assert (shown["checked"], len(shown["errors"])) == (1, 1)
    assert "'root' has no meaning for op all_reduce" in shown["errors"][0]["what"]
    assert invoke("validate", suite_text.write(tmp_path)).exit_code == 0


@pytest.mark.parametrize("what", ["suite", "runner", "record"])
def test_schemas_are_printed_as_json(what: str) -> None:
    shown = json.loads(invoke("schema", what).output)
    assert shown["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def test_a_plan_is_printed_as_json_and_as_text() -> None:
    arguments = [
        "plan",
        "collectives/all-reduce",
        "--tier",
        "quick",
        "--techniques",
        "ring",
        "--filter",
        "size_bytes=4KiB",
    ]
    shown = json.loads(invoke(*arguments, "--json").output)
    labels = {c["label"] for b in shown["blocks"] for c in b["cases"]}
    assert labels == {"native", "ring"}
    assert invoke(*arguments).output.startswith("2 cases in 1 block, ")


@pytest.mark.parametrize(
    "name", ["collectives/all-reduce", "ring", "local-cpu", "pccl", "collectives/latency", "link_bytes"]
)
def test_things_are_shown_by_name(name: str) -> None:
    assert isinstance(json.loads(invoke("show", name, "--json").output), dict)


def test_a_metric_of_several_families_is_asked_for_by_family() -> None:
    refused = invoke("show", "wire_bytes").exception
    assert isinstance(refused, UserError)
    assert "collectives/wire_bytes, training/wire_bytes" in str(refused)


@pytest.mark.parametrize("what", ["suites", "techniques", "runners", "families", "metrics", "papers"])
def test_things_are_listed_with_what_they_are_for(what: str) -> None:
    rows = json.loads(invoke("list", what, "--json").output)
    assert rows
    assert all(row["name"] and row["about"] for row in rows)


def test_internal_families_stay_out_of_lists() -> None:
    names = [row["name"] for row in json.loads(invoke("list", "families", "--json").output)]
    assert "collectives" in names
    assert all(not load_family(name).internal for name in names)


def test_a_store_is_listed_verified_and_corrected(tmp_path: Path) -> None:
    first, second = factory.simple(tmp_path), factory.simple(tmp_path)
    rows = json.loads(invoke("store", "ls", "--results", tmp_path, "--json").output)
    assert [r["run_id"] for r in rows] == [run_id_of(first), run_id_of(second)]
    assert invoke("store", "verify", "--results", tmp_path).output == "2 records, 0 problems\n"
    assert (
        invoke(
            "store", "retract", run_id_of(first), "--reason", "wrong clock", "--results", tmp_path
        ).exit_code
        == 0
    )
    rows = json.loads(invoke("store", "ls", "--results", tmp_path, "--json").output)
    assert [r["run_id"] for r in rows] == [run_id_of(second)]
    factory.rewrite(second, lambda data: data.replace(b"1.01", b"1.02", 1))
    broken = invoke("store", "verify", "--results", tmp_path)
    assert (broken.exit_code, "digest differs" in broken.output) == (5, True)
    merged = invoke("store", "merge", tmp_path, "--results", tmp_path / "new")
    assert (merged.exit_code, "2 records added, 1 refused" in merged.output) == (2, True)


def test_runs_on_other_hardware_are_compared_by_force_only_and_then_marked(tmp_path: Path) -> None:
    a, b = factory.simple(tmp_path), factory.simple(tmp_path, host_class="Another CPU")
    refused = paceline("compare", run_id_of(a), run_id_of(b), "--results", tmp_path)
    assert (refused.returncode, "host classes differ" in refused.stderr) == (6, True)
    forced = invoke("compare", run_id_of(a), run_id_of(b), "--force", "--results", tmp_path)
    assert (forced.exit_code, "FORCED, NOT COMPARABLE" in forced.output) == (0, True)


def test_a_comparison_is_printed_as_json_and_markdown(tmp_path: Path) -> None:
    path = factory.simple(tmp_path)
    (row,) = json.loads(invoke("compare", run_id_of(path), "--results", tmp_path, "--json").output)
    assert (row["technique"], row["verdict"], row["launches"]) == ("ring", "slower", 2)
    assert "| technique" in invoke("compare", run_id_of(path), "--results", tmp_path, "--format", "md").output


def test_json_output_holds_no_nan(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": float("nan"), "b": [float("inf"), 1.5], "c": ("\udc80",)})
    shown = capsys.readouterr().out
    assert json.loads(shown) == {"a": None, "b": [None, 1.5], "c": ["\udc80"]}


def test_a_closed_pipe_is_no_error() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "paceline.cli", "plan", "collectives/all-reduce", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        errors = process.stderr.read().decode()
    assert "Traceback" not in errors
    assert process.returncode == EXIT_UNREAD, "and nothing is called fine, or slower, that nobody could read"


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (KeyError("x"), EXIT_FAULT),
        (AssertionError("an invariant"), EXIT_FAULT),
        (RecursionError(), EXIT_FAULT),
        (PermissionError(13, "no"), EXIT_FAULT),
        (KeyboardInterrupt(), EXIT_INTERRUPTED),
        (click.Abort(), EXIT_INTERRUPTED),
        (click.FileError("f"), EXIT_USAGE),
        (click.UsageError("u"), EXIT_USAGE),
        (MemoryError(), EXIT_INFRASTRUCTURE),
    ],
    ids=repr,
)
def test_nothing_that_went_wrong_by_itself_ends_with_the_exit_code_of_a_regression(
    raised: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(name: str) -> None:
        raise raised

    monkeypatch.setattr(importlib, "import_module", fail)
    monkeypatch.setattr(sys, "argv", ["paceline", "list", "suites"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == code
    assert code in EXIT_CODES
    said = capsys.readouterr().err
    assert ("Traceback" in said, "a fault of paceline" in said) == (code == EXIT_FAULT,) * 2
    assert said.strip()


@pytest.mark.parametrize(
    ("arguments", "fix"),
    [(["--launches", "3"], "--trials N"), (["--runner", "local-cpu", "--trials", "30"], "--launches N")],
)
def test_an_option_of_calibrate_that_would_be_ignored_is_refused(arguments: list[str], fix: str) -> None:
    refused = invoke("calibrate", *arguments)
    assert isinstance(refused.exception, PacelineError)
    assert fix in str(refused.exception.fix)


def test_a_plan_tells_no_time_that_nobody_has_seen_on_an_accelerator() -> None:
    suite = "training/checkpoints"
    here, there = (
        invoke("plan", suite, "--tier", "full", "--runner", runner, "--wide").output
        for runner in ("local-cpu", "local-cuda")
    )
    assert "; about " in here and ", at most " in here
    assert "about" not in there.splitlines()[0] and "; at most " in there


@pytest.mark.parametrize("runner", ["local-cpu", "local-cuda"])
def test_a_plan_says_what_its_time_outs_allow_only_when_asked(runner: str) -> None:
    plain = invoke("plan", "training/checkpoints", "--tier", "full", "--runner", runner).output
    asked = invoke("plan", "training/checkpoints", "--tier", "full", "--runner", runner, "-v").output
    assert "at most" not in plain.splitlines()[0]
    assert "at most" in asked.splitlines()[0]
