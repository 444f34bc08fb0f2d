"""Models of a life's engine, the requests of its clients, and the models' answers.

The models of numbers leave a trace: each puts a digit of its own behind those that a number came
with. So the answer of a chain says which steps were run for it, and in which order.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from segment_fixture import spec
from simulation.machine import MILLISECOND_NS, SECOND_NS

from ringbatch.engine.config.chained import ChainConfig, StepConfig
from ringbatch.engine.models.model import InvalidInput, ServerFailed
from ringbatch.engine.supervisor.chains import first_chains
from ringbatch.shm.forward_envelope import Envelope, Refusal, refusal_text
from ringbatch.shm.model_spec import Forward, ModelSpec
from ringbatch.shm.slot import Status
from ringbatch.shm.tensor import Tensor

ADDED: Final = 1_000_000_000
"""Below are a request and a row, above are the digits of the models that were run."""
ROWS_AT_MOST: Final = 100
WIDE_ROW: Final = 600
"""Numbers in a row that finds no room at first."""

X: Final = Tensor("x", "INT64", [])
WIDE: Final = Tensor("wide", "INT64", [-1])
TYPED: Final = spec(
    0,
    [X],
    [X],
    name="typed",
    max_batch_size=8,
    workers=(0, 1),
    timeout_ns=2 * SECOND_NS,
    batch_timeout_ns=300 * MILLISECOND_NS,
)
UNTYPED: Final = spec(
    1,
    name="untyped",
    max_batch_size=3,
    max_latency_ns=5 * MILLISECOND_NS,
    policy="fixed",
    workers=(2,),
    timeout_ns=3 * SECOND_NS,
    batch_timeout_ns=400 * MILLISECOND_NS,
)
FORWARDED: Final = replace(
    UNTYPED, name="forwarded", forward=Forward("/v1/models/forwarded:predict", (), any_path=False)
)
SERVED: Final[tuple[tuple[ModelSpec, ...], ...]] = ((TYPED, UNTYPED), (TYPED, FORWARDED))
"""Sets of models that an engine without a chain may serve."""

YIELDING: Final = replace(UNTYPED, name="yielding", in_parts=True)
"""Model whose parts are joined for clients that want none."""
COUNTING: Final = replace(TYPED, name="counting", index=1, account=1, workers=(2,), in_parts=True)
"""Model whose last part is the answer for clients that want no parts.

Many of its requests fit into a lane.
"""
PARTED: Final[tuple[tuple[ModelSpec, ...], ...]] = ((TYPED, YIELDING), (TYPED, COUNTING))
"""Sets of models of which one answers in parts."""
PARTS: Final = 4
"""Number of parts of each answer of these models."""

STEPPING: Final = replace(UNTYPED, name="stepping", max_batch_size=1, places=3, in_parts=True)
STRIDING: Final = replace(
    COUNTING, name="striding", max_batch_size=1, places=2, workers=(2, 3), timeout_ns=3 * SECOND_NS
)
STEPPED: Final[tuple[tuple[ModelSpec, ...], ...]] = ((TYPED, STEPPING), (TYPED, STRIDING))
"""Sets of models of which one works in steps."""
_MOST_STEPS: Final = 6

SECOND: Final = replace(UNTYPED, name="second", inputs=(X,), outputs=(X,))
SPREADING: Final = replace(SECOND, name="spreading", outputs=(WIDE,), policy="eager")
GATHERING: Final = replace(
    SECOND, name="gathering", index=2, account=2, inputs=(WIDE, X), workers=(3,)
)
CHAIN: Final = "chain"
_TIMEOUT_S: Final = 3.0
CHAINED: Final[tuple[tuple[ModelSpec, ...], ...]] = (
    first_chains(
        [
            ChainConfig(
                name=CHAIN,
                steps=tuple(StepConfig(model=name) for name in ("typed", "second", "typed")),
                timeout_s=_TIMEOUT_S,
            )
        ],
        (TYPED, SECOND),
    ),
    first_chains(
        [
            ChainConfig(
                name=CHAIN,
                steps=(
                    StepConfig(model="spreading"),
                    StepConfig(model="gathering", inputs=(("x", "request.x"),)),
                    StepConfig(model="typed"),
                ),
                timeout_s=_TIMEOUT_S,
            )
        ],
        (TYPED, SPREADING, GATHERING),
    ),
)
"""Sets of models with a chain.

