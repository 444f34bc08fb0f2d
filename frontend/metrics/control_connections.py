"""Connections to the control address: where there are too many, a new one takes another's place.

Anybody who reaches the address can hold connections open without a key. So a new connection is
served, and one that nobody is answering right now is closed: of the host that has the most, the
oldest. Clients that scrape come again where a kept connection was closed.
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
"""Of an IPv6 address; the others one host chooses as it likes."""
_NUMBERS: Final = count()


class ControlConnection(FallbackProtocol):
    """One of them.

    Attributes:
        number: higher than those of older connections.
        host: of the client; of an IPv6 address its network; empty over a Unix socket.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The transport's call: the connection is open."""
        super().connection_made(transport)
        self.number = next(_NUMBERS)
        self.host = _host(self.client[0] if self.client else "")


def make_room(connections: Collection[ControlConnection]) -> bool:
    """Close one connection where `MAX_CONNECTIONS` are open; return whether there is room."""
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
