"""Listening sockets that systemd holds, as in sd_listen_fds(3).

While the engine restarts, connections wait in them instead of being refused.
"""

import socket
from collections.abc import Mapping, Sequence
from typing import Final

from ringbatch.shm.errors import StartupError
from ringbatch.shm.host.authority import authority

FIRST_FD: Final = 3
_REMEDY: Final = "ringbatch units --install --config FILE writes a socket unit for FILE"


def passed(environment: Mapping[str, str], pid: int) -> list[socket.socket]:
    """Take the sockets that were passed to a process, which owns them from here on.

    Args:
        environment: of the process.
        pid: its process id.

    Raises:
        StartupError: a passed descriptor is no socket.
    """
    count = environment.get("LISTEN_FDS", "")
    if environment.get("LISTEN_PID") != str(pid) or not count.isdecimal():
        return []
    sockets = []
    for fd in range(FIRST_FD, FIRST_FD + int(count)):
        try:
            sockets.append(socket.socket(fileno=fd))
        except OSError as error:
            raise StartupError(f"LISTEN_FDS: descriptor {fd}: {error.strerror}") from None
        sockets[-1].set_inheritable(False)
    return sockets


def expect(
    sockets: Sequence[socket.socket],
    host: str | None,
    port: int,
    frontends: int,
    path: str | None = None,
) -> None:
    """Look whether sockets are what the frontends are configured for.

    Args:
        sockets: at least one.
        host: as configured; an address or name of this machine; None without TCP.
        port: as configured; 0 stands for any.
        frontends: how many share them.
        path: as configured, of a Unix socket; None without one.

    Raises:
        StartupError: they are not; the text says what to do.
    """
    tcp = [bound for bound in sockets if bound.family != socket.AF_UNIX]
    paths = [bound.getsockname() for bound in sockets if bound not in tcp]
    if paths != [one for one in (path,) if one is not None]:
        raise StartupError(
            f"systemd passes {_listed(paths)}, and [server] unix_socket or host names "
            f"{_listed([path] if path else [])}; {_REMEDY}"
        )
    if host is not None:
        _expect_tcp(tcp, host, port, frontends)
    elif tcp:
        raise StartupError(f"systemd passes TCP sockets, and [server] host is no host; {_REMEDY}")


def _listed(paths: Sequence[str]) -> str:
    return " and ".join(f"the Unix socket {path}" for path in paths) or "no Unix socket"


def _expect_tcp(sockets: Sequence[socket.socket], host: str, port: int, frontends: int) -> None:
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise StartupError(f"[server] host: {host!r} is no address of this machine") from None
    wanted = {(family, *where[:2]) for family, _, _, _, where in addresses}
    configured = authority(host, port)
    if not sockets:
        raise StartupError(f"systemd passes no socket on {configured}; {_REMEDY}")
    for bound in sockets:
        if bound.family not in (socket.AF_INET, socket.AF_INET6) or not _listens(bound):
            raise StartupError(f"systemd passes a socket on which no TCP port listens; {_REMEDY}")
        found = (bound.family, *bound.getsockname()[:2])
        if found not in wanted and (port or found[:2] not in {one[:2] for one in wanted}):
            raise StartupError(
                f"systemd passes a socket on {authority(*found[1:])}, and [server] host and port "
                f"are {configured}; {_REMEDY}"
            )
    if len(sockets) not in (1, frontends):
        raise StartupError(
            f"systemd passes {len(sockets)} sockets for {frontends} frontends; there must be one, "
            f"or one for each; {_REMEDY}"
        )


def _listens(bound: socket.socket) -> bool:
    return bool(bound.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
