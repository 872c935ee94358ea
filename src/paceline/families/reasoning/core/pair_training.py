"""Trains the judge of pairs: ``python -m paceline.families.reasoning.core.pair_training``.

It takes about two minutes of one core.

Traces of the weak reasoner on problems to train on are cut after some tokens; a pair is alike when the whole traces
come to one answer. Pairs of both kinds are drawn equally often, and the focal loss (Lin et al., 2017, equation 4) lets
those count most that the judge is still wrong about. What is written beside the weights was measured on problems of
the same side that it was not trained on; held-out ones stay for suites.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import torch
from torch import Tensor, nn

from paceline.families.reasoning.core.estimates import auroc
from paceline.families.reasoning.core.language import Draw
from paceline.families.reasoning.core.pairs import FEATURES, FILE, compare_work, read_work
from paceline.families.reasoning.core.problems.embedded import LEVELS, Problem, draw, extract
from paceline.families.reasoning.core.reasoner import Reasoner, load

SEED = 5
NUM_PROBLEMS = 1000
NUM_SAMPLES = 6
CUTS = (16, 24, 32, 48)
"""Tokens after which traces are cut."""
VALIDATION_SHARE = 5
"""One problem in this many is not trained on."""
HIDDEN = 16
STEPS = 3000
PAIRS_OF_STEP = 512
RATE = 0.01
FOCUS = 2.0
TEMPERATURE = 0.8

Pair = tuple[list[float], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A problem with some traces of it."""

    problem: Problem
    traces: tuple[tuple[int, ...], ...]


def sample(model: Reasoner, seed: int, count: int) -> list[Example]:
    """Return problems to train on, with traces."""
    found = []
    problems = draw(seed, count, levels=LEVELS, held_out=False)
    for first in range(0, count, 32):
        chunk = problems[first : first + 32]
        handles = {}
        for number, problem in enumerate(chunk):
            for index in range(NUM_SAMPLES):
                key = Draw(key=(seed, first + number, index), temperature=TEMPERATURE)
                handle = model.begin(problem.prompt, key)
                model.advance(handle, model.context)
                handles[handle] = number
        traces: dict[int, dict[int, tuple[int, ...]]] = {}
        waiting = set(handles)
        while waiting:
            for piece in model.poll():
                traces.setdefault(handles[piece.trace], {})[piece.trace] = piece.tokens
                waiting.discard(piece.trace)
                model.drop(piece.trace)
        for number, problem in enumerate(chunk):
            of_one = tuple(tokens for _, tokens in sorted(traces[number].items()))
            found.append(Example(problem=problem, traces=of_one))
    return found


def pairs_of(examples: Sequence[Example], cut: int) -> list[Pair]:
    """Return features of all pairs of traces that go on after a cut, and whether they come to one answer."""
    found = []
    for example in examples:
        # Ended traces are never compared in use, so none is in training.
        going = [(read_work(t[:cut]), extract(t)) for t in example.traces if len(t) > cut]
        for (one, first), (other, second) in combinations(going, 2):
            alike = first is not None and first == second
            found.append((compare_work(example.problem.prompt, one, other), alike))
    return found


def train(pairs: Sequence[Pair], seed: int) -> nn.Sequential:
    """Return a perceptron that was trained on both kinds of pairs equally often."""
    torch.manual_seed(seed)
    rng = random.Random(seed)
    kinds = [[torch.tensor(f) for f, alike in pairs if alike == kind] for kind in (False, True)]
    model = nn.Sequential(nn.Linear(len(FEATURES), HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 1)).double()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    labels = torch.arange(2, dtype=torch.float64).repeat_interleave(PAIRS_OF_STEP // 2)
    for _ in range(STEPS):
        # Both kinds equally often, or the judge could always say the commoner one.
        drawn = [f for kind in kinds for f in rng.choices(kind, k=PAIRS_OF_STEP // 2)]
        loss = focal_loss(model(torch.stack(drawn).double())[:, 0], labels)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        schedule.step()
    return model


def focal_loss(logits_B: Tensor, labels_B: Tensor) -> Tensor:
    """Return the mean of −(1 − p)^γ log p, with p the probability of the right label."""
    # log p of the right label in one stable function: log(1 − sigmoid) loses all digits at large logits.
    logprob_B = nn.functional.logsigmoid(torch.where(labels_B > 0, logits_B, -logits_B))
    return -((1 - logprob_B.exp()) ** FOCUS * logprob_B).mean()


def measured(model: nn.Sequential, pairs: Sequence[Pair]) -> float:
    """Return the area under the receiver operating characteristic."""
    with torch.inference_mode():
        scores = model(torch.tensor([f for f, _ in pairs], dtype=torch.float64))[:, 0].tolist()
    return auroc(scores, [alike for _, alike in pairs])


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, and write the weights with what was measured."""
    parser = argparse.ArgumentParser(
        prog="python -m paceline.families.reasoning.core.pair_training", description=__doc__
    )
    parser.add_argument("--problems", type=int, default=NUM_PROBLEMS)
    parser.add_argument("--out", type=Path, default=FILE)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    reasoner = load("weak")
    examples = sample(reasoner, SEED, options.problems)
    # Split by problems and not by pairs: pairs of one problem share traces, and would leak.
    kept, trained_on = examples[::VALIDATION_SHARE], []
    for place, example in enumerate(examples):
        if place % VALIDATION_SHARE:
            trained_on.append(example)
    model = train([pair for cut in CUTS for pair in pairs_of(trained_on, cut)], SEED)
    first, _, last = model
    assert isinstance(first, nn.Linear) and isinstance(last, nn.Linear)
    log = {
        "reasoner": reasoner.identity,
        "seed": SEED,
        "problems": options.problems,
        "samples": NUM_SAMPLES,
        "auroc_by_cut": {cut: round(measured(model, pairs_of(kept, cut)), 4) for cut in CUTS},
    }
    weights = {
        "hidden": first.weight.T.tolist(),
        "hidden_bias": first.bias.tolist(),
        "out": last.weight[0].tolist(),
        "out_bias": last.bias.item(),
    }
    options.out.write_text(json.dumps({"log": log, "features": FEATURES, "weights": weights}) + "\n")
    print(json.dumps(log))


if __name__ == "__main__":
    main()
