"""Trains a classifier of wines with scikit-learn and writes it as an ONNX file.

    python wine_to_onnx.py wine.onnx

Needs scikit-learn, which carries the data (178 wines, 13 measurements each, three cultivars), and
skl2onnx.
"""

import sys
from pathlib import Path
from typing import Any, Final

from skl2onnx import to_onnx
from skl2onnx.common.data_types import FloatTensorType
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

OPSET: Final = 17


def trained() -> Any:
    """The classifier, fitted to every other wine; the rest is left to try it on."""
    wines = load_wine()
    pipeline = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    return pipeline.fit(wines.data[::2], wines.target[::2])


def converted(pipeline: Any) -> bytes:
    """The classifier as an ONNX file, with the outputs ``label`` and ``probabilities``."""
    model = to_onnx(
        pipeline,
        initial_types=[("x", FloatTensorType([None, 13]))],
        # Without it the probabilities are a list of dictionaries, which is no tensor.
        options={"zipmap": False},
        target_opset=OPSET,
    )
    return bytes(model.SerializeToString())


if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(converted(trained()))
