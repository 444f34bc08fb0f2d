"""The text runtime: a tokenizer and an encoder in a directory, as sentence-transformers write it.

The encoder is run by the runtime of its own file. The worker gets tokens, which frontends have made
of texts, see `ringbatch.shm.texts`. It makes masks of them, and pools the encoder's vectors of a
text's tokens into one.
"""

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ringbatch.engine.models.extras import required
from ringbatch.engine.models.model import Model, Options, refusing
from ringbatch.engine.runtimes.graphs.onnx import open_onnx
from ringbatch.engine.runtimes.graphs.openvino import open_openvino
from ringbatch.engine.runtimes.texts.directory import TextFiles, read_directory
from ringbatch.engine.runtimes.texts.pooling import POOLINGS, normalized
from ringbatch.engine.runtimes.torch.runtime import open_torch
from ringbatch.shm.errors import StartupError
from ringbatch.shm.tensor import ANY, Tensor
from ringbatch.shm.texts import IDS, SECOND, Tokens

logger = logging.getLogger("ringbatch.worker")

Array = NDArray[Any]

_OPENERS: Final[dict[str, Callable[[Path, Options], Model]]] = {
    ".onnx": open_onnx,
    ".xml": open_openvino,
    ".pt2": open_torch,
}
_IDS: Final = "input_ids"
_MASK: Final = "attention_mask"
_TYPES: Final = "token_type_ids"
_POSITIONS: Final = "position_ids"
_INPUTS: Final = (_IDS, _MASK, _TYPES, _POSITIONS)
_OF_A_TEXT: Final = ("sentence_embedding", "logits")
_OF_TOKENS: Final = ("last_hidden_state", "token_embeddings")
_TOKEN_RANK: Final = 2


def open_text(path: Path, options: Options) -> Model:
    """Load a directory; see `ringbatch.engine.runtimes.opening.open_model`."""
    files = read_directory(path)
    vocabulary = _vocabulary(files)
    encoder = _OPENERS[files.encoder.suffix](files.encoder, replace(options, content=None))
    _expect_inputs(files.encoder, encoder.inputs)
    place, output = _output(files, encoder.outputs)
    reads_tokens = len(output.shape) == _TOKEN_RANK
    classifies = not reads_tokens and (files.classifies or output.name == "logits")
    dims = output.shape[-1] if output.shape[-1] != ANY else files.dims
    if dims < 1:
        raise StartupError(
            f"{files.encoder}: output {output.name!r} does not say its size, and neither does "
            "hidden_size in config.json"
        )
    pooling = files.pooling
    if reads_tokens and pooling is None:
        pooling = "mean"
        logger.warning("%s: nothing says how tokens become one vector, so it is their mean", path)
    if classifies:
        labels = files.labels if len(files.labels) == dims > 1 else ()
        answer = (
            Tensor("score", "FP32", []) if dims == 1 else Tensor("logits", "FP32", [dims], labels)
        )
    else:
        answer = Tensor("embedding", "FP32", [dims])
    run = _Run(
        encoder,
        files,
        place,
        pool=POOLINGS[pooling] if reads_tokens and pooling else None,
        normalizes=files.normalizes and not classifies,
        shape=answer.shape,
    )
    tokens = Tokens(
        path=str(files.tokenizer),
        digest=hashlib.blake2b(files.tokenizer.read_bytes(), digest_size=16).hexdigest(),
        limit=files.limit,
        truncate=options.truncate,
        pairs=classifies and dims == 1,
        vocabulary=files.vocabulary or vocabulary,
    )
    return Model((IDS,), (answer,), encoder.load, run, release=encoder.release, tokens=tokens)


def _vocabulary(files: TextFiles) -> int:
    """Return the number of the tokenizer's tokens; the encoder must know each."""
    tokenizers = required("tokenizers", "text", files.tokenizer.parent)
    with refusing(files.tokenizer, f"tokenizers {tokenizers.__version__} cannot read it"):
        size: int = tokenizers.Tokenizer.from_file(str(files.tokenizer)).get_vocab_size()
    if files.vocabulary and size > files.vocabulary:
        raise StartupError(
            f"{files.tokenizer}: has {size} tokens, but the encoder knows {files.vocabulary} "
            "(vocab_size in config.json); these are not of the same model"
        )
    return size


