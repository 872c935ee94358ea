"""What all techniques of a block share: model, data and their seeds; the batches that a rank reads."""

from __future__ import annotations

import time
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self, TypeVar

import torch
from torch import Tensor, nn

from paceline.families.training.api.absence import Absence
from paceline.families.training.api.model import Layer, Transformer, loss_and_gradients
from paceline.families.training.api.own import Batch, OwnModel, on_device
from paceline.families.training.api.replica import Replica, Task
from paceline.families.training.api.sizes import Size
from paceline.families.training.core.data.corpus import Corpus
from paceline.families.training.core.planning.parameters import FLOAT32
from paceline.worker.ranks.session import CaseError, Session
from paceline.worker.timing.interleaved import median

_clock_ns = time.perf_counter_ns

CALIBRATION_STEPS = 7
TORCH_DTYPES = {"bfloat16": torch.bfloat16}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What all techniques of a block share: model, data, and the seeds of both.

    Operations with facts of their own derive from it, and override what these change.
    """

    corpus: Corpus
    whole_batch: bool = False
    """Whether every rank reads all sequences of a step."""
    microbatches: int = 1
    size: Size
    context: int
    batch_size: int
    steps: int
    optimizer: str
    peak_rate: float
    warmup_steps: int
    device: torch.device
    dtype: str = FLOAT32
    """What forward and backward multiply in."""
    compiled: bool = False
    recomputes: bool = False
    """Whether layers compute again in backward what they would have kept."""
    model_seed: int
    data_seed: int
    shared_seed: int
    """What techniques are told: it has nothing to do with the data."""
    head_bias: bool = False
    """Whether the head has a bias, zero at first."""
    trained_names: str = ""
    """What the names of trained parameters contain; nothing means all parameters."""
    start: tuple[Tensor, ...] | None = None
    """Weights from which all techniques begin, in the model's order; None draws them."""
    proof_draws: int = 1
    """Most batches that a step of a proof draws; another where the last was not ``decided``."""
    absence: Absence | None = None
    """Who leaves training and comes back."""
    require_convergence: bool = True
    """Whether a run is incorrect whose held-out loss does not fall."""

    @property
    def narrow(self) -> bool:
        """Whether products are rounded to fewer digits than float32 has."""
        return self.dtype != FLOAT32

    @property
    def by_share(self) -> bool:
        """Whether a step's gradients are taken share by share, since how its sequences are split changes them.

        Narrow ones are rounded share by share. On accelerators the order of a product's sums depends on its shape.
        """
        on_accelerator = self.device.type != "cpu" and self.splits_by_rows and not self.whole_batch
        return self.narrow or on_accelerator

    @property
    def vocabulary(self) -> int:
        """Symbols of the model; data of fewer use the first of them."""
        return max(self.size.symbols, self.corpus.vocabulary)

    def model(self) -> nn.Module:
        """Return the model with its initial weights, as the point trains it."""
        model = self._made()
        if self.dtype != FLOAT32:
            model.narrow = TORCH_DTYPES[self.dtype]
        if self.compiled:
            model.compile_layers()
        if self.recomputes:
            assert isinstance(model, Transformer), "a model of one's own recomputes what its module says"
            model.recompute_layers()
        return model

    def judge(self) -> nn.Module:
        """Return the model with its initial weights, eager and in float32, as all points are judged."""
        return self._made()

    def num_parameters(self, experts: int) -> int:
        """Return the number of the model's parameters, by closed form."""
        return self.size.parameters(self.vocabulary, experts)

    def _made(self) -> Transformer | OwnModel:
        # Made where it trains; its weights are drawn on the host (Transformer.initialise).
        with torch.device(self.device):
            model = Transformer(
                self.size,
                vocabulary=self.vocabulary,
                context=self.context,
                head_bias=self.head_bias,
                layer=self.layer,
            )
        model.initialise(self.model_seed)
        if self.start is not None:
            with torch.no_grad():
                for parameter, weight in zip(model.parameters(), self.start, strict=True):
                    parameter.copy_(weight)
        for name, parameter in model.named_parameters():
            # "" is in every name, so by default all parameters are trained.
            parameter.requires_grad_(self.trained_names in name)
        return model

    # What operations override

    splits_by_rows: ClassVar[bool] = True
    """Whether the gradient of a batch is the mean of those of its parts, whatever the other rows are."""

    def layer(self, size: Size) -> Layer:
        """Return a layer of the model."""
        return Layer(size)

    def told(self, task: Task) -> Task:
        """Add to a task what techniques are told beside."""
        return task

    def furnished(self, session: Session, task: Task) -> Task:
        """Add to the task of a technique's replica what it has to itself, such as a folder."""
        return task

    def unlock(self, replica: Replica) -> None:
        """Give a replica what it may not know while it is made."""

    def priced(self, task: Task) -> Task:
        """Add to a task what closed forms alone may know."""
        return replace(task, absence=self.absence)

    def decided(self, model: Transformer) -> bool:
        """Tell whether what a model made of its last batch hung on no rounding."""
        return True

    # What they build on

    def other_weights(self) -> Self:
        """Return the same with other initial weights: what a checkpoint does not bring is missed."""
        return replace(self, model_seed=self.model_seed + 1, start=None)

    def task(self, *, rank: int, world_size: int) -> Task:
        """Return one rank's task, with a model of its own."""
        task = Task(
            model=self.model(),
            rank=rank,
            world_size=world_size,
            device=self.device,
            seed=self.shared_seed,
            steps=self.steps,
            optimizer_name=self.optimizer,
            peak_rate=self.peak_rate,
            warmup_steps=self.warmup_steps,
            microbatches=self.microbatches,
            tokens=self.batch_size * self.context,
            context=self.context,
        )
        return self.told(task)

    def rows(self, rank: int, world_size: int) -> range:
        """Return the rows of a step's global batch that a rank reads."""
        # Every n-th row, not a block: any number of ranks then reads the same global batch in the same order.
        return range(self.batch_size) if self.whole_batch else range(rank, self.batch_size, world_size)

    def batch(self, step: int, rows: range) -> Tensor:
        """Return some rows of a step's global batch as int16, (rows, context + 1)."""
        drawn = self.corpus.train(self.data_seed, step, rows, self.batch_size, self.context + 1)
        return torch.from_numpy(drawn).to(torch.int16)

    def held_out(self, seed: int, count: int) -> Tensor:
        """Return sequences that are judged, (count, context + 1), as int16, which holds all symbols."""
        return torch.from_numpy(self.corpus.held_out(seed, count, self.context + 1)).to(torch.int16)


