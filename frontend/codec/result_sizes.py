"""Result memory that a request claims for its answer.

If the signature does not fix an answer's size, experience decides: the sizes of recent answers to
requests of about the same size. A claim covers nearly all of them and not the largest of all, so
that one rare large answer takes no memory from thousands of others. Such an answer finds too little
memory and says how much it needs, and its request is sent once more. If memory is short, a claim
covers half.
"""

from collections.abc import Callable
from typing import Final

from ringbatch.shm.chain import Chain

MIN_RESULT_BYTES: Final = 512
"""So that the words of an error fit."""
FIRST_RESULT_BYTES: Final = 4096
"""Beyond the size of the request, if the size of results is not known beforehand."""
_REMEMBERED: Final = 256
"""So many answers count; when they are reached, each counts half."""
_REVIEW: Final = 32
"""Answers that fitted, or fewer after the first, until the history looks at whether they
need as much."""
_RARE_SHARE: Final = 64
"""Rarity of answers that are larger than the memory claimed for them: one in this number."""
_DIGITS: Final = 4
"""Binary digits of a size that count, so that answers of nearly one size claim the same, and slots
can keep their memory."""

_KIB_BITS: Final = 10


class SizeHistory:
    """Sizes of recent answers.

    Attributes:
        likely: bytes that nearly all of them took at most; of few, all but the largest.
        usual: bytes that half of them took at most.
    """

    __slots__ = ("_counts", "_due", "_recent", "likely", "usual")

    def __init__(self) -> None:
        self._recent: list[int] = []
        """Answers that are not counted yet."""
        self._counts: dict[int, int] = {}
        """Number of answers by their size, rounded up."""
        self._due = 1
        self.likely = 0
        self.usual = 0

    def add(self, size: int) -> None:
        """Record the size of an answer."""
        recent = self._recent
        recent.append(size)
        if size > self.likely or len(recent) >= self._due:
            self._review()

    def _review(self) -> None:
        for size in self._recent:
            shift = max(size.bit_length() - _DIGITS, 0)
            rounded = -(-size >> shift) << shift
            self._counts[rounded] = self._counts.get(rounded, 0) + 1
        self._recent.clear()
        total = sum(self._counts.values())
        if total >= _REMEMBERED:
            self._counts = {size: half for size, n in self._counts.items() if (half := n >> 1)}
            total = sum(self._counts.values())
        self.likely = self._exceeded_by(max(total // _RARE_SHARE, 1))
        self.usual = self._exceeded_by(max(total // 2, 1))
        self._due = min(total, _REVIEW)

    def _exceeded_by(self, most: int) -> int:
        """Return the least size that no more than so many answers exceed."""
        larger = 0
        for size in sorted(self._counts, reverse=True):
            larger += self._counts[size]
            if larger > most:
                return size
        return 0


class ResultSizes:
    """Result memory to claim for answers of one model.

    Attributes:
        sized: True if the signature fixes an answer's size.
        chained: True if kept tensors precede the answer, see `Lane.answer_start`.

    Args:
        exact: the bytes of an answer of so many rows; None if the model decides that.
        chain: the model's steps, if it is a chain; their kept tensors precede the answer.
    """

    def __init__(self, exact: Callable[[int], int | None], chain: Chain | None = None) -> None:
        self.chained = chain is not None
        self.sized = exact(1) is not None and (chain is None or chain.static)
        self._exact = exact
        self._chain = chain
        self._exact_bytes: dict[int, int] = {}
        self._seen: dict[int, SizeHistory] = {}
        """Histories by the binary digits of a request's size in KiB."""

    def result_bytes(self, rows: int, request_bytes: int) -> int:
        """Return the bytes to claim for an answer: exact by the signature, else by experience."""
        size = self._exact_bytes.get(rows)
        if size is not None:
            return size
        exact = self._exact(rows) if self.sized else None
        if exact is None:
            seen = self._seen.get((request_bytes >> _KIB_BITS).bit_length())
            first = FIRST_RESULT_BYTES + request_bytes
            return first if seen is None else max(first, seen.likely)
        # A request's rows are at most those of a batch, so there are few of them.
        size = max(exact, MIN_RESULT_BYTES)
        if self._chain is not None:
            size += self._chain.kept_bytes(rows)
        self._exact_bytes[rows] = size
        return size

    def usual_bytes(self, rows: int, request_bytes: int) -> int:
        """Return the bytes to claim if memory is short: half of the answers need more."""
        seen = None if self.sized else self._seen.get((request_bytes >> _KIB_BITS).bit_length())
        if seen is None:
            return self.result_bytes(rows, request_bytes)
        return max(FIRST_RESULT_BYTES, seen.usual)

    def least_bytes(self, rows: int, request_bytes: int) -> int:
        """Return the bytes to claim for a request that hardly finds memory itself."""
        return self.result_bytes(rows, request_bytes) if self.sized else FIRST_RESULT_BYTES

    def learn(self, request_bytes: int, size: int) -> None:
        """Remember how large the answer to such a request was; of models that are not `sized`."""
        kind = (request_bytes >> _KIB_BITS).bit_length()
        seen = self._seen.get(kind)
        if seen is None:
            seen = self._seen[kind] = SizeHistory()
        seen.add(size)


def again(result_bytes: int) -> int:
    """Return the bytes to claim for a request that is sent again because its answer took so many.

    It is a little more, as a model that runs again may answer a little more.
    """
    return result_bytes + (result_bytes >> 4)
