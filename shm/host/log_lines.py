"""What a line of the log looks like: one form for every process of an engine.

As text, a line is for people; what a model or a library logs has the name of its logger in front.
A traceback stands below its line, indented: only what the server says begins a line.
As JSON it is an object, with `time`, `level`, `role`, `pid`, `message`, `logger` where it is not
the server's, `traceback` where there is one, and whatever fields a message has of its own. Where
the journal takes the lines, each begins with its priority, as systemd reads it.
"""

import json
import logging
import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal

Form = Literal["text", "json"]
FORM_VARIABLE: Final = "RINGBATCH_LOG_FORMAT"
"""In the environment, for all processes of an engine: the `Form`."""
FIELDS: Final = "ringbatch_fields"
"""The attribute of a record with its fields, a dictionary."""

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
"""What would move a terminal's cursor, or end a line for some readers; not tab, and LF is seen to
apart."""
_BELOW: Final = "\n  "
"""What stands before each line of a traceback, which may hold what a client has sent."""
_PLAIN: Final = re.compile(r"[!#-<>-~]+")
"""A value that needs no quotes: neither blanks, nor quotes, nor another ``=``."""


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

    def format(self, record: logging.LogRecord) -> str:
        """As `logging` asks for it."""
        text = self._as_json(record) if self._form == "json" else self._as_text(record)
        if not self._journal:
            return text
        mark = f"<{priority(record.levelno)}>"
        return "\n".join(mark + line for line in text.split("\n"))

    def _as_text(self, record: logging.LogRecord) -> str:
        source = _source(record.name)
        setattr(record, _SOURCE, f"{source}: " if source else "")
        return _CONTROL.sub(_escaped, super().format(record).replace("\n", _BELOW))

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """The line itself, as the base class asks for it: one, whatever a client has sent."""
        text = super().formatMessage(record)
        fields = getattr(record, FIELDS, None)
        if fields:
            text = f"{text} {as_words(fields)}"
        # Some libraries end what they say with a line feed of their own.
        return text.removesuffix("\n").replace("\n", r"\x0a")

    def _as_json(self, record: logging.LogRecord) -> str:
        document = {
            "time": _instant(record),
            "level": record.levelname.lower(),
            "role": self._role,
            "pid": record.process,
            "message": record.getMessage(),
        }
        if source := _source(record.name):
            document["logger"] = source
        if record.exc_info and not record.exc_text:
            record.exc_text = self.formatException(record.exc_info)
        if record.exc_text:
            document["traceback"] = record.exc_text
        document |= getattr(record, FIELDS, {})
        # Half of a surrogate pair, which UTF-8 does not have, is an escape of ASCII.
        return json.dumps(document, ensure_ascii=True, default=str)


def _source(name: str) -> str:
    """Of a logger that is not of the server, its name; of others nothing."""
    return "" if name.partition(".")[0] in _OF_THE_SERVER else name


def _instant(record: logging.LogRecord) -> str:
    """In UTC, to the millisecond."""
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def _escaped(found: re.Match[str]) -> str:
    return f"\\x{ord(found[0]):02x}"


def as_words(fields: Mapping[str, Any]) -> str:
    """Fields as ``name=value``; what has other than visible characters of ASCII is quoted."""
    return " ".join(f"{name}={_word(value)}" for name, value in fields.items())


def _word(value: object) -> str:
    text = f"{value:.3f}" if isinstance(value, float) else str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text)


def priority(level: int) -> int:
    """Of a level of `logging`, as syslog has it."""
    return next((number for least, number in _PRIORITIES if level >= least), _DEBUG)


def is_journal(environment: Mapping[str, str], descriptor: int) -> bool:
    """Whether what is written to a descriptor goes to systemd's journal."""
    device, _, inode = environment.get(_JOURNAL_VARIABLE, "").partition(":")
    try:
        found = os.fstat(descriptor)
    except OSError:
        return False
    return (device, inode) == (str(found.st_dev), str(found.st_ino))


def formatter(role: str, environment: Mapping[str, str], descriptor: int) -> LineFormatter:
    """What makes the lines of a role that are written to a descriptor."""
    form: Form = "json" if environment.get(FORM_VARIABLE) == "json" else "text"
    return LineFormatter(role, form, journal=is_journal(environment, descriptor))
