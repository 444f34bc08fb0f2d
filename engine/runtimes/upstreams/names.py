"""Name resolution for model servers, repeated and bounded in time.

The system's resolver takes no deadline, so it runs in a thread of its own, and is waited for only
until the deadline. If a lookup finds no address, a name keeps the addresses of the last one.

Every address of a name is a server of its own. But if a name has one address of each family, both
are ways to one server, as with ``localhost``.
"""

import ipaddress
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from itertools import islice
from typing import Final, NamedTuple

from ringbatch.engine.runtimes.upstreams.connection import Address, Unreached
from ringbatch.shm.host.background import short_thread
from ringbatch.shm.upstream_words import UPSTREAMS

LOOKUP_S: Final = 5.0
"""Time limit of a lookup."""
AGAIN_NS: Final = 10_000_000_000
"""Interval of lookups of a name."""

Lookup = Callable[[str, int], Sequence[str]]
"""The addresses of a name, for a port, in the order in which to try them; may raise OSError."""


class Endpoint(NamedTuple):
    """Model server: one host that a configured address stands for.

    Attributes:
        tag: its id, the same in every worker of the model.
        name: in messages.
        address: the configured address that it belongs to.
        hosts: its addresses, in the order in which to try them.
    """

    tag: int
    name: str
    address: Address
    hosts: tuple[str, ...]


def system_lookup(host: str, port: int) -> list[str]:
    """Return the addresses that the system's resolver finds; see `Lookup`."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


def is_literal(host: str) -> bool:
    """Return whether a host is an address itself, which needs no lookup."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def grouped(found: Iterable[str]) -> list[tuple[str, ...]]:
    """Return the servers behind the addresses of a name, each with its addresses."""
    hosts = list(dict.fromkeys(found))
    old = [host for host in hosts if ":" not in host]
    new = [host for host in hosts if ":" in host]
    if len(old) <= 1 and len(new) <= 1:
        return [tuple(hosts)] if hosts else []
    return [(host,) for host in sorted(new if len(new) > len(old) else old)]


class Names:
    """Servers of one model, by the names in its configured addresses.

    Args:
        model: its name; part of the tags.
        addresses: from the configuration.
        lookup: see `Lookup`.
        clock_ns: the monotonic clock.
    """

    def __init__(
        self,
        model: str,
        addresses: Sequence[Address],
        lookup: Lookup = system_lookup,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._model = model
        self._entries = [_Entry(address, lookup) for address in addresses]
        self._clock_ns = clock_ns
        self._looked_ns = 0
        self.endpoints = self._all()

    @property
    def settled(self) -> bool:
        """True if the servers can never change."""
        return all(entry.literal for entry in self._entries)

    def found(self, until_ns: int) -> tuple[Endpoint, ...]:
        """Return the servers; look them up first if none are known.

        Raises:
            Unreached: there are none; the text says why.
        """
        if not self.endpoints:
            self.refresh(until_ns)
        if not self.endpoints:
            raise Unreached(next(entry.reason for entry in self._entries))
        return self.endpoints

    def due(self) -> bool:
        """Return whether it is time to look again."""
        return not self.settled and self._clock_ns() - self._looked_ns > AGAIN_NS

    def refresh(self, until_ns: int) -> None:
        """Look every name up, all at once."""
        now_ns = self._looked_ns = self._clock_ns()
        limit_s = min(LOOKUP_S, max(until_ns - now_ns, 0) / 1e9)
        for entry in self._entries:
            entry.begin()
        end_s = time.monotonic() + limit_s
        for entry in self._entries:
            entry.finish(max(end_s - time.monotonic(), 0))
        self.endpoints = self._all()

    def _all(self) -> tuple[Endpoint, ...]:
        found = (self._endpoint(entry, hosts) for entry in self._entries for hosts in entry.servers)
        return tuple(islice(found, UPSTREAMS))

    def _endpoint(self, entry: "_Entry", hosts: tuple[str, ...]) -> Endpoint:
        address = entry.address
        name = address.url
        if not entry.literal and len(entry.servers) > 1:
            name = f"{name} ({', '.join(hosts)})"
        text = "\n".join((self._model, address.url, address.path, *hosts))
        digest = blake2b(text.encode(), digest_size=8).digest()
        return Endpoint(int.from_bytes(digest, "little") or 1, name, address, hosts)


class _Entry:
    """Configured address, with the servers that its name was resolved to."""

    def __init__(self, address: Address, lookup: Lookup) -> None:
        self.address = address
        self.literal = is_literal(address.host)
        self.servers: list[tuple[str, ...]] = [(address.host,)] if self.literal else []
        self.reason = ""
        self._lookup = lookup
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Start a lookup, unless an earlier one is still under way."""
        if not self.literal and (self._thread is None or not self._thread.is_alive()):
            self._thread = short_thread(f"the look-up of {self.address.host}", self._look)
            if self._thread is None:
                self.reason = f"no thread to look up the name {self.address.host}"

    def finish(self, limit_s: float) -> None:
        """Wait for the lookup, but no longer than that."""
        if self._thread is None:
            return
        self._thread.join(limit_s)
        if self._thread.is_alive() and not self.servers:
            self.reason = f"the name {self.address.host} was not found in time"

    def _look(self) -> None:
        try:
            servers = grouped(self._lookup(self.address.host, self.address.port))
        except (OSError, UnicodeError, MemoryError) as error:
            said = getattr(error, "strerror", None) or str(error) or type(error).__name__
            self.reason = said.lower()
            return
        self.servers = servers or self.servers
