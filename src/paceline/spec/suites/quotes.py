"""Quotes of claims: a claim states the number of the headline that it hangs on, and not another.

A paper's sheet says each headline once, and a claim quotes it in ``said``. Where the two differ in a number, or one of
them leaves out that the number is the best case ("up to"), the claim tests something that the sheet does not say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from paceline.base.errors import UserError
from paceline.spec.files.yaml_file import Located
from paceline.spec.ledger.papers import Headline, Paper
from paceline.spec.suites.grammar import SuiteModel

NUMBER = re.compile(r"\d+(?:\.\d+)?")
BEST_CASE = "up to"


def quote_errors(model: SuiteModel, papers: Mapping[str, Paper], located: Located) -> Iterator[UserError]:
    """Yield every claim whose quote states another number than a headline that lists it, or another kind of number.

    Args:
        model: The suite.
        papers: The ledger, by slug.
        located: Where its keys stand.
    """
    for number, claim in enumerate(model.claims):
        if claim.said is None or claim.paper is None or claim.paper not in papers:
            continue
        for headline in papers[claim.paper].headlines:
            if claim.id in headline.claims and (differs := _difference(claim.said.number, headline)):
                yield UserError(
                    f"the claim '{claim.id}' quotes '{claim.said.number}', and its headline says '{headline.says}'",
                    where=located.where(("claims", number, "said", "number")),
                    expected=f"{differs}, here or in the sheet of '{claim.paper}' in baselines/papers.yaml",
                )


def _difference(quoted: str, headline: Headline) -> str | None:
    """Return what a quote that states numbers lacks or has too much; None where it says what its headline does."""
    numbers = NUMBER.findall(quoted)
    if not numbers:
        return None
    if strange := [n for n in numbers if n not in NUMBER.findall(headline.says)]:
        return f"no other number than the headline's, where {', '.join(strange)} is not"
    if (BEST_CASE in quoted) != (BEST_CASE in headline.says):
        return f"'{BEST_CASE}' in both or in neither"
    return None
