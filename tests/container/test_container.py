"""The container file: it is built, and the container does as one in production must."""

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from tiers import exhaustive

from .engine import Engine, NoRegistries, engine, why_not

_WHY_NOT: Final = why_not()
pytestmark = [
    exhaustive,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(bool(_WHY_NOT), reason=_WHY_NOT),
]

IMAGE: Final = "ringbatch"
NAME: Final = "ringbatch"
MODEL: Final = """\
from ringbatch.engine import Tensor

inputs = [Tensor("x", "FP32", [2])]
outputs = [Tensor("y", "FP32", [2])]


def predict(x):
    return x * 2
"""
SETTINGS: Final = '[models.double]\npath = "model.py"\n'
ASK: Final = """\
import sys, urllib.request
url = "http://127.0.0.1:8080/v1/models/double:predict"
print(urllib.request.urlopen(url, data=b'{"instances": [[1, 2]]}').read().decode())
"""
LOOK: Final = """\
import json, os, pathlib
found = []
for pid in set(filter(str.isdecimal, os.listdir("/proc"))) - {str(os.getpid())}:
    stat = pathlib.Path("/proc", pid, "stat").read_text()
    title = pathlib.Path("/proc", pid, "cmdline").read_text().split("\\0")[0]
    state = stat.rsplit(")", 1)[1].split()[0]
    found.append([int(pid), state, os.stat(f"/proc/{pid}").st_uid, title])
print(json.dumps(found))
"""
KILL: Final = "import os, sys; os.kill(int(sys.argv[1]), 9)"


class Process(NamedTuple):
    pid: int
    state: str
    user: int
    title: str


class Container:
    """Running container, as an operator and its processes see it."""

    def __init__(self, of: Engine) -> None:
        self._engine = of

    def python(self, program: str, *arguments: str) -> str:
        """Return the output of a program run in the container; empty if it fails."""
        done = self._engine.run("exec", NAME, "python", "-c", program, *arguments, check=False)
        return done.stdout if done.returncode == 0 else ""

    @property
    def log(self) -> str:
        done = self._engine.run("logs", NAME)
        return done.stdout + done.stderr

    def processes(self) -> list[Process]:
        """Return the container's processes but the one that looks; empty if one ended meanwhile."""
        return [Process(*row) for row in json.loads(self.python(LOOK) or "[]")]

    def arbiter(self) -> int:
        """The parent of the frontends; 0 where there is none."""
        return next((p.pid for p in self.processes() if p.title == "ringbatch: frontends"), 0)


@pytest.fixture
def podman() -> Iterator[Engine]:
    with engine() as made:
        try:
            made.build(IMAGE)
        except NoRegistries as cut_off:
            pytest.skip(f"no image can be built here: {cut_off}")
        yield made


@pytest.fixture
def container(
    podman: Engine, tmp_path: Path, wait_until: Callable[..., object]
) -> Iterator[Container]:
    """Container as the image starts: 64 MiB of /dev/shm, nothing to write to, no capability."""
    tmp_path.chmod(0o755)
    for name, text in (("model.py", MODEL), ("ringbatch.toml", SETTINGS)):
        (tmp_path / name).write_text(text)
    podman.run(
        *("run", "--detach", f"--name={NAME}", "--no-healthcheck", "--network=none"),
        *("--cgroups=disabled", "--ulimit=nofile=4096:4096", "--ulimit=nproc=4096:4096"),
        *("--read-only", "--read-only-tmpfs=false", "--cap-drop=all"),
        *("--security-opt=no-new-privileges", f"--volume={tmp_path}:/etc/ringbatch:ro"),
        IMAGE,
    )
    made = Container(podman)
    wait_until(lambda: "serving double on" in made.log, "the engine to serve", 60)
    yield made
    podman.run("rm", "--force", "--time=0", NAME)


def is_described(podman: Engine) -> None:
    configuration = podman.configuration(IMAGE)
    assert configuration["User"] == "10001:10001"
    assert configuration["StopSignal"] in ("SIGTERM", "15")
    assert configuration["Healthcheck"]["Test"][0] == "CMD"


def answers_as_an_ordinary_user_and_fits_its_memory(podman: Engine, container: Container) -> None:
    assert '"predictions":[[2.0,4.0]]' in container.python(ASK)
    assert re.search(
        r"max_request_bytes = \d{7} and lane_bytes = \d+, derived from \d+ bytes free",
        container.log,
    )
    check = podman.configuration(IMAGE)["Healthcheck"]["Test"][1:]
    assert podman.run("exec", NAME, *check, check=False).returncode == 0
    processes = container.processes()
    assert {process.user for process in processes} == {10001}
    assert "ringbatch: collector" in {process.title for process in processes}


def waits_for_orphans(container: Container, wait_until: Callable[..., object]) -> None:
    arbiter = container.arbiter()
    container.python(KILL, str(arbiter))
    wait_until(lambda: container.arbiter() not in (0, arbiter), "another arbiter", 60)
    wait_until(lambda: "predictions" in container.python(ASK), "an answer", 60)
    states = {process.title: process.state for process in container.processes()}
    assert "ringbatch: frontend 0" in states
    assert "Z" not in states.values(), states


def stops_in_order(podman: Engine, container: Container) -> None:
    began = time.monotonic()
    podman.run("stop", "--time=60", NAME)
    assert time.monotonic() - began < 30
    assert podman.run("inspect", "--format={{.State.ExitCode}}", NAME).stdout.strip() == "0"
    assert "stopping on SIGTERM" in container.log
    assert "Traceback" not in container.log


def test_an_image_is_built_and_its_container_serves_and_stops(
    podman: Engine, container: Container, wait_until: Callable[..., object]
) -> None:
    """A single test, because building the image takes minutes."""
    is_described(podman)
    answers_as_an_ordinary_user_and_fits_its_memory(podman, container)
    waits_for_orphans(container, wait_until)
    stops_in_order(podman, container)
