"""A small convolutional network, and images of 8 × 8 to learn from: noise around one pattern a class."""

import torch
from blocks import Residual
from torch import nn
from torch.utils.data import TensorDataset


def make_model():
    """Return the network; its weights are drawn from torch's generator, which is seeded."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        *(Residual(16) for _ in range(4)),
        nn.Flatten(),
        nn.Dropout(0.1),
        nn.Linear(16 * 64, 10),
    )


def make_data():
    """Return the images as a dataset of (image, label): shuffled, split and dealt out to ranks by the harness."""
    draw = torch.Generator().manual_seed(0)
    patterns = torch.randn(10, 1, 8, 8, generator=draw)
    labels = torch.randint(10, (5000,), generator=draw)
    return TensorDataset(patterns[labels] + torch.randn(5000, 1, 8, 8, generator=draw), labels)


def make_loader(batch_size, split):
    """Yield the same kind of batches without an end, each rank's own."""
    patterns = torch.randn(10, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    while True:
        labels = torch.randint(10, (batch_size,))
        yield patterns[labels] + torch.randn(batch_size, 1, 8, 8), labels
