"""A real server, its clients, and what is done to it; and the reckoning at the end."""

import asyncio
import random
import re
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos.clients import Client, Scene, Ticker
from chaos.faults import Scenery, scenery
from chaos.havoc import Havoc
from chaos.keyed import STEPS, device_source, source, step_sources
from chaos.ledger import GRACE_S, Ledger
from chaos.streams import MODEL, StreamClient
from chaos.streams import source as streamed_source
from chaos.watch import Held, Watch, held, role_of
from model.looks import Looks
from serve.server import Server, configured

from ringbatch.shm.engine_slots import EngineSlots
from ringbatch.shm.parts import LEAST_BYTES
from ringbatch.shm.segment import Segment
from ringbatch.shm.shm_objects import segment_names
from ringbatch.shm.slot import State

LOOK_EVERY_S = 5.0
_LOOK_AT_SLOTS_EVERY_S = 0.01
_KEPT_COMPLAINTS = 50
_KEY_BITS = 40
_QUIET_LIMIT_S = 30.0
"""Time limit, after the last request, for everything to be as it was before the first."""
_LANE_BYTES = 1 << 18
_RESERVE = 1
"""libuv opens a descriptor at the first connection, to have one when they run out."""
_ASKED_FOR = re.compile(r"model keyed raised; batch [0-9a-f-]{36}\n  Traceback")


@dataclass(frozen=True)
class Setup:
    """Settings of a run.

    Attributes:
        seed: of everything that is drawn.
        clients: connections over HTTP.
        grpc_clients: channels over gRPC.
        streams: clients of answers in parts, of a model of their own that works in steps.
        workers, frontends, grpc_frontends: of the server.
        spares: of the model, beside its workers.
        run_s: seconds that every run of the model takes.
        load_s: seconds that a worker takes to load it.
        timeout_s: of the model.
        rate_per_s: requests of all clients; None for as many as there can be.
        model: further settings of the model.
        device: that the model's tensors are on; empty for a model of numpy.
        chain: whether the model is a chain, of which each step has so many workers and spares.
        killing: whether gRPC frontends are killed.
        control: whether there is a control address.
        fault: what the host refuses at times, a key of `chaos.faults.FAULTS`; None for nothing.
        grace_s: time after its deadline within which a request may be answered.
    """

    seed: int
    clients: int = 64
    grpc_clients: int = 0
    streams: int = 0
    workers: int = 4
    spares: int = 0
    frontends: int = 2
    grpc_frontends: int = 2
    run_s: float = 0.002
    load_s: float = 0.0
    timeout_s: float = 60.0
    rate_per_s: float | None = None
    model: dict[str, Any] = field(default_factory=dict)
    device: str = ""
    chain: bool = False
    killing: bool = False
    control: bool = False
    fault: str | None = None
    grace_s: float = GRACE_S

    def count(self, role: str) -> int:
        """Return the number of processes that have a role."""
        counts = {
            "worker": (self.workers + self.spares) * (len(STEPS) if self.chain else 1)
            + self.workers * bool(self.streams),
            "frontend": self.frontends,
            "grpc": self.grpc_frontends if self.grpc_clients else 0,
            "control": int(self.control),
        }
        return counts.get(role, 1)


