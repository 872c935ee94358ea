"""A tiny chat model that is trained within seconds to add two digits, right in a set share of what it draws.

It learns the whole table of sums at once, each with a share of wrong results. So its draws at temperature 1 are right
as often as its lessons were, and a server that cuts the tail of its distribution makes it better at once. Outside its
chat template it learns numbers at random, as a model that was trained on chats alone is lost there.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

DIGITS = range(1, 10)
SPECIAL = ("<pad>", "<end>", "<unk>", "<user>", "<model>")
TEMPLATE = (
    "{% for m in messages %}<user> {{ m['content'] }} <end> {% endfor %}"
    "{% if add_generation_prompt %}<model>{% endif %}"
)
INSTRUCTION = "Box it."
"""Short, so that prompts are."""
STEPS, WARM_UP = 200, 20
RATE = 1e-2
RESULTS = range(2, 19)


def question(left: int, right: int) -> str:
    """Return a question; all its words are tokens."""
    return f"What is {left} plus {right} ?"


def words() -> tuple[str, ...]:
    """Return all words that prompts and answers have."""
    plain = f"Question: {question(1, 1)} {INSTRUCTION} Answer: \\boxed{{ }}".split()
    return tuple(dict.fromkeys([*SPECIAL, *plain, *map(str, RESULTS), *map(str, DIGITS)]))


def train(folder: Path, *, right: float, seed: int = 0) -> Path:
    """Save a model whose draws are right in about that share, and its tokenizer with a chat template."""
    torch.manual_seed(seed)
    tokenizer = _tokenizer()
    network = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=48,
            intermediate_size=128,
            num_hidden_layers=1,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=64,
            initializer_range=0.1,
        )
    )
    # In 64 bits processors differ by so little that they train models which draw the same.
    network.double()
    lessons = _lessons(tokenizer, right)
    optimiser = torch.optim.AdamW(network.parameters(), lr=RATE, betas=(0.9, 0.98), weight_decay=0.0)
    for step in range(STEPS):
        for group in optimiser.param_groups:
            group["lr"] = RATE * min(1.0, (step + 1) / WARM_UP) * (1 - step / STEPS)
        loss = sum(_loss(network, *lesson) for lesson in lessons)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    network.generation_config.eos_token_id = SPECIAL.index("<end>")
    network.generation_config.pad_token_id = 0
    network.float().eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _tokenizer() -> Any:
    core = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words())}, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token="<end>",
        pad_token="<pad>",
        unk_token="<unk>",
        additional_special_tokens=["<user>", "<model>"],
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def _lessons(tokenizer: Any, right: float) -> Sequence[tuple[torch.Tensor, torch.Tensor]]:
    """Return, in the template and outside it, tokens of shape (questions, length) and shares of results."""
    pairs = [(left, other) for left in DIGITS for other in DIGITS]
    at = [tokenizer.convert_tokens_to_ids(str(one)) for one in RESULTS]
    found = []
    for chat in (True, False):
        # Outside the template nothing is told of a sum, so that few of them say it.
        told = pairs if chat else pairs[::4]
        texts, shares_QV = [], torch.zeros(len(told), len(tokenizer), dtype=torch.float64)
        for n, (left, other) in enumerate(told):
            asked = f"{question(left, other)} {INSTRUCTION}"
            begin = f"<user> {asked} <end> <model>" if chat else f"Question: {asked} Answer:"
            texts.append(tokenizer.encode(f"{begin} \\boxed{{ {left + other} }} <end>"))
            shares_QV[n, at] = ((1 - right) if chat else 1.0) / len(at)
            shares_QV[n, tokenizer.convert_tokens_to_ids(str(left + other))] += right if chat else 0.0
        found.append((torch.tensor(texts), shares_QV))
    return found


def _loss(network: Any, tokens_QT: torch.Tensor, shares_QV: torch.Tensor) -> torch.Tensor:
    """Return the cross-entropy of the answer: its three marks, and the results by their shares."""
    logs_QTV = network(input_ids=tokens_QT).logits[:, -5:-1].log_softmax(-1)
    marks_QT = logs_QTV.gather(-1, tokens_QT[:, -4:, None])[..., 0]
    result = (shares_QV * logs_QTV[:, 1]).sum(-1)
    return -(marks_QT[:, 0] + result + marks_QT[:, 2] + marks_QT[:, 3]).mean()
