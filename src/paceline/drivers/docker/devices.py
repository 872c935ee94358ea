"""How each kind of accelerator comes into a container: one table of ways, each a pure piece of a container request.

The Container Device Interface comes first where the engine has found the devices; then the vendor's own way. What a way
asks for is explained in docs/containers.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from paceline.base.errors import UserError

ALL = "all"
CDI_KINDS = {"cuda": "nvidia.com/gpu", "rocm": "amd.com/gpu"}
"""Ascend's device plug-in leaves its kind to the installation: name it as ``kind``."""
FIRST_RENDER_NODE = 128
ASCEND_RUNTIME = "ascend"
ASCEND_SHARED = ("/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc")
ASCEND_DRIVER = (
    "/usr/local/dcmi",
    "/usr/local/bin/npu-smi",
    "/usr/local/Ascend/driver/lib64",
    "/usr/local/Ascend/driver/version.info",
    "/etc/ascend_install.info",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The devices of one container."""

    device: str
    """cuda, rocm or npu."""
    ids: tuple[str, ...] | None = None
    """By number or name; None where all or any will do."""
    count: int | None = None
    kind: str | None = None
    """The CDI kind."""
    groups: tuple[int, ...] = ()
    """Groups that own the device files on the host."""

    @property
    def names(self) -> tuple[str, ...]:
        """The devices by name; a count means the first ones; ``all`` where nothing is said."""
        if self.ids is not None:
            return self.ids
        return tuple(str(n) for n in range(self.count)) if self.count else (ALL,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A way's piece of a container request."""

    host: Mapping[str, Any] = field(default_factory=dict)
    """Goes into ``HostConfig``; lists are added to those that are there."""
    environment: Mapping[str, str] = field(default_factory=dict)


def _cdi(wanted: Wanted) -> Part:
    names = [f"{wanted.kind}={name}" for name in wanted.names]
    return Part(host={"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": names}]})


def _nvidia_request(wanted: Wanted) -> Part:
    chosen: dict[str, Any] = (
        {"DeviceIDs": list(wanted.ids)} if wanted.ids is not None else {"Count": wanted.count or -1}
    )
    request = {"Driver": "nvidia", **chosen, "Capabilities": [["gpu", "compute", "utility"]]}
    return Part(host={"DeviceRequests": [request]})


def _rocm_files(wanted: Wanted) -> Part:
    render = ["/dev/dri"] if wanted.names == (ALL,) else [_render_node(name) for name in wanted.names]
    return Part(host={"Devices": _files("/dev/kfd", *render), "GroupAdd": [str(g) for g in wanted.groups]})


def _render_node(name: str) -> str:
    if not name.isdigit():
        raise UserError(
            f"'{name}' is no number of an AMD GPU",
            where="docker.devices.ids",
            expected="0, 1, … as in /dev/dri",
        )
    return f"/dev/dri/renderD{FIRST_RENDER_NODE + int(name)}"


def _ascend_runtime(wanted: Wanted) -> Part:
    return Part(
        host={"Runtime": ASCEND_RUNTIME}, environment={"ASCEND_VISIBLE_DEVICES": ",".join(wanted.names)}
    )


def _ascend_files(wanted: Wanted) -> Part:
    cards = [f"/dev/davinci{name}" for name in wanted.names]
    binds = [
        {
            "Type": "bind",
            "Source": path,
            "Target": path,
            "ReadOnly": True,
            "BindOptions": {"Propagation": "rprivate"},
        }
        for path in ASCEND_DRIVER
    ]
    host = {
        "Devices": _files(*cards, *ASCEND_SHARED),
        "Mounts": binds,
        "GroupAdd": [str(g) for g in wanted.groups],
    }
    return Part(host=host)


def _files(*paths: str) -> list[dict[str, str]]:
    return [{"PathOnHost": p, "PathInContainer": p, "CgroupPermissions": "rw"} for p in paths]


WAYS: Mapping[str, Mapping[str, Callable[[Wanted], Part]]] = {
    "cuda": {"cdi": _cdi, "request": _nvidia_request},
    "rocm": {"cdi": _cdi, "files": _rocm_files},
    "npu": {"cdi": _cdi, "runtime": _ascend_runtime, "files": _ascend_files},
}
"""Device → way → piece of the request, the preferred way first."""

GROUP_FILES: Mapping[str, tuple[str, ...]] = {
    "rocm": ("/dev/kfd", "/dev/dri/renderD128"),
    "npu": ("/dev/davinci_manager",),
}
"""Files whose groups a container's user must be in."""


def choose_way(wanted: Wanted, way: str, engine: Mapping[str, Any]) -> str:
    """Return the way to ask for devices.

    Args:
        wanted: The devices.
        way: What the profile says; ``auto`` leaves it to what the engine knows.
        engine: The engine's own ``info``.

    Raises:
        UserError: This kind of device has no such way, or CDI lacks its kind.
    """
    ways = WAYS[wanted.device]
    if way != "auto" and way not in ways:
        raise UserError(
            f"device '{wanted.device}' is not given by way '{way}'",
            where="docker.devices.way",
            expected=f"one of: auto, {', '.join(ways)}",
        )
    if way == "cdi" and wanted.kind is None:
        raise UserError("CDI needs a kind", where="docker.devices.kind", expected="VENDOR/CLASS")
    if way != "auto":
        return way
    found = {str(d.get("ID", "")).partition("=")[0] for d in engine.get("DiscoveredDevices") or ()}
    if wanted.kind in found:
        return "cdi"
    if "runtime" in ways and ASCEND_RUNTIME in (engine.get("Runtimes") or {}):
        return "runtime"
    return next(w for w in ways if w not in ("cdi", "runtime"))


def wanted_devices(
    device: str, section: Mapping[str, Any] | None, groups: Sequence[int] = ()
) -> Wanted | None:
    """Return the devices that a profile asks for; None for processors."""
    if device not in WAYS:
        return None
    given = section or {}
    ids = given.get("ids")
    return Wanted(
        device=device,
        ids=None if ids is None else tuple(str(i) for i in ids),
        count=given.get("count"),
        kind=given.get("kind") or CDI_KINDS.get(device),
        groups=tuple(groups),
    )


def share(wanted: Wanted, node: int, num_containers: int) -> Wanted:
    """Return the devices of one container: all of them where it is the only one, else its own."""
    return wanted if num_containers == 1 else replace(wanted, ids=(wanted.names[node],), count=None)
