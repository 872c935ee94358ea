r"""Letters of choices: where a solution names one, and what is two.

A letter is an upper-case one that no other letter or digit touches, or one in brackets of either case; around it may
stand markup, mathematics (``$\mathbf{C}$``), and a word such as "option". Two different ones that "or", "and", a comma
or a slash joins are no answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from paceline.families.reasoning.core.answers.characters import REWRITTEN, normal_characters
from paceline.families.reasoning.core.answers.numbers import SIGNS, TEXT
from paceline.families.reasoning.core.answers.places import corrected, marked, sentences, solution
from paceline.families.reasoning.core.answers.words import STATED

CHOICES = "ABCD"
MAX_NAMED = 200
"""Characters behind "I choose" and its like in which a letter is looked for."""
MAX_PLACES = 40
_CYRILLIC = str.maketrans("АВСЕНКМТ", "ABCEHKMT")
_SCRIPTS = ("أبجد", "ابجد", "কখগঘ", "कखगघ", "กขคง", "אבגד", "가나다라", "甲乙丙丁")
"""The first letters of other alphabets, by which options are called in them."""
_TO_LATIN = {sign: CHOICES[place] for script in _SCRIPTS for place, sign in enumerate(script)}
_OTHER = re.compile(rf"[\s*_(（\[\"“]*(?P<letter>[{''.join(_TO_LATIN)}])(?=[\s*_)）\].,،。।\"”:]|$)")
_WORD = (
    r"(?i:(?:l['’]|(?:the|correct|right|best|final|most likely|clearly|die|der|la|le|el|o|a|é|es|ist|est)\s+)*"
    r"(?:(?:options?|choices?|letters?|alternatives?|statement|answer|letra|lettre|lettera|buchstabe|буква|opci[oó]n|opção|opzione|réponse|antwort|вариант"
    r"|variante|ответ)\b|选项|選項|विकल्प|الخيار)?\s*(?:is\b|:)?\s*)"
)
_BECAUSE = (
    "because|since|as|is|for|with|and|or|due|which|that|by|in|on|but|from|given|while|not|then|according"
)
_JOINED = re.compile(
    r"[\s.)\](?!]*(?:,|/|\\?&|\+|或|和|与|(?:,\s*)?\b(?:or|and|oder|und|ou|et|o|y|e|или|и|أو)\b)\s*(?:possibly|maybe|perhaps)?\s*"
    + _WORD
    + r"\(?(?P<letter>[A-Z])\)?(?![A-Za-z0-9]|['’][a-z])",
)
_UNSURE = re.compile(r"\b(?:whether|if|unless|not|neither|nor|never)\b[^.\n]*$", re.IGNORECASE)
_WRONG = re.compile(
    r"[\s),]*(?:is|are|was)\s+(?:wrong|incorrect|false|not|impossible|ruled|excluded)", re.IGNORECASE
)
_NAMED = (
    r"\b(?:correct|right|best|most\s+\w+)\s+(?:option|choice|letter|one)\s*"
    r"(?:is|:|would be|must be|seems to be)\s*:?\s*(?=\S)",
    r"\b(?:left\s+with|lean(?:ing)?\s+towards?|leaves(?:\s+us\s+with)?|leaving(?:\s+us\s+with)?)\s+(?:only\s+)?",
    r"\b(?:richtige|korrekte|beste|bonne|meilleure|mejor|правильный|верный)\s+(?:option|wahl|antwort|opción|вариант)\s*"
    r"(?:ist|est|es|это|:|—|-)\s*",
    r"\b(?:my|selected|chosen|final)\s+(?:choice|option|selection|pick)\s*(?:is\b|:)\s*",
    r"\b(?:i|we)(?:\s+would|\s+will|['’]ll|['’]d)?\s+(?:choose|pick|select|go\s+with|went\s+with)\s+",
    r"\bgoing\s+with\s+",
    r"\b(?:so|thus|hence|therefore|conclusion)\b[, ]+(?:it\s+is|it's|it\s+must\s+be)\s+",
    r"(?:故选|应选|選|因此选|所以选|选择|选)\s*[:：]?\s*",
    r"\b(?:opción|opção|opzione|option)\s+(?:correcta|correta|corretta|correcte)\s*(?:es|é|è|est|:)\s*",
)


def extract_choice(text: str, choices: str = CHOICES) -> str | None:
    """Return the letter that a text answers by; None where it names none, or two."""
    told = solution(text)
    if told is None:
        return None
    told = _latin(told)
    read = _Letters(choices)
    place = marked(told)
    if place is not None:
        behind = corrected(told, place)
        if behind is not None:
            for sentence in sentences(behind):
                if read.names(sentence):
                    return read.letter(sentence)
        held = [read.alone(part) for part in place.parts]
        if len(set(held)) > 1:
            return None
        if held[0] is not None or read.is_several(place.parts[0]):
            return held[0]
    for sentence in sentences(told):
        if read.names(sentence):
            return read.letter(sentence)
    for sentence in read.named(told):
        if read.names(sentence):
            return read.letter(sentence)
    return read.last_line(told)


def _latin(text: str) -> str:
    """Return a text in which another alphabet's letter, alone as a stated answer, is the Latin one."""
    if text.isascii():
        return text
    for stated in STATED.finditer(text):
        if (found := _OTHER.match(text, stated.end())) is not None:
            place = found.start("letter")
            text = f"{text[:place]}{_TO_LATIN[found['letter']]}{text[place + 1 :]}"
    return text


