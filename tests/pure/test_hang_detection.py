"""Detection of hung processes."""

import pytest

from ringbatch.engine.supervisor.hang_detection import LOOKS, HangDetection, Look, look
from ringbatch.shm.descriptors import BEAT_S

S = 1_000_000_000
LIMIT_NS = 2 * S
BEAT_NS = int(BEAT_S * S)
PID, OTHER = 7, 8


class Story:
    """A watch over processes, and a clock."""

    def __init__(self, limit_ns: int = LIMIT_NS) -> None:
        self.watch = HangDetection(limit_ns)
        self.now_ns = 100 * S
        self.pids = {PID}
        self.hung: list[int] = []
        self.next_ns = self.now_ns

    def until(self, end_ns: int, beats_ns: int = 0, stops_ns: int = 1 << 62) -> None:
        """Go on to an instant; the first process shows that it moves every so often, or never for
        0, until it stops."""
        beat_ns = self.now_ns + beats_ns
        while True:
            beats = beats_ns and beat_ns <= stops_ns
            self.now_ns = min(end_ns, self.next_ns, beat_ns if beats else end_ns)
            if beats and self.now_ns == beat_ns:
                self.watch.record_progress(PID, beat_ns)
                beat_ns += beats_ns
            self.step()
            if self.now_ns >= end_ns:
                return

    def step(self) -> None:
        hung, next_ns = self.watch.step(self.now_ns, self.pids)
        self.hung += hung
        self.next_ns = 1 << 62 if next_ns is None else next_ns
        assert self.next_ns > self.now_ns, "or it would be asked for ever"


def test_with_nobody_to_watch_there_is_nothing_to_look_at() -> None:
    assert HangDetection(LIMIT_NS).step(1, set()) == ([], None)


@pytest.mark.parametrize("limit_s", [1, 2, 60])
def test_a_moving_process_never_hangs_and_is_looked_at_no_more_than_twice_a_second(
    limit_s: int,
) -> None:
    story, looks = Story(limit_s * S), 0
    while story.now_ns < 1100 * S:
        story.watch.record_progress(PID, story.now_ns // BEAT_NS * BEAT_NS)
        story.step()
        looks += 1
        story.now_ns = story.next_ns
    assert story.hung == []
    assert looks <= 2 * 1000 * max(1, 2 / limit_s)


@pytest.mark.parametrize("limit_s", [1, 2, 60])
@pytest.mark.parametrize("phase", range(5))
def test_a_stopped_process_is_found_in_time_to_be_replaced_within_the_limit(
    limit_s: int, phase: int
) -> None:
    story = Story(limit_s * S)
    stops_ns = story.now_ns + 300 * S + phase * BEAT_NS // 5
    story.until(stops_ns, BEAT_NS, stops_ns)
    assert story.hung == []
    story.until(stops_ns + int(0.81 * limit_s * S))
    assert story.hung == [PID]


def test_a_hang_is_reported_once() -> None:
    story = Story()
    story.until(story.now_ns + 1000 * S)
    assert story.hung == [PID]


def test_the_next_process_begins_anew() -> None:
    story = Story()
    story.until(story.now_ns + 1000 * S)
    story.pids = {OTHER}
    story.step()
    story.until(story.now_ns + LIMIT_NS // 2)
    assert story.hung == [PID]
    story.until(story.now_ns + LIMIT_NS)
    assert story.hung == [PID, OTHER]


@pytest.mark.parametrize("stopped_s", [1, 10, 100_000])
def test_where_the_watching_process_itself_was_stopped_nobody_hangs_for_it(stopped_s: int) -> None:
    """Alone, so that others went on, or with the whole machine."""
    for phase in range(20):
        story = Story()
        story.until(story.now_ns + 10 * S, BEAT_NS)
        story.until(story.now_ns + phase * BEAT_NS // 20)
        story.now_ns += stopped_s * S
        story.step()
        # From now on all have time to move, and do, some as late as they may.
        story.until(story.now_ns + 10 * S, BEAT_NS)
        assert story.hung == [], phase


def test_progress_of_others_counts_for_nothing() -> None:
    story = Story()
    story.step()
    story.watch.record_progress(OTHER, 1 << 60)
    story.until(story.now_ns + LIMIT_NS)
    assert story.hung == [PID]


@pytest.mark.parametrize(
    ("now_ns", "silent", "found"),
    [
        (S - 1, 3, Look(0, S)),
        (S, 0, Look(1, S + LIMIT_NS // 10)),
        (9 * S, 0, Look(1, 9 * S + LIMIT_NS // 10)),
        (9 * S, LOOKS - 1, Look(LOOKS, 9 * S + LIMIT_NS // 10)),
    ],
)
def test_looks_are_counted_however_long_the_silence(now_ns: int, silent: int, found: Look) -> None:
    assert look(now_ns, 0, silent, LIMIT_NS) == found
    assert found.hangs == (found.silent == LOOKS)
