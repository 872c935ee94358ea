"""Tiny networks of ``transformers`` with a tokenizer, made and saved where a test wants them; nothing is downloaded."""

from __future__ import annotations

from pathlib import Path

import torch

WORDS = (
    *("the", "a", "of", "is", "one", "two", "three", "four", "five", "six"),
    *("plus", "minus", "equals", "answer", "what", "so", "we", "have", "then"),
    *(f"word{number}" for number in range(175)),
)
"""With the special ones 200, so that few traces end early."""
SPECIAL = ("<s>", "</s>", "<end>", "<unk>", "<user>", "<model>")
CONTEXT = 48
TEMPLATE = (
    "{% for m in messages %}<user> {{ m['content'] }} <end> {% endfor %}"
    "{% if add_generation_prompt %}<model>{% endif %}"
)


def make(
    folder: Path, kind: str, *, template: str | None = TEMPLATE, context: int = CONTEXT, ends: bool = True
) -> Path:
    """Save a network of random weights, ``llama`` (two queries share a key) or ``gpt2``, and its tokenizer.

    Unless it ``ends``, no token ends what it writes.
    """
    # Here, since it takes four seconds, and every process that collects tests imports this module.
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import (
        GPT2Config,
        GPT2LMHeadModel,
        LlamaConfig,
        LlamaForCausalLM,
        PreTrainedTokenizerFast,
    )

    vocabulary = {word: place for place, word in enumerate((*SPECIAL, *WORDS))}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        additional_special_tokens=["<end>", "<user>", "<model>"],
    )
    tokenizer.chat_template = template
    torch.manual_seed(7)
    if kind == "llama":
        network = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=len(vocabulary),
                hidden_size=32,
                intermediate_size=48,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
                max_position_embeddings=context,
                initializer_range=0.2,
            )
        )
    else:
        network = GPT2LMHeadModel(
            GPT2Config(
                vocab_size=len(vocabulary),
                n_embd=32,
                n_layer=2,
                n_head=2,
                n_positions=context,
                initializer_range=0.2,
            )
        )
    network.generation_config.eos_token_id = [vocabulary["</s>"], vocabulary["<end>"]] if ends else None
    network.generation_config.pad_token_id = None
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
