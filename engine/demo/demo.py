"""`ringbatch demo`: serves the digits model, sends it real pictures, and shows what happened.

It is a user like any other: it starts the server as a command, speaks HTTP to it, reads the
statistics that `ringbatch status` reads, and stops it with SIGTERM. Every answer is compared with
what the model gives in this process for the same picture, so a lost or mixed-up answer is seen.
"""

import asyncio
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ringbatch.engine.demo import client as demo_client
from ringbatch.engine.demo import digits
from ringbatch.engine.demo import report as demo_report
from ringbatch.engine.demo.client import Answer
from ringbatch.engine.demo.report import Ink
from ringbatch.engine.demo.server import DemoFailed, left_behind, served
from ringbatch.engine.report import status
from ringbatch.shm.errors import RingbatchError
from ringbatch.shm.shm_objects import DIRECTORY

MODEL: Final = "digits"
START_LIMIT_S: Final = 240.0
ACCURACY_MIN: Final = 0.97
TOLERANCE: Final = 1e-4
SHOWN_DIGITS: Final = 4
SHOWN_PROBLEMS: Final = 5
INTERRUPTED: Final = 130


@dataclass(frozen=True, slots=True)
class HeldOut:
    """The pictures that the model never saw in training.

    Attributes:
        images: [count, 64], 0 to 16.
        labels: [count], the digits that they are.
    """

    images: NDArray[np.uint8]
    labels: NDArray[np.uint8]


def run(requests: int, clients: int) -> int:
    """Run the whole demo; it ends by itself, and so does the server.

    It is called in the main thread, as it handles SIGTERM like Ctrl-C.

    Args:
        requests: how many pictures to send, one a request, at least one.
        clients: how many connections send them, at least one.

    Returns:
        The exit status: 0 if everything was right, 1 if something was not, 2 if the
        arguments make no sense, 130 if it was interrupted.
    """
    if requests < 1 or clients < 1:
        return _fail(f"at least one request and one client, not {requests} and {clients}", 2)
    earlier_handler = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with served() as server:
            port = server.wait_ready(START_LIMIT_S)
            print(f"serving {MODEL} on http://{demo_client.HOST}:{port}, process {server.pid}")
            problems = _demonstrate(server.pid, port, requests, clients)
            problems += server.stop()
        if names := left_behind(server.pid):
            problems.append(f"left behind in {DIRECTORY}: {', '.join(names)}")
    except DemoFailed as reason:
        return _fail(str(reason), 1)
    except KeyboardInterrupt:
        return _fail("interrupted; the server is stopped", INTERRUPTED)
    finally:
        signal.signal(signal.SIGTERM, earlier_handler)
    if problems:
        return _fail("\n".join([*problems, *server.last_words()]), 1)
    print("every answer was there and its own; the server stopped and left nothing behind")
    return 0


def _fail(reason: str, exit_status: int) -> int:
    sys.stdout.flush()
    print(f"ringbatch demo: {reason}", file=sys.stderr)
    return exit_status


def held_out() -> HeldOut:
    """Return the pictures that lie beside the weights."""
    with np.load(Path(__file__).with_name("digits.npz"), allow_pickle=False) as archive:
        return HeldOut(archive["held_out_images"], archive["held_out_labels"])


