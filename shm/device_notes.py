"""Notes of workers on their devices, in the segment: a sentence for `ringbatch models`."""

from typing import Final

from ringbatch.shm.device_words import DeviceNoteWords
from ringbatch.shm.layout import WORD
from ringbatch.shm.segment import Segment

NOTE_BYTES: Final = DeviceNoteWords.SIZE * WORD - 1
"""Of UTF-8; the rest of a longer note is cut off."""


def write(segment: Segment, worker: int, text: str) -> None:
    """Put down the note of a worker in place of that of the worker before it."""
    start = segment.layout.device_note(worker) * WORD
    kept = text.encode()[:NOTE_BYTES]
    segment.memory[start : start + NOTE_BYTES + 1] = kept.ljust(NOTE_BYTES + 1, b"\0")


def read(segment: Segment, worker: int) -> str:
    """Return the note of a worker; empty if its model is on no device."""
    start = segment.layout.device_note(worker) * WORD
    text = bytes(segment.memory[start : start + NOTE_BYTES])
    return text.partition(b"\0")[0].decode(errors="ignore")
