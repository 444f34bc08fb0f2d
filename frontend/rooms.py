"""How much result memory a request claims for its answer."""

from collections.abc import Callable
from typing import Final

MIN_RESULT_BYTES: Final = 512
"""So that the words of an error have room."""
FIRST_RESULT_BYTES: Final = 4096
"""Beyond the size of the request, where the size of results is not known beforehand."""
_FORGETTING: Final = 10
"""An unusually large result stops counting after some 2**10 others."""


class Rooms:
    """The room for answers of one model.

    Attributes:
        sized: whether the signature says how large an answer is.

    Args:
        exact: the bytes of an answer of so many rows; None where the model decides that.
    """

    def __init__(self, exact: Callable[[int], int | None]) -> None:
        self.sized = exact(1) is not None
        self._exact = exact
        self._largest = 0
        self._rooms: dict[int, int] = {}

    def result_bytes(self, rows: int, request_bytes: int) -> int:
        """The room to claim for an answer: exact where the signature says, else by experience."""
        room = self._rooms.get(rows)
        if room is not None:
            return room
        exact = self._exact(rows) if self.sized else None
        if exact is None:
            return max(FIRST_RESULT_BYTES + request_bytes, self._largest)
        # A request's rows are at most those of a batch, so there are few of them.
        room = self._rooms[rows] = max(exact, MIN_RESULT_BYTES)
        return room

    def learn(self, size: int) -> None:
        """Remember how large an answer was, and slowly forget larger ones."""
        self._largest = max(size + (size >> 2), self._largest - (self._largest >> _FORGETTING))


def again(result_bytes: int) -> int:
    """The room for a request that is sent again, because its answer took that much: a little more,
    as a model that is run again may answer a little more."""
    return result_bytes + (result_bytes >> 4)
