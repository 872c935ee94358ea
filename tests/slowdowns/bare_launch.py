"""What a launch's start is held against: processes that are forked after one import of torch, and meet.

Run it as a script with a number of processes: it says ``ready``. For each line that it is given it forks that many.
Each joins a group of Gloo with all others, takes part in two first operations, and writes the instant
(``time.monotonic``) and its processor time until then. It does so three times, and answers with the means, as JSON.

It imports nothing of Paceline, so that nothing of Paceline can slow it.
"""

from __future__ import annotations

import gc
import json
import os
import random
import sys
import time
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist

TIMES = 3
"""A launch of Paceline takes about as long: both meet the same machine."""


def main(num_ranks: int) -> None:
    """Serve until standard input is closed."""
    gc.collect()
    gc.freeze()
    print("ready", flush=True)
    for _ in sys.stdin:
        told = [launch(num_ranks) for _ in range(TIMES)]
        print(json.dumps({name: sum(one[name] for one in told) / TIMES for name in told[0]}), flush=True)


def launch(num_ranks: int) -> dict[str, float]:
    """Fork ranks, wait for them, and return seconds until the last was ready and processor seconds of all."""
    began_s = time.monotonic()
    told, telling = os.pipe()
    store = os.fork()
    if not store:
        _hold(telling)
    line = _line(told)
    ranks = []
    for rank in range(num_ranks):
        ranks.append(os.fork())
        if not ranks[-1]:
            _join(rank, num_ranks, int(line), telling)
    lines = [json.loads(_line(told)) for _ in ranks]
    for pid in ranks:
        os.waitpid(pid, 0)
    os.kill(store, 9)
    os.waitpid(store, 0)
    os.close(told)
    os.close(telling)
    return {"wall_s": max(at for at, _ in lines) - began_s, "cpu_s": sum(cpu_s for _, cpu_s in lines)}


def _line(pipe: int) -> str:
    text = b""
    while not text.endswith(b"\n"):
        text += os.read(pipe, 1)
    return text.decode()


def _hold(telling: int) -> None:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    os.write(telling, b"%d\n" % store.port)
    while True:
        time.sleep(60)


def _join(rank: int, num_ranks: int, port: int, telling: int) -> None:
    os.environ.update(GLOO_SOCKET_IFNAME="lo")
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(rank)
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    limit = timedelta(seconds=60)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=num_ranks, timeout=limit)
    carrier = dist.new_group(backend="gloo", timeout=limit)
    for group in (None, carrier):
        dist.all_reduce(torch.zeros(1), group=group)
    os.write(telling, f"[{time.monotonic()}, {time.process_time()}]\n".encode())
    dist.destroy_process_group()
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
