"""Whoever asks at a path of another server's is told where it is here."""

import pytest

from ringbatch.frontend.falcon.elsewhere import elsewhere


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/metrics", "; metrics are at the control address, where control_port is set"),
        ("/healthz", "; health is at /v2/health/live and /v2/health/ready"),
        ("/ping", "; health is at /v2/health/live and /v2/health/ready"),
        ("/predict", "; predictions are at /v1/models/NAME:predict and /v2/models/NAME/infer"),
        (
            "/predictions/m",
            "; predictions are at /v1/models/NAME:predict and /v2/models/NAME/infer",
        ),
        (
            "/v1/models/m/predict",
            "; predictions are at /v1/models/NAME:predict and /v2/models/NAME/infer",
        ),
        ("/openapi.yaml", "; the documentation is at /docs"),
        ("/docs/", "; the documentation is at /docs"),
        ("/metricsx", ""),
        ("/v1/models/m:predict/", ""),
        ("/", ""),
    ],
)
def test_it_is_said_where(path: str, words: str) -> None:
    assert elsewhere(path) == words
