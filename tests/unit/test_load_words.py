"""Prompts as words: as many as give the asked tokens, alike exactly where tokens are alike."""

from __future__ import annotations

import random

import pytest

from paceline.families.serving.core.load.calls import Call, Messages, Workload
from paceline.families.serving.core.load.words import VOCABULARY, WORDS, Wording, in_words


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
