"""``python -m ringbatch.frontend.metrics.control_server``: the control address, for the supervisor.

A process of its own: it holds no lane and serves no clients, so that neither load nor whoever can
reach the public address has a say in whether the engine can be looked at. It reads the segment and
writes nothing there.
"""

import argparse
import asyncio
import faulthandler
import logging
import signal
import socket
import sys
from functools import partial
from typing import Final

import uvloop
from setproctitle import setproctitle
from uvicorn.config import Config

from ringbatch.frontend.http.connection_limit import at_most
from ringbatch.frontend.http.fallback import FallbackProtocol
from ringbatch.frontend.http.server import TickingServer
from ringbatch.frontend.metrics.control_app import create_control_app
from ringbatch.shm.errors import StartupError
from ringbatch.shm.host.distribution import installed_version
from ringbatch.shm.host.messages import Failed, Ready
from ringbatch.shm.host.process import die_with_parent, log_to_stderr, settle
from ringbatch.shm.host.supervisor_line import SupervisorLine
from ringbatch.shm.segment import Segment

MAX_CONNECTIONS: Final = 64
_IDLE_TIMEOUT_S: Final = 75
"""Longer than Prometheus waits between two looks, by default a minute."""


async def serve(segment: Segment, listener: socket.socket, supervisor: SupervisorLine) -> None:
    """Serve until SIGTERM.

    Args:
        segment: attached.
        listener: bound, and listening.
        supervisor: who is told that requests are served from now on, and that this process moves.
    """
    config = Config(
        create_control_app(segment, installed_version()),
        loop="none",
        lifespan="off",
        ws="none",
        interface="asgi3",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        log_config=None,
        timeout_keep_alive=_IDLE_TIMEOUT_S,
    )
    server = TickingServer(config)
    config.http = at_most(MAX_CONNECTIONS, FallbackProtocol, server.server_state)  # type: ignore[assignment]
    settle()
    asyncio.get_running_loop().call_soon(partial(supervisor.tell, Ready()))
    beating = asyncio.create_task(supervisor.beat())
    await server.serve(sockets=[listener])
    beating.cancel()


def main(arguments: list[str] | None = None) -> int:
    """Run until SIGTERM; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m ringbatch.frontend.metrics.control_server")
    parser.add_argument("--segment", required=True, metavar="NAME", help="the engine's segment")
    parser.add_argument("--listen-fd", required=True, type=int, metavar="N", help="a bound socket")
    parser.add_argument("--control-fd", required=True, type=int, metavar="N")
    parser.add_argument("--log-level", default="warning", metavar="L")
    parser.add_argument("--parent-pid", required=True, type=int, metavar="PID")
    given = parser.parse_args(arguments)
    log_to_stderr("control", given.log_level)
    supervisor = SupervisorLine(given.control_fd)
    # What is sent to a server is no affair of its log, at uvicorn's own word.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    setproctitle("ringbatch: control")
    # One that hangs and is ended says where it stood.
    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        die_with_parent(given.parent_pid)
        segment = Segment.attach(given.segment)
    except StartupError as error:
        supervisor.tell(Failed(str(error)))
        return 1
    listener = socket.socket(fileno=given.listen_fd)
    uvloop.run(serve(segment, listener, supervisor))
    return 0


if __name__ == "__main__":
    sys.exit(main())
