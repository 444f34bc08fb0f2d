"""Classification of texts, as Hugging Face's TEI has it; pure.

    POST /predict   {"inputs": "a text", "raw_scores": false}
                    -> [{"score": 0.98, "label": "joy"}, {"score": 0.02, "label": "anger"}]
                    {"inputs": [["a text"], ["another"]]}
                    -> [[{"score": 0.98, "label": "joy"}, ...], [...]]

                   {"inputs": "a text", "parameters": {"top_k": 1, "function_to_apply": "none"}}
                    -> [[{"score": 3.2, "label": "joy"}]]

The best label comes first. huggingface_hub sends `parameters`, and expects a list of lists even for
one text. To TEI `["a text", "another"]` is one pair of texts. A classifier of texts takes no pairs,
so ringbatch refuses it instead of reading two texts.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import orjson
from numpy.typing import NDArray

from ringbatch.frontend.codec.json_to_tensor import shown
from ringbatch.frontend.codec.outcome import JSON, Answer
from ringbatch.frontend.codec.rendering import Results
from ringbatch.frontend.texts import tei
from ringbatch.frontend.texts.bodies import expect_members, optional, optional_count, parsed
from ringbatch.frontend.texts.rows import GivenTexts, expect_finite
from ringbatch.frontend.texts.scores import Scores, adding_up_to_1, each_between_0_and_1
from ringbatch.shm.errors import InvalidRequest, RequestError
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.tensor import Tensor

PATH: Final = "/predict"
OUTPUT: Final = "logits"
"""Output that a model must have."""
_MEMBERS: Final = (
    *("model", "inputs", "raw_scores", "truncate", "truncation_direction"),
    "parameters",
)
FUNCTIONS: Final[dict[str, Callable[[Scores], Scores]]] = {
    "softmax": adding_up_to_1,
    "sigmoid": each_between_0_and_1,
    "none": lambda rows: rows,
}
_FORMS: Final = 'it must be a text, or several as [["a text"], ["another"]]'


@dataclass(frozen=True, slots=True)
class Classifying:
    """Request to classify texts.

    Attributes:
        model: its name; empty if the body has none.
        given: the texts.
        alone: True if the answer is that of one text, and no list of answers.
        function: the name in `FUNCTIONS` of the function that is applied to the scores.
        top: the number of best labels in the answer; 0 for all.
    """

    model: str
    given: GivenTexts
    alone: bool
    function: str
    top: int


def read(body: bytes | bytearray) -> Classifying:
    """Return the request in a body.

    Raises:
        InvalidRequest: with the value found and the right form.
    """
    found = parsed(body)
    expect_members(found, _MEMBERS)
    if found.get("truncation_direction") not in (None, "Right", "right"):
        raise InvalidRequest('"truncation_direction" is not supported; leave it out')
    raw = optional(found, "raw_scores", bool, "true or false")
    parameters = optional(found, "parameters", dict, "an object")
    asked: dict[str, Any] = parameters or {}
    expect_members(asked, ("top_k", "function_to_apply"))
    names = ", ".join(FUNCTIONS)
    function = optional(asked, "function_to_apply", str, f"one of {names}")
    if function is not None and function not in FUNCTIONS:
        raise InvalidRequest(f'"function_to_apply" is {shown(function)}; it must be one of {names}')
    inputs = found.get("inputs")
    return Classifying(
        model=optional(found, "model", str, "the name of a model") or "",
        given=GivenTexts(
            _texts(inputs), truncate=optional(found, "truncate", bool, "true or false")
        ),
        alone=isinstance(inputs, str) and parameters is None,
        function=function or ("none" if raw else "softmax"),
        top=optional_count(asked, "top_k"),
    )


def suits(spec: ModelSpec) -> bool:
    """Return whether a model classifies texts."""
    return spec.tokens is not None and spec.outputs[0].name == OUTPUT


def _texts(inputs: Any) -> list[str]:
    if isinstance(inputs, str):
        return [inputs]
    if inputs is None:
        raise InvalidRequest(f'"inputs" is missing; {_FORMS}')
    if not isinstance(inputs, list) or not inputs:
        raise InvalidRequest(f'"inputs" is no text and no list of any; {_FORMS}')
    if all(isinstance(one, str) for one in inputs):
        raise InvalidRequest(
            f'"inputs" is a list of texts, which here is a pair and no list of several; {_FORMS}'
        )
    return [_text(one, index) for index, one in enumerate(inputs)]


def _text(value: Any, index: int) -> str:
    if isinstance(value, list) and len(value) == 1:
        (value,) = value
    if not isinstance(value, str):
        raise InvalidRequest(f'"inputs" has no text at place {index}; {_FORMS}')
    return value


class ClassifyingRendering:
    """Rendering of a classification, for `ringbatch.frontend.texts.offloaded_texts.TextsRendering`.

    Args:
        asked: the request.
        output: of the model, a vector of numbers with a label for each, or none.
    """

    def __init__(self, asked: Classifying, output: Tensor) -> None:
        self._asked = asked
        (count,) = output.shape
        # As transformers calls them if a model does not.
        self._labels = output.labels or tuple(f"LABEL_{number}" for number in range(count))

    def render(self, results: Results, _batch_id: str) -> Answer:
        """As in `Rendering`."""
        flat = np.concatenate([np.frombuffer(result, np.float32) for _, result in results])
        rows = flat.reshape(-1, len(self._labels))
        scores = FUNCTIONS[self._asked.function](rows)
        expect_finite(scores)
        found = [self._ranked(row) for row in scores]
        return 200, orjson.dumps(found[0] if self._asked.alone else found), JSON

    def render_error(self, error: RequestError, _batch_id: str) -> Answer:
        """As in `Rendering`."""
        return tei.refused(error)

    def _ranked(self, scores: NDArray[np.float32]) -> list[dict[str, Any]]:
        best = np.argsort(-scores, kind="stable")[: self._asked.top or None].tolist()
        return [{"score": float(scores[index]), "label": self._labels[index]} for index in best]
