"""``python -m ringbatch.frontend.grpc.server``: one frontend for gRPC, for the engine's supervisor.

It holds a lane as every frontend does, and meets the other protocols' requests in the collector.
"""

import argparse
import asyncio
import faulthandler
import logging
import random
import signal
import socket
import sys
import time
from dataclasses import dataclass
from functools import partial
from typing import Final

import uvloop
from setproctitle import setproctitle

from ringbatch.frontend.access import flags as access_flags
from ringbatch.frontend.access.recorder import recording
from ringbatch.frontend.access.sampling import AccessSettings
from ringbatch.frontend.grpc.call_context import MethodHandler
from ringbatch.frontend.grpc.call_head import CallHeadReader
from ringbatch.frontend.grpc.connection import GrpcSettings
from ringbatch.frontend.grpc.connections import BACKLOG, Connections
from ringbatch.frontend.grpc.handover import leave
from ringbatch.frontend.grpc.inference import Inference
from ringbatch.frontend.grpc.reading_in_place import IN_PLACE_BYTES
from ringbatch.frontend.grpc.service import methods_of
from ringbatch.frontend.http.body_budget import BodyBudget
from ringbatch.frontend.load.load_reports import LoadReports
from ringbatch.frontend.payloads.flags import add_keeping_flags, given_keeping
from ringbatch.frontend.payloads.recorder import payload_recorder
from ringbatch.frontend.payloads.settings import Keeping
from ringbatch.frontend.request.attachment import Attachment
from ringbatch.frontend.security.accounts import Accounts
from ringbatch.frontend.security.credential_flags import add_flags, given_credentials
from ringbatch.frontend.security.credentials import Security
from ringbatch.frontend.v2.regions import SharedMemory
from ringbatch.shm.account import CLASS_NAMES, PriorityClass
from ringbatch.shm.counters import LaneCounter
from ringbatch.shm.errors import StartupError
from ringbatch.shm.host.background_tasks import essential_task
from ringbatch.shm.host.credentials import Credentials
from ringbatch.shm.host.descriptors import connections_allowed
from ringbatch.shm.host.messages import Failed, Ready
from ringbatch.shm.host.process import (
    die_with_parent,
    leave_signals_to_supervisor,
    log_to_stderr,
    settle,
)
from ringbatch.shm.host.supervisor_line import SupervisorLine

ROLE: Final = "grpc frontend"
"""Name of the process's role in the log."""
log = logging.getLogger("ringbatch.frontend")

PROTOCOLS: Final = ("h2",)
"""Protocols over TLS."""

_AGE_SPREAD: Final = 0.1
"""Spread of connections' ages, as a share, so that not all end at once."""


@dataclass(frozen=True, slots=True)
class GrpcOptions:
    """Options of a gRPC frontend, from the supervisor.

    Attributes:
        segment: the segment's name.
        address: host and port to listen on; the port is held for all who share it. None if gRPC has
            a Unix socket alone.
        unix_fd: a listening Unix socket, which all processes share; None if there is none.
        max_request_bytes: longer messages are refused.
        max_connections: that are served at once.
        idle_timeout_s: how long a connection without a call is kept.
        drain_s: how long a graceful stop may take.
        connection_age_s: after which a client is asked to connect anew.
        leave_s: how long clients may take to leave to the engine that takes over.
        processes: how many the engine has that listen there.
        shared_memory_prefixes: prefixes that the names of clients' objects must have.
        credentials: the server's, and those that clients must have.
        access: settings of the request log.
        keeping: settings of the payload log, and the descriptor that takes it; None without
            a payload log.
        trusted_proxies: whose header names the client, see `Accounts`.
        highest: the highest class of requests without a key.
    """

    segment: str
    address: str | None
    unix_fd: int | None
    max_request_bytes: int
    max_connections: int
    idle_timeout_s: float
    drain_s: float
    connection_age_s: float
    leave_s: float
    processes: int
    shared_memory_prefixes: tuple[str, ...]
    credentials: Credentials
    access: AccessSettings
    keeping: tuple[Keeping, int] | None = None
    trusted_proxies: tuple[str, ...] = ()
    highest: PriorityClass = PriorityClass.INTERACTIVE


