"""Shell scripts that build and shape the links of a network: text only, no input or output.

Every rank has two interfaces into the switch namespace: ``data0`` carries the traffic under test
and is shaped, ``ctl0`` carries rendezvous and stores and is not. Each is one end of a veth pair
whose other end is a port of a bridge.

A link's rate is a token bucket (``tc tbf``) on both ends of data0: on what the rank sends, and on
what the switch port sends to the rank. Its delay is a netfilter queue on what data0 receives (see
delay.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Final

from paceline.base.errors import UserError

DATA_INTERFACE: Final = "data0"
CONTROL_INTERFACE: Final = "ctl0"
QUEUE_NUMBER: Final = 0
MAX_RANKS: Final = 250

_SWITCH_HOST: Final = 254
_SUBNETS: Final = {
    DATA_INTERFACE: ("10.82.0", "br-data"),
    CONTROL_INTERFACE: ("10.83.0", "br-ctl"),
}

# Whatever fits into the bucket travels at memory speed: keep it short, but it must hold a frame.
_BURST_S: Final = 8e-3
_MIN_BURST_BYTES: Final = 4096
# Room for packets that wait for tokens. Drops would stall messages, and what is sent again counts
# as sent: 12-24 % more when seven ranks send to one through 4 MiB. So there is room for four
# connections from each rank with full send buffers (tcp_wmem), and nothing is dropped.
_ROOM_S: Final = 0.4
_ROOM_BYTES_PER_RANK: Final = 4 * (4 << 20)
_MAX_LIMIT_BYTES: Final = (1 << 32) - 1
# A bucket cuts an offload packet that does not fit into single frames, each with headers that
# then count as bytes sent. So build packets that fit. What is charged to the rate stays the same:
# buckets always charge for the frames that a wire would carry.
_MAX_OFFLOAD_BYTES: Final = 65536
_OFFLOAD_OF_BURST: Final = 0.85

# One TCP on every host. Reno is in every kernel and fills a link that loses nothing; bbr, the
# default of some hosts, gave 15-18 Mbit/s of all-reduce on a 20 Mbit/s link where Reno gives 19.0.
_TCP_SETTINGS: Final = {
    "tcp_congestion_control": "reno",
    "tcp_rmem": "4096 131072 33554432",
    "tcp_wmem": "4096 16384 4194304",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """The emulated link between each rank and the switch."""

    name: str
    """How records and reports call it."""
    rate_bytes_per_s: float | None = None
    """Rate in each direction, frame headers included; None leaves the link unshaped."""
    delay_s: float = 0.0
    """One-way delay added to every IP packet that a rank receives; a round trip takes twice it."""

    def __post_init__(self) -> None:
        """Refuse rates and delays that the kernel cannot express."""
        if self.rate_bytes_per_s is not None and not 1e3 <= self.rate_bytes_per_s <= 1e12:
            raise UserError(
                f"link '{self.name}': rate_bytes_per_s is {self.rate_bytes_per_s}",
                expected="None, or 1e3 to 1e12 (100 Mbit/s is 12.5e6)",
            )
        if not 0 <= self.delay_s <= 10:
            raise UserError(f"link '{self.name}': delay_s is {self.delay_s}", expected="0 to 10 seconds")


def address(interface: str, rank: int | None) -> str:
    """Return the IPv4 address of a rank, or of the switch (None), on one of the two networks."""
    return f"{_SUBNETS[interface][0]}.{_SWITCH_HOST if rank is None else rank + 1}"


def hardware_address(interface: str, rank: int | None) -> str:
    """Return the fixed, locally administered MAC address that goes with ``address``."""
    return "02:00:" + IPv4Address(address(interface, rank)).packed.hex(":")


def prepare_script() -> str:
    """Set a fresh namespace's protocols: one TCP everywhere, and no IPv6.

    IPv6 discovery would count as a rank's traffic. Loopback keeps its IPv6 address.
    """
    no_ipv6 = "/proc/sys/net/ipv6/conf/default/disable_ipv6"
    lines = [f"if [ -e {no_ipv6} ]; then echo 1 >{no_ipv6}; fi"]
    lines += [f"echo {value} >/proc/sys/net/ipv4/{name}" for name, value in _TCP_SETTINGS.items()]
    return "\n".join(lines) + "\n"


def switch_script(holder_pids: Iterable[int], link: Link) -> str:
    """Create both bridges and every veth pair, the far ends inside the ranks' namespaces."""
    pids, lines = list(holder_pids), ["link set lo up"]
    for interface, (_, bridge) in _SUBNETS.items():
        mac = hardware_address(interface, None)
        lines.append(f"link add {bridge} address {mac} up type bridge mcast_snooping 0")
        lines.append(f"addr add {address(interface, None)}/24 dev {bridge}")
    shaping = []
    for rank, pid in enumerate(pids):
        for interface, (_, bridge) in _SUBNETS.items():
            near_end = f"{_port(interface, rank)} master {bridge} up"
            far_end = f"{interface} address {hardware_address(interface, rank)} netns {pid}"
            lines.append(f"link add {near_end} type veth peer name {far_end}")
        shaping += _rate_commands("add", _port(DATA_INTERFACE, rank), link, len(pids))
    return _batch("ip", lines) + _batch("tc", shaping)


