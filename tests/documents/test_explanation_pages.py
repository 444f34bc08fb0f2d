"""The pages of explanation: their numbers are those of the code and of the report."""

import re
import tomllib
from dataclasses import fields, replace
from pathlib import Path
from typing import Final

import pytest
from documents.commands import serving, write
from documents.pages import PAGES, README, ROOT, example, prose, section, table, text_of
from segment_fixture import spec
from tiers import exhaustive

from ringbatch.engine.collector.dead_batches import MAX_DEATHS
from ringbatch.engine.collector.quarantine import CRASHED, KILLED, REMEMBERED_NS
from ringbatch.engine.config.dimensions import fitted, layout_of
from ringbatch.engine.config.settings import Config, ModelConfig, ServerConfig
from ringbatch.engine.doctor.case import PROCESS_BYTES
from ringbatch.engine.process.respawn import BUDGET, MOST_AWAITED_NS, MOST_DELAY_S, MOST_RENEWAL_NS
from ringbatch.shm.tensor import Tensor

FAILURES: Final = "docs/explanation/failures.md"
PROMISES: Final = "docs/explanation/promises.md"
MEMORY: Final = "docs/explanation/memory.md"
FIGURES: Final = "docs/explanation/why-shared-memory.md"
OWN: Final = [page for page in PAGES if re.match("docs/(explanation|tutorial)/", page)]
SETTINGS: Final = {field.name for kind in (ModelConfig, ServerConfig) for field in fields(kind)}
MIB: Final = 1 << 20
S: Final = 10**9


def words(page: str) -> str:
    return " ".join(text_of(page).split())


@pytest.mark.parametrize("page", OWN)
def test_every_setting_that_a_page_names_exists(page: str) -> None:
    named = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)(?: = [^`]*)?`", prose(page)))
    assert named <= SETTINGS


# Failures and promises


def test_a_request_that_kills_workers_is_refused_after_as_many_as_the_pages_say() -> None:
    killed = MAX_DEATHS * CRASHED // KILLED
    text = words(FAILURES)
    assert f"the second of {MAX_DEATHS} workers that crashed" in text
    assert f"refused for {REMEMBERED_NS // S} s" in text
    assert f"refused after {killed} of them" in text
    assert f"until {MAX_DEATHS} workers have crashed with the request, or {killed}" in words(
        PROMISES
    )


def test_processes_start_again_as_soon_as_the_page_says() -> None:
    text = words(FAILURES)
    assert f"up to {BUDGET} times a minute" in text
    assert f"a growing delay of up to {MOST_DELAY_S:g} s" in text
    assert MOST_AWAITED_NS == S
    assert "Within a second, while requests wait" in text
    assert f"{MOST_RENEWAL_NS // 60 // S} at most" in text
    assert f"`hang_timeout_s`, {ServerConfig().hang_timeout_s:g} s by default" in text


@exhaustive
def test_the_page_names_every_process_as_ps_does(tmp_path: Path) -> None:
    write(tmp_path, "model.py", example(README, "model.py"))
    command = "ringbatch serve model.py --name MODEL --frontends 1 --grpc-port 0"
    with serving(tmp_path, command, "--control-port", "0") as server:
        shown = {title.removeprefix("ringbatch: ") for title in server.titles()}
    named = {
        name for row in table(FAILURES, "process") for name in re.findall(r"`([^`]+)`", row[0])
    }
    assert {re.sub(r"\d+$", "0", title) for title in shown} == named - {"Client", "/dev/shm"}


# Memory


def segment_mib(server: ServerConfig) -> tuple[float, float]:
    """Return the MiB of the segment, and those beside the payload memory."""
    tensors = [Tensor("x", "FP32", [16])], [Tensor("y", "FP32", [10])]
    layout = layout_of(server, (spec(0, *tensors, name="mnist"),))
    payload = layout.lanes * layout.lane_bytes
    return layout.size / MIB, (layout.size - payload) / MIB


def test_the_worked_example_has_the_sizes_that_the_code_allocates() -> None:
    server = ServerConfig(**tomllib.loads(example(MEMORY, "ringbatch.toml"))["server"])
    layout = layout_of(server, (spec(),))
    all_mib, rest_mib = segment_mib(server)
    rows = {row[0]: row[-1] for row in table(MEMORY, "what")}
    assert rows == {
        "lanes": f"{layout.lanes} lanes",
        "one lane": f"{layout.lane_bytes // MIB}",
        "payload memory": f"{layout.lanes * layout.lane_bytes // MIB}",
        "everything else: slots, rings, counters, model table": f"{rest_mib:.1f}",
        "the segment": f"{all_mib:.1f}",
    }
    assert f"`max_in_flight` slots, {server.max_in_flight} by default" in text_of(MEMORY)


def test_other_settings_take_as_much_as_the_page_says() -> None:
    text, server = words(MEMORY), ServerConfig()
    small, _ = segment_mib(replace(server, max_request_bytes=MIB))
    assert f"`max_request_bytes = {MIB}`, a lane has 4 MiB and the segment {small:.1f} MiB" in text
    _, rest = segment_mib(replace(server, max_in_flight=4096))
    assert f"`max_in_flight = 4096`, everything else takes {rest:.1f} MiB" in text
    fit = fitted(Config(server=server, models=()), 64 * MIB).server
    assert fit.lane_bytes is not None
    assert fit.max_request_bytes is not None
    lane, request = fit.lane_bytes // MIB, fit.max_request_bytes // MIB
    assert f"lanes then have {lane} MiB, and requests at most {request} MiB" in text
    assert f"up to {PROCESS_BYTES // MIB} MiB each" in text


# Figures


def rows(text: str) -> list[list[str]]:
    """Return the cells of all tables in a text, without the spread of figures."""
    lines = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    return [[cell.split(" (")[0].strip() for cell in line] for line in lines]


def test_the_figures_are_those_of_the_report() -> None:
    report = (ROOT / "bench" / "report.md").read_text()
    scenarios = {part.partition("\n")[0]: rows(part) for part in report.split("\n## ")}
    measured = {row[0]: row[1:] for row in scenarios["client"]}
    for workload, peer, connections, *cells in scenarios["frameworks"]:
        if (workload, connections) == ("16 floats", "32"):
            # ringbatch is in both tables of the page.
            measured[f"HTTP {peer}"] = [cells[0], cells[3]]
    calls, _, servers = section(FIGURES, "Figures").partition("Over HTTP")
    (_, _, *called), (_, _, *asked) = rows(calls), rows(servers)
    assert len(called) == 2
    assert {name: figures for name, *figures in called}.items() <= measured.items()
    assert len(asked) > 5
    assert {f"HTTP {name}": figures for name, *figures in asked}.items() <= measured.items()
