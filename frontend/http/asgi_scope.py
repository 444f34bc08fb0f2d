"""Keys of ringbatch's own in ASGI scopes, and the exchanges of a connection.

Connections, and the applications that they serve, know each other by these keys alone.
"""

from collections.abc import Callable
from typing import Final, Protocol

EXCHANGES: Final = "ringbatch.exchanges"
"""Key of the `Exchanges` of the connection, or of the stream."""
WHOLE: Final = "ringbatch.whole"
"""Key of a bool: True if the end of the body has come, which a reader of chunks cannot tell."""
BEGAN: Final = "ringbatch.began_ns"
"""Key of the instant in nanoseconds at which the first byte of the request came."""
ENDING: Final = "ringbatch.ending"
"""Key of the request's `RequestOutcome`, once there is one."""
IN_PARTS: Final = "ringbatch.in_parts"
"""Key of a function that ends a request whose answer goes out in parts. Its `RequestOutcome` is
there once the answer has ended, at the latest behind that call."""
QUERIED: Final = "ringbatch.queried"
"""Key of a function that takes the body for which a query stands; it is there if a payload log
keeps the request."""
OUTLET: Final = "ringbatch.outlet"
"""Key of the `PieceOutlet` of the answer. Only streams have one."""
FORMS: Final = "ringbatch.forms"
"""Key of a dict in which the application keeps the forms of the parts that pass over the
connection. It lasts as long as the connection."""
REFUSED: Final = "ringbatch.refused"
"""Key of a bool: True if the connection has refused the request before its body was whole."""
NOTHING_YET: Final = {"type": "http.request", "body": b"", "more_body": True}
"""The message to an application while nothing of the body has come."""


class PieceOutlet(Protocol):
    """Outlet of the further pieces of an answer, past the application.

    Attributes:
        sent_bytes: of the pieces that have passed.
    """

    sent_bytes: int

    def takes(self, size: int) -> bool:
        """Return whether the stream has room for a piece of that size, and no other waits."""

    def send(self, piece: bytes) -> bool:
        """Send a piece, unless others wait for the client; return whether it is sent."""


class Exchange(Protocol):
    """A request that is being served."""

    def gone(self) -> None:
        """Note that the client has closed the connection."""


class Exchanges(set[Exchange]):
    """The exchanges of one connection, or of one stream.

    Attributes:
        gone: whether their client has left.
        stalled_s: returns for how many seconds the client has taken nothing, though bytes wait.
    """

    gone = False
    stalled_s: Callable[[], int] = staticmethod(lambda: 0)

    def end(self) -> None:
        """Tell all exchanges that the client has left."""
        self.gone = True
        for exchange in list(self):
            exchange.gone()
