"""Attachment of a program to the memory of an engine on its host, and a sign of its end."""

import os

from ringbatch.shm.errors import SegmentGone
from ringbatch.shm.segment import Segment


def attach(name: str) -> tuple[Segment, int]:
    """Attach a segment; return it and the result of its `watch_life`.

    Args:
        name: the segment's.

    Raises:
        SegmentGone: the engine has ended.
        StartupError: as of `Segment.attach`.
    """
    segment = Segment.attach(name)
    try:
        life = segment.watch_life()
        # No descriptor reports the end of an engine that had ended before it was opened.
        if segment.alive:
            return segment, life
        os.close(life)
        raise SegmentGone("the engine has stopped")
    except BaseException:
        segment.detach()
        raise
