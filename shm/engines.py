"""Running engines of this host, and the one that a command or a client means.

The caller gives the engine's name or the process id of its supervisor, or nothing if one alone
runs. Several engines bear a name while one takes over from another. The newest that is ready stands
for it, so no caller is sent to an engine that starts or stops while another serves.
"""

import os
import pwd
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple, Protocol, TypeVar

from ringbatch.shm import segment_header
from ringbatch.shm.descriptors import HeaderWords
from ringbatch.shm.engine_name import UNNAMED
from ringbatch.shm.errors import SegmentGone, StartupError
from ringbatch.shm.segment import Segment
from ringbatch.shm.shm_objects import (
    DIRECTORY,
    FLAGS,
    LIFE_LOCK,
    engine_and_pid,
    is_locked,
    reserved_name,
    segment_names,
)

_FOUND_FROM: Final = "an engine that starts is found once it has opened its model files"


class Named(Protocol):
    """An engine's entry, as `Segment` has it."""

    @property
    def engine(self) -> str:
        """Name of the engine."""

    @property
    def ready_ns(self) -> int:
        """Since when it is ready; 0 if it starts or stops."""


_Named = TypeVar("_Named", bound=Named)
_Attached = TypeVar("_Attached")


def in_order(engines: Iterable[_Named]) -> list[_Named]:
    """Return engines by name; within a name the newest ready one first, those not ready last."""
    return sorted(engines, key=lambda engine: (engine.engine, -engine.ready_ns))


def eligible(engines: Iterable[_Named]) -> list[_Named]:
    """Return the candidates if no name is given: of each name those that are ready, or else all."""
    found = list(engines)
    served = {engine.engine for engine in found if engine.ready_ns}
    return [engine for engine in found if engine.ready_ns or engine.engine not in served]


@contextmanager
def running(engine: str | int | None) -> Iterator[list[Segment]]:
    """Attach the segments of this user's running engines, in the order of `in_order`.

    Args:
        engine: the name of an engine, or the process id of its supervisor; None for all.

    Raises:
        StartupError: there is none; the text says why.
    """
    found, refused = [], None
    try:
        for name in segment_names(engine):
            try:
                segment = Segment.attach(name)
            except SegmentGone:
                continue
            except StartupError as error:  # another user's, or on its way in
                refused = error
                continue
            found.append(segment) if segment.alive else segment.detach()
        if not found:
            refusal = refused if engine is not None else None
            raise _of_others(engine) or refusal or _not_among_those_that_run(engine)
        yield in_order(found)
    finally:
        for segment in found:
            segment.detach()


def only(engine: str | int | None) -> str:
    """Return the segment's name of the one running engine of this user that is meant.

    Args:
        engine: its name, or the process id of its supervisor; None if one alone runs.

    Raises:
        StartupError: no such engine runs, or several do.
    """
    with running(engine) as found:
        meant = _meant(engine, found)
        if len(meant) > 1:
            shown = "; ".join(
                f"{_shown(segment)} serves {', '.join(_model_names(segment))}" for segment in meant
            )
            names = {segment.engine for segment in meant}
            by = "name or process id" if len(names) == len(meant) else "process id"
            raise StartupError(f"{len(meant)} engines run, say which, by {by}: {shown}")
        return meant[0].name


def attached(engine: str | int | None, attach: Callable[[str], _Attached]) -> _Attached:
    """Return `attach` of the segment that `only` names.

    If that engine ends between the two, its successor is meant.

    Raises:
        StartupError: as of `only`, and of `attach`.
    """
    meant = only(engine)
    while True:
        try:
            return attach(meant)
        except SegmentGone:
            former, meant = meant, only(engine)
            if meant == former:
                raise


def of_any_version(engine: str | int) -> str:
    """Return as `only` does, even if the engine's version has another layout of the segment."""
    found = [one for name in segment_names(engine) if (one := _living(name)) is not None]
    meant = _meant(engine, in_order(found))
    return meant[0].name if len(meant) == 1 else only(engine)


def starts(segment_name: str) -> bool:
    """Return whether a running engine has not been ready yet."""
    found = _living(segment_name)
    return found is not None and not found.ready_ns and not found.draining


