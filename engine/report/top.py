"""``ringbatch top``: live figures of an engine in the terminal, until the user quits."""

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TextIO

from ringbatch.engine.report.frame import Line, page
from ringbatch.engine.report.gpus import look
from ringbatch.shm.engines import attached
from ringbatch.shm.errors import StartupError
from ringbatch.shm.segment import Segment
from ringbatch.shm.snapshot.sample import Sample, sample

_ENTER: Final = "\x1b[?1049h\x1b[?25l"
"""Another screen, without a cursor."""
_LEAVE: Final = "\x1b[?25h\x1b[?1049l"
_HOME: Final = "\x1b[H"
_HEADING: Final = "\x1b[7m{}\x1b[0m"
_TO_THE_END: Final = "\x1b[K"
_BELOW: Final = "\x1b[J"
_QUIT: Final = b"qQ\x03"


def main(engine: str | int | None, *, interval_s: float, once: bool) -> int:
    """Show one engine; the exit status.

    Args:
        engine: its name, or the process id of its supervisor; None for the only one. Of a name, the
            next engine that has it is shown once this one is gone.
        interval_s: seconds from one look to the next.
        once: whether to print what happens in the first interval, and no more.

    Raises:
        StartupError: there is no such engine, or there are several.
    """
    first = _look(engine)
    if once or not (sys.stdin.isatty() and sys.stdout.isatty()):
        time.sleep(interval_s)
        for line in page(first, _look(engine), _width(sys.stdout)):
            sys.stdout.write(f"{line.text}\n")
        return 0
    with _screen(sys.stdout):
        _show(engine, first, interval_s)
    return 0


def _show(engine: str | int | None, first: Sample, interval_s: float) -> None:
    before, now = first, first
    lines = page(None, now, *os.get_terminal_size(sys.stdout.fileno()))
    while True:
        _draw(sys.stdout, lines)
        if _ends_on_request(sys.stdin, interval_s):
            return
        size = os.get_terminal_size(sys.stdout.fileno())
        try:
            before, now = now, _look(engine)
        except StartupError as gone:
            lines = [
                Line(f"ringbatch: {gone}"[: size.columns], heading=True),
                *page(None, now, size.columns, max(size.lines - 1, 1))[1:],
            ]
            continue
        lines = page(before, now, *size)


def _look(engine: str | int | None) -> Sample:
    segment = attached(engine, Segment.attach)
    try:
        return sample(segment, time.monotonic_ns(), look)
    finally:
        segment.detach()


def _draw(out: TextIO, lines: Sequence[Line]) -> None:
    shown = [_HEADING.format(line.text) if line.heading else line.text for line in lines]
    out.write(_HOME + f"{_TO_THE_END}\r\n".join(shown) + _TO_THE_END + _BELOW)
    out.flush()


def _ends_on_request(source: TextIO, limit_s: float) -> bool:
    """Return whether q is typed, or the terminal is gone, within that time."""
    until_s = time.monotonic() + limit_s
    while (left_s := until_s - time.monotonic()) > 0:
        if select.select([source], [], [], left_s)[0]:
            typed = os.read(source.fileno(), 64)
            if not typed or any(key in _QUIT for key in typed):
                return True
    return False


@contextmanager
def _screen(out: TextIO) -> Iterator[None]:
    """Switch to a screen of its own, and to keys that come as they are typed."""
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    tty.setcbreak(fd)
    try:
        out.write(_ENTER)
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
        out.write(_LEAVE)
        out.flush()


def _width(out: TextIO) -> int:
    try:
        return os.get_terminal_size(out.fileno()).columns
    except OSError:
        return 1000
