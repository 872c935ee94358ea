"""A plain training script of one's own: torchrun starts it, and it prints what it measured as a line of JSON.

The ranks average their gradients with DistributedDataParallel, or (--by-hand) with one all-reduce a parameter once the
backward pass is over.
"""

import argparse
import json
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--by-hand", action="store_true")
parser.add_argument("--steps", type=int, default=12)
parser.add_argument("--warmup", type=int, default=3, help="steps that are not timed")
told = parser.parse_args()

VOCABULARY, WIDTH, CONTEXT, BATCH = 256, 128, 64, 8
dist.init_process_group("gloo")
torch.set_num_threads(1)
torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, activation="gelu", batch_first=True)
model: nn.Module = nn.Sequential(
    nn.Embedding(VOCABULARY, WIDTH), nn.TransformerEncoder(layer, 2), nn.Linear(WIDTH, VOCABULARY)
)
if not told.by_hand:
    model = DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
draw = torch.Generator().manual_seed(dist.get_rank())

began = 0.0
for step in range(told.warmup + told.steps):
    if step == told.warmup:
        dist.barrier()
        began = time.monotonic()
    tokens = torch.randint(VOCABULARY, (BATCH, CONTEXT + 1), generator=draw).sort(dim=1).values
    logits = model(tokens[:, :-1])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    if told.by_hand:
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
    optimizer.step()
dist.barrier()
elapsed_s = time.monotonic() - began
if dist.get_rank() == 0:
    tokens_per_s = told.steps * BATCH * CONTEXT * dist.get_world_size() / elapsed_s
    print(json.dumps({"tokens_per_s": tokens_per_s, "loss": loss.item()}))
dist.destroy_process_group()
