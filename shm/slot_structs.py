"""Runs of a slot's words as structures: each is stored or loaded in one call."""

from struct import Struct
from typing import Final

REQUEST_HEADER: Final = Struct("@10Q")
"""Words of a slot from MODEL to ACCOUNT, which the owner stores before CONTROL."""
REQUEST_SIZES: Final = Struct("@5Q")
"""Words of a header from MODEL to RESULT_CAPACITY, which similar requests have in common."""
SIZES_AND_OFFSETS: Final = Struct(f"@{REQUEST_SIZES.size}s2Q")
"""Words of a header from MODEL to RESULT_OFFSET, the sizes in one piece."""
ANSWER_DETAILS: Final = Struct("@10Q")
"""Words of a slot from RESULT_BYTES to FINISHED_NS, which the holder stores before DONE."""
PACKED_DETAILS: Final = Struct(f"{ANSWER_DETAILS.size}s")
"""Words of ANSWER_DETAILS in one piece."""
OUTCOME: Final = Struct("@3Q")
"""Words of a slot from DONE to BATCH: the outcome."""
OUTCOME_DETAILS: Final = Struct("@24x8Q")
"""Words of a slot from BATCH_ROWS to FINISHED_NS, behind the outcome; unpacked from DONE on."""
FIRST_INSTANTS: Final = Struct("@3Q")
"""Words of a slot from DISPATCHED_NS to GATHERED_NS."""
BATCH_DETAILS: Final = Struct("@4Q")
"""Words of a slot from RESULT_BYTES to REASON."""
LAST_DETAILS: Final = Struct("@3Q")
"""Words of a slot from RAN_NS to FINISHED_NS."""
PACKED_INSTANTS: Final = Struct("24s")
PACKED_BATCH: Final = Struct("32s")
