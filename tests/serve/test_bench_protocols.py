"""Load over V1, V2, gRPC and by a Client against one engine: the same proofs for each.

Tests bench/ringbatch/bench/client/calls.py and bench/ringbatch/bench/client/role.py.
"""

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace

import orjson
import pytest
from serve.grpc_stub import grpc_port
from serve.server import Server, Start
from tiers import exhaustive, only

from ringbatch.bench.command.settings import Protocol, Settings
from ringbatch.bench.command.subject import Subject, find
from ringbatch.bench.load.arrivals import Arrivals, Kind
from ringbatch.bench.load.fleet import Fleet
from ringbatch.bench.load.outcome import BROKEN, GRPC, WRONG, Outcome
from ringbatch.bench.load.target import Target, Wire
from ringbatch.bench.report.point import Asked, judged
from ringbatch.bench.report.slo import Slo
from ringbatch.bench.served.asking import Address
from ringbatch.bench.served.engine import Served
from ringbatch.bench.served.failures import CannotMeasure

STALL_S = 0.5
RATE = 400.0
# The beginning of a title: a frontend for HTTP has the number of its lane, which may be any. Texts
# need another model, see test_bench_streams.py.
STALLED = {
    Protocol.V1: "ringbatch: frontend ",
    Protocol.V2: "ringbatch: frontend ",
    Protocol.GENERATE: "ringbatch: frontend ",
    Protocol.GRPC: "ringbatch: grpc frontend ",
    Protocol.CLIENT: "ringbatch: collector",
}
every_protocol = pytest.mark.parametrize(
    "protocol", only({str(one): one for one in STALLED}, "grpc")
)


@pytest.fixture(scope="module")
def engine(start_for_module: Start) -> Server:
    """A model of sixteen numbers, served in every way."""
    models = {"matmul": {"path": "matmul.py"}}
    return start_for_module(models, control_port=0, grpc_port=0)


@pytest.fixture
def subject(engine: Server) -> Callable[[Protocol], Subject]:
    served = Served(
        Address("127.0.0.1", engine.port),
        Address("127.0.0.1", engine.control_port),
        Address("127.0.0.1", grpc_port(engine)),
        engine.pid,
    )
    return lambda protocol: find(served, Settings(protocol=protocol))


@every_protocol
def test_every_answer_is_compared_with_the_right_one(
    subject: Callable[[Protocol], Subject], protocol: Protocol
) -> None:
    found = subject(protocol)
    with found.fleet(2, check=True) as fleet:
        open_loop = fleet.run(Arrivals(Kind.POISSON, 0.4, RATE, seed=3), 64, 30)
        closed = fleet.run(Arrivals(Kind.CLOSED, 0.3), 5, 30)
    assert open_loop.count == len(Arrivals(Kind.POISSON, 0.4, RATE, seed=3).times_ns())
    assert set(open_loop.counts()) == set(closed.counts()) == {200}
    assert closed.count > 5
    # What was right for another request is not for this one.
    answers = [*found.answers[1:], found.answers[0]]
    with replace(found, answers=answers).fleet(1, check=True) as fleet:
        assert set(fleet.run(Arrivals(Kind.POISSON, 0.2, 200), 64, 30).counts()) == {WRONG}
        assert set(fleet.run(Arrivals(Kind.CLOSED, 0.2), 2, 30).counts()) == {WRONG}


@pytest.mark.parametrize("protocol", only({"V1": Protocol.V1, "GRPC": Protocol.GRPC}, "GRPC"))
def test_requests_with_heads_of_their_own_are_answered_alike(
    subject: Callable[[Protocol], Subject], protocol: Protocol
) -> None:
    found = replace(subject(protocol), own_heads=True)
    with found.fleet(2, check=True) as fleet:
        assert set(fleet.run(Arrivals(Kind.CLOSED, 0.3), 5, 30).counts()) == {200}


