"""The chaos harness, short: roles killed, stopped and poisoned under load, and hosts that refuse
things; and the reckoning.

`python tests/chaos/run.py --help` says how it is run for longer.
"""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from chaos.acts import faults, hail, kills, poison, squeezed, stops, wedges
from chaos.faults import Impossible
from chaos.keyed import Deed
from chaos.play import Play
from tiers import exhaustive, first_of

FEW: dict[str, Any] = {"seed": 1, "clients": 16, "rate_per_s": 300.0, "grace_s": 60.0}
"""A loaded machine answers late; only the long runs, on a quiet one, look at the clock."""


def lawful(play: Play) -> Play:
    assert not play.problems, "\n".join(play.report())
    assert play.ledger.sent == play.ledger.right + play.ledger.refused.total() + play.ledger.broken
    return play


@pytest.mark.parametrize(
    ("role", "count"), first_of([("worker", 4), ("collector", 2), ("frontend", 2), ("grpc", 1)], 1)
)
def test_kills_under_load_fail_nobody_but_those_on_a_killed_frontend(
    tmp_path: Path, role: str, count: int
) -> None:
    play = lawful(asyncio.run(kills(tmp_path, role, count, every_s=0.0, workers=2, **FEW)))
    assert play.havoc.done == count
    assert not play.ledger.refused
    assert role in ("frontend", "grpc") or not play.ledger.broken


@exhaustive
def test_a_hail_of_kills_leaves_no_request_without_a_worker_for_long(tmp_path: Path) -> None:
    play = lawful(asyncio.run(hail(tmp_path, ["worker", "collector"], 20.0, workers=2, **FEW)))
    assert play.havoc.done > 10
    assert not play.ledger.refused
    assert not play.ledger.broken


@exhaustive
@pytest.mark.parametrize(("role", "count"), [("worker", 4), ("collector", 2)])
def test_kills_in_the_midst_of_a_chain_lose_no_answer_and_mix_up_none(
    tmp_path: Path, role: str, count: int
) -> None:
    busy = {"chain": True, "workers": 2, "run_s": 0.02, "rate_per_s": None}
    play = lawful(asyncio.run(kills(tmp_path, role, count, every_s=0.0, **FEW | busy)))
    assert play.havoc.done == count
    assert role == "collector" or play.counters["retried"], "some were in a batch that died"
    assert not play.ledger.refused
    assert not play.ledger.broken


@exhaustive
@pytest.mark.parametrize(("role", "count"), [("worker", 3), ("collector", 2), ("frontend", 2)])
def test_kills_under_streams_lose_no_part_and_bring_none_twice(
    tmp_path: Path, role: str, count: int
) -> None:
    """Only connections of a killed frontend end."""
    given = FEW | {"clients": 2, "streams": 8}
    play = lawful(asyncio.run(kills(tmp_path, role, count, every_s=0.0, workers=2, **given)))
    assert play.havoc.done == count
    assert play.ledger.longest_gap_s
    assert role == "frontend" or not play.ledger.broken


@exhaustive
def test_kills_of_the_only_worker_and_its_spare_fail_nobody(tmp_path: Path) -> None:
    given = FEW | {"workers": 1, "spares": 1}
    play = lawful(asyncio.run(kills(tmp_path, "worker", 4, every_s=0.0, **given)))
    assert play.havoc.done == 4
    assert not play.ledger.refused
    assert not play.ledger.broken


@exhaustive
@pytest.mark.parametrize("role", first_of(["frontend", "worker", "collector"], 1))
def test_a_process_stopped_for_a_while_goes_on_and_no_client_gets_anothers_answer(
    tmp_path: Path, role: str
) -> None:
    play = lawful(asyncio.run(stops(tmp_path, role, 1, 1.5, **FEW)))
    assert play.ledger.refused.total() == play.ledger.expired


@exhaustive
@pytest.mark.parametrize(
    ("deed", "times"), first_of([(Deed.EXITS, 2), (Deed.RAISES, 1), (Deed.ALLOCATES, 1)], 1)
)
def test_poison_harms_its_sender_only(tmp_path: Path, deed: Deed, times: int) -> None:
    play = lawful(asyncio.run(poison(tmp_path, deed, times=times, limit_s=20.0, **FEW)))
    assert play.ledger.refused.total() == times
    # A worker whose death is explained is restarted without a delay.
    assert "starts again in" not in play.server.stderr


@exhaustive
@pytest.mark.parametrize(
    "role", first_of(["collector", "worker", "frontend", "grpc", "control"], 1)
)
def test_a_process_that_never_goes_on_is_replaced(tmp_path: Path, role: str) -> None:
    play = lawful(asyncio.run(wedges(tmp_path, role, 1, **FEW)))
    assert play.havoc.done == 1
    assert not play.ledger.refused
    assert role in ("frontend", "grpc") or not play.ledger.broken


FAULTS: dict[str, tuple[str, list[str], list[str]]] = {
    "supervisor cannot open anything": ("descriptors", ["supervisor"], ["worker", "collector"]),
    "arbiter cannot open anything": ("descriptors", ["arbiter"], ["frontend"]),
    "nobody else can": ("descriptors", ["frontend", "collector", "worker"], []),
    "supervisor has no memory for others": ("memory", ["supervisor"], ["worker", "collector"]),
    "collector has no memory": ("memory", ["collector"], ["worker"]),
    "disk for logs is full": ("log-disk", [], ["worker", "collector", "frontend"]),
    "clock goes forward and back": ("clock", [], ["worker"]),
}
"""Faults: the resource that is denied, the processes that lose it, and those killed meanwhile."""


@exhaustive
@pytest.mark.parametrize("case", first_of(FAULTS, 1))
def test_a_refusal_of_the_host_for_a_while_fails_no_request(tmp_path: Path, case: str) -> None:
    fault, afflicted, killed = FAULTS[case]
    try:
        play = asyncio.run(faults(tmp_path, fault, afflicted, killed, **FEW))
    except Impossible as reason:
        pytest.skip(str(reason))
    assert not lawful(play).ledger.refused
    assert play.havoc.done == len(killed)


@exhaustive
def test_a_process_that_exceeds_its_control_group_is_refused_alone(tmp_path: Path) -> None:
    try:
        play = asyncio.run(squeezed(tmp_path, **FEW))
    except Impossible as reason:
        pytest.skip(str(reason))
    assert lawful(play).ledger.refused.total() == 1


IN_SMALL_SHM = (
    *("unshare", "--map-root-user", "--mount", "sh", "-c"),
    'mount -t tmpfs -o size=64m,mode=1777 tmpfs /dev/shm && exec "$@"',
    "sh",
)


@exhaustive
@pytest.mark.parametrize("role", ["worker", "collector", "frontend"])
def test_a_full_dev_shm_fails_no_request(role: str) -> None:
    if subprocess.run([*IN_SMALL_SHM, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no user namespaces on this host")
    run = Path(__file__).parents[1] / "chaos" / "run.py"
    flags = ["--fault", "shared-memory", "--role", role, "--rate", "300", "--clients", "16"]
    played = subprocess.run(
        [*IN_SMALL_SHM, sys.executable, run, *flags, "--seconds", "2"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert played.returncode == 0, played.stdout
