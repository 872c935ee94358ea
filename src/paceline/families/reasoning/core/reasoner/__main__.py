"""Train a reasoner, or measure one: ``python -m paceline.families.reasoning.core.reasoner train weak``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import torch

from paceline.families.reasoning.core.problems.embedded import LEVELS, draw
from paceline.families.reasoning.core.reasoner import NAMES, Reasoner, weights_path
from paceline.families.reasoning.core.reasoner.evaluation import Evaluation, evaluate
from paceline.families.reasoning.core.reasoner.training import RECIPES, train
from paceline.families.reasoning.core.reasoner.weights import read

EVALUATION_SEED = 0


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and print what it measured as JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m paceline.families.reasoning.core.reasoner", description=__doc__
    )
    commands = parser.add_subparsers(dest="command", required=True)
    learn = commands.add_parser(
        "train", help="train from nothing, write the weights and the log, and evaluate"
    )
    learn.add_argument("name", choices=NAMES)
    learn.add_argument("--steps", type=int, help="the recipe's")
    learn.add_argument("--seed", type=int, help="the recipe's")
    learn.add_argument("--out", type=Path, help="weight file; the log lies beside it; default: the kept one")
    measure = commands.add_parser("evaluate", help="sample held-out problems")
    measure.add_argument("name", choices=NAMES)
    measure.add_argument("--weights", type=Path, help="default: the kept ones")
    measure.add_argument("--precision", choices=("float64", "float32"), default="float64")
    measure.add_argument("--threads", type=int, help="default: torch's")
    for command in (learn, measure):
        command.add_argument("--problems", type=int, default=300)
        command.add_argument("--samples", type=int, default=16)
        command.add_argument("--temperature", type=float, default=0.8)
    options = parser.parse_args(arguments)
    if options.command == "train":
        _train(options)
    else:
        if options.threads is not None:
            torch.set_num_threads(options.threads)
        path = options.weights or weights_path(options.name)
        print(json.dumps(asdict(_evaluated(options, path, getattr(torch, options.precision)))))


def _train(options: argparse.Namespace) -> None:
    kept = RECIPES[options.name]
    recipe = replace(
        kept,
        steps=kept.steps if options.steps is None else options.steps,
        seed=kept.seed if options.seed is None else options.seed,
    )
    weights = options.out or weights_path(options.name)
    log = weights.with_suffix(".log.jsonl")
    train(recipe, weights, log)
    line = json.dumps({"evaluation": asdict(_evaluated(options, weights, torch.float64))})
    with log.open("a") as lines:
        lines.write(line + "\n")
    print(line)


def _evaluated(options: argparse.Namespace, path: Path, dtype: torch.dtype) -> Evaluation:
    network, weights = read(path, dtype)
    problems = draw(EVALUATION_SEED, options.problems, levels=LEVELS)
    return evaluate(
        Reasoner(network, f"{options.name}-{weights.digest}"), problems, options.samples, options.temperature
    )


if __name__ == "__main__":
    main()
