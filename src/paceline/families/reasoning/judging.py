"""What a technique must pass before any of its figures counts: the same traces, the same answers again.

Three checks, none of which needs to trust the technique. Its traces are the launch's own, token for token. The
executor has seen each of its answers in a trace or probe. Run once more on what was recorded, it asks for the same and
answers the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from paceline.families.reasoning import estimates
from paceline.families.reasoning.archive import Archive, MissingTraceError, Replay
from paceline.families.reasoning.pool import Pool, Setting
from paceline.families.reasoning.requests import Finished, Method
from paceline.worker.session import CaseError


def check_traces(setting: Setting, pool: Pool, finished: Sequence[Finished], archive: Archive) -> int:
    """Compare a technique's traces with the launch's own; return how many were compared.

    Traces at another temperature are other traces and have nothing to be compared with.

    Raises:
        CaseError: ``invalid``: equal draws gave other tokens, which is the harness's or the model's fault.
    """
    compared = 0
    keys = {q.key: q for q in setting.questions}
    prompts = {p.key: p.prompt for p in setting.problems}
    for one in finished:
        for index, tokens in one.traces.items():
            name = (prompts[one.key], setting.draws(keys[one.key], index), setting.task.temperature)
            if tuple(archive.known(name).tokens) != tokens:
                continue
            compared += 1
            if pool.traces[one.key][index][: len(tokens)] != tokens:
                reason = f"question {one.key}: equal draws gave other tokens in trace {index}"
                raise CaseError("invalid", reason)
    return compared


def check_replay(setting: Setting, method: Method, finished: Sequence[Finished], archive: Archive) -> None:
    """Run a technique again on what it was told.

    Raises:
        CaseError: ``incorrect``: it asks for something else, or answers otherwise.
    """
    model = Replay(archive, context=setting.model.context)
    try:
        again = setting.executor(model).run(setting.questions, method)
    except MissingTraceError as error:
        raise CaseError("incorrect", f"on the same traces it asks for others: {error}") from error
    by_key = {f.key: f for f in again}
    for one in finished:
        if by_key[one.key] != one:
            what = "answers" if by_key[one.key].answer != one.answer else "asks"
            raise CaseError("incorrect", f"question {one.key}: on the same traces it {what} otherwise")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reordered:
    """Means over orders of the recorded traces, for each question."""

    right: tuple[float, ...]
    spent: tuple[float, ...]
    """Tokens."""
    decoded: int
    """Tokens of probes that had to be decoded for it."""

    @property
    def accuracy(self) -> float:
        """Return the mean over questions."""
        return fmean(self.right)

    @property
    def tokens(self) -> float:
        """Return the mean over questions."""
        return fmean(self.spent)


def reorder(setting: Setting, pool: Pool, method: Method) -> Reordered:
    """Run a technique on other orders of the launch's traces."""
    model = Replay(pool.archive, setting.model, context=setting.model.context)
    right, spent = [], []
    for order in range(setting.num_orders):
        found = setting.executor(model, setting.reordered(order)).run(setting.questions, method)
        right.append(setting.right(found))
        spent.append([f.ledger.total for f in found])
    return Reordered(
        right=tuple(fmean(values) for values in zip(*right, strict=True)),
        spent=tuple(fmean(values) for values in zip(*spent, strict=True)),
        decoded=model.num_decoded,
    )


def against_votes(pool: Pool, found: Reordered) -> tuple[dict[str, float], dict[str, str]]:
    """Compare with the whole curve of the plain vote; return figures, and why one is absent."""
    figures: dict[str, float] = {}
    absent: dict[str, str] = {}
    plain = estimates.at_equal_tokens(pool.curve, found.tokens)
    if plain is None:
        low, high = pool.curve[0][0], pool.curve[-1][0]
        absent["gain_at_equal_tokens"] = f"{found.tokens:.0f} tokens; votes cost {low:.0f} to {high:.0f}"
    else:
        figures["gain_at_equal_tokens"] = found.accuracy - plain
    needed = estimates.at_equal_accuracy(pool.curve, found.accuracy)
    if needed is None:
        best = max(a for _, a in pool.curve)
        absent["tokens_at_equal_accuracy"] = f"accuracy {found.accuracy:.3f}; votes reach {best:.3f}"
    else:
        figures["tokens_at_equal_accuracy"] = found.tokens / needed
    return figures, absent
