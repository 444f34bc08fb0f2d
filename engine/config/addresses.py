"""What may be said of other servers in a configuration: where they are, and what a model server
gets to see."""

import re
from pathlib import Path
from typing import Final

_ADDRESS: Final = re.compile(
    r"http://(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?(?:/[A-Za-z0-9/._~:@%+,=-]*)?"
)
_TRACE_ADDRESS: Final = re.compile(f"https?{_ADDRESS.pattern.removeprefix('http')}")
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,200}")
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


def is_address(value: object) -> bool:
    """Whether it is the address of a model server, with or without a path."""
    return isinstance(value, str) and _ADDRESS.fullmatch(value) is not None


def is_trace_address(value: object) -> bool:
    """Whether it is the address of a collector of traces, with or without a path."""
    return isinstance(value, str) and _TRACE_ADDRESS.fullmatch(value) is not None


def origin(address: str) -> str:
    """An address without its path."""
    return "/".join(address.split("/")[:3])


def v1_path(address: str, name: str) -> str:
    """Where the server at an address has the predictions of a model in V1."""
    return address.removeprefix(origin(address)) or f"/v1/models/{name}:predict"


def stored(value: str) -> Path | str:
    """A legal `path` of a model: an address stays a text."""
    return value.rstrip("/") if "://" in value else Path(value)


def are_forwarded(value: object) -> bool:
    """Whether it is a list of names of headers that a batch can have."""
    return isinstance(value, list | tuple) and all(
        isinstance(item, str)
        and _HEADER_NAME.fullmatch(item) is not None
        and item.lower() not in _OF_ONE_REQUEST
        for item in value
    )


def lowered(names: list[str]) -> tuple[str, ...]:
    """Each name once, in lower case."""
    return tuple(dict.fromkeys(name.lower() for name in names))
