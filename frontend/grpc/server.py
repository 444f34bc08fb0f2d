"""``python -m ringbatch.frontend.grpc.server``: one frontend for gRPC, for the engine's supervisor.

It holds a lane as every frontend does, and meets the other protocols' requests in the collector.
All of gRPC runs on the event loop that the lane's doorbell rings; grpcio's own threads only wait
for the kernel.
"""

import argparse
import asyncio
import faulthandler
import logging
import os
import signal
import sys
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import grpc
import uvloop
from setproctitle import setproctitle

from ringbatch.frontend.access import flags as access_flags
from ringbatch.frontend.access.choice import AccessSettings
from ringbatch.frontend.access.recorder import recording
from ringbatch.frontend.grpc.authentication import Authentication
from ringbatch.frontend.grpc.calls import Calls
from ringbatch.frontend.grpc.credentials import server_credentials
from ringbatch.frontend.grpc.holdings import Budget, Holdings
from ringbatch.frontend.grpc.inference import Inference
from ringbatch.frontend.grpc.leaving import leave
from ringbatch.frontend.grpc.service import handlers
from ringbatch.frontend.request.attachment import Attachment
from ringbatch.frontend.security.credential_flags import add_flags, given_credentials
from ringbatch.frontend.security.credentials import LOOK_EVERY_S, Security
from ringbatch.frontend.v2.regions import SharedMemory
from ringbatch.shm.errors import StartupError
from ringbatch.shm.host.credentials import Credentials
from ringbatch.shm.host.descriptors import connections_allowed
from ringbatch.shm.host.messages import Failed, Ready
from ringbatch.shm.host.process import die_with_parent, log_to_stderr, settle
from ringbatch.shm.host.supervisor_line import SupervisorLine

log = logging.getLogger("ringbatch.frontend")

ROLE: Final = "grpc frontend"
"""In the log."""

_UNLIMITED: Final = -1
_HANDSHAKE_MS: Final = 10_000
_MAX_STREAMS: Final = 1024
"""Calls of one connection that are under way at once; HTTP/2 makes its client wait with others."""
_MOST_PENDING: Final = (1 << 31) - 1
"""Calls of all connections that wait to be picked up. grpcio's own limit is 3,000, past which it
cancels those of others, who do not try again; and two connections can have so many."""


@dataclass(frozen=True, slots=True)
class GrpcOptions:
    """What the supervisor tells a frontend for gRPC.

    Attributes:
        segment: the segment's name.
        address: host and port to listen on; the port is held for all who share it.
        max_request_bytes: longer messages are refused.
        max_connections: that are served at once.
        idle_timeout_s: how long a connection without a call is kept.
        drain_s: how long a graceful stop may take.
        connection_age_s: after which a client is asked to connect anew.
        leave_s: how long clients may take to leave to the engine that serves in this one's stead.
        processes: how many the engine has that listen there.
        shared_memory_prefixes: how the names of objects may begin that clients share.
        credentials: the server's, and those that clients must have.
        access: what is logged of requests.
    """

    segment: str
    address: str
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


async def serve(options: GrpcOptions, number: int, supervisor: SupervisorLine) -> None:
    """Serve until SIGTERM.

    Args:
        options: from the supervisor.
        number: which of the frontends for gRPC this is, from 0.
        supervisor: who is told that this one is ready, and moves.

    Raises:
        StartupError: there is no engine, no free lane, or no way to listen.
    """
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    security = Security(options.credentials)
    shared = SharedMemory(options.shared_memory_prefixes, options.max_request_bytes)
    attachment = Attachment.open(options.segment, shared)
    calls = Calls()
    inference = Inference(attachment.service)
    recorder, writer = recording(options.access, attachment.service.engine, ROLE)
    server = grpc.aio.server(
        handlers=handlers(attachment.service, inference, calls, recorder),
        interceptors=[]
        if security.keys is None
        else [Authentication(security.keys, inference.ended_outside)],
        options=_limits(options),
    )
    _listen(server, options)
    before, closing = asyncio.all_tasks(), asyncio.Event()
    await server.start()
    for task in asyncio.all_tasks() - before:
        task.add_done_callback(partial(_end_if_failed, closing))
    setproctitle(f"ringbatch: grpc frontend {number}")
    settle()
    attachment.lane.say_serving()
    supervisor.tell(Ready())
    budget = Budget.of(options.max_request_bytes, options.idle_timeout_s)
    holdings = Holdings(budget, int(options.address.rpartition(":")[2]))
    tasks = [
        asyncio.create_task(_look(security)),
        asyncio.create_task(holdings.watch()),
        asyncio.create_task(supervisor.beat()),
    ]
    await stopped.wait()
    if attachment.superseded:
        port = int(options.address.rpartition(":")[2])
        await leave(port, options.processes, options.leave_s)
    await calls.stop(options.drain_s)
    closing.set()
    await server.stop(None)
    for task in tasks:
        task.cancel()
    attachment.close()
    writer.close()