Own = TypeVar("Own", bound=Setting)


def widened(setting: Setting, kind: type[Own], **own: Any) -> Own:
    """Return the same facts as an operation's own kind of setting, with its further ones."""
    return kind(**{f.name: getattr(setting, f.name) for f in fields(setting)}, **own)


def prepare_torch(device: torch.device) -> None:
    """Let torch's optimisers do now what they do once in a process, before any technique is watched."""
    for kind in (torch.optim.AdamW, torch.optim.SGD):
        weight = torch.nn.Parameter(torch.zeros(1, device=device))
        weight.grad = torch.zeros_like(weight)
        kind([weight], lr=0.1).step()


def compile_shapes(setting: Setting, session: Session) -> None:
    """Let the compiler do now what it does once for a shape, before any technique is watched.

    Raises:
        CaseError: ``unsupported``: it cannot, here.
    """
    shapes = [setting.rows(session.rank, session.world_size)]
    if not setting.by_share:
        shapes.append(range(setting.batch_size))  # what techniques are held against
    try:
        for rows in shapes:
            loss_and_gradients(setting.model(), on_device(setting.batch(0, rows), setting.device))
    except Exception as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise CaseError("unsupported", f"torch.compile failed: {reason}") from error


def compute_seconds(setting: Setting, sequences_BS: Batch) -> float:
    """Return the median seconds of forward and backward of one rank's share, without any technique."""
    model = setting.model()
    seconds = []
    for _ in range(CALIBRATION_STEPS):
        begin = _clock_ns()
        loss_and_gradients(model, on_device(sequences_BS, setting.device))
        if setting.device.type != "cpu":
            torch.accelerator.synchronize()
        # Synchronised before the clock is read: launches of kernels return at once.
        seconds.append((_clock_ns() - begin) * 1e-9)
    return median(seconds)


def local_batches(
    setting: Setting, session: Session, *, corrupted: bool = False, data_overlap: float = 0.0
) -> Tensor:
    """Draw this rank's sequences of all steps, (steps, rows, context + 1), as int16.

    Args:
        setting: The point's.
        session: The rank.
        corrupted: From half of the run on, symbols are drawn at random instead.
        data_overlap: Share of the sequences of a step in which all ranks read rank 0's.
    """
    rows = setting.rows(session.rank, session.world_size)
    found = torch.stack([setting.batch(step, rows) for step in range(setting.steps)])
    shared = round(data_overlap * len(rows))
    if shared and session.rank:
        first = setting.rows(0, session.world_size)
        for step in range(setting.steps):
            # Rank 0's first rows in the place of the own ones: the number of rows stays, and their variety falls.
            found[step, :shared] = setting.batch(step, first)[:shared]
    if corrupted:
        bad = found[setting.steps // 2 :]
        # Seeded by the data: every technique of a block meets the same bad symbols.
        generator = torch.Generator().manual_seed(setting.data_seed)
        bad.copy_(torch.randint(setting.corpus.vocabulary, bad.shape, generator=generator))
    return found
