"""What all techniques of a block share: model, data and their seeds; the batches that a rank reads."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from paceline.families.training.api.absence import Absence
from paceline.families.training.api.expert.layer import ExpertLayer
from paceline.families.training.api.model import Layer, Transformer, loss_and_gradients
from paceline.families.training.api.replica import Task
from paceline.families.training.api.router import Router
from paceline.families.training.api.sizes import Size
from paceline.families.training.core.corpus import Corpus
from paceline.families.training.core.parameters import FLOAT32
from paceline.worker.session import CaseError, Session
from paceline.worker.timing import median

_clock_ns = time.perf_counter_ns

CALIBRATION_STEPS = 7
TORCH_DTYPES = {"bfloat16": torch.bfloat16}
TUNED = {"all": "", "gains": "gain", "bias": "head_bias"}
"""What the names of trained parameters contain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What all techniques of a block share: model, data, and the seeds of both."""

    corpus: Corpus
    whole_batch: bool = False
    """Whether every rank reads all sequences of a step."""
    microbatches: int = 1
    experts: int = 0
    """Experts of a layer; without any it has a perceptron."""
    top_k: int = 0
    """Experts of a token."""
    capacity: float = 1.0
    """Slots of all experts together, over what all tokens would need."""
    router: Router | None = None
    """Where tokens go at inference."""
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
    model_seed: int
    data_seed: int
    shared_seed: int
    """What techniques are told: it has nothing to do with the data."""
    tuned: str = "all"
    """What is trained: all parameters, the gains of norms, or a bias of the head (TUNED)."""
    start: tuple[Tensor, ...] | None = None
    """Weights from which all techniques begin, in the model's order; None draws them."""
    probes: int = 1
    probe_distance: float = 0.0
    folder: Path | None = None
    """Where checkpoints are written to."""
    absence: Absence | None = None
    """Who leaves training and comes back."""
    must_learn: bool = True
    """Whether a run is incorrect whose held-out loss does not fall."""

    @property
    def by_share(self) -> bool:
        """Whether a step's gradients depend on how its sequences are split: narrow ones are rounded share by share."""
        return self.dtype != FLOAT32

    def model(self) -> Transformer:
        """Return the model with its initial weights, as the point trains it."""
        model = self.judge()
        if self.dtype != FLOAT32:
            model.narrow = TORCH_DTYPES[self.dtype]
        if self.compiled:
            model.compile_layers()
        return model

    def judge(self) -> Transformer:
        """Return the model with its initial weights, eager and in float32, as all points are judged."""
        with torch.device(self.device):
            model = Transformer(
                self.size,
                vocabulary=self.corpus.vocabulary,
                context=self.context,
                head_bias=self.tuned == "bias",
                layer=self._layer if self.experts else Layer,
            )
        model.initialise(self.model_seed)
        if self.start is not None:
            with torch.no_grad():
                for parameter, weight in zip(model.parameters(), self.start, strict=True):
                    parameter.copy_(weight)
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(TUNED[self.tuned] in name)
        return model

    def other_weights(self) -> Setting:
        """Return the same with other initial weights: what a checkpoint does not bring is missed."""
        return replace(self, model_seed=self.model_seed + 1, start=None)

    def _layer(self, size: Size) -> Layer:
        return ExpertLayer(size, num_experts=self.experts, top_k=self.top_k, capacity_factor=self.capacity)

    def task(self, *, rank: int, world_size: int) -> Task:
        """Return one rank's task, with a model of its own."""
        return Task(
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
            probes=self.probes,
            probe_distance=self.probe_distance,
            router=self.router.sample() if self.router else None,
        )

    def rows(self, rank: int, world_size: int) -> range:
        """Return the rows of a step's global batch that a rank reads."""
        return range(self.batch_size) if self.whole_batch else range(rank, self.batch_size, world_size)

    def batch(self, step: int, rows: range) -> Tensor:
        """Return some rows of a step's global batch as int16, (rows, context + 1)."""
        drawn = self.corpus.train(self.data_seed, step, rows, self.batch_size, self.context + 1)
        return torch.from_numpy(drawn).to(torch.int16)


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
            loss_and_gradients(setting.model(), setting.batch(0, rows).to(setting.device).long())
    except Exception as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise CaseError("unsupported", f"torch.compile failed: {reason}") from error


def compute_seconds(setting: Setting, sequences_BS: Tensor) -> float:
    """Return the median seconds of forward and backward of one rank's share, without any technique."""
    model = setting.model()
    seconds = []
    for _ in range(CALIBRATION_STEPS):
        begin = _clock_ns()
        loss_and_gradients(model, sequences_BS.to(setting.device).long())
        if setting.device.type != "cpu":
            torch.accelerator.synchronize()
        seconds.append((_clock_ns() - begin) * 1e-9)
    return median(seconds)


def local_batches(setting: Setting, session: Session, *, corrupt: bool = False, alike: float = 0.0) -> Tensor:
    """Draw this rank's sequences of all steps, (steps, rows, context + 1), as int16.

    Args:
        setting: The point's.
        session: The rank.
        corrupt: From half of the run on, symbols are drawn at random instead.
        alike: Share of the sequences of a step in which all ranks read rank 0's.
    """
    rows = setting.rows(session.rank, session.world_size)
    found = torch.stack([setting.batch(step, rows) for step in range(setting.steps)])
    shared = round(alike * len(rows))
    if shared and session.rank:
        first = setting.rows(0, session.world_size)
        for step in range(setting.steps):
            found[step, :shared] = setting.batch(step, first)[:shared]
    if corrupt:
        bad = found[setting.steps // 2 :]
        generator = torch.Generator().manual_seed(setting.data_seed)
        bad.copy_(torch.randint(setting.corpus.vocabulary, bad.shape, generator=generator))
    return found
