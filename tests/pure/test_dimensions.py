"""Size of a segment, also in a small /dev/shm."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.engine.config.dimensions import (
    fitted,
    frontend_lanes,
    lane_bytes,
    layout_of,
    request_limit_bytes,
)
from ringbatch.engine.config.settings import Config, ModelConfig, ServerConfig
from ringbatch.shm.layout import PAGE

MIB = 1 << 20


def config(**server: int) -> Config:
    model = ModelConfig(name="m", path=Path("m.py"))
    return Config(server=ServerConfig(**server), models=(model,))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("request_bytes", "own_bytes", "expected"),
    [
        (None, None, 32 * MIB),
        (16 * MIB, None, 32 * MIB),
        (1, None, 4 * MIB),
        (2 * MIB + 1, None, 4 * MIB + PAGE),
        (1, 2, PAGE),
        (PAGE, 3 * PAGE, 3 * PAGE),
    ],
)
def test_a_lane_is_derived_in_whole_pages(
    request_bytes: int | None, own_bytes: int | None, expected: int
) -> None:
    assert lane_bytes(ServerConfig(max_request_bytes=request_bytes, lane_bytes=own_bytes)) == (
        expected
    )


def test_every_frontend_has_lanes_and_one_for_grpc_needs_no_second() -> None:
    assert frontend_lanes(ServerConfig(frontends=3, grpc_frontends=2)) == 6
    assert frontend_lanes(ServerConfig(frontends=3, grpc_port=0, grpc_frontends=2)) == 8


@given(
    frontends=st.integers(1, 8),
    client_lanes=st.integers(0, 8),
    free_bytes=st.integers(64 * MIB, 4096 * MIB),
)
def test_without_a_word_about_memory_it_fits_and_takes_requests_of_up_to_half_a_lane(
    frontends: int, client_lanes: int, free_bytes: int
) -> None:
    found = fitted(config(frontends=frontends, client_lanes=client_lanes), free_bytes).server
    assert layout_of(found, ()).size <= free_bytes
    assert 2 * request_limit_bytes(found) <= lane_bytes(found)
    assert layout_of(found, ()).size >= free_bytes // 2 or request_limit_bytes(found) == 16 * MIB


def test_where_there_is_room_nothing_is_changed() -> None:
    asked = config()
    assert fitted(asked, None) is asked
    assert fitted(asked, 256 * MIB) is asked
    assert fitted(asked, 255 * MIB) is not asked


def test_configured_sizes_stay_and_lanes_have_room_for_them() -> None:
    own = config(max_request_bytes=MIB, lane_bytes=2 * MIB)
    assert fitted(own, MIB) is own
    limited = fitted(config(max_request_bytes=MIB), 15 * MIB).server
    assert (limited.max_request_bytes, limited.lane_bytes) == (MIB, 2 * MIB)
    unlimited = fitted(config(), MIB).server
    assert (unlimited.max_request_bytes, unlimited.lane_bytes) == (MIB // 16, MIB // 8)


def test_sizes_that_were_cut_down_once_are_not_cut_down_again() -> None:
    once = fitted(config(), 64 * MIB)
    assert once != config()
    assert fitted(once, MIB) is once
