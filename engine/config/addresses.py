"""Addresses of other servers in a configuration, and the headers that a model server gets."""

import re
from collections.abc import Sequence
from ipaddress import ip_network
from pathlib import Path
from typing import Final

_PORT: Final = (
    "(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
)
_ADDRESS: Final = re.compile(
    r"http://(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])"
    rf"(?::{_PORT})?(?:/[A-Za-z0-9/._~:@%+,=-]*)?"
)
_SCHEMELESS: Final = re.compile(r"[A-Za-z0-9._-]+:[0-9]{1,5}(?:/.*)?")
_RAY_ADDRESS: Final = re.compile(rf"auto|[A-Za-z0-9._-]+:{_PORT}")
_RAY_RESOURCE: Final = re.compile(
    r"(?!(?:CPU|GPU|memory)=)[A-Za-z0-9_.:/-]{1,100}=(?=.*[1-9])[0-9]{1,9}(?:\.[0-9]{1,4})?"
)
_ANY_ADDRESS: Final = re.compile(f"https?{_ADDRESS.pattern.removeprefix('http')}")
_ORIGIN: Final = re.compile(
    r"(?!http://.*:80$|https://.*:443$)[a-z][a-z0-9+.-]*://(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])"
    rf"(?::{_PORT})?"
)
_UNIX: Final = "unix:"
"""The beginning of the address of a Unix socket, as Gunicorn and nginx write it."""
UNIX_CLIENTS: Final = "unix"
"""All clients of Unix sockets, which have no address."""
_OF_URLS: Final = frozenset("/[]")
_MOST_PATH_BYTES: Final = 107
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,200}")
_ATTRIBUTE: Final = re.compile(r"([a-z0-9]{1,20})=([!-~]|[!-~][ -~]*[!-~])")
_OF_ONE_EVENT: Final = frozenset(
    {
        *("specversion", "id", "source", "type", "time", "datacontenttype", "data", "metadata"),
        *("requestid", "batchid", "modelname", "modelversion", "protocol", "statuscode"),
        *("bodybytes", "jsonbytes", "contentencoding"),
    }
)
"""Attributes that the payload log gives each event, and names that CloudEvents keeps."""
_OF_ONE_REQUEST: Final = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers that say how one request is sent, and so are never those of a batch."""


def is_host(value: object) -> bool:
    """Return whether a value may be a host's address or name, without port, scheme and brackets."""
    return (
        isinstance(value, str)
        and bool(value.strip())
        and value.count(":") != 1
        and not set(value) & _OF_URLS
    )


def is_listening_address(value: object) -> bool:
    """Return whether frontends can listen there: a host, or a Unix socket, ``unix:/PATH``."""
    path = unix_path(value)
    return is_host(value) if path is None else is_socket_path(path)


def unix_path(address: object) -> str | None:
    """Return the path of the Unix socket that an address names; None if it names none."""
    is_unix = isinstance(address, str) and address.startswith(_UNIX)
    return str(address).removeprefix(_UNIX) if is_unix else None


def is_socket_path(value: object) -> bool:
    """Return whether a Unix socket can have that path (unix(7): sun_path has 108 bytes)."""
    return (
        isinstance(value, str)
        and value.startswith("/")
        and not value.endswith("/")
        and "\0" not in value
        and len(value.encode("utf-8", "surrogateescape")) <= _MOST_PATH_BYTES
    )


def lacks_scheme(path: str) -> bool:
    """Return whether a path looks like the address of a model server without its http://."""
    return _SCHEMELESS.fullmatch(path) is not None


def is_address(value: object) -> bool:
    """Return whether a value is the address of one server, not over TLS, with or without a path."""
    return isinstance(value, str) and _ADDRESS.fullmatch(value) is not None


def are_origins(value: object) -> bool:
    """Return whether it is a list of origins as browsers write them, or of "*" alone."""
    return isinstance(value, list | tuple) and (
        list(value) == ["*"]
        or all(isinstance(item, str) and _ORIGIN.fullmatch(item) is not None for item in value)
    )


def are_proxies(value: object) -> bool:
    """Return whether it is a list of addresses and networks, or of `UNIX_CLIENTS`."""
    return isinstance(value, list | tuple) and all(map(_is_network, value))


def _is_network(value: object) -> bool:
    if not isinstance(value, str):
        return False
    try:
        return value == UNIX_CLIENTS or bool(ip_network(value))
    except ValueError:
        return False


def is_ray_address(value: object) -> bool:
    """Return whether a value may be the address of a Ray cluster."""
    return isinstance(value, str) and _RAY_ADDRESS.fullmatch(value) is not None


def are_ray_resources(value: object) -> bool:
    """Return whether a value is a list of a Ray cluster's resources, each with an amount."""
    return isinstance(value, list | tuple) and all(
        isinstance(item, str) and _RAY_RESOURCE.fullmatch(item) is not None for item in value
    )


def is_any_address(value: object) -> bool:
    """Return whether a value is the address of one server, with or without TLS or a path."""
    return isinstance(value, str) and _ANY_ADDRESS.fullmatch(value) is not None


def are_addresses(value: object) -> bool:
    """Return whether a value is a list of at least one such address."""
    return isinstance(value, list | tuple) and len(value) > 0 and all(map(is_any_address, value))


def addresses(path: str) -> list[str]:
    """Return the addresses of model servers in a model's `path`, which is one text."""
    return path.split(" ")


def origin(address: str) -> str:
    """Return an address without its path."""
    return "/".join(address.split("/")[:3])


def v1_path(path: str, name: str) -> str:
    """Return the path of a model's predictions in V1 on the servers of its `path`."""
    address = addresses(path)[0]
    return address.removeprefix(origin(address)) or f"/v1/models/{name}:predict"


def stored(value: str | Sequence[str]) -> Path | str:
    """Return a legal `path` of a model: addresses are one text, with a space between two."""
    if not isinstance(value, str):
        return " ".join(address.rstrip("/") for address in value)
    return value.rstrip("/") if "://" in value else Path(value)


def written(value: Path | str) -> str | list[str]:
    """Return a `path` as a document has it."""
    text = str(value)
    return addresses(text) if isinstance(value, str) and " " in value else text


def are_forwarded(value: object) -> bool:
    """Return whether a value is a list of names of headers that a batch can have."""
    return isinstance(value, list | tuple) and all(
        isinstance(item, str)
        and _HEADER_NAME.fullmatch(item) is not None
        and item.lower() not in _OF_ONE_REQUEST
        for item in value
    )


def are_attributes(value: object) -> bool:
    """Return whether it is a list of attributes of events, ``name=value``, each name once."""
    if not isinstance(value, list | tuple):
        return False
    found = [_ATTRIBUTE.fullmatch(item) if isinstance(item, str) else None for item in value]
    names = [one[1] for one in found if one is not None]
    return len(names) == len(set(names)) == len(value) and not _OF_ONE_EVENT & set(names)


def lowered(names: list[str]) -> tuple[str, ...]:
    """Return each name once, in lower case."""
    return tuple(dict.fromkeys(name.lower() for name in names))
