"""Made-up rows of a model with one input, and requests for them. Pure."""

import json
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np

REGION: Final = "row"
"""Name of the row in shared memory, as the server knows it."""
_DATATYPES: Final = {"float32": "FP32", "uint8": "UINT8"}
_MOST: Final = {"float32": 1, "uint8": 255}


@dataclass(frozen=True)
class Row:
    """A row: its shape, and its numbers as numpy names them."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def size(self) -> int:
        """Bytes."""
        return prod(self.shape) * np.dtype(self.dtype).itemsize

    def values(self, rows: int = 1) -> Any:
        """Return made-up rows, with few digits."""
        drawn = np.random.default_rng(1).uniform(0, _MOST[self.dtype], (rows, *self.shape))
        return drawn.round(3).astype(self.dtype)

    @property
    def _named(self) -> dict[str, Any]:
        return {"name": "x", "shape": [1, *self.shape], "datatype": _DATATYPES[self.dtype]}

    @property
    def in_json(self) -> bytes:
        """A V2 body."""
        data = self.values().ravel().tolist()
        return json.dumps({"inputs": [{**self._named, "data": data}]}).encode()

    @property
    def binary(self) -> tuple[bytes, int]:
        """The same in binary, and the bytes of its JSON."""
        text = self._head({"binary_data_size": self.size})
        return text + self.values().tobytes(), len(text)

    @property
    def by_reference(self) -> tuple[bytes, int]:
        """The same for a row in shared memory."""
        text = self._head({"shared_memory_region": REGION, "shared_memory_byte_size": self.size})
        return text, len(text)

    def _head(self, parameters: dict[str, Any]) -> bytes:
        inputs = [{**self._named, "parameters": parameters}]
        return json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
