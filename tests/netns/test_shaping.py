"""The scripts are text: these tests need neither root nor a kernel feature."""

from __future__ import annotations

import pytest

from paceline.base.errors import UserError
from paceline.worker.network import shaping
from paceline.worker.network.shaping import Link

PLAIN = Link(name="plain")
SLOW = Link(name="20mbit", rate_bytes_per_s=2.5e6)
FAST = Link(name="100mbit", rate_bytes_per_s=12.5e6)


def test_a_bucket_is_eight_milliseconds_deep_and_its_queue_has_16_mib_a_rank() -> None:
    (line,) = shaping.reshape_switch_script(1, PLAIN, FAST).splitlines()[1:-1]
    assert line == ("qdisc replace dev data-port0 root tbf rate 12500000bps burst 100000 limit 16877216")


def test_offload_packets_fit_into_the_bucket() -> None:
    assert "gso_max_size 17000" in shaping.reshape_rank_script(2, PLAIN, SLOW)
    assert "gso_max_size 65536" in shaping.reshape_rank_script(2, SLOW, FAST)
    assert "gso_max_size 65536" in shaping.reshape_rank_script(2, SLOW, PLAIN)


def test_an_unshaped_link_has_no_bucket_and_no_delay_rule() -> None:
    script = shaping.rank_script(0, 2, PLAIN) + shaping.switch_script([1, 2], PLAIN)
    assert "tbf" not in script
    assert "NFQUEUE" not in script


def test_reshaping_to_the_same_rate_does_nothing() -> None:
    same = Link(name="other", rate_bytes_per_s=2.5e6, delay_s=0.1)
    assert shaping.reshape_rank_script(2, SLOW, same) == ""
    assert shaping.reshape_switch_script(4, SLOW, same) == ""


def test_every_rank_knows_every_neighbour() -> None:
    script = shaping.rank_script(1, 3, PLAIN)
    known = [line.split()[2] for line in script.splitlines() if line.startswith("neigh add")]
    hosts = ("254", "1", "3")
    assert known == [f"{net}.{host}" for net in ("10.82.0", "10.83.0") for host in hosts]


@pytest.mark.parametrize("rate", [0, -1, 999.0, 1e13, float("nan")])
def test_a_rate_that_no_bucket_can_have_is_refused(rate: float) -> None:
    with pytest.raises(UserError, match="rate_bytes_per_s"):
        Link(name="x", rate_bytes_per_s=rate)


@pytest.mark.parametrize("delay_s", [-0.001, 11, float("nan")])
def test_a_delay_that_cannot_be_held_is_refused(delay_s: float) -> None:
    with pytest.raises(UserError, match="delay_s"):
        Link(name="x", delay_s=delay_s)
