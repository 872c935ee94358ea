"""What others take of the machine while a launch runs: read from outside, and judged before anything is said."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from paceline.worker.launch import _told_of
from paceline.worker.launches.attempt import Ending, merge
from paceline.worker.machine import foreign_load
from paceline.worker.machine.foreign_load import Reading, is_disturbed, load_between, read, who, worst
from paceline.worker.ranks.rank import _waiting

TICKS = 100
"""A second, as the kernel counts on Linux."""
OURS, RANK, LOADER, PARENT = 50, 51, 60, 40


class Machine:
    """A ``/proc`` of files, whose processes compute as a test says."""

    def __init__(self, folder: Path, cores: int = 2, *, tells_waiting: bool = True) -> None:
        self.proc, self.cores, self.tells_waiting = folder, cores, tells_waiting
        self.now_s, self.stolen, self.waiting_us = 0.0, 0, 0
        self.spent = {1: 0, 2: 0, 3: 0, PARENT: 0, OURS: 0, RANK: 0, LOADER: 0}
        self.ended = dict.fromkeys(self.spent, 0)
        self.parents = {1: 0, 2: 0, 3: 2, PARENT: 1, OURS: PARENT, RANK: OURS, LOADER: 1}
        self.busy = 0

    def compute(
        self, seconds: float, *, waiting_s: float = 0.0, stolen_s: float = 0.0, **cores: float
    ) -> None:
        """Let processes take some cores each for some seconds."""
        self.now_s += seconds
        self.waiting_us += round(waiting_s * 1e6)
        self.stolen += round(stolen_s * TICKS)
        for name, share in cores.items():
            pid = {"ours": OURS, "rank": RANK, "loader": LOADER, "parent": PARENT, "kernel": 3}[name]
            ticks = round(share * seconds * TICKS)
            self.spent[pid] += ticks
            self.busy += ticks

    def read(self) -> Reading:
        """Write the files, and read them as a launcher does."""
        mine = f"{self.busy // 2} 0 {self.busy - self.busy // 2} 0 0 900 900 {self.stolen} 0 0"
        other = "77777 0 0 0 0 0 0 0 0 0"
        lines = [
            f"cpu  {mine}",
            f"cpu0 {mine}",
            *(f"cpu{n} 0 0 0 0 0 0 0 0 0 0" for n in range(1, self.cores)),
        ]
        (self.proc / "stat").write_text("\n".join([*lines, f"cpu{self.cores} {other}", "intr 5"]))
        (self.proc / "pressure").mkdir(exist_ok=True)
        if self.tells_waiting:
            text = (
                f"some avg10=0.00 avg60=0.00 avg300=0.00 total={self.waiting_us}\nfull avg10=0.00 total=0\n"
            )
            (self.proc / "pressure" / "cpu").write_text(text)
        for pid, ticks in self.spent.items():
            (self.proc / str(pid)).mkdir(exist_ok=True)
            rest = f"S {self.parents[pid]} 1 1 0 -1 0 0 0 0 0 {ticks} 0 {self.ended[pid]} 0 20 0 1"
            (self.proc / str(pid) / "stat").write_text(f"{pid} (a (name) {pid}) {rest}")
        found = read(self.proc, cores=frozenset(range(self.cores)), at_s=self.now_s)
        assert found is not None
        return found

    def load(self, seconds: float, **taken: float) -> dict[str, Any]:
        """Return what is told of some seconds."""
        before = self.read()
        self.compute(seconds, **taken)
        found = load_between(before, self.read(), pid=OURS)
        assert found is not None
        return found


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_our_own_ranks_the_kernel_and_who_started_us_are_no_others(machine: Machine) -> None:
    load = machine.load(2.0, ours=0.1, rank=1.5, parent=0.1, kernel=0.3, waiting_s=1.9)
    assert load["others_cores"] == 0 and not load["disturbed"] and load["processes"] == []
    assert (load["seconds"], load["cores"], load["waiting"]) == (2.0, 2, 0.95)


def test_another_process_that_ranks_wait_for_disturbs_and_is_named(machine: Machine) -> None:
    load = machine.load(2.0, rank=1.0, loader=1.0, waiting_s=1.2)
    assert load["others_cores"] == pytest.approx(1.0) and load["disturbed"]
    assert load["processes"] == [{"name": f"a (name) {LOADER}", "pid": LOADER, "cores": 1.0}]
    assert who(load) == f"a (name) {LOADER} took 1.0 of 2 cores"


def test_a_process_on_a_core_that_nobody_needed_disturbs_nobody_and_is_told(machine: Machine) -> None:
    load = machine.load(2.0, rank=0.9, loader=0.9, waiting_s=0.01)
    assert load["others_cores"] == pytest.approx(0.9) and not load["disturbed"]


def test_where_the_kernel_does_not_tell_who_waited_whoever_computed_disturbed(tmp_path: Path) -> None:
    load = Machine(tmp_path, tells_waiting=False).load(2.0, rank=0.9, loader=0.9)
    assert load["waiting"] is None and load["disturbed"]


def test_time_that_goes_to_other_guests_disturbs(machine: Machine) -> None:
    load = machine.load(2.0, rank=1.0, stolen_s=0.4)
    assert load["stolen"] == pytest.approx(0.1) and load["disturbed"]
    assert who(load) == "the host gave 10% of the time to other guests"


def test_ranks_that_have_ended_meanwhile_were_ours(machine: Machine) -> None:
    before = machine.read()
    machine.compute(2.0, rank=1.8, waiting_s=1.0)
    machine.ended[OURS] += machine.spent.pop(RANK)
    (machine.proc / str(RANK) / "stat").unlink()
    load = load_between(before, machine.read(), pid=OURS)
    assert load is not None and load["others_cores"] == 0 and not load["disturbed"]


def test_a_process_of_ours_that_nobody_waited_for_takes_no_time_of_ours_with_it(machine: Machine) -> None:
    machine.compute(9.0, rank=1.0)
    before = machine.read()
    machine.compute(2.0, ours=0.5, waiting_s=1.0)
    machine.spent.pop(RANK)
    (machine.proc / str(RANK) / "stat").unlink()
    load = load_between(before, machine.read(), pid=OURS)
    assert load is not None and load["others_cores"] == 0


def test_a_thread_of_the_kernel_that_ended_takes_no_time_of_ours_with_it(machine: Machine) -> None:
    machine.compute(9.0, kernel=1.0)
    before = machine.read()
    machine.compute(2.0, ours=0.5, waiting_s=1.0)
    machine.spent.pop(3)
    (machine.proc / "3" / "stat").unlink()
    load = load_between(before, machine.read(), pid=OURS)
    assert load is not None and load["others_cores"] == 0


def test_what_others_took_shows_beside_ranks_of_ours_that_ended(machine: Machine) -> None:
    machine.compute(9.0, rank=1.0)
    before = machine.read()
    machine.compute(2.0, rank=0.5, loader=1.0, waiting_s=1.0)
    machine.ended[OURS] += machine.spent.pop(RANK)
    (machine.proc / str(RANK) / "stat").unlink()
    load = load_between(before, machine.read(), pid=OURS)
    assert load is not None and load["others_cores"] == pytest.approx(1.0) and load["disturbed"]


def test_one_of_ours_that_another_process_adopted_is_ours_still(machine: Machine) -> None:
    before = machine.read()
    machine.compute(2.0, rank=1.0, waiting_s=1.0)
    machine.parents[RANK] = 1
    load = load_between(before, machine.read(), pid=OURS)
    assert load is not None and load["others_cores"] == 0 and load["processes"] == []


def test_cores_that_we_may_not_use_do_not_count(machine: Machine) -> None:
    assert machine.read().cores == 2 and machine.read().busy_s == 0


@pytest.mark.parametrize(
    ("cores", "others", "disturbed"), [(2, 0.14, False), (2, 0.16, True), (64, 3.0, False), (64, 3.3, True)]
)
def test_what_disturbs_grows_with_the_machine(cores: int, others: float, disturbed: bool) -> None:
    load = {"cores": cores, "others_cores": others, "stolen": 0.0, "waiting": 0.5, "processes": []}
    assert is_disturbed(load) is disturbed


def test_nothing_is_said_of_too_short_a_time_or_of_a_system_that_does_not_tell(
    machine: Machine, tmp_path: Path
) -> None:
    before = machine.read()
    machine.compute(0.2, loader=1.0)
    assert load_between(before, machine.read(), pid=OURS) is None
    assert read(tmp_path / "nowhere") is None
    assert load_between(None, before) is None


def test_of_several_nodes_the_one_that_was_disturbed_most_counts(machine: Machine) -> None:
    quiet, busy = machine.load(1.0, rank=1.0), machine.load(1.0, loader=1.0, waiting_s=1.0)
    assert worst([quiet, None, busy]) == busy and worst([None]) is None
    told = {"dead": {}, "trouble": None, "traceback": None, "hang_limit_s": None, "reports": [], "logs": {}}
    others = {1: {**told, "killed_for_memory": False, "load": busy}}
    assert merge(Ending(load=quiet), others, 2).load == busy


def test_a_launch_names_the_blocks_that_others_disturbed_but_not_those_whose_work_others_do(
    machine: Machine,
) -> None:
    blocks = [
        {"block": "ours", "family": "collectives", "params": {"op": "all_reduce"}},
        {"block": "theirs", "family": "serving", "params": {"op": "endpoint"}},
        {
            "block": "asked",
            "family": "reasoning",
            "params": {"op": "solve", "model": "openai:http://h:1/v1#m"},
        },
        {"block": "held", "family": "reasoning", "params": {"op": "solve", "model": "reasoner"}},
    ]
    quiet, busy = machine.load(1.0, rank=1.0), machine.load(1.0, loader=1.0, waiting_s=1.0)
    assert _told_of(quiet, blocks, ()) == {"load": quiet}
    assert _told_of(busy, blocks, ()) == {"load": busy, "disturbed": ["ours", "held"]}
    assert _told_of(None, blocks, ()) == {}


@pytest.mark.parametrize(
    ("of_launch", "of_block", "disturbed"),
    [(1.0, 0.01, False), (0.0, 0.9, True), (1.0, None, True), (0.0, None, False)],
)
def test_a_block_is_judged_by_who_waited_while_it_ran_and_not_while_its_ranks_started(
    machine: Machine, of_launch: float, of_block: float | None, disturbed: bool
) -> None:
    blocks = [{"block": "a", "family": "collectives", "params": {"op": "all_reduce"}}]
    load = machine.load(1.0, loader=1.0, waiting_s=of_launch)
    told = {} if of_block is None else {"waiting": of_block}
    events = [{"event": "block_begin", "block": "a"}, {"event": "block_end", "block": "a", **told}]
    assert _told_of(load, blocks, events) == {"load": load, **({"disturbed": ["a"]} if disturbed else {})}


def test_a_block_tells_its_familys_waiting_or_else_the_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    def told(own: float | None, before_s: float | None, now_s: float | None) -> float | None:
        monkeypatch.setattr(foreign_load, "waiting_s", lambda: now_s)
        return _waiting(SimpleNamespace(waiting=own), before_s, 4.0)  # type: ignore[arg-type]

    assert told(0.02, 1.0, 3.0) == 0.02
    assert told(0.0, 1.0, 3.0) == 0.0
    assert told(None, 1.0, 3.0) == 0.5
    assert told(None, None, 3.0) is None
    assert told(None, 1.0, None) is None
