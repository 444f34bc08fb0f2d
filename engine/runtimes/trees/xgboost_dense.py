"""Prediction of a matrix through XGBoost's C API, without the checks of Booster.inplace_predict.

In each call, that method finds out which of a dozen kinds of tables it has, which for a lone row
takes longer than the trees do. The call is the same; see XGBoosterPredictFromDense in
https://xgboost.readthedocs.io/en/stable/c.html.
"""

import ctypes
import json
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

TESTED: Final = ((2, 1), (3, 2))
"""The oldest and the newest release with which this was tested. All others have
Booster.inplace_predict.
"""
_VALUES: Final = 0
_MARGINS: Final = 1
_MATRIX: Final = (
    b'{"data": [%d, true], "shape": [%d, %d], "strides": null, "typestr": "%b", "version": 3}'
)
"""numpy's array interface, as JSON."""
_TYPE: Final = np.dtype(np.float32)


class Dense:
    """Predictor of a matrix, equal to Booster.inplace_predict to the last bit.

    Args:
        xgboost: the module.
        booster: an xgboost.Booster; it is kept as long as this.
        rounds: of boosting, from the first to behind the last; (0, 0) for all.
        margins: True to return margins in place of values.

    Raises:
        AttributeError: this version of the module keeps its library and handle elsewhere.
    """

    def __init__(
        self, xgboost: Any, booster: Any, rounds: tuple[int, int], *, margins: bool
    ) -> None:
        self._booster = booster
        self._library = xgboost.core._LIB
        self._predict = self._library.XGBoosterPredictFromDense
        self._handle = booster.handle
        self._columns: int = booster.num_features()
        asked = {
            "type": _MARGINS if margins else _VALUES,
            "training": False,
            "iteration_begin": rounds[0],
            "iteration_end": rounds[1],
            "missing": float("nan"),
            "strict_shape": False,
            "cache_id": 0,
        }
        self._asked = json.dumps(asked).encode()

    def __call__(self, matrix: NDArray[Any]) -> NDArray[np.float32]:
        """Return the predictions, shape [rows], or [rows, classes] if there are several classes.

        Args:
            matrix: shape [rows, columns].

        Raises:
            ValueError: it has another shape.
            RuntimeError: XGBoost refuses, in its words.
        """
        if matrix.ndim != 2 or matrix.shape[1] != self._columns:
            raise ValueError(f"expected rows of {self._columns}, found {matrix.shape}")
        rows = np.ascontiguousarray(matrix, _TYPE)
        found = ctypes.POINTER(ctypes.c_float)()
        lengths = ctypes.POINTER(ctypes.c_uint64)()
        dimensions = ctypes.c_uint64()
        status = self._predict(
            self._handle,
            _MATRIX % (rows.ctypes.data, *rows.shape, _TYPE.str.encode()),
            self._asked,
            None,
            ctypes.byref(lengths),
            ctypes.byref(dimensions),
            ctypes.byref(found),
        )
        if status:
            self._library.XGBGetLastError.restype = ctypes.c_char_p
            raise RuntimeError(self._library.XGBGetLastError().decode())
        shape = lengths[: dimensions.value]
        # The booster owns the results, until its next call.
        taken = ctypes.string_at(found, int(np.prod(shape)) * _TYPE.itemsize)
        return np.frombuffer(taken, _TYPE).reshape(shape)
