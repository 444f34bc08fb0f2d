"""Tallies of ended requests, by model and lane: the next owner of a lane goes on with them."""

from dataclasses import replace

import numpy as np
import pytest
from frontend_harness import typed
from hypothesis import given
from hypothesis import strategies as st
from segment_fixture import local_segment

from ringbatch.shm.account import PriorityClass, account_word
from ringbatch.shm.model_spec import REFERENCE_BITS, ModelSpec
from ringbatch.shm.segment import Segment
from ringbatch.shm.tallies import CODE_LABELS, REFUSALS, Ends, Protocol, Tallies, Tally, ends_of
from ringbatch.shm.time_buckets import BOUNDS_S, BUCKETS, FINEST_NS, median_ns, time_bucket

MODELS = typed(), typed(index=1, account=1, workers=(1,))


@pytest.fixture
def segment() -> Segment:
    return local_segment(*MODELS, lanes=3)


def tally_of(segment: Segment, spec: ModelSpec, lane: int = 0) -> Tally:
    return Tallies(segment, lane).of(spec.account, spec.name, spec.version)[Protocol.V1]


def ends(segment: Segment, spec: ModelSpec = MODELS[0]) -> Ends:
    return ends_of(segment, [spec.account])[spec.account]


@given(st.lists(st.integers(0, FINEST_NS << BUCKETS - 1), min_size=1))
def test_the_median_lies_where_half_of_the_times_are_below_it(times_ns: list[int]) -> None:
    counts = [0] * BUCKETS
    for took_ns in times_ns:
        counts[time_bucket(took_ns)] += 1
    found = median_ns(counts)
    # In the bucket of one of the two in the middle, its upper edge included.
    middle = sorted(times_ns)[(len(times_ns) - 1) // 2 : len(times_ns) // 2 + 1]
    buckets = {time_bucket(took_ns) for took_ns in middle}
    assert min(buckets) <= time_bucket(found) <= max(buckets) + 1
    assert median_ns([0] * BUCKETS) == 0


def test_the_median_of_a_tally_has_those_that_were_not_settled(segment: Segment) -> None:
    tally = tally_of(segment, MODELS[0])
    assert tally.median_ns() == 0
    for took_ns in (1_000_000, 2_000_000, 3_000_000):
        tally.pending_ns.append(took_ns)
    assert 1_600_000 <= tally.median_ns() <= 3_200_000
    assert ends(segment).answered == 3
    assert not tally.pending_ns


def test_buckets_are_as_their_bounds_say() -> None:
    assert BOUNDS_S[0] == 50e-6
    assert 50 < BOUNDS_S[-1] < 60
    for bucket, bound_s in enumerate(BOUNDS_S):
        bound_ns = round(bound_s * 1e9)
        assert (time_bucket(bound_ns - 1), time_bucket(bound_ns)) == (bucket, bucket + 1)


@given(st.lists(st.integers(0, 1 << 40), min_size=1, max_size=9))
def test_many_at_once_are_counted_as_one_by_one(times_ns: list[int]) -> None:
    alone, together = local_segment(*MODELS), local_segment(*MODELS)
    singly = tally_of(alone, MODELS[0])
    for took_ns in times_ns:
        singly.answered(took_ns, 1)
    tally_of(together, MODELS[0]).answered_many(np.array(times_ns, np.int64))
    assert vars(ends(alone)) == vars(ends(together))


def test_answers_are_counted_by_their_time_and_other_ends_by_their_status(
    segment: Segment,
) -> None:
    tally = tally_of(segment, MODELS[0])
    tally.answered(10, 3)
    tally.answered(FINEST_NS, 4)
    for code in (404, 404, 418, 511, 204):
        tally.ended(code, 7)
    found = ends(segment)
    assert found.times == [1, 1] + [0] * (BUCKETS - 2)
    assert dict(zip(("200", *CODE_LABELS), found.codes[Protocol.V1], strict=True)) == dict.fromkeys(
        CODE_LABELS, 0
    ) | {"200": 2, "404": 2, "4xx": 1, "5xx": 1, "2xx": 1}
    assert (found.answered, found.answered_ns, found.instances) == (2, 10 + FINEST_NS, 7)
    # What is no error has not failed.
    assert (found.ended, found.ended_ns) == (4, 35)
    assert sum(map(sum, found.codes)) == 7


def test_counts_of_all_lanes_are_added_up_and_those_of_other_models_are_not(
    segment: Segment,
) -> None:
    for lane in range(3):
        tally_of(segment, MODELS[0], lane).answered(1, 1)
    tally_of(segment, MODELS[1], 1).ended(500, 1)
    assert (ends(segment).answered, ends(segment).ended) == (3, 0)
    assert (ends(segment, MODELS[1]).answered, ends(segment, MODELS[1]).ended) == (0, 1)


def test_the_next_holder_of_a_lane_counts_on(segment: Segment) -> None:
    tally_of(segment, MODELS[0]).answered(1, 1)
    tally_of(segment, MODELS[0]).answered(1, 1)
    assert ends(segment).answered == 2


def test_a_reused_place_inherits_nothing_and_a_late_end_is_dropped(
    segment: Segment,
) -> None:
    tallies = Tallies(segment, 0)
    before, after = MODELS[0], replace(MODELS[0], name="n", account=1 << 16)
    late = tallies.of(before.account, before.name, before.version)[Protocol.V1]
    late.answered(1, 1)
    assert ends(segment, after).answered == 0
    other = tallies.of(after.account, after.name, after.version)[Protocol.V1]
    late.answered(1, 1)
    late.ended(500, 1)
    other.answered(1, 1)
    assert (ends(segment, after).answered, ends(segment, after).ended) == (1, 0)


def test_one_account_has_one_object_that_counts(segment: Segment) -> None:
    # Two would each have a copy of their own, and undo what the other counted.
    tallies = Tallies(segment, 0)
    assert tallies.of(0, "m", "1") is tallies.of(0, "m", "1")


def test_requests_for_no_model_have_a_block_of_their_own(segment: Segment) -> None:
    Tallies(segment, 0).nobody[Protocol.HTTP].ended(401, 0)
    nobody = segment.layout.models
    assert ends_of(segment, [nobody])[nobody].ended == 1
    assert ends(segment, MODELS[1]).ended == 0


def test_refusals_are_counted_by_class_and_other_ends_are_not(segment: Segment) -> None:
    bulk = account_word(7, PriorityClass.BULK)
    tally = tally_of(segment, MODELS[0])
    tally.ended(503, 7, 2, bulk)
    tally.ended(429, 7)
    tally.ended(504, 7, 1, bulk)
    Tallies(segment, 1).of(0, "m", "1")[Protocol.GRPC].ended(503, 7, 1, bulk)
    assert REFUSALS == (429, 503)
    assert ends(segment).refused == {"normal": [1, 0], "interactive": [0, 0], "bulk": [0, 3]}
    assert ends(segment, MODELS[1]).refused["bulk"] == [0, 0]


def test_times_of_parts_are_counted_for_all_protocols_together(segment: Segment) -> None:
    for lane in range(2):
        for tally in Tallies(segment, lane).of(MODELS[0].account, "m", "1"):
            tally.parts.first.add(FINEST_NS)
            tally.parts.gaps.add(0)
            tally.parts.gaps.add(3 * FINEST_NS)
    found = ends(segment)
    count = 2 * len(Protocol)
    assert found.first_parts == [0, count] + [0] * (BUCKETS - 2)
    assert found.first_parts_ns == count * FINEST_NS
    assert found.gaps == [count, 0, count] + [0] * (BUCKETS - 3)
    assert found.gaps_ns == count * 3 * FINEST_NS
    assert found.answered == 0
    assert ends(segment, MODELS[1]).gaps_ns == 0


def test_times_of_parts_go_on_with_the_next_holder_and_end_with_the_account(
    segment: Segment,
) -> None:
    parts = tally_of(segment, MODELS[0]).parts
    parts.first.add(5)
    tallies = Tallies(segment, 0)
    mine = tallies.of(MODELS[0].account, "m", "1")[0].parts
    mine.first.add(7)
    assert ends(segment).first_parts_ns == 12
    later = replace(MODELS[0], account=MODELS[0].account + (1 << REFERENCE_BITS))
    tallies.of(later.account, "m", "2")
    mine.first.add(9)
    mine.gaps.add(9)
    assert ends(segment, later).first_parts_ns == ends(segment, later).gaps_ns == 0
