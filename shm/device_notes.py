"""Notes of workers on their devices, in the segment: the UUID, and words for `ringbatch models`."""

from typing import Final

from ringbatch.shm.device_words import DeviceNoteWords
from ringbatch.shm.layout import WORD
from ringbatch.shm.segment import Segment

NOTE_BYTES: Final = (DeviceNoteWords.SIZE - DeviceNoteWords.TEXT) * WORD - 1
"""Capacity of a note in bytes of UTF-8; the rest of a longer note is cut off."""
_HALF: Final = 64
"""Bits of a word."""


def write(segment: Segment, worker: int, text: str, uuid: int = 0) -> None:
    """Store the note of a worker, in place of its predecessor's.

    Args:
        segment: attached.
        worker: its number.
        text: for people; empty if batches have no way of their own to its device.
        uuid: of its CUDA device, of 128 bits; 0 without one.
    """
    first = segment.layout.device_note(worker)
    segment.words[first + DeviceNoteWords.UUID_HIGH] = uuid >> _HALF
    segment.words[first + DeviceNoteWords.UUID_LOW] = uuid & (1 << _HALF) - 1
    start = (first + DeviceNoteWords.TEXT) * WORD
    kept = text.encode()[:NOTE_BYTES]
    segment.memory[start : start + NOTE_BYTES + 1] = kept.ljust(NOTE_BYTES + 1, b"\0")


def read(segment: Segment, worker: int) -> str:
    """Return the note of a worker; empty if its batches have no way of their own to a device."""
    start = (segment.layout.device_note(worker) + DeviceNoteWords.TEXT) * WORD
    text = bytes(segment.memory[start : start + NOTE_BYTES])
    return text.partition(b"\0")[0].decode(errors="ignore")


def read_uuid(segment: Segment, worker: int) -> int:
    """Return the UUID of a worker's CUDA device; 0 without one."""
    first, words = segment.layout.device_note(worker), segment.words
    high = words[first + DeviceNoteWords.UUID_HIGH]
    return high << _HALF | words[first + DeviceNoteWords.UUID_LOW]
