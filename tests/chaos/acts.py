"""Acts of chaos: kills, a hail of them, stops, poison, a soak."""

import asyncio
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from chaos.clients import Client
from chaos.keyed import Deed
from chaos.play import Play, Setup, playing

STEADY_S = 12.0
"""A process that lived this long is started again at once; see `engine.process.respawn`."""
_OWN_STEADY_S = 2.0
"""Life after which a collector is started again at once, as another stands by for it then."""
_MEASURED_S = 5.0
_BETWEEN_HITS_S = (0.4, 1.2)
_POISONINGS = 3
_REPORTED_EVERY = 25
_POISON_LIMIT_S = 90.0
_SERVES_AGAIN_S = 60.0
_GRPC_CLIENTS = 16


async def kills(
    folder: Path, role: str, count: int, *, every_s: float | None = None, **setup: Any
) -> Play:
    """Kill processes of a role one after the other, the longest-lived each time.

    Args:
        folder: for the server's files.
        role: whose.
        count: number of kills.
        every_s: seconds from the moment that a place is filled again to the next kill; by default
            so many that each is started again at once.
        setup: see `Setup`.
    """
    played = Setup(
        **setup,
        killing=True,
        grpc_clients=_GRPC_CLIENTS * (role == "grpc"),
        control=role == "control",
    )
    if every_s is None:
        every_s = _OWN_STEADY_S if role == "collector" else STEADY_S / played.count(role)
    async with playing(folder, played) as play:
        await _answers(play, 10 * played.clients)
        for _ in range(count):
            wanted = play.ledger.right + played.clients
            await play.havoc.kill(
                role,
                played.count(role),
                lambda wanted=wanted: play.ledger.right >= wanted,  # type: ignore[misc]
            )
            _tell(play)
            await asyncio.sleep(every_s)
    return play


async def stops(folder: Path, role: str, count: int, seconds: float, **setup: Any) -> Play:
    """Stop processes of a role one after the other, while requests expire.

    Args:
        folder, role, count, setup: as for `kills`.
        seconds: duration of each stop.
    """
    played = Setup(
        **setup,
        # Shorter than a stop, so that requests expire during it.
        timeout_s=0.6 * seconds,
        # Not taken for hung, so that its requests expire and it goes on with them.
        model={"batch_timeout_s": 10 * seconds},
        workers=2,
        grpc_clients=_GRPC_CLIENTS * (role == "grpc"),
    )
    async with playing(folder, played) as play:
        await _answers(play, 10 * played.clients)
        for _ in range(count):
            await play.havoc.stop(role, played.count(role), seconds)
            _tell(play)
            await _answers(play, 2 * played.clients)
    return play


async def wedges(folder: Path, role: str, count: int, **setup: Any) -> Play:
    """Stop processes of a role for ever, one after the other.

    Args:
        folder, role, count, setup: as for `kills`.
    """
    played = Setup(
        **setup,
        workers=2,
        killing=True,
        control=role == "control",
        model={"batch_timeout_s": 2.0},
        grpc_clients=_GRPC_CLIENTS * (role == "grpc"),
    )
    async with playing(folder, played) as play:
        await _answers(play, 10 * played.clients)
        for _ in range(count):
            wanted = play.ledger.right + played.clients
            await play.havoc.kill(
                role,
                played.count(role),
                lambda wanted=wanted: play.ledger.right >= wanted,  # type: ignore[misc]
                signal.SIGSTOP,
            )
            _tell(play)
    return play


async def faults(
    folder: Path,
    fault: str,
    afflicted: Sequence[str],
    killed: Sequence[str],
    *,
    times: int = 1,
    seconds: float = 3.0,
    **setup: Any,
) -> Play:
    """Deny the server something for a while, and kill processes in that time.

    Args:
        folder, setup: as for `kills`.
        fault: a key of `FAULTS`.
        afflicted: the roles whose processes are refused it.
        killed: the roles of which one process each is killed.
        times: number of faults.
        seconds: duration of each fault.
    """
    played = Setup(**setup, workers=2, killing="grpc" in killed, fault=fault)
    async with playing(folder, played) as play:
        await _answers(play, 10 * played.clients)
        for _ in range(times):
            victims = {}
            with play.around.afflict([pid for role in afflicted for pid in play.havoc.of(role)]):
                for role in killed:
                    victims[role] = await play.havoc.strike(role, played.count(role))
                await asyncio.sleep(seconds)
            for role, victim in victims.items():
                await play.havoc.refilled(role, played.count(role), victim, lambda: True)
            async with asyncio.timeout(_SERVES_AGAIN_S):
                await _answers(play, 2 * played.clients)
    return play