def _expect_inputs(encoder: Path, inputs: Sequence[Tensor]) -> None:
    for tensor in inputs:
        whole = tensor.datatype.name in ("INT64", "INT32")
        if tensor.name not in _INPUTS or not whole or tensor.shape != (ANY,):
            raise StartupError(
                f"{encoder}: takes {tensor.name!r}, {tensor.datatype.name} "
                f"{[ANY, *tensor.shape]}; an encoder of texts takes {', '.join(_INPUTS)}, each "
                "INT64 or INT32 [-1, -1], and input_ids at least"
            )
    if _IDS not in (tensor.name for tensor in inputs):
        raise StartupError(f"{encoder}: has no input {_IDS!r}")


def _output(files: TextFiles, outputs: Sequence[Tensor]) -> tuple[int, Tensor]:
    """Return the place of the served output of the encoder, and the output."""
    names = [tensor.name for tensor in outputs]
    # The directory's pooling, if any, takes precedence.
    wanted = (*_OF_TOKENS, *_OF_A_TEXT) if files.pooling else (*_OF_A_TEXT, *_OF_TOKENS)
    name = next((name for name in wanted if name in names), names[0])
    tensor = outputs[names.index(name)]
    floats = tensor.datatype.name in ("FP32", "FP16", "FP64")
    if not floats or not 1 <= len(tensor.shape) <= _TOKEN_RANK:
        raise StartupError(
            f"{files.encoder}: output {name!r} is {tensor.datatype.name} "
            f"{[ANY, *tensor.shape]}; it must be a vector of floats for each token or each text"
        )
    return names.index(name), tensor


class _Run:
    """Callable that runs an encoder: tokens [texts, longest] in, a row of floats for each out."""

    def __init__(
        self,
        encoder: Model,
        files: TextFiles,
        place: int,
        *,
        pool: Callable[[Array, Array], Array] | None,
        normalizes: bool,
        shape: tuple[int, ...],
    ) -> None:
        self._encode = encoder.predict
        self._inputs = [(tensor.name, tensor.datatype.numpy) for tensor in encoder.inputs]
        self._outputs = [tensor.name for tensor in encoder.outputs]
        self._place = place
        self._pool = pool
        self._normalizes = normalizes
        self._limit = files.limit
        self._padding = files.padding
        self._shape = shape

    def __call__(self, ids: Array) -> Array:
        mask = ids >= 0
        # A batch is padded to its bucket's edge, which may be beyond its longest text.
        longest = min(max(int(mask.sum(axis=1).max()), 1), self._limit)
        ids, mask = ids[:, :longest], mask[:, :longest]
        found = self._output(self._encode(*self._arguments(ids, mask)))
        rows = np.asarray(found, np.float32)
        if self._pool is not None:
            rows = self._pool(rows, mask)
        if self._normalizes:
            rows = normalized(rows)
        return np.ascontiguousarray(rows).reshape(len(ids), *self._shape)

    def _arguments(self, ids: Array, mask: Array) -> list[Array]:
        made: dict[str, Callable[[], Array]] = {
            _IDS: lambda: np.where(mask, ids & (SECOND - 1), self._padding),
            _MASK: lambda: mask,
            _TYPES: lambda: (ids & SECOND != 0) & mask,
            _POSITIONS: lambda: np.broadcast_to(np.arange(ids.shape[1]), ids.shape),
        }
        return [np.ascontiguousarray(made[name](), dtype) for name, dtype in self._inputs]

    def _output(self, results: Any) -> Any:
        if len(self._outputs) == 1 and not isinstance(results, list | tuple | Mapping):
            return results
        return results[self._outputs[self._place] if isinstance(results, Mapping) else self._place]
