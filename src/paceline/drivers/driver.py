"""What a driver offers, and the choice of one by name."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from paceline.base.errors import UserError, expected_one_of


class Execution(Protocol):
    """A started job."""

    def poll(self) -> int | None:
        """Return the launcher's exit code, or None while it runs."""
        ...

    def stop(self) -> None:
        """End it with everything that it started, and wait until it is gone."""
        ...

    def log(self) -> str:
        """Return the end of the launcher's own output."""
        ...


class Driver(Protocol):
    """Starts job folders."""

    def start(self, job: Path) -> Execution:
        """Start the launcher of a job folder and return at once."""
        ...


def open_driver(name: str) -> Driver:
    """Return the driver that a runner profile names."""
    from paceline.drivers.debug import DebugDriver  # noqa: PLC0415 - only the chosen driver's needs
    from paceline.drivers.docker.driver import DockerDriver  # noqa: PLC0415
    from paceline.drivers.hosts import HostsDriver  # noqa: PLC0415
    from paceline.drivers.kubernetes.driver import KubernetesDriver  # noqa: PLC0415
    from paceline.drivers.local import LocalDriver  # noqa: PLC0415
    from paceline.drivers.slurm.driver import SlurmDriver  # noqa: PLC0415

    drivers: dict[str, type[Driver]] = {
        "local": LocalDriver,
        "debug": DebugDriver,
        "slurm": SlurmDriver,
        "hosts": HostsDriver,
        "docker": DockerDriver,
        "kubernetes": KubernetesDriver,
    }
    if name not in drivers:
        raise UserError(f"unknown driver '{name}'", expected=expected_one_of(name, drivers))
    return drivers[name]()
