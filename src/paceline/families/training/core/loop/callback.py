"""What an operation has done beside a technique's steps: the points of the loop at which it is called."""

from __future__ import annotations

from collections.abc import Container, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from paceline.families.training.core.data.setting import Setting
from paceline.families.training.core.loop.trained import Trained
from paceline.families.training.core.proofs.sandbox import Sandbox
from paceline.worker.ranks.session import Block, Case, Session


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One technique that is about to be trained."""

    session: Session
    block: Block
    case: Case
    setting: Setting
    sandbox: Sandbox
    batches: Tensor
    """This rank's sequences, (steps, rows, context + 1); of a user's data a list of batches."""
    evaluate_after: frozenset[int]
    """Numbers of steps after which weights are copied."""
    count_after: frozenset[int]
    """Steps, from 0, after whose exchange of gradients memory is counted; a technique cannot know them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A technique's training on all ranks, for figures."""

    trained: Trained
    """This rank's."""
    windows: list[list[list[float]]]
    """For each rank its windows (``figures.ROW``)."""
    curve: list[float]
    """Held-out losses; none where nothing is trained."""
    absent: dict[str, str]
    """Takes the reason for each metric that could not be measured."""


class Callback:
    """Called by the loop; each operation overrides what it needs.

    What is called inside a step or after it is on the clock, but for the nanoseconds that it returns. The loop calls
    only what a class overrides, and inside a step only in steps that it names: each stop there costs a look at all that
    a technique could have replaced.
    """

    stops_after_backward: Container[int] = ()
    """Steps in which ``after_backward`` is called."""
    stops_before_update: Container[int] = ()
    """Steps in which ``before_update`` is called."""

    def around_passes(self) -> AbstractContextManager[Any]:
        """Return a context for forward, backward and the exchange of gradients of one step."""
        return nullcontext()

    def before_step(self, step: int) -> None:
        """Prepare a step in which ``after_backward`` will be called."""

    def after_backward(self, step: int) -> int:
        """Look at what forward and backward have left; return nanoseconds that are no training."""
        return 0

    def left_out(self, step: int) -> int:
        """Note that this rank took no part in a step in which ``after_backward`` would be called; return as that."""
        return 0

    def before_update(self, step: int) -> int:
        """Do what must come before the optimiser; return nanoseconds that are no training."""
        return 0

    def look(self, step: int | None) -> None:
        """Look at what a step has left, off the clock; None before the first step."""

    def after_step(self, step: int) -> int:
        """Do what a step ends with; return nanoseconds that are no training."""
        return 0

    def ended(self) -> None:
        """Take what must be taken when all steps are done and counted, and before weights are judged."""

    def metrics(self, outcome: Outcome) -> Mapping[str, Any]:
        """Return what the operation measures beside the shared figures.

        Raises:
            CaseError: What was trained is not what it should be.
        """
        return {}

    def accounting(self) -> Mapping[str, Any]:
        """Return what the record keeps beside the shared accounts; called after ``metrics``."""
        return {}


def overrides(callback: Callback, name: str) -> bool:
    """Tell whether a callback's class has a method of its own."""
    # By the class, since the loop decides once whom to call.
    return getattr(type(callback), name) is not getattr(Callback, name)
