"""Rules for the model servers that one model asks, in words. Pure."""

import ipaddress
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from ringbatch.engine.config.addresses import addresses, is_address, origin
from ringbatch.shm.upstream_words import UPSTREAMS

FILES: Final = ("upstream_ca", "upstream_certificate", "upstream_key")
"""Keys whose values are paths; relative ones start beside the document."""
_UNDER_WAY: Final = 4
"""Batches that a model server gets at once by default."""
_MOST_WORKERS: Final = 64
_SIDECAR_WORDS: Final = (
    "is for one model of the runtime http with the protocol v1, and no other beside it"
)
_PASSES_WORDS: Final = (
    "needs pass_through where the model is on several servers, or on one over TLS: everything else "
    "is passed on there"
)
_OWN_WORDS: Final = (
    "is this engine's own address, by [server] host and port; requests would come back to it"
)
_PORTS: Final = {"http": 80, "https": 443}
_MEANT: Final = {"localhost": ("127.0.0.1", "::1")}


def workers(path: str) -> int:
    """Return how many workers ask model servers by default."""
    return min(_UNDER_WAY * len(addresses(path)), _MOST_WORKERS)


def problems(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the problems of a model's settings for the runtime http.

    Args:
        values: by key; a key whose own value is wrong is missing.

    Returns:
        The key that is to be changed, and the words for it.
    """
    servers = addresses(values["path"])
    yield from (("path", words) for words in _of_addresses(servers))
    for key in FILES:
        if values.get(key) is not None and not servers[0].startswith("https:"):
            yield key, "is for https, but the model server is asked over http"
    pair = ("upstream_certificate", "upstream_key")
    for key, other in (pair, pair[::-1]):
        if values.get(key) is not None and values.get(other, "") is None:
            yield key, f"is for {other}, which is missing"


def _of_addresses(servers: Sequence[str]) -> Iterator[str]:
    for server, count in Counter(servers).items():
        if count > 1:
            yield f"{server} stands there {count} times"
    if len({server.partition(":")[0] for server in servers}) > 1:
        yield "some addresses are http and some https, but one model has one of them"
    paths = {server.removeprefix(origin(server)) for server in servers}
    if len(paths) > 1:
        shown = " and ".join(sorted(path or "none" for path in paths))
        yield f"addresses of one model must have the same path, but these have {shown}"
    if len(servers) > UPSTREAMS:
        yield f"there are {len(servers)} addresses, but at most {UPSTREAMS} are possible"


def sidecar_problem(server: Mapping[str, Any], models: Sequence[Mapping[str, Any]]) -> str:
    """Return why the engine cannot replace KServe's agent; empty if it can."""
    if [(model.get("runtime"), model.get("protocol")) for model in models] != [("http", "v1")]:
        return _SIDECAR_WORDS
    passes = server.get("pass_through") is not None or is_address(models[0].get("path"))
    return "" if passes else _PASSES_WORDS


def own_address(path: object, server: Mapping[str, Any]) -> str:
    """Return the problem that one of some addresses is the engine's own; empty if none is.

    It holds as far as that is known without the network.

    Args:
        path: the addresses, or else of a file.
        server: settings of the server, by key; one whose own value is wrong is missing.
    """
    own = [one for one in addresses(path) if _is_own(one, server)] if isinstance(path, str) else []
    return f"{own[0]} {_OWN_WORDS}" if own else ""


def _is_own(address: str, server: Mapping[str, Any]) -> bool:
    parts = urlsplit(address)
    port = parts.port or _PORTS[parts.scheme]
    return port == server.get("port") and any(
        theirs == ours
        # The socket that takes all addresses of version 6 takes those of version 4 too.
        or (ours.is_unspecified and theirs.is_loopback and theirs.version <= ours.version)
        for theirs in _numeric(parts.hostname or "")
        for ours in _numeric(server.get("host", ""))
    )


def _numeric(host: str) -> list[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    """Return the addresses of a host; none of a name other than localhost."""
    try:
        return [ipaddress.ip_address(one) for one in _MEANT.get(host, (host,))]
    except ValueError:
        return []
