"""V2 tensors in memory of the client's: what requests say of it, and which objects they may name.

    {"name": "x", "shape": [1, 2], "datatype": "FP32", "parameters":
        {"shared_memory_region": "r", "shared_memory_offset": 0, "shared_memory_byte_size": 8}}

An input so described is read from the region, and an output is written to it; neither has data in
the request or the answer. After Triton's system shared memory extension, whose regions are
registered beforehand:

    {"key": "/myapp_x", "offset": 0, "byte_size": 64}

A key is the name of an object in /dev/shm. It must begin as the configuration says, and never
names an object of ringbatch's own, under any configuration.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, NoReturn, Protocol

from orjson import JSONDecodeError, loads

from ringbatch.frontend.codec.json_to_tensor import shown
from ringbatch.frontend.codec.outcome import NotSupported
from ringbatch.frontend.codec.payload import Bytes, LazyBytes
from ringbatch.shm.errors import InvalidRequest
from ringbatch.shm.host.json_text import why_unreadable
from ringbatch.shm.layout import MAX_BYTES
from ringbatch.shm.region import MAX_NAME_BYTES, Region

REGION: Final = "shared_memory_region"
OFFSET: Final = "shared_memory_offset"
SIZE: Final = "shared_memory_byte_size"

_PARAMETERS: Final = "shared_memory_"
_MAX_OBJECT_BYTES: Final = 200
_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
_OWN: Final = ("ringbatch.", "sem.")
"""Prefixes of segments, pipes and semaphores in /dev/shm."""


class RegionSpan(NamedTuple):
    """Place of a tensor: the region's name, the offset from its start, and the tensor's bytes."""

    region: str
    offset: int
    size: int


class Target(Protocol):
    """Place that an output is written to."""

    size: int
    """The bytes there are for it."""

    def write(self, pieces: Sequence[Bytes]) -> None:
        """Write the pieces one behind the other; they fit.

        Raises:
            InvalidRequest: the object is no longer what it was.
        """


class ClientMemory(Protocol):
    """Clients' memory as requests use it."""

    def expect_on(self) -> None:
        """Raise `NotSupported` if the configuration allows no client to share memory."""

    def source(self, span: RegionSpan) -> LazyBytes:
        """Return the reader of an input.

        Raises:
            MemoryNotFound: there is no such region.
            InvalidRequest: the span is not within it.
            RequestTooLarge: the input is larger than a request may be.
        """

    def target(self, span: RegionSpan) -> Target:
        """Return the place for an output; raises the errors of `source`, but for the last."""


class NoMemory:
    """A `ClientMemory` that is switched off."""

    def expect_on(self) -> NoReturn:
        """Raise `NotSupported`."""
        raise NotSupported(
            "shared memory is switched off here; [server] shared_memory_prefixes switches it on"
        )

    def source(self, _span: RegionSpan) -> NoReturn:
        """Raise `NotSupported`."""
        self.expect_on()

    def target(self, _span: RegionSpan) -> NoReturn:
        """Raise `NotSupported`."""
        self.expect_on()


OFF: Final = NoMemory()


def expect_fit(output: str, size: int, target: Target) -> None:
    """Refuse to write more bytes to the client's memory than it gave for them.

    Args:
        output: its name.
        size: its bytes.
        target: where they are to be written.

    Raises:
        InvalidRequest
    """
    if size > target.size:
        raise InvalidRequest(
            f'output "{output}" has {size} bytes, more than the {target.size} of shared memory '
            "that the request gives for it"
        )


def span_of(parameters: dict[str, Any], where: str, memory: ClientMemory) -> RegionSpan | None:
    """Return the place of a tensor by its parameters; None if it is not in shared memory.

    Args:
        parameters: strings, numbers and booleans.
        where: the tensor, for the texts of errors.
        memory: says if it is on.

    Raises:
        InvalidRequest: the parameters make no sense.
        NotSupported: it is off.
    """
    if not any(name.startswith(_PARAMETERS) for name in parameters):
        return None
    memory.expect_on()
    region, size = parameters.get(REGION), parameters.get(SIZE)
    if region is None or size is None:
        missing, given = (REGION, SIZE) if region is None else (SIZE, REGION)
        raise InvalidRequest(f"{where} has no {missing}, which goes with {given} and {OFFSET}")
    if not isinstance(region, str):
        raise InvalidRequest(f"the {REGION} of {where} is {shown(region)}, not a string")
    return RegionSpan(
        region,
        _bytes(parameters.get(OFFSET, 0), f"the {OFFSET} of {where}", 0),
        _bytes(size, f"the {SIZE} of {where}", 0),
    )


