"""A loop whose clock stands still until a test moves it."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Event loop with a clock that is set by hand."""

    now_s = 0.0

    def time(self) -> float:
        """See `asyncio.AbstractEventLoop.time`."""
        return self.now_s


def in_virtual_time(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Run the coroutine to its end."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(coroutine)
