"""Tests of the reader of h2load's output, and of runs that it refuses."""

import pytest
from load import h2load
from load.generators import LoadFailed

OUTPUT = """
finished in 3.00s, 8480.50 req/s, 834.69KB/s
requests: 4 total, 4 started, 4 done, 4 succeeded, %d failed, 0 errored, 0 timeout
status codes: 4 2xx, 0 3xx, 0 4xx, 0 5xx
traffic: 1.63MB (1709437) total, 73.22KB (74976) headers (space savings 96.27%%), 168B (%d) data
                     min         max         mean         sd        +/- sd
time for request:      184us      1.04s      3.77ms       790us    90.61%%
"""


def test_a_run_is_read_in_the_units_of_the_fields() -> None:
    expected = h2load.H2Run(8, 4, 4, 8480.5, mean_ms=3.77, max_ms=1040.0, p50_ms=0.7)
    assert h2load.parse(OUTPUT % (0, 168), 42, 8, 4, 0.7) == expected


def test_a_median_is_that_of_the_log() -> None:
    log = "".join(f"17000000000\t200\t{us}\n" for us in (900, 100, 300))
    assert h2load.median_ms(log) == 0.3


def test_a_log_without_requests_is_refused() -> None:
    with pytest.raises(LoadFailed):
        h2load.median_ms("")


@pytest.mark.parametrize("data_bytes", [4 * 42, 36 * 42])
def test_calls_under_way_at_the_end_may_have_their_message(data_bytes: int) -> None:
    assert h2load.parse(OUTPUT % (0, data_bytes), 42, 8, 4, 0.7).requests == 4


@pytest.mark.parametrize("data_bytes", [3 * 42, 37 * 42, 5 * 42 - 1])
def test_no_more_than_these_have_it_and_each_has_all_of_it(data_bytes: int) -> None:
    with pytest.raises(LoadFailed, match="of 4 answers"):
        h2load.parse(OUTPUT % (0, data_bytes), 42, 8, 4, 0.7)


@pytest.mark.parametrize("text", [OUTPUT % (1, 168), OUTPUT % (0, 126), "", "finished in 1s"])
def test_a_run_with_a_failed_call_is_refused(text: str) -> None:
    """A failed call has an answer without a message, so there are too few bytes."""
    with pytest.raises(LoadFailed):
        h2load.parse(text, 42, 8, 4, 0.7)


def test_a_message_is_framed_as_grpc_has_it() -> None:
    assert h2load.framed(b"ab") == b"\0\0\0\0\2ab"
