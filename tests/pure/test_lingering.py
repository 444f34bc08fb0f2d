"""Waiting for clients that come back: what is learnt of them and what it brings, played through.

A server with one worker is played through: batches are closed by `decide`, runs take a fixed time
and one for each row, and clients either come back some time after their answer or come by chance.
"""

import heapq
import random
from collections.abc import Callable, Iterator

import pytest

from ringbatch.engine.collector.batching import Pending, Policy, Wait, decide
from ringbatch.engine.collector.lingering import COSTLY_NS, MOST_NS, Lingering, RunCosts
from ringbatch.shm.cost_profile import Trial
from ringbatch.shm.engine_slots import Request

US = 1_000
MS = 1_000_000
CAP = 32
EAGER = Policy(CAP, 0, eager=True)
FAR_NS = 1 << 60


def request(accepted_ns: int, rows: int = 1) -> Request:
    return Request(0, 0, rows, 0, 0, 0, 0, 0, accepted_ns, FAR_NS)


class Server:
    """Server with one worker and a queue; see the module.

    Args:
        fixed_ns, row_ns: of a run.
        comes_again: when a client sends its next request, by the time of its answer; None never.
        lingers: whether batches wait for those that come back.
    """

    def __init__(
        self,
        fixed_ns: int,
        row_ns: int,
        comes_again: Callable[[int], int | None],
        lingers: bool = True,
    ) -> None:
        self.now_ns = 0
        self.waits_ns: list[int] = []
        """Time of each request from its acceptance to its answer."""
        self.lingered_ns: list[int] = []
        """Time that the worker was idle while each batch waited."""
        self.rows: list[int] = []
        """Sizes of the batches, in rows."""
        self.lingering = Lingering()
        self.lingering.learn(Trial(n, 0, fixed_ns + n * row_ns) for n in (1, 8, CAP))
        self._costs_ns = fixed_ns, row_ns
        self._comes_again = comes_again
        self._lingers = lingers
        self._events: list[tuple[int, int]] = []
        self._queue: list[int] = []
        self._unseen: list[Request] = []
        self._batch: list[int] = []
        self._began_ns = self._waits_since_ns = 0

    def comes(self, at_ns: int) -> None:
        """Schedule a request for that time."""
        heapq.heappush(self._events, (at_ns, 0))

    def run(self, until_ns: int) -> "Server":
        """Play on until that time."""
        while self._events and self._events[0][0] <= until_ns:
            self.now_ns, is_done = heapq.heappop(self._events)
            if is_done == 1:
                self._finish()
            elif is_done == 0:
                self._queue.append(self.now_ns)
                self._unseen.append(request(self.now_ns))
                if len(self._queue) == 1 and not self._batch:
                    self._waits_since_ns = self.now_ns
            if not self._batch:
                self._take_in()
                self._serve()
        return self

    def _take_in(self) -> None:
        """Note the requests that came while the only worker was busy, and woke no collector."""
        if self.lingering.watching:
            self.lingering.came(self._unseen)
        self._unseen.clear()

    def _finish(self) -> None:
        took_ns = self.now_ns - self._began_ns
        for accepted_ns in self._batch:
            self.waits_ns.append(self.now_ns - accepted_ns)
            again_ns = self._comes_again(self.now_ns)
            if again_ns is not None:
                self.comes(again_ns)
        self.lingering.answered(len(self._batch), took_ns, self.now_ns)
        self._batch = []
        self._waits_since_ns = self.now_ns

    def _serve(self) -> None:
        if not self._queue:
            return
        pending = Pending(len(self._queue), len(self._queue), self._queue[0], FAR_NS)
        until_ns = self.lingering.until_ns if self._lingers else 0
        decision = decide(pending, self.now_ns, EAGER, 1, linger_until_ns=until_ns)
        if isinstance(decision, Wait):
            assert decision.until_ns is not None
            heapq.heappush(self._events, (decision.until_ns, 2))
            return
        self._batch, self._queue = self._queue[:CAP], self._queue[CAP:]
        self._began_ns = self.now_ns
        self.rows.append(len(self._batch))
        self.lingered_ns.append(self.now_ns - self._waits_since_ns)
        fixed_ns, row_ns = self._costs_ns
        heapq.heappush(self._events, (self.now_ns + fixed_ns + row_ns * len(self._batch), 1))


def closed_loop(clients: int, fixed_ns: int, row_ns: int, lingers: bool = True) -> Server:
    """Play so many clients, each of which comes back 0.2 to 1 ms after its answer."""
    chance = random.Random(clients)
    again = lambda now_ns: now_ns + chance.randrange(200 * US, 1 * MS)  # noqa: E731
    server = Server(fixed_ns, row_ns, again, lingers)
    for client in range(clients):
        server.comes(client * 300 * US)
    return server.run(4_000 * MS)


