"""Loggers that a model or an application does not silence when it configures `logging`.

`dictConfig` disables the loggers that it does not name, `basicConfig(force=True)` takes the root
logger's handlers away, and `logging.disable` stops all. A program does so for its own lines. In a
process that has called `keep`, ringbatch's loggers do not ask the other ones.
"""

import logging
from typing import Any, ClassVar, Final

NAMES: Final = tuple(
    f"ringbatch.{role}" for role in ("control", "frontend", "process", "supervisor", "worker")
)


class OwnLogger(logging.Logger):
    """A logger with a handler and a level that only ringbatch sets."""

    _sink: ClassVar[logging.Handler]
    _least: ClassVar[int]

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802
        """Return whether records of that level are logged."""
        return level >= self._least

    def handle(self, record: logging.LogRecord) -> None:
        """Write a record."""
        self._sink.handle(record)

    def makeRecord(  # noqa: N802
        self,
        name: str,
        level: int,
        fn: str,
        lno: int,
        msg: object,
        args: Any,
        exc_info: Any,
        func: str | None = None,
        extra: Any = None,
        sinfo: str | None = None,
    ) -> logging.LogRecord:
        """Make a record, by no factory but `logging`'s own."""
        return logging.LogRecord(name, level, fn, lno, msg, args, exc_info, func, sinfo)


def keep(sink: logging.Handler, level: int) -> None:
    """Have ringbatch's loggers write to a handler from now on.

    Args:
        sink: the handler; nobody else has it.
        level: the least severe level that is logged.
    """
    OwnLogger._sink, OwnLogger._least = sink, level
    for name in NAMES:
        # Modules hold the loggers already.
        logging.getLogger(name).__class__ = OwnLogger
