"""An operation of which one call is timed: what the control plane knows about it, free of torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from paceline.base.families.arguments import Argument
from paceline.base.families.family import Metric, Parameter, Params
from paceline.base.families.operation import Operation
from paceline.families.kernels.core.planning.arithmetic import Arithmetic
from paceline.families.kernels.core.planning.metrics import METRICS
from paceline.families.kernels.core.planning.parameters import COMMON
from paceline.families.kernels.core.planning.promises import Compilation, KernelRequirements

INTERFACE = "api.problem:Kernel"
"""What techniques of timed operations are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedOperation(Operation):
    """An operation with formulas for what a call of it costs."""

    arithmetic: Arithmetic


def timed(
    *,
    name: str,
    place: int,
    summary: str,
    parameters: Sequence[Parameter],
    arithmetic: Arithmetic,
    arguments: tuple[Argument, ...] = (),
    check: Callable[[Params], list[str]] = lambda params: [],
    metrics: Sequence[Metric] = (),
) -> TimedOperation:
    """Return an operation whose techniques are timed in processes apart.

    Args:
        name: As suites write it; also the name of its folder.
        place: Where it stands among the family's operations.
        summary: One sentence: the formula.
        parameters: Sizes that it has beside the common parameters, in the order of tables.
        arithmetic: Operations and compulsory bytes of a call.
        arguments: Inputs and then outputs of a call, for ``paceline show`` and ``paceline new technique``; neither
            tells them where there are none.
        check: What is wrong with a point, in words.
        metrics: Those that it has beside the common ones.
    """
    return TimedOperation(
        name=name,
        place=place,
        summary=summary,
        interface=INTERFACE,
        parameters=(*COMMON, *parameters),
        arguments=arguments,
        metrics=(*METRICS, *metrics),
        properties=Compilation,
        requirements=KernelRequirements,
        check=check,
        estimate_s=arithmetic.estimate_s,
        arithmetic=arithmetic,
        isolated=True,
        renews=True,
    )
