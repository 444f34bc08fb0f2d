"""Connection limit of the control address: a new connection takes the place of an older one.

Anybody who reaches the address can hold connections open without a key. So the server takes a new
connection, and closes one of those that await no answer: the oldest of the host that has the most.
Scrapers connect again after the server has closed their kept connection.
"""

import asyncio
import ipaddress
from collections import Counter
from collections.abc import Collection
from itertools import count
from typing import Final

from ringbatch.frontend.http.fallback import FallbackProtocol
from ringbatch.frontend.http.phases import Phase

MAX_CONNECTIONS: Final = 64
_NETWORK_BITS: Final = 64
"""Bits of an IPv6 address that name its network; a host chooses the other bits as it likes."""
_NUMBERS: Final = count()


class ControlConnection(FallbackProtocol):
    """A connection to the control address.

    Attributes:
        number: serial number; newer connections have higher ones.
        host: the client's address; for IPv6 its network; empty over a Unix socket.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Note the client's host; the transport calls this once the connection is open."""
        super().connection_made(transport)
        self.number = next(_NUMBERS)
        self.host = _host(self.client[0] if self.client else "")


def make_room(connections: Collection[ControlConnection]) -> bool:
    """Close a connection if `MAX_CONNECTIONS` are open; return whether there is room."""
    still_open = [one for one in connections if not one.transport.is_closing()]
    if len(still_open) < MAX_CONNECTIONS:
        return True
    shares = Counter(one.host for one in still_open)

    def precedence(one: ControlConnection) -> tuple[int, bool, int]:
        return shares[one.host], one.phase() is not Phase.TAKING, -one.number

    unanswered = [one for one in still_open if one.phase() is not Phase.ANSWER]
    if not unanswered:
        return False
    max(unanswered, key=precedence).transport.abort()
    return True


def _host(address: str) -> str:
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if found.version == 4 or found.ipv4_mapped:
        return address
    return str(ipaddress.ip_network((found, _NETWORK_BITS), strict=False))
