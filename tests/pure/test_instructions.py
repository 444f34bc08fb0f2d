"""CPUs of a configuration's workers."""

from pathlib import Path

import pytest

from ringbatch.engine.config.settings import Config, ModelConfig, ServerConfig
from ringbatch.engine.ipc.instructions import cpu_sets, placed
from ringbatch.engine.process.cpu_plan import Host

EIGHT = Host(tuple(range(8)), {0: tuple(range(8))}, 8)


def by_name(placement: str, **more: object) -> list[tuple[int, ...] | None]:
    """Return the CPUs of a model's workers, followed by those of its spares."""
    model = ModelConfig(name="m", path=Path("/m.py"), **more)  # type: ignore[arg-type]
    server = ServerConfig(placement=placement, frontends=1)  # type: ignore[arg-type]
    config = Config(server=server, models=(model,))
    found, _ = placed(config, EIGHT)
    return [cpu_set.cpus for cpu_set in cpu_sets(config, found).values()]


@pytest.mark.parametrize(
    ("placement", "more", "expected"),
    [
        ("shared", {"workers": 1, "spares": 1}, [None, None]),
        ("auto", {"workers": 2}, [(2, 3, 4), (5, 6, 7)]),
        ("auto", {"workers": 2, "spares": 1}, [(2, 3, 4), (5, 6, 7), (2, 3, 4, 5, 6, 7)]),
        ("shared", {"workers": 2, "spares": 1, "cpus": ("1", "3")}, [(1,), (3,), (1, 3)]),
    ],
)
def test_a_spare_may_run_where_any_of_its_models_workers_does(
    placement: str, more: dict[str, object], expected: list[tuple[int, ...] | None]
) -> None:
    assert by_name(placement, **more) == expected
