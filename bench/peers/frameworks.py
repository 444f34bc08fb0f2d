"""Servers of any of services/work.py's models, for every scenario that compares frameworks.

Each is one `Framework`: how it is started, how its requests are written, and which environment it
lives in. What a scenario needs of a server is a `Setting`.
"""

import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from host.server import HOST, Command, free_port
from load.tensors import AFFINE, MATMUL16, MATMUL784, NULL, V1_BARE, V1_JSON, V2_JSON, Format

from peers.servers import (
    BENTOML,
    FASTAPI,
    LITSERVE,
    MLSERVER,
    MODELS,
    MOSEC,
    RAY_SERVE,
    SERVICES,
    Environment,
    PeerUnfit,
    mlserver_command,
    ringbatch_command,
)
from peers.triton import TRITON, Triton

SUBJECTS = {subject.name: subject for subject in (NULL, MATMUL16, MATMUL784, AFFINE)}


@dataclass(frozen=True)
class Setting:
    """Setting that all servers of a comparison get.

    Attributes:
        models: the model of services/work.py for each name that is served.
        cap: the largest batch.
        wait_ms: longest wait of a batch for further requests, if the server waits at all.
        policy: ringbatch's; "fixed" waits as the others do.
        workers: for each model.
        timeout_s: time after which a request may be given up, if the server has a setting for it.
    """

    models: Mapping[str, str]
    cap: int = 32
    wait_ms: float = 1.0
    policy: str = "eager"
    workers: int = 1
    timeout_s: float = 30.0

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables that services/work.py reads."""
        return {
            "BENCH_MODELS": ",".join(f"{name}={model}" for name, model in self.models.items()),
            "BENCH_CAP": str(self.cap),
            "BENCH_WAIT_MS": f"{self.wait_ms:g}",
            "BENCH_TIMEOUT_S": f"{self.timeout_s:g}",
            "BENCH_WORKERS": str(self.workers),
            "PYTHONPATH": str(SERVICES),
        }


@dataclass(frozen=True)
class Framework:
    """Server that can be compared.

    Attributes:
        command: makes the command, given a setting and a folder that outlives the server.
        environment: None where it runs in this interpreter's own.
        form: format of its requests.
        note: a remark for readers of the tables.
        several: whether it can serve more than one model, from one start, as it is set up here.
    """

    command: Callable[[Setting, Path], Command]
    environment: Environment | None
    note: str
    form: Format = V1_JSON
    several: bool = True


def _ringbatch(setting: Setting, folder: Path) -> Command:
    return ringbatch_command(
        folder,
        {
            name: {
                "runtime": "python",
                "path": str(MODELS / f"{model}.py"),
                "max_batch_size": setting.cap,
                "workers": setting.workers,
                "policy": setting.policy,
                "timeout_s": setting.timeout_s,
                **({"max_latency_ms": setting.wait_ms} if setting.policy == "fixed" else {}),
            }
            for name, model in setting.models.items()
        },
    )


def _single(setting: Setting) -> Setting:
    """Return the setting with batches of one."""
    return Setting(setting.models, 1, 0.0, "eager", setting.workers, setting.timeout_s)


def _mosec(setting: Setting, folder: Path) -> Command:
    port = free_port()
    # Told to stop, it may wait that long for requests whose clients have gone.
    timeout_s = min(setting.timeout_s, 3.0)
    return Command(
        argv=[
            *(str(MOSEC.python), str(SERVICES / "v1_mosec.py")),
            *f"--address {HOST} --port {port} --log-level error".split(),
            *(f"--timeout={int(timeout_s * 1e3)}", "--path", str(folder / "sockets")),
        ],
        port=port,
        ready_path="/",
        env=setting.environment,
        stop_timeout_s=60,
    )


def _script(
    environment: Environment, script: str, ready_path: str, *, stop: signal.Signals, start_s: float
) -> Callable[[Setting, Path], Command]:
    """Return the command of a service that takes --port and nothing else."""

    def command(setting: Setting, folder: Path) -> Command:
        port = free_port()
        return Command(
            argv=[str(environment.python), str(SERVICES / script), f"--port={port}"],
            port=port,
            ready_path=ready_path,
            env=setting.environment,
            start_timeout_s=start_s,
            stop_signal=stop,
            stop_timeout_s=60,
        )

    return command


def _uvicorn(app: str) -> Callable[[Setting, Path], Command]:
    def command(setting: Setting, folder: Path) -> Command:
        port = free_port()
        return Command(
            argv=[
                *(str(FASTAPI.python), "-m", "uvicorn", f"{app}:app", "--app-dir", str(SERVICES)),
                *f"--host {HOST} --port {port} --log-level error".split(),
            ],
            port=port,
            ready_path="/ready",
            env=setting.environment,
        )

    return command


def _bentoml(setting: Setting, folder: Path) -> Command:
    port = free_port()
    return Command(
        argv=[
            *(str(BENTOML.python), "-m", "bentoml", "serve", "v1_bentoml:Model"),
            *f"--host {HOST} --port {port} --working-dir {SERVICES}".split(),
        ],
        port=port,
        ready_path="/readyz",
        env={
            **setting.environment,
            "BENTOML_HOME": str(folder),
            "BENTOML_DO_NOT_TRACK": "1",
        },
        start_timeout_s=120,
        stop_signal=signal.SIGINT,
    )


def _mlserver(setting: Setting, folder: Path) -> Command:
    (name,) = setting.models
    model = {
        "name": name,
        "implementation": "v1_mlserver.Model",
        "max_batch_size": setting.cap,
        "max_batch_time": setting.wait_ms / 1e3,
    }
    return mlserver_command(folder, MLSERVER, model, setting.environment)


def _triton(setting: Setting, folder: Path) -> Command:
    (model,) = setting.models.values()
    if model not in SUBJECTS:
        raise PeerUnfit(f"services/triton_v2.py has no {model}")
    subject = SUBJECTS[model]
    return Triton(model, subject.x, subject.y, max_batch_size=setting.cap).command(folder)


RINGBATCH = "ringbatch"
FRAMEWORKS: Mapping[str, Framework] = {
    RINGBATCH: Framework(_ringbatch, None, "1 frontend, 1 worker, all else by default"),
    "ringbatch, no batching": Framework(
        lambda setting, folder: _ringbatch(_single(setting), folder),
        None,
        "the same with batches of one",
    ),
    "mosec": Framework(_mosec, MOSEC, "1 worker, wait 1 ms, its shortest; orjson as codec"),
    "LitServe": Framework(
        _script(LITSERVE, "v1_litserve.py", "/health", stop=signal.SIGINT, start_s=60),
        LITSERVE,
        "1 worker, wait 1 ms",
    ),
    "BentoML": Framework(
        _bentoml, BENTOML, "1 worker, adaptive batching", form=V1_BARE, several=False
    ),
    "Ray Serve": Framework(
        _script(RAY_SERVE, "v1_ray.py", "/-/healthz", stop=signal.SIGTERM, start_s=120),
        RAY_SERVE,
        "1 replica, @serve.batch, wait 1 ms",
    ),
    "MLServer": Framework(
        _mlserver,
        MLSERVER,
        "V2 JSON, adaptive batching, wait 1 ms, no parallel workers",
        form=V2_JSON,
        several=False,
    ),
    "Triton": Framework(
        _triton,
        TRITON,
        "V2 JSON, Python backend, no queue delay",
        form=V2_JSON,
        several=False,
    ),
    "KServe's batcher": Framework(
        _uvicorn("v1_kserve"), FASTAPI, "its algorithm in asyncio behind FastAPI, wait 1 ms"
    ),
    "Redis queue": Framework(
        _script(FASTAPI, "v1_redis.py", "/ready", stop=signal.SIGTERM, start_s=60),
        FASTAPI,
        "FastAPI, Redis, a worker; both sides look every 5 ms",
    ),
    "FastAPI": Framework(_uvicorn("v1_fastapi"), FASTAPI, "1 process, no batching"),
}
"""Every server, by the name that tables give it."""
