"""Order of texts of unequal length on one worker, in simulated time."""

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ringbatch.engine.collector.queues import Queues
from ringbatch.engine.config.text_rules import BATCH_TOKENS, BUCKETS
from ringbatch.engine.ipc.shaping import Budget, elements
from ringbatch.shm.account import NOBODY
from ringbatch.shm.engine_slots import Request

SHORT, LONG = 10, 256
THINKING_NS = 2_500_000
"""Time between an answer and its client's next request."""
FIXED_NS, TOKEN_NS = 2_300_000, 143_000
"""Time of a batch, and of each token of it; an encoder of MiniLM's size on one core."""
SECONDS = 60


@dataclass(frozen=True)
class Answer:
    """A request that was answered, with what it waited until then."""

    tokens: int
    took_ns: int


def request(client: int, tokens: int, now_ns: int) -> Request:
    return Request(
        ref=client,
        model=0,
        rows=1,
        accepted_ns=now_ns,
        deadline_ns=1 << 62,
        request_offset=0,
        request_bytes=tokens,
        key_bytes=0,
        result_offset=0,
        result_capacity=0,
    )


def bucket(tokens: int, edges: Sequence[int]) -> int:
    return next(edge for edge in edges if edge >= tokens)


def play(
    clients: Sequence[Callable[[], int]], *, by_cost: bool = True, edges: Sequence[int] = BUCKETS
) -> list[Answer]:
    """Clients in closed loops, each with a source of lengths; what was answered in a minute."""
    budget = Budget(BATCH_TOKENS, (), lambda dimensions: elements([(-1,)], dimensions))

    def fitting(requests: Iterable[Request]) -> int:
        return budget.fitting((r.rows, (bucket(r.request_bytes, edges),)) for r in requests)

    def share(one: Request) -> float:
        return budget.share(one.rows, (bucket(one.request_bytes, edges),))

    queues = Queues(fitting, share if by_cost else None)
    coming = [(number * 100_000, number) for number in range(len(clients))]
    now_ns, answers = 0, list[Answer]()
    while now_ns < SECONDS * 1_000_000_000:
        if not queues:
            now_ns = max(now_ns, coming[0][0])
        while coming and coming[0][0] <= now_ns:
            at_ns, client = heapq.heappop(coming)
            tokens = clients[client]()
            key = b"%d" % bucket(tokens, edges)
            queues.extend(key, [request(client, tokens, at_ns)], 1, 1 << 62, (NOBODY,))
        batch = queues.take(queues.first(now_ns), 32)
        longest = max(one.request_bytes for one in batch)
        now_ns += FIXED_NS + TOKEN_NS * len(batch) * longest
        for one in batch:
            answers.append(Answer(one.request_bytes, now_ns - one.accepted_ns))
            heapq.heappush(coming, (now_ns + THINKING_NS, one.ref))
    return answers


def always(tokens: int) -> Callable[[], int]:
    return lambda: tokens


def mixed(seed: int) -> Callable[[], int]:
    """Half of them under 22 tokens, one in thirty at the limit."""
    source = np.random.default_rng(seed)
    return lambda: min(int(np.exp(source.normal(3.0, 1.0))) + 2, LONG)


def quantile_ms(answers: Iterable[Answer], share: float, tokens: int = 0) -> float:
    """Return a quantile of all latencies, or of those of requests with so many tokens."""
    took = [one.took_ns for one in answers if tokens in (0, one.tokens)]
    return float(np.quantile(took, share)) / 1e6


def test_short_texts_wait_for_one_long_text_though_two_clients_send_them() -> None:
    shorts, longs = [always(SHORT)] * 16, [always(LONG)] * 2
    alone = quantile_ms(play(shorts), 0.99)
    beside = play(shorts + longs)
    assert quantile_ms(beside, 0.99, SHORT) < 3 * alone
    assert quantile_ms(beside, 1.0, LONG) < 8 * alone
    oldest_first = play(shorts + longs, by_cost=False)
    assert quantile_ms(oldest_first, 0.99, SHORT) > 4 * alone


def test_a_mix_of_lengths_is_answered_as_fast_as_with_the_oldest_first() -> None:
    by_cost, oldest_first = (
        play([mixed(seed) for seed in range(32)], by_cost=by_cost) for by_cost in (True, False)
    )
    assert len(by_cost) > 0.98 * len(oldest_first)
    assert quantile_ms(by_cost, 0.5) < quantile_ms(oldest_first, 0.5)
    assert quantile_ms(by_cost, 0.99) < 1.6 * quantile_ms(oldest_first, 0.99)


def test_more_buckets_leave_less_padding() -> None:
    powers = [edge for edge in BUCKETS if edge >= 16 and edge & (edge - 1) == 0]
    finer, coarser = (
        play([mixed(seed) for seed in range(32)], edges=edges) for edges in (BUCKETS, powers)
    )
    assert len(finer) > 1.05 * len(coarser)
