"""Prompts as words for servers whose tokens nobody here knows: as many words as give the asked number of tokens.

Words are drawn like tokens, so that two prompts share a beginning exactly where their tokens would, and prompts of
different calls share none. With the model's tokenizer they have exactly the asked tokens (``load.exact_words``);
without it, how many tokens a word has is what the server counted of two prompts (``load.probe``). Free of torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from paceline.families.serving.core.load.calls import Call, Messages, Workload
from paceline.families.serving.core.model_sizes import FIRST_TOKEN

_COMMON = """
about above across after again against almost along already also always among animal another answer anything
area around author away back bank base because become before begin behind believe below best better between
beyond bird black blood blue board boat body book both bottom bread bridge bring brother brown build building
business call capital care carry case catch cause center century certain chance change chapter child choice
church circle city class clear climb close cloud coast cold college color common company complete condition
control cook corner cost cotton country court cover create crop cross crowd dance dark daughter dead deal
death decide deep degree describe desert develop difference dinner direct distance doctor door double doubt down
draw dream dress drive during early earth east easy education effect eight either electric else energy engine
enough enter equal evening event ever example except expect experience explain eyes face fact fall family farm
father field fight figure fill final find fine finger finish fire first fish five flat floor flow flower follow
food foot force foreign forest form forward four free fresh friend front fruit full game garden general girl
give glass gold government grass great green ground group grow half hand happen hard head hear heart heat heavy
help high hill history hold hole home hope horse hospital hour house human hundred hunt idea image important
include increase industry inside instead interest iron island issue join jump just keep kind king know labor
lake land language large last late laugh law lead learn leave left less letter level lie life light line list
listen little live local long look lost love low machine main major make many map mark market master material
matter mean measure meet member memory metal method middle might mile milk million mind minute miss modern money
month moon more morning most mother mountain mouth move music name nation nature near neck need never new next
night noise north nothing notice number ocean offer office often once only open order other outside over own
page paint pair paper part pass past pattern people perhaps person picture piece place plain plan plane planet
plant play point poor position possible power present press pretty problem process product property provide
public pull purpose push question quick quiet race radio rain raise range reach read ready real reason receive
record red region remember report rest result return rich ride right ring rise river road rock room root round
rule safe sail salt same sand scale school science sea season seat second section see seem sell send sense
sentence serve set seven several shape share sharp ship shore short shoulder show side sight sign silver similar
simple since single sister size skin sky sleep slow small smile snow social soft soil soldier solution some song
soon sound south space speak special speed spend spot spring square stage stand star start state station stay
steel step still stock stone stop store story straight strange stream street strong student study such sugar
suggest summer sun supply support sure surface surprise system table talk teach team tell term test than then
thick thing think third those though thought thousand three through time today together tomorrow tonight top
total touch toward town track trade train travel tree trip trouble true try turn twelve twenty under until upon
use usual valley value various very view village visit voice wait walk wall want warm wash watch water wave
weather week weight west wheel where which while white whole whose wide wild wind window winter wish with woman
wonder wood word work world write wrong yard year yellow young
"""
WORDS: tuple[str, ...] = tuple(_COMMON.split())
"""Common English words, most of which are one token in most vocabularies."""
VOCABULARY = FIRST_TOKEN + len(WORDS)
"""Tokens to draw calls from."""


def word_of(token: int, more: int = 0) -> str:
    """Return the word that stands for a drawn token, or one behind it."""
    return WORDS[(token - FIRST_TOKEN + more) % len(WORDS)]


class Exactly(Protocol):
    """Gives texts of exactly so many tokens."""

    def text(self, tokens: Sequence[int]) -> str:
        """Return words for tokens as they were drawn."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """How many words stand for how many tokens of a server."""

    tokens_per_word: float = 1.0
    added_tokens: float = 0.0
    """That the server puts around every prompt, such as a chat's template."""
    exact: Exactly | None = field(default=None, repr=False)
    """Words by the model's tokenizer, where there is one; then the other two say nothing."""

    def text(self, tokens: Sequence[int], *, first: bool) -> str:
        """Return words that the server should count as so many tokens: at least one.

        Args:
            tokens: As drawn; equal beginnings give equal words.
            first: Whether the server adds its own tokens to these; to later turns of a session it does not.
        """
        if self.exact is not None:
            return self.exact.text(tokens)
        per_token = 1.0 / self.tokens_per_word
        words: list[str] = []
        for place, token in enumerate(tokens):
            # By place alone: a shared beginning stays a shared beginning.
            for more in range(int((place + 1) * per_token) - int(place * per_token)):
                words.append(word_of(token, more))
        cut = round(self.added_tokens * per_token) if first else 0
        return " ".join(words[: max(len(words) - cut, 1)]) or word_of(tokens[0])


def in_words(workload: Workload, wording: Wording, *, chat: bool) -> Workload:
    """Return a workload of token ids as one of texts, or of chats.

    Args:
        workload: With token ids drawn from ``VOCABULARY``.
        wording: Of the server.
        chat: Whether each prompt is a user's message; the answers become the assistant's.
    """
    return replace(workload, calls=tuple(_worded(call, wording, chat) for call in workload.calls))


def _worded(call: Call, wording: Wording, chat: bool) -> Call:
    assert isinstance(call.prompt, tuple)
    text = wording.text(call.prompt, first=not call.carries)
    prompt = Messages((("user", text),)) if chat else text
    return replace(call, prompt=prompt, chat=chat, meant_tokens=len(call.prompt))
