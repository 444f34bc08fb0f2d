"""Two engines behind HAProxy and behind nginx, as the examples in systemd/proxies set them up, and
both engines restarted one after the other: no client notices."""

import asyncio
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from serve.client import Connection, escaped, request
from serve.grpc_stub import Held
from serve.load import Load
from serve.server import Server, Start, configured
from tiers import exhaustive

from ringbatch.engine.config.definitions import settings
from ringbatch.engine.config.dimensions import REQUEST_BYTES
from ringbatch.engine.config.settings import ModelConfig
from ringbatch.frontend.load.agent_check import Agent
from ringbatch.frontend.load.haproxy_weight import FULL, EngineLoad, ModelLoad
from ringbatch.frontend.load.slowdown import Pace

WaitUntil = Callable[..., Any]
FreePort = Callable[[], int]

EXAMPLES: Final = Path(__file__).parents[2] / "systemd/proxies"
STOP_DELAY_S: Final = 5.0
"""Stop delay that the examples advise."""
HTTP, GRPC = 8000, 8001
ENGINES: Final = ((8081, 9081, 8181), (8082, 9082, 8182))
"""Ports of the engines in the examples: for HTTP, for gRPC and for HAProxy's agent-check."""
AGENT_PORTS: Final = tuple(ports[-1] for ports in ENGINES)
MODELS: Final = {"echo": {"path": "moody.py"}}


@dataclass(frozen=True)
class Kind:
    """A load balancer.

    Attributes:
        example: the file of its configuration.
        program: its name.
        check: flags to check a configuration, without the file's name.
        run: flags to serve with a configuration in the foreground, likewise.
    """

    example: str
    program: str
    check: Sequence[str]
    run: Sequence[str]


NGINX_USER: Final = "user root;" if os.geteuid() == 0 else ""
"""Directive that lets nginx's workers write into the folders of root's tests."""
KINDS: Final = {
    "haproxy": Kind("haproxy.cfg", "haproxy", ("-c", "-f"), ("-db", "-f")),
    "nginx": Kind(
        "nginx.conf",
        "nginx",
        ("-e", "stderr", "-t", "-g", f"pid nginx.pid; {NGINX_USER}", "-c"),
        ("-e", "stderr", "-g", f"daemon off; pid nginx.pid; {NGINX_USER}", "-c"),
    ),
}


