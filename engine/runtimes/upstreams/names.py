"""Name resolution for model servers, repeated and bounded in time.

The system's resolver takes no deadline, so it is asked in a thread of its own, whose answer is not
waited for longer than that. A name keeps the addresses that were found last where none are found.

Every address of a name is a server of its own. But where a name has one address of each family,
both are taken for ways to one server, as with ``localhost``.
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
from ringbatch.shm.descriptors import UPSTREAMS
from ringbatch.shm.host.background import short_thread

LOOKUP_S: Final = 5.0
"""What a name is looked up for at most."""
AGAIN_NS: Final = 10_000_000_000
"""How often a name is looked up."""

Lookup = Callable[[str, int], Sequence[str]]
"""The addresses of a name, for a port, in the order in which to try them; may raise OSError."""


class Endpoint(NamedTuple):
    """One server.

    Attributes:
        tag: the same in every worker of the model, and no other server's.
        name: for people.
        address: of which it is one.
        hosts: the ways to it, in the order in which to try them.
    """

    tag: int
    name: str
    address: Address
    hosts: tuple[str, ...]


def system_lookup(host: str, port: int) -> list[str]:
    """What the system's resolver says; see `Lookup`."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


def is_literal(host: str) -> bool:
    """Whether it is an address itself, which need not be looked up."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def grouped(found: Iterable[str]) -> list[tuple[str, ...]]:
    """The servers behind the addresses of a name, each with the ways to it."""
    hosts = list(dict.fromkeys(found))
    old = [host for host in hosts if ":" not in host]
    new = [host for host in hosts if ":" in host]
    if len(old) <= 1 and len(new) <= 1:
        return [tuple(hosts)] if hosts else []
    return [(host,) for host in sorted(new if len(new) > len(old) else old)]


class Names:
    """The servers that one model may be asked of.

    Args:
        model: its name, which its tags are of.
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
        """Whether no other server can ever come."""
        return all(entry.literal for entry in self._entries)

    def found(self, until_ns: int) -> tuple[Endpoint, ...]:
        """The servers, which are looked up first where none are known.

        Raises:
            Unreached: there are none; says why.
        """
        if not self.endpoints:
            self.refresh(until_ns)
        if not self.endpoints:
            raise Unreached(next(entry.reason for entry in self._entries))
        return self.endpoints

    def due(self) -> bool:
        """Whether it is time to look again."""
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
    """One address of the configuration."""

    def __init__(self, address: Address, lookup: Lookup) -> None:
        self.address = address
        self.literal = is_literal(address.host)
        self.servers: list[tuple[str, ...]] = [(address.host,)] if self.literal else []
        self.reason = ""
        self._lookup = lookup
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Have it looked up, unless that is under way since an earlier time."""
        if not self.literal and (self._thread is None or not self._thread.is_alive()):
            self._thread = short_thread(f"the look-up of {self.address.host}", self._look)
            if self._thread is None:
                self.reason = f"no thread to look up the name {self.address.host}"

    def finish(self, limit_s: float) -> None:
        """Wait for that, but no longer."""
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
