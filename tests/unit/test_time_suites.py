"""What ``paceline time`` makes of its commands: a suite that validates, with names that tell them apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from paceline.base.errors import EXIT_USAGE, UserError
from paceline.cli import application
from paceline.spec.content import find_runner
from paceline.spec.plans.plan import Selection, make_plan
from paceline.spec.profiles.profile import load_runner
from paceline.spec.suites.suite_file import load_suite
from paceline.workflows.programs.commands import (
    Asked,
    require_programs,
    suite_of,
    unseen_threads,
    write_suite,
)


def labels(*commands: str, **more: Any) -> list[str]:
    return [entry["as"] for entry in suite_of(Asked(commands=commands, **more))["techniques"]]


def test_names_are_made_of_words_and_are_unique() -> None:
    assert labels("python3 /opt/x/a.py --n 3", "true", "true", "./Run.sh") == [
        "python3-a-py-n-3",
        "true",
        "true-2",
        "run-sh",
    ]
    assert labels("éé", "a" * 99) == ["command", "a" * 32]
    assert labels("true", "false", names=["yes"]) == ["yes", "false"]


def test_the_suite_validates_and_says_all_that_was_asked(tmp_path: Path) -> None:
    asked = Asked(
        commands=["python3 a.py {input}", "./b"],
        variables=["A=it's two words"],
        folder="/tmp",
        torchrun=2,
        build="make b",
        check="grep -q ok",
        metrics=["tokens_per_s=([0-9.]+) tokens/s", "loss=json:loss@out.json"],
        inputs=["1", "20"],
        margin=0.01,
        timeout="3min",
        warmup=2,
    )
    path = write_suite(tmp_path, suite_of(asked))
    suite = load_suite(path)
    assert path == tmp_path / "suites" / f"{suite.name}.yaml"
    plan = make_plan([suite], load_runner(find_runner("local-cpu")), Selection())
    assert [b["params"]["input"] for b in plan.blocks] == ["1", "20"]
    protocol = plan.blocks[0]["protocol"]
    assert (protocol["timeout_s"], protocol["warmup"], protocol["until"]) == (180.0, 2, "decided")
    first = plan.blocks[0]["cases"][0]
    assert first["role"] == "baseline" and first["technique"] == "command"
    assert first["options"] == {
        "command": "python3 a.py {input}",
        "shell": False,
        "env": "A='it'\"'\"'s two words'",
        "folder": "/tmp",
        "torchrun": 2,
        "build": "make b",
        "check": "grep -q ok",
        "metrics": "reported_tokens_per_s = ([0-9.]+) tokens/s\nreported_loss = json:loss@out.json",
    }
    assert list(suite.model.metrics) == [
        *("wall_time", "reported_tokens_per_s", "reported_loss", "cpu_time", "peak_memory")
    ]
    decided = [name for name, setting in suite.model.metrics.items() if not setting.diagnostic]
    assert decided == ["wall_time", "reported_tokens_per_s"]


def test_equal_commands_are_one_suite_and_others_are_others() -> None:
    one = suite_of(Asked(commands=["true", "false"]))["suite"]
    assert one == suite_of(Asked(commands=["true", "false"]))["suite"]
    assert one != suite_of(Asked(commands=["false", "true"]))["suite"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"commands": ["a 'b"]}, 'COMMANDS: "a \'b" cannot be split into words: no closing quotation'),
        ({"commands": [" "]}, "COMMANDS: the command is empty"),
        ({"check": "grep '"}, "--check: "),
        ({"names": ["A"]}, "--name: 'A' is not a name"),
        ({"names": ["a", "b"]}, "--name: 2 names for 1 command"),
        ({"variables": ["A"]}, "--env: 'A' is no variable"),
        ({"metrics": ["loss"]}, "--metric=loss: 'loss' is no NAME=WHERE"),
        ({"metrics": ["loss=("]}, "is no regular expression"),
        ({"metrics": ["Loss=x"]}, "'Loss' is no name of a metric"),
        ({"timeout": "soon"}, "--timeout: 'soon' is no time-out"),
    ],
)
def test_what_cannot_be_read_is_an_error_before_anything_is_measured(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError) as error:
        suite_of(Asked(**{"commands": ["true"], **changes}))
    assert message in str(error.value)


def test_a_program_that_is_not_there_is_an_error_before_anything_is_measured(tmp_path: Path) -> None:
    result = CliRunner().invoke(application, ["time", "true", "no-such-program", "--results", str(tmp_path)])
    assert isinstance(result.exception, UserError) and result.exception.exit_code == EXIT_USAGE
    assert "COMMANDS: 'no-such-program' was not found, or may not be executed" in str(result.exception)
    assert "--shell" in str(result.exception)
    assert not list(tmp_path.iterdir())
    require_programs(Asked(commands=["no-such-program && true"], shell=True))
    (tmp_path / "tool").write_text("#!/bin/sh\n")
    (tmp_path / "tool").chmod(0o755)
    require_programs(Asked(commands=["./tool"], folder=str(tmp_path)))
    require_programs(Asked(commands=["tool"], variables=[f"PATH={tmp_path}"]))


def test_a_script_of_torchrun_that_is_not_there_is_an_error_before_anything_is_measured(
    tmp_path: Path,
) -> None:
    (tmp_path / "here.py").touch()
    asked = {"torchrun": 2, "folder": str(tmp_path)}
    require_programs(Asked(commands=["here.py --steps 3"], **asked))  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"there is no script 'gone\.py'"):
        require_programs(Asked(commands=["here.py", "gone.py"], **asked))  # type: ignore[arg-type]


def test_numbers_of_threads_that_commands_do_not_see_are_named() -> None:
    shell = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "2", "MKL_NUM_THREADS": "2", "HOME": "/root"}
    asked = Asked(commands=["true"], variables=["OPENBLAS_NUM_THREADS=2"])
    assert unseen_threads(asked, shell) == [
        "OMP_NUM_THREADS"
    ]  # MKL's is handed on, and OpenBLAS's was asked for
    assert unseen_threads(asked, {"HOME": "/root"}) == []
