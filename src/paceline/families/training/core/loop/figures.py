"""The figures of one technique's training, over all ranks and windows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from statistics import fmean
from typing import Any

import torch

from paceline.base.families.family import MISSED, Metric
from paceline.families.datasheets import datasheet_of
from paceline.families.training.core.data.setting import Setting
from paceline.families.training.core.loop.traffic import Traffic
from paceline.families.training.core.loop.trained import PARTS, Trained
from paceline.families.training.core.planning.metrics import flops_per_token
from paceline.families.training.core.proofs.sandbox import DIAGNOSES
from paceline.worker.ranks.session import Block, CaseError, Session

ROW = ("seconds", *PARTS, "communicate_s", "loss", "present", "steps")
"""What a window holds."""
CARRIED = 0.93
"""Payload's share of what a token bucket lets through: 92.9 of 100 Mbit/s were carried, headers are the rest."""
UNTIMED = ("nat", "B", "messages", "calls")
"""Units of what does not depend on how fast anything runs."""
DIAGNOSED = DIAGNOSES[1:]
"""What a technique may find out about ranks; dispersion of losses is the harness's own."""


class Figures:
    """The figures of one technique's training over all ranks."""

    def __init__(
        self,
        session: Session,
        block: Block,
        setting: Setting,
        trained: Trained,
        windows: list[list[list[float]]],
        curve: list[float],
        *,
        seeing: list[int],
        passes_counted: bool,
        uncounted: str | None = None,
        bare: list[float] | None = None,
    ) -> None:
        self.session, self.block, self.setting, self.trained = session, block, setting, trained
        self.windows, self.curve, self.bare = windows, curve, bare
        self.seeing = seeing
        """Ranks that have a loss."""
        self.absent: dict[str, str] = {}
        self.uncounted = uncounted
        """Why the communicator does not know all bytes; None when it does."""
        self.traffic = Traffic(
            session,
            trained,
            steps=setting.steps,
            uncounted=uncounted,
            passes_counted=passes_counted,
        )
        # The slowest and the busiest rank at each evaluation: a run is there when its last rank is.
        everyone = session.control.gather([trained.seconds, trained.sent, trained.taken])
        self.seconds = [max(rank[0][i] for rank in everyone) for i in range(len(trained.seconds))]
        self.sent = [max(rank[1][i] for rank in everyone) for i in range(len(trained.sent))]
        whole = setting.batch_size * setting.context
        self.tokens = [
            round(whole * fmean(rank[2][i] for rank in everyone)) for i in range(len(trained.taken))
        ]
        """Read at each evaluation, by all ranks together."""

    def loss_curve(self) -> dict[str, Any]:
        """Return the curve over the evaluations; nothing where nothing was trained.

        Bytes are those of the communicator on the busiest rank, or, where it does not know them, a rank's mean share of
        what the kernel counted, spread evenly over the steps; without either there are none.
        """
        setting, trained = self.setting, self.trained
        if not self.curve:
            return {}
        rate = setting.corpus.entropy_rate
        found: dict[str, Any] = {
            "steps": trained.evaluated,
            "tokens": self.tokens,
            "seconds": self.seconds,
        }
        if self.uncounted is None:
            found |= {"bytes": self.sent, "bytes_from": "communicator"}
        elif self.traffic.kernel_bytes is not None:
            share = self.traffic.kernel_bytes / self.session.world_size / setting.steps
            found |= {"bytes": [share * step for step in trained.evaluated], "bytes_from": "kernel"}
        name, base = ("eval_loss", 0.0) if rate is None else ("excess_loss", rate)
        return {**found, name: [loss - base for loss in self.curve]}

    def metrics(self, divergence: float) -> dict[str, Any]:
        """Return all metrics; what could not be measured goes to ``absent``."""
        read = self._tokens()
        seconds = [s / tokens for s, tokens in zip(self._worst("seconds"), read, strict=True)]
        metrics: dict[str, Any] = {
            "time_per_token": {"samples": seconds},
            "train_loss": {"samples": self._mean("loss")},
            "divergence": {"samples": [divergence]},
        }
        for name in (*PARTS, "communicate_s"):
            # Parts of one rank, the slowest of the window: maxima would come from different ranks.
            values = zip(self._slowest(name), self._steps(), strict=True)
            metrics[name] = {"samples": [v / n for v, n in values]}
        if self.setting.device.type == "cpu":
            metrics["comm_time_fraction"] = {"samples": self._idle()}
        else:
            self.absent["comm_time_fraction"] = (
                "waits on an accelerator block its stream, and not the host that counts"
            )
        if self.bare is not None:
            rows = self.session.control.gather([self.bare])
            slowest = [max(rank[0][i] for rank in rows) for i in range(len(self.bare))]
            theirs = [s / tokens for s, tokens in zip(slowest, read, strict=True)]
            metrics["bare_time_per_token"] = {"samples": theirs}
        # Per rank's device, since the peak is that of one.
        metrics.update(self._utilisation([1 / (s * self.session.world_size) for s in seconds]))
        metrics.update(self._diagnosed())
        metrics.update(self._memory())
        metrics.update(self.traffic.metrics())
        self.absent |= self.traffic.absent
        metrics.update(self._link_clock())
        metrics.update(self._target())
        return metrics

    def _utilisation(self, tokens_per_s: list[float]) -> dict[str, Any]:
        """Return model operations over the peak of a rank's device, from tokens per second and rank.

        Raises:
            CaseError: ``invalid``: more than the device can do.
        """
        device, setting = self.session.device, self.setting
        facts = device.describe()
        sheet = datasheet_of(
            facts.get("name"),
            kind=device.torch_type,
            threads=torch.get_num_threads(),
            multiprocessors=facts.get("multiprocessors"),
        )
        peak = sheet.flops_per_s.get(setting.dtype) if sheet else None
        if peak is None:
            what = f"operations in {setting.dtype}" if sheet else "this device"
            self.absent["mfu"] = f"no datasheet gives a rate of {what}"
            return {}
        flops = flops_per_token(self.block.params)
        if flops is None:
            own = self.block.params.get("model") is not None
            what = "the model is one's own" if own else "some weights alone are trained"
            self.absent["mfu"] = f"{what}: nobody counts the operations of that"
            return {}
        shares = [rate * flops / peak for rate in tokens_per_s]
        # A processor's sheet is a nominal clock, which a boost may exceed; a device's datasheet is an upper bound.
        if max(shares) > 1 and device.torch_type != "cpu":
            raise CaseError(
                "invalid", f"{max(shares):.0%} of what {sheet.name if sheet else ''} can do at most"
            )
        return {"mfu": {"samples": shares}}

    def _idle(self) -> list[float]:
        inside, whole = ROW.index("communicate_s"), ROW.index("seconds")
        count = range(len(self.windows[0]))
        return [fmean(rank[i][inside] / rank[i][whole] for rank in self.windows) for i in count]

    def _steps(self) -> list[float]:
        return [row[ROW.index("steps")] for row in self.windows[0]]

    def _worst(self, name: str) -> list[float]:
        column = ROW.index(name)
        return [max(rank[i][column] for rank in self.windows) for i in range(len(self.windows[0]))]

    def _slowest(self, name: str) -> list[float]:
        """Return a column of each window on the rank that took longest for the window."""
        column, key = ROW.index(name), ROW.index("seconds")
        return [
            max((rank[i] for rank in self.windows), key=lambda row: row[key])[column]
            for i in range(len(self.windows[0]))
        ]

    def _mean(self, name: str) -> list[float]:
        column, present = ROW.index(name), ROW.index("present")
        seeing = [self.windows[rank] for rank in self.seeing]
        count = range(len(self.windows[0]))
        return [fmean(rank[i][column] for rank in seeing if rank[i][present]) for i in count]

    def _tokens(self) -> list[float]:
        """Return the tokens of each window: those of ranks that were away were not read."""
        whole, present = self.setting.batch_size * self.setting.context, ROW.index("present")
        count = range(len(self.windows[0]))
        return [whole * fmean(rank[i][present] for rank in self.windows) for i in count]

    def _diagnosed(self) -> dict[str, Any]:
        """Return what the technique found out about ranks."""
        steps = [int(n) for n in self._steps()]
        found = {name: self.trained.diagnoses.get(name) for name in DIAGNOSED}
        return {name: {"samples": window_means(own, steps)} for name, own in found.items() if own is not None}

    def _memory(self) -> dict[str, Any]:
        kinds = list(self.trained.state)
        everyone = self.session.control.gather(
            [[*(self.trained.state[k] for k in kinds), self.trained.device_peak or 0.0]]
        )
        found = {
            f"{kind}_bytes": {"samples": [max(rank[0][i] for rank in everyone)]}
            for i, kind in enumerate((*kinds, "device_peak"))
        }
        if self.trained.device_peak is None:
            del found["device_peak_bytes"]
            self.absent["device_peak_bytes"] = "the host's memory is not its processes' alone"
        return found

    def _link_clock(self) -> dict[str, Any]:
        """Return training's seconds over those of a virtual link, on which nothing is hidden."""
        link, trained = self.block.link, self.trained
        rate, delay_s = link.get("rate_bytes_per_s"), link.get("delay_s") or 0.0
        if not rate and not delay_s:
            self.absent["link_clock_ratio"] = "the link is not shaped"
            return {}
        if self.uncounted is not None:
            self.absent["link_clock_ratio"] = self.uncounted
            return {}
        # Computation of the slowest rank; with the busiest one's bytes and messages, a clock on which nothing overlaps.
        own = max(
            sum(s - inside for s, inside in zip(*self._columns(rank), strict=True)) for rank in self.windows
        )
        whole = sum(self._worst("seconds"))
        everyone = self.session.control.gather([[trained.sent_bytes, trained.messages]])
        sent, messages = (max(rank[0][i] for rank in everyone) for i in (0, 1))
        travelling = sent / (rate * CARRIED) if rate else 0.0
        return {"link_clock_ratio": {"samples": [whole / (own + travelling + messages * delay_s)]}}

    @staticmethod
    def _columns(windows: list[list[float]]) -> tuple[list[float], list[float]]:
        """Return a rank's seconds of each window, and those inside the communicator."""
        seconds, inside = ROW.index("seconds"), ROW.index("communicate_s")
        return [row[seconds] for row in windows], [row[inside] for row in windows]

    def _target(self) -> dict[str, Any]:
        if not self.curve:
            self.absent |= dict.fromkeys(("eval_loss", "excess_loss"), "nothing is trained")
            return {}
        rate = self.setting.corpus.entropy_rate
        metrics: dict[str, Any] = {"eval_loss": {"samples": self.curve}}
        if rate is None:
            self.absent["excess_loss"] = "the entropy rate of this data is unknown"
            return metrics
        excess = [loss - rate for loss in self.curve]
        metrics["excess_loss"] = {"samples": excess}
        target = self.block.params["target_excess"]
        if target is None:
            return metrics
        where = crossing(excess, float(target))
        for name, values in (("time_to_target", self.seconds), ("bytes_to_target", self.sent)):
            if where is None:
                self.absent[name] = f"{MISSED}{excess[-1]:.4g} nats above the entropy rate at the end"
            elif name == "bytes_to_target" and "wire_bytes" in self.absent:
                self.absent[name] = self.absent["wire_bytes"]
            else:
                metrics[name] = {"samples": [_at(values, where)]}
        return metrics


def timed(measured: Iterable[str], known: Sequence[Metric]) -> set[str]:
    """Return those of the measured that tell of time, which is shown of what works alone: all but losses and counts.

    Args:
        measured: Names.
        known: Metrics of the operation.
    """
    units = {metric.name: metric.unit for metric in known}
    return {name for name in measured if units[name] not in UNTIMED}


def window_means(values: list[float], steps: list[int]) -> list[float]:
    """Return the mean of the values of each window's steps."""
    ends = list(accumulate(steps))
    return [fmean(values[end - n : end]) for end, n in zip(ends, steps, strict=True)]


def crossing(values: list[float], target: float) -> float | None:
    """Return the (fractional) index at which a falling curve first reaches a target; None when it never does."""
    for i, value in enumerate(values):
        if value <= target:
            if i == 0:
                return 0.0
            # Linear between two evaluations: otherwise times to a target would come in steps of whole evaluations.
            return i - 1 + (values[i - 1] - target) / (values[i - 1] - value)
    return None


def _at(values: list[float], where: float) -> float:
    # The last evaluation ends the last segment and begins none.
    low = min(int(where), len(values) - 2)
    return values[low] + (where - low) * (values[low + 1] - values[low])
