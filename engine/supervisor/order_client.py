"""Client of an engine's control socket: gives an order, and waits while the supervisor answers.

To carry an order out may take minutes, because models load. A supervisor that is stopped or hangs
would make the client wait for ever. So once the report is late, the client looks whether the
supervisor answers at all: it sends an empty line, which is no order, on a connection of its own.
"""

import socket
from collections.abc import Callable
from typing import Final

from ringbatch.shm.engines import starts
from ringbatch.shm.errors import StartupError
from ringbatch.shm.host.control_socket import (
    MAX_LINE_BYTES,
    Order,
    Report,
    order_line,
    read_report,
    socket_path,
)
from ringbatch.shm.process_state import is_stopped, stopped_words
from ringbatch.shm.shm_objects import engine_and_pid

LATE_S: Final = 3.0
"""Time after which a report is late, and after which the client looks again."""
ANSWER_S: Final = 3.0
"""Time for the answer to an empty line."""
_SILENT_LOOKS: Final = 5
"""Looks in a row that find the supervisor silent, after which the client gives up."""

Tell = Callable[[str], None]


def ask(segment_name: str, order: Order, tell: Tell) -> Report:
    """Give an engine an order, and wait until it is carried out.

    Args:
        segment_name: of the engine's segment.
        order: for the engine.
        tell: called with words for the caller's user, if the wait becomes long.

    Raises:
        StartupError: no engine takes it, it ended before its report, or its supervisor does not
            answer.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(LATE_S)
        try:
            connection.connect(socket_path(segment_name))
            connection.sendall(order_line(order))
            line = _report_line(connection, segment_name, tell)
        except BlockingIOError:
            raise StartupError("the engine takes no orders: too many wait already") from None
        except OSError as error:
            why = refusal_reason(segment_name, error)
            raise StartupError(f"the engine takes no orders: {why}") from None
    report = read_report(line)
    if report is None:
        raise StartupError("the engine ended before it was done")
    return report


def _report_line(connection: socket.socket, segment_name: str, tell: Tell) -> bytes:
    """Wait for the line of a report, and return it, or what came of it before the engine ended.

    Raises:
        StartupError: the supervisor does not answer.
    """
    line, last_words, silent_looks = b"", "", 0
    while not line.endswith(b"\n"):
        try:
            data = connection.recv(MAX_LINE_BYTES)
        except TimeoutError:
            words, silent = supervisor_state(segment_name)
            silent_looks = silent_looks + 1 if silent else 0
            if silent_looks == _SILENT_LOOKS:
                raise StartupError(
                    f"{words}. It did not answer at {silent_looks} looks in a row; it carries the "
                    "order out if it goes on"
                ) from None
            if words != last_words:
                tell(f"{words}; waiting for it")
                last_words = words
            continue
        if not data:
            break
        line += data
    return line


def refusal_reason(segment_name: str, error: OSError) -> str:
    """Return in words why a connection for an order failed."""
    if not isinstance(error, FileNotFoundError | ConnectionError):
        return error.strerror or str(error)
    pid = engine_and_pid(segment_name)[1]
    if starts(segment_name):
        return f"process {pid} starts; try again once it is ready"
    return f"process {pid} ends, or has ended"


def supervisor_state(segment_name: str) -> tuple[str, bool]:
    """Return the supervisor's state in words, and whether it is silent though it should answer."""
    pid = engine_and_pid(segment_name)[1]
    supervisor = f"the engine's supervisor, process {pid},"
    if is_stopped(pid):
        return f"{supervisor} {stopped_words(pid)}", True
    if _answers(socket_path(segment_name)):
        return f"{supervisor} carries out its orders", False
    if starts(segment_name):
        return f"{supervisor} starts, and takes orders once it is ready", False
    return f"{supervisor} hangs (kill -9 {pid} ends the engine, which can be started again)", True


def _answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(ANSWER_S)
        try:
            probe.connect(path)
            probe.sendall(b"\n")
            probe.recv(MAX_LINE_BYTES)
        except (TimeoutError, BlockingIOError):
            return False
        except OSError:
            pass  # It has ended, which the connection of the order shows too.
    return True
