"""Accounts of clients: whose a request is, by its API key or its client's address. Pure.

The accounts of requests share each model, see `ringbatch.shm.account`. A request with an API key of
the server belongs to the account of that key. Any other belongs to the account of its client's
address: all of an IPv4 address, and of an IPv6 address the first 64 bits, because one client may
have all addresses behind these. Behind a trusted proxy the header X-Forwarded-For has the client's
address. Each proxy appends the address that it sees, so only the last entries are to be believed:
the client is the right-most address that is no trusted proxy.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, Final

from ringbatch.frontend.security.api_keys import ApiKeys
from ringbatch.shm.account import (
    CLASS_NAMES,
    IDENTITY_MASK,
    NOBODY,
    PriorityClass,
    account_word,
    at_most,
    identity,
    identity_of,
    key_identity,
    with_class,
    with_limit,
)
from ringbatch.shm.errors import InvalidRequest
from ringbatch.shm.host.key_headers import AUTHORIZATION, KEY_HEADER

FORWARDED: Final = b"x-forwarded-for"
"""The header in which proxies name the address of their client."""
PRIORITY: Final = b"x-priority"
"""The header in which a client names the class of its request."""
UNIX: Final = "unix"
"""Stands for all clients of Unix sockets among the trusted proxies."""
_KEY_NAMES: Final = (AUTHORIZATION.encode(), KEY_HEADER.encode())
_MOST_HOPS: Final = 32
"""The most entries of a header that are looked at; the rest is the client's invention."""
_LONGEST: Final = 64
"""The most characters of an address."""
_KNOWN: Final = 4096
"""The most addresses whose accounts are remembered."""
_IPV4_BYTES: Final = 4
_ADDRESS: Final = "address"
_LOCAL: Final = "local"
_CLASSES: Final = {name.encode(): each for name, each in CLASS_NAMES.items()}
_SHOWN: Final = 40
"""The most characters of a wrong class that an error quotes."""

Address = IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True)
class Peer:
    """The other end of a connection.

    Attributes:
        account: of its requests, if they have no key.
        is_proxy: True if it is a trusted proxy, so that its requests may be other clients'.
    """

    account: int
    is_proxy: bool


UNKNOWN_PEER: Final = Peer(NOBODY, is_proxy=False)


