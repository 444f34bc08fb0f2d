"""Control server: ``python -m ringbatch.frontend.metrics.control_server``, for the supervisor.

It serves the control address and answers HAProxy's agent-check. It is a process of its own: it
holds no lane and serves no clients. So neither load nor clients of the public address can keep an
operator from looking at the engine. It reads the segment and writes nothing there.
"""

import argparse
import asyncio
import faulthandler
import logging
import socket
import sys
import time
from functools import partial
from typing import Any, Final

import uvloop
from setproctitle import setproctitle
from uvicorn.config import Config

from ringbatch.frontend.http.asgi import App
from ringbatch.frontend.http.connection_limit import at_most
from ringbatch.frontend.http.server import TickingServer
from ringbatch.frontend.load.agent_check import Agent
from ringbatch.frontend.load.load_reader import LoadReader
from ringbatch.frontend.metrics.control_app import create_control_app
from ringbatch.frontend.metrics.control_connections import (
    MAX_CONNECTIONS,
    ControlConnection,
    make_room,
)
from ringbatch.frontend.metrics.gpus import GpuGauge
from ringbatch.frontend.page.history import History
from ringbatch.frontend.page.live import LiveFeed
from ringbatch.frontend.page.subscribers import Subscribers
from ringbatch.frontend.payloads.flags import add_delivery_flags, given_delivery
from ringbatch.frontend.payloads.log import PayloadLog, payload_log
from ringbatch.frontend.security.credential_flags import add_flags, given_credentials
from ringbatch.frontend.security.credentials import Security
from ringbatch.shm.errors import StartupError
from ringbatch.shm.host.background_tasks import essential_task
from ringbatch.shm.host.distribution import installed_version
from ringbatch.shm.host.messages import Failed, Ready
from ringbatch.shm.host.process import (
    die_with_parent,
    leave_signals_to_supervisor,
    log_to_stderr,
    settle,
)
from ringbatch.shm.host.supervisor_line import SupervisorLine
from ringbatch.shm.segment import Segment

_IDLE_TIMEOUT_S: Final = 75
"""Longer than Prometheus waits between two looks, by default a minute."""


class ControlServer(TickingServer):
    """Server of the control address: ends the streams of the page before it drains requests.

    Args:
        config: uvicorn's.
        security: TLS and API keys of its connections.
        subscribers: streams of the page; all are ended if the API keys change.
    """

    def __init__(self, config: Config, security: Security, subscribers: Subscribers) -> None:
        super().__init__(config, security, subscribers.drop_all)
        self._subscribers = subscribers

    async def shutdown(self, sockets: list[Any] | None = None) -> None:
        """Stop serving; called by uvicorn when no more requests are wanted."""
        self._subscribers.close()
        await super().shutdown(sockets)


async def serve(
    segment: Segment,
    listener: socket.socket | None,
    supervisor: SupervisorLine,
    security: Security,
    public_url: str,
    trace_endpoint: str | None = None,
    agent_listener: socket.socket | None = None,
    payloads: PayloadLog[Any] | None = None,
) -> None:
    """Serve until SIGTERM.

    Args:
        segment: attached.
        listener: listens at the control address; None if there is none.
        supervisor: gets a message once requests are served, and beats.
        security: the certificate, and the keys if there are any; clients on other hosts must send
            one of these keys.
        public_url: where clients are served.
        trace_endpoint: the collector of traces; None if nothing is traced.
        agent_listener: listens for HAProxy's agent-check; None if there is none.
        payloads: delivers events, from before this; None without a payload log.
    """
    version, subscribers = installed_version(), Subscribers(History())
    gpus = GpuGauge()
    about = {"version": version, "public": public_url}
    live = LiveFeed(segment, subscribers, about, look=gpus.latest)
    tracing = None
    if trace_endpoint is not None:
        # Only here, because it needs a package that others do without.
        from ringbatch.frontend.tracing.tracing import tracing_to

        tracing = tracing_to(trace_endpoint, segment, version)
    app = create_control_app(
        segment,
        version,
        subscribers,
        security.keys,
        tracing,
        security.failed_handshakes,
        payloads,
        gpus.latest,
    )
    server = _server(app, security, subscribers)
    settle()
    asyncio.get_running_loop().call_soon(partial(supervisor.send, Ready()))
    tasks = [essential_task("the beat", supervisor.beat())]
    if listener is not None:
        tasks.append(essential_task("the page", live.run()))
    tracing_task = None if tracing is None else essential_task("tracing", tracing.run())
    if agent_listener is not None:
        agent = _agent(agent_listener, segment)
        tasks.append(essential_task("the agent-check", agent.run()))
    await server.serve(sockets=[] if listener is None else [listener])
    if payloads is not None:
        await payloads.finish()
    if tracing is not None and tracing_task is not None:
        tracing_task.cancel()
        await tracing.finish()
    for task in tasks:
        task.cancel()


