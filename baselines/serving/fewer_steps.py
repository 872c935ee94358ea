"""Fewer steps: one rank computes every so many steps of the sampler, each as far as those that it leaves out.

Song, Meng and Ermon, 2021, "Denoising Diffusion Implicit Models" (arXiv:2010.02502), section 4.2: the sampler is
defined for any subsequence of times.

Algorithm: as sequential denoising over the times 0, k, 2k, …; the last step goes to the end.
Cost: a k-th of the layers on one rank; no message. It is what any technique that is faster by k has to be better than.
"""

from __future__ import annotations

from paceline.baselines.serving.sequential_denoising import whole_step

from paceline import technique
from paceline.families.serving.api.denoising import Comm, Setting, Tensor


@technique(
    name="fewer-steps",
    family="serving",
    implements=("denoise",),
    summary="one rank computes every so many of the denoising steps",
)
class FewerSteps:
    """Steps that are longer.

    Args:
        setting: Of the rank.
        comm: Not used.
        every: Of how many steps one is computed.
    """

    def __init__(self, setting: Setting, comm: Comm, *, every: int = 2) -> None:
        if every < 1:
            raise ValueError("every is 1 at least")
        self._setting, self._every = setting, every

    def denoise(self, images_BSS: Tensor, exact: int) -> Tensor | None:
        """Compute the exact steps on rank 0, then every so many."""
        setting = self._setting
        if setting.rank > 0:
            return None
        step = 0
        while step < setting.num_steps:
            # The DDIM update holds between any two times of the schedule, so one predicted noise can carry over
            # several steps; cut at the end, where fewer are left.
            to = min(step + (1 if step < exact else self._every), setting.num_steps)
            images_BSS = whole_step(setting, images_BSS, step, to)
            step = to
        return images_BSS
