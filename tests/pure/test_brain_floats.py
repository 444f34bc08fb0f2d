"""BF16: every number of it survives, and of all others the nearest is taken."""

from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ringbatch.shm.brain_floats import narrowed, widened

ALL = np.arange(1 << 16, dtype=np.uint16)


def singles(*bits: int) -> NDArray[Any]:
    return np.array(bits, "<u4").view("<f4")


def exact(bits: int) -> Fraction:
    """The number that BF16 bits are, the one behind the largest taken for one as well."""
    exponent, fraction = bits >> 7 & 0xFF, bits & 0x7F
    sign = -1 if bits >> 15 else 1
    size = Fraction(fraction + (128 if exponent else 0)) * Fraction(2) ** (max(exponent, 1) - 134)
    return sign * size


def test_every_number_survives() -> None:
    numbers = widened(ALL)
    assert numbers.dtype == np.float32
    again = narrowed(numbers)
    is_number = ~np.isnan(numbers)
    assert np.array_equal(again[is_number], ALL[is_number])
    assert np.isnan(widened(again)[~is_number]).all()


@given(st.integers(0, (1 << 32) - 1))
def test_the_nearest_is_taken_and_of_two_the_even_one(bits: int) -> None:
    (value,) = singles(bits)
    (found,) = narrowed(singles(bits)).tolist()
    if np.isnan(value):
        assert np.isnan(widened(np.array([found], np.uint16)))[0]
        return
    below = bits >> 16
    if np.isinf(value):
        assert found == below
        return
    wanted = Fraction(float(value))
    distances = {near: abs(exact(near) - wanted) for near in (below, below + 1)}
    least = min(distances.values())
    nearest = [near for near, distance in distances.items() if distance == least]
    assert found == (nearest[0] if len(nearest) == 1 else next(n for n in nearest if n % 2 == 0))


def test_values_in_between_are_rounded_and_nan_becomes_no_infinity() -> None:
    found = narrowed(
        singles(0x3F808000, 0x3F808001, 0x3F818000, 0x7F800001, 0xFFFFFFFF, 0x7F7FFFFF)
    )
    assert [hex(one) for one in found] == [
        "0x3f80",
        "0x3f81",
        "0x3f82",
        "0x7fc0",
        "0xffff",
        "0x7f80",
    ]


def test_any_shape_stays() -> None:
    for shape in ((), (0,), (2, 3), (2, 0, 1)):
        values = np.ones(shape, np.float32)
        assert narrowed(values).shape == widened(narrowed(values)).shape == shape
    every_other = np.arange(8, dtype=np.float32)[::2]
    assert widened(narrowed(every_other)).tolist() == [0, 2, 4, 6]
