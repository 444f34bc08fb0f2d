"""The servers that can be measured, and how each is started.

A peer lives in a virtual environment of its own under bench/.peers, made on first use from pinned
versions, so that its needs and ringbatch's never meet.
"""

import json
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from host.server import HOST, Command, free_port
from load.answers import MATMUL16_PATH

BENCH = Path(__file__).resolve().parents[1]
MODELS = BENCH / "models"
SERVICES = BENCH / "peers" / "services"
ENVIRONMENTS = BENCH / ".peers"

TomlValue = str | int | float | bool | list[int] | list[str]
Section = Mapping[str, TomlValue]


class PeerUnfit(RuntimeError):
    """A peer cannot be installed or run here; the message says why."""


@dataclass(frozen=True)
class Environment:
    """A peer's virtual environment: its name under bench/.peers and what pip installs in it."""

    name: str
    requirements: tuple[str, ...]

    @property
    def python(self) -> Path:
        """The interpreter, whether or not it exists yet."""
        return ENVIRONMENTS / self.name / "bin" / "python"

    def ensure(self) -> None:
        """Make the environment unless it stands as required; a changed pin makes it anew.

        Raises:
            PeerUnfit: pip could not install what is required.
        """
        folder = ENVIRONMENTS / self.name
        done, wanted = folder / "installed.txt", "\n".join(self.requirements) + "\n"
        if done.exists() and done.read_text() == wanted:
            return
        print(f"making bench/.peers/{self.name}: {', '.join(self.requirements)}", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=True)
        pip = [str(self.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        found = subprocess.run([*pip, *self.requirements], stderr=subprocess.PIPE, text=True)
        if found.returncode != 0:
            errors = [line for line in found.stderr.splitlines() if line.startswith("ERROR: ")]
            raise PeerUnfit(f"pip could not install it: {(errors or [found.stderr])[-1][:300]}")
        done.write_text(wanted)

    def packages(self) -> list[str]:
        """Return `name==version` of everything installed in it."""
        return frozen_packages(self.python)


@dataclass(frozen=True)
class Peer:
    """Server in a comparison.

    Attributes:
        name: as it stands in tables and results.
        command: makes the command, given a folder for its files that outlives the server.
        path: where requests are posted.
        environment: None where the peer runs in this interpreter's own.
        note: a remark on its setting for readers of the table.
    """

    name: str
    command: Callable[[Path], Command]
    path: str = MATMUL16_PATH
    environment: Environment | None = None
    note: str = ""


@dataclass(frozen=True)
class Ringbatch:
    """A ringbatch server with one model.

    `settings` are the keys of its [models.NAME] section, as ringbatch spells them; `server` has
    more of its [server] section.
    """

    model: str
    path: Path
    frontends: int = 2
    settings: Section = field(default_factory=dict)
    server: Section = field(default_factory=dict)

    def command(self, folder: Path) -> Command:
        """Write the configuration into `folder` and return the command that serves it."""
        model = {"runtime": "python", "path": str(self.path), **self.settings}
        return ringbatch_command(folder, {self.model: model}, self.frontends, self.server)


def mlserver_command(
    folder: Path, environment: Environment, model: Mapping[str, object], env: Mapping[str, str]
) -> Command:
    """Write the settings of an MLServer with one model into `folder`; return the command for it.

    Args:
        folder: for the settings.
        environment: that has MLServer.
        model: its model-settings.json.
        env: on top of this process's environment.
    """
    port, other, third = free_port(), free_port(), free_port()
    server = {"host": HOST, "http_port": port, "grpc_port": other, "metrics_port": third}
    settings = {"settings.json": {**server, "parallel_workers": 0, "debug": False}}
    for file, document in (settings | {"model-settings.json": model}).items():
        (folder / file).write_text(json.dumps(document))
    return Command(
        argv=[str(environment.python.with_name("mlserver")), "start", str(folder)],
        port=port,
        ready_path=f"/v2/models/{model['name']}/ready",
        env=env,
        start_timeout_s=120,
    )


def ringbatch_command(
    folder: Path, models: Mapping[str, Section], frontends: int = 1, server: Section | None = None
) -> Command:
    """Write the configuration of a ringbatch server into `folder`; return the command for it."""
    port = free_port()
    file = folder / "ringbatch.toml"
    listening: Section = {"host": HOST, "port": port, "frontends": frontends}
    sections = {f"models.{name}": keys for name, keys in models.items()}
    file.write_text(toml({"server": {**listening, **(server or {})}, **sections}))
    return Command(
        argv=[sys.executable, "-m", "ringbatch.engine", "serve", "--config", str(file)],
        port=port,
        ready_path="/v2/health/ready",
    )


def install(wanted: Mapping[str, Environment | None]) -> dict[str, str]:
    """Make the environments of these entries; return why, of each that cannot be installed."""
    reasons: dict[Environment, str] = {}
    for environment in dict.fromkeys(filter(None, wanted.values())):
        try:
            environment.ensure()
        except PeerUnfit as error:
            reasons[environment] = str(error)
    return {name: reasons[own] for name, own in wanted.items() if own in reasons}


def toml(sections: Mapping[str, Section]) -> str:
    """Return the TOML text of sections of plain values."""
    return "\n".join(
        f"[{name}]\n" + "".join(f"{key} = {_toml_value(value)}\n" for key, value in keys.items())
        for name, keys in sections.items()
    )


def frozen_packages(python: Path | str) -> list[str]:
    """Return `name==version` of everything installed beside an interpreter."""
    text = subprocess.run(
        [python, "-m", "pip", "freeze", "--disable-pip-version-check"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return [line for line in text.splitlines() if "==" in line]


def _toml_value(value: TomlValue) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return repr(value)


_NUMPY, _ORJSON = "numpy==2.4.6", "orjson==3.13.0"
MOSEC = Environment("mosec", ("mosec==0.9.8", _NUMPY, _ORJSON))
LITSERVE = Environment("litserve", ("litserve==0.2.19", _NUMPY))
BENTOML = Environment("bentoml", ("bentoml==1.4.39", _NUMPY))
MLSERVER_VERSION = "1.7.1"
MLSERVER = Environment("mlserver", (f"mlserver=={MLSERVER_VERSION}",))
RAY_SERVE = Environment("ray-serve", ("ray[serve]==2.60.0", _NUMPY, _ORJSON))
FASTAPI = Environment(
    "fastapi",
    ("fastapi==0.165.0", "uvicorn[standard]==0.54.0", "redis==8.1.0", _NUMPY, _ORJSON),
)


def mosec(folder: Path, service: str, *, timeout_ms: int = 3000, **settings: str) -> Command:
    """Return the command that serves a script of services/.

    Args:
        folder: for its sockets.
        service: the script.
        timeout_ms: after which mosec gives a request up; as it stands, mosec's own default.
        settings: environment variables that the script reads.
    """
    port = free_port()
    return Command(
        argv=[
            str(MOSEC.python),
            str(SERVICES / service),
            *f"--address 127.0.0.1 --port {port} --log-level error".split(),
            f"--timeout={timeout_ms}",
            *("--path", str(folder / "sockets")),
        ],
        port=port,
        ready_path="/",
        env=settings,
    )


def _in_place(folder: Path, frontends: int) -> Command:
    port = free_port()
    return Command(
        argv=[
            sys.executable,
            str(BENCH / "peers" / "in_place.py"),
            str(MODELS / "matmul16.py"),
            *f"--port {port} --frontends {frontends}".split(),
        ],
        port=port,
        ready_path="/v1/models/matmul16",
    )


def _matmul16(frontends: int, **server: TomlValue) -> Ringbatch:
    return Ringbatch(
        "matmul16",
        MODELS / "matmul16.py",
        frontends=frontends,
        settings={"max_batch_size": 32, "workers": 1, "policy": "eager"},
        server=server,
    )


PEERS = {
    peer.name: peer
    for peer in (
        Peer(
            "ringbatch",
            _matmul16(frontends=1).command,
            note="1 frontend, 1 worker, eager, cap 32",
        ),
        Peer(
            "ringbatch-2",
            _matmul16(frontends=2).command,
            note="the same with 2 frontends",
        ),
        Peer(
            "ringbatch-silent",
            _matmul16(frontends=1, access_log="off").command,
            note="ringbatch that logs no request",
        ),
        Peer(
            "ringbatch-logging",
            _matmul16(frontends=1, access_log="all", access_log_sample=0.01).command,
            note="ringbatch that logs 1 % of the requests",
        ),
        Peer(
            "ringbatch-timing",
            _matmul16(frontends=1, access_log="off", server_timing=True).command,
            note="ringbatch that sends Server-Timing with every answer",
        ),
        Peer(
            "ringbatch-payloads",
            _matmul16(
                frontends=1, access_log="off", payload_log="payloads.jsonl", payload_log_sample=0.01
            ).command,
            note="ringbatch that keeps 1 % of the requests and answers in a file",
        ),
        Peer(
            "ringbatch-falcon",
            _matmul16(frontends=1).command,
            path=MATMUL16_PATH.replace(":", "%3A"),
            note="the same server; a percent-encoded colon is not the fast lane's",
        ),
        Peer(
            "mosec",
            lambda folder: mosec(folder, "mosec_matmul16.py", BENCH_CODEC="orjson"),
            environment=MOSEC,
            note="1 worker, cap 32, 1 ms, orjson as codec",
        ),
        Peer(
            "mosec-json",
            lambda folder: mosec(folder, "mosec_matmul16.py", BENCH_CODEC="json"),
            environment=MOSEC,
            note="1 worker, cap 32, 1 ms, mosec's default codec",
        ),
        Peer(
            "in-place",
            lambda folder: _in_place(folder, 1),
            note="1 frontend that calls the model itself; no engine, no batching",
        ),
        Peer(
            "in-place-2",
            lambda folder: _in_place(folder, 2),
            note="2 frontends that call the model themselves",
        ),
    )
}
"""Every server of models/matmul16.py, by name."""
