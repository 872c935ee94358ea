"""Lets a batch of messages be one call of a group in Python: torch groups them for backends in C++ alone."""

from __future__ import annotations

import torch.distributed as dist


def group_messages() -> None:
    """Replace ``batch_isend_irecv``; before anybody binds it."""
    separate = dist.batch_isend_irecv

    def batch_isend_irecv(p2p_op_list: list[dist.P2POp]) -> list[dist.Work]:
        group = p2p_op_list[0].group
        batch = getattr(group if group is not None else dist.group.WORLD, "batch", None)
        if batch is None:
            return separate(p2p_op_list)
        with batch() as works:
            separate(p2p_op_list)
        return works

    dist.batch_isend_irecv = batch_isend_irecv
