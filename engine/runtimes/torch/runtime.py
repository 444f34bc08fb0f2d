"""The torch runtime: exported programs (.pt2) and TorchScript, run by PyTorch.

A .pt2 file declares its inputs and outputs; for TorchScript the configuration does. The file is
loaded when it is opened, because its inputs and outputs are unknown before.

On a GPU a worker runs batches through `Model.device`, if each row has a known size. Otherwise
arrays travel through page-locked memory, which torch keeps and uses again. One input is copied to
the device while the next is copied into that memory, and the outputs come back together.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from ringbatch.engine.models.extras import required
from ringbatch.engine.models.model import InvalidInput, Model, Options, RestartWorker
from ringbatch.engine.runtimes.torch.cuda import CudaDevice
from ringbatch.engine.runtimes.torch.cuda_start import CudaStart
from ringbatch.engine.runtimes.torch.file_kinds import TorchFile, kind_of
from ringbatch.engine.runtimes.torch.program import Program, load_program
from ringbatch.engine.runtimes.torch.script import load_script
from ringbatch.shm.errors import StartupError

logger = logging.getLogger("ringbatch.worker")

T = TypeVar("T")

_LOADERS: Final = {TorchFile.PROGRAM: load_program, TorchFile.SCRIPT: load_script}
_AUTOCAST: Final = {"BF16": "bfloat16", "FP16": "float16"}
_OUT_OF_MEMORY: Final = ("can't allocate memory", "CUDA out of memory", "_STATUS_ALLOC_FAILED")
"""Messages of torch for errors without a class: of the CPU's allocator, and of CUDA's libraries."""

_IMAGE_DIMENSIONS: Final = 4


def open_torch(path: Path, options: Options) -> Model:
    """Load a .pt2 or TorchScript file; see `ringbatch.engine.runtimes.opening.open_model`."""
    kind = kind_of(options.readable(path), trust_pickle=options.trust_pickle)
    began_ns = time.monotonic_ns()
    torch = required("torch", "torch", path)
    imported_ns = time.monotonic_ns()
    if kind is TorchFile.PROGRAM and (options.inputs or options.outputs):
        raise StartupError(
            f"{path}: inputs and outputs are for TorchScript; an exported program says them itself"
        )
    check_device(path, options.device, torch)
    if options.cuda_graphs == "required" and (options.device == "cpu" or kind is TorchFile.SCRIPT):
        found = 'device is "cpu"' if options.device == "cpu" else "this is TorchScript"
        raise StartupError(
            f'{path}: cuda_graphs is "required", but {found}; graphs are of exported programs on a '
            "CUDA device"
        )
    torch.set_num_threads(options.threads)
    if options.device == "cpu":
        program = _LOADERS[kind](path, options, torch)
    else:
        start = CudaStart(torch, torch.device(options.device), time.monotonic_ns)
        try:
            program = _LOADERS[kind](path, options, torch)
        finally:
            started_ns = start.wait_ns()
        logger.info(
            "torch was imported in %.1f s, and the model read in %.1f s, beside which CUDA started "
            "in %.1f s",
            (imported_ns - began_ns) / 1e9,
            (time.monotonic_ns() - imported_ns) / 1e9,
            started_ns / 1e9,
        )
    no_graphs = "" if kind is TorchFile.PROGRAM else "only exported programs are captured"
    return placed_program(program, options, torch, no_graphs)


def placed_program(program: Program, options: Options, torch: Any, no_graphs: str) -> Model:
    """Return a program as a model on the device of its options.

    Args:
        program: on that device, or to be loaded there by the model's `load`.
        options: of the runtime.
        torch: the module.
        no_graphs: why the program is not captured; empty if it may be.
    """
    predict = _Predict(program, options, torch)
    device = None
    if options.device != "cpu":
        device = CudaDevice(torch, torch.device(options.device), predict, no_graphs)
    return Model(program.inputs, program.outputs, lambda: None, predict, device=device)


def check_device(path: Path, device: str, torch: Any) -> None:
    """Refuse a device that is not there.

    Raises:
        StartupError: torch does not find it; the text says what there is.
    """
    if device == "cpu":
        return
    found = f'{path}: device is "{device}", but'
    if torch.version.cuda is None:
        raise StartupError(
            f"{found} the torch that is installed, {torch.__version__}, has no CUDA; install one "
            'that has, or set device = "cpu"'
        )
    if not torch.cuda.is_available():
        raise StartupError(f"{found} torch finds no CUDA device; nvidia-smi says what there is")
    count = torch.cuda.device_count()
    if int(device.removeprefix("cuda:")) >= count:
        there = ", ".join(f"cuda:{number}" for number in range(count))
        raise StartupError(f"{found} there is only {there}")


class _Predict:
    """Callable that runs a program: an array for each input in, results for `Scatterer` out.

    Raises:
        InvalidInput: an input is larger than the file allows.
        MemoryError: the device has too little memory for a batch of that size.
        RestartWorker: the device has failed for good, and with it this process.
    """

    def __init__(self, program: Program, options: Options, torch: Any) -> None:
        self._torch = torch
        self._run = program.run
        self._device = torch.device(options.device)
        self._on_gpu = self._device.type == "cuda"
        self._inputs = [
            (tensor.name, tensor.datatype.name == "BF16", limits)
            for tensor, limits in zip(program.inputs, program.limits, strict=True)
        ]
        self._channels_last = options.channels_last
        self._autocast = _AUTOCAST.get(options.autocast)
        if self._on_gpu:
            torch.cuda.set_device(self._device)

    def __call__(self, *arrays: Any) -> Any:
        for array, (name, _, limits) in zip(arrays, self._inputs, strict=True):
            _check_sizes(name, array.shape, limits)
        return self.attempt(partial(self._answer, arrays))

    def attempt(self, run: Callable[[], T]) -> T:
        """Call a function that runs the program, and return what it returns; raises as a call."""
        try:
            return run()
        except RuntimeError as error:
            self._exit_if_lost(error)
            if not self._is_out_of_memory(error):
                raise
            text = _line_of(str(error))
        # After the handler, so that the tensors of the failed run are gone.
        if self._on_gpu:
            self._torch.cuda.empty_cache()
        raise MemoryError(text)

    def _answer(self, arrays: Sequence[Any]) -> Any:
        with self._torch.inference_mode(), self._datatypes():
            results = self._run(
                [
                    self._tensor(array, is_bf16)
                    for array, (_, is_bf16, _) in zip(arrays, self._inputs, strict=True)
                ]
            )
            answer = self.to_host(results)
            if self._on_gpu:
                self._torch.cuda.current_stream().synchronize()
            return self.to_arrays(answer)

    def results(self, tensors: Sequence[Any], *, cached: bool = True) -> Any:
        """See `ringbatch.engine.runtimes.torch.cuda.Program.results`."""
        with self._torch.inference_mode(), self._datatypes(cached):
            return _mapped(self._as_floats, self._run([self._laid_out(one) for one in tensors]))

    def _datatypes(self, cached: bool = True) -> AbstractContextManager[Any]:
        if self._autocast is None:
            return nullcontext()
        dtype = getattr(self._torch, self._autocast)
        context: AbstractContextManager[Any] = self._torch.autocast(
            self._device.type, dtype=dtype, cache_enabled=cached
        )
        return context

    def _tensor(self, array: Any, is_bf16: bool) -> Any:
        tensor = self._torch.from_numpy(array)
        if is_bf16:
            tensor = tensor.to(self._torch.bfloat16)
        if self._on_gpu:
            tensor = tensor.pin_memory().to(self._device, non_blocking=True)
        return self._laid_out(tensor)

    def _laid_out(self, tensor: Any) -> Any:
        if self._channels_last and tensor.ndim == _IMAGE_DIMENSIONS:
            tensor = tensor.contiguous(memory_format=self._torch.channels_last)
        return tensor

    def _as_floats(self, value: Any) -> Any:
        """Return a result as numpy can hold it, which lacks BF16."""
        is_bf16 = isinstance(value, self._torch.Tensor) and value.dtype == self._torch.bfloat16
        return value.float() if is_bf16 else value

    def to_host(self, results: Any) -> Any:
        """Copy every tensor in a result to the host, once the device has finished."""
        return _mapped(self._copied, results)

    def _copied(self, value: Any) -> Any:
        value = self._as_floats(value)
        if not isinstance(value, self._torch.Tensor) or not self._on_gpu:
            return value
        host = self._torch.empty(value.shape, dtype=value.dtype, pin_memory=True)
        return host.copy_(value, non_blocking=True)

    def to_arrays(self, copied: Any) -> Any:
        """Return a result on the host as arrays; one alone is not in a list."""

        def array(value: Any) -> Any:
            return value.numpy() if isinstance(value, self._torch.Tensor) else value

        answer = _mapped(array, copied)
        alone = isinstance(answer, (list, tuple)) and len(answer) == 1
        return answer[0] if alone else answer

    def _is_out_of_memory(self, error: RuntimeError) -> bool:
        return isinstance(error, self._torch.OutOfMemoryError) or any(
            words in str(error) for words in _OUT_OF_MEMORY
        )

    def _exit_if_lost(self, error: RuntimeError) -> None:
        """Restart the worker if its CUDA context is lost.

        After an illegal access every later call in that context fails; only a new process gets a
        new one.
        """
        if not self._on_gpu:
            return
        try:
            self._torch.cuda.synchronize()
        except RuntimeError:
            logger.critical("the device %s has failed; the worker ends", self._device)
            raise RestartWorker(f"{type(error).__name__}: {error}") from None


def _line_of(text: str) -> str:
    """Return the line that names the lacking memory; TorchScript adds a trace around it."""
    lines = text.splitlines() or [""]
    return next((one for one in lines if any(words in one for words in _OUT_OF_MEMORY)), lines[0])


def _check_sizes(name: str, shape: Sequence[int], limits: Sequence[int | None]) -> None:
    """Check sizes against the file's ranges; frontends have checked only the signature."""
    if len(shape) != len(limits):
        raise InvalidInput(f"input {name!r} has {len(shape)} dimensions, the model's {len(limits)}")
    for axis, (size, most) in enumerate(zip(shape, limits, strict=True)):
        if most is not None and size > most:
            raise InvalidInput(
                f"input {name!r} has a size of {size} in dimension {axis}, "
                f"but the model takes at most {most}"
            )


def _mapped(function: Any, result: Any) -> Any:
    if isinstance(result, Mapping):
        return {name: function(value) for name, value in result.items()}
    if isinstance(result, (list, tuple)):
        return [function(value) for value in result]
    return function(result)