class _Letters:
    """The rules for one set of letters."""

    def __init__(self, choices: str) -> None:
        one = f"[{choices}]"
        either = f"[{choices}{choices.lower()}]"
        self._choices = choices
        self._named = re.compile(
            rf"\s*(?:either|both|probably|likely|most likely)?\s*{_WORD}"
            rf"(?:\(\s*(?P<bracketed>{either})\s*\)|\[\s*(?P<square>{either})\s*\]|['‘]?(?P<plain>{one})(?![A-Za-z0-9]|['’][a-z]))",
        )
        self._correct = re.compile(
            rf"\b(?:[Oo]ption|[Cc]hoice|[Aa]nswer|[Ss]tatement|[Ll]etter)?\s*\(?\b(?P<letter>{one})\)?\s*"
            r"(?:is|seems|must be|would be)\s+(?:therefore\s+|thus\s+|the\s+|most\s+|indeed\s+|clearly\s+)*"
            r"(?:correct|right|best|true|answer)\b(?!\s+(?:for|about|when|if|in)\b)"
        )
        self._several = re.compile(rf"\W*{one}(?:\W*{one})+\W*", re.ASCII)

    def names(self, sentence: str) -> bool:
        """Tell whether a sentence begins with a letter."""
        return self._found(sentence) is not None or self._single(_bare(sentence)) is not None

    def letter(self, sentence: str) -> str | None:
        """Return the letter that a sentence begins with; None where another one is joined to it."""
        found = self._found(sentence)
        bare = _bare(sentence)
        if found is None:
            return self._single(bare)
        letter = _letter(found)
        if bare[found.end() :].lstrip(" )").startswith("?"):
            return None
        joined = _JOINED.match(bare, found.end())
        if joined and joined["letter"] != letter and joined["letter"] in self._choices:
            return letter if _WRONG.match(bare, joined.end()) else None
        return letter

    def alone(self, held: str) -> str | None:
        """Return the letter that a marked place begins with, or is; of lower case only where nothing else is there."""
        return self.letter(held)

    def is_several(self, held: str) -> bool:
        """Tell whether a marked place names letters and nothing else: then it is the answer, and none."""
        return self.names(held) or bool(self._several.fullmatch(_bare(held)))

    def named(self, text: str) -> Iterator[str]:
        """Yield what stands behind "the correct option is" and its like, and letters that are called right."""
        plain = _bare(text)
        found = [
            (match.end(), plain[match.end() : match.end() + MAX_NAMED].partition("\n")[0])
            for pattern in _NAMED
            for match in re.finditer(pattern, plain, re.IGNORECASE)
        ]
        found += [
            (match.start(), match["letter"])
            for match in self._correct.finditer(plain)
            if not _UNSURE.search(plain[max(match.start() - MAX_NAMED, 0) : match.start()])
        ]
        for _, sentence in sorted(found, reverse=True)[:MAX_PLACES]:
            yield sentence

    def last_line(self, text: str) -> str | None:
        """Return the letter that the last line is, or the first one; or that it begins with, alone of all lines."""
        lines = [line for line in map(_bare, text.strip().splitlines()) if line.strip()]
        listed = re.compile(rf"\s*\(?([{self._choices}])[).:]\)?\s+\S", re.ASCII)
        whole = re.compile(
            rf"\W*(?:(?i:therefore|thus|hence|so|conclusion)[,:]?\s+)?{_WORD}\(?([{self._choices}])\)?\W*"
        )
        is_list = sum(bool(listed.match(line)) for line in lines) > 1
        for line in dict.fromkeys((*lines[-1:], *lines[:1])):
            single = self._single(line)
            found = whole.fullmatch(line) or (None if is_list else listed.match(line))
            if single or found:
                return single or (found[1] if found else None)
        return None

    def _single(self, bare: str) -> str | None:
        """Return the letter of a text that has no other letter and no digit, in either case."""
        only = re.sub(r"[\W_]", "", bare).upper()
        return only if len(only) == 1 and only in self._choices else None

    def _found(self, sentence: str) -> re.Match[str] | None:
        bare = _bare(sentence)
        found = self._named.match(bare)
        if found is None or (found["plain"] or "") not in ("A", "I"):
            return found
        # "A matter of taste" is an article, "A because …" is a letter.
        goes_on = re.match(r" ([a-z]+)", bare[found.end() :])
        return None if goes_on and goes_on[1] not in _BECAUSE.split("|") else found


def _letter(found: re.Match[str]) -> str:
    return next(one for one in found.group("bracketed", "square", "plain") if one).upper()


def _bare(text: str) -> str:
    """Return a text without markup, dollars and commands for letters."""
    text = normal_characters(text)
    for pattern, instead in REWRITTEN:
        text = pattern.sub(instead, text)
    text = re.sub(r"\b[АВСЕНКМТ]\b", lambda found: found[0].translate(_CYRILLIC), text)
    while (bare := TEXT.sub(r"\1", text)) != text:
        text = bare
    return re.sub(r"[*`\"“”{}]|(?<!\w)_+|_+(?!\w)", "", SIGNS.sub("", text))
