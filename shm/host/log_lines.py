"""Form of log lines, the same for every process of an engine.

As text, a line is for people; the name of the logger precedes lines of models and libraries.
A traceback stands below its line, indented, so that only the server's messages begin a line.
As JSON it is an object with `time`, `level`, `role`, `pid` and `message`, and the fields of a line
about a request. `logger` names another logger than the server's, `traceback` is there if one is. If
the journal takes the lines, each begins with its priority, as systemd reads it.
"""

import json
import logging
import os
import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal

from ringbatch.shm.host.logfmt import as_words

Form = Literal["text", "json"]
FORM_VARIABLE: Final = "RINGBATCH_LOG_FORMAT"
"""Environment variable with the `Form` of the log, for all processes of an engine."""
_JOURNAL_VARIABLE: Final = "JOURNAL_STREAM"
_PRIORITIES: Final = (
    (logging.CRITICAL, 2),
    (logging.ERROR, 3),
    (logging.WARNING, 4),
    (logging.INFO, 6),
)
_DEBUG: Final = 7
_OF_THE_SERVER: Final = ("ringbatch", "root", "gunicorn", "uvicorn")
_SOURCE: Final = "ringbatch_source"
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
"""Characters that move a terminal's cursor, or end a line for some readers; without tab, and LF,
which has its own place."""
_LONGEST: Final = 1 << 16
"""Characters of a message, or of a traceback, that a line has at most."""
_LAST: Final = 1 << 12
"""Characters of the end of a longer text that are kept; a traceback ends with the error."""
_BELOW: Final = "\n  "
"""Begin of each line of a traceback, which may hold a client's text."""


class LineFormatter(logging.Formatter):
    """Makes lines.

    Args:
        role: of this process.
        form: of the lines.
        journal: whether they begin with a priority.
    """

    def __init__(self, role: str, form: Form = "text", *, journal: bool = False) -> None:
        super().__init__(
            f"%(asctime)s ringbatch {role} [%(process)d] %(levelname)s %({_SOURCE})s%(message)s"
        )
        self._role = role
        self._form = form
        self._journal = journal
        self._second, self._second_text = -1, ""
        """The last of which a line was made, and how it is written."""

    def format(self, record: logging.LogRecord) -> str:
        """As `logging` asks for it."""
        text = self._as_json(record) if self._form == "json" else self._as_text(record)
        if not self._journal:
            return text
        mark = f"<{priority(record.levelno)}>"
        return "\n".join(mark + line for line in text.split("\n"))

    def line(self, time_s: float, level: int, message: str, fields: Mapping[str, Any]) -> str:
        """Return a line of the server's own with fields, twice as fast as from a log record.

        Args:
            time_s: when, in seconds since 1970.
            level: as `logging` has it.
            message: in visible characters of ASCII.
            fields: the rest, by name.
        """
        name = logging.getLevelName(level)
        if self._form == "json":
            text = _json({**self._document(time_s, name, os.getpid(), message), **fields})
        else:
            words = f" {as_words(fields)}" if fields else ""
            head = f"{self._clock_time(time_s)} ringbatch {self._role} [{os.getpid()}]"
            text = f"{head} {name} {message}{words}"
        return f"<{priority(level)}>{text}" if self._journal else text

    def _clock_time(self, time_s: float) -> str:
        """As `logging` writes it; of each second once."""
        second = int(time_s)
        if second != self._second:
            self._second = second
            self._second_text = time.strftime(self.default_time_format, time.localtime(second))
        return f"{self._second_text},{int(time_s % 1 * 1000):03d}"

    def _as_text(self, record: logging.LogRecord) -> str:
        source = _source(record.name)
        setattr(record, _SOURCE, f"{source}: " if source else "")
        # A model may have `logging` leave that out.
        record.process = os.getpid()
        return _CONTROL.sub(_escaped, super().format(record).replace("\n", _BELOW))

    def formatException(self, ei: Any) -> str:  # noqa: N802
        """Return the text of an exception as `logging` asks for it; long texts are shortened."""
        return _shortened(super().formatException(ei))

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """Return the line of a record; one line, even if a client's text has several."""
        text = super().formatMessage(record)
        # Some libraries end what they say with a line feed of their own.
        return _shortened(text.removesuffix("\n")).replace("\n", r"\x0a")

    def _as_json(self, record: logging.LogRecord) -> str:
        document = self._document(
            record.created, record.levelname, os.getpid(), record.getMessage()
        )
        if source := _source(record.name):
            document["logger"] = source
        if record.exc_info and not record.exc_text:
            record.exc_text = self.formatException(record.exc_info)
        if record.exc_text:
            document["traceback"] = record.exc_text
        return _json(document)

    def _document(self, time_s: float, level: str, pid: int, message: str) -> dict[str, Any]:
        return {
            "time": _instant(time_s),
            "level": level.lower(),
            "role": self._role,
            "pid": pid,
            "message": _shortened(message),
        }


def _shortened(text: str) -> str:
    """Return a text without its middle if it is long."""
    left_out = len(text) - _LONGEST
    if left_out <= 0:
        return text
    first = text[: _LONGEST - _LAST]
    return f"{first} ... {left_out} characters are left out ... {text[-_LAST:]}"


def _source(name: str) -> str:
    """Return the name of a logger that is not the server's; empty for the server's own."""
    return "" if name.partition(".")[0] in _OF_THE_SERVER else name


# Half of a surrogate pair, which UTF-8 does not have, is an escape of ASCII.
_json: Final = json.JSONEncoder(ensure_ascii=True, default=str).encode


def _instant(time_s: float) -> str:
    """Return the time in UTC, to the millisecond."""
    return datetime.fromtimestamp(time_s, UTC).isoformat(timespec="milliseconds")


def _escaped(found: re.Match[str]) -> str:
    return f"\\x{ord(found[0]):02x}"


def priority(level: int) -> int:
    """Return the syslog priority of a level of `logging`."""
    return next((number for least, number in _PRIORITIES if level >= least), _DEBUG)


def is_journal(environment: Mapping[str, str], descriptor: int) -> bool:
    """Return whether a descriptor is connected to systemd's journal."""
    device, _, inode = environment.get(_JOURNAL_VARIABLE, "").partition(":")
    try:
        found = os.fstat(descriptor)
    except OSError:
        return False
    return (device, inode) == (str(found.st_dev), str(found.st_ino))


def formatter(role: str, environment: Mapping[str, str], descriptor: int) -> LineFormatter:
    """Return the formatter of a role's lines for a descriptor."""
    form: Form = "json" if environment.get(FORM_VARIABLE) == "json" else "text"
    return LineFormatter(role, form, journal=is_journal(environment, descriptor))
