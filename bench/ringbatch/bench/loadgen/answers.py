"""Answers in LoadGen's log, held against those that were expected. Pure."""

import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import orjson
from numpy.typing import NDArray

from ringbatch.bench.load.answers import Reference, alike
from ringbatch.bench.load.infer_message import array_of, outputs_of
from ringbatch.bench.load.target import Wire
from ringbatch.bench.loadgen.judgement import Compared
from ringbatch.bench.loadgen.logs import Logged
from ringbatch.bench.loadgen.plan import Scenario

_ONLY: Final = ""
"""Stands for the name of the only output, which a Client gives without it."""


def compared(
    scenario: Scenario, entries: Sequence[Logged], samples: int, wire: Wire, right: Sequence[bytes]
) -> Compared:
    """Compare all answers of a run.

    Args:
        scenario: of the run.
        entries: what was logged.
        samples: that were asked for, each once.
        wire: how they were asked.
        right: bodies of the right answers, over HTTP; sample n stands for number n modulo these.
    """
    references = [Reference.of(body) for body in right]
    seen = {entry.sample for entry in entries if 0 <= entry.sample < samples}
    wrong = sum(
        not is_right(wire, references[entry.sample % len(references)], entry.data)
        for entry in entries
    )
    return Compared(scenario, len(entries), wrong, samples - len(seen))


def is_right(wire: Wire, reference: Reference, data: bytes) -> bool:
    """Return whether a logged answer is right."""
    if wire is Wire.HTTP1:
        return reference.is_met_by(data)
    try:
        if wire is Wire.GRPC:
            outputs, _ = outputs_of(data)
            return reference.outputs_are(outputs())
        return _is_right_of_client(data, reference.values)
    except (ValueError, KeyError, TypeError, struct.error):
        return False


def text_of_arrays(found: Any) -> bytes:
    """Return a Client's answer as it is logged.

    Args:
        found: the only output, or all by name.
    """
    outputs = found if isinstance(found, dict) else {_ONLY: found}
    return orjson.dumps({name: _told(np.asarray(array)) for name, array in outputs.items()})


def _is_right_of_client(data: bytes, right: Sequence[Mapping[str, Any]]) -> bool:
    arrays = {one["name"]: _told(array_of(one)) for one in right}
    found = orjson.loads(data)
    if found.keys() == {_ONLY} and len(arrays) == 1:
        return alike(found[_ONLY], next(iter(arrays.values())))
    return alike(found, arrays)


def _told(array: NDArray[Any]) -> dict[str, Any]:
    values = array.ravel().tolist()
    flat = [value.hex() if isinstance(value, bytes) else value for value in values]
    return {"shape": list(array.shape), "data": flat}
