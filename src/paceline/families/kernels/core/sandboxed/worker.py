"""Inside a sandbox: one candidate computes on memory that its judge has filled, with no fence but the kernel's.

``python -m paceline.families.kernels.core.sandboxed.worker FD``. Nothing here is trusted, and nothing here decides: the
inputs are drawn, the time is taken and the outputs are judged by another process, of another user.
"""

from __future__ import annotations

import contextlib
import mmap
import socket
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from paceline.families.kernels.core.timing_process import passes
from paceline.families.kernels.core.timing_process.server import ALL_DTYPES, TimedTechnique, serve_with
from paceline.worker.channel import Channel, close_all
from paceline.worker.guard import Guard
from paceline.worker.sandbox.inside import enter
from paceline.worker.sandbox.memory import mapped_there


class NoFences(Guard):
    """Lets everything pass: what a candidate does to its own process is its own affair."""

    def __init__(self) -> None:
        pass

    @contextlib.contextmanager
    def watch(self, *, building: bool = False, library: bool = False) -> Iterator[None]:
        """Run code of the candidate's."""
        yield

    def open(self, *, building: bool = False) -> None:
        """Watch nothing."""

    def close(self) -> None:
        """Watch nothing."""

    def check(self) -> None:
        """Judge nothing."""

    def check_operators(self) -> None:
        """Judge nothing."""

    def seal(self, modules: Sequence[Any], *, seldom: Sequence[Any] = ()) -> None:
        """Seal nothing."""


class SandboxedTechnique(TimedTechnique):
    """One candidate with its tensors: inputs that it can only read, outputs that its judge takes when it is stopped."""

    any_source = True

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(config, NoFences())
        self._read_only: mmap.mmap | None = None
        self._writable: mmap.mmap | None = None
        self._given: list[list[dict[str, Any]]] = []
        self._wanted: list[list[dict[str, Any]]] = []
        self._arguments: list[tuple[Tensor, ...]] = []

    def answer(self, message: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        """Do what a message asks for."""
        if message["do"] == "share":
            return self.do_share(message, descriptors)
        return super().answer(message, descriptors)

    def do_load(self, message: dict[str, Any]) -> dict[str, Any]:
        """Import the candidate; a file that was imported before may hold another one, which ``technique`` names."""
        self.config = {**self.config, "technique": message.get("technique", self.config["technique"])}
        return super().do_load(message)

    def do_trim(self, message: dict[str, Any]) -> dict[str, Any]:
        """Give free memory back; the tensors of timed passes are nothing that the instance keeps."""
        self._arguments = []
        return super().do_trim(message)

    def do_settle(self, message: dict[str, Any]) -> dict[str, Any]:
        """Say at once where an output was exchanged; whoever keeps silent has NaN in its place."""
        for working in self.called:
            working.check_outputs()
        return {"ok": True}

    def do_share(self, message: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        """Map the memory of inputs, which nobody here can write, and that of outputs."""
        self._arguments = []
        inputs, outputs = message["bytes"]
        self._read_only = mapped_there(descriptors[0], inputs, read_only=True)
        self._writable = mapped_there(descriptors[1], outputs, read_only=False)
        close_all(descriptors)
        self._given, self._wanted = message["inputs"], message["outputs"]
        return {"ok": True}

    def do_warm(self, message: dict[str, Any]) -> dict[str, Any]:
        """Pack the next calls' weights, which are there, and call on older inputs until the core is at speed."""
        assert self._read_only is not None
        assert self._writable is not None
        arguments = []
        for given, wanted in zip(self._given, self._wanted, strict=True):
            inputs = [_tensor(self._read_only, place) for place in given]
            outputs = [_tensor(self._writable, place) for place in wanted]
            varied = inputs[: len(inputs) - self.num_weights]
            weights = inputs[len(varied) :]
            pack = getattr(self.instance, "pack", None)
            packed = pack(*(w.clone() for w in weights)) if pack and weights else tuple(weights)
            arguments.append((*varied, *packed, *outputs))
        self._arguments = arguments
        if self.sets:
            passes.wake(self.instance.run, self.sets[-1].arguments(), self.device)
        return {"ok": True}

    def do_call(self, message: dict[str, Any]) -> dict[str, Any]:
        """Compute: the judge's clock runs from before this message was sent until every thread here has stopped."""
        run, arguments = self.instance.run, self._arguments
        if message["hot"]:
            passes.touch(arguments)
        for tensors in arguments:
            run(*tensors)
        return {"ok": True}


def _tensor(memory: mmap.mmap, place: dict[str, Any]) -> Tensor:
    shape = torch.Size(place["shape"])
    dtype = ALL_DTYPES[place["dtype"]]
    with warnings.catch_warnings():
        # That the memory can only be read is meant.
        warnings.simplefilter("ignore")
        return torch.frombuffer(memory, dtype=dtype, count=shape.numel(), offset=place["offset"]).view(shape)


def main(arguments: list[str]) -> int:
    """Become nobody, accept limits, and answer the judge until it is gone."""
    channel = Channel(socket.socket(fileno=int(arguments[0])))
    config, _ = channel.receive()
    enter(int(config["memory"]))
    channel.send({"ok": True, "id": config["id"]})
    return serve_with(SandboxedTechnique(config), channel)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
