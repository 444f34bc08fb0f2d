"""Small models of torch, as exported programs and as TorchScript."""

import io
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from model_files import BIAS, WEIGHTS
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from ringbatch.engine.models.model import Model, Options
from ringbatch.engine.runtimes.opening import open_model
from ringbatch.shm.errors import StartupError

SIGNATURE = {"inputs": ["x FP32 [3]"], "outputs": ["y FP32 [2]"]}
"""The linear model's, for TorchScript."""


class Linear(nn.Module):
    """The linear model of `model_files`."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.layer.load_state_dict({"weight": torch.tensor(WEIGHTS.T), "bias": torch.tensor(BIAS)})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


class Calling(nn.Module):
    """A module without weights that calls a function; its inputs are the function's."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.forward = function


class Optional(nn.Module):
    """An argument to spare, and outputs by name."""

    def forward(self, x: torch.Tensor, scale: float = 2.0) -> dict[str, torch.Tensor]:
        return {"b": x * scale, "a": x}


class Dropping(nn.Module):
    """Model with random answers while it is trained."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.drop(x)


class Twice(nn.Module):
    """A matrix product, with a cast back to what the author thinks it is in already."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x).to(torch.float32) + 1


class Greedy(nn.Module):
    """Model that takes more memory than there is for any row at all."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.ones(int(x.shape[0]) << 50).sum()


class Watching(TorchDispatchMode):
    """Within it, a function is told of every operation of torch and its arguments."""

    def __init__(self, record: Callable[[Any, Any], None]) -> None:
        super().__init__()
        self.record = record

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.record(function, args)
        return function(*args, **(kwargs or {}))


def exported(module: Any, *inputs: str, **more: Any) -> bytes:
    """A module as an exported program.

    Args:
        module: the module to export.
        inputs: for each, its name, and its sizes: numbers, or the names of open dimensions, with
            a largest size where it has one, as in ``"ids: batch length<=8"``. A size before the
            colon, as in ``"ids int64: batch"``, is a dtype of torch.
        more: passed on to torch.
    """
    arguments, shapes = [], []
    for text in inputs:
        head, _, sizes = text.partition(":")
        _, _, dtype = head.partition(" ")
        parts = sizes.split()
        open_sizes = {
            axis: _dimension(part) for axis, part in enumerate(parts) if not part.isdecimal()
        }
        shape = [int(part) if part.isdecimal() else 4 for part in parts]
        arguments.append(torch.ones(shape, dtype=getattr(torch, dtype or "float32")))
        shapes.append(open_sizes)
    program = torch.export.export(
        module.eval(), tuple(arguments), dynamic_shapes=tuple(shapes) or None, **more
    )
    return saved(program)


def saved(program: Any, **more: Any) -> bytes:
    """An exported program as a file."""
    file = io.BytesIO()
    torch.export.save(program, file, **more)
    return file.getvalue()


def scripted(module: Any, *, training: bool = False) -> bytes:
    """Return a module as TorchScript."""
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.save(torch.jit.script(module.train(training)), file)
    return file.getvalue()


def pickled(value: Any, **more: Any) -> bytes:
    """Return the bytes that torch.save writes."""
    file = io.BytesIO()
    torch.save(value, file, **more)
    return file.getvalue()


@pytest.fixture(autouse=True)
def threads_as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def opened(folder: Path, data: bytes, **options: Any) -> Model:
    path = folder / "model.bin"
    path.write_bytes(data)
    return open_model("torch", path, Options(**{"max_batch_size": 32, "threads": 1, **options}))


def refused(folder: Path, data: bytes, **options: Any) -> str:
    with pytest.raises(StartupError) as caught:
        opened(folder, data, **options)
    text = str(caught.value)
    assert text.startswith(f"{folder / 'model.bin'}: ")
    assert "\n" not in text
    return text.removeprefix(f"{folder / 'model.bin'}: ")


def _dimension(text: str) -> Any:
    name, _, most = text.partition("<=")
    return torch.export.Dim(name, max=int(most)) if most else torch.export.Dim(name)
