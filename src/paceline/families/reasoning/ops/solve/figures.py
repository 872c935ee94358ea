"""Figures of a technique that passed: metrics with their samples, counts, and the curve of the plain vote."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paceline.base.counting import number_of
from paceline.families.reasoning.api.requests import Finished
from paceline.families.reasoning.core import estimates
from paceline.families.reasoning.core.block.pool import Pool
from paceline.families.reasoning.core.block.setting import Setting
from paceline.families.reasoning.core.planning.metrics import ANOTHER_MODELS
from paceline.families.reasoning.ops.solve.gate import Reordered


def measured(
    setting: Setting, pool: Pool, finished: list[Finished], seconds: float, reordered: Reordered
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the samples of each metric, and why those that are absent have none.

    Args:
        setting: What all techniques of the block share.
        pool: The launch's own traces.
        finished: The technique's answers, online.
        seconds: Of all of them together.
        reordered: What it answered on other orders of the same traces.
    """
    ledgers = [f.ledger for f in finished]
    samples: dict[str, list[float]] = {
        "accuracy": setting.right(finished),
        "tokens": [float(x.total) for x in ledgers],
        "critical_path_tokens": [float(x.critical) for x in ledgers],
        "probe_tokens": [float(x.probed) for x in ledgers],
        "work_tokens": [x.work(setting.partner_weight) for x in ledgers],
        "critical_work": [x.critical_work for x in ledgers],
        "judge_tokens": [float(x.reviewed + x.judged) for x in ledgers],
        "cache_tokens": [float(x.peak_cache) for x in ledgers],
        "mean_cache_tokens": [x.mean_cache for x in ledgers],
        "traces": [float(x.traces) for x in ledgers],
        "unanswered": [float(f.answer is None) for f in finished],
        "accuracy_reordered": list(reordered.right),
        "tokens_reordered": list(reordered.spent),
    }
    absent = {}
    if setting.timed:
        samples["question_s"] = [seconds / len(finished)]
        samples["time_per_token"] = [seconds / max(sum(x.decoded + x.probed for x in ledgers), 1)]
    else:
        absent["question_s"] = absent["time_per_token"] = (
            "no model decodes while a technique answers: traces were recorded before"
        )
    for name, (value, reason) in {
        "gain_at_equal_tokens": gain(pool, reordered, finished),
        "answers_kept": answers_kept(pool, finished, setting.task.temperature),
        "judge_auroc": judge_auroc(pool, finished),
    }.items():
        if value is None:
            absent[name] = reason
        else:
            samples[name] = [value]
    return {name: {"samples": values} for name, values in samples.items()}, absent


def accounting(
    setting: Setting, pool: Pool, finished: list[Finished], reordered: Reordered
) -> dict[str, Any]:
    """Return counts, and the curve of the plain vote."""
    right: dict[int, list[float]] = {}
    for one, value in zip(setting.asked, setting.right(finished), strict=True):
        right.setdefault(one.level, []).append(value)
    return {
        "requested": len(finished),
        "ok": len(finished),
        "failed": 0,
        "dropped": 0,
        "stopped_traces": sum(f.ledger.stopped for f in finished),
        "forks": sum(f.ledger.forks for f in finished),
        "rounds": sum(f.ledger.rounds for f in finished),
        "forced_tokens": sum(f.ledger.forced for f in finished),
        "forced_by_partner": sum(f.ledger.forced_by_partner for f in finished),
        "merged_tokens": sum(f.ledger.merged for f in finished),
        "partner_tokens": sum(f.ledger.by_partner for f in finished),
        "partner_weight": setting.partner_weight,
        "decoded_for_replays": reordered.decoded,
        "votes": {
            "tokens_reordered": [tokens for tokens, _ in pool.curve],
            "accuracy_reordered": [accuracy for _, accuracy in pool.curve],
        },
        "right_traces": [list(pool.num_right), setting.task.samples],
        "right_by_level": {str(level): [int(sum(v)), len(v)] for level, v in sorted(right.items())},
    }


def gain(pool: Pool, found: Reordered, finished: Sequence[Finished]) -> tuple[float | None, str]:
    """Return the accuracy above that of plain votes that cost as many tokens; None, with the reason, beyond them."""
    if any(one.ledger.by_partner or one.ledger.reviewed for one in finished):
        return None, ANOTHER_MODELS
    plain = estimates.at_equal_tokens(estimates.hull(pool.curve), found.tokens)
    if plain is None:
        low, high = pool.curve[0][0], pool.curve[-1][0]
        return None, f"{number_of(found.tokens, 'token', form='.0f')}; votes cost {low:.0f} to {high:.0f}"
    return found.accuracy - plain, ""


def answers_kept(pool: Pool, finished: Sequence[Finished], temperature: float) -> tuple[float | None, str]:
    """Return the share of the different answers of all traces that are left among those a technique let finish."""
    present = kept = own = 0
    for one in finished:
        answers = pool.answers[one.number]
        samples = [s for s in one.stories if s.index is not None and not s.partner and s.tokens]
        samples = [s for s in samples if s.temperature == temperature]
        own += len(samples)
        ended = {s.index for s in samples if s.ended and s.index is not None}
        present += len({a for a in answers if a is not None})
        kept += len({answers[i] for i in ended if answers[i] is not None})
    if not present or not own:
        return None, "none of the launch's own traces has an answer, or was begun"
    return kept / present, ""


def judge_auroc(pool: Pool, finished: Sequence[Finished]) -> tuple[float | None, str]:
    """Return how well a technique's comparisons told pairs of traces apart that come to one answer, and that do not."""
    scores, alike = [], []
    for one in finished:
        answers = pool.answers[one.number]
        for comparison in one.comparisons:
            first, second = (answers[i] for i in comparison.indices)
            scores.append(comparison.probability)
            alike.append(first is not None and first == second)
    if not any(alike) or all(alike):
        return None, f"{len(alike)} pairs were compared, {sum(alike)} of them alike"
    return estimates.auroc(scores, alike), ""
