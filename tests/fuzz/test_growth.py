"""Decoders take time in proportion to their input, and little of the event loop's."""

import pytest
from fuzz import growth
from fuzz.decoders import TARGETS
from fuzz.growth import check_bound, check_growth
from fuzz.limits import Overrun
from tiers import exhaustive

SEEDS = 8
MANY_SEEDS = 300


@pytest.mark.parametrize("target", TARGETS)
def test_time_grows_no_more_than_the_input(target: str) -> None:
    for seed in range(SEEDS):
        check_growth(target, seed)


@exhaustive
@pytest.mark.parametrize("target", TARGETS)
def test_time_grows_no_more_than_any_of_many_inputs(target: str) -> None:
    for seed in range(SEEDS, MANY_SEEDS):
        check_growth(target, seed)


@exhaustive
@pytest.mark.parametrize("target", TARGETS)
def test_what_is_read_on_the_event_loop_is_read_soon(target: str) -> None:
    for seed in range(MANY_SEEDS):
        try:
            check_bound(target, seed)
        except Overrun as failure:
            raise Overrun(f"seed {seed}: {failure}") from failure


def test_a_quadratic_decoder_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(data: bytes) -> None:
        for start in range(0, len(data), 8):
            max(data[start:])

    monkeypatch.setattr(growth, "reader_of", lambda *_: read)
    monkeypatch.setattr(growth, "SMALL_BYTES", 1 << 12)
    with pytest.raises(Overrun):
        check_growth("v1 open", 0)


def test_a_slow_decoder_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(data: bytes) -> None:
        for byte in data:
            hex(byte)

    monkeypatch.setattr(growth, "reader_of", lambda *_: read)
    monkeypatch.setattr(growth, "MOST_S", 1e-4)
    with pytest.raises(Overrun):
        check_bound("v1 open", 0)
