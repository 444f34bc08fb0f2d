"""Restart counts: each restarted process is counted by its role and the reason of its end."""

import os
import re
import signal
from collections import Counter
from collections.abc import Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families
from serve.client import Connection, assert_serves, request
from serve.server import Server, Start
from tiers import exhaustive

WaitUntil = Callable[..., object]
Restarted = Counter[tuple[str, str]]
TITLES = {
    "collector": "collector",
    "frontend": r"frontend \d+",
    "arbiter": "frontends",
    "grpc_frontend": r"grpc frontend \d+",
    "control": "control",
}
ALL_THERE = sorted([*TITLES, "frontend", "standby"])
ENDS = {
    "killed": signal.SIGKILL,
    "crashed": signal.SIGSEGV,
    # One that is stopped is taken for hung.
    "hung": signal.SIGSTOP,
}


@pytest.fixture(scope="module")
def control_port(free_port_factory: Callable[[], int]) -> int:
    return free_port_factory()


@pytest.fixture(scope="module")
def server(start_for_module: Start, control_port: int) -> Server:
    return start_for_module(
        {"matmul": {"path": "matmul.py"}},
        frontends=2,
        grpc_port=0,
        control_port=control_port,
        hang_timeout_s=1,
    )


def there(server: Server) -> list[str]:
    """The roles of the living processes."""
    patterns = TITLES | {"standby": "standby"}
    return sorted(
        role
        for title in server.titles()
        for role, pattern in patterns.items()
        if re.fullmatch(f"ringbatch: {pattern}", title)
    )


def one_of(server: Server, role: str) -> int:
    titles = server.titles()
    return next(
        pid for title, pid in titles.items() if re.fullmatch(f"ringbatch: {TITLES[role]}", title)
    )


def counted(control_port: int) -> Restarted:
    with Connection(control_port) as connection:
        text = connection.ask(request("/metrics", method="GET")).body.decode()
    (family,) = (f for f in text_string_to_metric_families(text) if f.name == "ringbatch_restarts")
    assert len(family.samples) == len(TITLES) * len(ENDS)
    return Counter({(s.labels["role"], s.labels["reason"]): int(s.value) for s in family.samples})


def end_each(
    server: Server, control_port: int, why: str, roles: list[str], wait_until: WaitUntil
) -> None:
    expected = counted(control_port)
    for role in roles:
        wait_until(lambda: there(server) == ALL_THERE, "all are there")
        assert_serves(server.port)
        pid = one_of(server, role)
        os.kill(pid, ENDS[why])
        wait_until(lambda pid=pid: pid not in server.living(), f"the {role} ends")
        expected[role, why] += 1
    wait_until(lambda: there(server) == ALL_THERE, "all are there again")
    assert counted(control_port) == expected


def test_a_killed_process_is_counted_as_killed(
    server: Server, control_port: int, wait_until: WaitUntil
) -> None:
    end_each(server, control_port, "killed", [*TITLES], wait_until)


@exhaustive
def test_crashes_and_hangs_are_counted_as_such(
    server: Server, control_port: int, wait_until: WaitUntil
) -> None:
    end_each(server, control_port, "crashed", [*TITLES], wait_until)
    end_each(server, control_port, "hung", ["collector", "grpc_frontend", "control"], wait_until)
