"""A model whose requests wait by the hundreds, beside one that is idle, which is never refused."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from dev_shm import takes
from serve.client import Connection, fast, instances, request
from serve.server import Server, Start
from tiers import only

pytestmark = takes(40)

ASKED = 60
STUCK = {"nap_s": 50}


def metric(server: Server, name: str) -> float:
    """Return a metric's sum over the lanes."""
    with Connection(server.control_port) as connection:
        text = connection.ask(request("/metrics", method="GET")).body.decode()
    lines = [line for line in text.splitlines() if line.startswith(f"ringbatch_{name}")]
    return sum(float(line.split()[-1]) for line in lines)


@pytest.mark.parametrize(
    ("settings", "requests", "rows", "waiting"),
    only(
        {
            "64 slots": ({"max_in_flight": 64, "lane_bytes": 8 << 20}, 400, 1, 48),
            "as many slots as by default": ({"lane_bytes": 8 << 20}, 140, 15, 765),
            "little memory": ({"lane_bytes": 256 << 10}, 140, 15, 45),
        },
        "64 slots",
    ),
)
def test_an_idle_model_is_not_refused_because_another_has_hundreds_waiting(
    start: Start,
    settings: dict[str, Any],
    requests: int,
    rows: int,
    waiting: int,
    wait_until: Callable[..., Any],
) -> None:
    usual = {"path": "nap.py", "workers": 1, "max_batch_size": 1, "timeout_s": 60}
    models = {"stuck": usual | {"batch_timeout_s": 60}, "idle": usual}
    server = start(models, control_port=0, **settings)
    with ExitStack() as undo:
        for _ in range(requests):
            connection = undo.enter_context(Connection(server.port))
            connection.send(fast("stuck", instances(*[STUCK] * rows)))
        refused = requests - waiting // rows
        wait_until(lambda: metric(server, "lane_refused_total") == refused, "the others wait")
        ends = []
        for _ in range(ASKED):
            with Connection(server.port) as connection:
                ends.append(connection.ask(fast("idle", instances({"nap_s": 0}))).status)
        assert ends == [200] * ASKED
        assert metric(server, 'model_in_flight{model="stuck"') == waiting
        assert metric(server, "lane_refused_at_share_total") == refused
