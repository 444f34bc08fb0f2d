"""A role that the supervisor keeps filled."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ringbatch.engine.child import Child
from ringbatch.engine.instructions import SeatName


@dataclass(slots=True)
class Place:
    """A role that must be filled, and the process that fills it now.

    Attributes:
        title: the process's title.
        start: starts a process for it.
        worker: the worker's number, where it is one.
        seat: the name of the worker's place among CPUs.
        child: the process, if one runs.
        failures: deaths in a row.
        ever_ready: whether any process was ever ready here.
        ready_ns: since when the present one is ready; 0 while it is not.
        restart_ns: when to start the next one; None where nothing is planned.
        kill_ns: when to kill the present one; None where nothing is planned.
        signature: inputs and outputs of the model, once a worker has said them.
        error: what the process gave as the reason for its end.
        lasting: whether another process is started where this one ends.
        known: of a worker, whether the table of models has it, or had it.
        released: of a worker, whether nothing is expected of it any more.
        failure: how a process ended that is not started again.
    """

    title: str
    start: Callable[[], Child]
    worker: int | None = None
    seat: SeatName | None = None
    child: Child | None = None
    failures: int = 0
    ever_ready: bool = False
    ready_ns: int = 0
    restart_ns: int | None = None
    kill_ns: int | None = None
    signature: dict[str, Any] | None = None
    error: str = ""
    lasting: bool = True
    known: bool = True
    released: bool = False
    failure: str = ""

    def let_go(self) -> None:
        """Start no other process here."""
        self.lasting = False
        self.restart_ns = None
