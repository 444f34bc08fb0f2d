"""Small models of texts, as directories: a tokenizer, a BERT encoder of a few numbers, and what
sentence-transformers says of them."""

import json
from pathlib import Path
from typing import Any, Final

import numpy as np
from examples.minilm_to_onnx import bert
from numpy.typing import NDArray
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

LIMIT: Final = 24
DIMS: Final = 16
WORDS: Final = ("the", "cat", "sat", "on", "mat", "dog", "ran", "far", "away", "home")
VOCABULARY: Final = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS)
CONFIG: Final[dict[str, Any]] = {
    "architectures": ["BertModel"],
    "hidden_size": DIMS,
    "intermediate_size": 32,
    "layer_norm_eps": 1e-12,
    "max_position_embeddings": 64,
    "model_type": "bert",
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "pad_token_id": 0,
    "type_vocab_size": 2,
    "vocab_size": len(VOCABULARY),
}


def tokenizer() -> Tokenizer:
    """Return a tokenizer with a token for each word, and BERT's special tokens."""
    made = Tokenizer(models.WordLevel({w: n for n, w in enumerate(VOCABULARY)}, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    # A tokenizer file's padding and truncation are leftovers of the training, to be ignored.
    made.enable_padding(length=8)
    made.enable_truncation(8)
    return made


def weights(labels: int = 0, seed: int = 0) -> dict[str, NDArray[np.float32]]:
    """Return random weights by transformers' names, with a classifier if there are labels."""
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (len(VOCABULARY), DIMS),
        "embeddings.position_embeddings.weight": (CONFIG["max_position_embeddings"], DIMS),
        "embeddings.token_type_embeddings.weight": (2, DIMS),
    }
    dense = {"pooler.dense": (DIMS, DIMS), "classifier": (labels, DIMS)} if labels else {}
    norms = ["embeddings.LayerNorm"]
    for number in range(CONFIG["num_hidden_layers"]):
        at = f"encoder.layer.{number}."
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            dense[f"{at}attention.{part}"] = DIMS, DIMS
        dense |= {f"{at}intermediate.dense": (32, DIMS), f"{at}output.dense": (DIMS, 32)}
        norms += [f"{at}attention.output.LayerNorm", f"{at}output.LayerNorm"]
    for name, (out, into) in dense.items():
        shapes |= {f"{name}.weight": (out, into), f"{name}.bias": (out,)}
    for name in norms:
        shapes |= {f"{name}.weight": (DIMS,), f"{name}.bias": (DIMS,)}
    random = np.random.default_rng(seed)
    return {name: random.normal(size=shape).astype("f4") for name, shape in shapes.items()}


def write_directory(
    folder: Path, *, labels: int = 0, pooling: str | None = "mean_tokens", normalize: bool = True
) -> Path:
    """Write a model of texts to a new folder: an embedder, or a classifier of so many labels."""
    folder.mkdir(parents=True)
    tokenizer().save(str(folder / "tokenizer.json"))
    (folder / "model.onnx").write_bytes(bert(weights(labels), CONFIG))
    config = CONFIG
    if labels:
        config = CONFIG | {
            "architectures": ["BertForSequenceClassification"],
            "id2label": {str(number): f"label-{number}" for number in range(labels)},
        }
    write_json(folder / "config.json", config)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": LIMIT})
    if pooling and not labels:
        kinds = ["Transformer", "Pooling", *(["Normalize"] * normalize)]
        paths = ["", "1_Pooling", "2_Normalize"]
        modules = [
            {"idx": n, "name": str(n), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for n, (kind, path) in enumerate(zip(kinds, paths, strict=False))
        ]
        write_json(folder / "modules.json", modules)
        write_json(folder / "1_Pooling" / "config.json", {f"pooling_mode_{pooling}": True})
    return folder


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file of a model's folder."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value))


def tokens(*texts: Any) -> list[list[int]]:
    """The tokens of each text, or pair, none left out beyond the limit of the model."""
    made = tokenizer()
    made.no_padding()
    made.enable_truncation(LIMIT)
    return [encoding.ids for encoding in made.encode_batch(list(texts))]


def token_vectors(folder: Path, *texts: Any) -> list[NDArray[np.float32]]:
    """Return the encoder's vectors of each text's tokens, each text run alone.

    A classifier gives one vector for each text.
    """
    import onnxruntime

    session = onnxruntime.InferenceSession(str(folder / "model.onnx"))
    made = tokenizer()
    made.no_padding()
    made.enable_truncation(LIMIT)
    found = []
    for encoding in made.encode_batch(list(texts)):
        ids = np.array([encoding.ids])
        kinds = np.array([encoding.type_ids])
        feed = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": kinds}
        found.append(session.run(None, feed)[0][0])
    return found


def vectors(folder: Path, *texts: str) -> NDArray[np.float32]:
    """Return each text's vector, run alone: the mean of its tokens, scaled to length 1."""
    means = np.array([found.mean(axis=0) for found in token_vectors(folder, *texts)])
    scaled: NDArray[np.float32] = means / np.linalg.norm(means, axis=1, keepdims=True)
    return scaled