async def squeezed(folder: Path, *, times: int = 1, **setup: Any) -> Play:
    """Bound the memory of all processes together below a request's needs, so that the kernel kills.

    Args:
        folder, setup: as for `kills`.
        times: number of times.
    """
    played = Setup(**setup, workers=1, timeout_s=30.0, fault="control-group")
    async with playing(folder, played) as play:
        await _answers(play, 10 * played.clients)
        with play.around.afflict(play.server.living()):
            for number in range(times):
                await _poisoned(play, Deed.ALLOCATES, number)
            await _answers(play, 2 * played.clients)
    return play


async def poison(
    folder: Path, deed: Deed, *, times: int = _POISONINGS, limit_s: float = 2.0, **setup: Any
) -> Play:
    """Send a request that harms the model among good ones of the same batch, several times.

    The good ones must be answered, the bad one must be refused.

    Args:
        folder, setup: as for `kills`.
        deed: effect of the bad request.
        times: number of times.
        limit_s: after which a batch is taken for hung.
    """
    played = Setup(
        **setup,
        workers=1,
        frontends=1,
        timeout_s=30.0,
        model={"batch_timeout_s": limit_s, "policy": "fixed", "max_batch_size": 64}
        | {"max_latency_ms": 200.0}
        | _LIMITS.get(deed, {}),
    )
    async with playing(folder, played) as play:
        await _answers(play, 10 * played.clients)
        for number in range(times):
            await _poisoned(play, deed, number)
    return play


_LIMITS: dict[Deed, dict[str, Any]] = {Deed.ALLOCATES: {"worker_memory_bytes": 256 << 20}}


async def _poisoned(play: Play, deed: Deed, number: int) -> None:
    before = play.ledger.refused.total()
    client = Client(play.scene, 1_000 + number)
    line = await client.connected()
    assert line is not None, "the server takes connections"
    async with asyncio.timeout(_POISON_LIMIT_S):
        status = await client.ask(line, deed)
    line.transport.close()
    refused = play.ledger.refused.total() - before
    if status == 200 or refused != 1:
        play.ledger.fail(f"{refused} were refused where one was poison, which got {status}")


async def soak(
    folder: Path, roles: list[str], seconds: float, load: float, every_s: float, **setup: Any
) -> Play:
    """Load at a share of the capacity, which is measured first, and kills at random.

    Args:
        folder, setup: as for `kills`.
        roles: roles of the processes that are killed.
        seconds: duration.
        load: the share.
        every_s: seconds between two kills.
    """
    # The workers are what is short, not this machine's processors.
    slow: dict[str, Any] = {"run_s": 0.02, "model": {"max_batch_size": 4}}
    played = Setup(**slow, **setup, killing="grpc" in roles)
    async with playing(folder, played) as play:
        if play.scene.rate_per_s is None:
            await _answers(play, 10 * played.clients)
            first, began = play.ledger.right, time.monotonic()
            await asyncio.sleep(_MEASURED_S)
            capacity_per_s = (play.ledger.right - first) / (time.monotonic() - began)
            play.scene.rate_per_s = load * capacity_per_s
            print(f"capacity {capacity_per_s:.0f} requests/s", flush=True)
        end = time.monotonic() + seconds
        while (now := time.monotonic()) < end:
            role = play.scene.source.choice(roles)
            await play.havoc.kill(role, played.count(role), lambda: True)
            _tell(play)
            await asyncio.sleep(max(0.0, every_s - (time.monotonic() - now)))
    return play


async def hail(folder: Path, roles: list[str], seconds: float, **setup: Any) -> Play:
    """Kills at random, far more often than a process takes to recover.

    Args:
        folder, setup: as for `kills`.
        roles: roles of the processes that are killed, whether ready or not.
        seconds: duration.
    """
    played = Setup(**setup, killing="grpc" in roles)
    async with playing(folder, played) as play:
        await _answers(play, 10 * played.clients)
        source, end = play.scene.source, time.monotonic() + seconds
        while time.monotonic() < end:
            await asyncio.sleep(source.uniform(*_BETWEEN_HITS_S))
            play.havoc.hit(source.choice(roles))
        await _answers(play, 2 * played.clients)
    return play


def _tell(play: Play) -> None:
    if play.havoc.done % _REPORTED_EVERY == 0:
        print(f"{play.havoc.done} done, {play.ledger.right} right answers", flush=True)


async def _answers(play: Play, count: int) -> None:
    """Wait until so many more requests are answered."""
    wanted = play.ledger.right + count
    while play.ledger.right < wanted:
        await asyncio.sleep(0.02)
