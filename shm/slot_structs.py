"""Runs of a slot's words as structures: each is stored or loaded in one call."""

from struct import Struct
from typing import Final

REQUEST_HEADER: Final = Struct("@10Q")
"""Of a slot, MODEL to ACCOUNT: what the owner stores before CONTROL."""
REQUEST_SIZES: Final = Struct("@5Q")
"""Of a header, MODEL to RESULT_CAPACITY: what requests that are alike have in common."""
SIZES_AND_OFFSETS: Final = Struct(f"@{REQUEST_SIZES.size}s2Q")
"""Of a header, MODEL to RESULT_OFFSET, the sizes in one piece."""
ANSWER_DETAILS: Final = Struct("@10Q")
"""Of a slot, RESULT_BYTES to FINISHED_NS: what the holder stores before DONE."""
PACKED_DETAILS: Final = Struct(f"{ANSWER_DETAILS.size}s")
"""The same in one piece."""
OUTCOME: Final = Struct("@3Q")
"""Of a slot, DONE to BATCH."""
OUTCOME_DETAILS: Final = Struct("@24x8Q")
"""Of a slot from DONE on, what is behind an outcome: BATCH_ROWS to FINISHED_NS."""
FIRST_INSTANTS: Final = Struct("@3Q")
"""Of a slot, DISPATCHED_NS to GATHERED_NS."""
BATCH_DETAILS: Final = Struct("@4Q")
"""Of a slot, RESULT_BYTES to REASON."""
LAST_DETAILS: Final = Struct("@3Q")
"""Of a slot, RAN_NS to FINISHED_NS."""
PACKED_INSTANTS: Final = Struct("24s")
PACKED_BATCH: Final = Struct("32s")
