"""Commands of the servers of trees.py with one model, and their requests for the label of one row.

ringbatch runs the libraries that are installed beside it; the peers have the same ones, in
environments of their own.
"""

import json
import signal
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from host.server import Command, free_port
from load.generators import Post

from peers.servers import (
    MLSERVER,
    MLSERVER_VERSION,
    SERVICES,
    Environment,
    Ringbatch,
    mlserver_command,
)

V1_PATH = "/v1/models/trees:predict"
V2_PATH = "/v2/models/trees/infer"
SERVERS = ("ringbatch", "fastapi", "mosec", "litserve", "mlserver")
_MLSERVER_RUNTIMES = {
    "xgboost": "mlserver_xgboost.XGBoostModel",
    "lightgbm": "mlserver_lightgbm.LightGBMModel",
    "catboost": "mlserver_catboost.CatboostModel",
    "histgb": "mlserver_sklearn.SKLearnModel",
    "forest": "mlserver_sklearn.SKLearnModel",
}
"""MLServer's class for each kind of model."""
KINDS = tuple(_MLSERVER_RUNTIMES)


def environments() -> dict[str, Environment]:
    """Return the environments of the peers, with the library versions that ringbatch runs."""
    boosters = next((n for n in ("xgboost-cpu", "xgboost") if _installed(n)), "xgboost-cpu")
    libraries = (boosters, "lightgbm", "catboost", "scikit-learn")
    pinned = [f"{name}=={metadata.version(name)}" for name in libraries]
    servers = ("fastapi==0.165.0", "uvicorn[standard]==0.54.0", "mosec==0.9.8", "litserve==0.2.19")
    common = Environment("trees", (*pinned, *servers, "orjson==3.13.0", "joblib"))
    runtimes = ("xgboost", "lightgbm", "sklearn", "catboost")
    packages = (f"mlserver-{name}=={MLSERVER_VERSION}" for name in runtimes)
    own = Environment("trees-mlserver", (*pinned, *MLSERVER.requirements, *packages))
    return {**dict.fromkeys(("fastapi", "mosec", "litserve"), common), "mlserver": own}


def _installed(name: str) -> bool:
    try:
        return bool(metadata.version(name))
    except metadata.PackageNotFoundError:
        return False


def command(server: str, kind: str, file: Path, folder: Path, processes: int) -> Command:
    """Return the command that starts a server of one model.

    Args:
        server: one of `SERVERS`.
        kind: kind of the model.
        file: the model file.
        folder: for the server's own files, which outlives it.
        processes: number of FastAPI's processes.
    """
    if server == "ringbatch":
        return _ringbatch(kind, file, folder)
    if server == "mlserver":
        return _mlserver(kind, file, folder)
    port = free_port()
    python = str(environments()[server].python)
    env = {"BENCH_KIND": kind, "BENCH_FILE": str(file), "OMP_NUM_THREADS": "1"}
    if server == "fastapi":
        return Command(
            argv=[
                *(python, "-m", "uvicorn", "trees_fastapi:app", "--app-dir", str(SERVICES)),
                *f"--port {port} --workers {processes} --log-level error".split(),
            ],
            port=port,
            ready_path="/ready",
            env=env | {"PYTHONPATH": str(SERVICES)},
            start_timeout_s=120,
        )
    argv = [python, str(SERVICES / f"trees_{server}.py"), f"--port={port}"]
    if server == "mosec":
        argv += ["--address=127.0.0.1", "--log-level=error", f"--path={folder / 'sockets'}"]
    return Command(
        argv=argv,
        port=port,
        ready_path="/" if server == "mosec" else "/health",
        env=env,
        start_timeout_s=120,
        # At SIGTERM LitServe leaves its workers behind.
        stop_signal=signal.SIGINT if server == "litserve" else signal.SIGTERM,
    )


def _ringbatch(kind: str, file: Path, folder: Path) -> Command:
    settings: dict[str, Any] = {"max_batch_size": 32, "threads": 1, "answers": ["label"]}
    if file.suffix == ".joblib":
        settings |= {"runtime": "sklearn", "trust_pickle": True}
    else:
        settings["runtime"] = kind
    return Ringbatch("trees", file, frontends=1, settings=settings).command(folder)


def _mlserver(kind: str, file: Path, folder: Path) -> Command:
    """Return the command of MLServer with its own runtime and adaptive batching, no workers."""
    model = {
        "name": "trees",
        "implementation": _MLSERVER_RUNTIMES[kind],
        "max_batch_size": 32,
        "max_batch_time": 0.001,
        "parameters": {"uri": str(file)},
    }
    return mlserver_command(folder, environments()["mlserver"], model, {"OMP_NUM_THREADS": "1"})


def post(server: str, row: Sequence[float]) -> Post:
    """Return the request for the label of one row: V1's, or V2's for MLServer."""
    if server != "mlserver":
        return Post(V1_PATH, json.dumps({"instances": [row]}))
    tensor = {"name": "x", "datatype": "FP64", "shape": [1, len(row)], "data": row}
    return Post(V2_PATH, json.dumps({"inputs": [tensor]}))


def label(server: str, body: Mapping[str, Any]) -> int:
    """Return the label in an answer.

    MLServer answers the probability, as the boosters' own `predict` does.
    """
    if server != "mlserver":
        (found,) = body["predictions"]
        return int(found["label"] if isinstance(found, dict) else found)
    (found,) = body["outputs"][0]["data"]
    return int(found > 0.5)
