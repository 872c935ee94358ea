"""What Slurm's commands print, read: lines as Slurm 22.05 wrote them."""

from __future__ import annotations

import pytest

from paceline.drivers.slurm.states import (
    REASONS,
    TaskState,
    expand,
    read_completion_log,
    read_sacct,
    read_scontrol,
    read_settings,
    read_squeue,
    waiting_for,
)

SCONTROL = (
    "JobId={id} ArrayJobId=1 ArrayTaskId={task} ArrayTaskThrottle=2 JobName=paceline-x UserId=root(0) "
    "JobState={state} Reason={reason} Dependency=(null) Requeue=0 Restarts={restarts} BatchFlag=1 ExitCode={code} "
    "NodeList={nodes} BatchHost=n0 ReqB:S:C:T=0:0:*:* WorkDir=/work/a=b"
)


def scontrol(**changed: object) -> str:
    values = {
        "id": 1,
        "task": 0,
        "state": "RUNNING",
        "reason": "None",
        "restarts": 0,
        "code": "0:0",
        "nodes": "n0",
    }
    return SCONTROL.format(**values | changed)


@pytest.mark.parametrize(
    ("spec", "numbers"),
    [("3", [3]), ("0-2", [0, 1, 2]), ("[0,4-5%2]", [0, 4, 5]), ("N/A", []), ("", []), ("x-3", [])],
)
def test_tasks_are_read_from_ranges(spec: str, numbers: list[int]) -> None:
    assert expand(spec) == numbers


def test_the_queue_names_every_task() -> None:
    text = "1|0|RUNNING|None|n[0-1]\n1|1-2|PENDING|JobArrayTaskLimit|\nslurm_load_jobs error\n"
    found = read_squeue(text)
    assert found[0] == TaskState(state="RUNNING", why="None", nodes="n[0-1]")
    assert {t: s.state for t, s in found.items()} == {0: "RUNNING", 1: "PENDING", 2: "PENDING"}
    assert not any(s.final for s in found.values())


@pytest.mark.parametrize("state", [*REASONS, "COMPLETED", "FAILED"])
def test_every_ending_is_final(state: str) -> None:
    (found,) = read_scontrol(scontrol(state=state, code="0:15", restarts=2)).values()
    assert found.final
    assert (found.state, found.exit_code, found.restarts, found.nodes) == (state, "0:15", 2, "n0")


@pytest.mark.parametrize(
    "state", ["PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "REQUEUED", ""]
)
def test_what_goes_on_is_not_final(state: str) -> None:
    (found,) = read_scontrol(scontrol(state=state, nodes="(null)")).values()
    assert not found.final
    assert found.nodes == ""


@pytest.mark.parametrize("reason", ["launch_failed_requeued_held", "JobHoldMaxRequeue", "JobHeldAdmin"])
def test_a_task_that_is_held_back_will_not_begin(reason: str) -> None:
    (found,) = read_scontrol(scontrol(state="PENDING", reason=reason)).values()
    assert (found.state, found.final) == ("HELD", True)


@pytest.mark.parametrize(
    "state", ["REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD", "LAUNCH_FAILED", "RECONFIG_FAIL"]
)
def test_states_in_which_nothing_happens_any_more_are_held(state: str) -> None:
    assert read_squeue(f"1|0|{state}|None|")[0].state == "HELD"


@pytest.mark.parametrize(
    "reason",
    [
        "PartitionTimeLimit",
        "BadConstraints",
        "DependencyNeverSatisfied",
        "InvalidQOS",
        "InvalidAccount",
        "QOSMaxWallDurationPerJobLimit",
        "AssocMaxWallDurationPerJobLimit",
        "QOSMaxCpuPerJobLimit",
        "QOSMaxNodePerJobLimit",
        "AssocMaxGRESPerJob",
        "QOSMaxCPUMinutesPerJobLimit",
        "QOSMinGRES",
        "MaxMemPerLimit",
        "ReservationDeleted",
    ],
)
def test_a_reason_that_no_waiting_ends_is_an_end(reason: str) -> None:
    for found in (
        read_squeue(f"1|0|PENDING|{reason}|")[0],
        read_scontrol(scontrol(state="PENDING", reason=reason))[0],
    ):
        assert (found.state, found.why, found.final) == ("IMPOSSIBLE", reason, True)
    assert read_squeue(f"1|0|RUNNING|{reason}|n0")[0].state == "RUNNING", (
        "of a task that runs a reason says nothing"
    )


@pytest.mark.parametrize(
    "reason",
    [
        "None",
        "Resources",
        "Priority",
        "JobArrayTaskLimit",
        "Dependency",
        "BeginTime",
        "PartitionDown",
        "PartitionNodeLimit",
        "PartitionInactive",
        "ReqNodeNotAvail",
        "NodeDown",
        "Licenses",
        "Reservation",
        "QOSGrpNodeLimit",
        "QOSMaxJobsPerUserLimit",
        "QOSMaxCpuPerUserLimit",
        "AssocGrpCPUMinutesLimit",
        "AssocMaxJobsLimit",
        "MaxCpuPerAccount",
    ],
)
def test_a_reason_that_others_end_by_ending_is_none(reason: str) -> None:
    assert not read_squeue(f"1|0|PENDING|{reason}|")[0].final


def test_what_waits_is_counted_by_its_reason() -> None:
    text = "1|0|RUNNING|None|n0\n1|1-2|PENDING|Priority|\n1|3|PENDING|Resources|\n1|4-9|PENDING|JobArrayTaskLimit|\n"
    assert waiting_for(read_squeue(text).values()) == {"Priority": 2, "Resources": 1}
    assert waiting_for([]) == {}


def test_tasks_that_have_not_begun_share_a_line() -> None:
    text = scontrol(task="2-3%2", state="PENDING", reason="Resources") + "\n" + scontrol(id=2, task=0)
    assert {t: s.state for t, s in read_scontrol(text).items()} == {2: "PENDING", 3: "PENDING", 0: "RUNNING"}


def test_accounting_says_who_cancelled_and_shortens_states() -> None:
    text = "1_0|CANCELLED by 0|0:0|n0\n1_1|OUT_OF_MEMORY|0:125|n1\n12_0|COMPLETED|0:0|n0\n1_[2-3]|PENDING|0:0|None\n"
    found = read_sacct(text, "1")
    assert {t: s.state for t, s in found.items()} == {
        0: "CANCELLED",
        1: "OUT_OF_MEMORY",
        2: "PENDING",
        3: "PENDING",
    }
    assert found[1].exit_code == "0:125"


def test_the_last_line_of_the_completion_log_counts() -> None:
    line = "JobId={id} UserId=root(0) JobState={state} NodeList=n1 ArrayJobId={array} ArrayTaskId=0 ExitCode=0:0 "
    text = "\n".join(
        [
            line.format(id=5, state="NODE_FAIL", array=5),
            line.format(id=9, state="TIMEOUT", array=9),
            line.format(id=5, state="COMPLETED", array=5),
        ]
    )
    assert {t: s.state for t, s in read_completion_log(text, "5").items()} == {0: "COMPLETED"}


def test_settings_are_read_from_aligned_lines() -> None:
    text = "Configuration data as of now\nJobCompLoc              = /var/log/a=b\nJobCompType = jobcomp/filetxt\n"
    assert read_settings(text) == {"JobCompLoc": "/var/log/a=b", "JobCompType": "jobcomp/filetxt"}
