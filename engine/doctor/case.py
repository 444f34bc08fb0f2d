"""Inputs of a check, and the parts that all checks share. Pure."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from ringbatch.engine.config.settings import Config
from ringbatch.engine.doctor.facts import Facts
from ringbatch.engine.doctor.findings import Finding, Level
from ringbatch.engine.process.cpu_plan import Plan

PROCESS_BYTES: Final = 80 << 20
"""Private memory of one process in bytes, without a worker's model. bench/idle.py holds frontends
and collectors to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """Start of one worker: its name for people, its threads, and their variable, if there is one.

    The variable of the environment decides the number of threads.
    """

    title: str
    threads: int
    variable: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """Needs of an engine.

    Attributes:
        segment_bytes: of /dev/shm; models' signatures may add some KiB.
        request_bytes: of the largest request, as it fits.
        lowered: True if that is less than by default, for want of room.
        files: in /dev/shm.
        processes: of all roles.
        tasks: processes and threads.
        memory_bytes: of all processes, the segment included and models not.
        workers: those that compute.
        open_files: of a frontend, when it has all its connections.
        other_files: those open files that are no connections.
        backlog: connections that may wait to be accepted.
        plan: CPUs of every process; None if the configuration names CPUs that cannot be used.
        misplaced: the error that names these CPUs; empty with a plan.
    """

    segment_bytes: int
    request_bytes: int
    lowered: bool
    files: int
    processes: int
    tasks: int
    memory_bytes: int
    workers: tuple[Worker, ...]
    open_files: int
    other_files: int
    backlog: int
    plan: Plan | None
    misplaced: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A host and what is to run on it.

    Attributes:
        facts: of the host.
        config: what is to be served; that of ``ringbatch serve`` alone if none was asked for.
        asked: whether it was.
        needs: what that wants.
    """

    facts: Facts
    config: Config
    asked: bool
    needs: Needs


@dataclass(frozen=True, slots=True)
class Topic:
    """Topic of a check, and why it matters.

    Attributes:
        check: its name.
        why: it matters.
    """

    check: str
    why: str

    def ok(self, found: str) -> Finding:
        """Return a finding that all is well."""
        return Finding(self.check, Level.OK, found, self.why)

    def note(self, found: str, do: str = "", why: str = "") -> Finding:
        """Return a finding that is good to know."""
        return Finding(self.check, Level.NOTE, found, why or self.why, do)

    def warning(self, found: str, do: str, why: str = "") -> Finding:
        """Return a finding that costs requests or much speed."""
        return Finding(self.check, Level.WARNING, found, why or self.why, do)

    def error(self, found: str, do: str, why: str = "") -> Finding:
        """Return a finding that keeps ringbatch from working as configured."""
        return Finding(self.check, Level.ERROR, found, why or self.why, do)

    def unknown(self, subject: str) -> Finding:
        """Return a finding that the fact is unknown."""
        return Finding(
            self.check,
            Level.NOTE,
            f"{subject} cannot be known here",
            self.why,
            "run it as another user, or outside of the sandbox, to know",
        )


Check = Callable[[Case], Iterator[Finding]]
