"""Metrics of a command, with their contracts; free of torch."""

from __future__ import annotations

from paceline.base.families.family import TIME_MARGIN, Metric

METRICS: tuple[Metric, ...] = (
    Metric(
        name="wall_time",
        unit="s",
        better="lower",
        doc="Time from the start of the process until it has ended.",
        contract={
            "timer": "host monotonic clock of a small process that starts the command and waits for it",
            "start": "before the process is forked; its path is known by then",
            "stop": "after the kernel has told that it ended (wait4)",
            "excluded": "build, check, what is done with its output after its end",
            "output": "read from pipes as it comes; the standard input is empty",
            "left behind": "a run that leaves a process behind has no number",
        },
        margin=TIME_MARGIN,
    ),
    Metric(
        name="cpu_time",
        unit="s",
        better="lower",
        doc="Processor time of the command and of all processes below it, user and system.",
        contract={
            "counted": "by the kernel (wait4): the process with all descendants that were waited for, and those that "
            "outlived their parents; not what was reaped unseen by a parent that ignores SIGCHLD",
        },
        margin=TIME_MARGIN,
    ),
    Metric(
        name="peak_memory",
        unit="B",
        better="lower",
        doc="Largest resident set of any one process of the command.",
        contract={
            "counted": "by the kernel (ru_maxrss of wait4): the largest of its processes, not their sum",
            "least": "what a process has before it begins its program; where a run is not above it there is no number",
        },
        margin=0.02,
    ),
)
