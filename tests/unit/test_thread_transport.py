"""Ranks as threads exchange messages as process groups do."""

from __future__ import annotations

import pytest
import torch

from paceline.worker.communication.comm import Comm
from paceline.worker.communication.transport import ThreadHub, ThreadTransport


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_messages_arrive_in_the_order_in_which_receives_were_started(order: tuple[int, ...]) -> None:
    hub = ThreadHub(2, timeout_s=60)
    sender, receiver = (Comm(ThreadTransport(hub, rank)) for rank in range(2))
    landed = [torch.zeros(1) for _ in order]
    transfers = [receiver.start(receives=[(tensor, 0)]) for tensor in landed]
    for value in range(len(order)):
        sender.send(torch.tensor([float(value)]), 1)
    for index in order:
        transfers[index].wait()
    assert [int(tensor) for tensor in landed] == [0, 1, 2]
    assert receiver.num_pending == 0


def test_a_message_of_the_wrong_size_is_refused() -> None:
    hub = ThreadHub(2, timeout_s=60)
    sender, receiver = (Comm(ThreadTransport(hub, rank)) for rank in range(2))
    sender.send(torch.zeros(3), 1)
    with pytest.raises(RuntimeError, match="expected 2"):
        receiver.receive(torch.zeros(2), 0)


def test_a_message_that_nobody_sends_is_waited_for_no_longer_than_the_group_allows() -> None:
    hub = ThreadHub(2, timeout_s=0.01)
    sender, receiver = (Comm(ThreadTransport(hub, rank)) for rank in range(2))
    sender.send(torch.zeros(2), 1)
    receiver.receive(torch.ones(2), 0)
    with pytest.raises(TimeoutError, match=r"no message from rank 0 within 0\.01 s"):
        receiver.receive(torch.zeros(2), 0)
