"""Questions of newcomers: each is answered at an anchor that is at most two clicks from README.

Twenty ask for a setting, a page or a message. The table "Where is ...?" in CONTRIBUTING has the
others: in which file something is.
"""

import posixpath
import re
from typing import Final

import pytest
from documents.pages import README, links, table, text_of
from test_documents import anchors

FILES: Final = 20
ANSWERS: Final = {
    "Which setting bounds a batch?": (
        "docs/reference/settings.md#max_batch_size",
        "max_batch_size",
    ),
    "Which setting bounds the wait of a request?": (
        "docs/reference/settings.md#timeout_s",
        "deadline",
    ),
    "How do I let a request wait for others?": (
        "docs/explanation/batches.md#fixed-wait-for-company-but-not-too-long",
        "max_latency_ms",
    ),
    "Which workers, threads and frontends do I set at first?": (
        "docs/how-to/choose-settings.md#start-values",
        "frontends",
    ),
    "How do I ask for API keys?": (
        "docs/how-to/use-tls-and-keys.md#ask-for-api-keys",
        "api_keys_file",
    ),
    "How do I listen on a Unix socket?": ("docs/how-to/use-unix-sockets.md", "unix_socket"),
    "How do I replace a model without a failed request?": (
        "docs/how-to/upgrade.md#reload-models",
        "ringbatch reload",
    ),
    "How do I upgrade ringbatch itself?": (
        "docs/how-to/upgrade.md#replace-the-engine",
        "ringbatch handover",
    ),
    "Where do Prometheus and the alerts read from?": (
        "docs/how-to/monitor.md#scrape-with-prometheus",
        "control",
    ),
    "Why was this request slow?": (
        "docs/how-to/explain-slow-requests.md#ask-for-the-time-of-one-request",
        "Server-Timing",
    ),
    "What does `queue` mean in a log line?": ("docs/reference/logs.md#phases", "queue"),
    "What does 503 with Retry-After mean?": ("docs/reference/errors.md#statuses", "Retry-After"),
    "Why is a model not ready?": (
        "docs/reference/errors.md#reasons-why-a-model-is-not-ready",
        "is not ready",
    ),
    "May a model run twice for one request?": (
        "docs/explanation/promises.md#a-model-may-run-more-than-once-for-a-request",
        "several times",
    ),
    "What do clients see when a worker dies?": ("docs/explanation/failures.md", "worker"),
    "How much of /dev/shm does an engine take?": (
        "docs/explanation/memory.md#a-worked-example",
        "MiB",
    ),
    "Which names may a model file define?": (
        "docs/reference/model-files.md#names-in-a-python-file",
        "predict",
    ),
    "How do I call a model with numpy arrays?": ("docs/how-to/call-from-python.md", "Client"),
    "How do I replace KServe's batcher?": (
        "docs/how-to/batch-before-a-server.md#replace-kserves-agent",
        "sidecar",
    ),
    "When is another server the better choice?": ("docs/explanation/when-not-to-use.md", "GPU"),
}


def leads_to(page: str) -> set[str]:
    """Return the pages that a page's links lead to."""
    folder = posixpath.dirname(page)
    return {
        posixpath.normpath(posixpath.join(folder, target.partition("#")[0]))
        for target in links(page)
        if target.partition("#")[0].endswith(".md") and "://" not in target
    }


def near() -> set[str]:
    """Return the pages that are at most two clicks from README."""
    first = leads_to(README)
    return first.union(*(leads_to(page) for page in first))


def part(address: str) -> str:
    """Return the text of a page, from its anchor up to the next heading if there is one."""
    page, _, anchor = address.partition("#")
    text = text_of(page)
    for heading in re.finditer(r"^#+ (.+)$", text, re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading[1].lower()).replace(" ", "-")
        if slug == anchor:
            return re.split(r"^#+ ", text[heading.end() :], maxsplit=1, flags=re.MULTILINE)[0]
    return text


@pytest.mark.parametrize("question", ANSWERS)
def test_a_question_is_answered_two_clicks_from_the_readme(question: str) -> None:
    address, answer = ANSWERS[question]
    page, _, anchor = address.partition("#")
    assert page in near()
    assert not anchor or anchor in anchors(page)
    assert answer in part(address)


def test_the_place_of_each_thing_is_one_click_from_the_readme() -> None:
    assert "CONTRIBUTING.md" in leads_to(README)
    assert len(ANSWERS) == 20
    assert len(table("CONTRIBUTING.md", "Where is ...?")) >= FILES
