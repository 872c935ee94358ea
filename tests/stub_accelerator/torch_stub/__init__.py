"""The device ``stub`` of torch: what ``torch.stub`` offers, under the names that vendors' modules have.

Importing it registers the device, its operators and its collectives (``stubccl``), and touches nothing yet.
"""

from __future__ import annotations

import atexit
import sys
import types
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

_library = Path(__file__).with_name("stub.so")
LAST_LEVEL_CACHE_BYTES = 1 << 20
"""What the stub says of its cache: small, so that working sets and what flushes them stay small."""


def register() -> None:
    """Make the device known to torch; a second call does nothing."""
    if getattr(torch, "stub", None) is not None:
        return
    torch.ops.load_library(str(_library))
    # Meta kernels in Python cost a hundred launches each and import torch's compiler: the stub asks those in C++ alone.
    torch._meta_registrations._meta_lib_dont_use_me_use_register_meta._destroy()
    torch.utils.rename_privateuse1_backend("stub")
    torch._register_device_module("stub", _module())
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
    from torch_stub.batches import group_messages

    group_messages()
    # After it, and with the operators that were loaded: it binds both.
    from torch_stub import collectives

    collectives.register()
    # What still runs in a queue when the interpreter goes would find torch's own state gone.
    atexit.register(_settle)


def _settle() -> None:
    from torch_stub import collectives

    collectives.shutdown()
    if torch.ops.stub.touched() and not torch.ops.stub.in_bad_fork():
        for device in range(torch.accelerator.device_count()):
            try:
                torch.accelerator.synchronize(device)
            except RuntimeError:
                return


def Event(enable_timing: bool = False, blocking: bool = False) -> torch.Event:
    """Make an event of the current device; it keeps the device's time when asked to."""
    return torch.Event("stub", enable_timing=enable_timing, blocking=blocking)


def Stream(device: Any = None, priority: int = 0) -> torch.Stream:
    """Make a queue of a device."""
    return torch.Stream(_index(device), priority=priority)


@contextmanager
def stream(chosen: torch.Stream | None) -> Iterator[None]:
    """Give work to another queue."""
    if chosen is None:
        yield
        return
    with chosen:
        yield


@contextmanager
def device(chosen: Any) -> Iterator[None]:
    """Make a device the current one."""
    with torch.accelerator.device_index(_index(chosen).index):
        yield


def _index(chosen: Any) -> torch.device:
    if chosen is None:
        return torch.device("stub", torch.accelerator.current_device_index())
    if isinstance(chosen, int):
        return torch.device("stub", chosen)
    found = torch.device(chosen)
    return (
        found if found.index is not None else torch.device("stub", torch.accelerator.current_device_index())
    )


def get_device_name(device: Any = None) -> str:
    """Return the product's name."""
    return "Stub accelerator"


def get_device_properties(device: Any = None) -> Any:
    """Return what the stub tells of itself: as some vendors' do, it lacks a number of multiprocessors.

    Asking opens the vendor's library, as torch.cuda does to count devices: inside the fences it would be refused.
    """
    sys.audit("ctypes.dlopen", "libstub-management.so")
    return types.SimpleNamespace(
        name=get_device_name(),
        total_memory=torch.ops.stub.total_bytes(),
        L2_cache_size=LAST_LEVEL_CACHE_BYTES,
    )


def manual_seed_all(seed: int) -> None:
    """Seed the generators of all devices."""
    for index in range(torch.accelerator.device_count()):
        torch.ops.stub.manual_seed(index, seed)


def manual_seed(seed: int) -> None:
    """Seed the generator of the current device."""
    torch.ops.stub.manual_seed(torch.accelerator.current_device_index(), seed)


def get_rng_state(device: Any = None) -> torch.Tensor:
    """Return the state of a device's generator."""
    found: torch.Tensor = torch.ops.stub.get_rng_state(_index(device).index)
    return found


def set_rng_state(state: torch.Tensor, device: Any = None) -> None:
    """Set the state of a device's generator."""
    torch.ops.stub.set_rng_state(_index(device).index, state)


def _module() -> types.ModuleType:
    """Collect what becomes ``torch.stub``."""
    module = types.ModuleType("torch.stub")
    accelerator = torch.accelerator
    own = (
        Event, Stream, stream, device, get_device_name, get_device_properties,
        manual_seed, manual_seed_all, get_rng_state, set_rng_state,
    )  # fmt: skip
    for member in own:
        setattr(module, member.__name__, member)
    names = (
        "synchronize", "current_stream", "set_stream", "memory_allocated",
        "max_memory_allocated", "memory_reserved", "max_memory_reserved", "reset_peak_memory_stats", "empty_cache",
        "memory_stats", "reset_accumulated_memory_stats",
    )  # fmt: skip
    for name in names:
        setattr(module, name, getattr(accelerator, name))
    module.current_device = accelerator.current_device_index
    module.set_device = lambda chosen: accelerator.set_device_index(_index(chosen).index)
    module.device_count = torch.ops.stub.device_count
    module.is_available = lambda: torch.ops.stub.device_count() > 0
    module.is_initialized = torch.ops.stub.touched
    module.init = module._lazy_init = torch.ops.stub.touch
    module._is_in_bad_fork = torch.ops.stub.in_bad_fork
    module._sleep = torch.ops.stub.sleep
    module.get_amp_supported_dtype = lambda: [torch.bfloat16, torch.float16]
    return module