def program(kind: Kind) -> str:
    """Return the path of a program, or skip the test if it is missing; CI must have it."""
    found = shutil.which(kind.program, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if found is None:
        assert "CI" not in os.environ, f"{kind.program} is missing"
        pytest.skip(f"{kind.program} is not installed (Debian: haproxy, nginx-light)")
    return found


def rendered(kind: Kind, folder: Path, ports: Mapping[int, int]) -> Path:
    """The example with other ports, and with nginx's folders for files below its prefix."""
    text = (EXAMPLES / kind.example).read_text()
    for usual, port in ports.items():
        text, count = re.subn(rf"(127\.0\.0\.1:|[ -]port ){usual}\b", rf"\g<1>{port}", text)
        assert count or (usual in AGENT_PORTS and kind.program == "nginx"), usual
    paths = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    lines = "".join(f"    {path}_temp_path {path};\n" for path in paths)
    path = folder / kind.example
    path.write_text(text.replace("http {\n", f"http {{\n{lines}"))
    return path


class Balancer:
    """Running load balancer.

    Attributes:
        port, grpc_port: ports on which it listens.

    Args:
        kind: of which kind.
        folder: for its files.
        ports: its own and the engines', by those of the example.
    """

    def __init__(self, kind: Kind, folder: Path, ports: Mapping[int, int]) -> None:
        self.port, self.grpc_port = ports[HTTP], ports[GRPC]
        configuration = rendered(kind, folder, ports)
        prefix = ("-p", str(folder)) if kind.program == "nginx" else ()
        with (folder / "balancer.log").open("wb") as log:
            self.process = subprocess.Popen(
                [program(kind), *prefix, *kind.run, str(configuration)],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def serves(self) -> bool:
        """Return whether the balancer has an engine that is ready."""
        assert self.process.poll() is None
        try:
            with Connection(self.port) as connection:
                answer = connection.ask(request("/v2/health/ready", method="GET"))
        except OSError:
            return False
        return answer.status == 200

    def stop(self) -> None:
        """End it."""
        self.process.terminate()
        self.process.wait()


class Calls:
    """gRPC calls without a pause until told to stop; see grpc_calls.py.

    Attributes:
        answered: number of right answers.
        failures: the ends of all other calls.
    """

    def __init__(self, port: int) -> None:
        self.answered = 0
        self.failures: list[str] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "serve.grpc_calls", str(port)],
            cwd=Path(__file__).parents[1],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def stop(self) -> None:
        """Let every client finish its call, and read the counts."""
        out, _ = self._process.communicate()
        result = json.loads(out)
        self.answered, self.failures = result["answered"], result["failures"]


@pytest.fixture
def ports(free_port_factory: FreePort) -> dict[int, int]:
    """Free port for each port of the examples."""
    usual = (HTTP, GRPC, *ENGINES[0], *ENGINES[1])
    return {port: free_port_factory() for port in usual}


@pytest.fixture
def held(tmp_path: Path) -> Held:
    return Held(tmp_path / "held.py")


class Engines:
    """Two engines at the ports of the examples.

    Args:
        start: starts one.
        ports: by those of the examples.
        models: models that they serve.
    """

    def __init__(self, start: Start, ports: Mapping[int, int], models: dict[str, Any]) -> None:
        self._start, self._ports, self._models = start, ports, models
        self.running = [self.started(number) for number in range(2)]

    def started(self, number: int) -> Server:
        """Start an engine, which serves."""
        http, grpc, agent = (self._ports[port] for port in ENGINES[number])
        keys = {"port": http, "grpc_port": grpc, "agent_check_port": agent, "frontends": 2}
        return self._start(self._models, stop_delay_s=STOP_DELAY_S, **keys)

    def restart(self, number: int) -> Server:
        """End one in order, and start it again."""
        assert self.running[number].stop() == 0
        self.running[number] = self.started(number)
        return self.running[number]


def test_the_examples_agree_with_the_settings() -> None:
    haproxy, nginx = ((EXAMPLES / KINDS[name].example).read_text() for name in ("haproxy", "nginx"))
    timeout_s = settings(ModelConfig)["timeout_s"].default
    waits = [
        *re.findall(r"timeout server (\d+)s", haproxy),
        *re.findall(r"_read_timeout (\d+)s", nginx),
    ]
    assert len(waits) == 3
    assert min(map(int, waits)) > timeout_s
    # Of the usual weight, 1, a share is rounded to nothing.
    assert int(re.findall(r"default-server weight (\d+) agent-check", haproxy)[0]) >= FULL
    assert f"gt {REQUEST_BYTES} " in haproxy
    assert f"client_max_body_size {REQUEST_BYTES >> 20}m;" in nginx
    idle = re.findall(r"\bkeepalive_timeout (\d+)s", nginx)
    assert len(idle) == 2
    # Within a second each frontend looks whether its engine is to stop.
    assert max(map(int, idle)) < STOP_DELAY_S - 1
    assert f"stop_delay_s = {STOP_DELAY_S:g} " in haproxy
    assert f"stop_delay_s = {STOP_DELAY_S:g} " in nginx
    # Else the proxy counts as the one client, also where trusted_proxies names it.
    assert haproxy.count("\n    option forwardfor\n") == 1
    assert nginx.count("_set_header X-Forwarded-For $proxy_add_x_forwarded_for;") == 2


balancers = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


@balancers
def test_an_example_is_sound(kind: Kind, ports: dict[int, int], tmp_path: Path) -> None:
    configuration = rendered(kind, tmp_path, ports)
    prefix = ("-p", str(tmp_path)) if kind.program == "nginx" else ()
    command = [program(kind), *prefix, *kind.check, str(configuration)]
    checked = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    assert "warn" not in checked.stderr.lower(), checked.stderr


@exhaustive
@balancers
def test_a_rolling_restart_fails_nothing(
    kind: Kind,
    start: Start,
    ports: dict[int, int],
    held: Held,
    tmp_path: Path,
    wait_until: WaitUntil,
    record_property: Callable[[str, object], None],
) -> None:
    models = MODELS | {"held": {"path": held.path}}
    engines = Engines(start, ports, models)
    with ExitStack() as stack:
        balancer = Balancer(kind, tmp_path, ports)
        stack.callback(balancer.stop)
        wait_until(balancer.serves, "it has found an engine")
        calls = Calls(balancer.grpc_port)
        stack.callback(calls.stop)
        loads = [
            Load(balancer, 8),
            # Between two requests of a slow client a connection to an engine may be closed.
            Load(balancer, 8, pause_s=0.2),
            Load(balancer, 8, ask=escaped),
        ]
        for load in loads:
            stack.callback(load.stop)
        for number in range(2):
            engine = engines.restart(number)

            def goes_there(engine: Server = engine) -> bool:
                # Over HTTP and over gRPC: a balancer may find that out apart from each other.
                models = engine.status().models
                return models["echo"].requests > 100 and models["held"].requests > 10

            wait_until(goes_there, "the engine gets requests of both kinds again")
    answered = sum(load.answered for load in loads)
    failures = [failure for load in loads for failure in load.failures]
    record_property(
        "figures",
        f"{kind.program}: 2 restarts, {answered} HTTP answers, {len(failures)} failed; "
        f"{calls.answered} gRPC answers, {len(calls.failures)} failed",
    )
    assert failures == []
    assert [(load.refused, load.retried, load.unaccepted) for load in loads] == [(0, 0, 0)] * 3
    assert calls.answered > 100
    # nginx learns of a stop too late for gRPC.
    assert calls.failures == [] or kind.program == "nginx"


SLOW_TO_LOAD: Final = """
import time
def load():
    time.sleep(5)
def predict(values):
    return values
"""


@exhaustive
def test_a_rolling_update_goes_on_once_the_new_engine_is_ready_and_fails_nothing(
    start: Start,
    ports: dict[int, int],
    tmp_path: Path,
    wait_until: WaitUntil,
    record_property: Callable[[str, object], None],
) -> None:
    """Nobody waits for a line of output, as Kubernetes does not: who is ready says so by HTTP."""
    (tmp_path / "slow.py").write_text(SLOW_TO_LOAD)
    models = {"echo": {"path": str(tmp_path / "slow.py"), "workers": [0, 1]}}
    http_ports = [http for http, *_ in ENGINES]
    keys = {"frontends": 2, "stop_delay_s": STOP_DELAY_S}

    def begin(number: int, update: int) -> Server:
        folder = tmp_path / f"engine{number}.{update}"
        folder.mkdir()
        http, _, agent = (ports[port] for port in ENGINES[number])
        own = {"port": http, "agent_check_port": agent}
        server = Server(folder, *configured(folder, models, **keys, **own))
        stack.callback(server.destroy)
        return server

    def is_ready(number: int) -> bool:
        try:
            with Connection(ports[http_ports[number]]) as connection:
                answer = connection.ask(request("/v2/health/ready", method="GET"))
        except OSError:
            return False
        return answer.status == 200

    with ExitStack() as stack:
        engine = begin(0, 0)
        balancer = Balancer(KINDS["haproxy"], tmp_path, ports)
        stack.callback(balancer.stop)
        wait_until(balancer.serves, "it has found an engine", 60)
        load = Load(balancer, 8)
        stack.callback(load.stop)
        for update, number in enumerate((1, 0), 1):
            following = begin(number, update)
            wait_until(lambda number=number: is_ready(number), "the new engine is ready", 60)
            wait_until(
                lambda server=following: server.status().models["echo"].requests > 20,
                "the balancer has found it",
                60,
            )
            assert engine.stop() == 0
            engine = following
        load.stop()
    record_property("figures", f"2 updates, {load.answered} answers, {len(load.failures)} failed")
    assert load.failures == []
    assert load.answered > 1000


ASIDE: Final = """
global
    stats socket {folder}/admin level admin
defaults
    mode http
    timeout connect 1s
    timeout client 1s
    timeout server 1s
backend engines
    default-server check weight 100 agent-check agent-port {port} agent-inter 50ms
    server one 127.0.0.1:{port}
"""
SLOW: Final = ModelLoad("m", "", 0, Pace(2.0, 0.0))
LOADS: Final = (
    (EngineLoad(draining=False, models=(SLOW,)), ("2", "17")),
    (EngineLoad(draining=True, models=(SLOW,)), ("2", "0")),
    (EngineLoad(draining=False, models=(SLOW._replace(obstacle="no worker"),)), ("0", "0")),
    (EngineLoad(draining=False, models=()), ("2", "100")),
)
"""Loads, each with HAProxy's state of the server, 2 for up and 0 for down, and its weight."""


def test_haproxy_understands_each_word_and_an_operator_has_the_last(
    tmp_path: Path, short_folder: Path
) -> None:
    configuration = tmp_path / "haproxy.cfg"
    command = [program(KINDS["haproxy"]), "-db", "-f", str(configuration)]
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    configuration.write_text(ASIDE.format(folder=short_folder, port=port))

    async def run() -> None:
        load = LOADS[0][0]
        answering = asyncio.create_task(Agent(listener, lambda: True, lambda: load).run())
        running = await asyncio.create_subprocess_exec(*command, stderr=subprocess.DEVNULL)
        try:
            async with asyncio.timeout(60):
                while not (short_folder / "admin").exists():
                    await asyncio.sleep(0.01)
                for load_report, expected in LOADS:
                    load = load_report
                    while await known(short_folder) != (*expected, "0"):
                        await asyncio.sleep(0.01)
                await haproxy_command(short_folder, "set server engines/one state drain")
                drained = await known(short_folder)
                load = LOADS[0][0]
                while (await known(short_folder))[1] != "17":
                    await asyncio.sleep(0.01)
                assert (await known(short_folder))[2] == drained[2] != "0"
        finally:
            answering.cancel()
            running.terminate()
            await running.wait()

    with listener:
        asyncio.run(run())


async def haproxy_command(folder: Path, command: str) -> str:
    """Return HAProxy's answer to an operator's command."""
    reader, writer = await asyncio.open_unix_connection(str(folder / "admin"))
    writer.write(command.encode() + b"\n")
    found = await reader.read()
    writer.close()
    return found.decode()


async def known(folder: Path) -> tuple[str, str, str]:
    """Return the state, weight and administrative state of HAProxy's server."""
    head, row = (await haproxy_command(folder, "show servers state engines")).splitlines()[1:3]
    found = dict(zip(head.lstrip("# ").split(), row.split(), strict=True))
    return found["srv_op_state"], found["srv_uweight"], found["srv_admin_state"]
