"""Text decoders in ONNX files, which take keys and values of earlier tokens and give new ones.

The names are those of optimum's exports (``--task text-generation-with-past``):

    input_ids, attention_mask, position_ids             INT64 [rows, tokens]; the last may be absent
    past_key_values.N.key, past_key_values.N.value      [rows, heads, tokens, size]
    logits                                              [rows, tokens, vocabulary]
    present.N.key, present.N.value                      as past_key_values, with the new tokens
    use_cache_branch, num_logits_to_keep                inputs that some have

Rows of different lengths stand behind zeros, which the mask leaves out.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ringbatch.shm.errors import StartupError

Array = NDArray[Any]
Cache = list[Array]
"""Keys and values of each layer: [rows, heads, tokens, size], or of one row without the first."""
_IDS: Final = "input_ids"
_MASK: Final = "attention_mask"
_POSITIONS: Final = "position_ids"
_CACHED: Final = "use_cache_branch"
_LOGITS_KEPT: Final = "num_logits_to_keep"
_LOGITS: Final = "logits"
_KNOWN: Final = (_IDS, _MASK, _POSITIONS, _CACHED, _LOGITS_KEPT)
_PAST: Final = re.compile(r"past_key_values\.(\d+)\.(key|value)")
_FLOATS: Final[dict[str, np.dtype[Any]]] = {
    "tensor(float)": np.dtype("f4"),
    "tensor(float16)": np.dtype("f2"),
}


class Decoder:
    """A decoder.

    Args:
        path: of its file.
        session: of onnxruntime.

    Attributes:
        vocabulary: how many tokens it knows; 0 if the file does not say.

    Raises:
        StartupError: the file holds no such decoder; the text says what would be right.
    """

    def __init__(self, path: Path, session: Any) -> None:
        self._run = session.run
        nodes = {node.name: node for node in session.get_inputs()}
        outputs = {node.name: node for node in session.get_outputs()}
        pasts = [name for name in nodes if _PAST.fullmatch(name)]
        self._expect(path, nodes, outputs, pasts)
        self._pasts = pasts
        self._outputs = [_LOGITS, *map(_present, pasts)]
        self._empty = [_empty(path, nodes[name]) for name in pasts]
        self._optional = {name for name in nodes if name in _KNOWN}
        last = outputs[_LOGITS].shape[-1]
        self.vocabulary = last if isinstance(last, int) else 0

    @staticmethod
    def _expect(
        path: Path, nodes: dict[str, Any], outputs: dict[str, Any], pasts: list[str]
    ) -> None:
        if not pasts:
            raise StartupError(
                f"{path}: has no inputs past_key_values.*, so that each token would cost the whole "
                "text again; export it with them: optimum-cli export onnx --task "
                'text-generation-with-past ...; an encoder is served with runtime = "text"'
            )
        wanted = [_LOGITS, *map(_present, pasts)]
        missing = [name for name in (_IDS, _MASK) if name not in nodes]
        missing += [name for name in wanted if name not in outputs]
        if missing:
            raise StartupError(
                f"{path}: lacks {', '.join(missing)}, by the names that optimum exports"
            )
        strange = [name for name in nodes if name not in (*_KNOWN, *pasts)]
        if strange:
            known = ", ".join(_KNOWN)
            raise StartupError(
                f"{path}: has the input {strange[0]!r}, which nothing is known to fill; known are "
                f"{known} and past_key_values.*"
            )

    def next_scores(
        self, tokens: Array, lengths: Array, cache: Cache | None
    ) -> tuple[Array, Cache]:
        """Run the decoder; return scores of the next token, and keys and values of all so far.

        Args:
            tokens: INT64 [rows, new tokens].
            lengths: INT64 [rows], how many earlier tokens each row has; negative for a row that
                has none, and begins with so many tokens that are none.
            cache: of these, behind zeros where a row has fewer than the longest; None if no row has
                any.

        Returns:
            FP32 [rows, vocabulary], and a cache with the new tokens.
        """
        rows, new = tokens.shape
        width = cache[0].shape[2] if cache else 0
        columns = np.arange(width + new)
        mask = columns >= (width - lengths)[:, np.newaxis]
        given = {
            _IDS: tokens,
            _MASK: mask.astype(np.int64),
            _POSITIONS: np.maximum(lengths[:, np.newaxis] + np.arange(new), 0),
            _CACHED: np.array([cache is not None]),
            _LOGITS_KEPT: np.array(1, np.int64),
        }
        feed = {name: given[name] for name in self._optional}
        pasts = cache or [np.zeros((rows, *shape), dtype) for shape, dtype in self._empty]
        feed |= zip(self._pasts, pasts, strict=True)
        logits, *made = self._run(self._outputs, feed)
        return logits[:, -1].astype(np.float32), made


def together(rows: Sequence[Cache]) -> Cache:
    """Return the caches of rows as one; shorter rows stand behind zeros."""
    longest = max(cache[0].shape[1] for cache in rows)
    return [_stacked(layer, longest) for layer in zip(*rows, strict=True)]


def apart(cache: Cache, lengths: Sequence[int]) -> list[Cache]:
    """Return the caches of rows of these lengths, which refer to the whole."""
    return [
        [layer[row, :, layer.shape[2] - length :] for layer in cache]
        for row, length in enumerate(lengths)
    ]


def _stacked(layer: Sequence[Array], longest: int) -> Array:
    heads, _, size = layer[0].shape
    whole = np.zeros((len(layer), heads, longest, size), layer[0].dtype)
    for row, own in enumerate(layer):
        whole[row, :, longest - own.shape[1] :] = own
    return whole


def _present(past: str) -> str:
    return past.replace("past_key_values", "present")


def _empty(path: Path, node: Any) -> tuple[tuple[int, int, int], np.dtype[Any]]:
    """Return shape and datatype of a row's keys or values before the first token."""
    dtype = _FLOATS.get(node.type)
    shape = node.shape
    if dtype is None or len(shape) != 4 or not isinstance(shape[1], int):
        raise StartupError(
            f"{path}: input {node.name!r} is {node.type} {shape}; it must be float or float16 "
            "[rows, heads, tokens, size], the second and the last a number"
        )
    if not isinstance(shape[3], int):
        raise StartupError(f"{path}: input {node.name!r} does not say the size of a head")
    return (shape[1], 0, shape[3]), dtype
