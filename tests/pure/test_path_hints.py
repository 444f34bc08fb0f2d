"""Hints for paths of other servers: the 404 names the path here."""

import pytest

from ringbatch.frontend.falcon.path_hints import elsewhere, posted_elsewhere

HEALTH = "; health is at /v2/health/live and /v2/health/ready"
PREDICTIONS = "; predictions are at /v1/models/NAME:predict and /v2/models/NAME/infer"
TEXTS = "; of texts there are embeddings at /embed, reranking at /rerank, classes at /predict"
CLASSES = "; classes of texts are here while a classifier of texts is served"
NO_TEXT = (
    "; no model here writes text at this path; /v1/completions and /v1/chat/completions are there "
    "while a text generator is served"
)
SERVED = "; it is there while a model of texts is served"
BASE = "; give the client an address that ends with /v1: embeddings are at /v1/embeddings"
BASE_OF_COHERE = "; give the client an address without a path: it adds /v1 or /v2 itself"
METADATA = "; a model's metadata is at /v2/models/NAME"
MODELS = "; the models are listed at /v1/models and /v2/models"


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/metrics", "; metrics are at the control address, where control_port is set"),
        ("/healthz", HEALTH),
        ("/v1/health", HEALTH),
        ("/v2/health", HEALTH),
        ("/v2/health/ready/", HEALTH),
        ("/ping", HEALTH),
        ("/predict", PREDICTIONS + CLASSES),
        ("/predictions/m", PREDICTIONS),
        ("/v1/predict", PREDICTIONS),
        ("/v1/models/m/predict", PREDICTIONS),
        ("/v1/model/m:predict", PREDICTIONS),
        ("/v1/models/m:predict/", PREDICTIONS),
        ("/v2/models/m/predict", PREDICTIONS),
        ("/v2/models/m/infer/", PREDICTIONS),
        ("/v2/models/m/versions/1/generate", PREDICTIONS),
        ("/v1/models/m/metadata", METADATA),
        ("/v2/models/m/versions/1/metadata", METADATA),
        ("/rerank", SERVED),
        ("/v2/rerank", SERVED),
        ("/v1/embeddings", SERVED),
        ("/embeddings", BASE),
        ("/v1/v1/embeddings", BASE),
        ("/v2/embed/embeddings", BASE),
        ("/v1/v2/embed", BASE_OF_COHERE),
        ("/v2/v1/rerank", BASE_OF_COHERE),
        ("/v1/completions", NO_TEXT),
        ("/chat/completions", NO_TEXT),
        ("/v1", MODELS),
        ("/models", MODELS),
        ("/openapi.yaml", "; the documentation is at /docs"),
        ("/docs/", "; the documentation is at /docs"),
        ("/v2/models/m/", "; try it without the slash at the end"),
        ("/metricsx", ""),
        ("/", ""),
    ],
)
def test_the_right_path_is_given(path: str, words: str) -> None:
    assert elsewhere(path) == words


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/", PREDICTIONS + TEXTS),
        ("/v1/models", PREDICTIONS),
        ("/v1/models/m", PREDICTIONS),
        ("/v2/models/m/versions/1", PREDICTIONS),
        ("/v2/models/m/ready", ""),
        ("/docs", ""),
    ],
)
def test_a_post_to_a_model_itself_gets_the_path_of_predictions(path: str, words: str) -> None:
    assert posted_elsewhere(path) == words
