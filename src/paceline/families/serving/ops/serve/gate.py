"""Holds what came over the wire against a plain forward computation, and tells whose fault a broken run is."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.families.serving.core.engine.reference import Reference
from paceline.families.serving.core.load.calls import Workload
from paceline.families.serving.core.load.log.outcomes import Outcome
from paceline.worker.ranks.session import CaseError

Prompts = dict[int, tuple[int, ...]]


def whole_prompts(workload: Workload, outcomes: Sequence[Outcome]) -> Prompts:
    """Return each call's whole prompt as token ids: what it carries on from was answered in this run."""
    prompts: Prompts = {}
    for call in workload.calls:
        own = call.prompt
        assert isinstance(own, tuple)
        if call.carries:
            before = call.after[0]
            own = (*prompts[before], *(outcomes[before].stream.token_ids or ()), *own)
        prompts[call.number] = own
    return prompts


def check_answers(
    reference: Reference, workload: Workload, outcomes: Sequence[Outcome]
) -> tuple[Prompts, dict[str, float]]:
    """Judge every whole answer, token for token; return prompts, and how much rounding decided.

    Raises:
        CaseError: A token is wrong, or an answer tells no tokens.
    """
    prompts = whole_prompts(workload, outcomes)
    short_by = allowed = 0.0
    for outcome in outcomes:
        if not outcome.ok:
            continue
        answer = outcome.stream.token_ids
        if answer is None:
            raise CaseError("incorrect", f"the answer to call {outcome.number} tells no tokens")
        judged = reference.judge(prompts[outcome.number], answer)
        if judged.wrong_at is not None:
            raise CaseError(
                "incorrect",
                f"token {judged.wrong_at} of the answer to call {outcome.number} is {answer[judged.wrong_at]}, "
                f"and {judged.expected} is likelier by {judged.short_by:.3g} ({judged.allowed:.3g} is rounding)",
            )
        short_by, allowed = max(short_by, judged.short_by), max(allowed, judged.allowed)
    return prompts, {"largest_shortfall": short_by, "tolerance": allowed}
