"""The class of this host, as a run on it would record it: known before anything is measured."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from paceline.base.errors import PrerequisiteError
from paceline.records.identity import host_class
from paceline.worker.machine.device import open_device
from paceline.worker.machine.host import identify

HERE = frozenset({"local", "debug"})
"""Drivers whose ranks see the host as this process does; where others put them is known once they have started."""
FAMILIAR = frozenset({"cpu", "fake"})
"""Devices that are described without torch."""
LOOK_S = 60.0
_LOOK = """
import json, sys
from paceline.base.errors import PacelineError
from paceline.worker.machine.device import open_device
from paceline.worker.machine.host import identify
try:
    print(json.dumps(identify(open_device(sys.argv[1]))))
except PacelineError as error:
    print(json.dumps({"missing": str(error)}))
"""


def class_here(runner: Mapping[str, Any]) -> str | None:
    """Return the host class that a run would have here, or None where that is known only once it has started.

    Args:
        runner: The resolved runner profile.

    Raises:
        PrerequisiteError: torch, or the device, is missing here.
    """
    if runner.get("driver") not in HERE:
        return None
    if not has_torch():
        raise PrerequisiteError("torch is not installed, and ranks need it", fix="pip install torch numpy")
    device = str(runner["device"])
    described = device in FAMILIAR
    found = identify(open_device(device, fake=runner.get("fake"))) if described else _looked(device)
    return host_class(found["host"], found["device"])


def has_torch() -> bool:
    """Say whether ranks of this Python find torch; it is not imported."""
    try:
        return importlib.util.find_spec("torch") is not None
    except ValueError:  # somebody put something else in its place
        return False


def _looked(device: str) -> dict[str, Any]:
    """Describe an accelerator from a process of its own, since only torch can."""
    command = [sys.executable, "-c", _LOOK, device]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=LOOK_S, check=True)
        found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    except (subprocess.SubprocessError, ValueError, IndexError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()[-1:]
        raise PrerequisiteError(
            f"torch cannot describe the device {device}: {' '.join(said)}", fix="paceline doctor"
        ) from error
    if "missing" in found:
        raise PrerequisiteError(found["missing"])
    return found
