"""Metrics of the reasoning family and their contracts, free of torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from paceline.base.family import Metric

ANOTHER_MODELS = "another model's tokens are in it, which are not votes' tokens"
"""Why a technique stands beside no plain vote of as many tokens."""
_TOKENS = {
    "counted": "tokens that models decoded, by the executor that asks for them; forced tokens are not decoded",
    "value": "mean over the questions of a launch",
}
_ACCURACY = {
    "graded": "the technique's answer equals the problem's, which techniques do not see; no answer is wrong",
    "sample": "1 or 0 for each question of a launch; every launch draws other questions",
}
_REORDERED = {
    "graded": _ACCURACY["graded"],
    "sample": "the mean over orders for each question of a launch; every launch draws other questions",
}
_UNANSWERED = {
    "sample": "1 for each question for which the technique returns no answer, else 0",
}
_ORDERS = {
    "replay": "the technique runs again on the launch's recorded traces, in other orders of each question's traces",
    "value": "mean over questions and orders",
    "missing": "probes at places where it had not stopped before are decoded then, by the same draws",
}
_CURVE = {
    "curve": "vote over k of the launch's recorded traces, k = 1 … samples: exact expectation over all k-subsets "
    "against k times a trace's mean tokens",
    "between": "the upper concave hull, which votes reach that draw more traces for some questions than for others",
    "technique": "accuracy_reordered and tokens_reordered",
}


def _cost(name: str, doc: str, unit: str = "token", extra: Mapping[str, str] | None = None) -> Metric:
    return Metric(
        name=name,
        unit=unit,
        better="lower",
        doc=doc,
        contract=_TOKENS | dict(extra or {}),
        statistic="mean",
        margin=0.02,
    )


def _share(
    name: str,
    doc: str,
    better: Literal["lower", "higher"],
    contract: Mapping[str, str],
    *,
    proportion: bool = False,
) -> Metric:
    return Metric(
        name=name,
        unit="ratio",
        better=better,
        doc=doc,
        contract=contract,
        statistic="mean",
        compared_by="difference",
        margin=0.01,
        proportion=proportion,
    )


METRICS: tuple[Metric, ...] = (
    _share(
        "accuracy",
        "Share of questions that were answered rightly, online.",
        "higher",
        _ACCURACY,
        proportion=True,
    ),
    _cost(
        "tokens",
        "Decoded tokens of a question, with probes, a partner's, and what judges read.",
        extra={"judges": "tokens of reviewed steps, and of what compared traces had written, each once"},
    ),
    _cost(
        "critical_tokens",
        "Tokens on the longest chain of requests that wait for each other: latency without hardware.",
        extra={
            "chain": "sum over a question's rounds of the longest request; a round waits for all of the one before"
        },
    ),
    _cost(
        "work_tokens",
        "Decoded and reviewed tokens, in tokens of the point's model.",
        extra={"weight": "a partner's token counts as its parameters over the model's", "judge": "not in it"},
    ),
    _cost(
        "critical_work",
        "The longest chain, in tokens of the point's model: latency of two models without hardware.",
        extra={
            "chain": "as critical_tokens",
            "weight": "a partner's token counts as its parameters over the model's",
            "excluded": "reading of forced tokens and reviews",
        },
    ),
    _cost("judge_tokens", "Tokens of a question that a reviewer or judge read."),
    _cost("probe_tokens", "Decoded tokens of a question's probes."),
    _cost(
        "cache_tokens",
        "Most tokens of a question whose keys and values had to be kept at once.",
        extra={"kept": "at the end of rounds: the prompt, and what live traces hold, shared beginnings once"},
    ),
    _cost(
        "mean_cache_tokens",
        "Tokens of a question whose keys and values had to be kept, in the mean over its longest chain.",
        extra={
            "kept": "as cache_tokens; each round weighs as its longest request, so rounds without tokens do not"
        },
    ),
    Metric(
        name="traces",
        unit="traces",
        better="lower",
        doc="Traces that were begun for a question, branches of empty ones included.",
        contract={"counted": "by the executor", "value": "mean over the questions of a launch"},
        statistic="mean",
        margin=0.02,
    ),
    Metric(
        name="question_s",
        unit="s",
        better="lower",
        doc="Wall-clock time of a question, many being answered together.",
        contract={
            "timer": "the host's performance counter, from the first request to the last answer",
            "sample": "seconds of all questions over their number, one sample a launch",
            "batch": "questions are admitted while fewer traces than the point's width are under way",
            "excluded": "loading of weights, grading of answers, replays; reading of free text is included",
        },
        margin=0.02,
    ),
    Metric(
        name="token_s",
        unit="s",
        better="lower",
        doc="Wall-clock time of a decoded token, many being decoded together.",
        contract={
            "timer": "as question_s",
            "sample": "seconds of all questions over the tokens that were decoded for them, one sample a launch",
            "batch": "as question_s",
            "excluded": "loading of weights, grading, replays",
        },
        margin=0.02,
    ),
    _share(
        "unanswered",
        "Share of questions without an answer that can be read.",
        "lower",
        _UNANSWERED,
        proportion=True,
    ),
    _share(
        "accuracy_reordered", "Accuracy over many orders of the same traces.", "higher", _REORDERED | _ORDERS
    ),
    _cost("tokens_reordered", "As tokens, over many orders of the same traces.", extra=_ORDERS),
    _share(
        "gain_at_equal_tokens",
        "Accuracy above that of a plain vote which costs as many tokens.",
        "higher",
        _CURVE | {"outside": "absent where a vote over one trace costs more, or over all traces less"},
    ),
    _share(
        "answers_kept",
        "Different answers among the traces that a technique let finish, of those among all traces.",
        "higher",
        {
            "value": "over all questions of a launch",
            "read": "from the launch's own traces; partners' do not count",
        },
    ),
    _share(
        "judge_auroc",
        "How well a technique's comparisons tell traces apart that come to one answer, and that do not.",
        "higher",
        {
            "value": "area under the receiver operating characteristic, over all compared pairs of samples",
            "truth": "answers of the launch's own traces; what cannot be read equals nothing",
            "absent": "where all compared pairs are of one kind, or none was compared",
        },
    ),
    Metric(
        name="answer_s",
        unit="s",
        better="lower",
        doc="Time from a question to its answer, with calls of tools.",
        contract={
            "timer": "the host's performance counter; tools and the scripted language model sleep",
            "sample": "one for each question; all techniques answer it before the next one, in a drawn order",
            "included": "what the technique itself takes between events",
        },
        statistic="mean",
        margin=0.02,
    ),
    Metric(
        name="over_critical",
        unit="ratio",
        better="lower",
        doc="Time of an answer over that of the longest chain of planned steps and calls.",
        contract={
            "chain": "closed form: each call begins when its step is written and its arguments are there",
            "sample": "one for each question",
        },
        statistic="mean",
        margin=0.02,
    ),
    Metric(
        name="llm_calls",
        unit="calls",
        better="lower",
        doc="Invocations of the language model for a question.",
        contract={"counted": "by the runtime", "value": "mean over the questions of a launch"},
        statistic="mean",
        margin=0.02,
    ),
    Metric(
        name="calls_at_once",
        unit="calls",
        better="higher",
        doc="Most calls of tools of a question that were under way at once.",
        contract={"counted": "by the runtime", "value": "mean over the questions of a launch"},
        statistic="mean",
        margin=0.02,
    ),
)
