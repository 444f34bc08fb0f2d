"""Error text for a model that a runtime cannot serve, with a Python model file that can. Pure."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


class LoadingCode(NamedTuple):
    """Python code that reads a model from a file.

    Attributes:
        module: to import.
        expression: evaluates to the model; `FILE` in it stands for the path.
    """

    module: str
    expression: str


JOBLIB = LoadingCode("joblib", "joblib.load(FILE)")
CATBOOST = LoadingCode("catboost", "catboost.CatBoost().load_model(FILE)")


def skops(trusted_types: Sequence[str]) -> LoadingCode:
    """Return the code that reads a skops file with these trusted types."""
    names = ", ".join(map(_quoted, trusted_types))
    return LoadingCode("skops.io", f"skops.io.load(FILE, trusted=[{names}])")


def refusal(
    path: Path,
    why: str,
    reading: LoadingCode,
    *,
    table: bool = False,
    dates: Sequence[str] = (),
    perhaps: Sequence[str] = (),
) -> str:
    """Return an error text that ends with a model file to copy, in indented lines.

    Args:
        path: of the file that cannot be served.
        why: the reason.
        reading: the code that reads that file.
        table: whether the model takes a DataFrame.
        dates: columns that hold dates.
        perhaps: columns that may hold dates.
    """
    place = f"Path(__file__).parent / {_quoted(path.name)}"
    code = [
        "from pathlib import Path",
        "",
        f"import {reading.module}",
        *(["import pandas"] if table else []),
        "",
        "",
        "def load():",
        "    global model",
        f"    model = {reading.expression.replace('FILE', place)}",
        "",
        "",
        "def predict(instances):  # as they stand in JSON; returns a value for each",
        *(["    table = pandas.DataFrame(instances)"] if table else []),
        *(f"    {_dated(name)}" for name in dates),
        *(f"    # {_dated(name)}  # if it holds dates" for name in perhaps),
        f"    return model.predict({'table' if table else 'instances'}).tolist()",
    ]
    advice = f"{path}: {why}; write a model.py beside it, such as this one, and serve that:"
    return "\n".join([advice, "", *(f"    {line}".rstrip() for line in code)])


def _dated(column: str) -> str:
    name = _quoted(column)
    return f"table[{name}] = pandas.to_datetime(table[{name}])"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
