"""One folder for all resolutions of a session, so that metadata is fetched once."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from resolution import IndexUnreachable, resolve, setup_script

Plan = dict[str, str]


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="session")
def install() -> ModuleType:
    return setup_script()


@pytest.fixture
def resolved(home: Path):
    """Return ``resolve`` for this session; without a network its test is skipped, which CI counts as a failure."""

    def plan(requirements: list[str], constraints: str, *, python: str, processor: str) -> Plan:
        try:
            return resolve(
                "\n".join(requirements), constraints, python=python, processor=processor, home=home
            )
        except IndexUnreachable as error:
            pytest.skip(f"the public package index does not answer: {error}")

    return plan
