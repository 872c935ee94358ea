"""Calls served one by one, and in pairs."""

from __future__ import annotations

from paceline import technique


class Dealt:
    """Deals calls out in order."""

    share = 1

    def plan(self, requests: int) -> list[list[int]]:
        """Return the calls of each step."""
        return [list(range(requests))[i : i + self.share] for i in range(0, requests, self.share)]


@technique(name="toy-alone", family="serving", implements=("toy",), summary="one call a step")
class Alone(Dealt):
    """One by one."""


@technique(name="toy-pairs", family="serving", implements=("toy",), summary="two calls a step")
class Pairs(Dealt):
    """In pairs."""

    share = 2
