r"""Finds the place of a free text that states its answer: behind thinking, before an invented question, in a box.

A solution is what is left of a text without its thinking and without what the model goes on to ask itself. Its answer
stands in the last of these marks: a closed ``\boxed{…}`` that is not empty, ``<answer>…</answer>``, a line ``#### …``.
Behind a mark a later sentence with "answer is" counts only where the solution says between the two that it corrects
itself. Without a mark the last such sentence counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from paceline.families.reasoning.core.answers.words import (
    ANSWERS_IT,
    ASKS,
    CHECKS,
    CORRECTED,
    DENIED,
    ENDS,
    NEXT_QUESTION,
    STATED,
    THINKS,
    THOUGHT,
)

_BOX = re.compile(r"(?<!\\)\\f?box(?:ed)?(?![A-Za-z])")
_BARE = re.compile(
    r"\s*(-?\\[dt]?frac\s*(?:\{[^{}]*\}|[0-9])\s*(?:\{[^{}]*\}|[0-9])|-?[0-9](?:[0-9.,/]*[0-9])?|[A-Za-z](?![A-Za-z])"
    r"|-?\\(?:sqrt|text|mathrm|textbf)\s*\{[^{}]*\}|-?\\(?:pi|infty)(?![A-Za-z]))"
)
_TAG = re.compile(r"<(answer|final_answer)>(.{0,2000}?)</\1>", re.DOTALL | re.IGNORECASE)
_MARK = re.compile(r"^[ \t]*####(?!#)([^\n]*)", re.MULTILINE)
_SENTENCE_END = re.compile(r"\n|[.!?](?=[*_\"'`)\]]*(?:\s|$))|[。！？।]")
_BETWEEN_BOXES = re.compile(
    r"(?:\\[)\]]|[$*.\s])*[,;]?\s*(?:(?:and|or|und|oder|ou|et|y|o|и|или|和|或)\b|,|&|和|或)\s*"
    r"(?:\\[(\[]|[$*\s])*(?:[A-Za-z](?:_\{?\w+\}?)?\s*=\s*)?"
)
_TURNED = re.compile(r"\A(?:not|n['’]t)\s[^\n]{1,40}?\bbut\s+(?:rather\s+)?")
_LEAD = re.compile(r"[ *:：_`\n\t\"]*")
_PARAGRAPH = re.compile(r"\n[ \t]*\n([^\n]+)")
MAX_SENTENCE = 500
MAX_STATED = 40
"""Sentences with "answer is" that are read, from the end."""
MAX_RESULT = 2000
"""Characters before an invented question in which a result is looked for that nothing marks."""
MIN_QUESTION = 30
"""Characters of a question that stands in a paragraph of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a solution marks its answer."""

    parts: tuple[str, ...]
    """What stands there; several of boxes that "and", "or" or a comma joins."""
    start: int
    end: int


def solution(text: str) -> str | None:
    """Return what of a text is the solution of the question; None where the text was cut off while it thinks."""
    closings = list(THOUGHT.finditer(text))
    told = text[closings[-1].end() :] if closings else text
    if THINKS.search(told) or not told.strip():
        return None
    ends = [end.start() for end in ENDS.finditer(told) if told[: end.start()].strip()]
    return _one_question(told[: ends[0]] if ends else told)


def opened_thinking(prompt: str) -> str:
    """Return the mark of thinking that a prompt ends with; nothing where it ends otherwise."""
    found = list(THINKS.finditer(prompt))
    return found[-1][0] if found and not prompt[found[-1].end() :].strip() else ""


def last_boxed(text: str) -> str | None:
    r"""Return what the last closed ``\boxed{…}`` holds that is not empty; None where there is none."""
    found = boxes(text)
    return found[-1].parts[0] if found else None


def boxes(text: str) -> list[Place]:
    r"""Return all closed boxes that hold something, ``\boxed 2`` without braces too."""
    found: list[Place] = []
    for match in _BOX.finditer(text):
        opening = re.compile(r"\s*\{").match(text, match.end())
        if opening is None:
            bare = _BARE.match(text, match.end())
            if bare is not None:
                found.append(Place(parts=(bare[1],), start=match.start(), end=bare.end()))
            continue
        depth, place = 1, opening.end()
        while place < len(text) and depth:
            depth += {"{": 1, "}": -1}.get(text[place], 0)
            # An escaped brace opens and closes nothing.
            place += 2 if text[place] == "\\" else 1
        held = text[opening.end() : place - 1].strip()
        # Only what is closed: a text that was cut off inside of its box has not answered there.
        if not depth and held:
            found.append(Place(parts=(held,), start=match.start(), end=place))
    return found


def marked(text: str) -> Place | None:
    """Return the last marked place of a solution; boxes that "and", "or" or a comma joins are one place."""
    found = boxes(text)
    joined = found[-1:]
    for one in reversed(found[:-1]):
        if joined[0].start < one.end or not _BETWEEN_BOXES.fullmatch(text, one.end, joined[0].start):
            break
        joined.insert(0, one)
    places = [
        *(
            [Place(parts=tuple(p.parts[0] for p in joined), start=joined[-1].start, end=joined[-1].end)]
            if joined
            else []
        ),
        *(Place(parts=(m[2].strip(),), start=m.start(), end=m.end()) for m in _TAG.finditer(text)),
        *_marks(text),
    ]
    return max(places, key=lambda place: place.start, default=None)


def is_stated(text: str) -> bool:
    """Tell whether a text marks or states its answer; else what was read is its last number, letter or formula."""
    told = solution(text)
    return told is not None and (marked(told) is not None or any(True for _ in sentences(told)))


def sentences(text: str) -> Iterator[str]:
    """Yield what is stated behind "answer is" and its like, the last one first: the sentence, or the next line."""
    for found in reversed(list(STATED.finditer(text))[-MAX_STATED:]):
        if DENIED.search(text, max(found.start() - MAX_SENTENCE, 0), found.start()):
            continue
        # "not A but C" is C.
        sentence = _TURNED.sub("", _sentence(text, found.end())[0])
        if sentence:
            yield sentence


def _sentence(text: str, start: int) -> tuple[str, int]:
    """Return the sentence that begins somewhere, markup aside, and where it ends."""
    begin = _LEAD.match(text, start)
    start = begin.end() if begin else start
    inside = start
    if text.startswith("$", start) and not text.startswith("$$", start):
        # An end of a sentence inside of mathematics is none, that of "7!" neither.
        closed = re.compile(r"\$[^$\n]*\$").match(text, start)
        inside = closed.end() if closed else start
    limit = min(len(text), inside + MAX_SENTENCE)
    found = _SENTENCE_END.search(text, inside, limit)
    end = found.start() if found else limit
    return text[start:end].strip(), end


def corrected(text: str, place: Place) -> str | None:
    """Return the text behind a marked place where the solution says there that it corrects itself."""
    behind = text[place.end :]
    if not CORRECTED.search(behind):
        return None
    found = STATED.search(behind)
    return behind if found and CORRECTED.search(behind[: found.start()]) else None


def _marks(text: str) -> Iterator[Place]:
    for found in _MARK.finditer(text):
        held = found[1].strip().strip("*").strip()
        # A heading of Markdown has the same four signs, and text below it.
        is_heading = re.match(r"[^\W\d_]", held) and text[found.end() :].strip()
        if held and not is_heading:
            yield Place(parts=(held,), start=found.start(), end=found.end())


def _one_question(text: str) -> str:
    """Return a text up to the question that its model invents behind a complete answer."""
    answered = _first_answer(text)
    answers_itself = max((found.start() for found in ANSWERS_IT.finditer(text)), default=-1)
    for found in NEXT_QUESTION.finditer(text):
        at = found.start()
        if at >= answered or (answers_itself > at and _ends_in_a_result(text[max(at - MAX_RESULT, 0) : at])):
            return text[:at]
    # Without a word that says so: a paragraph behind an answer, which asks and neither corrects nor checks.
    for found in _PARAGRAPH.finditer(text, min(answered, len(text))):
        asked = found[1]
        is_question = len(asked) >= MIN_QUESTION and ASKS.search(asked) and re.search("[0-9]", asked)
        if is_question and not (CORRECTED.search(asked) or CHECKS.search(asked)):
            return text[: found.start()]
    return text


def _first_answer(text: str) -> int:
    """Return where a text's first marked or stated answer ends; beyond the text's end where it has none."""
    ends = [len(text) + 1]
    ends += [place.end for place in (*boxes(text)[:1], *list(_marks(text))[:1])]
    ends += [found.end() for found in [_TAG.search(text)] if found]
    for found in STATED.finditer(text):
        sentence, end = _sentence(text, found.end())
        if re.search(r"\d|\\|\b[A-Z]\b", sentence):
            ends.append(end)
            break
    return min(ends)


def _ends_in_a_result(text: str) -> bool:
    """Tell whether a text's last line is a result, or the whole text is one."""
    last = text.strip().rpartition("\n")[2]
    return bool(
        re.search(r"=\s*\S{0,3}\d[\d.,]*\W*$", last) or re.fullmatch(r"\W*(?:-?[\d.,]+|[A-Z])\W*", text)
    )
