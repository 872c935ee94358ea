"""Inside a sandbox: one candidate computes on memory that its judge has filled, with no fence but the kernel's.

``python -m paceline.families.kernels.core.sandboxed.worker FD``. Nothing here is trusted, and nothing here decides: the
inputs are drawn, the time is taken and the outputs are judged by another process, of another user.
"""

from __future__ import annotations

import array
import contextlib
import json
import mmap
import os
import socket
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from paceline.families.kernels.core.timing_process import passes
from paceline.families.kernels.core.timing_process.idle_kernel import Idle
from paceline.families.kernels.core.timing_process.server import ALL_DTYPES, TimedTechnique, serve_with
from paceline.worker.channel import MAX_MESSAGE, Channel, ChannelClosedError, close_all
from paceline.worker.fences.guard import Guard
from paceline.worker.sandbox.inside import enter
from paceline.worker.sandbox.memory import mapped_there
from paceline.worker.sandbox.starts import ask_from_now_on

CALL = b'{"do": "call"'
"""How a request for calls begins; it ends with its number."""
ROOM = socket.CMSG_SPACE(4 * array.array("i").itemsize)


class NoFences(Guard):
    """Lets everything pass: what a candidate does to its own process is its own affair."""

    def __init__(self) -> None:
        pass

    @contextlib.contextmanager
    def watch(
        self, *, building: bool = False, library: bool = False, in_time: bool = False
    ) -> Iterator[None]:
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

    def seal(
        self, modules: Sequence[Any], *, in_time: Sequence[Any] | None = None, seldom: Sequence[Any] = ()
    ) -> None:
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
        self.failure: BaseException | None = None
        """How the calls of the last pass have ended."""

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
        # An empty pass takes what nobody can do without: to wake up, read, answer. Calls are the candidate's own time.
        self._arguments = arguments[:1] if isinstance(self.instance, Idle) else arguments
        if self.sets:
            passes.wake(self.instance.run, self.sets[-1].arguments(), self.device)
        return {"ok": True}

    def calls(self) -> tuple[Callable[..., None], list[tuple[Tensor, ...]]] | None:
        """Return what the next pass calls, and with what; None where none was prepared."""
        return (self.instance.run, self._arguments) if self._arguments else None

    def do_call(self, message: dict[str, Any]) -> dict[str, Any]:
        """Tell how calls have failed, which were made when the message came."""
        raise self.failure or AssertionError("no calls were prepared")


class PromptChannel(Channel):
    """Makes the calls of a pass as soon as it is asked for them, with as few steps of its own as there can be.

    The judge's clock runs from before its message is sent until every thread here has stopped. What an empty pass does
    beside waking up is subtracted from everybody's, and a candidate could do without it: so there is next to nothing.
    """

    def __init__(self, end: socket.socket, served: SandboxedTechnique) -> None:
        super().__init__(end)
        self._served = served
        # Made once: new memory for each message would be in the time of an empty pass.
        self._buffer = memoryview(bytearray(MAX_MESSAGE))

    def receive(self, timeout_s: float | None = None) -> tuple[dict[str, Any], list[int]]:
        """Wait for a message that is no request for prepared calls."""
        end, buffer = self._socket, self._buffer
        while (prepared := self._served.calls()) is not None:
            run, arguments = prepared
            size, beside, _, _ = end.recvmsg_into((buffer,), ROOM)
            if buffer[: len(CALL)] != CALL:
                return _read(buffer[:size], beside)
            try:
                for tensors in arguments:
                    run(*tensors)
            except BaseException as error:  # a technique may raise anything, SystemExit too
                self._served.failure = error
                return _read(buffer[:size], beside)
            end.send(b'{"ok": true, "id": "%b"}' % bytes(buffer[size - 18 : size - 2]))
        return super().receive(timeout_s)


def _read(data: memoryview, beside: Sequence[tuple[int, int, bytes]]) -> tuple[dict[str, Any], list[int]]:
    """Return a message, and the descriptors that came beside it.

    Raises:
        ChannelClosedError: It is none: the judge has ended.
    """
    if not data:
        raise ChannelClosedError("the judge has ended")
    return json.loads(bytes(data)), [d for _, _, packed in beside for d in array.array("i", packed)]


def _tensor(memory: mmap.mmap, place: dict[str, Any]) -> Tensor:
    shape = torch.Size(place["shape"])
    dtype = ALL_DTYPES[place["dtype"]]
    with warnings.catch_warnings():
        # That the memory can only be read is meant.
        warnings.simplefilter("ignore")
        return torch.frombuffer(memory, dtype=dtype, count=shape.numel(), offset=place["offset"]).view(shape)


def main(arguments: list[str]) -> int:
    """Become nobody, accept limits, and answer the judge until it is gone."""
    end = socket.socket(fileno=int(arguments[0]))
    channel = Channel(end)
    config, _ = channel.receive()
    enter(int(config["memory"]), int(config["user"]))
    listened = ask_from_now_on()
    channel.send({"ok": True, "id": config["id"]}, [listened])
    # It is the judge's alone: whoever kept it could allow itself to start processes.
    os.close(listened)
    served = SandboxedTechnique(config)
    return serve_with(served, PromptChannel(end, served))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
