"""Secrets: what is hidden whatever form it is given in, and what stays readable."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.base.redaction import names_a_secret, redact, redact_arguments, redact_source
from paceline.worker.machine.host import allowed_environment

SECRET = st.text("abcXYZ0189+/_-.", min_size=8, max_size=24).map("S3cr3t".__add__)
NAMES = st.sampled_from(
    ["token", "api-key", "hf_token", "password", "PASS", "client-secret", "auth", "aws-credentials"]
)


@given(
    NAMES,
    SECRET,
    st.sampled_from(["--{n}={s}", "-{n}={s}", "{n}={s}", "MY_{n}={s}", "--{n} {s}", "--x-{n} {s}"]),
)
def test_the_value_of_an_option_that_names_a_secret_is_hidden(name: str, secret: str, form: str) -> None:
    arguments = ["paceline", "run", *form.format(n=name, s=secret).split(" "), "--tier", "quick"]
    cleaned = redact_arguments(arguments)
    assert secret not in " ".join(cleaned)
    assert cleaned[:2] == ["paceline", "run"]
    assert cleaned[-2:] == ["--tier", "quick"]


@given(SECRET)
def test_credentials_in_addresses_and_headers_are_hidden(secret: str) -> None:
    for text in (
        f"https://me:{secret.replace('/', '')}@host/path",
        f"https://host/path?a=1&access_token={secret}",
        f"Authorization: Bearer {secret}",
    ):
        assert secret.replace("/", "") not in redact(text).replace("/", "")
        assert redact_arguments([text])[0] == redact(text)


def test_ordinary_command_lines_stay_as_they_are() -> None:
    arguments = (
        "paceline run suites/collectives/all-reduce.yaml --filter ranks=2 --results /tmp/keys/x --seed 1"
    )
    assert redact_arguments(arguments.split(" ")) == arguments.split(" ")


def test_the_home_folder_is_not_told() -> None:
    assert redact(f"{Path.home()}/results") == "~/results"


@pytest.mark.parametrize(
    "name", ["HF_TOKEN", "aws_secret_access_key", "MY_PASSWORD", "NCCL_AUTH", "X_COOKIE"]
)
def test_names_of_secrets_are_recognised(name: str) -> None:
    assert names_a_secret(name)


def test_only_listed_variables_enter_a_record_and_never_one_that_names_a_secret() -> None:
    environment = {
        "OMP_NUM_THREADS": "1",
        "PACELINE_API_KEY": "S3cr3t",
        "NCCL_TOKEN": "S3cr3t",
        "HF_TOKEN": "S3cr3t",
        "HOME": "/home/me",
        "DATABASE": "S3cr3t",
        "TORCH_HUB": "https://me:S3cr3t@host",
    }
    assert allowed_environment(environment) == {"OMP_NUM_THREADS": "1", "TORCH_HUB": "https://…@host"}


def test_literals_of_secrets_are_hidden_in_source_and_other_code_is_not() -> None:
    text = (
        '+API_TOKEN = "abc123"\n+password: hunter2hunter2\n+rows.sort(key=lambda r: r.token)\n+tokens = 4\n'
    )
    hidden = redact_source(text)
    assert "abc123" not in hidden and "hunter2" not in hidden
    assert "rows.sort(key=lambda r: r.token)" in hidden and "tokens = 4" in hidden
