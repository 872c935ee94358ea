"""What a technique may require of a case before it runs, in parts: an operation names those that its points have."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import util

from paceline.base.counting import number_of

PACKAGE = re.compile(r"([A-Za-z_]\w*)(?:>=(\d+(?:\.\d+)*))?")
"""How a package is required: by the name that is imported, and at most with its least version."""
PACKAGE_RULE = "a name to import, such as 'triton', or with its least version, such as 'triton>=3.5'"


@dataclass(frozen=True, kw_only=True)  # no slots: parts with slots cannot be put together
class RankRequirements:
    """Of operations that run on several ranks."""

    min_ranks: int = 1
    """Fewest ranks with which it runs."""
    max_ranks: int | None = None
    """Most ranks with which it runs; None means any number."""
    power_of_two_ranks: bool = False
    """It runs with 1, 2, 4, 8, … ranks alone."""


@dataclass(frozen=True, kw_only=True)
class DtypeRequirements:
    """Of operations whose points have a dtype."""

    dtypes: tuple[str, ...] = ()
    """Accepted dtypes; empty means every dtype of the family."""


@dataclass(frozen=True, kw_only=True)
class DeviceRequirements:
    """Of every operation."""

    devices: tuple[str, ...] = ()
    """Accepted device types (cpu, cuda, npu); empty means every device."""
    packages: tuple[str, ...] = ()
    """Packages beyond torch and numpy, as ``triton`` or ``triton>=3.5``; without one a case is ``unsupported``."""


@dataclass(frozen=True, kw_only=True)
class Requirements(DeviceRequirements, DtypeRequirements, RankRequirements):
    """All that a case can offer; checked at planning time."""

    def unmet(self, *, ranks: int | None, dtype: str | None, device: str | None) -> str | None:
        """Say why a case cannot run, or None when every requirement holds; unknown facts are not judged."""
        if ranks is not None:
            if ranks < self.min_ranks:
                return f"needs at least {number_of(self.min_ranks, 'rank')}"
            if self.max_ranks is not None and ranks > self.max_ranks:
                return f"needs at most {number_of(self.max_ranks, 'rank')}"
            if self.power_of_two_ranks and ranks & (ranks - 1):
                return f"needs a power of two of ranks, not {ranks}"
        if dtype is not None and self.dtypes and dtype not in self.dtypes:
            return f"supports {', '.join(self.dtypes)}, not {dtype}"
        if device is not None and self.devices and device not in self.devices:
            return f"needs {' or '.join(self.devices)}, not {device}"
        return None


def present(count: int) -> str:
    """Say that so many are, in front of where: ``1 is``, ``3 are``."""
    return f"{count} {'is' if count == 1 else 'are'}"


def lacking(packages: Iterable[str]) -> list[str]:
    """Say of each required package that is missing in this process's environment, or too old, what to do; import none.

    Args:
        packages: As ``DeviceRequirements.packages`` has them.
    """
    return [text for package in packages if (text := _lacking(package)) is not None]


def _lacking(package: str) -> str | None:
    found = PACKAGE.fullmatch(package)
    assert found is not None, f"{package} was not checked when its technique was read"
    name, least = found[1], found[2]
    if util.find_spec(name) is None:
        return f"needs {package}, which is not installed here: pip install '{package}'"
    if least is None:
        return None
    version = version_of(name)
    if version is None:
        return f"needs {package}, and the installed {name} has no version"
    if _numbers(version) < _numbers(least):
        return f"needs {package}, and {version} is installed here: pip install '{package}'"
    return None


def version_of(name: str) -> str | None:
    """Return the version of the installed distribution that brings a package; None where there is none."""
    from importlib import metadata  # noqa: PLC0415 - its import takes as long as all of this package's

    for distribution in (name, *metadata.packages_distributions().get(name, ())):
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    return None


def _numbers(version: str) -> tuple[int, ...]:
    """Return the release of a version without zeros at its end: 3.5.0 is 3.5, and so is 3.5rc1."""
    release = re.match(r"\d+(?:\.\d+)*", version)
    numbers = [int(part) for part in release[0].split(".")] if release else []
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)
