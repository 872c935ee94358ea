"""Shaped links between ranks: an anonymous network namespace per rank, and one for the switch.

``with Network(num_ranks=4, link=Link(...)) as network`` builds the namespaces; each rank calls
``enter(network.namespace(rank))`` first thing and then finds its shaped interface ``data0`` and
its control interface ``ctl0``. A store in the switch namespace (``network.switch_namespace``) is
reached through ``ctl0`` at ``network.switch_control_address``. Addresses never clash with the
host's: they exist in these namespaces only.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from paceline.base.counting import number_of
from paceline.base.errors import InfrastructureError, UserError
from paceline.worker.network import shaping
from paceline.worker.network.holder import Child, Holder, system_environment
from paceline.worker.network.namespace import InterfaceCounters, enter, read_counters
from paceline.worker.network.shaping import CONTROL_INTERFACE, DATA_INTERFACE, Link

__all__ = [
    "CONTROL_INTERFACE",
    "DATA_INTERFACE",
    "InterfaceCounters",
    "Link",
    "Network",
    "enter",
    "read_counters",
    "supported",
]

_DELAY_PROGRAM: Final = [sys.executable, "-I", "-S", str(Path(__file__).with_name("delay.py"))]
_INSTALL: Final = "apt-get install iproute2 iptables util-linux"
_MISSING_FEATURES: Final = {
    10: ("to write /proc/sys/net in a namespace", "docker run --privileged"),
    11: ("bridges and veth pairs", "modprobe -a bridge veth"),
    12: ("the tbf queueing discipline for rates", "modprobe sch_tbf"),
    13: ("the iptables target NFQUEUE for delays", "modprobe -a nft_compat xt_NFQUEUE"),
    14: ("netfilter queues for delays", "modprobe nfnetlink_queue"),
}


class Network:
    """Namespaces for some ranks and a switch between them, all with the same link.

    Use it as a context manager, in the main thread. Its creator must outlive the ranks: when that
    process ends, in whatever way, its namespaces end as soon as no rank is left in them.
    """

    def __init__(self, *, num_ranks: int, link: Link) -> None:
        """Describe the network; entering the context builds it.

        Args:
            num_ranks: 1 to 250.
            link: Shape of every rank's data interface.
        """
        if not 1 <= num_ranks <= shaping.MAX_RANKS:
            expected = f"1 to {shaping.MAX_RANKS} ranks"
            raise UserError(f"a network of {number_of(num_ranks, 'rank')}", expected=expected)
        self.num_ranks = num_ranks
        self.link = link
        self._owner_pid = os.getpid()
        self._switch: Holder | None = None
        self._ranks: list[Holder] = []
        self._delays: list[Child] = []

    def __enter__(self) -> Self:
        """Build the namespaces and links.

        Raises:
            InfrastructureError: A command failed; nothing is left behind. ``supported`` says why.
        """
        try:
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Remove everything."""
        self.close()

    def _build(self) -> None:
        self._switch = Holder("the switch's namespace")
        for rank in range(self.num_ranks):
            self._ranks.append(Holder(f"rank {rank}'s namespace"))
        _run_all(dict.fromkeys(self._holders(), shaping.prepare_script()))
        if self.link.delay_s:
            self._start_delays(self.link)
        pids = [holder.pid for holder in self._ranks]
        _run_all({self._switch: shaping.switch_script(pids, self.link)})
        _run_all(
            {
                holder: shaping.rank_script(rank, self.num_ranks, self.link)
                for rank, holder in enumerate(self._ranks)
            }
        )
        self._await_delays()

    def _holders(self) -> list[Holder]:
        if self._switch is None:
            expected = "use inside `with Network(...) as network:`"
            raise UserError("the Network is not open", expected=expected)
        return [self._switch, *self._ranks]

    def _start_delays(self, link: Link) -> None:
        number, delay_ms = str(shaping.QUEUE_NUMBER), repr(link.delay_s * 1e3)
        program = [*_DELAY_PROGRAM, "--queue", number, "--delay-ms", delay_ms]
        for rank, holder in enumerate(self._ranks):
            command = ["nsenter", f"--net={holder.namespace}", *program]
            self._delays.append(Child(f"rank {rank}'s delay program", command))

    def _await_delays(self) -> None:
        for delay in self._delays:
            answer = delay.read_line()
            if answer != "ready":
                raise InfrastructureError(f"{delay.title}: {answer}")

    def namespace(self, rank: int) -> str:
        """Return the path by which ``enter`` puts a process where this rank is."""
        return self._holders()[1:][rank].namespace

    @property
    def switch_namespace(self) -> str:
        """Path for ``enter``: where a store or an elastic agent reaches all ranks."""
        return self._holders()[0].namespace

    def address(self, rank: int) -> str:
        """Return a rank's IPv4 address on the shaped network."""
        return shaping.address(DATA_INTERFACE, rank)

    def control_address(self, rank: int) -> str:
        """Return a rank's IPv4 address on the unshaped control network."""
        return shaping.address(CONTROL_INTERFACE, rank)

    @property
    def switch_control_address(self) -> str:
        """IPv4 address on the control network of a process in the switch namespace."""
        return shaping.address(CONTROL_INTERFACE, None)

    def reshape(self, link: Link) -> None:
        """Change rate and delay of every link while ranks run; connections survive.

        Raises:
            InfrastructureError: A command failed; the shape is then unknown, so close the network.
        """
        switch, *ranks = self._holders()
        old, self.link = self.link, link
        scripts = dict.fromkeys(ranks, shaping.reshape_rank_script(self.num_ranks, old, link))
        _run_all({switch: shaping.reshape_switch_script(self.num_ranks, old, link), **scripts})
        if link.delay_s == old.delay_s:
            return
        if not old.delay_s:
            self._start_delays(link)
            self._await_delays()
            _run_all(dict.fromkeys(ranks, shaping.delay_rule("-A")))
        elif link.delay_s:
            self._command_delays(f"delay-ms {link.delay_s * 1e3!r}")
        else:
            _run_all(dict.fromkeys(ranks, shaping.delay_rule("-D")))
            self._command_delays("stop")
            self._close_delays()

    def _command_delays(self, command: str) -> dict[str, str]:
        for delay in self._delays:
            delay.send(f"{command}\n")
        return {delay.title: delay.read_line() for delay in self._delays}

    def check(self) -> None:
        """Confirm that the emulation held: call it after a measurement, or when one timed out.

        Raises:
            InfrastructureError: A holder or delay program has died, or dropped packets.
        """
        for child in (*self._holders(), *self._delays):
            if not child.alive():
                raise InfrastructureError(f"{child.title} (process {child.pid}) has died")
        for title, answer in self._command_delays("stats").items():
            if not answer.endswith(" 0 lost"):
                raise InfrastructureError(f"{title} could not keep up: {answer}")

    def _close_delays(self) -> None:
        for delay in self._delays:
            delay.kill()
        while self._delays:
            self._delays.pop().close()

    def close(self) -> None:
        """Remove everything; ranks still inside lose their links. Harmless when repeated."""
        if os.getpid() != self._owner_pid:
            return  # a forked copy must not end its parent's network
        self._close_delays()
        holders = [*self._ranks, *([self._switch] if self._switch else [])]
        for holder in holders:
            holder.kill()
        for holder in holders:
            holder.close()
        self._ranks, self._switch = [], None


