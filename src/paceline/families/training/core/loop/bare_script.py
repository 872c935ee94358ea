"""The script that anyone would write with PyTorch alone, on the same model and batches, in turn with the loop here.

The ratio of their times says what the harness adds: fences, counting, clocks around the parts of a step. Only
calibration asks for it.
"""

from __future__ import annotations

import time

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from paceline.families.training.api.model import loss_and_gradients
from paceline.families.training.api.own import layers_of, on_device
from paceline.families.training.api.replica import BETAS, WEIGHT_DECAY
from paceline.families.training.core.data.setting import Setting
from paceline.worker.communication.transport import TorchTransport
from paceline.worker.ranks.session import CaseError, Session

_clock_ns = time.perf_counter_ns

BUCKET_MIB = 1.0
"""Of ``ddp`` here as in the technique: the library's own default is 25."""


class BareScript:
    """Trains a model of its own, window by window.

    Args:
        session: The rank.
        setting: Model and data.
        batches: This rank's sequences, (steps, rows, context + 1).
        kind: ``ddp`` or ``fsdp``.

    Raises:
        CaseError: ``unsupported``: there is no script for this technique, or no process group.
    """

    def __init__(self, session: Session, setting: Setting, batches: Tensor, kind: str) -> None:
        transport = session.transport
        if not isinstance(transport, TorchTransport) or kind not in ("ddp", "fsdp"):
            raise CaseError("unsupported", f"there is no bare script for '{kind}' on these ranks")
        self.session, self.setting, self.batches = session, setting, batches
        model: nn.Module = setting.model()
        if kind == "ddp":
            model = DistributedDataParallel(
                model,
                process_group=transport.group,
                bucket_cap_mb=BUCKET_MIB,
                gradient_as_bucket_view=True,
                broadcast_buffers=False,
            )
        else:
            mesh = DeviceMesh.from_group(transport.group, setting.device.type)
            # as the technique: left alone, the library keeps the outermost part whole until backward
            for layer in layers_of(model):
                fully_shard(layer, mesh=mesh, reshard_after_forward=True)
            fully_shard(model, mesh=mesh, reshard_after_forward=True)
        self.model = model
        # The same settings as Task.optimizer, or the ratio would compare optimisers and not harnesses.
        self.optimizer = torch.optim.AdamW(
            model.parameters(), lr=setting.peak_rate, betas=BETAS, weight_decay=WEIGHT_DECAY, fused=True
        )
        # As the techniques: ddp keeps gradients as views of its buckets, fsdp frees them.
        self.set_to_none = kind != "ddp"

    def window(self, steps: range) -> float:
        """Train some steps; return their seconds."""
        # Both clocks begin when all ranks are there: otherwise this window would contain the loop's stragglers.
        self.session.control.barrier()
        begin = _clock_ns()
        for step in steps:
            sequences_BS = on_device(self.batches[step], self.setting.device)
            self.optimizer.zero_grad(set_to_none=self.set_to_none)
            loss_and_gradients(self.model, sequences_BS)
            self.optimizer.step()
        # What was issued to a device belongs to the window that issued it.
        self.session.device.synchronize()
        return (_clock_ns() - begin) * 1e-9
