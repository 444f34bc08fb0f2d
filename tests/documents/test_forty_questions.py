"""Forty questions of readers: README leads to each answer in two clicks at most.

Twenty are about use, twenty ask for the file of a piece of the code. A click is a link of the page
before; the last page, or its section, holds the answer.
"""

import os.path
import re
from typing import Final

import pytest
from documents.pages import README, ROOT, headings, links, section, text_of

HOW_TO: Final = "docs/how-to"
REFERENCE: Final = "docs/reference"
SETTINGS: Final = f"{REFERENCE}/settings.md"
ERRORS: Final = f"{REFERENCE}/errors.md"
OTHERS: Final = "docs/coming-from"
PLACES: Final = "CONTRIBUTING.md"
ROOMS: Final = "ARCHITECTURE.md"

USE: Final = {
    "Which setting bounds a batch?": ([SETTINGS], "max_batch_size"),
    "How long does a batch wait for company?": ([SETTINGS], "max_latency_ms"),
    "Which setting bounds a request's body?": ([SETTINGS], "max_request_bytes"),
    "How are labels of a classifier named?": ([SETTINGS], "class_names"),
    "How does a client shorten its deadline?": ([f"{REFERENCE}/http-api.md"], "X-Request-Timeout"),
    "Which gRPC methods are there?": ([f"{REFERENCE}/grpc.md"], "ModelInfer"),
    'What means "too many requests are waiting"?': ([ERRORS], "too many requests are waiting"),
    'What means "the process that ran the request died"?': ([ERRORS], "the process that ran the"),
    "Which status has an unknown model?": ([ERRORS], "ModelNotFound"),
    "Which metric shows how long an answer takes?": (
        [f"{REFERENCE}/metrics.md"],
        "ringbatch_model_answer_seconds",
    ),
    "What is `cause` in the access log?": ([f"{REFERENCE}/logs.md"], "`cause`"),
    "Which names may a model file define?": ([f"{REFERENCE}/model-files.md"], "`predict`"),
    "Which flags has `ringbatch bench`?": ([f"{REFERENCE}/commands.md"], "--slo-ms"),
    "How is an engine replaced without a failure?": ([f"{HOW_TO}/upgrade.md"], "handover"),
    "How are two versions served?": ([f"{HOW_TO}/upgrade.md#serve-several-versions"], "versions"),
    "How is a pickle served?": ([f"{HOW_TO}/serve-scikit-learn.md"], "--trust-pickle"),
    "How large must a container's /dev/shm be?": ([f"{HOW_TO}/run-in-a-container.md"], "shm-size"),
    "How do two GPUs share a model?": ([f"{HOW_TO}/use-gpus.md"], "devices = "),
    "May a model run twice for a request?": (["docs/explanation/promises.md"], "more than once"),
    "What is TorchServe's maxBatchDelay here?": (
        [f"{OTHERS}/index.md", f"{OTHERS}/torchserve.md"],
        "max_latency_ms",
    ),
}
CODE: Final = {
    "gzip decoded": ([PLACES], "frontend/http/content_coding.py"),
    "a batch closed": ([PLACES], "engine/collector/batching.py"),
    "a dead worker's batch taken back": ([PLACES], "engine/collector/quarantine.py"),
    "a failed batch halved": ([PLACES], "engine/worker/retry.py"),
    "V2's binary header read": ([PLACES], "frontend/v2/request.py"),
    "a metric named": ([PLACES], "frontend/metrics/exposition.py"),
    "a setting of the server defined": ([PLACES], "engine/config/serving.py"),
    "an error given its status": ([PLACES], "frontend/codec/outcome.py"),
    "a model file opened": ([PLACES], "engine/runtimes/opening.py"),
    "a process started again": ([PLACES], "engine/supervisor/process_manager.py"),
    "a check of the doctor": ([PLACES], "engine/doctor/examination.py"),
    "systemd's watchdog fed": ([PLACES], "engine/systemd/service.py"),
    "the states of a slot": ([PLACES], "shm/slot.py"),
    "the fast lane": ([PLACES], "frontend/http/fast_lane.py"),
    "a test of a runtime": ([PLACES], "tests/local/test_runtime_onnx.py"),
    "the decision about readiness": ([ROOMS], "shm/readiness.py"),
    "the delay before a restart": ([ROOMS], "engine/process/respawn.py"),
    "a batch run by a model": ([ROOMS], "engine/worker/runner.py"),
    "a large tensor received into its slot": ([ROOMS], "frontend/request/arrival.py"),
    "the simulation of the engine": ([PLACES], "tests/simulation"),
}


@pytest.mark.parametrize("question", USE)
def test_a_question_of_use_is_answered(question: str) -> None:
    clicks, answer = USE[question]
    assert answer in reached(clicks), question


@pytest.mark.parametrize("question", CODE)
def test_the_file_of_a_piece_is_found(question: str) -> None:
    clicks, file = CODE[question]
    assert file in reached(clicks), question
    assert (ROOT / file).exists(), question


def test_there_are_forty_questions() -> None:
    assert (len(USE), len(CODE)) == (20, 20)


def reached(clicks: list[str]) -> str:
    """Click from README on and return the text of the last page, or of its section."""
    assert len(clicks) <= 2
    page, anchor = README, ""
    for click in clicks:
        target, _, anchor = click.partition("#")
        there = {
            os.path.normpath(os.path.join(os.path.dirname(page), link.partition("#")[0]))
            for link in links(page)
        }
        assert target in there, f"{page} has no link to {target}"
        page = target
    if not anchor:
        return text_of(page)
    (title,) = [h for h in headings(page) if re.sub(r"\W+", "-", h.lower()) == anchor]
    return section(page, title)
