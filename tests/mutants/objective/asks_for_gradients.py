"""Says that it asks for values alone, and asks for gradients."""

from __future__ import annotations

from paceline.baselines.training.federated_averaging import FederatedAveraging

from paceline import technique


@technique(
    name="asks-for-gradients",
    family="training",
    implements=("objective",),
    summary="says that it asks for values alone, and asks for gradients",
    properties={"by_values": True},
)
class AsksForGradients(FederatedAveraging):
    """Is federated averaging."""
