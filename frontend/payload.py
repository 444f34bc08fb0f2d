"""The tensors of a request as the one run of bytes that stands in its slot.

Every protocol ends here, so that equal values are equal bytes and share a batch.
"""

from collections.abc import Sequence

from ringbatch.shm.frame import Frame

Bytes = bytes | bytearray | memoryview


def framed(frame: Frame, rows: int, dimensions: tuple[int, ...], tensors: Sequence[Bytes]) -> bytes:
    """Lay tensors out as the frame has them.

    Args:
        frame: of a model's inputs.
        rows: instances in each tensor.
        dimensions: the open dimensions, in the order of the signature.
        tensors: the bytes of each, in order.

    Raises:
        FrameError: the whole exceeds what memory can hold.
    """
    named = zip(frame.tensors, tensors, strict=True)
    lengths = tuple(len(data) for tensor, data in named if not tensor.datatype.fixed)
    placement = frame.place(rows, dimensions, lengths)
    pieces: list[Bytes] = [frame.prefix(dimensions, lengths)]
    end = frame.prefix_bytes
    for placed, data in zip(placement.parts, tensors, strict=True):
        pieces += (bytes(placed.offset - end), data)
        end = placed.offset + placed.size
    return b"".join(pieces)
