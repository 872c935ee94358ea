"""Jobs of several nodes: where ranks live, how nodes talk, how endings join, and shares of a job."""

from __future__ import annotations

import json
import socket
import threading
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.base.errors import InfrastructureError
from paceline.drivers.shares import divide, make_shares, missing_cases, share_folders
from paceline.worker.launch import Launcher
from paceline.worker.launches import nodes
from paceline.worker.launches.attempt import Ending, merge
from paceline.worker.launches.nodes import Meeting, Place, interface_towards, place_from_environment
from paceline.worker.launches.watchdog import RankReport

PLAN = {
    "seed": 1,
    "blocks": [
        {"block": f"b{i}", "protocol": {"launches": 2}, "cases": [{"label": "x"}, {"label": "y"}]}
        for i in range(5)
    ],
    "groups": [{"group": "g", "blocks": ["b0", "b1", "b2"]}, {"group": "h", "blocks": ["b3", "b4"]}],
}


@given(num_ranks=st.integers(1, 40), num_nodes=st.integers(1, 9))
def test_ranks_are_spread_evenly_and_completely(num_ranks: int, num_nodes: int) -> None:
    shares = [Place(node=n, num_nodes=num_nodes).ranks(num_ranks) for n in range(num_nodes)]
    assert [rank for share in shares for rank in share] == list(range(num_ranks))
    used = [len(share) for share in shares if share]
    assert max(used) - min(used) <= 1
    assert len(used) == min(num_ranks, num_nodes)


def test_a_launcher_that_was_started_alone_is_the_only_node() -> None:
    assert place_from_environment({}) == Place()
    given = {"PACELINE_NODE": "1", "PACELINE_NODES": "3", "PACELINE_SESSION": "7-0", "PACELINE_HOST": "a.b"}
    assert place_from_environment(given) == Place(node=1, num_nodes=3, session="7-0", host="a.b")


def test_nodes_of_one_host_meet_at_the_loopback_and_hear_each_other(tmp_path: Path) -> None:
    (tmp_path / "attempts").mkdir()
    head, other = (Meeting(tmp_path, Place(node=n, num_nodes=2, session="s")) for n in range(2))
    heard: list[object] = []

    def follow() -> None:
        other.join()
        call = other.next_call(set())
        assert call is not None
        heard.append(call)
        other.tell(call, {"dead": {1: -9}})
        heard.append(other.next_call({call.name}))

    follower = threading.Thread(target=follow)
    follower.start()
    head.gather(20, None)
    (tmp_path / "attempts" / "g-2-0-0.json").write_text("{}")
    call = head.call("g-2", 4, 0, 0)
    assert head.wait_for_all(call, 20) == {1: {"dead": {"1": -9}}}
    head.end()
    follower.join(60)
    assert call.address == "127.0.0.1"
    assert interface_towards(call.address) == "lo"
    assert [getattr(c, "port", None) for c in heard] == [call.port, None]


def test_a_node_that_does_not_come_is_named(tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match=r"node 1 did not come within 0\.2 s"):
        Meeting(tmp_path, Place(num_nodes=3, session="s")).gather(0.2, None)


def test_an_interface_that_the_head_does_not_have_is_told_with_the_setting_that_names_it(
    tmp_path: Path,
) -> None:
    with pytest.raises(InfrastructureError, match=r"interface 'nope0' on .*PACELINE_CONTROL_INTERFACE"):
        Meeting(tmp_path, Place(num_nodes=1, session="s")).gather(0.2, "nope0")


def test_endings_of_nodes_join_and_silence_is_trouble() -> None:
    own = Ending(dead={0: -15})
    told = asdict(Ending(dead={1: -9}, hang_limit_s=2.0, killed_for_memory=True, logs={1: "the end"}))
    joined = merge(own, {1: json.loads(json.dumps(told))}, 3)
    assert joined.dead == {0: -15, 1: -9}
    assert joined.hang_limit_s == 2.0
    assert joined.killed_for_memory
    assert joined.logs == {1: "the end"}
    assert joined.trouble == "node 2 fell silent"
    assert merge(Ending(), {}, 1).well
    lost = Ending(trouble="InfrastructureError: the ranks found no rendezvous at 10.0.0.1: timed out")
    cause = asdict(Ending(trouble="ModuleNotFoundError: No module named 'torch'", traceback="Traceback"))
    joined = merge(lost, {1: cause}, 2)
    assert joined.trouble == "node 1: ModuleNotFoundError: No module named 'torch'"
    assert joined.traceback == "Traceback"


