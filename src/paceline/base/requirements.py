"""What a technique may require of a case before it runs, in parts: an operation names those that its points have."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)  # no slots: parts with slots cannot be put together
class RankRequirements:
    """Of operations that run on several ranks."""

    min_ranks: int = 1
    max_ranks: int | None = None
    power_of_two_ranks: bool = False


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
    """Importable packages beyond torch and numpy."""


@dataclass(frozen=True, kw_only=True)
class Requirements(DeviceRequirements, DtypeRequirements, RankRequirements):
    """All that a case can offer; checked at planning time."""

    def unmet(self, *, ranks: int | None, dtype: str | None, device: str | None) -> str | None:
        """Say why a case cannot run, or None when every requirement holds; unknown facts are not judged."""
        if ranks is not None:
            if ranks < self.min_ranks:
                return f"needs at least {self.min_ranks} ranks"
            if self.max_ranks is not None and ranks > self.max_ranks:
                return f"needs at most {self.max_ranks} ranks"
            if self.power_of_two_ranks and ranks & (ranks - 1):
                return f"needs a power of two of ranks, not {ranks}"
        if dtype is not None and self.dtypes and dtype not in self.dtypes:
            return f"supports {', '.join(self.dtypes)}, not {dtype}"
        if device is not None and self.devices and device not in self.devices:
            return f"needs {' or '.join(self.devices)}, not {device}"
        return None