def _limits(options: GrpcOptions) -> list[tuple[str, int]]:
    """Of what a client can make grpcio hold, what grpcio itself can bound; for the rest there are
    `Holdings`."""
    idle_ms = int(options.idle_timeout_s * 1000)
    return [
        ("grpc.max_receive_message_length", options.max_request_bytes),
        ("grpc.max_send_message_length", _UNLIMITED),
        ("grpc.max_concurrent_streams", _MAX_STREAMS),
        ("grpc.server.max_pending_requests", _MOST_PENDING),
        ("grpc.server.max_pending_requests_hard_limit", _MOST_PENDING),
        # Of a stream that nobody reads from, no more than its first window is held.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.max_allowed_incoming_connections", connections_allowed(options.max_connections)),
        ("grpc.max_connection_idle_ms", idle_ms),
        ("grpc.max_connection_age_ms", int(options.connection_age_s * 1000)),
        ("grpc.server_handshake_timeout_ms", _HANDSHAKE_MS),
        # Whoever has vanished answers no ping. Whoever answers one is not silent, so they are
        # rarer than a silence lasts that is suspicious.
        ("grpc.keepalive_time_ms", 2 * idle_ms),
        ("grpc.so_reuseport", 1),
    ]


def _end_if_failed(closing: asyncio.Event, serving: "asyncio.Task[Any]") -> None:
    """End this process where grpcio's server has ceased to take calls, and was not told to.

    It does where the path of one is not UTF-8, which anybody can send and nothing here sees before.
    It would hold its connections, accept others and answer nobody; and to stop it in order would
    wait for the calls that it has. So clients are told by the kernel, and try again.
    """
    if not serving.cancelled() and serving.exception() is not None and not closing.is_set():
        log.error("grpc frontend: no more calls are taken, so another process is to take them")
        os._exit(1)


async def _look(security: Security) -> None:
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        security.look()


def _listen(server: grpc.aio.Server, options: GrpcOptions) -> None:
    address, credentials = options.address, server_credentials(options.credentials)
    try:
        if credentials is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, credentials)
    except RuntimeError:
        port = 0
    # Older releases return 0 where newer ones raise.
    if not port:
        raise StartupError(f"cannot listen on {address} for gRPC: the port is in use")


def main(arguments: list[str] | None = None) -> int:
    """Run until SIGTERM; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m ringbatch.frontend.grpc.server")
    parser.add_argument("--segment", required=True, metavar="NAME", help="the engine's segment")
    parser.add_argument("--address", required=True, metavar="HOST:PORT", help="where to listen")
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
    add_flags(parser)
    access_flags.add_flags(parser)
    parser.add_argument("--log-level", default="warning", metavar="L")
    parser.add_argument("--parent-pid", required=True, type=int, metavar="PID")
    given = parser.parse_args(arguments)
    log_to_stderr(ROLE, given.log_level)
    supervisor = SupervisorLine(given.control_fd)
    setproctitle("ringbatch: grpc frontend")
    # One that hangs and is ended says where it stood.
    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    options = GrpcOptions(
        given.segment,
        given.address,
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
    )
    try:
        die_with_parent(given.parent_pid)
        uvloop.run(serve(options, given.number, supervisor))
    except StartupError as error:
        supervisor.tell(Failed(str(error)))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
