"""Prediction of one row through LightGBM's C API, in half the time of Booster.predict.

Booster.predict makes a predictor and its configuration for each call, which for a lone row costs
more than the trees do. The C API keeps both between calls; see
LGBM_BoosterPredictForMatSingleRowFast in https://lightgbm.readthedocs.io/en/latest/C-API.html.
"""

import ctypes
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

TESTED: Final = ((4, 5), (4, 7))
"""The oldest and the newest release with which this was tested. All others have Booster.predict."""
_DOUBLES: Final = 1
"""C_API_DTYPE_FLOAT64."""
_VALUES: Final = 0
"""C_API_PREDICT_NORMAL."""
_MARGINS: Final = 1
"""C_API_PREDICT_RAW_SCORE."""


class SingleRow:
    """Predictor of one row, equal to Booster.predict to the last bit.

    Args:
        lightgbm: the module.
        booster: a lightgbm.Booster; it is kept as long as this.
        threads: that one call may use.
        iterations: rounds of boosting; 0 for the default.
        margins: True to return margins in place of values.

    Raises:
        AttributeError: this version of the module keeps its library and handle elsewhere.
        RuntimeError: LightGBM refuses, in its words.
    """

    def __init__(
        self, lightgbm: Any, booster: Any, threads: int, iterations: int, *, margins: bool
    ) -> None:
        self._booster = booster
        self._library = lightgbm.basic._LIB
        self._predict = self._library.LGBM_BoosterPredictForMatSingleRowFast
        self._columns: int = booster.num_feature()
        self._length = ctypes.c_int64()
        self._prepared = ctypes.c_void_p()
        selection = (_MARGINS if margins else _VALUES, 0, iterations or booster.best_iteration)
        self._check(
            self._library.LGBM_BoosterPredictForMatSingleRowFastInit(
                booster._handle,
                *selection,
                _DOUBLES,
                self._columns,
                f"num_threads={threads}".encode(),
                ctypes.byref(self._prepared),
            )
        )
        self._check(
            self._library.LGBM_BoosterCalcNumPredict(
                booster._handle, 1, *selection, ctypes.byref(self._length)
            )
        )
        self._width = self._length.value

    def __call__(self, matrix: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the prediction, shape [1], or [1, classes] if there are several.

        Args:
            matrix: shape [1, columns].

        Raises:
            ValueError: it has another shape.
            RuntimeError: LightGBM refuses, in its words.
        """
        if matrix.shape != (1, self._columns):
            raise ValueError(f"expected a row of {self._columns}, found {matrix.shape}")
        row = np.ascontiguousarray(matrix, np.float64)
        found = np.empty((1, self._width) if self._width > 1 else 1)
        self._check(
            self._predict(
                self._prepared,
                ctypes.c_void_p(row.ctypes.data),
                ctypes.byref(self._length),
                ctypes.c_void_p(found.ctypes.data),
            )
        )
        return found

    def __del__(self) -> None:
        if getattr(self, "_prepared", None):
            self._library.LGBM_FastConfigFree(self._prepared)

    def _check(self, status: int) -> None:
        if status:
            self._library.LGBM_GetLastError.restype = ctypes.c_char_p
            raise RuntimeError(self._library.LGBM_GetLastError().decode())
