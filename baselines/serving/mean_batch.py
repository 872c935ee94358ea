"""A mean batch: what a configuration would take if every step were the mean one. The baseline of simulations.

The rule of thumb of capacity planning: the time of a step at a batch and a context, times the number of steps.

Algorithm: the batch is the largest that places and memory allow for requests of mean length; prompts are computed in
full budgets, answers in steps of that batch at their mean context, one after the other.
Cost: two looks at the table.
Differences: none.
Limits: nothing of it changes while requests come and go: the batch does not run empty at the end, no prompt shares a
step with a decode, nobody loses memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from paceline import technique
from paceline.families.serving.api.predicting import Asked, Configuration, Predicted, StepCosts


@technique(
    name="mean-batch",
    family="serving",
    implements=("predict",),
    summary="every step is the mean one",
)
class MeanBatch:
    """Multiplies the mean step."""

    def predict(self, trace: Sequence[Asked], configuration: Configuration, costs: StepCosts) -> Predicted:
        """Return what serving the trace would take."""
        num = len(trace)
        prompt = sum(a.prompt_tokens for a in trace) / num
        answer = sum(a.output_tokens for a in trace) / num
        room = configuration.num_blocks * configuration.block_size
        # Room for whole answers: at a request's end it holds all of its tokens, and this rule knows no preemption.
        batch = max(1, min(configuration.max_batch, num, int(room / (prompt + answer))))
        # The context grows by one a step from prompt to prompt + answer: this is its mean.
        context = round(prompt + answer / 2)
        filled = configuration.token_budget
        prefill_s = num * prompt / filled * costs.seconds([(0, filled, True)], batch)
        decode_s = num * answer / batch * costs.seconds([(context, 1, True)] * batch, batch)
        # Requests go in waves of one batch: wave w of W begins at w/W of the total, (W − 1)/(2W) of it in the mean,
        # and its first tokens come after its own share of the prefill.
        waves = -(-num // batch)
        total_s = prefill_s + decode_s
        return Predicted(makespan_s=total_s, ttft_s=prefill_s / waves + total_s * (waves - 1) / (2 * waves))