@dataclass
class Play:
    """A run under way, and after it the violations that were found.

    Attributes:
        problems: in words; empty is what it must be.
        counters: counters of the server at the end.
    """

    setup: Setup
    server: Server
    scene: Scene
    havoc: Havoc
    watch: Watch
    around: Scenery
    looks: Looks
    problems: list[str] = field(default_factory=list)
    counters: dict[str, int] = field(default_factory=dict)

    @property
    def ledger(self) -> Ledger:
        """Ledger of the run."""
        return self.scene.ledger

    def report(self) -> Iterable[str]:
        """Yield the lines of the report."""
        ledger = self.ledger
        yield (
            f"sent {ledger.sent}, right {ledger.right}, refused {sum(ledger.refused.values())}, "
            f"broken with their frontend {ledger.broken}, against the law {ledger.failed}"
        )
        for words, count in ledger.refused.most_common(10):
            yield f"  {count} times {words}"
        yield (
            f"longest time to a right answer {ledger.slowest_s:.3f} s, longest time without any "
            f"{ledger.stall_s:.3f} s ({ledger.servers_stall_s:.3f} s beyond the client's own "
            f"delays, of which the longest was {self.scene.ticker.worst_s:.3f} s)"
        )
        if ledger.longest_gap_s:
            yield f"longest time between two parts of an answer {ledger.longest_gap_s:.3f} s"
        if ledger.expired:
            yield (
                f"{ledger.expired} answered at their deadline, the latest "
                f"{ledger.latest_s * 1e3:.0f} ms after it, {ledger.late} too late"
            )
        if self.havoc.done:
            yield (
                f"{self.havoc.done} processes killed or stopped, longest time until a place was "
                f"filled again {self.havoc.longest_away_s:.2f} s"
            )
        yield f"{self.looks.steps} steps of slots seen, each held against the table of their life"
        yield from self.watch.report()
        yield ", ".join(f"{name} {count}" for name, count in self.counters.items())
        yield from (f"AGAINST THE LAW: {problem}" for problem in self.problems)


@asynccontextmanager
async def playing(folder: Path, setup: Setup) -> AsyncIterator[Play]:
    """A server under load; at the end everything is reckoned up in `Play.problems`.

    Args:
        folder: for the server's files.
        setup: settings of the run.
    """
    draw = random.Random(setup.seed)
    key = draw.getrandbits(_KEY_BITS)
    folder.mkdir(parents=True, exist_ok=True)
    keys: dict[str, Any] = {"frontends": setup.frontends, "drain_s": 10.0}
    if setup.grpc_clients:
        keys |= {"grpc_port": 0, "grpc_frontends": setup.grpc_frontends}
    if setup.control:
        keys["control_port"] = 0
    if setup.streams:
        # All may come to one frontend, and each takes memory for several parts.
        keys["lane_bytes"] = 2 * setup.streams * LEAST_BYTES + _LANE_BYTES
    around = scenery(setup.fault, folder) if setup.fault else Scenery()
    server = Server(
        folder,
        *configured(folder, _models(folder, setup, key), **keys),
        program=around.program,
        environment=around.environment,
    )
    try:
        server.wait_ready()
        ticker = Ticker()
        ledger = Ledger(setup.grace_s, ticker.delay_s)
        scene = Scene(server.port, key, setup.timeout_s, ledger, draw, ticker)
        scene.rate_per_s = setup.rate_per_s
        scene.clients = setup.clients + setup.grpc_clients
        segment = Segment.attach(*segment_names(server.pid))
        play = Play(
            setup, server, scene, Havoc(server, scene, draw), Watch(), around, Looks(segment)
        )
        before = _held_now(server)
        works = (ticker.run(), _keep_looking(play), _look_at_slots(play))
        tasks = [asyncio.create_task(work) for work in works]
        runs = [asyncio.create_task(client.run()) for client in _clients(play)]
        try:
            scene.ledger.resume(time.monotonic())
            yield play
        finally:
            scene.going = False
            await asyncio.gather(*runs)
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            play.problems += [
                f"an observer failed: {end!r}" for end in ends if isinstance(end, Exception)
            ]
        play.looks.close()
        segment.detach()
        await _reckon(play, before)
    finally:
        server.destroy()