Its steps keep tensors of a fixed size; or of any size, and a later step takes what came with the
request.
"""

_DIGITS: Final = {TYPED.name: 1, SECOND.name: 2, SPREADING.name: 3, GATHERING.name: 4}
_NAMES: Final = {str(digit): name for name, digit in _DIGITS.items()}


def parts_of(number: int) -> int:
    """Return how many parts a row of a request of that number has, of a model in steps."""
    return 1 + number // 10 % _MOST_STEPS


def steps_of(model: ModelSpec) -> tuple[str, ...]:
    """The names of the models that a request to one passes, in order."""
    if model.chain is None:
        return (model.name,)
    return tuple(step.model for step in model.chain.steps)


def is_numeric(model: ModelSpec) -> bool:
    """Return whether a model takes and returns numbers, and leaves a trace in them."""
    return steps_of(model)[-1] in _DIGITS


def names_in(value: int) -> tuple[str, ...]:
    """The names of the models that have left a trace in a number, in order."""
    trace = value // ADDED
    digits = str(trace) if trace > 0 else ""
    return tuple(_NAMES.get(digit, "nobody") for digit in digits)


def marked(values: NDArray[Any], name: str) -> NDArray[Any]:
    """Numbers as a model returns them."""
    marks: NDArray[Any] = values % ADDED + ADDED * (values // ADDED * 10 + _DIGITS[name])
    return marks


def number_in(value: int) -> int:
    """The number of the request that a value belongs to."""
    return value % ADDED // ROWS_AT_MOST


def instances(model: ModelSpec, number: int, rows: int) -> list[Any]:
    """Return the instances of a request of that number."""
    if not is_numeric(model) and not model.typed:
        return [{"n": number, "row": row} for row in range(rows)]
    values = [ROWS_AT_MOST * number + row for row in range(rows)]
    if model.name == GATHERING.name:
        return [{"wide": [value, value], "x": value} for value in values]
    return values


def numbers_in(model: ModelSpec, rows: list[Any]) -> list[int]:
    """The number of the request that each row of an answer of a numeric model belongs to.

    Raises:
        AssertionError: a row is none of that model's, or not in its place.
    """
    wide = steps_of(model)[-1] == SPREADING.name
    values = [row[0] if wide else row for row in rows]
    if wide:
        assert all(row == [row[0]] * len(row) for row in rows), f"{model.name} answers {rows}"
    passed = {names_in(value) for value in values}
    assert passed == {steps_of(model)}, f"what {model.name} answers has passed {passed}"
    assert [value % ROWS_AT_MOST for value in values] == list(range(len(values)))
    return [number_in(value) for value in values]


def spread(values: NDArray[Any], *, large: bool) -> NDArray[Any]:
    """Numbers as rows of them, which are as long as the batch's first number says."""
    length = WIDE_ROW if large else 1 + int(values[0]) % 3
    return np.repeat(values[:, np.newaxis], length, axis=1)


def gathered(wide: NDArray[Any], x: NDArray[Any]) -> NDArray[Any]:
    """The numbers that `spread` has made rows of.

    Raises:
        ValueError: they are not those, or not those of the requests beside them.
    """
    values: NDArray[Any] = wide[:, 0]
    if (wide != values[:, np.newaxis]).any() or (values % ADDED != x % ADDED).any():
        raise ValueError(f"rows {wide[:, :3].tolist()} came with {x.tolist()}")
    return values


def part_of_json(number: int, row: int, part: int, padding: str) -> list[Any]:
    """Return a part of the answer to one row of a request to `YIELDING`."""
    return [{"n": number, "row": row, "part": part, "pad": padding}]


def part_of_numbers(values: NDArray[Any], part: int) -> NDArray[Any]:
    """Return a part of the answer to some rows of `COUNTING`."""
    counted: NDArray[Any] = values + ADDED * (1 + part)
    return counted


def parts_in(model: ModelSpec, rows: list[Any], padding: str) -> list[list[tuple[int, int, int]]]:
    """Return, for each row of an answer, the parts in it: number of the request, row, and part."""
    if model.typed:
        return [[(number_in(value), value % ROWS_AT_MOST, value // ADDED - 1)] for value in rows]
    assert all(part["pad"] == padding for row in rows for part in row), f"a part of {rows} is cut"
    return [[(part["n"], part["row"], part["part"]) for part in row] for row in rows]


class ModelServer:
    """The server that runs a model, and where it is asked.

    Args:
        predict: its model's function.
    """

    def __init__(self, predict: Callable[..., Any]) -> None:
        self._predict = predict

    def predictions(
        self, asked: Envelope, lists: Sequence[bytes], rows: Sequence[int], until_ns: int
    ) -> list[bytes]:
        """As `ringbatch.engine.models.model.Remote` has it."""
        try:
            values = iter(self._predict([value for text in lists for value in json.loads(text)]))
        except (InvalidInput, RuntimeError) as error:
            status = 400 if isinstance(error, InvalidInput) else 500
            text = refusal_text(Refusal(status, "", repr(error)))
            raise ServerFailed(Status.SERVER_ANSWERED, text, isolates=True) from None
        return [json.dumps(list(islice(values, count))).encode() for count in rows]
