"""A server of programmable truth: it answers as one that serves a language model, at instants that are known."""

from __future__ import annotations

from paceline.families.serving.core.mock.behaviour import FAULTS, Behaviour, Freeze, Gaps
from paceline.families.serving.core.mock.process import MockServer

__all__ = ["FAULTS", "Behaviour", "Freeze", "Gaps", "MockServer"]
