"""The seam behind which model files differ: a path and some options in, a `Model` out.

A runtime is a function of that shape. Which one is meant, and by which endings it knows its files,
stands in `ringbatch.engine.settings`; what it needs beyond the engine's own packages it imports
only when it is called, which is in a worker.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from ringbatch.engine.model import Model, Options, refusing
from ringbatch.engine.runtime_onnx import open_onnx
from ringbatch.engine.runtime_python import import_model
from ringbatch.engine.runtime_sklearn import open_sklearn
from ringbatch.shm.errors import StartupError

OPENERS: Final[dict[str, Callable[[Path, Options], Model]]] = {
    "onnx": open_onnx,
    "python": lambda path, _options: import_model(path),
    "sklearn": open_sklearn,
}


def open_model(runtime: str, path: Path, options: Options) -> Model:
    """Open a model file; `load` is not called.

    Args:
        runtime: a key of `OPENERS`.
        path: the model file.
        options: what the configuration says of the model.

    Raises:
        StartupError: in words, whatever is wrong with the file, its options or what is installed.
    """
    if not path.is_file():
        what = "is a folder, not a model file" if path.is_dir() else "no such model file"
        raise StartupError(f"{path}: {what}")
    with refusing(path):
        return OPENERS[runtime](path, options)