def _server(app: App, security: Security, subscribers: Subscribers) -> ControlServer:
    """Return the server of the control application, which holds few connections."""
    config = Config(
        app,
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
    server = ControlServer(config, security, subscribers)
    state: Any = server.server_state
    config.http = at_most(  # type: ignore[assignment]
        MAX_CONNECTIONS, ControlConnection, state, partial(make_room, state.connections)
    )
    return server


def _agent(listener: socket.socket, segment: Segment) -> Agent:
    """Return HAProxy's agent-check for an engine."""
    reader = LoadReader(segment)
    return Agent(
        listener,
        serves=lambda: bool(segment.ready_ns),
        load=lambda: reader.look(time.monotonic_ns()),
    )


def main(arguments: list[str] | None = None) -> int:
    """Run until SIGTERM; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m ringbatch.frontend.metrics.control_server")
    parser.add_argument("--segment", required=True, metavar="NAME", help="the engine's segment")
    parser.add_argument("--listen-fd", type=int, metavar="N", help="a bound socket")
    parser.add_argument("--agent-fd", type=int, metavar="N", help="one for HAProxy's agent-check")
    parser.add_argument("--control-fd", required=True, type=int, metavar="N")
    parser.add_argument("--trace-endpoint", metavar="URL", help="to where traces are sent")
    parser.add_argument("--log-level", default="warning", metavar="L")
    add_delivery_flags(parser)
    parser.add_argument("--public-url", default="", metavar="URL", help="where clients are served")
    add_flags(parser)
    parser.add_argument("--parent-pid", required=True, type=int, metavar="PID")
    given = parser.parse_args(arguments)
    log_to_stderr("control", given.log_level)
    supervisor = SupervisorLine(given.control_fd)
    # What is sent to a server is no affair of its log, at uvicorn's own word.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    setproctitle("ringbatch: control")
    # One that hangs and is ended says where it stood.
    faulthandler.enable()
    leave_signals_to_supervisor()
    try:
        die_with_parent(given.parent_pid)
        security = Security(given_credentials(given))
        segment = Segment.attach(given.segment)
        payloads, delivery = None, given_delivery(given)
        if delivery is not None:
            payloads = payload_log(delivery, partial(_have_ended, segment))
    except StartupError as error:
        supervisor.send(Failed(str(error)))
        return 1
    listener, agent_listener = (
        None if fd is None else socket.socket(fileno=fd) for fd in (given.listen_fd, given.agent_fd)
    )
    uvloop.run(
        serve(
            segment,
            listener,
            supervisor,
            security,
            given.public_url,
            given.trace_endpoint,
            agent_listener,
            payloads,
        )
    )
    return 0


def _have_ended(segment: Segment) -> bool:
    """Return whether no frontend serves any more, or only this process of the engine ends."""
    return not segment.draining or not segment.serving_lanes()


if __name__ == "__main__":
    sys.exit(main())
