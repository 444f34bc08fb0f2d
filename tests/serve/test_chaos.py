"""The chaos harness, short: roles killed, stopped and poisoned under load, and the reckoning.

`python tests/chaos/run.py --help` says how it is run for longer.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from chaos.acts import kills, poison, stops
from chaos.keyed import Deed
from chaos.play import Play

FEW: dict[str, Any] = {"seed": 1, "clients": 16, "rate_per_s": 300.0, "grace_s": 60.0}
"""A loaded machine answers late; only the long runs, on a quiet one, look at the clock."""


def lawful(play: Play) -> Play:
    assert not play.problems, "\n".join(play.report())
    assert play.ledger.sent == play.ledger.right + play.ledger.refused.total() + play.ledger.broken
    return play


@pytest.mark.parametrize(
    ("role", "count"), [("worker", 4), ("collector", 2), ("frontend", 2), ("grpc", 1)]
)
def test_kills_under_load_fail_nobody_but_those_on_a_killed_frontend(
    tmp_path: Path, role: str, count: int
) -> None:
    play = lawful(asyncio.run(kills(tmp_path, role, count, every_s=0.0, workers=2, **FEW)))
    assert play.havoc.done == count
    assert not play.ledger.refused
    assert role in ("frontend", "grpc") or not play.ledger.broken


@pytest.mark.parametrize("role", ["worker", "collector", "frontend"])
def test_who_was_stopped_for_a_while_goes_on_and_nobody_gets_what_is_anothers(
    tmp_path: Path, role: str
) -> None:
    play = lawful(asyncio.run(stops(tmp_path, role, 1, 1.5, **FEW)))
    assert play.ledger.refused.total() == play.ledger.expired


@pytest.mark.parametrize(
    ("deed", "times"), [(Deed.RAISES, 1), (Deed.EXITS, 2), (Deed.ALLOCATES, 1)]
)
def test_poison_harms_nobody_but_who_sent_it(tmp_path: Path, deed: Deed, times: int) -> None:
    play = lawful(asyncio.run(poison(tmp_path, deed, times=times, limit_s=20.0, **FEW)))
    assert play.ledger.refused.total() == times
    # Where it is known what a worker died of, nobody waits longer for the next.
    assert "starts again in" not in play.server.stderr
