"""Probes for facts that only an attempt shows; each is undone at once."""

import ctypes
import errno
import os
import secrets
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from ringbatch.engine.config.credentials import control_credentials_of, credentials_of
from ringbatch.engine.config.exposure_warnings import exposures
from ringbatch.engine.config.settings import ServerConfig
from ringbatch.engine.doctor.facts import Door, Features
from ringbatch.engine.doctor.host_files import HostFiles
from ringbatch.engine.doctor.server_files import why_not_made
from ringbatch.engine.process.placement import wake_without_preempting
from ringbatch.engine.supervisor.listener import refuse_new_connections
from ringbatch.engine.supervisor.unix_listener import holder
from ringbatch.shm import shm_objects, wakeup
from ringbatch.shm.doorbell import Doorbell
from ringbatch.shm.errors import StartupError
from ringbatch.shm.host.credentials import key_digests, server_tls
from ringbatch.shm.wakeup import Wakeup

_PR_GET_PDEATHSIG: Final = 2
_PORTS: Final = (
    ("port", "host"),
    ("grpc_port", "host"),
    ("control_port", "control_host"),
    ("agent_check_port", "host"),
)
"""Keys of ports, with those of their addresses."""
_SHARED: Final = ("port", "grpc_port")
"""Keys of ports that several engines may share if their settings allow it."""


def features() -> Features:
    """Return the features of the kernel and the C library that work here, for this user."""
    return Features(
        semaphores=_refusal(_make_semaphore),
        pipes=_refusal(_make_pipe),
        pidfd=_refusal(_signal_by_pidfd),
        locks=_refusal(_lock_open_file),
        memory_files=_refusal(lambda: os.close(os.memfd_create("ringbatch", os.MFD_CLOEXEC))),
        parent_death=_refusal(_ask_for_parent_death),
        shared_ports=_refusal(_share_port),
        refusing_connections=_refusal(_refuse_connections),
        batch_scheduling=_refusal(_schedule_as_batch),
        monotonic_waits=_refusal(_wait_by_monotonic_clock),
    )


def _refusal(attempt: Callable[[], object]) -> str:
    """Return why a feature does not work; empty if it works."""
    try:
        attempt()
    except OSError as error:
        return error.strerror or str(error)
    except (StartupError, AttributeError) as error:
        return str(error)
    return ""


@contextmanager
def semaphore() -> Iterator[Wakeup]:
    """Make a doorbell whose name is gone already, for this process and those that it forks.

    Raises:
        StartupError: none can be made.
    """
    name = _name()
    try:
        Wakeup.create(name).close()
        made = Wakeup.attach(name)
    finally:
        wakeup.unlink(name)
    with closing(made):
        yield made


@contextmanager
def pipe() -> Iterator[Doorbell]:
    """As `semaphore`, for a process with an event loop.

    Raises:
        OSError: none can be made.
    """
    path = Path(f"{shm_objects.DIRECTORY}{_name()}")
    try:
        Doorbell.create(str(path))
        made = Doorbell.attach(str(path))
    finally:
        path.unlink(missing_ok=True)
    with closing(made):
        yield made


def _name() -> str:
    """Return a name that an engine's next start removes, should this process be killed here."""
    return f"/{shm_objects.PREFIX}.doctor.{os.getpid()}.{secrets.token_hex(8)}.doctor"


def _make_semaphore() -> None:
    with semaphore() as made:
        made.wake()


def _make_pipe() -> None:
    with pipe() as made:
        made.wake()


def _signal_by_pidfd() -> None:
    own = os.pidfd_open(os.getpid())
    try:
        signal.pidfd_send_signal(own, 0)
    finally:
        os.close(own)


def _lock_open_file() -> None:
    fd = os.memfd_create("ringbatch", os.MFD_CLOEXEC)
    try:
        again = shm_objects.reopen(fd)
        shm_objects.try_lock(again, 0)
        os.close(again)
    finally:
        os.close(fd)


def _ask_for_parent_death() -> None:
    """Look at what is set; who may not look may not set it."""
    libc, found = ctypes.CDLL(None, use_errno=True), ctypes.c_int()
    if libc.prctl(_PR_GET_PDEATHSIG, ctypes.byref(found), 0, 0, 0):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _share_port() -> None:
    with socket.socket() as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)


def _refuse_connections() -> None:
    with socket.socket() as bound:
        if not refuse_new_connections(bound):
            raise OSError(errno.EPERM, "neither an interface nor a filter can be set")


def _schedule_as_batch() -> None:
    before, rank = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        wake_without_preempting()
        if os.sched_getscheduler(0) != os.SCHED_BATCH:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
    finally:
        with suppress(OSError):
            os.sched_setscheduler(0, before, rank)


def _wait_by_monotonic_clock() -> None:
    if not hasattr(ctypes.CDLL(None), "sem_clockwait"):
        raise AttributeError("the C library has no sem_clockwait")


def doors(server: ServerConfig, files: HostFiles) -> tuple[Door, ...]:
    """Return whether each address of a configuration is free, and its holder; port 0 is any."""
    ports = ((key, home, getattr(server, home), getattr(server, key)) for key, home in _PORTS)
    shared = _SHARED if server.share_port else ()
    paths = {"grpc_unix_socket": server.grpc_unix_socket}
    paths["unix_socket" if server.tcp_host is not None else "host"] = server.http_socket
    return (
        *(
            _probed(Door(key=key, home=home, host=host, port=port), files, beside=key in shared)
            for key, home, host, port in ports
            if port is not None and (host != server.host or server.tcp_host is not None)
        ),
        *(_unix_door(key, Path(path), files) for key, path in paths.items() if path is not None),
    )


def credentials(server: ServerConfig, environment: Mapping[str, str]) -> str:
    """Return why a configuration's credentials cannot be used; empty if they can, or are none."""
    try:
        found = credentials_of(server, environment)
        server_tls(found)
        server_tls(control_credentials_of(server, environment))
        if found.api_keys is not None:
            key_digests(found.api_keys)
    except StartupError as error:
        return str(error)
    return ""


def exposed(server: ServerConfig, environment: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return what strangers may read or use, with remedies, as `exposures` yields it."""
    clients = credentials_of(server, environment)
    return tuple(exposures(server, clients, control_credentials_of(server, environment)))


def _probed(door: Door, files: HostFiles, *, beside: bool) -> Door:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            door.host, door.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        # Bind without listening: a client that connected would be reset.
        with socket.socket(family, kind, protocol) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, int(beside))
            tried.bind(address)
    except (OSError, UnicodeError) as error:
        number = getattr(error, "errno", None)
        taken = number == errno.EADDRINUSE
        why = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
        holders = files.listeners(door.port) if taken else ()
        return replace(door, refusal=why, taken=taken, holders=holders)
    return door


def _unix_door(key: str, path: Path, files: HostFiles) -> Door:
    pid = holder(path)
    if pid is not None:
        holders = ((pid, files.title(pid)),) if pid else ()
        words = "a process listens there"
        return Door(key=key, path=str(path), refusal=words, taken=True, holders=holders)
    refusal = why_not_made(path)
    if not refusal and path.exists() and not path.is_socket():
        refusal = "the file there is no socket"
    return Door(key=key, path=str(path), refusal=refusal)
