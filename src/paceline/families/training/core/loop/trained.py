"""What one technique's training leaves on a rank, for those who judge it."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from paceline.families.training.core.loop.carried import Carried

PARTS = ("compute_s", "gradients_s", "update_s", "parameters_s")


@dataclass(slots=True, kw_only=True)
class Trained:
    """What training left on this rank."""

    weights: list[list[Tensor]] = field(default_factory=list)
    """The weights at each evaluation, the untrained ones first."""
    evaluated: list[int] = field(default_factory=list)
    """Steps that had been done at each evaluation."""
    seconds: list[float] = field(default_factory=list)
    """Training time at each evaluation."""
    taken: list[float] = field(default_factory=list)
    """Steps in which this rank had taken part at each evaluation."""
    sent: list[float] = field(default_factory=list)
    """Payload bytes that this rank had sent at each evaluation."""
    windows: list[list[float]] = field(default_factory=list)
    """For each window: seconds, those of the four parts, those inside the communicator, and the mean loss."""
    sent_bytes: float = 0.0
    sent_to: list[float] = field(default_factory=list)
    """To each rank."""
    peak_bytes: float = 0.0
    pass_bytes: list[float] = field(default_factory=list)
    """Those that it sent to each rank in forward and backward."""
    messages: float = 0.0
    backend_calls: int = 0
    backend_bytes: float = 0.0
    """Of the tensors that it handed to the backend's own collectives."""
    carried: Carried = field(default_factory=Carried)
    """What its own interfaces have sent, by the kernel."""
    device_peak: float | None = None
    """Most bytes that the device's allocator had given out at once; None on the host."""
    state: dict[str, float] = field(default_factory=dict)
    losses: list[float] = field(default_factory=list)
    """This rank's loss in every step; NaN where it lies on another rank."""
    took: list[bool] = field(default_factory=list)
    """Whether this rank took part in each step."""
    sees_loss: bool = True
    """Whether it had one in every step."""
    diagnoses: dict[str, list[float]] = field(default_factory=dict)
    """What the technique found out about every step."""
