"""``python -m ringbatch.frontend.grpc_server``: one frontend for gRPC, for the engine's supervisor.

It holds a lane as every frontend does, and meets the other protocols' requests in the collector.
All of gRPC runs on the event loop that the lane's doorbell rings; grpcio's own threads only wait
for the kernel.
"""

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from dataclasses import dataclass
from typing import Final

import grpc
import uvloop
from setproctitle import setproctitle

from ringbatch.frontend.attachment import Attachment
from ringbatch.frontend.credential_flags import add_flags, given_credentials
from ringbatch.frontend.grpc_authentication import Authentication
from ringbatch.frontend.grpc_calls import Calls
from ringbatch.frontend.grpc_credentials import server_credentials
from ringbatch.frontend.grpc_inference import Inference
from ringbatch.frontend.grpc_service import handlers
from ringbatch.frontend.regions import SharedMemory
from ringbatch.frontend.security import LOOK_EVERY_S, Security
from ringbatch.shm.credentials import Credentials
from ringbatch.shm.errors import StartupError
from ringbatch.shm.process import die_with_parent, log_to_stderr, settle

_UNLIMITED: Final = -1
_MAX_STREAMS: Final = 1024
"""Calls of one connection that are under way at once; HTTP/2 makes its client wait with others."""


@dataclass(frozen=True, slots=True)
class GrpcOptions:
    """What the supervisor tells a frontend for gRPC.

    Attributes:
        segment: the segment's name.
        address: host and port to listen on; the port is held for all who share it.
        max_request_bytes: longer messages are refused.
        drain_s: how long a graceful stop may take.
        shared_memory_prefixes: how the names of objects may begin that clients share.
        credentials: the server's, and those that clients must have.
    """

    segment: str
    address: str
    max_request_bytes: int
    drain_s: float
    shared_memory_prefixes: tuple[str, ...]
    credentials: Credentials


async def serve(options: GrpcOptions, number: int, control_fd: int) -> None:
    """Serve until SIGTERM.

    Args:
        options: from the supervisor.
        number: which of the frontends for gRPC this is, from 0.
        control_fd: where the supervisor is told that this one is ready.

    Raises:
        StartupError: there is no engine, no free lane, or no way to listen.
    """
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    security = Security(options.credentials)
    shared = SharedMemory(options.shared_memory_prefixes, options.max_request_bytes)
    attachment = Attachment.open(options.segment, shared)
    calls = Calls()
    inference = Inference(attachment.service, time.monotonic_ns)
    server = grpc.aio.server(
        handlers=handlers(attachment.service, inference, calls),
        interceptors=[] if security.keys is None else [Authentication(security.keys)],
        options=[
            ("grpc.max_receive_message_length", options.max_request_bytes),
            ("grpc.max_send_message_length", _UNLIMITED),
            ("grpc.max_concurrent_streams", _MAX_STREAMS),
            ("grpc.so_reuseport", 1),
        ],
    )
    _listen(server, options)
    await server.start()
    setproctitle(f"ringbatch: grpc frontend {number}")
    settle()
    _tell(control_fd, ready=True)
    looking = asyncio.create_task(_look(security))
    await stopped.wait()
    looking.cancel()
    await calls.stop(options.drain_s)
    await server.stop(None)
    attachment.close()


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


def _tell(control_fd: int, **fields: object) -> None:
    os.write(control_fd, json.dumps(fields).encode() + b"\n")


def main(arguments: list[str] | None = None) -> int:
    """Run until SIGTERM; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m ringbatch.frontend.grpc_server")
    parser.add_argument("--segment", required=True, metavar="NAME", help="the engine's segment")
    parser.add_argument("--address", required=True, metavar="HOST:PORT", help="where to listen")
    parser.add_argument("--number", required=True, type=int, metavar="N", help="from 0")
    parser.add_argument("--control-fd", required=True, type=int, metavar="N")
    parser.add_argument("--max-request-bytes", required=True, type=int, metavar="N")
    parser.add_argument("--drain-s", required=True, type=float, metavar="S")
    parser.add_argument(
        "--shared-memory-prefix", action="append", default=[], metavar="NAME", dest="prefixes"
    )
    add_flags(parser)
    parser.add_argument("--log-level", default="warning", metavar="L")
    parser.add_argument("--parent-pid", required=True, type=int, metavar="PID")
    given = parser.parse_args(arguments)
    log_to_stderr("grpc frontend", given.log_level)
    setproctitle("ringbatch: grpc frontend")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    options = GrpcOptions(
        given.segment,
        given.address,
        given.max_request_bytes,
        given.drain_s,
        tuple(given.prefixes),
        given_credentials(given),
    )
    try:
        die_with_parent(given.parent_pid)
        uvloop.run(serve(options, given.number, given.control_fd))
    except StartupError as error:
        _tell(given.control_fd, error=str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
