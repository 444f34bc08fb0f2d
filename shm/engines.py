"""Which engines run on this host, and which of them a command or a client means."""

import os
import pwd
from collections.abc import Iterator
from contextlib import contextmanager

from ringbatch.shm.errors import StartupError
from ringbatch.shm.object_names import DIRECTORY, names
from ringbatch.shm.segment import Segment


@contextmanager
def running(pid: int | None) -> Iterator[list[Segment]]:
    """The segments of the running engines of this user, or of that supervisor, attached meanwhile.

    Raises:
        StartupError: there is none; the text says why.
    """
    found, refused = [], None
    try:
        for name in names(pid):
            try:
                segment = Segment.attach(name)
            except StartupError as error:  # another user's, or on its way in or out
                refused = error
                continue
            found.append(segment) if segment.alive else segment.detach()
        if not found:
            raise _of_others(pid) or (refused if pid is not None else None) or not_running(pid)
        yield found
    finally:
        for segment in found:
            segment.detach()


def only(pid: int | None) -> str:
    """The segment's name of the one running engine of this user, or of that supervisor.

    Raises:
        StartupError: no such engine runs, or several do.
    """
    with running(pid) as found:
        if len(found) > 1:
            shown = "; ".join(
                f"process {segment.pid} serves {', '.join(m.name for m in segment.models)}"
                for segment in found
            )
            raise StartupError(f"{len(found)} engines run, say which by pid: {shown}")
        return found[0].name


def not_running(pid: int | None) -> StartupError:
    """That there is no engine, or none of that supervisor."""
    whose = "" if pid is None else f" whose supervisor has process id {pid}"
    return StartupError(f"no engine of ringbatch{whose} is running")


def _of_others(pid: int | None) -> StartupError | None:
    """That the engines that there are belong to others, where they do."""
    users = sorted({user for name in names(pid) if (user := _other_user(name))})
    if not users:
        return None
    whose = "" if pid is None else f" whose supervisor has process id {pid}"
    return StartupError(
        f"no engine of ringbatch{whose} is this user's; there is one of {' and '.join(users)}, "
        "which is for that user alone. Give the command as that user, as with sudo -u"
    )


def _other_user(name: str) -> str:
    """Whose an engine is; empty where it is this user's, or gone."""
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
