"""Tests frontend/client/arguments.py: what a program gives a client in place of the right thing."""

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringbatch.frontend.client.arguments import (
    account_of,
    expect_engine,
    expect_model_name,
    spin_ns,
)
from ringbatch.frontend.codec.request_timeout import limit_ns
from ringbatch.shm.account import PriorityClass, account_word

SECONDS = "not a number of seconds above 0"
SPIN = "not a number of microseconds from 0 up"
CLASSES = "not interactive, normal or bulk"
ENGINE = "not an engine's name, a str, or the process id of its supervisor, an int"
SEGMENT = "not the name of shared memory, a str"
MODEL = "not the name of a model, a str"


def timeout_ns(timeout_s: Any) -> int:
    return limit_ns("timeout_s", timeout_s)


def segment(name: Any) -> None:
    expect_engine(None, name)


def engine(name: Any) -> None:
    expect_engine(name, None)


@pytest.mark.parametrize(
    ("check", "given", "words"),
    [
        (timeout_ns, "x", f"timeout_s is a str, {SECONDS}"),
        (timeout_ns, "5", f"timeout_s is a str, {SECONDS}"),
        (timeout_ns, True, f"timeout_s is a bool, {SECONDS}"),
        (timeout_ns, [1], f"timeout_s is a list, {SECONDS}"),
        (timeout_ns, np.ones(2), f"timeout_s is an ndarray, {SECONDS}"),
        (timeout_ns, 1j, f"timeout_s is a complex, {SECONDS}"),
        (spin_ns, "150", f"spin_us is a str, {SPIN}"),
        (spin_ns, None, f"spin_us is None, {SPIN}"),
        (spin_ns, True, f"spin_us is a bool, {SPIN}"),
        (account_of, ["normal"], f"priority is a list, {CLASSES}"),
        (account_of, None, f"priority is None, {CLASSES}"),
        (account_of, 1, f"priority is an int, {CLASSES}"),
        (engine, 5.5, f"engine is a float, {ENGINE}"),
        (engine, True, f"engine is a bool, {ENGINE}"),
        (engine, b"prod", f"engine is a bytes, {ENGINE}"),
        (engine, Path("prod"), f"engine is a PosixPath, {ENGINE}"),
        (segment, 7, f"segment is an int, {SEGMENT}"),
        (expect_model_name, None, f"model is None, {MODEL}"),
        (expect_model_name, ["m"], f"model is a list, {MODEL}"),
        (expect_model_name, b"m", f"model is a bytes, {MODEL}"),
    ],
)
def test_another_kind_is_named_beside_the_right_one(
    check: Callable[[Any], object], given: Any, words: str
) -> None:
    with pytest.raises(TypeError) as caught:
        check(given)
    assert str(caught.value) == words


@pytest.mark.parametrize(
    ("check", "given", "words"),
    [
        (timeout_ns, 0, "timeout_s must be above 0, not 0"),
        (timeout_ns, float("nan"), "timeout_s must be above 0, not nan"),
        (spin_ns, -1, f"spin_us is -1, {SPIN}"),
        (spin_ns, float("nan"), f"spin_us is nan, {SPIN}"),
        (spin_ns, float("inf"), f"spin_us is inf, {SPIN}"),
        (account_of, "urgent", f"priority is 'urgent', {CLASSES}"),
    ],
)
def test_a_value_that_is_none_is_named_beside_the_right_one(
    check: Callable[[Any], object], given: Any, words: str
) -> None:
    with pytest.raises(ValueError, match="not") as caught:
        check(given)
    assert str(caught.value) == words


@pytest.mark.parametrize(
    "timeout_s", [2, 2.0, np.float32(2), np.float64(2), np.int64(2), Fraction(2)]
)
def test_numbers_of_all_kinds_are_seconds(timeout_s: Any) -> None:
    assert timeout_ns(timeout_s) == 2_000_000_000


@pytest.mark.parametrize(
    ("spin_us", "found_ns"), [(0, 0), (150, 150_000), (0.5, 500), (np.int64(3), 3000)]
)
def test_numbers_of_all_kinds_are_microseconds(spin_us: Any, found_ns: int) -> None:
    assert spin_ns(spin_us) == found_ns


def test_right_arguments_pass() -> None:
    for name in (None, "prod", 1234):
        engine(name)
    for name in (None, "/ringbatch.prod.1.0"):
        segment(name)
    expect_model_name("m")
    assert account_of("bulk") == account_word(0, PriorityClass.BULK)
