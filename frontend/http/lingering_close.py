"""Lingering close of a connection with unread input.

To close one with bytes unread would reset it, and the client might lose the answer that it has not
read yet (RFC 9112, section 9.6). So the connection stays for a moment, in which what comes is
dropped, until the client hangs up.
"""

import asyncio
from typing import Final

LINGER_S: Final = 2.0
"""Time for a client to hang up."""


def linger(transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
    """Close a connection whose last answer is written; its protocol drops what still comes."""
    if not transport.can_write_eof():
        # Over TLS both directions end together, by a hand-shake before which the rest is read.
        transport.close()
        return
    if not transport.is_reading():
        transport.resume_reading()
    transport.write_eof()
    loop.call_later(LINGER_S, transport.close)
