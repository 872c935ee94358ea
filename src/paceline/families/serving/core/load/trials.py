"""Single calls that find out what a server counts: streamed as the load generator makes them, and in one piece.

Nothing here is a measurement.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from paceline.families.serving.core.load.calls import Call, Messages, Workload
from paceline.families.serving.core.load.log.outcomes import AT_LIMIT, Outcome, outcomes_of
from paceline.families.serving.core.load.processes import SOON_S, run_load
from paceline.families.serving.core.load.sending.asking import Asking
from paceline.families.serving.core.load.sending.client import Limits
from paceline.families.serving.core.load.sending.target import Target, Tls
from paceline.families.serving.core.load.whole_answers import Counts, count_whole
from paceline.families.serving.core.load.words import WORDS

Api = Literal["chat", "completions"]
TRIAL_S = 120.0
"""For one short answer: a server may load its model for the first one."""
TRIAL_TOKENS = 4
SHORT_WORDS, LONG_WORDS = 40, 200
"""Of the two prompts by whose counts words become tokens."""
LIMITS = (4, 24)
"""Tokens of the two whole answers by which a server is seen to write as many as it is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How a server is reached."""

    key: str | None = field(default=None, repr=False)
    key_header: str = ""
    """Header that takes the key as it is; empty for a bearer's."""
    key_variable: str = "OPENAI_API_KEY"
    tls: Tls = field(default_factory=Tls)
    headers: Mapping[str, str] = field(default_factory=dict)

    def head(self) -> dict[str, str]:
        """Return the headers of a request."""
        key = {self.key_header or "Authorization": self.key if self.key_header else f"Bearer {self.key}"}
        return {**self.headers, **({k: v for k, v in key.items() if v} if self.key else {})}


@dataclass(frozen=True, slots=True, kw_only=True)
class Counting:
    """What a server counts of prompts and answers."""

    tokens_per_word: float | None = None
    """None where it counts no prompts."""
    added_tokens: float = 0.0
    """Around every prompt."""
    prompt_tokens: tuple[int, int] | None = None
    """Of the two texts of ``SHORT_WORDS`` and ``LONG_WORDS``; None where it counts no prompts."""
    length_counts: bool = False
    """Whether it counts no streams, and no whole answer that ended at its limit had fewer tokens than that.

    It may have more: llama.cpp's server of Python splits the text again and counts what comes of that.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Trials:
    """A server, and one way to ask it."""

    base: str
    model: str
    api: Api
    asking: Asking
    access: Access

    def stream(self, *, words: int) -> Outcome:
        """Ask for a few tokens, in the very bytes that the load generator would send."""
        log = run_load(
            self.base,
            self.model,
            Workload(calls=(self._call(words=words, tokens=TRIAL_TOKENS),)),
            limits=Limits(call_s=TRIAL_S, silence_s=TRIAL_S, run_s=TRIAL_S + 5),
            key=self._bearer,
            asking=replace(self.asking, headers=self._headers()),
            tls=self.access.tls,
            hurry=False,
            ahead_s=SOON_S,
        )
        return outcomes_of(log, exact=False)[0]

    def whole(self, *, words: int, tokens: int) -> Counts | None:
        """Ask for an answer in one piece, with the fields of streamed ones."""
        target = Target.of(self.base, self.model, key=self._bearer, asking=self.asking, tls=self.access.tls)
        headers = {**self.access.head(), **self._headers()}
        return count_whole(target, self._call(words=words, tokens=tokens), headers, timeout_s=TRIAL_S)

    def counting(self) -> Counting:
        """Find out what the server counts: of streams, or where it counts none of these, of whole answers."""
        prompts = (SHORT_WORDS, LONG_WORDS)
        streams = [self.stream(words=words) for words in prompts]
        counted = [outcome.prompt_tokens for outcome in streams]
        length_counts = False
        if all(outcome.stream.counted_by == "chunks" for outcome in streams):
            asked = list(zip(prompts, LIMITS, strict=True))
            wholes = [self.whole(words=words, tokens=tokens) for words, tokens in asked]
            counted = [None if whole is None else whole.prompt_tokens for whole in wholes]
            length_counts = all(
                whole is not None and whole.finish == AT_LIMIT and (whole.completion_tokens or 0) >= tokens
                for whole, tokens in zip(wholes, LIMITS, strict=True)
            )
        short, long = counted
        if not short or not long or long <= short:
            return Counting(length_counts=length_counts)
        per_word = (long - short) / (LONG_WORDS - SHORT_WORDS)
        return Counting(
            tokens_per_word=per_word,
            added_tokens=max(short - per_word * SHORT_WORDS, 0.0),
            prompt_tokens=(short, long),
            length_counts=length_counts,
        )

    @property
    def _bearer(self) -> str | None:
        return None if self.access.key_header else self.access.key

    def _headers(self) -> dict[str, str]:
        """Return the further headers of a request, with the key where it is in one of its own."""
        name, key = self.access.key_header, self.access.key
        return {**self.asking.headers, **self.access.headers, **({name: key} if name and key else {})}

    def _call(self, *, words: int, tokens: int) -> Call:
        text = trial_text(words)
        prompt = Messages((("user", text),)) if self.api == "chat" else text
        return Call(number=0, prompt=prompt, output_tokens=tokens, at_s=0.0, chat=self.api == "chat")


def trial_text(words: int) -> str:
    """Return the text of a trial."""
    return " ".join(WORDS[(7 * n) % len(WORDS)] for n in range(words))
