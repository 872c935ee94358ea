"""A plain training script on the network of this folder: torchrun starts it, DistributedDataParallel trains.

It prints the median rate of windows of ten steps as a line of JSON, as Paceline takes the median of its own.
"""

import json
import time
from statistics import median

import torch
import torch.distributed as dist
from network import make_data, make_model
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

BATCH, STEPS, WARMUP, WINDOW = 32, 60, 8, 10

dist.init_process_group("gloo")
torch.set_num_threads(1)
torch.manual_seed(0)
model = DistributedDataParallel(make_model())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
data = make_data()
loader = DataLoader(data, BATCH // dist.get_world_size(), sampler=DistributedSampler(data), drop_last=True)
batches = [batch for batch, _ in zip(loader, range(WARMUP + STEPS), strict=False)]


def train(steps):
    """Train some batches; return the seconds that they took."""
    dist.barrier()
    began = time.perf_counter()
    for images, labels in steps:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
    return time.perf_counter() - began


train(batches[:WARMUP])
windows = [train(batches[at : at + WINDOW]) for at in range(WARMUP, WARMUP + STEPS, WINDOW)]
if dist.get_rank() == 0:
    print(json.dumps({"samples_per_s": WINDOW * BATCH / median(windows)}))
dist.destroy_process_group()
