"""What draws, counts and judges where ranks share denoising: nothing in it may be replaced by a technique."""

from __future__ import annotations

from types import ModuleType

from paceline.families.serving import denoising
from paceline.families.serving.diffusion import arm, images, journal, network, process
from paceline.families.serving.simulation import profiling
from paceline.worker import comm

SEALED: tuple[ModuleType, ...] = (denoising, arm, images, journal, network, process, profiling, comm)
