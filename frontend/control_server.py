"""``python -m ringbatch.frontend.control_server``: the control address, for the supervisor.

A process of its own: it holds no lane and serves no clients, so that neither load nor whoever can
reach the public address has a say in whether the engine can be looked at. It reads the segment and
writes nothing there.
"""

import argparse
import asyncio
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import uvloop
from setproctitle import setproctitle
from uvicorn.config import Config

from ringbatch.frontend.anyhttp import AnyHttp
from ringbatch.frontend.control_app import create_control_app
from ringbatch.frontend.distribution import installed_version
from ringbatch.frontend.ticking_server import TickingServer
from ringbatch.frontend.turned_away import at_most
from ringbatch.shm.errors import StartupError
from ringbatch.shm.process import die_with_parent, log_to_stderr, settle
from ringbatch.shm.segment import Segment

MAX_CONNECTIONS: Final = 64
_IDLE_TIMEOUT_S: Final = 75
"""Longer than Prometheus waits between two looks, by default a minute."""


async def serve(segment: Segment, listener: socket.socket, ready: Callable[[], None]) -> None:
    """Serve until SIGTERM.

    Args:
        segment: attached.
        listener: bound, and listening.
        ready: called when requests are served from then on.
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
    config.http = at_most(MAX_CONNECTIONS, AnyHttp, server.server_state)  # type: ignore[assignment]
    settle()
    asyncio.get_running_loop().call_soon(ready)
    await server.serve(sockets=[listener])


def _tell(control_fd: int, **fields: Any) -> None:
    os.write(control_fd, json.dumps(fields).encode() + b"\n")


def main(arguments: list[str] | None = None) -> int:
    """Run until SIGTERM; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m ringbatch.frontend.control_server")
    parser.add_argument("--segment", required=True, metavar="NAME", help="the engine's segment")
    parser.add_argument("--listen-fd", required=True, type=int, metavar="N", help="a bound socket")
    parser.add_argument("--control-fd", required=True, type=int, metavar="N")
    parser.add_argument("--log-level", default="warning", metavar="L")
    parser.add_argument("--parent-pid", required=True, type=int, metavar="PID")
    given = parser.parse_args(arguments)
    log_to_stderr("control", given.log_level)
    # What is sent to a server is no affair of its log, at uvicorn's own word.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    setproctitle("ringbatch: control")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        die_with_parent(given.parent_pid)
        segment = Segment.attach(given.segment)
    except StartupError as error:
        _tell(given.control_fd, error=str(error))
        return 1
    listener = socket.socket(fileno=given.listen_fd)
    uvloop.run(serve(segment, listener, partial(_tell, given.control_fd, ready=True)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
