"""Listening Unix sockets, by the paths of their files: unix(7).

A file outlives the socket that made it. So a file without a listener is replaced, and one with a
living listener is not. Two starts at one instant take turns by a lock on the directory.
"""

import errno
import fcntl
import grp
import os
import socket
import stat
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from ringbatch.engine.supervisor.listener import BACKLOG
from ringbatch.shm.errors import StartupError

_CREDENTIALS: Final = struct.Struct("iII")
"""Process, user and group: struct ucred of unix(7)."""


def listen_at(key: str, path: str, mode: int, group: str | None) -> socket.socket:
    """Return a listening Unix socket.

    Args:
        key: the setting that has the path.
        path: absolute.
        mode: permissions of its file.
        group: the group of its file; None for this process's.

    Raises:
        StartupError: another process listens there, the path has another kind of file, or the file
            cannot be made.
    """
    place = Path(path)
    with ExitStack() as undo:
        try:
            undo.enter_context(_turn(place.parent))
            _clear(key, place)
            bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            failing = undo.enter_context(ExitStack())
            failing.callback(bound.close)
            # No client may connect before the file has its group.
            before = os.umask(0o777)
            try:
                bound.bind(path)
            finally:
                os.umask(before)
            failing.callback(place.unlink, missing_ok=True)
            if group is not None:
                os.chown(path, -1, group_number(group))
            place.chmod(mode)
            bound.listen(BACKLOG)
            failing.pop_all()
        except OSError as error:
            raise StartupError(f"[server] {key}: {path}: {_reason(error)}") from None
    return bound


def is_at_path(bound: socket.socket, path: str) -> bool:
    """Return whether a socket is the one that clients of a path reach."""
    if bound.family != socket.AF_UNIX or bound.getsockname() != path:
        return False
    return holder(Path(path)) is not None


def holder(path: Path) -> int | None:
    """Return the process that listens behind a socket file; None without one or without a file.

    It is 0 if the process cannot be seen from here.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as client:
        code = client.connect_ex(str(path))
        if code in (errno.ECONNREFUSED, errno.ENOENT):
            return None
        if code:
            # A full queue has a listener, and a file that is closed to this user may have one.
            return 0
        found = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid: int = _CREDENTIALS.unpack(found)[0]
    return pid


@contextmanager
def _turn(directory: Path) -> Iterator[None]:
    """Hold the lock for making socket files in a directory."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _clear(key: str, path: Path) -> None:
    """Remove the file that a dead process has left.

    Raises:
        StartupError: it is no socket, or a process listens behind it.
    """
    try:
        found = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found):
        raise StartupError(f"[server] {key}: {path} exists, and is no socket; remove it")
    pid = holder(path)
    if pid is not None:
        raise StartupError(
            f"[server] {key}: process {pid or 'of another user'} listens on {path}; stop it, "
            "choose another path, or replace an engine by ringbatch handover"
        )
    path.unlink()


def group_number(name: str) -> int:
    """Return the number of a group.

    Raises:
        StartupError: this machine has no such group; the text says what to do.
    """
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        raise StartupError(
            f"[server] unix_socket_group: this machine has no group {name!r}; choose another, or "
            "make it with groupadd"
        ) from None


def _reason(error: OSError) -> str:
    if error.errno == errno.ENOENT:
        return "its directory does not exist; systemd makes one by RuntimeDirectory="
    if error.errno == errno.EACCES:
        return "this user may not make files in its directory"
    if error.errno == errno.EPERM:
        return "this user may not give it that group; see unix_socket_group"
    return os.strerror(error.errno) if error.errno else str(error)
