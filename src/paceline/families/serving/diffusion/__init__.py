"""A small image model that is really trained, and what is measured where ranks share its denoising."""

from __future__ import annotations

from pathlib import Path

WEIGHTS = Path(__file__).parent / "weights" / "denoiser.safetensors"
