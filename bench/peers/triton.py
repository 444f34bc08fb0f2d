"""NVIDIA Triton as a peer: its model repository, and the command that serves it."""

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final, Protocol

from host.server import HOST, Command, free_port

from peers.servers import SERVICES, Environment, PeerUnfit

TRITON: Final = Environment("triton", ("nvidia-pytriton==0.7.0", "numpy==1.26.4"))


class Served(Protocol):
    """Model in Triton's repository.

    Attributes:
        script: its file under services/; None if Triton itself runs the model.
    """

    script: ClassVar[str | None]

    @property
    def model(self) -> str:
        """The model's name."""

    @property
    def config(self) -> str:
        """The model's config.pbtxt."""


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

    script: ClassVar[str | None] = "triton_v2.py"

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

    script: ClassVar[str | None] = None

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


@dataclass(frozen=True)
class DecoupledTriton:
    """Triton with one decoupled model of services/triton_steps.py, on the CPU, one instance.

    Its input `n` is a number of parts, and each part has the output `number`.

    Attributes:
        model: its name, which is also the form that it is written in.
        places: how many requests may run at once.
    """

    script: ClassVar[str | None] = "triton_steps.py"

    model: str
    places: int

    @property
    def config(self) -> str:
        """As of `Triton`."""
        return f"""\
backend: "python"
max_batch_size: 0
model_transaction_policy {{ decoupled: true }}
input [ {{ name: "n" data_type: TYPE_INT64 dims: [1] }} ]
output [ {{ name: "number" data_type: TYPE_INT64 dims: [1] }} ]
instance_group [ {{ kind: KIND_CPU count: 1 }} ]
parameters [ {{ key: "places" value: {{ string_value: "{self.places}" }} }} ]
"""

    def command(self, folder: Path) -> Command:
        """Return `triton_command` for this model alone."""
        return triton_command(folder, [self])


def triton_command(folder: Path, served: Sequence[Served], grpc_port: int | None = None) -> Command:
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
        if one.script is not None:
            shutil.copy(SERVICES / one.script, version / "model.py")
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
