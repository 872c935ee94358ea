"""Texts of exactly as many tokens as are asked for, by the model's tokenizer: words are added and taken off.

Special tokens, and what a chat's template puts around a text, are not among them. Free of torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from paceline.base.counting import number_of
from paceline.base.errors import UserError
from paceline.families.serving.core.load.words import WORDS, word_of

Count = Callable[[str], int]
"""Returns the tokens of a text, without special ones."""
TRIES = 20
SPELLED = ("a", "x", "1", ".", " a", " x", " 1", " .", "e", "n", " I", "!")
"""What a text may end with where no word fits."""
MOST_SPELLED = 12
FEWER_WORDS = 3


class ExactWords:
    """Words by one tokenizer."""

    def __init__(self, count: Count) -> None:
        """Count the tokens of each word behind another one."""
        self._count = count
        lead = count(WORDS[0])
        self._sizes = {word: max(count(f"{WORDS[0]} {word}") - lead, 1) for word in WORDS}
        self._of_size: dict[int, list[str]] = {}
        for word, size in self._sizes.items():
            self._of_size.setdefault(size, []).append(word)

    def text(self, tokens: Sequence[int]) -> str:
        """Return words that the tokenizer counts as exactly so many tokens.

        Args:
            tokens: As drawn; equal beginnings give equal words, but for the last ones of a text.

        Raises:
            UserError: No such text is found: the tokenizer counts nothing as so many.
        """
        words: list[str] = []
        held = 0
        for place, token in enumerate(tokens):
            # By what came before alone: a shared beginning stays a shared beginning.
            more = 0
            while held <= place:
                word = word_of(token, more)
                held += self._sizes[word] if words else self._count(word)
                words.append(word)
                more += 1
        for text in self._settled(words, len(tokens)):
            if self._count(text) == len(tokens):
                return text
        raise UserError(
            f"no text of exactly {number_of(len(tokens), 'token')} is found by the tokenizer",
            where="--tokenizer",
            expected="the model's own, which counts words one by one",
            fix="leave it out: the server's own count gives lengths that are right in the mean",
        )

    def _settled(self, words: list[str], asked: int) -> Iterator[str]:
        """Yield texts that may have the asked tokens: the words, then with the last ones changed."""
        words = list(words)
        for _ in range(TRIES):
            text = " ".join(words)
            yield text
            over = self._count(text) - asked
            while words and over > 0:
                over -= self._sizes[words.pop()]
            while over < 0 and (fitting := [size for size in self._of_size if size <= -over]):
                same = self._of_size[max(fitting)]
                # Another word at another place, so that texts of other lengths do not end alike.
                words.append(same[len(words) % len(same)])
                over += max(fitting)
        for fewer in range(FEWER_WORDS):
            kept = " ".join(words[: max(len(words) - fewer, 0)])
            yield from ((kept + spelled * times) for spelled in SPELLED for times in range(1, MOST_SPELLED))
