"""A file of several techniques that cannot be imported: each of them says why, and none of half a file is taken."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from paceline.base.techniques.technique import REGISTRY
from paceline.worker.ranks.loading import load

if TYPE_CHECKING:
    from collections.abc import Iterator

    from paceline.worker.fences.guard import Guard

FILE = """
from paceline import technique


@technique(name="half-first", family="collectives", implements=("all_reduce",), summary="The first of two.")
class First:
    pass


import nothing_such


@technique(name="half-second", family="collectives", implements=("all_reduce",), summary="The second of two.")
class Second:
    pass
"""


class NoFences:
    """Watches nothing, so that this process keeps none of a rank's fences."""

    @contextmanager
    def watch(self) -> Iterator[None]:
        yield

    def check_operators(self) -> None:
        """Find nothing."""


@pytest.mark.parametrize("order", [("half-first", "half-second"), ("half-second", "half-first")])
def test_each_technique_of_a_file_that_fails_while_it_is_imported_says_why(
    order: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = f"user:half_{order[0][5:]}"
    jobs = [tmp_path / "one", tmp_path / "two"]
    for job in jobs:
        (job / "user").mkdir(parents=True)
        (job / "user" / f"{module[5:]}.py").write_text(FILE.lstrip())
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    guard = cast("Guard", NoFences())
    try:
        # a second job of the same process, as the debug driver has them
        refusals = [
            load(module, name, "collectives", job, guard, any_source=True) for job in jobs for name in order
        ]
    finally:
        sys.modules.pop(module, None)
        for name in order:
            REGISTRY.pop(("collectives", name), None)
    assert [r.factory for r in refusals] == [None] * 4
    for refused in refusals:
        assert refused.refusal is not None
        assert refused.refusal.status == "crashed"
        assert (
            refused.refusal.reason
            == "cannot be imported: ModuleNotFoundError: No module named 'nothing_such'"
        )
        assert "import nothing_such" in (refused.refusal.detail or "")
