"""TCP ports of 127.0.0.1 for tests: free ones, and another one each time."""

import random
import socket
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Final

PORTS: Final = range(10_000, 32_000)
"""Linux takes ports above for outgoing connections, and for servers that leave the choice to it.
So no other socket gets such a port before its server does. And a client that connects to it while
nobody listens never meets itself."""


class FreePorts:
    """Ports that no other test process of this machine gets.

    Args:
        draw: returns a port that may be in use; a random one by default.
    """

    def __init__(self, draw: Callable[[], int] | None = None) -> None:
        self._draw = draw or partial(random.SystemRandom().choice, PORTS)
        self._marks = ExitStack()

    def __call__(self) -> int:
        """Return a free port."""
        while not self._take(port := self._draw()):
            pass
        return port

    def close(self) -> None:
        """Leave the ports to others."""
        self._marks.close()

    def _take(self, port: int) -> bool:
        mark = self._marks.enter_context(socket.socket(socket.AF_UNIX))
        with socket.socket() as probe:
            try:
                # Each network namespace has one such name, as it has one such port.
                mark.bind(f"\0ringbatch-test-port-{port}")
                probe.bind(("127.0.0.1", port))
            except OSError:
                mark.close()
                return False
        return True
