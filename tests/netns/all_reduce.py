"""One rank of a Gloo all-reduce over a Network: prints what data0 sent per operation."""

from __future__ import annotations

import json
import sys

from paceline.worker.network.links import CONTROL_INTERFACE, DATA_INTERFACE, enter, read_counters


def main(namespace: str, size_bytes: int, repeats: int) -> None:
    enter(namespace)
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    tensor = torch.ones(size_bytes // 4)
    dist.all_reduce(tensor)
    tensor.fill_(1)
    dist.barrier()
    before = {name: read_counters(name).tx_bytes for name in (DATA_INTERFACE, CONTROL_INTERFACE)}
    for _ in range(repeats):
        dist.all_reduce(tensor)
        correct = bool((tensor == dist.get_world_size()).all())
        tensor.fill_(1)
    after = {name: read_counters(name).tx_bytes for name in before}
    dist.barrier()
    per_op = {name: (after[name] - before[name]) / repeats for name in before}
    print(json.dumps({"correct": correct, **per_op}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
