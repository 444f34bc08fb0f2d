"""Orders and reports survive the way through the socket, and nothing else is taken for one."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.shm.host.control_socket import (
    ACTIONS,
    MAX_LINE_BYTES,
    Order,
    Report,
    order_line,
    read_order,
    read_report,
    report_line,
)

orders = (
    st.builds(Order, st.sampled_from(ACTIONS), st.text(), st.none())
    | st.builds(Order, st.just("load"), st.text(), st.integers())
    | st.just(Order("reload", None))
)
reports = st.builds(
    Report, st.sampled_from(["done", "failed", "unknown"]), st.lists(st.text()).map(tuple)
)


@given(orders)
def test_an_order_is_one_line_and_read_again(order: Order) -> None:
    line = order_line(order)
    assert (line.count(b"\n"), line[-1:]) == (1, b"\n")
    assert read_order(line) == order


@given(reports)
def test_a_report_is_one_line_and_read_again(report: Report) -> None:
    line = report_line(report)
    assert (line.count(b"\n"), line[-1:]) == (1, b"\n")
    assert read_report(line) == report


@pytest.mark.parametrize("lines", [("x" * 10**6,), ("y" * 100,) * 10**4])
def test_a_long_report_is_cut(lines: tuple[str, ...]) -> None:
    line = report_line(Report("failed", lines))
    assert len(line) <= MAX_LINE_BYTES
    cut = read_report(line)
    assert cut is not None
    assert cut.end == "failed"
    assert cut.lines


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\xff",
        b"[" * 10**5,
        b"3",
        b"{}",
        b'{"do":"stop","model":"m"}',
        b'{"do":"load"}',
        b'{"do":"unload","model":null}',
        b'{"do":"reload","model":3}',
        b'{"do":["load"],"model":"m"}',
        b'{"do":"load","model":"m","max_batch_size":"8"}',
        b'{"do":"load","model":"m","max_batch_size":true}',
        b'{"do":"unload","model":"m","max_batch_size":8}',
    ],
)
def test_an_invalid_order_is_none(line: bytes) -> None:
    assert read_order(line) is None
    assert read_report(line) is None


@given(st.binary())
def test_any_bytes_are_read_or_refused(line: bytes) -> None:
    read_order(line)
    read_report(line)


def test_a_report_without_words_is_one() -> None:
    assert read_report(json.dumps({"end": "done"}).encode()) == Report("done", ())
