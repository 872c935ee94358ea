"""Whether a call goes where a server sends it on to, and what is sent there.

A redirect costs a way to the server and back, which whoever asked has waited for: it is in the call's times, and every
call that was sent on is counted, whatever became of it. One is followed, of the two kinds that keep method and body
(307 and 308; RFC 9110, section 15.4), and only to the same scheme, host and port unless somebody allows others. A
bearer token and headers of one's own go to no other origin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote, urljoin, urlsplit

FOLLOWED = (307, 308)
"""They ask for the same method and body at another address."""
REDIRECTS = (301, 302, 303, *FOLLOWED)
"""301 and 302 let a client change the method, 303 asks it to: nobody would answer a prompt there."""

_AS_IT_IS = "%/?:@!$&'()*+,;=~[]"
"""What may stand in the path of a request's first line, beside letters, digits and ``_.-``."""

Follow = Literal["never", "same-origin", "anywhere"]


@dataclass(frozen=True, slots=True)
class Origin:
    """A scheme, a host and a port, to which a connection can be made."""

    host: str
    port: int
    secure: bool

    @property
    def address(self) -> str:
        """Return it as the beginning of an address."""
        return f"{'https' if self.secure else 'http'}://{self.authority}"

    @property
    def authority(self) -> str:
        """Return host and port as addresses and the head ``Host`` have them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a request goes."""

    origin: Origin
    path: str
    """With its query."""

    @property
    def address(self) -> str:
        """Return it as an address."""
        return self.origin.address + self.path


def origin_of(url: str) -> Origin:
    """Read the origin of an address.

    Raises:
        ValueError: It is no address of HTTP.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"'{url}' is no address such as http://127.0.0.1:8000/v1")
    secure = parts.scheme == "https"
    return Origin(parts.hostname, parts.port or (443 if secure else 80), secure)


def next_place(
    asked: Place, status: int, location: str, *, follow: Follow, before: Sequence[str] = ()
) -> Place | str:
    """Return where a call goes on to, or why it goes nowhere.

    Args:
        asked: Where it was sent.
        status: One of ``REDIRECTS``.
        location: What the server says, an address or a path.
        follow: Which redirects are followed.
        before: Addresses that sent it on already.
    """
    try:
        target = urljoin(asked.address, location)
        origin = origin_of(target)
    except ValueError:
        return f"{status} to '{location}', which is no address of HTTP"
    told = f"{status}: name {target} as the address"
    parts = urlsplit(target)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    # heads are read as latin-1, a character a byte
    place = Place(origin, quote(path.encode("latin-1", "xmlcharrefreplace"), safe=_AS_IT_IS))
    if status not in FOLLOWED:
        return f"{told}; only 307 and 308 keep a prompt, and only these are followed"
    if place.address in (asked.address, *before):
        return f"{status} back to {place.address}: the server sends calls in a circle"
    if before:
        return f"{told}; it was sent on once already, from {before[0]} to {asked.address}"
    if follow == "never":
        return f"{told}; redirects are not followed"
    if asked.origin.secure and not origin.secure:
        return f"{told}; it is not secured, as {asked.origin.address} is"
    if origin != asked.origin and follow != "anywhere":
        return (
            f"{told}; it is of another origin than {asked.origin.address}, which redirects='anywhere' allows"
        )
    return place
