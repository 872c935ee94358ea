"""Runs blocks of ``custom``: the reference is read from its file, candidates are judged and timed as all kernels."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

import torch

from paceline.families.kernels.api.problem import TORCH_DTYPES
from paceline.families.kernels.core import run, starting
from paceline.families.kernels.core.planning.arithmetic import Arithmetic
from paceline.families.kernels.ops.custom.reference import Custom
from paceline.worker.ranks.session import Block, CaseError, Session

USER_FILES = Path("user")
"""Where a job holds the files of techniques that are not in the engine."""


def run_block(session: Session, block: Block) -> None:
    """Measure all techniques of a block and emit one ``result`` event for each."""
    starting.fork_server_of(session, block)  # before anything computes here
    params = block.params
    torch.set_num_threads(int(params["threads"]))
    session.begin(block, "-", "reference")
    try:
        operator = Custom(
            _file(str(params["reference"])),
            int(params["workload"]),
            TORCH_DTYPES[str(params["dtype"])],
            session.device.torch_type,
        )
    except CaseError as error:
        for case in block.cases:
            session.emit_failure(block, case, error)
        return
    # The results have to be written at the least; what is read of the inputs, and computed, the file alone knows.
    written = float(sum(spec.num_bytes for spec in operator.outputs))
    arithmetic = Arithmetic(flops=lambda _: 0.0, traffic=lambda _: written)
    run.run_block(session, replace(block, params={**params, **operator.given}), operator, arithmetic)


def _file(name: str) -> Path:
    """Return the file of a reference: the user's own, or one of a content root.

    Raises:
        CaseError: The job has none of that name.
    """
    path = USER_FILES / f"{name}.py"
    if path.is_file():
        return path
    found = importlib.util.find_spec(f"paceline.baselines.kernels.{name}")
    if found is None or not found.origin:
        raise CaseError("crashed", f"the job holds no file of the reference '{name}'")
    return Path(found.origin)
