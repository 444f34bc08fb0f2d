"""A model file that takes pictures as KServe's samples send them: base64 of a PNG.

An instance is ``{"data": "<base64>", "target": 0}``, of which `target` is not looked at; the
prediction is the digit that the picture shows. Behind the decoding runs ringbatch's bundled model,
so this needs Pillow and nothing else.
"""

import base64
import binascii
import io
from typing import Any, Final

import numpy as np
from PIL import Image

from ringbatch.engine import InvalidInput
from ringbatch.engine.demo import digits

SIDE: Final = 8
LARGEST_SIDE: Final = 1024
"""A small file can hold a picture that takes gigabytes when it is unpacked."""

load = digits.load


def predict(instances: list[Any]) -> list[int]:
    """The digit in each picture, dark on a light ground."""
    pixels = np.stack([decoded(instance) for instance in instances])
    best: list[int] = digits.predict(pixels).argmax(axis=1).tolist()
    return best


def decoded(instance: Any) -> Any:
    """The pixels of one picture, FP32 [64], 0 for paper and 1 for ink."""
    if not isinstance(instance, dict) or not isinstance(instance.get("data"), str):
        raise InvalidInput('an instance is an object such as {"data": "<base64 of a PNG>"}')
    try:
        png = base64.b64decode(instance["data"], validate=True)
    except binascii.Error as error:
        raise InvalidInput(f"`data` is not base64: {error}") from None
    try:
        with Image.open(io.BytesIO(png), formats=["PNG"]) as picture:
            if max(picture.size) > LARGEST_SIDE:
                raise InvalidInput(f"a picture may have {LARGEST_SIDE} pixels a side at most")
            grey = picture.convert("L").resize((SIDE, SIDE), Image.Resampling.BOX)
    except (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError):
        raise InvalidInput("`data` holds no PNG that can be read") from None
    return 1 - np.asarray(grey, np.float32).reshape(-1) / 255