def start_of(span: RegionSpan, region: Region) -> int:
    """Return the start of a span in its region's object.

    Raises:
        InvalidRequest: it is not within the region.
    """
    if span.offset + span.size > region.size:
        raise InvalidRequest(
            f"{span.size} bytes from offset {span.offset} are not within shared memory region "
            f'"{region.name}", which has {region.size}'
        )
    return region.offset + span.offset


class Registration(NamedTuple):
    """Request to register a region: the key, and the stretch of the object."""

    key: str
    offset: int
    size: int


def registration(body: bytes) -> Registration:
    """Read the body of a request to register a region.

    Raises:
        InvalidRequest
    """
    try:
        request = loads(body)
    except JSONDecodeError as error:
        raise InvalidRequest(f"the request is no JSON: {why_unreadable(body, error)}") from None
    if not isinstance(request, dict):
        raise InvalidRequest(f"the request is {shown(request)}, not an object")
    key = request.get("key")
    if not isinstance(key, str):
        found = "lacks its key" if key is None else f"has {shown(key)} as its key"
        raise InvalidRequest(f"the request {found}, which is a string, the name of the object")
    if "byte_size" not in request:
        raise InvalidRequest("the request lacks its byte_size, the bytes of the region")
    return checked(key, request.get("offset", 0), request["byte_size"])


def checked(key: str, offset: Any, size: Any) -> Registration:
    """Return a registration with checked numbers.

    Raises:
        InvalidRequest
    """
    return Registration(key, _bytes(offset, "the offset", 0), _bytes(size, "the byte_size", 1))


def expect_region_name(name: str) -> None:
    """Refuse what no region may be called.

    Raises:
        InvalidRequest
    """
    try:
        sound = 0 < len(name.encode()) <= MAX_NAME_BYTES
    except UnicodeEncodeError:  # a half of a surrogate pair
        sound = False
    if not sound:
        raise InvalidRequest(
            f"the name of a shared memory region is {shown(name)}, not 1 to {MAX_NAME_BYTES} "
            "bytes of UTF-8"
        )


def object_name(key: str, prefixes: Sequence[str]) -> str:
    """Return the name in /dev/shm of a key.

    Args:
        key: with or without a slash in front.
        prefixes: allowed ones, each with or without a slash in front.

    Raises:
        InvalidRequest: the key is no such name, or none with an allowed prefix. The text
            does not tell which are allowed.
    """
    name = key.removeprefix("/")
    if not 0 < len(name) <= _MAX_OBJECT_BYTES or not _CHARACTERS.issuperset(name):
        raise InvalidRequest(
            f"the key {shown(key)} is no name of a shared memory object: 1 to "
            f"{_MAX_OBJECT_BYTES} letters, digits, dots, dashes and underscores, with or without a "
            "slash in front"
        )
    allowed = any(name.startswith(prefix.removeprefix("/")) for prefix in prefixes)
    if not allowed or name.startswith(_OWN) or name in (".", ".."):
        raise InvalidRequest(
            f"the key {shown(key)} is not one that clients of this server may use; see [server] "
            "shared_memory_prefixes"
        )
    return name


def region_document(region: Region) -> dict[str, Any]:
    """Return a region as its status shows it."""
    return {
        "name": region.name,
        "key": region.key,
        "offset": region.offset,
        "byte_size": region.size,
    }


def _bytes(value: Any, subject: str, least: int) -> int:
    if type(value) is not int or not least <= value <= MAX_BYTES:
        raise InvalidRequest(
            f"{subject} is {shown(value)}, not a whole number from {least} to {MAX_BYTES}"
        )
    return value