def rank_script(rank: int, num_ranks: int, link: Link) -> str:
    """Address one rank's interfaces and shape what it sends and receives.

    Neighbours are written down, so that no address resolution falls into a measurement.
    """
    lines = ["link set lo up", _offload_command(link)]
    for interface in _SUBNETS:
        lines.append(f"addr add {address(interface, rank)}/24 dev {interface}")
        lines.append(f"link set {interface} up")
        for other in (None, *range(num_ranks)):
            if other != rank:
                mac = hardware_address(interface, other)
                neighbour = f"{address(interface, other)} lladdr {mac} dev {interface}"
                lines.append(f"neigh add {neighbour} nud permanent")
    shaping = _rate_commands("add", DATA_INTERFACE, link, num_ranks)
    script = _batch("ip", lines) + _batch("tc", shaping)
    return script + (delay_rule("-A") if link.delay_s else "")


def reshape_switch_script(num_ranks: int, old: Link, new: Link) -> str:
    """Change the rate at which the switch sends to the ranks; queued packets stay queued."""
    ports = [_port(DATA_INTERFACE, rank) for rank in range(num_ranks)]
    changes = [line for port in ports for line in _rate_change(port, old, new, num_ranks)]
    return _batch("tc", changes)


def reshape_rank_script(num_ranks: int, old: Link, new: Link) -> str:
    """Change the rate at which a rank sends; the delay's rule is apart (``delay_rule``)."""
    commands = _rate_change(DATA_INTERFACE, old, new, num_ranks)
    return _batch("ip", [_offload_command(new)]) + _batch("tc", commands) if commands else ""


def delay_rule(action: str) -> str:
    """Append (``-A``) or delete (``-D``) the rule that hands packets to the delay program.

    There is no ``--queue-bypass``: without the program packets vanish, which nobody mistakes for
    a fast link.
    """
    return (
        f"iptables -w -t mangle {action} PREROUTING -i {DATA_INTERFACE} "
        f"-j NFQUEUE --queue-num {QUEUE_NUMBER}\n"
    )


def probe_script(*, rate: bool, delay: bool, bind_command: str) -> str:
    """Try each kernel feature in the namespace that the script runs in.

    Args:
        rate: Try the token bucket too.
        delay: Try the netfilter queue too.
        bind_command: Shell command that binds that queue and exits.

    Returns:
        A script that exits with 0, or with 10 (kernel settings), 11 (bridge, veth), 12 (tbf),
        13 (NFQUEUE rule) or 14 (its queue) for the first thing that failed.
    """
    port = f"link add {DATA_INTERFACE} master br0 type veth peer name far0"
    script = f"(set -e\n{prepare_script()}) || exit 10\n"
    script += f"({_batch('ip', ['link add br0 type bridge', port])}) || exit 11\n"
    if rate:
        probe = Link(name="probe", rate_bytes_per_s=1e6)
        commands = _rate_commands("add", DATA_INTERFACE, probe, 1)
        script += f"({_batch('tc', commands)}) || exit 12\n"
    if delay:
        script += f"{delay_rule('-A').strip()} || exit 13\n{bind_command} || exit 14\n"
    return script


def _port(interface: str, rank: int) -> str:
    return f"{interface.rstrip('0')}-port{rank}"


def burst_bytes(rate_bytes_per_s: float) -> int:
    """Return how many bytes pass a rested link at once, before its rate takes hold."""
    return max(_MIN_BURST_BYTES, round(rate_bytes_per_s * _BURST_S))


def _offload_command(link: Link) -> str:
    size_bytes = _MAX_OFFLOAD_BYTES
    if link.rate_bytes_per_s is not None:
        fitting_bytes = int(burst_bytes(link.rate_bytes_per_s) * _OFFLOAD_OF_BURST)
        size_bytes = min(size_bytes, fitting_bytes)
    return f"link set {DATA_INTERFACE} gso_max_size {size_bytes}"


def _rate_commands(verb: str, interface: str, link: Link, num_ranks: int) -> list[str]:
    if link.rate_bytes_per_s is None:
        return []
    rate, bucket_bytes = round(link.rate_bytes_per_s), burst_bytes(link.rate_bytes_per_s)
    room_bytes = max(num_ranks * _ROOM_BYTES_PER_RANK, round(rate * _ROOM_S))
    limit_bytes = min(bucket_bytes + room_bytes, _MAX_LIMIT_BYTES)
    shape = f"tbf rate {rate}bps burst {bucket_bytes} limit {limit_bytes}"
    return [f"qdisc {verb} dev {interface} root {shape}"]


def _rate_change(interface: str, old: Link, new: Link, num_ranks: int) -> list[str]:
    if old.rate_bytes_per_s == new.rate_bytes_per_s:
        return []
    if new.rate_bytes_per_s is None:
        return [f"qdisc del dev {interface} root"]
    return _rate_commands("replace", interface, new, num_ranks)


def _batch(program: str, lines: list[str]) -> str:
    if not lines:
        return ""
    return f"{program} -batch - <<'END'\n" + "\n".join(lines) + "\nEND\n"
