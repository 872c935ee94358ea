"""What an operation changes in how a block runs: the answers that its ``run`` gives to the family's code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from paceline.base.families.family import Metric
from paceline.families.training.api.replica import Replica
from paceline.families.training.core.data import corpus
from paceline.families.training.core.data.corpus import Corpus
from paceline.families.training.core.data.setting import Setting, local_batches
from paceline.families.training.core.loop import judging
from paceline.families.training.core.loop.callback import Callback, Trial
from paceline.families.training.core.loop.trained import Trained
from paceline.families.training.core.proofs import gate
from paceline.families.training.core.proofs.gate import Proved
from paceline.worker.ranks.session import Block, Case, CaseError, Session

Results = Sequence[tuple[Case, dict[str, Any] | CaseError]]
"""What was found of each technique of a block, or why nothing was."""
Losses = tuple[list[float], bool]
"""Held-out losses of all copies of the weights, and whether ranks always held the same ones."""


def load_data(params: Mapping[str, Any]) -> Corpus:
    """Load a point's data."""
    return corpus.load(str(params["data"]))


def as_drawn(session: Session, block: Block, setting: Setting) -> Setting:
    """Return the setting as it is."""
    return setting


def all_batches(session: Session, block: Block, setting: Setting) -> Tensor:
    """Draw this rank's sequences of all steps, (steps, rows, context + 1), as int16."""
    last = session.rank == session.world_size - 1
    return local_batches(
        setting,
        session,
        corrupted=last and block.params["corrupted_rank"] == "last-rank",
        data_overlap=float(block.params["data_overlap"]),
    )


def clear_nothing(session: Session, setting: Setting) -> None:
    """Leave everything: nothing was made."""


def nothing_together(block: Block, results: Results) -> None:
    """Add nothing."""


def no_callbacks(trial: Trial) -> Sequence[Callback]:
    """Have nothing done beside the steps."""
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """What one operation does otherwise than ranks that train one model, each on sequences of its own."""

    metrics: tuple[Metric, ...]
    """Those of the operation, shared ones included."""
    load: Callable[[Mapping[str, Any]], Corpus] = load_data
    """Loads the data of a point."""
    prepare: Callable[[Session, Block, Setting], Setting] = as_drawn
    """Completes the setting of a block: who reads what, layers of another kind, a trained model, a folder."""
    batches: Callable[[Session, Block, Setting], Tensor] = all_batches
    """Draws what this rank reads in each step."""
    clear: Callable[[Session, Setting], None] = clear_nothing
    """Removes what ``prepare`` has made, at the block's end."""
    prove: Callable[[Session, Block, Case, Setting], Proved] = gate.prove
    """Proves a technique before it is timed."""
    callbacks: Callable[[Trial], Sequence[Callback]] = no_callbacks
    """Makes what is done beside a technique's steps, and what is measured of it."""
    losses: Callable[[Session, Case, Setting, Trained, Tensor], Losses] = judging.losses
    """Judges copies of the weights; no losses where nothing is trained."""
    together: Callable[[Block, Results], None] = nothing_together
    """Adds what takes the results of all techniques of a block."""
    some_see_no_loss: bool = False
    """Whether a rank may have no loss, since it lies on another."""
    passes_by: tuple[type[Replica], ...] = ()
    """Replicas whose forward and backward are the family's own, so that bytes sent in them can be told apart."""
