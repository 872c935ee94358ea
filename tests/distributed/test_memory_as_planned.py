"""The memory of a rank that trains is what was planned without memory: a model of Llama's shape, on real ranks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.spec.content import find_runner
from paceline.spec.plans.plan import Selection, make_plan
from paceline.spec.profiles.profile import load_runner
from paceline.spec.suites.suite_file import load_suite
from paceline.workflows.footprints import needs_of

STEPS = 3
SUITE = """
suite: training/as-planned
version: 1
family: training
description: What is planned, and then trained.
workload: {op: data_parallel, data: markov, size: llama-100m, batch: 4, context: 64, window: 2}
baseline: ddp
techniques:
  - ddp
  - fsdp
  - {technique: diloco, options: {sync_every: 2}}
matrix: {ranks: [2], steps: [40]}
"""
RANK = """
import json, resource, sys
import torch
import torch.distributed as dist
from paceline.baselines.training import ddp, diloco, fsdp
from paceline.families.training.api.sizes import SIZES
from paceline.families.training.core.data import corpus
from paceline.families.training.core.data.setting import Setting
from paceline.worker.communication.comm import Comm
from paceline.worker.communication.transport import TorchTransport

torch.set_num_threads(1)
dist.init_process_group("gloo")
setting = Setting(
    corpus=corpus.load("markov"), size=SIZES["llama-100m"], context=64, batch_size=4, steps=12, optimizer="adamw",
    peak_rate=0.0003, warmup_steps=1, device=torch.device("cpu"), model_seed=1, data_seed=2, shared_seed=3,
)
kinds = {"ddp": ddp.Ddp, "fsdp": fsdp.Fsdp, "diloco": diloco.DiLoCo}
options = {"sync_every": 2} if sys.argv[1] == "diloco" else {}
task = setting.task(rank=dist.get_rank(), world_size=2)
replica = kinds[sys.argv[1]](task, Comm(TorchTransport(dist.group.WORLD)), **options)
losses = []
for step in range(int(sys.argv[2])):
    losses.append(float(replica.forward_backward(setting.batch(step, setting.rows(task.rank, 2)).long())))
    replica.exchange_gradients(step)
    replica.update(step)
    replica.exchange_parameters(step)
peak = torch.tensor(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0, dtype=torch.float64)
dist.all_reduce(peak, dist.ReduceOp.MAX)
if dist.get_rank() == 0:
    print(json.dumps({"peak_bytes": float(peak), "losses": losses}))
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    path = tmp_path_factory.mktemp("plan") / "as-planned.yaml"
    path.write_text(SUITE)
    plan = make_plan([load_suite(path)], load_runner(find_runner("local-cpu")), Selection())
    assert not plan.data["skipped"]
    return {need.label: need.rank_bytes or 0.0 for need in needs_of(plan)}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("technique", ["ddp", "fsdp", "diloco"])
def test_a_rank_takes_what_was_planned(technique: str, planned: dict[str, float], tmp_path: Path) -> None:
    script = tmp_path / "rank.py"
    script.write_text(RANK)
    # Freed blocks go back at once, as they do in the count that the plan rests on.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": "65536"}
    ranks = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*ranks, str(script), technique, str(STEPS)],
        env=environment, capture_output=True, text=True, timeout=580, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert len(told["losses"]) == STEPS
    ratio = told["peak_bytes"] / planned[technique]
    print(f"{technique}: {told['peak_bytes'] / 2**20:.0f} MiB, {ratio:.3f} of the plan")
    assert ratio == pytest.approx(1.0, abs=0.1), f"{told['peak_bytes'] / 2**20:.0f} MiB"
