"""What networks of ``transformers`` and their tokenizers say of themselves: the longest text, its ends, its letters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paceline.base.counting import number_of
from paceline.base.errors import UserError


def text_of(tokenizer: Any, tokens: Sequence[int]) -> str:
    """Return the text of tokens, without special ones."""
    text: str = tokenizer.decode(list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return text


def chat_prompt(tokenizer: Any, question: str, system: str, options: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the tokens of a prompt: by the tokenizer's template, or as it begins texts without one."""
    if tokenizer.chat_template is None:
        begin = f"{system}\n\n" if system else ""
        return tuple(tokenizer.encode(begin + question))
    said = [{"role": "system", "content": system}] if system else []
    text = tokenizer.apply_chat_template(
        [*said, {"role": "user", "content": question}], tokenize=False, add_generation_prompt=True, **options
    )
    return tuple(tokenizer.encode(text, add_special_tokens=False))


def context_of(config: Any, identity: str, asked: int | None) -> int:
    """Return the longest trace: what was asked for, within positions and any window of the network.

    Raises:
        UserError: The network names no longest text and none was asked for, or a longer one was.
    """
    names = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len")
    known = next((int(size) for name in names if (size := getattr(config, name, None))), None)
    # Beyond a window keys are hidden by a rule of the network's own, which the slots' mask does not have.
    slides = getattr(config, "use_sliding_window", True) and getattr(config, "sliding_window", None)
    limits = [size for size in (known, int(slides) if slides else None) if size is not None]
    if asked is None and not limits:
        raise UserError("the network names no longest text", where=identity, fix="give context=…")
    most = min([*limits, *([asked] if asked else [])])
    if asked is not None and not 2 <= asked <= most:
        raise UserError(
            f"a context of {number_of(asked, 'token')}",
            where=identity,
            expected=f"2 to {min(limits)}" if limits else "2 or more",
            fix="give another one",
        )
    return most


def end_tokens(network: Any, tokenizer: Any) -> frozenset[int]:
    """Return the tokens that end a text, of the generation's settings, or else of the tokenizer."""
    configured = getattr(getattr(network, "generation_config", None), "eos_token_id", None)
    found = tokenizer.eos_token_id if configured is None else configured
    if found is None:
        return frozenset()
    return frozenset([found] if isinstance(found, int) else map(int, found))
