"""What the control plane knows about ``toy``, free of torch."""

from __future__ import annotations

from paceline.base.families.operation import Operation
from paceline.families.reasoning.core.planning.metrics import token_metric
from paceline.families.reasoning.core.planning.parameters import QUESTIONS

OPERATION = Operation(
    name="toy",
    place=99,
    summary="a number below 64 is guessed; every guess is a token.",
    parameters=(QUESTIONS,),
    metrics=(token_metric("toy_tokens", "Guesses until the number was found."),),
    check=lambda params: [],
    estimate_s=lambda params: 0.1,
)
