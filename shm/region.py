"""Region of a client's shared memory, and the words that describe it in the registry. Pure.

A region is a stretch of a POSIX shared memory object that a client made and registered under a
name of its choosing; the words `region` and `key` are those of Triton's system shared memory
extension. Device and inode tell the object from another that takes its key later.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from ringbatch.shm.layout import MAX_BYTES, WORD, aligned
from ringbatch.shm.region_words import RegionWords

MAX_NAME_BYTES: Final = 255
MAX_KEY_BYTES: Final = 256
"""Longest name of a file system, and a slash."""
FIELDS: Final = RegionWords.TEXT - RegionWords.OFFSET
"""Words between the stamp and the text of a record."""

assert RegionWords.TEXT + aligned(MAX_NAME_BYTES + MAX_KEY_BYTES, WORD) // WORD <= RegionWords.SIZE


class Region(NamedTuple):
    """Region of clients' memory.

    Attributes:
        name: as requests call it.
        key: of the object, as the client wrote it.
        offset: of its start in the object, in bytes.
        size: its bytes.
        device, inode: the object's.
    """

    name: str
    key: str
    offset: int
    size: int
    device: int
    inode: int


def encode(region: Region) -> list[int]:
    """Return the words of a region behind its stamp.

    Args:
        region: name and key within their limits, numbers of up to 64 bits.
    """
    name, key = region.name.encode(), region.key.encode()
    assert len(name) <= MAX_NAME_BYTES
    assert len(key) <= MAX_KEY_BYTES
    text = name + key
    padded = memoryview(text.ljust(aligned(len(text), WORD), b"\0"))
    fields = (region.offset, region.size, region.device, region.inode, len(name), len(key))
    return [*fields, *padded.cast("Q")]


def text_words(fields: Sequence[int]) -> int:
    """Return how many words of text follow these fields; 0 if they make no sense."""
    offset, size, _, _, name_bytes, key_bytes = fields
    sound = (
        0 < name_bytes <= MAX_NAME_BYTES
        and 0 < key_bytes <= MAX_KEY_BYTES
        and 0 < size <= MAX_BYTES
        and offset <= MAX_BYTES
    )
    return aligned(name_bytes + key_bytes, WORD) // WORD if sound else 0


def decode(fields: Sequence[int], text: Sequence[int]) -> Region | None:
    """Return the region of these words; None if they make no sense.

    Args:
        fields: `FIELDS` words.
        text: as many words as `text_words` says.
    """
    offset, size, device, inode, name_bytes, key_bytes = fields
    data = b"".join(word.to_bytes(WORD, "little") for word in text)
    try:
        name = data[:name_bytes].decode()
        key = data[name_bytes : name_bytes + key_bytes].decode()
    except UnicodeDecodeError:
        return None
    return Region(name, key, offset, size, device, inode)
