"""Prompts as words: as many as give the asked tokens, alike exactly where tokens are alike."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest

from paceline.base.errors import UserError
from paceline.families.serving.core.load.calls import Call, Messages, Workload
from paceline.families.serving.core.load.exact_words import ExactWords
from paceline.families.serving.core.load.words import VOCABULARY, WORDS, Wording, in_words
from paceline.families.serving.core.workloads.text_tokens import load_tokenizer


def drawn(seed: int, count: int) -> tuple[int, ...]:
    rng = random.Random(seed)
    return tuple(rng.randrange(4, VOCABULARY) for _ in range(count))


@pytest.mark.parametrize("per_word", [0.4, 1.0, 1.31, 6.0])
@pytest.mark.parametrize("tokens", [1, 7, 64, 513])
def test_a_prompt_has_the_asked_tokens_to_within_a_word(per_word: float, tokens: int) -> None:
    text = Wording(tokens_per_word=per_word).text(drawn(1, tokens), first=True)
    assert abs(len(text.split()) * per_word - tokens) <= max(per_word, 1.0)


def test_what_a_server_adds_is_taken_off_the_first_prompt_of_a_session_alone() -> None:
    wording = Wording(tokens_per_word=1.0, added_tokens=11.0)
    assert len(wording.text(drawn(1, 64), first=True).split()) == 53
    assert len(wording.text(drawn(1, 64), first=False).split()) == 64
    assert len(wording.text(drawn(1, 5), first=True).split()) == 1


@pytest.mark.parametrize("per_word", [0.7, 1.0, 1.31, 2.5])
def test_prompts_that_begin_alike_in_tokens_begin_alike_in_words_and_others_do_not(per_word: float) -> None:
    prefix, wording = drawn(1, 200), Wording(tokens_per_word=per_word)
    one, other = (wording.text(prefix + drawn(seed, 50), first=False).split() for seed in (2, 3))
    shared = int(200 / per_word)
    assert one[:shared] == other[:shared]
    assert one[shared + 2 :] != other[shared + 2 :]
    assert (
        wording.text(drawn(4, 64), first=True).split()[:8]
        != wording.text(drawn(5, 64), first=True).split()[:8]
    )


def test_turns_of_a_session_are_messages_of_a_user_in_a_chat_and_texts_elsewhere() -> None:
    calls = (
        Call(number=0, prompt=drawn(1, 9), output_tokens=3),
        Call(number=1, prompt=drawn(2, 5), output_tokens=3, after=(0,), carries=True),
    )
    workload = Workload(calls=calls, concurrency=1)
    chat = in_words(workload, Wording(), chat=True)
    assert all(
        c.chat and isinstance(c.prompt, Messages) and c.prompt.turns[0][0] == "user" for c in chat.calls
    )
    text = in_words(workload, Wording(), chat=False)
    assert all(not c.chat and isinstance(c.prompt, str) for c in text.calls)
    assert chat.concurrency == 1 and chat.calls[1].carries


def test_words_are_different_ones() -> None:
    assert len(set(WORDS)) == len(WORDS) > 500


def by_letters(text: str) -> int:
    """Count pieces of at most four characters, as tokenizers split words that they do not know."""
    return sum(-(-len(word) // 4) for word in text.split())


def by_whole_text(text: str) -> int:
    """Count pieces of three characters across words: no word has a count of its own."""
    return -(-len(text) // 3)


COUNTS = {
    "words": lambda text: len(text.split()),
    "letters": by_letters,
    "characters": len,
    "text": by_whole_text,
}


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("tokens", [1, 2, 7, 64, 513])
def test_with_a_tokenizer_a_prompt_has_exactly_the_asked_tokens(count: str, tokens: int) -> None:
    wording = Wording(tokens_per_word=3.0, added_tokens=11.0, exact=ExactWords(COUNTS[count]))
    for seed in range(5):
        for first in (True, False):
            assert COUNTS[count](wording.text(drawn(seed, tokens), first=first)) == tokens


@pytest.mark.parametrize("count", COUNTS)
def test_exact_prompts_share_their_beginning_where_their_tokens_do_and_no_others(count: str) -> None:
    exact, prefix = ExactWords(COUNTS[count]), drawn(1, 200)
    one, other, third = (exact.text(prefix + drawn(seed, 50)) for seed in (2, 3, 3))
    common = "".join(
        a for a, b in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    )
    assert other == third
    # the word in which the prefix ends may hold tokens of both, and the words behind it may begin alike
    assert 190 <= COUNTS[count](common) <= 212
    assert exact.text(drawn(4, 64))[:20] != exact.text(drawn(5, 64))[:20]


def test_a_tokenizer_that_counts_no_text_as_so_many_tokens_is_refused() -> None:
    exact = ExactWords(lambda text: 2 * len(text.split()))
    assert len(exact.text(drawn(1, 64)).split()) == 32
    with pytest.raises(UserError, match="no text of exactly 63 tokens"):
        exact.text(drawn(1, 63))


def test_a_real_tokenizer_s_prompts_are_exact_and_words_by_their_mean_are_not(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="a tokenizer needs tokenizers: make dev")
    core = tokenizers.Tokenizer(tokenizers.models.BPE())
    core.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=700, initial_alphabet=core.pre_tokenizer.alphabet(), show_progress=False
    )
    core.train_from_iterator([" ".join(WORDS)], trainer)
    core.save(str(tmp_path / "tokenizer.json"))
    tokenizer = load_tokenizer(tmp_path)
    mean = tokenizer.count(" ".join(WORDS)) / len(WORDS)
    plain, exact = Wording(tokens_per_word=mean), Wording(exact=ExactWords(tokenizer.count))
    asked = [drawn(seed, 64) for seed in range(20)]
    assert {tokenizer.count(exact.text(tokens, first=True)) for tokens in asked} == {64}
    assert {tokenizer.count(plain.text(tokens, first=True)) for tokens in asked} != {64}
