"""Header of the segment: its sizes, stored by its maker and read by each process that attaches.

It is read through the file, since nobody knows how much to map before.
"""

import os

from ringbatch.shm.descriptors import LAYOUT_VERSION, MAGIC_VALUE, HeaderWords
from ringbatch.shm.errors import LayoutMismatch, SegmentNotReady
from ringbatch.shm.layout import WORD, Layout
from ringbatch.shm.memory_order import acquire_fence


def store_sizes(words: memoryview, layout: Layout) -> None:
    """Store the version and the sizes; MAGIC must follow."""
    values = {
        HeaderWords.VERSION: LAYOUT_VERSION,
        HeaderWords.SEGMENT_BYTES: layout.size,
        HeaderWords.LANES: layout.lanes,
        HeaderWords.SLOTS: layout.slots,
        HeaderWords.LANE_BYTES: layout.lane_bytes,
        HeaderWords.WORKERS: layout.workers,
        HeaderWords.MODELS: layout.models,
        HeaderWords.MODEL_TABLE_BYTES: layout.model_table_bytes,
        HeaderWords.CLIENT_LANES: layout.client_lanes,
        HeaderWords.TRACED: layout.traced,
    }
    for word, value in values.items():
        words[word] = value


def read(fd: int, size: int) -> Layout:
    """Read the sizes of a segment, and check them.

    Args:
        fd: its open file.
        size: of the file in bytes.

    Raises:
        SegmentNotReady: its maker has not finished it.
        LayoutMismatch: another version of ringbatch made it.
    """
    words = finished(fd, HeaderWords.SIZE)
    if words is None:
        raise SegmentNotReady("the engine's shared memory is not finished yet")
    if words[HeaderWords.VERSION] != LAYOUT_VERSION:
        raise LayoutMismatch(
            f"the engine's shared memory has layout {words[HeaderWords.VERSION]}, "
            f"this version of ringbatch has {LAYOUT_VERSION}; run the same version everywhere"
        )
    try:
        layout = Layout(
            lanes=words[HeaderWords.LANES],
            slots=words[HeaderWords.SLOTS],
            lane_bytes=words[HeaderWords.LANE_BYTES],
            workers=words[HeaderWords.WORKERS],
            models=words[HeaderWords.MODELS],
            model_table_bytes=words[HeaderWords.MODEL_TABLE_BYTES],
            client_lanes=words[HeaderWords.CLIENT_LANES],
            traced=words[HeaderWords.TRACED],
        )
    except ValueError as error:
        raise LayoutMismatch(
            f"the engine's shared memory has an impossible size: {error}"
        ) from None
    if not layout.size == words[HeaderWords.SEGMENT_BYTES] == size:
        raise LayoutMismatch(
            f"the engine's shared memory has {size} bytes, its header gives {layout.size}"
        )
    return layout


def finished(fd: int, count: int) -> memoryview | None:
    """Return the first words of a segment; None if its maker has not finished it.

    Args:
        fd: its open file.
        count: how many words.
    """
    is_finished = MAGIC_VALUE in _words(fd, HeaderWords.MAGIC + 1)
    # MAGIC is stored last, so the rest is read after it.
    acquire_fence()
    words = _words(fd, count)
    return words if is_finished and len(words) == count else None


def _words(fd: int, count: int) -> memoryview:
    read = os.pread(fd, count * WORD, 0)
    return memoryview(read[: len(read) // WORD * WORD]).cast("Q")
