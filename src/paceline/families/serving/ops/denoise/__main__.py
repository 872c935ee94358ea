"""Train the denoiser: ``python -m paceline.families.serving.ops.denoise``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from paceline.families.serving.ops.denoise.network import WEIGHTS
from paceline.families.serving.ops.denoise.training import SEED, STEPS, train


def main(arguments: Sequence[str] | None = None) -> None:
    """Train from nothing, and write weights and log."""
    parser = argparse.ArgumentParser(
        prog="python -m paceline.families.serving.ops.denoise", description=__doc__
    )
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--out", type=Path, default=WEIGHTS, help="weight file; the log lies beside it")
    options = parser.parse_args(arguments)
    train(options.out, options.out.with_suffix(".log.jsonl"), steps=options.steps, seed=options.seed)


if __name__ == "__main__":
    main()
