"""Flood protection: the budget of a connection for frames that lead to no response.

Each frame that costs its sender little and asks nothing of the server is paid for: pings,
settings, windows, resets, empty pieces, heads that are too long. Each served request earns the
frames of this kind that it takes, and each second earns a few more, so no honest client ever runs
out. A client that has spent its budget is an attacker, with any of these frames. Pure.
"""

from typing import Final

from ringbatch.frontend.http2.frames import ENHANCE_YOUR_CALM, ConnectionFault

MOST: Final = 10_000
"""Budget of a new connection, which is also the most that it can have."""
EACH_SECOND: Final = 1_000
FRAME: Final = 1
"""Price of a frame that leads to nothing."""
STREAM: Final = 5
"""Price of a call that its client takes back, or that is refused."""
FIELD: Final = 6
"""Price of each field of a header block beyond `FREE_FIELDS`: it takes as long as so many
frames."""
FREE_FIELDS: Final = 256
"""Fields of a block that cost nothing; over HTTP a request with more is refused."""
LIST_BYTES: Final = 1 << 6
"""Bytes of fields beyond `FREE_LIST_BYTES` that cost one: a few bytes can stand for a large field
of the header table, which costs its sender nothing."""
FREE_LIST_BYTES: Final = 1 << 14
"""Size of a request's fields that costs nothing; browsers send at most this."""
MOST_PACKED: Final = 2
"""So many times its bytes in a block a value has at the most, by Huffman's code. Long cookies have
no room in the header table, so a proxy sends of them about what they count, and pays nothing."""
STREAMS: Final = 8
"""Streams that a frame may look at for its price; more of them cost more."""
ANSWER: Final = 8
"""Gain of an answer: a client may send a window and a ping with each of its frames, or take every
other call back."""
SENT: Final = 3
"""Gain of each frame of an answer."""


class FloodBudget:
    """Rest of the budget for one connection.

    Attributes:
        left: price units that the connection can still spend.
    """

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = MOST

    def spend(self, cost: int) -> None:
        """Count something that leads to nothing.

        Raises:
            ConnectionFault: it was too much.
        """
        self.left -= cost
        if self.left < 0:
            raise ConnectionFault(ENHANCE_YOUR_CALM, "too many frames that lead to nothing")

    def earn(self, gain: int) -> None:
        """Count something that was done for the client, or a second that has passed."""
        self.left = min(MOST, self.left + gain)
