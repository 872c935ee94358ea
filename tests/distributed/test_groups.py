"""Ranks in groups: what crosses from one to another is counted, and a technique that knows them sends less."""

from __future__ import annotations

from pathlib import Path

import seeds

import paceline

SIZE_BYTES = 4096
SUITE = f"""
suite: collectives/groups
version: 1
family: collectives
description: What crosses between two groups of two ranks?
workload: {{op: all_reduce, payload: gaussian, group_ranks: 2}}
baseline: ring
techniques: [ring, hierarchical]
matrix: {{size_bytes: [{SIZE_BYTES}], ranks: [4]}}
tiers:
  quick: {{omit: it is short}}
protocol: {{launches: 1, min_samples: 3, max_samples: 4, max_seconds: 0.05, warmup: none}}
metrics:
  inter_group_bytes: {{margin: 0}}
"""


def test_between_groups_a_hierarchy_sends_two_thirds_of_what_a_ring_sends(tmp_path: Path) -> None:
    """Of S bytes: over two of a ring's four links 3/2·S each; of a hierarchy, every rank one half of S."""
    path = tmp_path / "groups.yaml"
    path.write_text(SUITE, encoding="utf-8")
    run = paceline.run(path, results=tmp_path / "store", seed=seeds.current(), allow_concurrent=True).check()
    rows = run.load()
    crossed = rows[rows.metric == "inter_group_bytes"].set_index("label").value
    assert dict(crossed) == {"ring": 3 * SIZE_BYTES, "hierarchical": 2 * SIZE_BYTES}
