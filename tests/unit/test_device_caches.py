"""Caches are those of the device that computes: never the host's beside an accelerator."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from paceline.families.kernels.core import caches, ceilings, working_sets
from paceline.families.kernels.core.caches import caches_of

MIB = 1 << 20


def host(folder: Path, **sizes: str) -> Path:
    """Write a processor's caches as its kernel shows them; ``L2="2048K"``."""
    for number, (name, size) in enumerate(sizes.items()):
        index = folder / f"index{number}"
        index.mkdir(parents=True)
        (index / "level").write_text(name[1])
        (index / "type").write_text("Instruction\n" if name.endswith("i") else "Unified\n")
        (index / "size").write_text(size + "\n")
    return folder


@pytest.fixture(autouse=True)
def large_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the host the caches of a server beside an H100."""
    monkeypatch.setattr(caches, "HOST_CACHES", host(tmp_path, L1i="32K", L1="48K", L2="2048K", L3="307200K"))


def device(name: str = "", kind: str = "cuda", **facts: Any) -> Any:
    """Return a device that describes itself so."""
    return SimpleNamespace(torch_type=kind, describe=lambda: {"name": name, **facts})


def test_a_processor_has_what_its_kernel_shows() -> None:
    found = caches_of(device(kind="cpu"))
    assert (found.private_bytes, found.last_level_bytes) == (2 * MIB, 300 * MIB)
    assert found.source == "the kernel"


@pytest.mark.parametrize(
    ("name", "told_mib", "private_mib", "last_mib", "source"),
    [
        ("NVIDIA H100 80GB HBM3", 50, 50, 50, "the runtime and the datasheet"),
        # ROCm tells of the second level of one die.
        ("AMD Instinct MI300X", 4, 4, 288, "the runtime and the datasheet"),
        ("Ascend910B3", None, 192, 192, "the datasheet"),
        ("NVIDIA B200", None, 126, 126, "the datasheet"),
        ("Some accelerator", 80, 80, 80, "the runtime"),
        ("Some accelerator", None, 4, 512, "a guess: neither the runtime nor a datasheet tells of a cache"),
    ],
)
def test_an_accelerator_has_its_own(
    name: str, told_mib: int | None, private_mib: int, last_mib: int, source: str
) -> None:
    found = caches_of(device(name, last_level_cache_bytes=told_mib and told_mib * MIB))
    assert (found.private_bytes, found.last_level_bytes) == (private_mib * MIB, last_mib * MIB)
    assert found.source == source


def test_a_slice_has_its_share() -> None:
    found = caches_of(device("NVIDIA H100 80GB HBM3 MIG 1g.10gb", multiprocessors=16))
    assert found.last_level_bytes == 50 * MIB // 8


def sets(found: Any, cache: str, megabytes: float, trial_s: float = 1e-5) -> int:
    """Return the number of working sets of a pass."""
    block: Any = SimpleNamespace(protocol={"cache": cache})
    spec = SimpleNamespace(num_bytes=int(megabytes * MIB))
    point: Any = SimpleNamespace(specs=((spec,), ()))
    session: Any = SimpleNamespace(device=found)
    return working_sets.num_sets(session, block, point, [SimpleNamespace(trial_s=trial_s)])  # type: ignore[list-item]


def test_passes_rotate_and_stay_warm_by_the_devices_caches() -> None:
    hopper, mi300 = device("NVIDIA H100 80GB HBM3"), device("AMD Instinct MI300X")
    assert sets(hopper, "cold-rotate", 10) == 10, "twice 50 MiB; the host's 300 MiB would ask for 60"
    assert sets(mi300, "cold-rotate", 20) == 25, "as many as memory is given to"
    assert sets(hopper, "hot", 1) == 25, "half of 50 MiB; the host's 2 MiB would ask for one"
    assert sets(hopper, "cold-flush", 1) == 1


@pytest.mark.parametrize(
    ("name", "policy", "rotated_mib", "flushed_mib"),
    [
        ("NVIDIA H100 80GB HBM3", "cold-flush", 1, 100),
        ("AMD Instinct MI300X", "cold-flush", 1, 576),
        ("Ascend910B3", "cold-flush", 1, 384),
        ("NVIDIA H100 80GB HBM3", "cold-rotate", 100, 0),
        # 64 small sets, or what memory allows, would be found in the cache that they were just written to.
        ("NVIDIA H100 80GB HBM3", "cold-rotate", 64, 100),
        ("AMD Instinct MI300X", "cold-rotate", 512, 576),
        ("NVIDIA H100 80GB HBM3", "hot", 1, 0),
    ],
)
def test_cold_is_cold_on_large_caches(name: str, policy: str, rotated_mib: int, flushed_mib: int) -> None:
    assert working_sets.flush_bytes(device(name), policy, rotated_mib * MIB) == flushed_mib * MIB


def test_a_processors_passes_stay_what_they_were() -> None:
    assert working_sets.flush_bytes(device(kind="cpu"), "cold-rotate", MIB) == 0
    assert working_sets.flush_bytes(device(kind="cpu"), "cold-flush", MIB) == 600 * MIB


def test_a_copy_exceeds_the_devices_caches() -> None:
    def copied(found: Any) -> tuple[int, int]:
        return ceilings._copied_bytes(SimpleNamespace(device=found))  # type: ignore[arg-type]

    assert copied(device(kind="cpu")) == (256 * MIB, 256 * MIB)
    # The least shows memory, four times the cache; the most is what a fast device is given.
    assert copied(device("NVIDIA H100 80GB HBM3")) == (4 * 50 * MIB, 1024 * MIB)
    large = {"memory_bytes": 192 * 1024 * MIB}
    assert copied(device("AMD Instinct MI300X", **large)) == (4 * 288 * MIB, 4 * 288 * MIB)
    assert copied(device("Some accelerator", memory_bytes=1024 * MIB)) == (128 * MIB, 128 * MIB)
