"""Whoever asks at a path of another server's is told where it is here."""

import pytest

from ringbatch.frontend.falcon.path_hints import elsewhere, posted_elsewhere

HEALTH = "; health is at /v2/health/live and /v2/health/ready"
PREDICTIONS = "; predictions are at /v1/models/NAME:predict and /v2/models/NAME/infer"
TEXTS = "; of texts there are embeddings at /embed, reranking at /rerank, classes at /predict"
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
        ("/predict", PREDICTIONS),
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
        ("/v1", MODELS),
        ("/models", MODELS),
        ("/openapi.yaml", "; the documentation is at /docs"),
        ("/docs/", "; the documentation is at /docs"),
        ("/v2/models/m/", "; try it without the slash at the end"),
        ("/metricsx", ""),
        ("/", ""),
    ],
)
def test_it_is_said_where(path: str, words: str) -> None:
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
def test_who_posts_to_a_model_itself_is_told_where_predictions_are(path: str, words: str) -> None:
    assert posted_elsewhere(path) == words
