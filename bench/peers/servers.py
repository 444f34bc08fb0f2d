"""The servers that can be measured, and how each is started.

A peer lives in a virtual environment of its own under bench/.peers, made on first use from pinned
versions, so that its needs and ringbatch's never meet.
"""

import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Mapping, Sequence
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


@dataclass(frozen=True)
class Triton:
    """NVIDIA Triton with one model of services/triton_v2.py, on the CPU, one instance.

    Attributes:
        model: its name.
        x: the shape of one instance's input, FP32.
        y: the shape of one instance's output, FP32.
        queue_delay_us: how long a batch may wait for company.
        max_batch_size: the largest batch.
    """

    model: str
    x: Sequence[int]
    y: Sequence[int]
    queue_delay_us: int = 0
    max_batch_size: int = 32

    @property
    def config(self) -> str:
        """The model's config.pbtxt, whose lists of numbers and strings are written as in JSON."""
        return f"""\
backend: "python"
max_batch_size: {self.max_batch_size}
input [ {{ name: "x" data_type: TYPE_FP32 dims: {json.dumps(list(self.x))} }} ]
output [ {{ name: "y" data_type: TYPE_FP32 dims: {json.dumps(list(self.y))} }} ]
instance_group [ {{ kind: KIND_CPU count: 1 }} ]
dynamic_batching {{ max_queue_delay_microseconds: {self.queue_delay_us} }}
"""

    def command(self, folder: Path) -> Command:
        """Return `triton_command` for this model alone."""
        return triton_command(folder, [self])


@dataclass(frozen=True)
class TritonEnsemble:
    """Triton ensemble: models that run one after another, each on the results of the last.

    Attributes:
        model: its name.
        steps: at least one.
    """

    model: str
    steps: Sequence[Triton]

    @property
    def config(self) -> str:
        """As of `Triton`."""
        first, last = self.steps[0], self.steps[-1]
        between = ["x", *(f"after_{step.model}" for step in self.steps[:-1]), "y"]
        steps = ",\n".join(
            f'    {{ model_name: "{step.model}" model_version: -1\n'
            f'      input_map {{ key: "x" value: "{taken}" }}\n'
            f'      output_map {{ key: "y" value: "{returned}" }} }}'
            for step, taken, returned in zip(self.steps, between, between[1:], strict=False)
        )
        return f"""\
platform: "ensemble"
max_batch_size: {first.max_batch_size}
input [ {{ name: "x" data_type: TYPE_FP32 dims: {json.dumps(list(first.x))} }} ]
output [ {{ name: "y" data_type: TYPE_FP32 dims: {json.dumps(list(last.y))} }} ]
ensemble_scheduling {{
  step [
{steps}
  ]
}}
"""

    def command(self, folder: Path) -> Command:
        """Return `triton_command` for the steps and the ensemble."""
        return triton_command(folder, [*self.steps, self])


def triton_command(
    folder: Path, served: Sequence[Triton | TritonEnsemble], grpc_port: int | None = None
) -> Command:
    """Write model repository and backend into `folder` and return the command that serves it.

    Triton runs a model in a program of its own, the stub, that has libpython linked to it. The
    wheel has one for each version of Python and none where the backend looks for it. Its packages
    are those of the first python3 on PATH.

    Raises:
        PeerUnfit: there is none for the Python of the environment.
    """
    python = json.loads(
        subprocess.run(
            [TRITON.python, "-c", _DESCRIBE_PYTHON], check=True, capture_output=True
        ).stdout
    )
    triton = Path(python["packages"], "pytriton", "tritonserver")
    stub = triton / "python_backend_stubs" / python["version"] / "triton_python_backend_stub"
    if not stub.exists():
        there = sorted(entry.name for entry in stub.parents[1].glob("3.*"))
        raise PeerUnfit(
            f"Triton's Python backend has no stub for Python {python['version']}, only for "
            f"{', '.join(there)}: run this script with one of these"
        )
    repository = folder / "repository"
    for one in served:
        version = repository / one.model / "1"
        version.mkdir(parents=True)
        (version.parent / "config.pbtxt").write_text(one.config)
        if isinstance(one, Triton):
            shutil.copy(SERVICES / "triton_v2.py", version / "model.py")
    backend = folder / "backends" / "python"
    backend.mkdir(parents=True)
    for file in (stub, *triton.glob("backends/python/*triton_python*")):
        (backend / file.name).symlink_to(file)
    port = free_port()
    return Command(
        argv=[
            str(triton / "bin" / "tritonserver"),
            *("--model-repository", str(repository)),
            *("--backend-directory", str(backend.parent)),
            *f"--http-address {HOST} --http-port {port} --exit-timeout-secs 10".split(),
            *["--allow-metrics", "false", "--allow-grpc"],
            *(["false"] if grpc_port is None else f"true --grpc-port {grpc_port}".split()),
        ],
        port=port,
        ready_path=f"/v2/models/{served[-1].model}/ready",
        env={
            "PATH": _ahead(str(TRITON.python.parent), "PATH"),
            "LD_LIBRARY_PATH": _ahead(python["libraries"], "LD_LIBRARY_PATH"),
        },
        start_timeout_s=120,
    )


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


_DESCRIBE_PYTHON = """\
import json, sys, sysconfig
print(json.dumps({
    "version": "%d.%d" % sys.version_info[:2],
    "packages": sysconfig.get_path("purelib"),
    "libraries": sysconfig.get_config_var("LIBDIR"),
}))
"""


def _ahead(first: str, variable: str) -> str:
    """Return the path list of an environment variable with one more folder before the others."""
    return os.pathsep.join(filter(None, (first, os.environ.get(variable))))


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
TRITON = Environment("triton", ("nvidia-pytriton==0.7.0", "numpy==1.26.4"))
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