@pytest.mark.parametrize(
    ("protocol", "status"), [(Protocol.GRPC, GRPC + 3), (Protocol.CLIENT, 400)]
)
def test_a_request_that_the_model_refuses_keeps_its_status_and_the_run_has_no_figure(
    subject: Callable[[Protocol], Subject], protocol: Protocol, status: int
) -> None:
    tensor = {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}
    bodies = [orjson.dumps({"inputs": [tensor]})]
    with replace(subject(protocol), bodies=bodies).fleet(1) as fleet:
        for kind in (Kind.POISSON, Kind.CLOSED):
            outcome = fleet.run(Arrivals(kind, 0.2, 200), 4, 30)
            assert set(outcome.counts()) == {status}
    point = judged(Asked("a", 200.0, 4), [outcome], [None], slo=Slo(20), lag_max_ms=1000)
    assert "the server refused requests" in point.void[0]
    assert point.figures == {}


def test_an_engine_that_is_not_there_is_named() -> None:
    target = Target("", 0, Wire.CLIENT, "no-such-engine", "matmul")
    tensor = {"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [1]}
    with Fleet(1, target, [orjson.dumps({"inputs": [tensor]})]) as fleet:
        for kind in (Kind.POISSON, Kind.CLOSED):
            outcome = fleet.run(Arrivals(kind, 0.2, 100), 4, 1)
            assert set(outcome.counts()) == {BROKEN}
            assert "no-such-engine" in next(iter(outcome.problems))


def test_the_address_of_grpc_must_be_given(engine: Server) -> None:
    served = Served(Address("127.0.0.1", engine.port), None)
    with pytest.raises(CannotMeasure, match="--grpc-url"):
        find(served, Settings(protocol=Protocol.GRPC))


def test_grpc_without_its_package_is_reported_with_the_install_command(
    engine: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringbatch.bench.command.subject.find_spec", lambda _: None)
    served = Served(Address("127.0.0.1", engine.port), None)
    with pytest.raises(CannotMeasure, match=r"hpack, which is not installed; pip install .*grpc"):
        find(served, Settings(protocol=Protocol.GRPC))


def with_stop(engine: Server, fleet: Fleet, pid: int) -> Outcome:
    """A run of two seconds in which a process stands still for half a second."""
    before = engine.status().models["matmul"].requests
    ended = threading.Event()

    def stop() -> None:
        while engine.status().models["matmul"].requests < before + 50:
            if ended.wait(0.01):
                return
        os.kill(pid, signal.SIGSTOP)
        time.sleep(STALL_S)
        os.kill(pid, signal.SIGCONT)

    thread = threading.Thread(target=stop)
    thread.start()
    try:
        return fleet.run(Arrivals(Kind.POISSON, 2, RATE, seed=1), 256, 30)
    finally:
        ended.set()
        thread.join()


@exhaustive
@every_protocol
def test_a_stall_of_the_server_appears_in_its_percentiles(
    engine: Server, subject: Callable[[Protocol], Subject], protocol: Protocol
) -> None:
    """A quarter of all requests were due meanwhile; a closed loop would have sent none of them."""
    with subject(protocol).fleet(1) as fleet:
        (pid,) = [p for t, p in engine.titles().items() if t.startswith(STALLED[protocol])]
        found = with_stop(engine, fleet, pid)
    assert found.times().quantile_ns(0.99) / 1e9 > 0.8 * STALL_S
    assert found.times().quantile_ns(0.9) / 1e9 > 0.4 * STALL_S
    assert (found.took_ns / 1e9 > 0.1 * STALL_S).mean() > 0.15
    # The generator itself was on time all the while.
    assert found.lag_ms(0.9) / 1e3 < 0.2 * STALL_S


@exhaustive
@every_protocol
def test_a_generator_that_stood_still_says_so(
    engine: Server, subject: Callable[[Protocol], Subject], protocol: Protocol
) -> None:
    with subject(protocol).fleet(1) as fleet:
        found = with_stop(engine, fleet, fleet.pids[0])
    assert found.lag_ms(0.99) / 1e3 > 0.8 * STALL_S
    # Nothing is hidden: its requests count from when they were due.
    assert (found.took_ns >= found.lag_ns).all()
