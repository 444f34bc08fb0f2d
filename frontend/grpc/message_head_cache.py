"""Memory of earlier gRPC requests, without their id and their one raw tensor. Pure.

A program mostly sends the same message again with other values. Encoders write fields in the order
of their numbers, and so such messages lie on the wire:

    model_name, model_version   the same
    id                          any, or none
    the rest                    the same, up to the length of the tensor
    the tensor                  any, of that length

A message of known pieces means the same as before, by the encoding of Protocol Buffers: each field
ends where its length says, with any content.
"""

from typing import Final, Generic, NamedTuple, TypeVar

from google.protobuf.message import DecodeError

from ringbatch.frontend.codec.parse_cache import MOST_BYTES, ParseCache
from ringbatch.frontend.grpc.messages import inference
from ringbatch.shm.tuples import unchecked_tuple

T = TypeVar("T")

_Request: Final = inference("ModelInferRequest")
_NAME: Final = 0x0A
_VERSION: Final = 0x12
_ID: Final = 0x1A
_LONG: Final = 0x80
"""The least length that takes more than one byte."""
_SOME_ID: Final = b"\x1a\x01i"
_OTHERS: Final = bytes(range(255, -1, -1))
"""Translation table that turns each byte into another one."""
_REMEMBERED: Final = 256


class Recalled(NamedTuple, Generic[T]):
    """A message of known pieces.

    Attributes:
        meaning: by it.
        id: the field with its id as it is there, which is as it is in a response; empty where it
            has none.
        tensor: the raw contents, as far as they have come.
    """

    meaning: T
    id: bytes
    tensor: bytes


class MessageHeadCache(Generic[T]):
    """Cache of message heads."""

    def __init__(self) -> None:
        self._known: ParseCache[tuple[bytes, int], tuple[bytes, T]] = ParseCache(_REMEMBERED)

    def clear(self) -> None:
        """Forget everything."""
        self._known.clear()

    def recall(self, data: bytes, owed_bytes: int = 0) -> Recalled[T] | None:
        """Return the head of a message; None if it has to be read.

        Args:
            data: bytes of the message, at least up to its tensor.
            owed_bytes: of the tensor, that are still to come.
        """
        try:
            start, end = _id_span(data)
        except IndexError:
            return None
        known = self._known.get((data[:start], len(data) + owed_bytes - end))
        if known is not None:
            rest, meaning = known
            identity = data[start:end]
            if data.startswith(rest, end) and identity.isascii():
                return unchecked_tuple(Recalled, (meaning, identity, data[end + len(rest) :]))
        return None

    def learn(self, data: bytes, tensor: bytes | memoryview, meaning: T) -> None:
        """Remember what a message says, where others of the same pieces say the same.

        Args:
            data: a sound request.
            tensor: its one raw tensor, not empty.
            meaning: by it, whatever its id and the values of its tensor.
        """
        try:
            start, end = _id_span(data)
            rest = data[end : len(data) - len(tensor)]
            size = start + len(rest)
            if size > MOST_BYTES:
                return
            # There may be another id behind the first, and the end may be that of something else.
            other = bytes(tensor).translate(_OTHERS)
            request = _Request.FromString(b"%b%b%b%b" % (data[:start], _SOME_ID, rest, other))
        except (IndexError, DecodeError):
            return
        if request.id == "i" and list(request.raw_input_contents) == [other]:
            self._known.put((data[:start], len(rest) + len(tensor)), (rest, meaning), size)


def _id_span(data: bytes) -> tuple[int, int]:
    """Return the begin and the end of the id's field, behind the name and the version.

    Raises:
        IndexError: the message does not begin so.
    """
    size = data[1]
    if data[0] != _NAME or size >= _LONG:
        raise IndexError
    end = 2 + size
    if data[end] == _VERSION:
        size = data[end + 1]
        if size >= _LONG:
            raise IndexError
        end += 2 + size
    start = end
    if data[end] == _ID:
        size = data[end + 1]
        if not 0 < size < _LONG:
            raise IndexError
        end += 2 + size
    return start, end
