"""Choice of the model server for a batch: tables, rules for all cases, and played runs."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.engine.runtimes.upstreams.choice import (
    HOLD_S,
    LONGEST_HOLD_S,
    chosen,
    held_s,
    is_late,
    learned_ns,
    probe_due,
)
from ringbatch.shm.upstreams import DOWN_AFTER, FORGOTTEN_NS, Known, ServerState, concluded

MS = 1_000_000
S = 1_000_000_000
NOW = 1_000 * S
DOWN = ServerState(failed_in_a_row=DOWN_AFTER, failed_ns=NOW)
HELD = ServerState(held_until_ns=NOW + 1)


def pick(states: dict[int, ServerState], *tried: int) -> int | None:
    return chosen(states, tried, NOW, lambda: 0.0)


def busy(outstanding: int, took_ms: int = 0, waited_ms: int = 0) -> ServerState:
    return ServerState(
        outstanding=outstanding, oldest_ns=NOW - waited_ms * MS, took_ns=took_ms * MS
    )


@pytest.mark.parametrize(
    ("states", "tried", "expected"),
    [
        ({1: busy(2), 2: busy(1), 3: busy(3)}, (), 2),
        ({1: busy(2), 2: busy(1), 3: busy(3)}, (2,), 1),
        ({1: busy(0, 300), 2: busy(1, 100)}, (), 2),
        ({1: busy(0, 300), 2: busy(3, 100)}, (), 1),
        ({1: busy(0), 2: busy(1, 100)}, (), 1),
        ({1: busy(1, 100, waited_ms=900), 2: busy(3, 100)}, (), 2),
        ({1: busy(0), 2: DOWN}, (), 1),
        ({1: busy(9, 900), 2: DOWN}, (), 1),
        ({1: busy(0), 2: HELD}, (), 1),
        ({1: busy(0), 2: HELD}, (1,), None),
        ({1: busy(0), 2: DOWN}, (1,), None),
        ({1: HELD, 2: HELD}, (), None),
        ({1: HELD, 2: DOWN}, (), None),
        ({1: DOWN, 2: DOWN}, (1,), 2),
        ({1: DOWN, 2: DOWN}, (1, 2), None),
        ({1: HELD._replace(held_until_ns=NOW)}, (), 1),
    ],
)
def test_the_server_that_answers_soonest_gets_a_batch(
    states: dict[int, ServerState], tried: tuple[int, ...], expected: int | None
) -> None:
    assert pick(states, *tried) == expected


def test_between_equals_chance_decides() -> None:
    random = Random(1)
    states = {tag: busy(1, 100) for tag in range(4)}
    found = [chosen(states, (), NOW, random.random) for _ in range(400)]
    assert all(60 < found.count(tag) < 140 for tag in states)


some_states = st.builds(
    ServerState,
    outstanding=st.integers(0, 5),
    oldest_ns=st.integers(NOW - 3 * S, NOW),
    failed_in_a_row=st.integers(0, 2 * DOWN_AFTER),
    failed_ns=st.integers(NOW - 3 * S, NOW),
    held_until_ns=st.integers(NOW - S, NOW + S),
    took_ns=st.integers(0, S),
    probed_ns=st.integers(0, NOW),
)


@given(st.dictionaries(st.integers(1, 9), some_states), st.sets(st.integers(1, 9)), st.randoms())
def test_nothing_is_sent_twice_nor_where_it_is_not_wanted(
    states: dict[int, ServerState], tried: set[int], random: Random
) -> None:
    tag = chosen(states, tried, NOW, random.random)
    up = [state for state in states.values() if not state.down]
    if tag is None:
        left = [states[one] for one in states.keys() - tried]
        assert not up or not left or all(s.down or s.held_until_ns > NOW for s in left)
        assert up or not left
    else:
        assert tag not in tried
        assert not up or (not states[tag].down and states[tag].held_until_ns <= NOW)


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ([Known(failed_in_a_row=1, failed_ns=5), Known(failed_in_a_row=2, failed_ns=6)], 3),
        ([Known(failed_in_a_row=3, failed_ns=5), Known(answered_ns=6)], 0),
        ([Known(failed_in_a_row=3, failed_ns=7), Known(answered_ns=6)], 3),
        ([], 0),
    ],
)
def test_failures_of_all_workers_count_until_one_hears_of_the_server(
    known: list[Known], expected: int
) -> None:
    assert concluded(known, [], NOW).failed_in_a_row == expected


def test_old_findings_are_forgotten() -> None:
    known = [
        Known(took_ns=S, learned_ns=NOW - FORGOTTEN_NS),
        Known(took_ns=10, learned_ns=NOW - 200),
        Known(took_ns=30, learned_ns=NOW - 1),
        Known(took_ns=50, learned_ns=NOW),
    ]
    assert concluded(known, [], NOW).took_ns == 40
    assert concluded(known[:2], [], NOW).took_ns == 0


def test_batches_under_way_are_those_that_workers_have_there() -> None:
    state = concluded([], [7, 5, 9], NOW)
    assert (state.outstanding, state.oldest_ns) == (3, 5)


def test_a_pace_follows_the_times_of_answers() -> None:
    assert learned_ns(0, 100) == 100
    pace = 100
    for _ in range(20):
        pace = learned_ns(pace, 300)
    assert 290 < pace <= 300


@pytest.mark.parametrize(
    ("state", "due"),
    [
        (ServerState(), True),
        (ServerState(probed_ns=NOW - S, answered_ns=NOW - S), False),
        (ServerState(probed_ns=NOW - 6 * S, answered_ns=NOW - S), False),
        (ServerState(probed_ns=NOW - 6 * S, answered_ns=NOW - 6 * S), True),
        (DOWN, False),
        (DOWN._replace(failed_ns=NOW - S // 2), True),
        (DOWN._replace(failed_ns=NOW - S, failed_in_a_row=DOWN_AFTER + 3), False),
        (DOWN._replace(failed_ns=NOW - 2 * S, failed_in_a_row=99), True),
        (DOWN._replace(failed_ns=NOW - 9 * S, probed_ns=NOW), False),
        (busy(1, 100, waited_ms=900), False),
        (busy(1, 100, waited_ms=1001), True),
        (busy(1, 500, waited_ms=1900), False),
        (busy(1, 500, waited_ms=2001), True),
        (busy(1, 500, waited_ms=2001)._replace(probed_ns=NOW - MS), False),
    ],
)
def test_servers_due_for_a_probe(state: ServerState, due: bool) -> None:
    assert probe_due(state, NOW) is due


def test_a_server_without_a_batch_is_never_late() -> None:
    assert not is_late(ServerState(oldest_ns=0), NOW)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("3", 3.0),
        ("0", 0.0),
        ("", HOLD_S),
        ("soon", HOLD_S),
        ("-1", HOLD_S),
        ("9" * 40, LONGEST_HOLD_S),
        ("Mon, 23 Nov 2026 12:00:05 GMT", 5.0),
        ("Mon, 23 Nov 2026 11:00:00 GMT", 0.0),
        ("Mon, 23 Nov 2036 11:00:00 GMT", LONGEST_HOLD_S),
        ("Mon, 23 Nov 2026 12:00:05 -0000", HOLD_S),
        ("Mon, 23 Nov 2026 12:00:05 -99999999999999999", HOLD_S),
        ("Mon, 23 Nov 2026 99999999999999999999:00:05 GMT", HOLD_S),
    ],
)
def test_a_server_is_left_alone_for_as_long_as_it_says(header: str, expected: float) -> None:
    assert held_s(header, datetime(2026, 11, 23, 12, tzinfo=UTC)) == expected


@dataclass
class Played:
    """A server of the simulation: batches one after the other, of a pace that may change.

    Attributes:
        pace_ms: at a time, what a batch takes; None where it is dead.
    """

    pace_ms: Callable[[int], int | None]
    free_ms: int = 0
    answered: int = 0
    refused: int = 0
    known: Known = field(default_factory=Known)
    since: list[int] = field(default_factory=list)


def played(servers: dict[int, Played], workers: int, end_ms: int, seed: int) -> int:
    """Workers that always have a batch, in steps of 10 ms; how many failed."""
    random = Random(seed)
    under_way: dict[int, tuple[int, int, int]] = {}
    failed = 0
    for ms in range(10, end_ms, 10):
        now_ns = ms * MS
        for worker in range(workers):
            tag, sent_ms, end = under_way.get(worker, (0, 0, 0))
            if tag and servers[tag].pace_ms(ms) is None:
                # Its connection ends, and may be repeated elsewhere.
                end, server = 0, servers[tag]
                server.since.remove(sent_ms * MS)
                del under_way[worker]
                server.known = server.known._replace(
                    failed_in_a_row=server.known.failed_in_a_row + 1, failed_ns=now_ns
                )
                tag = 0
            if tag and end <= ms:
                server = servers[tag]
                server.since.remove(sent_ms * MS)
                server.answered += 1
                took_ns = learned_ns(server.known.took_ns, (ms - sent_ms) * MS)
                server.known = server.known._replace(
                    failed_in_a_row=0, answered_ns=now_ns, took_ns=took_ns, learned_ns=now_ns
                )
                del under_way[worker]
                tag = 0
            if not tag:
                failed += not sent(servers, under_way, worker, ms, random)
        for server in servers.values():
            if probe_due(concluded([server.known], server.since, now_ns), now_ns):
                there = server.pace_ms(ms) is not None
                known = server.known._replace(probed_ns=now_ns)
                failures = known.failed_in_a_row + DOWN_AFTER
                server.known = (
                    known._replace(failed_in_a_row=0, answered_ns=now_ns)
                    if there
                    else known._replace(failed_in_a_row=failures, failed_ns=now_ns)
                )
    return failed


def sent(
    servers: dict[int, Played],
    under_way: dict[int, tuple[int, int, int]],
    worker: int,
    ms: int,
    random: Random,
) -> bool:
    """Send a worker's batch; False if no server takes it."""
    tried: set[int] = set()
    while True:
        states = {t: concluded([s.known], s.since, ms * MS) for t, s in servers.items()}
        tag = chosen(states, tried, ms * MS, random.random)
        if tag is None:
            return False
        server, pace = servers[tag], servers[tag].pace_ms(ms)
        if pace is not None:
            server.free_ms = max(server.free_ms, ms) + pace
            server.since.append(ms * MS)
            under_way[worker] = tag, ms, server.free_ms
            return True
        server.refused += 1
        tried.add(tag)
        failures = server.known.failed_in_a_row + DOWN_AFTER
        server.known = server.known._replace(failed_in_a_row=failures, failed_ns=ms * MS)