@given(num_shares=st.integers(1, 9))
def test_shares_hold_every_block_once_and_none_is_empty(num_shares: int) -> None:
    plans = divide(PLAN, num_shares)
    assert len(plans) == min(num_shares, 5)
    assert sorted(b["block"] for p in plans for b in p["blocks"]) == [f"b{i}" for i in range(5)]
    for plan in plans:
        named = [b for g in plan["groups"] for b in g["blocks"]]
        assert sorted(named) == sorted(b["block"] for b in plan["blocks"]) != []


def test_a_share_knows_what_it_lacks_and_shares_are_made_once(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(json.dumps(PLAN))
    (tmp_path / "run.sh").write_text("exit 0\n")
    (tmp_path / "engine").mkdir()
    first, second = make_shares(tmp_path, 2)
    assert (first / "engine").resolve() == tmp_path / "engine"
    assert len(missing_cases(first)) == 3 * 2 * 2
    done = {"event": "result", "launch": 1, "block": "b2", "label": "y"}
    (first / "events-0.jsonl").write_text(json.dumps(done) + "\n" + '{"event": "resu')
    assert make_shares(tmp_path, 4) == [first, second] == share_folders(tmp_path)
    left = missing_cases(first)
    assert len(left) == 11
    assert (1, "b2", {"label": "y"}) not in left


def report(rank: int, state: str) -> RankReport:
    return RankReport(
        rank=rank,
        state=state,
        context="b0|x|gate",
        call=1,
        operations=1,
        call_operations=1,
        in_operation=state != "dead",
        last_operation="send",
        silent_s=5.0,
    )


@pytest.mark.parametrize(
    ("dead", "status", "blamed"),
    [
        ({1: -9}, "crashed", "rank 1 was killed by signal 9"),
        ({1: -9, 2: -15}, "crashed", "rank 1 was killed by signal 9"),
        ({2: -15}, "timeout", "did not end within 5 s: rank 1"),
        ({0: -6, 2: -15}, "timeout", "did not end within 5 s: rank 1"),
    ],
)
def test_ranks_that_wait_for_a_dead_one_do_not_make_its_death_a_timeout(
    dead: dict[int, int], status: str, blamed: str, tmp_path: Path
) -> None:
    """Ranks of other nodes may be found stuck before they notice that their peer is gone."""
    case = {"label": "x", "case_id": "c"}
    plan = {"blocks": [{"block": "b0", "cases": [case]}], "groups": []}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    (tmp_path / "logs").mkdir()
    states = {0: "waiting", 1: "dead" if 1 in dead else "stopped by a signal", 2: "waiting"}
    ending = Ending(
        dead=dead, hang_limit_s=5.0, reports=[report(rank, state) for rank, state in states.items()]
    )
    reason = Launcher(tmp_path)._blame(0, [], ending).reason
    assert blamed in reason
    events = (tmp_path / "events-launcher.jsonl").read_text().splitlines()
    assert [json.loads(e)["status"] for e in events] == [status]


def test_a_node_is_reached_by_the_name_it_is_given_also_when_that_is_known_a_little_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in Kubernetes, whose name servers are told of pods that are there already."""
    asked: list[str] = []

    def late(hosts: list[str]) -> str:
        asked.extend(hosts)
        if len(asked) < 3:
            error = InfrastructureError(f"no way to {hosts[0]}")
            raise error from socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return "10.0.0.7"

    monkeypatch.setattr(nodes, "address_towards", late)
    places = [Place(node=n, num_nodes=2, session="s", host=f"run-{n}.run") for n in range(2)]
    head, other = (Meeting(tmp_path, place) for place in places)
    follower = threading.Thread(target=other.join)
    follower.start()
    head.gather(20, None)
    follower.join(60)
    assert (head.address, other.address) == ("10.0.0.7", "10.0.0.7")
    assert asked == ["run-1.run"] * 3


def test_a_name_that_is_never_known_ends_the_wait_with_the_name(tmp_path: Path) -> None:
    places = [Place(node=n, num_nodes=2, session="s", host=f"run-{n}.invalid") for n in range(2)]
    head, other = (Meeting(tmp_path, place) for place in places)
    threading.Thread(target=other.join, daemon=True).start()
    with pytest.raises(InfrastructureError, match=r"no way from .* to run-1\.invalid"):
        head.gather(1, None)
    (head.folder / "network.json").write_text('{"address": ""}')