def _models(folder: Path, setup: Setup, key: int) -> dict[str, dict[str, Any]]:
    """The settings of the models, whose files are written."""
    sources = {"keyed": source(key, setup.run_s, setup.load_s)}
    if setup.chain:
        sources = step_sources(key, setup.run_s, setup.load_s)
    own: dict[str, Any] = {"workers": setup.workers, "spares": setup.spares, "threads": 1}
    if setup.device:
        sources = {"keyed": device_source(key, setup.run_s, setup.load_s)}
        own["device"] = setup.device
    models = {}
    for name, text in sources.items():
        (folder / f"{name}.py").write_text(text)
        models[name] = {"path": f"{name}.py", "timeout_s": setup.timeout_s} | own | setup.model
    if setup.chain:
        models["keyed"] = {"steps": [*STEPS], "timeout_s": setup.timeout_s}
    if setup.streams:
        (folder / f"{MODEL}.py").write_text(streamed_source(key))
        places = -(-setup.streams // setup.workers)
        models[MODEL] = {"path": f"{MODEL}.py", "max_batch_size": places, "threads": 1}
        models[MODEL] |= {"workers": setup.workers, "timeout_s": setup.timeout_s}
    return models


def _clients(play: Play) -> Iterable[Any]:
    setup, scene = play.setup, play.scene
    yield from (Client(scene, number) for number in range(setup.clients))
    yield from (StreamClient(scene, number) for number in range(setup.streams))
    if setup.grpc_clients:
        # Runs without gRPC clients need no grpcio.
        from chaos.grpc_clients import GrpcClient
        from serve.grpc_stub import grpc_port

        port = grpc_port(play.server)
        for number in range(setup.grpc_clients):
            yield GrpcClient(scene, setup.clients + number, port, killing=setup.killing)


async def _look_at_slots(play: Play) -> None:
    while len(play.problems) < _KEPT_COMPLAINTS:
        play.problems += play.looks.look()
        await asyncio.sleep(_LOOK_AT_SLOTS_EVERY_S)


async def _keep_looking(play: Play) -> None:
    while True:
        play.watch.look(play.server.titles(), time.monotonic())
        await asyncio.sleep(LOOK_EVERY_S)


def _held_now(server: Server) -> dict[str, Held]:
    found = {title: held(pid) for title, pid in server.titles().items()}
    return {title: resources for title, resources in found.items() if resources is not None}


async def _reckon(play: Play, before: dict[str, Held]) -> None:
    play.problems += play.ledger.balance()
    if not play.looks.steps:
        play.problems.append("nothing was seen of the slots")
    server = play.server
    give_up_at = time.monotonic() + _QUIET_LIMIT_S
    while left := _unfinished(play, before):
        if time.monotonic() > give_up_at:
            play.problems += left
            break
        await asyncio.sleep(0.1)
    status = server.status()
    play.counters = {
        **{f"collector {name}": count for name, count in status.collector.items()},
        **{f"frontends {name}": count for name, count in status.frontends.items()},
        "retried": sum(model.retried for model in status.models.values()),
    }
    names = server.names()
    if server.stop() != 0:
        play.problems.append(f"the server ended with status {server.process.returncode}")
    if not names or not server.gone():
        play.problems.append(f"left behind: {server.names()}, processes {server.living()}")
    if not play.around.tongue_tied and "Traceback" in _ASKED_FOR.sub("", server.stderr):
        play.problems.append(f"a traceback in the log:\n{server.stderr[-3000:]}")


def _unfinished(play: Play, before: dict[str, Held]) -> list[str]:
    """Return the differences from the state before the clients came."""
    found = []
    setup, server = play.setup, play.server
    for role in ("worker", "collector", "frontend", "grpc", "control"):
        count = len(play.havoc.of(role))
        if count != setup.count(role):
            found.append(f"{count} processes are {role}, not {setup.count(role)}")
    first = {role_of(title): resources for title, resources in before.items()}
    for title, now in _held_now(server).items():
        was = first.get(role_of(title))
        if was is not None and now.descriptors > was.descriptors + _RESERVE:
            found.append(f"{title}: {was.descriptors} descriptors before, {now.descriptors} now")
        if was is not None and now.threads > was.threads:
            found.append(f"{title}: {was.threads} threads before, {now.threads} now")
    for name in segment_names(server.pid):
        segment = Segment.attach(name)
        engine_slots = EngineSlots(segment, 0, lambda _lane: None)
        taken = sum(state is not State.FREE for _, state in engine_slots.published())
        segment.detach()
        if taken:
            found.append(f"{taken} slots are not free")
    return found
