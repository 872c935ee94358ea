"""A block of the network in network.py."""

from torch import nn


class Residual(nn.Module):
    """Adds a normalised convolution to its input."""

    def __init__(self, channels):
        super().__init__()
        self.convolution = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        """Return the sum."""
        return x + self.norm(self.convolution(x)).relu()
