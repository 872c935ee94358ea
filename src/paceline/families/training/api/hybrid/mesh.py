"""Where a rank stands in a mesh of tensor × data × pipeline parallelism, and with whom it shares what.

Neighbours share matrices, which is where most is exchanged; layers lie farthest apart (Narayanan et al., "Efficient
Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", SC 2021, section 3: tensor parallelism inside a
machine, pipelines between machines). Free of torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd


@dataclass(frozen=True, slots=True, kw_only=True)
class Mesh:
    """Degrees of the three axes, and one rank's place on each."""

    rank: int
    tensor: int
    """t: ranks that share every matrix of a layer."""
    data: int
    """d: copies of the model, each with a part of the sequences."""
    pipeline: int
    """p: ranks among which the layers of a copy are dealt out."""

    @classmethod
    def of(cls, rank: int, world_size: int, *, tensor: int, pipeline: int) -> Mesh:
        """Lay out all ranks; what two axes leave is the third's.

        Args:
            rank: The rank.
            world_size: n.
            tensor: t, lowered to the greatest divisor that it shares with the number of ranks.
            pipeline: p, lowered likewise by what is left.
        """
        # Tensor first, then stages of what is left; the rest are copies: any number of ranks has a mesh.
        shared = gcd(tensor, world_size)
        stages = gcd(pipeline, world_size // shared)
        return cls(rank=rank, tensor=shared, data=world_size // shared // stages, pipeline=stages)

    @property
    def tensor_place(self) -> int:
        """Index among those that share matrices with this rank."""
        # The fastest axis: ranks of one group are neighbours, and so on one machine wherever machines have t ranks.
        return self.rank % self.tensor

    @property
    def data_place(self) -> int:
        """Index of this rank's copy of the model."""
        return self.rank // self.tensor % self.data

    @property
    def pipeline_place(self) -> int:
        """Index of this rank's stage."""
        # The slowest axis: stages send least, so they may lie farthest apart.
        return self.rank // (self.tensor * self.data)

    @property
    def tensor_ranks(self) -> range:
        """Those that share matrices with this rank."""
        first = self.rank - self.tensor_place
        return range(first, first + self.tensor)

    @property
    def data_ranks(self) -> range:
        """Those that hold the same as this rank in the other copies."""
        first = self.rank - self.data_place * self.tensor
        return range(first, first + self.data * self.tensor, self.tensor)

    @property
    def pipeline_ranks(self) -> range:
        """Those that hold the other layers of this rank's copy, at its place in their matrices."""
        apart = self.tensor * self.data
        return range(self.rank % apart, apart * self.pipeline, apart)