def open_loop(per_s: float, lingers: bool = True) -> Server:
    """Play requests that come by chance, so many a second."""
    chance = random.Random(7)
    server = Server(5 * MS, 200 * US, lambda _: None, lingers)
    at_ns = 0
    while at_ns < 20_000 * MS:
        at_ns += int(chance.expovariate(per_s) * 1e9)
        server.comes(at_ns)
    return server.run(20_000 * MS)


@pytest.mark.parametrize("clients", [2, 3, 8, 20, 32, 48])
def test_clients_that_come_back_share_a_batch_and_are_answered_sooner(clients: int) -> None:
    eager = closed_loop(clients, 5 * MS, 200 * US, lingers=False)
    waits = closed_loop(clients, 5 * MS, 200 * US)
    assert len(waits.waits_ns) > 1.05 * len(eager.waits_ns)
    assert mean(waits.waits_ns) < 0.95 * mean(eager.waits_ns)
    if clients <= CAP:
        # Of more, some are left for the next batch, and that is a larger one too.
        assert max(waits.waits_ns[-500:]) < max(eager.waits_ns[-500:])


def test_all_come_back_into_one_batch() -> None:
    assert set(closed_loop(20, 5 * MS, 200 * US).rows[50:]) == {20}


def test_more_clients_than_a_batch_holds_fill_it() -> None:
    assert set(closed_loop(80, 5 * MS, 200 * US).rows[50:]) == {CAP}


@pytest.mark.parametrize("clients", [1, 5, 32])
def test_nothing_waits_where_runs_cost_next_to_nothing(clients: int) -> None:
    server = closed_loop(clients, COSTLY_NS // 2, 100 * US)
    assert not any(server.lingered_ns)


@pytest.mark.parametrize("clients", [5, 32])
def test_nothing_waits_where_a_run_costs_only_by_its_rows(clients: int) -> None:
    assert not any(closed_loop(clients, 0, 2 * MS).lingered_ns)


def test_a_lone_client_never_waits() -> None:
    assert not any(closed_loop(1, 20 * MS, 0).lingered_ns)


@pytest.mark.parametrize("per_s", [20, 100, 400, 1_000, 2_000, 2_600])
def test_requests_that_come_by_chance_are_answered_as_soon_as_without(per_s: int) -> None:
    eager, waits = open_loop(per_s, lingers=False), open_loop(per_s)
    assert mean(waits.waits_ns) < 1.005 * mean(eager.waits_ns)
    assert sum(map(bool, waits.lingered_ns)) < 0.02 * len(waits.rows)


@pytest.mark.parametrize("fixed_ns", [2 * MS, 5 * MS, 50 * MS])
def test_no_batch_waits_longer_than_half_of_its_saving(fixed_ns: int) -> None:
    gone: Iterator[bool] = iter([False] * 2_000)
    chance = random.Random(3)

    def again(now_ns: int) -> int | None:
        # At last they come back no more, while the others wait for them.
        return now_ns + chance.randrange(MS) if not next(gone, True) else None

    server = Server(fixed_ns, 100 * US, again)
    for client in range(30):
        server.comes(client * US)
    server.run(FAR_NS)
    assert any(server.lingered_ns)
    assert max(server.lingered_ns) <= min(fixed_ns // 2, MOST_NS)


def test_those_that_come_no_more_are_not_waited_for_long() -> None:
    lingering = Lingering()
    lingering.learn([Trial(1, 0, 5 * MS), Trial(CAP, 0, 11 * MS)])
    now_ns = 0
    for back in [True] * 20 + [False] * 20:
        now_ns += 20 * MS
        lingering.answered(8, 6 * MS, now_ns)
        lingering.came([request(now_ns + (MS if back else 10 * MS), rows=8)])
        if back:
            assert lingering.until_ns == 0, "as many have come back as usual"
    assert lingering.until_ns == 0


def test_the_fixed_cost_is_where_the_line_begins() -> None:
    costs = RunCosts()
    assert costs.fixed_ns == 0
    for rows in (1, 4, 16, 64):
        costs.ran(rows, 3_000 + 10 * rows, 2)
    assert costs.fixed_ns == pytest.approx(3_000, abs=1)


def test_one_size_alone_gives_no_fixed_cost() -> None:
    costs = RunCosts()
    for _ in range(5):
        costs.ran(8, 10 * MS)
    costs.ran(1, 90 * MS)
    assert costs.fixed_ns == 0, "the first run of a size counts for nothing yet"


def test_a_slow_run_changes_little_and_a_fast_one_counts_at_once() -> None:
    costs = RunCosts()
    costs.ran(1, 5 * MS, 2)
    costs.ran(8, 5 * MS, 2)
    costs.ran(8, 21 * MS)
    assert 4 * MS < costs.fixed_ns <= 5 * MS
    costs.ran(1, 2 * MS)
    assert costs.fixed_ns < 3 * MS


def mean(values: list[int]) -> float:
    return sum(values) / len(values)
