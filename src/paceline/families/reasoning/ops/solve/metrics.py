"""Metrics of ``solve`` and their contracts, free of torch."""

from __future__ import annotations

from paceline.base.families.family import TIME_MARGIN, Metric
from paceline.families.reasoning.core.planning.metrics import share_metric, token_metric

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

METRICS: tuple[Metric, ...] = (
    share_metric(
        "accuracy",
        "Share of questions that were answered rightly, online.",
        "higher",
        _ACCURACY,
        proportion=True,
    ),
    token_metric(
        "tokens",
        "Decoded tokens of a question, with probes, a partner's, and what judges read.",
        extra={"judges": "tokens of reviewed steps, and of what compared traces had written, each once"},
    ),
    token_metric(
        "critical_path_tokens",
        "Tokens on the longest chain of requests that wait for each other: latency without hardware.",
        extra={
            "chain": "sum over a question's rounds of the longest request; a round waits for all of the one before"
        },
    ),
    token_metric(
        "work_tokens",
        "Decoded and reviewed tokens, in tokens of the point's model.",
        extra={"weight": "a partner's token counts as its parameters over the model's", "judge": "not in it"},
    ),
    token_metric(
        "critical_work",
        "The longest chain, in tokens of the point's model: latency of two models without hardware.",
        extra={
            "chain": "as critical_path_tokens",
            "weight": "a partner's token counts as its parameters over the model's",
            "excluded": "reading of forced tokens and reviews",
        },
    ),
    token_metric("judge_tokens", "Tokens of a question that a reviewer or judge read."),
    token_metric("probe_tokens", "Decoded tokens of a question's probes."),
    token_metric(
        "cache_tokens",
        "Most tokens of a question whose keys and values had to be kept at once.",
        extra={"kept": "at the end of rounds: the prompt, and what live traces hold, shared beginnings once"},
    ),
    token_metric(
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
        margin=TIME_MARGIN,
    ),
    Metric(
        name="time_per_token",
        unit="s",
        better="lower",
        doc="Wall-clock time of a decoded token, many being decoded together.",
        contract={
            "timer": "as question_s",
            "sample": "seconds of all questions over the tokens that were decoded for them, one sample a launch",
            "batch": "as question_s",
            "excluded": "loading of weights, grading, replays",
        },
        margin=TIME_MARGIN,
    ),
    share_metric(
        "unanswered",
        "Share of questions without an answer that can be read.",
        "lower",
        _UNANSWERED,
        proportion=True,
    ),
    share_metric(
        "accuracy_reordered", "Accuracy over many orders of the same traces.", "higher", _REORDERED | _ORDERS
    ),
    token_metric("tokens_reordered", "As tokens, over many orders of the same traces.", extra=_ORDERS),
    share_metric(
        "gain_at_equal_tokens",
        "Accuracy above that of a plain vote which costs as many tokens.",
        "higher",
        _CURVE | {"outside": "absent where a vote over one trace costs more, or over all traces less"},
        bounds=(-1.0, 1.0),
    ),
    share_metric(
        "answers_kept",
        "Different answers among the traces that a technique let finish, of those among all traces.",
        "higher",
        {
            "value": "over all questions of a launch",
            "read": "from the launch's own traces; partners' do not count",
        },
    ),
    share_metric(
        "judge_auroc",
        "How well a technique's comparisons tell traces apart that come to one answer, and that do not.",
        "higher",
        {
            "value": "area under the receiver operating characteristic, over all compared pairs of samples",
            "truth": "answers of the launch's own traces; what cannot be read equals nothing",
            "absent": "where all compared pairs are of one kind, or none was compared",
        },
    ),
)
