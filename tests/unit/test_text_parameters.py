"""A text parameter that cannot mean anything is a mistake in the suite's file, whatever else the suite says."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from paceline.base.errors import UserErrors
from paceline.base.families.family import family_names, load_family
from paceline.cli import application
from paceline.spec.suites.suite_file import load_suite

EXAMPLES = {
    "reasoning": "workload: {op: solve}\nbaseline: greedy\ntechniques: [greedy]\n",
    "training": "workload: {op: data_parallel}\nbaseline: ddp\ntechniques: [ddp]\n",
    "serving": "workload: {op: serve, workload: trace}\nbaseline: orca\ntechniques: [orca]\n",
}
OUTSIDE_REASONING = "problems: 'gsm8k:/data/gsm8k.jsonl', "
FREE = {"link"}
"""Texts that only a runner can judge."""


def write(folder: Path, family: str, more: str) -> Path:
    text = EXAMPLES[family].replace("{op", f"{{{more}, op")
    path = folder / "example.yaml"
    path.write_text(f"suite: {family}/example\nversion: 1\nfamily: {family}\nwhy: An example.\n{text}")
    return path


@pytest.mark.parametrize(
    "model",
    [
        "openai:",
        "openai:#tiny",
        "openai:http://host:8000/v1",
        "openai:http://host:8000/v1#",
        "openai:host:8000/v1#tiny",
        "openai:ftp://host/v1#tiny",
        "openai:http://[::1/v1#tiny",
        "transformers:",
        "transformers:models/tiny",
        "transformers:tiny",
        "transformers:tiny@",
        "transformers:@main",
        "recorded:",
        "recorded:runs/one",
        "vllm:/models/tiny",
        "week",
        "",
    ],
)
def test_a_malformed_model_is_a_mistake_with_its_line(model: str, tmp_path: Path) -> None:
    path = write(tmp_path, "reasoning", f"{OUTSIDE_REASONING}model: '{model}'")
    result = CliRunner().invoke(application, ["validate", str(path)])
    assert result.exit_code == 2, result.output
    assert f"{path}:5:workload.model: " in result.stderr


@pytest.mark.parametrize(
    "model",
    [
        "openai:http://host:8000/v1#tiny",
        "openai:https://host/v1#some/tiny",
        "transformers:/models/tiny",
        "transformers:lab/tiny@main",
        "recorded:/runs/one",
    ],
)
def test_a_model_of_every_form_is_legal(model: str, tmp_path: Path) -> None:
    load_suite(write(tmp_path, "reasoning", f"{OUTSIDE_REASONING}model: '{model}'"))


@pytest.mark.parametrize(
    ("family", "more", "key"),
    [
        ("reasoning", "model: 3", "model"),
        ("reasoning", "problems: 'gsm8k:'", "problems"),
        ("reasoning", "problems: 'gsm9k:/data/gsm8k.jsonl'", "problems"),
        ("reasoning", "levels: 3-", "levels"),
        ("reasoning", "levels: 0-4", "levels"),
        ("training", "data: 'bytes:'", "data"),
        ("training", "data: 'hf:'", "data"),
        ("training", "data: markof", "data"),
        ("serving", "trace: traces/one.jsonl", "trace"),
    ],
)
def test_any_malformed_text_is_a_mistake_with_its_line(
    family: str, more: str, key: str, tmp_path: Path
) -> None:
    path = write(tmp_path, family, more)
    with pytest.raises(UserErrors) as caught:
        load_suite(path)
    assert f"{path}:5:workload.{key}: " in str(caught.value)


@pytest.mark.parametrize("family", [f for f in family_names() if not load_family(f).internal])
def test_every_text_parameter_says_what_is_wrong_with_a_text(family: str) -> None:
    texts = [p for p in load_family(family).parameters if p.kind == "text" and p.name not in FREE]
    assert not [p.name for p in texts if p.form is None]
    assert not [p.name for p in texts if p.default is not None and p.parse(p.default) != p.default]


def test_a_suite_without_a_legal_point_is_a_mistake(tmp_path: Path) -> None:
    path = write(tmp_path, "reasoning", f"{OUTSIDE_REASONING}model: weak")
    result = CliRunner().invoke(application, ["validate", str(path)])
    assert result.exit_code == 2, result.output
    assert (
        "no point of the quick tier is legal: problems 'gsm8k:/data/gsm8k.jsonl': weak and strong"
        in result.stderr
    )
