"""Notifications of a service manager, as in sd_notify(3) and systemd.service(5).

Without a manager nothing is sent, and nothing costs anything. Every message is a datagram that is
sent without waiting; the next of its kind makes a lost one good.
"""

import logging
import os
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from ringbatch.engine.systemd.health import Health

logger = logging.getLogger("ringbatch.supervisor")

_S: Final = 1_000_000_000
_STATUS_EVERY_NS: Final = 1 * _S
"""Period of the status line during long work: a line that stands still looks like a hang."""
_EXTENSION_S: Final = 20
"""Extension of each request for time. It ends a supervisor that does not come back from a wait, as
the supervisor has limits of its own."""
_HEAD_BYTES: Final = 700
_TAIL_BYTES: Final = 300
"""End of a longer text that is sent: systemd ignores messages of 4,096 bytes."""
_PINGS_IN_INTERVAL: Final = 4
"""So that three may come to nothing before the watchdog ends the service."""


def encode(fields: Mapping[str, str]) -> bytes:
    """Return a message: a line for each field, whose text is made one short line. Pure."""
    return b"\n".join(key.encode() + b"=" + _line(text) for key, text in fields.items())


def _line(text: str) -> bytes:
    said = " ".join(text.replace("\0", " ").split()).encode(errors="backslashreplace")
    if len(said) <= _HEAD_BYTES + _TAIL_BYTES:
        return said
    cut = said[:_HEAD_BYTES] + b" ... " + said[-_TAIL_BYTES:]
    return cut.decode(errors="ignore").encode()


def address_of(environment: Mapping[str, str]) -> str | None:
    """Return the address for messages: a path, or an abstract name with a leading NUL. Pure.

    It is None if there is no manager.
    """
    name = environment.get("NOTIFY_SOCKET", "")
    return {"/": name, "@": f"\0{name[1:]}"}.get(name[:1])


def watchdog_ns_of(environment: Mapping[str, str], pid: int) -> int | None:
    """Return the nanoseconds within which a process must report to the watchdog, or None. Pure."""
    usec, watched = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", str(pid))
    return int(usec) * 1000 if usec.isdecimal() and int(usec) and watched == str(pid) else None


def loading_status(models: Iterable[str]) -> str:
    """Return the state of a start, in a line for people. Pure.

    Args:
        models: the names of those whose workers are not ready, a name for each worker.
    """
    names = dict.fromkeys(models)
    return f"loading {', '.join(names)}" if names else "starting the frontends"


def serving_status(models: Sequence[str], url: str, ready: int, workers: int) -> str:
    """Return the state of a serving engine, in a line for people. Pure.

    Args:
        models: their names.
        url: of the server.
        ready: how many workers can take a batch.
        workers: how many there are to be.
    """
    count = str(workers) if ready == workers else f"{ready} of {workers}"
    return (
        f"serving {', '.join(models)} on {url}; {len(models)} model{'s' * (len(models) != 1)}, "
        f"{count} worker{'s' * (workers != 1)}"
    )


class Service:
    """The engine as its service manager sees it.

    Attributes:
        next_ns: when it has something to say again; None for never.

    Args:
        environment: of the supervisor.
        answers: asks a frontend, as a client would; may take seconds, and is called in a thread.
        clock_ns: the monotonic clock.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        answers: Callable[[], bool],
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.next_ns: int | None = None
        self._clock_ns = clock_ns
        self._address = address_of(environment)
        self._watchdog_ns = watchdog_ns_of(environment, os.getpid())
        self._health = Health(answers)
        self._began_ns = clock_ns()
        self._ping_ns: int | None = None
        self._status_ns: int | None = None
        self._status = ""
        self._changes = 0
        self._failure = ""
        self._unreachable = False

    @property
    def managed(self) -> bool:
        """True if there is a service manager."""
        return self._address is not None

    def loads(self, status: str) -> None:
        """Report the progress of a start, in every turn until the engine serves.

        Args:
            status: such as ``loading mnist``.
        """
        self._takes_time(f"{status}: {(self._clock_ns() - self._began_ns) // _S} s")
        self.next_ns = self._status_ns

    def serves(self, status: str, collector_ns: int) -> None:
        """Report that the engine serves, in every turn, as it feeds the watchdog.

        Args:
            status: models and address, for people.
            collector_ns: when the collector last looked for requests.
        """
        if self._failure:
            status += f"; the last change failed: {self._failure}"
        if self._changes:
            self._takes_time(f"{status}; changing it")
        else:
            self._status_ns = None
            self._send_status(status)
        self._feed_watchdog(collector_ns)
        self.next_ns = min(filter(None, (self._status_ns, self._ping_ns)), default=None)

    def is_ready(self) -> None:
        """Report that the start is over: units ordered after this service may go on."""
        self._send({"READY": "1"})

    def begins_change(self) -> None:
        """Report that a change of the models begins; `ends_change` follows."""
        self._changes += 1
        # Of each: to Type=notify-reload, one from before its signal is no answer to that.
        self._send({"RELOADING": "1", "MONOTONIC_USEC": str(self._clock_ns() // 1000)})

    def ends_change(self, failure: str) -> None:
        """Report that a change is made, or was given up.

        Args:
            failure: why; empty if it is made.
        """
        self._changes -= 1
        self._failure = failure
        if not self._changes:
            self._send({"READY": "1"})

    def stops(self, why: str, limit_s: float) -> None:
        """Report that the engine stops.

        Args:
            why: for people.
            limit_s: the longest that it may take.
        """
        self.next_ns = None
        extension = {"EXTEND_TIMEOUT_USEC": str(int(limit_s * 1e6))}
        self._send({"STOPPING": "1", "STATUS": why, **extension})

    def _takes_time(self, status: str) -> None:
        now_ns = self._clock_ns()
        if self._address and (self._status_ns is None or now_ns >= self._status_ns):
            self._status_ns = now_ns + _STATUS_EVERY_NS
            self._status = status
            self._send({"STATUS": status, "EXTEND_TIMEOUT_USEC": str(_EXTENSION_S * 1_000_000)})

    def _send_status(self, status: str) -> None:
        if status != self._status:
            self._status = status
            self._send({"STATUS": status})

    def _feed_watchdog(self, collector_ns: int) -> None:
        if self._watchdog_ns is None:
            return
        now_ns = self._clock_ns()
        if self._ping_ns is None or now_ns >= self._ping_ns:
            self._ping_ns = now_ns + self._watchdog_ns // _PINGS_IN_INTERVAL
            if self._health.proven(collector_ns):
                self._send({"WATCHDOG": "1"})

    def _send(self, fields: Mapping[str, str]) -> None:
        if self._address is None:
            return
        # The engine serves on even if the service manager does not read.
        kind = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK
        try:
            with socket.socket(socket.AF_UNIX, kind) as sending:
                sending.sendto(encode(fields), self._address)
        except BlockingIOError:
            pass  # A manager that reads late gets the next message of its kind.
        except OSError as error:
            if not self._unreachable:
                logger.warning(
                    "NOTIFY_SOCKET %s: %s; the service manager does not learn whether the engine "
                    "serves, and may end it",
                    self._address.replace("\0", "@"),
                    error.strerror or error,
                )
            self._unreachable = True
        else:
            self._unreachable = False
