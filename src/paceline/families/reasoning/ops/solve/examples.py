"""Examples that a record keeps: some questions of the first launch, each with a technique's traces."""

from __future__ import annotations

from typing import Any

from paceline.families.reasoning.api.requests import Finished, Story
from paceline.families.reasoning.core.block.setting import Setting

NUM_EXAMPLES = 4
"""Questions whose traces a record keeps, of the first launch."""
MAX_TEXT = 4000
"""Characters that a record keeps of a trace."""


def examples(setting: Setting, finished: list[Finished]) -> list[dict[str, Any]]:
    """Return some questions, by their places in the order of levels and by nothing else, with all their traces."""
    ordered = sorted(range(len(setting.asked)), key=lambda number: (setting.asked[number].level, number))
    step = max(len(ordered) // NUM_EXAMPLES, 1)
    return [
        {
            "question": setting.asked[number].question,
            "level": setting.asked[number].level,
            "answer": setting.asked[number].truth,
            "given": finished[number].answer,
            "right": setting.reading.right(number, finished[number].answer),
            "traces": [
                [_ending(setting, number, s), setting.reading.text(s.tokens)[:MAX_TEXT]]
                for s in finished[number].stories
                if s.tokens
            ],
        }
        for number in ordered[step - 1 :: step][:NUM_EXAMPLES]
    ]


def _ending(setting: Setting, number: int, story: Story) -> str:
    if not story.ended:
        return "stopped"
    answer = setting.reading.answer(number, story.tokens)
    return "no answer" if answer is None else f"answers {answer}"
