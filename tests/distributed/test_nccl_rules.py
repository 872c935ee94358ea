"""NCCL's rules, which ranks over Gloo are held to: pipelines keep them, and what would hang there is refused at once.

That every collective keeps them is asked where it is asked whether it conforms.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
import seeds
import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from measured import record_of

from paceline.base.errors import UserError
from paceline.records.store.folder import RunRecord
from paceline.spec import content
from paceline.spec.profiles.profile import load_runner
from paceline.spec.suites.suite_file import load_suite
from paceline.worker.case_error import RuleBreachError
from paceline.worker.communication.ledger import FIRST_BY_ALL, RENDEZVOUS, SAME_ORDER
from paceline.worker.communication.rules import RulesTransport
from paceline.workflows.conformance import ConformanceResult, conformance, points_of

RUNNER = "local-nccl-rules"
MUTANTS = Path(__file__).parents[1] / "mutants" / "order"
PIPELINES = sorted(
    name
    for name, source in content.techniques("training").items()
    if "pipeline_parallel" in source.info.implements
)


@pytest.fixture(scope="module")
def pipelines(tmp_path_factory: pytest.TempPathFactory) -> RunRecord:
    folder = tmp_path_factory.mktemp("pipelines")
    (point,) = points_of("training", "pipeline_parallel")
    lines = "".join(f"  {k}: {v}\n" for k, v in (point | {"proof": "brief", "steps": 6, "window": 3}).items())
    (folder / "suite.yaml").write_text(
        "suite: training/ordered\nversion: 1\nfamily: training\ndescription: Pipelines in one order.\n"
        f"workload:\n  op: pipeline_parallel\n{lines}matrix: {{ranks: [4]}}\n"
        f"baseline: gpipe\ntechniques: [{', '.join(PIPELINES)}]\n"
        "protocol: {launches: 1, timeout: 120s}\nmetrics: {wire_bytes: {}}\n"
    )
    return record_of([load_suite(folder / "suite.yaml")], folder, runner=RUNNER)


@pytest.mark.parametrize("technique", PIPELINES)
def test_a_pipeline_keeps_the_rules_and_every_step_equals_one_process(
    technique: str, pipelines: RunRecord
) -> None:
    found = [m for m in pipelines.measurements if m.technique == technique and m.metric.name == "wire_bytes"]
    assert [(m.params["ranks"], m.status, m.reason) for m in found] == [(4, "ok", None)]


WRONG = {
    "sends_first.py": ("send of", RENDEZVOUS),
    "posts_receives.py": ("send of", RENDEZVOUS),
    "two_orders.py": ("all_reduce of", SAME_ORDER),
}


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> list[ConformanceResult]:
    folder = tmp_path_factory.mktemp("wrong")
    files = [MUTANTS / file for file in WRONG]
    return conformance(files, ranks=(2, 4), brief=True, folder=folder, runner=RUNNER, seed=seeds.current())


@pytest.mark.parametrize("file", WRONG)
def test_a_technique_that_would_hang_is_refused_with_rank_operation_and_rule(
    file: str, wrong: list[ConformanceResult]
) -> None:
    operation, rule = WRONG[file]
    found = [r for r in wrong if r.technique == Path(file).stem.replace("_", "-")]
    assert {r.params["ranks"] for r in found} == {2, 4}
    for result in found:
        assert result.status == "refused"
        reason = result.reason or ""
        assert "it breaks a rule of NCCL: rank" in reason
        assert f"({operation}" in reason
        assert rule in reason


def first_messages(rank: int, folder: str) -> None:
    """Be one of four ranks of which two exchange a message, before the group has met and after."""
    store = dist.FileStore(f"{folder}/store", 4)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=4, timeout=timedelta(seconds=60))
    transport = RulesTransport(Path(folder) / "rules")
    for told in ("before", "after"):
        said = "nothing"
        if rank < 2:
            message = [(torch.ones(1), 1 - rank)]
            try:
                for work in transport.post(message if rank == 0 else [], message if rank else []):
                    work.wait()
            except RuleBreachError as error:
                said = str(error)
        (Path(folder) / f"{told}-{rank}").write_text(said)
        transport.meet("cpu")
    dist.destroy_process_group()


def test_the_first_message_of_two_ranks_of_four_needs_a_meeting_of_all(tmp_path: Path) -> None:
    context = processes.get_context("spawn")
    ranks = [context.Process(target=first_messages, args=(rank, str(tmp_path))) for rank in range(4)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(120)
    assert [process.exitcode for process in ranks] == [0] * 4
    before, after = (
        [(tmp_path / f"{when}-{r}").read_text() for r in range(4)] for when in ("before", "after")
    )
    assert f"rank 0, operation 1 (send of 4 bytes to rank 1): {FIRST_BY_ALL}" in before[0]
    assert f"rank 1, operation 1 (receive of 4 bytes from rank 0): {FIRST_BY_ALL}" in before[1]
    assert before[2:] == ["nothing"] * 2
    assert after == ["nothing"] * 4


def test_rules_are_for_ranks_over_gloo_on_this_machine(tmp_path: Path) -> None:
    text = content.find_runner(RUNNER).read_text()
    for right, wrong in (
        ("device: cpu", "device: cuda"),
        ("driver: local", "driver: debug"),
        ("gloo", "mpi"),
    ):
        (tmp_path / "place.yaml").write_text(text.replace(right, wrong))
        with pytest.raises(UserError, match="rules are held to by ranks of this machine"):
            load_runner(tmp_path / "place.yaml")
