"""Metrics of ``call_tools`` and their contracts, free of torch."""

from __future__ import annotations

from paceline.base.families.family import TIME_MARGIN, Metric

METRICS: tuple[Metric, ...] = (
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
        margin=TIME_MARGIN,
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
        margin=TIME_MARGIN,
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
