"""Listening TCP sockets. The supervisor holds them, so that frontends can come and go."""

import errno
import os
import socket
from collections.abc import Container
from contextlib import ExitStack, suppress

from ringbatch.shm.errors import StartupError
from ringbatch.shm.host.authority import authority
from ringbatch.shm.host.socket_filters import JUMP_IF_SET, LOAD_BYTE, RETURN, Step, attach
from ringbatch.shm.host.tcp_states import HALF_OPEN, tcp_states

BACKLOG = 2048
"""Connections that wait to be accepted; the kernel's own limit, somaxconn, may be lower."""
_PRIVILEGED = 1024
"""The first port that needs no privilege, unless a host says otherwise."""
_SO_ATTACH_FILTER = 26
_SO_BINDTOIFINDEX = 62
_NO_INTERFACE = (1 << 31) - 1
"""The kernel numbers interfaces in order, and never reaches this one."""
_WHOLE_PACKET = (1 << 32) - 1
_TCP_FLAGS_AT, _SYN = 13, 0x02
_DROP_FIRST_PACKETS = (
    Step(LOAD_BYTE, _TCP_FLAGS_AT),
    Step(JUMP_IF_SET, _SYN, if_true=0, if_false=1),
    Step(RETURN, 0),
    Step(RETURN, _WHOLE_PACKET),
)


def listen(host: str, port: int) -> socket.socket:
    """Return a listening TCP socket; see `listen_all`."""
    return listen_all(host, port, 1)[0]


def listen_for_control(host: str, port: int) -> socket.socket:
    """Return a listening TCP socket of the control address; as `listen_all`."""
    return _bind(host, port, 1, "--control-port", "control_host", listens=True, shared=False)[0]


def listen_for_agent(host: str, port: int) -> socket.socket:
    """Return a listening TCP socket for HAProxy's agent-check; as `listen_all`."""
    return _bind(host, port, 1, "--agent-check-port", "host", listens=True, shared=False)[0]


def listen_all(host: str, port: int, count: int, *, beside: bool = False) -> list[socket.socket]:
    """Return listening TCP sockets on one address, among which the kernel spreads connections.

    A process that wakes up for a connection accepts all that wait. With a socket for each process,
    the first to wake up does not get a whole burst of connections.

    Args:
        host: an address or name of this machine.
        port: 0 takes any free one.
        count: how many sockets.
        beside: True if other engines of this user may have the port. Then the sockets do not
            listen yet, as connections go to the engine that serves.

    Raises:
        StartupError: the address is unknown or the port taken.
    """
    return _bind(
        host,
        port,
        count,
        "--port",
        "host",
        listens=not beside,
        shared=beside or count > 1,
        beside=beside,
    )


def hold(host: str, port: int, *, beside: bool = False) -> socket.socket:
    """Return a TCP socket that keeps a port for this user's processes, which may listen there.

    It does not listen itself. Processes that listen must set SO_REUSEPORT.

    Args:
        host: an address or name of this machine.
        port: 0 takes any free one.
        beside: True if other engines of this user may have it.

    Raises:
        StartupError: the address is unknown or the port taken.
    """
    flag = "--grpc-port"
    (held,) = _bind(host, port, 1, flag, "host", listens=False, shared=True, beside=beside)
    # The option was for an earlier holder's connections that still linger. From now on it would
    # let other users have the port while no process listens there.
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
    return held


def is_at(bound: socket.socket, host: str, port: int) -> bool:
    """Return whether a socket is bound to that address of this machine.

    Args:
        bound: the socket.
        host: an address or name of this machine.
        port: 0 stands for any.
    """
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        return False
    family, _, _, _, address = addresses[0]
    found = bound.getsockname()
    return bound.family == family and found[0] == address[0] and port in (0, found[1])


def _bind(
    host: str,
    port: int,
    count: int,
    flag: str,
    key: str,
    *,
    listens: bool,
    shared: bool,
    beside: bool = False,
) -> list[socket.socket]:
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        # A name that cannot be written as DNS labels is a UnicodeError.
        reason = error.strerror if isinstance(error, OSError) else error
        raise StartupError(
            f"[server] {key}: {host!r} is no address of this machine: {reason}"
        ) from None
    family, kind, protocol, _, address = addresses[0]
    with ExitStack() as undo:
        sockets = [undo.enter_context(socket.socket(family, kind, protocol)) for _ in range(count)]
        try:
            for bound in sockets:
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                # The first is bound without this option, so that a port in use is noticed.
                if beside or bound is not sockets[0]:
                    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                bound.bind(address)
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, int(shared))
                address = bound.getsockname()
            for bound in sockets if listens else ():
                bound.listen(BACKLOG)
        except OSError as error:
            reason = _reason(error, port, flag, key)
            raise StartupError(f"cannot listen on {authority(host, port)}: {reason}") from None
        undo.pop_all()
    return sockets


def refuse_new_connections(listener: socket.socket) -> bool:
    """Have the kernel begin no further connection; return whether it can.

    Closing a listening socket resets the connections that wait in it, and some could come between
    the last look into its queue and the close. After this call none begins. Connections that have
    begun (see `half_open`) go on, and wait to be accepted.

    The setting belongs to the socket, whichever processes hold it, and goes with its last holder. A
    Unix socket refuses new connections once its file is removed.
    """
    if listener.family == socket.AF_UNIX:
        with suppress(OSError):
            os.unlink(listener.getsockname())
        return True
    for refuse in (_listen_nowhere, _drop_first_packets):
        with suppress(OSError):
            refuse(listener)
            return True
    return False


def _listen_nowhere(listener: socket.socket) -> None:
    """Refuse new connections: bind the socket to a network interface that does not exist.

    Raises:
        OSError: before Linux 5.7, without privileges.
    """
    listener.setsockopt(socket.SOL_SOCKET, _SO_BINDTOIFINDEX, _NO_INTERFACE)


def _drop_first_packets(listener: socket.socket) -> None:
    """Drop the first packets of new connections.

    Clients repeat them after a second, and are then refused, or meet the next listener.

    Raises:
        OSError: the kernel wants a privilege for filters on sockets; not all do.
    """
    attach(listener, _SO_ATTACH_FILTER, _DROP_FIRST_PACKETS)


def half_open(ports: Container[int]) -> bool:
    """Return whether a client of one of these ports is in the midst of the TCP handshake.

    False if that cannot be seen, as without a free descriptor.
    """
    try:
        return HALF_OPEN in tcp_states(ports)
    except OSError:
        return False


def address(bound: socket.socket) -> str:
    """Return host and port of a socket as in a URL; of a Unix socket its path."""
    if bound.family == socket.AF_UNIX:
        return f"unix:{bound.getsockname()}"
    return authority(*bound.getsockname()[:2])


def _reason(error: OSError, port: int, flag: str, key: str) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"the port is in use; stop what listens there, or choose another with {flag}"
    if error.errno == errno.EACCES:
        # A sysctl may say so of further ports, or a security module.
        needed = "ports below 1024 need" if port < _PRIVILEGED else f"port {port} needs"
        return f"{needed} a privilege here; choose another than {port} with {flag}"
    if error.errno == errno.EADDRNOTAVAIL:
        return (
            "no interface of this machine has that address; choose one that `ip address` lists "
            f"with [server] {key}"
        )
    return os.strerror(error.errno or 0)