def probabilities(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return [count, 10]: the model's answers in this process for pictures [count, 64], 0 to 16."""
    digits.load()
    return digits.predict(np.asarray(images / demo_report.PIXEL_MAX, np.float32))


def _demonstrate(pid: int, port: int, requests: int, clients: int) -> list[str]:
    """Send, print, and return the problems, in words."""
    pictures = held_out()
    sent = np.arange(requests) % len(pictures.images)
    ink = demo_report.ink_for(sys.stdout.encoding)
    started_at_ns = time.monotonic_ns()
    answers, reasons = _send(port, pictures.images, sent, clients, ink)
    elapsed_ns = time.monotonic_ns() - started_at_ns

    scores, wrong = judge(answers, probabilities(pictures.images)[sent])
    problems = summary([*reasons, *wrong])
    read = ~np.isnan(scores[:, 0])
    if read.any():
        problems += _print_accuracy(pictures, sent[read], scores[read], ink)
        latencies_ns = [answer.latency_ns for answer in answers if answer]
        rate = len(latencies_ns) / (elapsed_ns / 1e9)
        print(f"rate       {rate:,.0f} answers/s, the work of this client included")
        print(f"latency    {demo_report.latencies(latencies_ns)}")
        problems += _print_batches(pid, ink)
    return problems


def _send(
    port: int, images: NDArray[np.uint8], sent: NDArray[np.intp], clients: int, ink: Ink
) -> tuple[list[Answer | None], list[str]]:
    """Send the images with these numbers, with progress; return as `demo_client.send_all`."""
    messages = [demo_client.request(MODEL, image) for image in images]
    requests = [messages[number] for number in sent]
    print(f"sending {len(sent):,} pictures of digits from {min(clients, len(sent))} clients\n")
    progress = demo_report.Progress(len(sent), sys.stdout, ink, time.monotonic_ns)
    try:
        return asyncio.run(
            demo_client.send_all(port, requests, clients, time.monotonic_ns, progress.step)
        )
    finally:
        progress.finish()


def judge(
    answers: Sequence[Answer | None], expected: NDArray[np.float32]
) -> tuple[NDArray[np.float32], list[str]]:
    """Read the answers and compare each with the expected one.

    Args:
        answers: [count], None if there is none.
        expected: [count, 10], the probabilities in the same order.

    Returns:
        The probabilities that were answered, [count, 10], NaN if they cannot be read; and a
        line for each request whose answer is missing, refused, unreadable or not its own.
    """
    scores = np.full(expected.shape, np.nan, np.float32)
    problems = []
    for place, answer in enumerate(answers):
        if answer is None:
            problems.append(f"request {place}: no answer")
        elif answer.status != 200:
            text = answer.body[:200].decode(errors="replace")
            problems.append(f"request {place}: status {answer.status}: {text}")
        else:
            try:
                scores[place] = demo_client.parse_prediction(answer.body).scores
            except ValueError as error:
                problems.append(f"request {place}: {error}")
                continue
            if not np.allclose(scores[place], expected[place], rtol=0, atol=TOLERANCE):
                problems.append(f"request {place}: the answer is not that of its picture")
    return scores, problems


def summary(problems: Sequence[str]) -> list[str]:
    """Return the first few different problems, how often each came, and how many more there are."""
    counts = Counter(problems)
    lines = [
        text if count == 1 else f"{text} ({count:,} times)"
        for text, count in islice(counts.items(), SHOWN_PROBLEMS)
    ]
    more = len(counts) - len(lines)
    return [*lines, f"and {more:,} more"] if more else lines


def _print_accuracy(
    pictures: HeldOut, sent: NDArray[np.intp], scores: NDArray[np.float32], ink: Ink
) -> list[str]:
    guesses, truths = scores.argmax(axis=1), pictures.labels[sent]
    samples = [
        demo_report.Sample(
            pictures.images[sent[place]],
            int(guesses[place]),
            float(scores[place].max()),
            int(truths[place]),
        )
        for place in demo_report.chosen(guesses.tolist(), truths.tolist(), SHOWN_DIGITS)
    ]
    print("", *demo_report.gallery(samples, ink), "", sep="\n")
    share, unlike = float(np.mean(guesses == truths)), len(np.unique(sent))
    print(f"accuracy   {share:.2%} of {len(sent):,} answers, to {unlike} pictures never trained on")
    # Of fewer pictures than all, a share below the limit can be mere chance.
    if share < ACCURACY_MIN and unlike == len(pictures.images):
        return [f"accuracy {share:.2%}, less than {ACCURACY_MIN:.0%}"]
    return []


def _print_batches(pid: int, ink: Ink) -> list[str]:
    try:
        model = status.snapshot(pid).models.get(MODEL)
    except RingbatchError as error:
        return [f"no statistics of the server: {error}"]
    if model is None or not sum(model.batches.values()):
        return [f"the server's statistics know of no batch of {MODEL}"]
    count = sum(model.batches.values())
    print(f"batches    {count:,}, of {model.rows / count:.1f} pictures on average")
    print(f"closed     {demo_report.reasons(model.batches)}")
    print("\npictures in a batch, and how many batches had that many:")
    print("\n".join(demo_report.bars(model.batch_rows, ink)))
    print()
    return []
