"""Small text decoders in ONNX files by optimum's names, with random weights; the same in numpy."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from text_generators import END, TEMPLATE, tokenizer

Array = NDArray[Any]
HEADS: Final = 2
SIZE: Final = 4
WIDTH: Final = HEADS * SIZE
LAYERS: Final = 2
LIMIT: Final = 64
FLATTENING: Final = np.float32(64)
"""Divides scores, which are far apart otherwise."""


@dataclass(frozen=True)
class Weights:
    """Weights of a decoder: attention alone, with learned positions."""

    tokens: Array
    positions: Array
    layers: list[dict[str, Array]]

    @property
    def vocabulary(self) -> int:
        return len(self.tokens)


def weights(vocabulary: int, seed: int = 0) -> Weights:
    random = np.random.default_rng(seed)

    def made(*shape: int) -> Array:
        return random.normal(size=shape).astype(np.float32)

    layers = [{name: made(WIDTH, WIDTH) for name in "qkvo"} for _ in range(LAYERS)]
    return Weights(made(vocabulary, WIDTH), made(LIMIT, WIDTH), layers)


def scores(model: Weights, tokens: list[int]) -> Array:
    """Scores of the token behind a text, from the whole text at once."""
    x = (model.tokens[tokens] + model.positions[: len(tokens)]).astype(np.float64)
    causal = np.tril(np.ones((len(tokens), len(tokens)), bool))
    for layer in model.layers:
        q, k, v = ((x @ layer[name]).reshape(-1, HEADS, SIZE).transpose(1, 0, 2) for name in "qkv")
        weight = np.where(causal, q @ k.transpose(0, 2, 1) / np.sqrt(SIZE), -1e9)
        weight = np.exp(weight - weight.max(-1, keepdims=True))
        weight /= weight.sum(-1, keepdims=True)
        x = x + (weight @ v).transpose(1, 0, 2).reshape(-1, WIDTH) @ layer["o"]
    found: Array = (x @ model.tokens.T)[-1] / FLATTENING
    return found


def continued(
    model: Weights, tokens: list[int], count: int, ends: tuple[int, ...] = ()
) -> list[int]:
    """The likeliest tokens behind a text, up to one that ends it."""
    text = list(tokens)
    while len(text) - len(tokens) < count and len(text) < LIMIT:
        text.append(int(scores(model, text).argmax()))
        if text[-1] in ends:
            break
    return text[len(tokens) :]


def graph(model: Weights, *, merged: bool = False, positions: bool = True) -> onnx.ModelProto:
    """The decoder as optimum exports it.

    Args:
        model: its weights.
        merged: whether it has the input of merged decoders.
        positions: whether positions are an input; else they follow from the mask.
    """
    nodes: list[onnx.NodeProto] = []
    constants: list[onnx.TensorProto] = []

    def constant(name: str, value: Array) -> str:
        constants.append(numpy_helper.from_array(value, name))
        return name

    def node(kind: str, *inputs: str, to: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(kind, [*inputs], [to], **attributes))
        return to

    def whole(*values: int) -> Array:
        return np.array(values, np.int64)

    node("Shape", "input_ids", to="ids_shape")
    node("Gather", "ids_shape", constant("one", np.array(1, np.int64)), to="new")
    node("Shape", "attention_mask", to="mask_shape")
    node("Gather", "mask_shape", "one", to="total")
    node("Sub", "total", "new", to="past")
    where = "position_ids"
    if not positions:
        node("CumSum", "attention_mask", "one", to="summed")
        node("Sub", "summed", "one", to="behind")
        node("Max", "behind", constant("zero", np.array(0, np.int64)), to="all_positions")
        axis = constant("axis", whole(1))
        node("Unsqueeze", "past", constant("first", whole(0)), to="from")
        node("Unsqueeze", "total", "first", to="until")
        where = node("Slice", "all_positions", "from", "until", axis, to="own_positions")
    node("Gather", constant("tokens", model.tokens), "input_ids", to="embedded")
    node("Gather", constant("positions", model.positions), where, to="placed")
    x = node("Add", "embedded", "placed", to="x")
    zero = constant("start", np.array(0, np.int64))
    node("Range", "past", "total", "one", to="rows")
    node("Range", zero, "total", "one", to="columns")
    node("Unsqueeze", "rows", constant("last", whole(1)), to="rows_column")
    node("LessOrEqual", "columns", "rows_column", to="causal")
    nodes.append(helper.make_node("Cast", ["attention_mask"], ["mask_bool"], to=TensorProto.BOOL))
    node("Unsqueeze", "mask_bool", constant("heads_axes", whole(1, 2)), to="mask_wide")
    node("And", "mask_wide", "causal", to="seen")
    split = constant("split", whole(0, 0, HEADS, SIZE))
    join = constant("join", whole(0, 0, WIDTH))
    low = constant("low", np.array(-1e9, np.float32))
    root = constant("root", np.array(np.sqrt(SIZE), np.float32))
    inputs, outputs = [], []
    for number, layer in enumerate(model.layers):
        own = {name: constant(f"{name}{number}", value) for name, value in layer.items()}
        parts = {}
        for name in "qkv":
            flat = node("MatMul", x, own[name], to=f"{name}_flat{number}")
            apart = node("Reshape", flat, split, to=f"{name}_apart{number}")
            parts[name] = node("Transpose", apart, to=f"{name}_heads{number}", perm=[0, 2, 1, 3])
        for name, word in (("k", "key"), ("v", "value")):
            past, present = f"past_key_values.{number}.{word}", f"present.{number}.{word}"
            parts[name] = node("Concat", past, parts[name], to=present, axis=2)
            shape: list[str | int | None] = ["rows", HEADS, "tokens", SIZE]
            inputs.append(helper.make_tensor_value_info(past, TensorProto.FLOAT, shape))
            outputs.append(helper.make_tensor_value_info(present, TensorProto.FLOAT, shape))
        turned = node("Transpose", parts["k"], to=f"turned{number}", perm=[0, 1, 3, 2])
        raw = node("MatMul", parts["q"], turned, to=f"raw{number}")
        scaled = node("Div", raw, root, to=f"scaled{number}")
        masked = node("Where", "seen", scaled, low, to=f"masked{number}")
        weight = node("Softmax", masked, to=f"weight{number}", axis=-1)
        mixed = node("MatMul", weight, parts["v"], to=f"mixed{number}")
        back = node("Transpose", mixed, to=f"back{number}", perm=[0, 2, 1, 3])
        flat = node("Reshape", back, join, to=f"flat{number}")
        more = node("MatMul", flat, own["o"], to=f"more{number}")
        x = node("Add", x, more, to=f"x{number}")
    turned = constant("tokens_turned", np.ascontiguousarray(model.tokens.T) / FLATTENING)
    scored = node("MatMul", x, turned, to="scored" if merged else "logits")
    names = ["input_ids", "attention_mask", *(["position_ids"] if positions else [])]
    inputs = [
        *(
            helper.make_tensor_value_info(n, TensorProto.INT64, ["rows", f"{n}_tokens"])
            for n in names
        ),
        *inputs,
    ]
    if merged:
        inputs.append(helper.make_tensor_value_info("use_cache_branch", TensorProto.BOOL, [1]))
        # The other branch gives nothing.
        node("Greater", "past", zero, to="has_past")
        node("Equal", "use_cache_branch", "has_past", to="right_branch")
        nodes.append(helper.make_node("Cast", ["right_branch"], ["share"], to=TensorProto.FLOAT))
        node("Mul", scored, "share", to="logits")
    logits: list[str | int | None] = ["rows", "new", model.vocabulary]
    outputs.insert(0, helper.make_tensor_value_info("logits", TensorProto.FLOAT, logits))
    made = helper.make_graph(nodes, "decoder", inputs, outputs, constants)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def write_decoder(folder: Path, model: Weights | None = None, **more: Any) -> Weights:
    """A text generator of bytes in a new folder, as optimum exports it; return its weights."""
    folder.mkdir(parents=True)
    made = tokenizer()
    made.save(str(folder / "tokenizer.json"))
    model = model or weights(made.get_vocab_size())
    onnx.save(graph(model, **more), str(folder / "model.onnx"))
    config = {"eos_token": END, "model_max_length": LIMIT, "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "config.json").write_text(json.dumps({"vocab_size": model.vocabulary}))
    (folder / "generation_config.json").write_text("{}")
    return model
