"""What the program says of a machine with stub accelerators: it sees them as it sees any vendor's."""

from __future__ import annotations

from collections.abc import Callable

from paceline.drivers.machine.portrait import look

Python = Callable[..., str]


def test_a_look_at_the_machine_finds_plugged_in_devices() -> None:
    found = look()
    assert found.missing is None
    assert (found.kind, found.count) == ("plugin", 4)
    assert found.device["name"] == "Stub accelerator"


def test_a_runner_of_another_kind_is_refused_by_name(python: Python) -> None:
    printed = python("""
        from paceline.base.errors import PrerequisiteError
        from paceline.worker.machine.device import open_device
        try:
            open_device("cuda")
        except PrerequisiteError as error:
            print(error)
        print(open_device("plugin", index=1).describe())
    """)
    assert "the accelerator here is plugin, not cuda" in printed
    assert "'name': 'Stub accelerator', 'count': 4" in printed
