"""What paging costs: the engine against a plain batched loop of the same model, at equal batch.

The loop has one cache of whole sequences, all of one length, and nothing else to do: no queue, no blocks, no scheduler.
Both give the same tokens. Time is the process's own, the two take turns, and the least of each counts, since other work
on the machine lengthens a run and never shortens it::

    python -m paceline.families.serving.core.engine.plain small --batch 32 --prompt 64 --answer 64
"""

from __future__ import annotations

import argparse
import importlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from paceline.base.counting import number_of
from paceline.families.serving.api.layers import Shape, rms_norm, rotated
from paceline.families.serving.core.engine.core import Engine
from paceline.families.serving.core.engine.model import Model
from paceline.families.serving.core.engine.stepper import Stepper
from paceline.families.serving.core.model_sizes import FIRST_TOKEN, SIZES

BLOCK_SIZE = 16
_cpu_s = time.process_time


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Equal requests that are all there at the start."""

    size: str
    batch: int
    prompt: int
    """Tokens of each prompt."""
    answer: int
    """Tokens of each answer."""

    def model(self) -> Model:
        """Return the model with room for all."""
        return Model(Shape.of({**SIZES[self.size], "seed": 1}), self.num_blocks * BLOCK_SIZE)

    @property
    def num_blocks(self) -> int:
        """Return the blocks that all take."""
        return self.batch * -(-(self.prompt + self.answer) // BLOCK_SIZE)

    def prompts(self, vocab: int) -> Tensor:
        """Draw the prompts, (batch, prompt)."""
        generator = torch.Generator().manual_seed(0)
        return torch.randint(FIRST_TOKEN, vocab, (self.batch, self.prompt), generator=generator)


@torch.inference_mode()
def plain_loop(model: Model, load: Load) -> list[list[int]]:
    """Answer with a cache of whole sequences; return each request's tokens."""
    shape, weights = model.shape, model.weights
    kv = shape.kv_heads * shape.head_dim
    room = (shape.layers, load.batch, shape.kv_heads, load.prompt + load.answer, shape.head_dim)
    cached = torch.zeros((2, *room), dtype=model.dtype)
    given_BT, first, found = load.prompts(shape.vocab), 0, []
    for _ in range(load.answer):
        rows = given_BT.shape[1]
        until = first + rows
        x = weights["embedding"][given_BT.reshape(-1)]
        positions = torch.arange(first, until).repeat(load.batch)
        turns = model.turns(positions)
        for layer in range(shape.layers):
            qkv = rms_norm(x, weights[f"{layer}.norm"]) @ weights[f"{layer}.qkv"].T
            turned = rotated(qkv[:, :-kv].reshape(len(x), -1, shape.head_dim), *turns)
            q, k = (
                part.reshape(load.batch, rows, -1, shape.head_dim).transpose(1, 2)
                for part in (turned[:, : shape.heads], turned[:, shape.heads :])
            )
            cached[0, layer, :, :, first:until] = k
            v = qkv[:, -kv:].reshape(load.batch, rows, -1, shape.head_dim).transpose(1, 2)
            cached[1, layer, :, :, first:until] = v
            keys, values = cached[0, layer, :, :, :until], cached[1, layer, :, :, :until]
            if rows == 1:  # heads of queries that share a head of keys are rows of it, as in the engine
                q = q.reshape(load.batch, shape.kv_heads, -1, shape.head_dim)
            # Several rows are the prompt alone, with nothing before it, so the plain causal mask is right.
            mixed = functional.scaled_dot_product_attention(
                q, keys, values, is_causal=rows > 1, enable_gqa=rows > 1 and shape.heads != shape.kv_heads
            )
            mixed = mixed.reshape(load.batch, -1) if rows == 1 else mixed.transpose(1, 2).reshape(len(x), -1)
            x = x + mixed @ weights[f"{layer}.o"].T
            gate, up = (rms_norm(x, weights[f"{layer}.ffn_norm"]) @ weights[f"{layer}.gate_up"].T).chunk(
                2, -1
            )
            x = x + (functional.silu(gate) * up) @ weights[f"{layer}.down"].T
        last = rms_norm(x.view(load.batch, rows, -1)[:, -1], weights["norm"])
        tokens_B = (last @ weights["head"].T).argmax(-1)
        found.append(tokens_B)
        given_BT, first = tokens_B[:, None], until
    return [[int(t) for t in row] for row in torch.stack(found, 1).tolist()]


def paged(model: Model, load: Load) -> list[list[int]]:
    """Answer with the engine under ``orca``; return each request's tokens."""
    scheduler = importlib.import_module("paceline.baselines.serving.orca").Orca()
    engine = Engine(
        scheduler,
        Stepper(model, BLOCK_SIZE),
        num_blocks=load.num_blocks,
        block_size=BLOCK_SIZE,
        max_batch=load.batch,
        token_budget=load.batch * load.prompt,
    )
    prompts: Sequence[list[int]] = load.prompts(model.shape.vocab).tolist()
    found: dict[int, list[int]] = {engine.submit(prompt, load.answer): [] for prompt in prompts}
    while engine.busy:
        for output in engine.step(0.0):
            found[output.number].append(output.token)
    return list(found.values())


def compare(load: Load, rounds: int) -> tuple[float, float]:
    """Return tokens per second of processor time: the engine's and the loop's.

    Raises:
        AssertionError: They answer differently.
    """
    model = load.model()
    assert paged(model, load) == plain_loop(model, load), "the engine's answers are not the loop's"
    ways: list[Callable[[Model, Load], object]] = [paged, plain_loop]
    least = dict.fromkeys(ways, float("inf"))
    for number in range(rounds):
        # Each goes first in half of the rounds, so a drift of the machine's clock favours neither.
        for way in ways if number % 2 else reversed(ways):
            begin = _cpu_s()
            way(model, load)
            least[way] = min(least[way], _cpu_s() - begin)
    tokens = load.batch * load.answer
    return tokens / least[paged], tokens / least[plain_loop]


def main() -> None:
    """Compare at one load and print the figures."""
    parser = argparse.ArgumentParser(description="The paged engine against a plain batched loop.")
    parser.add_argument("size", choices=sorted(SIZES))
    for name, default in (("batch", 32), ("prompt", 64), ("answer", 64), ("rounds", 9)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    torch.set_num_threads(1)
    load = Load(size=given.size, batch=given.batch, prompt=given.prompt, answer=given.answer)
    own, plain = compare(load, given.rounds)
    print(
        f"engine {number_of(own, 'token', form='.0f')}/s, plain loop {number_of(plain, 'token', form='.0f')}/s "
        f"of processor time: {own / plain:.3f}"
    )


if __name__ == "__main__":
    main()
