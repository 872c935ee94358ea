"""What techniques of a block share that train a module of the user's: how it is made, and what it is fed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from paceline.families.training.api.own import Loss, OwnModel, handed_on
from paceline.families.training.core.data.setting import Setting
from paceline.families.training.core.own.data import OwnData
from paceline.families.training.core.own.generators import Generators
from paceline.families.training.core.own.loading import Named, load_named
from paceline.families.training.core.planning.parameters import OWN_LOSS, OWN_MODEL

NORMS = (nn.modules.batchnorm._NormBase,)
"""Modules that keep running statistics, which are nobody's parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnWorkload:
    """What the user brings."""

    model: Named
    loss: Loss | None
    world_size: int
    draws: bool = False
    """Whether the module draws random numbers while it trains."""

    def made(self, seed: int, offered: Mapping[str, Any], device: torch.device) -> nn.Module:
        """Return the user's module with its initial weights.

        Raises:
            CaseError: ``invalid``: the factory failed, or returned something else.
        """
        with Generators(seed), torch.device(device):
            found = self.model.called({"seed": seed % (1 << 31), "folder": self.model.folder, **offered})
        if not isinstance(found, nn.Module):
            self.model.refuse(f"returned an object of type {type(found).__name__}", "a torch.nn.Module")
        module: nn.Module = found.to(device)
        return module


def workload_of(params: Mapping[str, Any], world_size: int) -> OwnWorkload:
    """Import a point's own model and loss.

    Raises:
        CaseError: See ``load_named``.
    """
    loss = None if params[OWN_LOSS] is None else load_named(OWN_LOSS, params).object
    return OwnWorkload(model=load_named(OWN_MODEL, params), loss=loss, world_size=world_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnSetting(Setting):
    """The setting of a point with a model of the user's, on data of theirs or of the family's."""

    own: OwnWorkload

    @property
    def by_share(self) -> bool:
        """Share by share: a user's loss need be no mean over samples, and norms of batches see their rank's alone."""
        return True

    @property
    def data(self) -> OwnData | None:
        """The user's data; None where it is the family's."""
        found: object = self.corpus
        return found if isinstance(found, OwnData) else None

    def judge(self) -> nn.Module:
        """Return the module as it is judged: eager, in float32, without random numbers, by the statistics of what it is
        judged on, since running ones are averaged by no technique.
        """
        model = self._made()
        model.eval()
        for part in model.modules():
            if isinstance(part, NORMS):
                part.train()
        return model

    def _made(self) -> OwnModel:
        inner = self.own.made(self.model_seed, self.offered(), self.device)
        if self.start is not None:
            with torch.no_grad():
                for parameter, weight in zip(inner.parameters(), self.start, strict=True):
                    parameter.copy_(weight)
        model = OwnModel(inner, self.own.loss, draws=self.own.draws)
        model.train()  # a factory may hand over a module as it is judged
        return model

    def offered(self) -> dict[str, Any]:
        """Return what the model's factory may ask for beside seed and folder."""
        return {} if self.data else {"vocabulary": self.corpus.vocabulary, "context": self.context}

    def num_parameters(self, experts: int) -> int:
        """Return the number of the module's parameters."""
        return sum(
            p.numel() for p in self.own.made(self.model_seed, self.offered(), self.device).parameters()
        )

    def batch(self, step: int, rows: range) -> Tensor:
        """Return some rows of a step's global batch; of a user's data an ``OwnBatch``."""
        data, ranks = self.data, self.own.world_size
        if data is None:
            return Setting.batch(self, step, rows)
        if rows.step == ranks and rows.start < ranks and len(rows) == self.batch_size // ranks:
            return handed_on(data.rank_batch(self.data_seed, step, rows.start))
        whole = data.whole_batch(self.data_seed, step)
        return handed_on(whole if rows == range(self.batch_size) else whole[list(rows)])

    def held_out(self, seed: int, count: int) -> Tensor:
        """Return what is judged on; of a user's data an ``OwnBatch``."""
        if self.data is None:
            return Setting.held_out(self, seed, count)
        return handed_on(self.data.held_out(seed, count))