class Accounts:
    """The accounts of one engine's clients.

    Args:
        seed: a number of the engine, the same in all frontends.
        trusted_proxies: addresses and networks of proxies, and `UNIX`.
        keys: of the server; None if clients need no key.
        highest: the highest class of requests without a key.
        on: False if all requests are nobody's.
    """

    def __init__(
        self,
        seed: int = 0,
        trusted_proxies: Iterable[str] = (),
        keys: ApiKeys | None = None,
        *,
        highest: PriorityClass = PriorityClass.INTERACTIVE,
        on: bool = True,
    ) -> None:
        self._seed = seed
        self._keys = keys
        self._on = on
        self._highest = highest
        self._no_key = with_limit(NOBODY, highest)
        """The word of requests without a key, but for their identity."""
        named = list(trusted_proxies)
        self._trusts_unix = UNIX in named
        self._trusted = [ip_network(name, strict=False) for name in named if name != UNIX]
        self._known: dict[str, Peer] = {}
        self._addresses: dict[int, bytes] = {}
        """Part of the address that names the client, for each account in `_known`."""
        self._keys_named = -1
        """The changes of the keys up to which `_key_names` is right."""
        self._key_names: dict[int, str] = {}
        self._local = Peer(self._no_key | identity(_LOCAL, b"", seed), self._trusts_unix)

    def peer(self, address: Any) -> Peer:
        """Return the other end of a connection.

        Args:
            address: the peer's, as sockets have it: a tuple that begins with the host; anything
                else for Unix sockets.
        """
        if not self._on:
            return UNKNOWN_PEER
        host = address[0] if isinstance(address, tuple) and address else ""
        return self._at(host) or self._local

    def of_key(self, authorization: str | None, key: str | None) -> int:
        """Return the word of a request's API key; `NOBODY` if it has none of the server's.

        Args:
            authorization, key: the headers, as for `ApiKeys.allow`.
        """
        return self._of_key(authorization, key)[0]

    def _of_key(self, authorization: str | None, key: str | None) -> tuple[int, PriorityClass]:
        """Return the word of a request's API key, and the highest class that it may name."""
        if not self._on:
            return NOBODY, PriorityClass.INTERACTIVE
        digest = None if self._keys is None else self._keys.digest(authorization, key)
        if self._keys is None or digest is None:
            return self._no_key, self._highest
        options = self._keys.options(digest)
        account = key_identity(digest, self._seed)
        word = account_word(account, options.priority, options.weight)
        return with_limit(word, options.highest), options.highest

    def of_key_and_class(
        self, authorization: str | None, key: str | None, priority: Sequence[bytes] = ()
    ) -> int:
        """Return the word of a request's key and class, for `word`.

        A request that names no class has its key's. One that names a class above the highest of its
        key has that. Its body may then ask for a lower class, and for no higher one.

        Args:
            authorization, key: the headers, as for `ApiKeys.allow`.
            priority: the values of all headers `PRIORITY`.

        Raises:
            InvalidRequest: the request names no class; the text names them.
        """
        account, highest = self._of_key(authorization, key)
        if not priority or not self._on:
            return account
        named = b",".join(priority).strip(b" \t")
        found = _CLASSES.get(named.lower())
        if found is None:
            text = ascii(named[:_SHOWN].decode("latin-1"))
            raise InvalidRequest(f"X-Priority is {text}, not interactive, normal or bulk")
        return with_limit(with_class(account, found), at_most(found, highest))

    def word(self, key_account: int, peer: Peer, forwarded: Callable[[], Sequence[bytes]]) -> int:
        """Return the account word of a request.

        Args:
            key_account: the word of its key and class.
            peer: from which it came.
            forwarded: returns the values of all its headers `FORWARDED`, in their order.
        """
        if key_account & IDENTITY_MASK:
            return key_account
        found = self.behind(peer, forwarded()) if peer.is_proxy else peer.account
        return key_account | found & IDENTITY_MASK if key_account else found

    def of_scope(self, scope: Mapping[str, Any], *, lenient: bool = False) -> int:
        """Return the account word of a request, as ASGI has it.

        Args:
            scope: of the request.
            lenient: True to pass over a class that is none.

        Raises:
            InvalidRequest: as `of_key_and_class`.
        """
        if not self._on:
            return NOBODY
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        sent = {name: value.decode("latin-1") for name, value in headers if name in _KEY_NAMES}
        authorization, key = (sent.get(name) for name in _KEY_NAMES)
        priority = [value for name, value in headers if name == PRIORITY]
        try:
            key_account = self.of_key_and_class(authorization, key, priority)
        except InvalidRequest:
            if not lenient:
                raise
            key_account = self.of_key(authorization, key)
        forwarded = partial(forwarded_in, headers)
        return self.word(key_account, self.peer(scope.get("client")), forwarded)

    def name(self, word: int) -> str:
        """Return the name of the account in a word, for people; empty if it is nobody's.

        A key has `ApiKeys.name`, a client without one its address or network, `UNIX` stands for
        all clients of Unix sockets. If an account is no longer known, its identity is its name.
        """
        account = identity_of(word)
        if account == NOBODY:
            return ""
        if account == self._local.account:
            return UNIX
        address = self._addresses.get(account)
        if address is not None:
            return _name_of(address)
        keys = self._keys
        if keys is not None and keys.changes != self._keys_named:
            self._keys_named = keys.changes
            self._key_names = {
                key_identity(digest, self._seed): keys.name(digest) for digest in keys.digests
            }
        return self._key_names.get(account) or f"account-{account:012x}"

    def behind(self, proxy: Peer, forwarded: Sequence[bytes]) -> int:
        """Return the account of a client behind a trusted proxy.

        An entry that is no address ends the search at the proxy that wrote it.

        Args:
            proxy: the peer.
            forwarded: the values of all headers `FORWARDED`, in their order.
        """
        found = proxy
        entries = b",".join(forwarded[-_MOST_HOPS:]).decode("latin-1")
        for entry in reversed(entries.rsplit(",", _MOST_HOPS)[-_MOST_HOPS:]):
            hop = self._at(_host(entry.strip(" \t")))
            if hop is None:
                break
            found = hop
            if not hop.is_proxy:
                break
        return found.account

    def _at(self, host: str) -> Peer | None:
        """Return the peer at an address; None if the text is no address."""
        found = self._known.get(host)
        if found is None:
            if len(host) > _LONGEST:
                return None
            try:
                address = _plain(ip_address(host))
            except ValueError:
                return None
            if len(self._known) >= _KNOWN:
                self._known.clear()
                self._addresses.clear()
            is_proxy = any(address in network for network in self._trusted)
            client = _of_one_client(address)
            account = identity(_ADDRESS, client, self._seed)
            self._addresses[account] = client
            found = self._known[host] = Peer(self._no_key | account, is_proxy)
        return found


def forwarded_in(headers: Iterable[tuple[bytes, bytes]]) -> list[bytes]:
    """Return the values of all headers `FORWARDED`, in their order; names are in lower case."""
    return [value for name, value in headers if name == FORWARDED]


def _plain(address: Address) -> Address:
    """Return an address as IPv4 if it is one, mapped into IPv6."""
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return address if mapped is None else mapped


def _of_one_client(address: Address) -> bytes:
    """Return the part of an address that names a client."""
    return address.packed if isinstance(address, IPv4Address) else address.packed[:8]


def _host(entry: str) -> str:
    """Return the address in an entry, which some proxies write with a port."""
    if entry.startswith("["):
        return entry[1:].partition("]")[0]
    return entry.partition(":")[0] if entry.count(":") == 1 else entry


def _name_of(client: bytes) -> str:
    """Return the text of an address, or of a network, as `_of_one_client` has it."""
    if len(client) == _IPV4_BYTES:
        return str(IPv4Address(client))
    return str(IPv6Network((client.ljust(16, b"\0"), 8 * len(client))))
