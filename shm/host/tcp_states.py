"""The states of this host's TCP sockets, as the kernel tells everybody: proc_net_tcp(5).

A look takes the kernel milliseconds in any case: it goes through all of its tables.
"""

from collections.abc import Container
from pathlib import Path
from typing import Final

LISTEN: Final = b"0A"
HALF_OPEN: Final = b"03"
"""SYN_RECV: a client is in the midst of the handshake. It may take itself for connected already,
and have sent a request; where the listening socket goes, it is reset."""
_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))


def tcp_states(ports: Container[int]) -> list[bytes]:
    """Return the states of all TCP sockets with one of these local ports, in no order."""
    return [
        state
        for table in _TABLES
        if table.exists()
        for row in table.read_bytes().splitlines()[1:]
        for _number, local, _remote, state in [row.split(None, 4)[:4]]
        if int(local.rpartition(b":")[2], 16) in ports
    ]
