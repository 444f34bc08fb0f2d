"""Large ModelInferRequests, whose tensor goes into its slot as it comes.

Encoders write fields in the order of their numbers, so mostly all that a request says stands before
its one raw tensor, which is the end of the message. Then everything is known but the tensor's
values once the first bytes are there.
"""

from typing import Final, Generic, NamedTuple, TypeVar

from ringbatch.frontend.grpc.inference import GrpcAnswer
from ringbatch.frontend.grpc.offloaded_messages import MAX_FIELDS
from ringbatch.frontend.grpc.varints import varint
from ringbatch.frontend.request.arrival import LARGE_BYTES, Arrival

C = TypeVar("C")

_RAW_INPUT_CONTENTS: Final = 7
_VARINT: Final = 0
_BYTES: Final = 2


class TensorSpan(NamedTuple):
    """Place of the tensor at the end of its message.

    Attributes:
        head_bytes: before the field with the tensor.
        start: of the tensor.
        size: of the tensor, in bytes.
    """

    head_bytes: int
    start: int
    size: int


def tensor_span(begun: bytes | memoryview, message_bytes: int) -> TensorSpan | None:
    """Return the place of the one raw tensor of a message.

    Args:
        begun: the first bytes of a ModelInferRequest.
        message_bytes: of all of it.

    Returns:
        None if these bytes do not tell, or the tensor is not large, or not the end of the message.
        Also if more fields precede it than a large message may have.
    """
    at = 0
    try:
        for _ in range(MAX_FIELDS):
            field = at
            key, at = varint(begun, at)
            kind = key & 7
            if kind == _VARINT:
                _, at = varint(begun, at)
            elif kind == _BYTES:
                size, at = varint(begun, at)
                if key >> 3 == _RAW_INPUT_CONTENTS:
                    is_end = size >= LARGE_BYTES and at + size == message_bytes
                    return TensorSpan(field, at, size) if is_end else None
                at += size
            else:
                return None
    except IndexError:
        pass
    return None


class ArrivingMessage(NamedTuple, Generic[C]):
    """Message that is read up to its tensor, whose bytes may still be coming.

    Attributes:
        arrival: the slot that its tensor goes to.
        call: the call that it belongs to, in its connection's own terms.
        start: offset of the tensor in the body of the call.
    """

    arrival: Arrival[GrpcAnswer]
    call: C
    start: int