def _run_all(scripts: dict[Holder, str]) -> None:
    for holder, script in scripts.items():
        holder.start(script)
    for holder in scripts:
        holder.finish()


def supported(link: Link | None = None) -> str | None:
    """Say why this machine cannot emulate a link, by trying its parts in a throw-away namespace.

    Args:
        link: What is needed; None asks for both rates and delays.

    Returns:
        None when it can; otherwise one line that ends in the command that mends it.
    """
    rate = link is None or link.rate_bytes_per_s is not None
    delay = link is None or link.delay_s > 0
    environment = system_environment()
    needed = ["ip", "setpriv", "unshare"] + ["tc"] * rate + ["iptables", "nsenter"] * delay
    missing = [name for name in needed if not shutil.which(name, path=environment["PATH"])]
    if missing:
        return f"shaped links need {', '.join(missing)}: `{_INSTALL}`"
    bind_command = shlex.join([*_DELAY_PROGRAM, "--probe"])
    script = shaping.probe_script(rate=rate, delay=delay, bind_command=bind_command)
    probe = subprocess.run(
        ["unshare", "--net", "sh", "-c", script],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    if probe.returncode == 0:
        return None
    said = " ".join(probe.stderr.split())
    needs, fix = _MISSING_FEATURES.get(
        probe.returncode,
        ("root with CAP_SYS_ADMIN and CAP_NET_ADMIN", "sudo, or docker run --privileged"),
    )
    return f"shaped links need {needs} ({said}): `{fix}`"
