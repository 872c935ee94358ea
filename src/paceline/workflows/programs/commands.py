"""Suites of commands that somebody gave on the command line, written as files that can be run again."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from paceline.base.account import with_home
from paceline.base.counting import number_of
from paceline.base.errors import UserError
from paceline.base.families.family import load_family
from paceline.base.techniques.technique import NAME_RULE, valid_name
from paceline.base.units import parse_duration
from paceline.families.programs.api.program import GIVEN, command_words, variables
from paceline.families.programs.core.client import OF_RANKS
from paceline.families.programs.core.reported import full_name, place_of
from paceline.records.store.folder import RunRecord
from paceline.records.store.storage import storage_errors
from paceline.spec.plans.plan import digest
from paceline.worker.machine.host import allowed_environment

FAMILY = "programs"
LONGEST_LABEL = 32
LAUNCHES = "5..60"
NUM_THREADS = "_NUM_THREADS"
SECONDS_A_LAUNCH = 0.5
"""Of timed runs. Of commands that take longer together each is run once in a launch: more launches tell more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Commands, and what belongs to all of them."""

    commands: Sequence[str]
    """The first is the baseline."""
    names: Sequence[str] = ()
    """Of the first commands; the others are named by their words."""
    shell: bool = False
    variables: Sequence[str] = ()
    """``NAME=VALUE``, as they are."""
    folder: str = ""
    torchrun: int = 0
    build: str = ""
    check: str = ""
    metrics: Sequence[str] = ()
    """``NAME=WHERE``."""
    inputs: Sequence[str] = ()
    margin: float | None = None
    timeout: str = "60s"
    warmup: int = 0
    """Untimed runs in each launch, beside the first of all."""


def suite_of(asked: Asked) -> dict[str, Any]:
    """Return the suite that compares commands.

    Raises:
        UserError: A command cannot be read, a name is none, or a metric's place cannot be read.
    """
    labels = _labels(asked)
    entries = []
    for label, command in zip(labels, asked.commands, strict=True):
        options = {
            "command": command,
            "shell": asked.shell,
            "env": " ".join(map(_assignment, asked.variables)),
            "folder": asked.folder,
            "torchrun": asked.torchrun,
            "build": asked.build,
            "check": asked.check,
            "metrics": "\n".join(f"{name} = {where}" for name, where in _metrics(asked).items()),
        }
        kept = {key: value for key, value in options.items() if value}
        entries.append({"technique": "command", "as": label, "options": kept})
    _refuse_unreadable(asked)
    suite = {
        "version": 1,
        "family": FAMILY,
        "description": f"Which takes less time? {'; '.join(asked.commands)}"[:200],
        "workload": {"op": "execute"},
        "baseline": labels[0],
        "techniques": entries,
        **({"matrix": {"input": list(asked.inputs)}} if asked.inputs else {}),
        "protocol": {
            "until": "decided",
            "launches": LAUNCHES,
            "warmup": asked.warmup or "none",
            "max_seconds": SECONDS_A_LAUNCH,
            "min_samples": 1,
            "timeout": asked.timeout,
        },
        "metrics": _compared(asked),
    }
    return {"suite": f"{FAMILY}/time-{digest(suite, 8)}", **suite}


def write_suite(store: Path, suite: Mapping[str, Any]) -> Path:
    """Write a suite into a store, where ``PACELINE_CONTENT`` finds it; one that is there already is the same.

    Raises:
        UserError: The store cannot be written.
    """
    path = store / "suites" / f"{suite['suite']}.yaml"
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        text = yaml.safe_dump(dict(suite), sort_keys=False, allow_unicode=True, width=110)
        path.write_text(text, encoding="utf-8")
    return path


def require_programs(asked: Asked) -> None:
    """Make sure that the programs are on this machine.

    Raises:
        UserError: One is not.
    """
    if asked.shell or asked.build:
        return
    folder = with_home(asked.folder)
    path = variables(" ".join(map(_assignment, asked.variables))).get("PATH", os.environ.get("PATH"))
    for command in (*asked.commands, *([asked.check] if asked.check else [])):
        name = _words(command, "COMMANDS")[0]
        if GIVEN in command.split()[0]:
            continue
        if asked.torchrun and name.endswith(".py") and command in asked.commands:
            if not (folder / name).is_file():
                raise UserError(
                    f"there is no script '{name}'",
                    where="COMMANDS",
                    expected=f"a file below {folder.resolve()}",
                )
            continue
        if shutil.which(str(folder / name) if "/" in name else name, path=path) is None:
            raise UserError(
                f"'{name}' was not found, or may not be executed",
                where="COMMANDS",
                expected="a program on PATH, or a path with a slash, each command quoted as one word",
                fix="with --shell, /bin/sh runs the command: functions of the shell, pipes and '&&' need it",
            )


def unseen_threads(asked: Asked, environment: Mapping[str, str]) -> list[str]:
    """Return the shell's variables that say how many threads a program takes, which no program of a suite sees.

    Whoever has set one compares with times that were taken under it.
    """
    handed_on = {*set(allowed_environment(dict(environment))) - OF_RANKS, *_names(asked.variables)}
    return sorted(name for name in environment if name.endswith(NUM_THREADS) and name not in handed_on)


def _names(variables: Sequence[str]) -> set[str]:
    return {text.partition("=")[0] for text in variables}


def missing(record: RunRecord) -> list[str]:
    """Return what programs were said to report and did not, in words, once for each technique and metric."""
    found = {
        f"{m.label}: {name} has no value: {reason}": None
        for m in record.measurements
        for name, reason in (m.absent or {}).items()
        if name.startswith(full_name("x").removesuffix("x"))
    }
    return list(found)


def shell_starts(record: RunRecord) -> list[float]:
    """Return how long starting a shell took in each launch of a run whose commands go through one."""
    told = [dict(m.accounting or {}).get("shell_start_s") for m in record.measurements]
    return [seconds for seconds in told if isinstance(seconds, float)]


def _refuse_unreadable(asked: Asked) -> None:
    for command in asked.commands:
        _words(command, "COMMANDS", shell=asked.shell)
    if asked.check:
        _words(asked.check, "--check", shell=asked.shell)
    if asked.build:
        _words(asked.build, "--build")
    _timeout(asked.timeout)


def _labels(asked: Asked) -> list[str]:
    """Return a name for each command: the one that was given, or its words."""
    for name in asked.names:
        if not valid_name(name):
            raise UserError(f"'{name}' is not a name", where="--name", expected=NAME_RULE)
    if len(asked.names) > len(asked.commands):
        raise UserError(
            f"{number_of(len(asked.names), 'name')} for {number_of(len(asked.commands), 'command')}",
            where="--name",
            expected="one for each command at most, in their order",
        )
    found = list(asked.names)
    for command in asked.commands[len(found) :]:
        without_folders = " ".join(word.rstrip("/").rpartition("/")[2] for word in command.split())
        words = re.findall(r"[a-z0-9]+", without_folders.lower())
        label = "-".join(words)[:LONGEST_LABEL].strip("-") or "command"
        number = 2
        unique = label
        while unique in found:
            unique, number = f"{label}-{number}", number + 1
        found.append(unique)
    return found


def _metrics(asked: Asked) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in asked.metrics:
        name, equals, where = (part.strip() for part in text.partition("="))
        try:
            if not equals or not where or "\n" in where:
                raise ValueError(f"{text!r} is no NAME=WHERE, such as 'tokens_per_s=([0-9.]+) tokens/s'")
            place_of(where)
            found[full_name(name)] = where
        except ValueError as error:
            raise UserError(
                str(error),
                where=f"--metric={text}",
                expected="NAME=PATTERN, NAME=json:KEY, or NAME=json:KEY@FILE",
            ) from None
    return found


def _compared(asked: Asked) -> dict[str, Any]:
    """Return what is compared: the time decides, and rates and times that programs report; the rest stands beside."""
    margin = {} if asked.margin is None else {"margin": asked.margin}
    family = load_family(FAMILY)
    compared: dict[str, Any] = {"wall_time": dict(margin)}
    for name in _metrics(asked):
        decides = family.metric(name).compared_by == "ratio"
        compared[name] = dict(margin) if decides else {"diagnostic": True}
    return {**compared, "cpu_time": {"diagnostic": True}, "peak_memory": {"diagnostic": True}}


def _words(text: str, where: str, *, shell: bool = False) -> tuple[str, ...]:
    try:
        return command_words(text, shell=shell)
    except ValueError as error:
        raise UserError(str(error), where=where, expected="a command, quoted as one word") from None


def _assignment(text: str) -> str:
    name, equals, value = text.partition("=")
    quoted = "'" + value.replace("'", "'\"'\"'") + "'"
    try:
        variables(f"{name}{equals}{quoted}")
    except ValueError:
        raise UserError(f"'{text}' is no variable", where="--env", expected="--env=NAME=VALUE") from None
    return f"{name}={quoted}"


def _timeout(text: str) -> None:
    try:
        if parse_duration(text) > 0:
            return
    except ValueError:
        pass
    raise UserError(f"'{text}' is no time-out", where="--timeout", expected="a duration, such as 10min")