def _meant(engine: str | int | None, found: list[_Named]) -> list[_Named]:
    """Return the engines of a name, or of all, that may be meant.

    Args:
        engine: as for `running`. The name of engines that were given none says nothing.
        found: as `in_order` has them.
    """
    return found[:1] if isinstance(engine, str) and engine != UNNAMED else eligible(found)


class _Living(NamedTuple):
    engine: str
    name: str
    ready_ns: int
    draining: bool
    port: int


def _living(name: str) -> _Living | None:
    """Return the version-independent header of a living segment of this user; else None."""
    try:
        fd = os.open(f"{DIRECTORY}{name}", os.O_RDWR | FLAGS)
    except OSError:
        return None
    try:
        if os.fstat(fd).st_uid != os.geteuid() or not is_locked(fd, LIFE_LOCK):
            return None
        words = segment_header.finished(fd, HeaderWords.DRAINING + 1)
    finally:
        os.close(fd)
    if words is None:
        return None
    draining = bool(words[HeaderWords.DRAINING])
    ready_ns = 0 if draining else words[HeaderWords.READY_NS]
    engine, _ = engine_and_pid(name)
    return _Living(engine, name, ready_ns, draining, words[HeaderWords.PORT])


def expect_free(engine: str, replaced: int | None = None) -> None:
    """Return if no running engine of this user has a name, or if nobody has chosen the name.

    An engine that stops has its name no more.

    Args:
        engine: the name.
        replaced: the supervisor of the engine that is to be replaced; None for none.

    Raises:
        StartupError: one has it; the text says which, and what to do.
    """
    found = [] if engine == UNNAMED else map(_living, segment_names(engine))
    for other in found:
        if other is None or other.draining or (pid := engine_and_pid(other.name)[1]) == replaced:
            continue
        place = f" and serves at port {other.port}" if other.port else ""
        raise StartupError(
            f"an engine with the name {engine} runs already: it is process {pid}{place}; replace "
            "it with ringbatch handover, or give this one another name (--engine-name, or name "
            "under [server])"
        )


@contextmanager
def alone_of_name(engine: str, replaced: int | None = None) -> Iterator[None]:
    """Hold the name, so that no other process makes an engine of that name; see `expect_free`."""
    if engine == UNNAMED:
        yield
        return
    with reserved_name(engine):
        expect_free(engine, replaced)
        yield


def not_running(engine: str | int | None) -> StartupError:
    """Return the error that no engine runs, or none of that name or supervisor."""
    return StartupError(f"no engine of ringbatch{_qualifier(engine)} is running")


def _not_among_those_that_run(engine: str | int | None) -> StartupError:
    error = not_running(engine)
    if engine is None:
        return StartupError(f"{error}; start one with `ringbatch serve`; {_FOUND_FROM}")
    try:
        with running(None) as others:
            there = ", ".join(map(_shown, others))
            return StartupError(f"{error}; there is: {there}; {_FOUND_FROM}")
    except StartupError:
        return StartupError(f"{error}; {_FOUND_FROM}")


def _shown(segment: Segment) -> str:
    return f"{segment.engine} (process {segment.pid})"


def _model_names(segment: Segment) -> list[str]:
    """Return the names of an engine's models, each once for all of its versions."""
    return [*dict.fromkeys(model.name for model in segment.models)]


def _qualifier(engine: str | int | None) -> str:
    if engine is None:
        return ""
    if isinstance(engine, str):
        return f" with the name {engine}"
    return f" whose supervisor has process id {engine}"


def _of_others(engine: str | int | None) -> StartupError | None:
    """Return the error that the engines here belong to other users; None if they do not."""
    users = sorted({user for name in segment_names(engine) if (user := _other_user(name))})
    if not users:
        return None
    return StartupError(
        f"no engine of ringbatch{_qualifier(engine)} is this user's; there is one of "
        f"{' and '.join(users)}, which is for that user alone. Give the command as that user, as "
        "with sudo -u"
    )


def _other_user(name: str) -> str:
    """Return the user that an engine belongs to; empty if it is this one, or the engine is gone."""
    try:
        owner = os.stat(f"{DIRECTORY}{name}").st_uid
    except OSError:
        return ""
    if owner == os.geteuid():
        return ""
    try:
        return f"user {pwd.getpwuid(owner).pw_name}"
    except KeyError:
        return f"user {owner}"