async def serve(options: GrpcOptions, number: int, supervisor: SupervisorLine) -> None:
    """Serve until SIGTERM.

    Args:
        options: from the supervisor.
        number: which of the frontends for gRPC this is, from 0.
        supervisor: gets a message once this one is ready, and its beats.

    Raises:
        StartupError: there is no engine, no free lane, or no way to listen.
    """
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    security = Security(options.credentials, PROTOCOLS)
    shared = SharedMemory(options.shared_memory_prefixes, options.max_request_bytes)
    listener = None if options.address is None else listen(options.address)
    unix = None if options.unix_fd is None else socket.socket(fileno=options.unix_fd)
    if unix is not None:
        unix.setblocking(False)
    attachment = Attachment.open(options.segment, shared)
    counters = attachment.lane.counters
    security.failed_handshakes.count = partial(counters.add, LaneCounter.TLS_FAILED)
    service = attachment.service
    reports = LoadReports(attachment.segment, time.monotonic_ns)
    recorder, writer = recording(options.access, service.engine, ROLE, reports)
    payloads = payload_recorder(options.keeping, recorder, attachment.lane)
    inference, stopping = Inference(service), asyncio.Event()
    methods: dict[str, MethodHandler] = {}
    segment = attachment.segment
    accounts = Accounts(
        segment.identity,
        options.trusted_proxies,
        security.keys,
        highest=options.highest,
        on=segment.shares_fairly,
    )
    recorder.account_name = accounts.name
    heads = CallHeadReader(methods, security.keys, accounts)
    shown = partial(service.settings, options.access.trace_sample)
    methods |= methods_of(service, inference, stopping, heads, recorder, shown, payloads)
    settings = GrpcSettings(
        inference=inference,
        heads=heads,
        recorder=recorder,
        budget=BodyBudget.of(options.max_request_bytes),
        max_request_bytes=options.max_request_bytes,
        idle_timeout_s=options.idle_timeout_s,
        age_s=lambda: options.connection_age_s * (1 + random.random() * _AGE_SPREAD),
        stopping=stopping.is_set,
        connections=set(),
        incoming=bytearray(IN_PLACE_BYTES),
        keyless={},
    )
    most = connections_allowed(options.max_connections, log)
    connections = Connections(listener, unix, most, settings, security, payloads)
    await connections.listen()
    setproctitle(f"ringbatch: grpc frontend {number}")
    settle()
    attachment.lane.publish_serving()
    supervisor.send(Ready())
    tasks = [
        essential_task("the tick of connections", connections.tick()),
        essential_task("the beat", supervisor.beat()),
    ]
    await stopped.wait()
    if attachment.superseded:
        connections.leave_shared()
        await leave(listener, connections.count, options.processes, options.leave_s)
    stopping.set()
    await connections.stop(options.drain_s)
    for task in tasks:
        task.cancel()
    if payloads is not None:
        payloads.close()
    attachment.close()
    writer.close()


def listen(address: str) -> socket.socket:
    """Open a socket that listens beside those of others on the same port.

    Raises:
        StartupError: it cannot.
    """
    host, _, port = address.rpartition(":")
    name = host.removeprefix("[").removesuffix("]")
    family = socket.AF_INET6 if ":" in name else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        # Its connections have both from it. Those that linger when it is gone must not keep the
        # next engine from the port, which that binds without sharing first, to notice a stranger.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind((name, int(port)))
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        text = f"cannot listen on {address} for gRPC: {error.strerror}"
        raise StartupError(text) from None
    return listener


def main(arguments: list[str] | None = None) -> int:
    """Run until SIGTERM; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m ringbatch.frontend.grpc.server")
    parser.add_argument("--segment", required=True, metavar="NAME", help="the engine's segment")
    parser.add_argument("--address", metavar="HOST:PORT", help="where to listen")
    parser.add_argument("--unix-fd", type=int, metavar="N", help="a Unix socket that listens")
    parser.add_argument("--number", required=True, type=int, metavar="N", help="from 0")
    parser.add_argument("--control-fd", required=True, type=int, metavar="N")
    parser.add_argument("--max-request-bytes", required=True, type=int, metavar="N")
    parser.add_argument("--max-connections", required=True, type=int, metavar="N")
    parser.add_argument("--idle-timeout-s", required=True, type=float, metavar="S")
    parser.add_argument("--drain-s", required=True, type=float, metavar="S")
    parser.add_argument("--connection-age-s", required=True, type=float, metavar="S")
    parser.add_argument("--leave-s", required=True, type=float, metavar="S")
    parser.add_argument("--processes", required=True, type=int, metavar="N")
    parser.add_argument(
        "--shared-memory-prefix", action="append", default=[], metavar="NAME", dest="prefixes"
    )
    parser.add_argument("--trusted-proxy", action="append", default=[], metavar="NETWORK")
    parser.add_argument("--highest-class", choices=CLASS_NAMES, default="interactive")
    add_flags(parser)
    access_flags.add_flags(parser)
    add_keeping_flags(parser)
    parser.add_argument("--log-level", default="warning", metavar="L")
    parser.add_argument("--parent-pid", required=True, type=int, metavar="PID")
    given = parser.parse_args(arguments)
    log_to_stderr(ROLE, given.log_level)
    supervisor = SupervisorLine(given.control_fd)
    setproctitle("ringbatch: grpc frontend")
    # One that hangs and is ended says where it stood.
    faulthandler.enable()
    leave_signals_to_supervisor()
    options = GrpcOptions(
        given.segment,
        given.address,
        given.unix_fd,
        given.max_request_bytes,
        given.max_connections,
        given.idle_timeout_s,
        given.drain_s,
        given.connection_age_s,
        given.leave_s,
        given.processes,
        tuple(given.prefixes),
        given_credentials(given),
        access_flags.given_access(given),
        given_keeping(given),
        tuple(given.trusted_proxy),
        CLASS_NAMES[given.highest_class],
    )
    try:
        die_with_parent(given.parent_pid)
        uvloop.run(serve(options, given.number, supervisor))
    except StartupError as error:
        supervisor.send(Failed(str(error)))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