def test_equal_servers_get_equally_many_batches() -> None:
    servers = {tag: Played(lambda _ms: 100) for tag in range(1, 5)}
    assert played(servers, 16, 10_000, 1) == 0
    assert all(97 <= server.answered <= 100 for server in servers.values())


def test_a_slow_server_gets_fewer_and_holds_nobody_up() -> None:
    servers = {1: Played(lambda _ms: 100), 2: Played(lambda ms: 300 if ms > 2_000 else 100)}
    assert played(servers, 8, 12_000, 2) == 0
    assert servers[1].answered >= 116, "as many as it can, all the time"
    assert 45 <= servers[2].answered <= 56
    assert len(servers[1].since) > len(servers[2].since)


def test_a_dead_server_is_left_alone_and_comes_back() -> None:
    servers = {
        1: Played(lambda _ms: 100),
        2: Played(lambda ms: None if 2_000 <= ms < 6_000 else 100),
    }
    assert played(servers, 8, 12_000, 3) == 0
    assert servers[2].refused <= 8, "each worker meets it once at most"
    assert servers[2].answered >= 60, "it serves again two seconds after it is back"


def test_a_server_that_comes_and_goes_fails_nothing() -> None:
    servers = {
        1: Played(lambda _ms: 100),
        2: Played(lambda ms: None if ms // 700 % 2 else 100),
    }
    assert played(servers, 8, 12_000, 4) == 0
    assert servers[1].answered >= 115


def test_all_die_and_come_back() -> None:
    servers = {tag: Played(lambda ms: None if 2_000 <= ms < 4_000 else 100) for tag in range(1, 4)}
    failed = played(servers, 12, 8_000, 5)
    assert failed, "while none is there"
    assert all(server.answered >= 20 + 35 for server in servers.values())
