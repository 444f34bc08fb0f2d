"""Models that come, go and change under load: no request fails, and none gets an old answer.

Tests engine/supervisor/change_orders.py.
"""

import os
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import reload_site
from open_files import open_files
from reload_site import SERVER, SPARE, Load, Site, WaitUntil, goes_on, write_model
from serve.server import COMMAND, Start
from tiers import exhaustive, only

common_site, site, load = reload_site.common_site, reload_site.site, reload_site.load


def test_a_model_is_reloaded_under_load_and_no_answer_is_an_old_one(
    site: Site, load: Load, wait_until: WaitUntil
) -> None:
    deaths = site.server.status().collector["worker_deaths"]
    for number in (2, 3, 4):
        site.write(number)
        done = site.reload()
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == "ringbatch: m: version 1 loaded\n"
        load.least = number
        goes_on(load, wait_until)
    wait_until(lambda: site.workers() == ["m/0"], "the old workers are gone")
    assert site.server.status().collector["worker_deaths"] == deaths


COLLECTOR = "ringbatch: collector"
BROKEN_MODELS = {
    "the file": ("import nothing_that_is_there\n", "No module named 'nothing_that_is_there'"),
    "load()": (
        "def load():\n    raise ValueError('no weights')\ndef predict(x): ...",
        "no weights",
    ),
    "warm-up": (
        "from ringbatch.engine import Tensor\ninputs = outputs = [Tensor('x', 'FP32', [2])]\n"
        "def predict(x):\n    raise ValueError('no such kernel')\n",
        "warm-up of m with x FP32 [1, 2]: ValueError: no such kernel",
    ),
    "the process": (
        "import os\ndef load():\n    os.kill(os.getpid(), 9)\ndef predict(x): ...",
        "worker m/0 process was killed by SIGKILL",
    ),
}


@exhaustive
def test_a_model_that_cannot_be_loaded_leaves_the_old_one_serving(site: Site, load: Load) -> None:
    for text, words in BROKEN_MODELS.values():
        (site.folder / "m.py").write_text(text)
        done = site.reload("m")
        assert (done.returncode, done.stdout) == (1, "")
        assert words in done.stderr
        answer = site.post("/v2/repository/models/m/load")
        assert answer.status == 500
        assert words in answer.error
        assert str(site.folder) not in answer.error
        assert site.number() == 1
    for names, words in ((["x"], 'no model "x"; there is: m'), ([], "m: ")):
        done = site.reload(*names)
        assert done.returncode == 1
        assert words in done.stderr
    site.configure({"m": {"path": "m.py", "workers": 0}})
    assert "found 0, but it must be a whole number" in site.reload().stderr
    site.write(2)
    site.configure({"m": {"path": "m.py"}})
    assert site.reload().returncode == 0
    load.least = 2
    assert site.number() == 2


@exhaustive
def test_a_reload_goes_on_through_any_end_of_the_collector(
    site: Site, load: Load, wait_until: WaitUntil
) -> None:
    (site.folder / "hold").touch()
    site.write(2)
    with ThreadPoolExecutor() as threads:
        reloading = threads.submit(site.reload)
        wait_until(lambda: ("m", "1", "LOADING") in site.index(), "the new one is entered")
        deaths = site.server.status().collector["worker_deaths"]
        killed = site.server.role("collector")
        os.kill(killed, signal.SIGKILL)
        wait_until(
            lambda: site.server.titles().get(COLLECTOR, killed) != killed, "there is another"
        )
        goes_on(load, wait_until)
        assert ("m", "1", "LOADING") in site.index()
        (site.folder / "hold").unlink()
        done = reloading.result()
    assert (done.returncode, done.stderr) == (0, "")
    assert site.server.status().collector["worker_deaths"] == deaths, "nothing is loaded again"
    wait_until(lambda: site.index() == [("m", "1", "READY")], "the old one is gone")
    load.least = 2
    goes_on(load, wait_until)
    wait_until(lambda: site.workers() == ["m/0"], "no other workers are left")
    site.configure({"m": {"path": "m.py", "workers": 1 + SPARE}})
    done = site.reload()
    assert (done.returncode, done.stderr) == (0, ""), "every place is free again"
    site.configure({"m": {"path": "m.py"}})
    assert site.reload().returncode == 0


def copies(site: Site) -> int:
    """Return the number of copies of model files in the supervisor's memory."""
    targets = open_files(site.server.pid).values()
    return sum(target.startswith("/memfd:m.py") for target in targets)


def test_copies_of_files_that_are_served_no_more_are_let_go(
    site: Site, wait_until: WaitUntil
) -> None:
    wait_until(lambda: copies(site) == 1, "what was there at the start is gone")
    for number in (2, 3):
        site.write(number)
        assert site.reload().returncode == 0
    (site.folder / "m.py").write_text("not python (")
    assert site.reload().returncode == 1
    assert site.number() == 3
    wait_until(lambda: site.workers() == ["m/0"], "no other workers are left")
    wait_until(lambda: copies(site) == 1, "only that of the one that serves is left")


def test_a_worker_that_takes_the_place_of_another_serves_the_loaded_file(
    site: Site, wait_until: WaitUntil
) -> None:
    assert not site.file_is_newer()
    site.write(2)
    worker = site.server.role("worker m/0")
    os.kill(worker, signal.SIGKILL)
    assert site.number() == 1, "what lies there now is for a reload to take"
    assert site.server.role("worker m/0") != worker
    assert "the file was changed or removed since it was loaded" in site.server.stderr
    wait_until(site.file_is_newer, "readiness to tell of the other file")
    completed = subprocess.run(
        [*COMMAND, "status", "--pid", str(site.server.pid)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "1 of 1 workers ready; the model file was changed or removed" in completed.stdout
    assert site.reload().returncode == 0
    assert site.number() == 2
    assert not site.file_is_newer()


@exhaustive
def test_a_link_that_leads_elsewhere_is_another_file(site: Site, wait_until: WaitUntil) -> None:
    link = site.folder / "m.py"
    for number in (2, 3):
        write_model(site.folder, number, f"blob{number}")
    link.unlink()
    link.symlink_to("blob2")
    assert site.reload().returncode == 0
    assert site.number() == 2
    link.unlink()
    link.symlink_to("blob3")
    wait_until(site.file_is_newer, "readiness to tell of the other file")
    assert site.number() == 2
    assert site.reload().returncode == 0
    assert site.number() == 3
    assert not site.file_is_newer()


def test_requests_that_the_old_workers_cannot_finish_are_answered_by_the_new_ones(
    site: Site, wait_until: WaitUntil
) -> None:
    (site.folder / "pause").touch()
    killed = site.server.role("worker m/0")
    before = site.server.status().models["m"].requests
    with ThreadPoolExecutor() as threads:
        waiting = [threads.submit(site.ask, "held") for _ in range(2)]
        wait_until(lambda: site.server.status().models["m"].requests == before + 2, "they wait")
        site.write(2)
        assert site.reload().returncode == 0
        assert ("m", "1", "UNLOADING") in site.index()
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: site.index() == [("m", "1", "READY")], "the old one is gone")
        (site.folder / "pause").unlink()
        answers = [held.result() for held in waiting]
    assert [answer.json["predictions"] for answer in answers] == [[[2, "held"]]] * 2
    wait_until(lambda: site.workers() == ["m/0"], "the old worker is gone")


@pytest.mark.parametrize(
    "killing", only({"calm": False, "a collector is killed": True}, "a collector is killed")
)
def test_requests_from_before_are_answered_by_the_old_workers(
    site: Site, wait_until: WaitUntil, killing: bool
) -> None:
    (site.folder / "pause").touch()
    with ThreadPoolExecutor() as threads:
        before = site.server.status().models["m"]
        running = threads.submit(site.ask, "running")
        wait_until(lambda: site.server.status().models["m"].batches != before.batches, "it runs")
        queued = threads.submit(site.ask, "queued")
        wait_until(
            lambda: site.server.status().models["m"].requests == before.requests + 2, "it waits"
        )
        site.write(2)
        assert site.reload().returncode == 0
        if killing:
            os.kill(site.server.role("collector"), signal.SIGKILL)
        new = threads.submit(site.ask, "new")
        (site.folder / "pause").unlink()
        answers = [sent.result().json["predictions"] for sent in (running, queued, new)]
    assert answers == [[[1, "running"]], [[1, "queued"]], [[2, "new"]]]


@exhaustive
def test_a_stop_amid_a_reload_answers_its_callers_and_leaves_nothing(
    start: Start, tmp_path: Path, wait_until: WaitUntil
) -> None:
    write_model(tmp_path, 1)
    site = Site(start({"m": {"path": str(tmp_path / "m.py")}}, **SERVER), tmp_path)
    (site.folder / "hold").touch()
    site.write(2)
    with ThreadPoolExecutor() as threads:
        reloads = [threads.submit(site.reload) for _ in range(2)]
        wait_until(lambda: ("m", "1", "LOADING") in site.index(), "one is under way")
        assert site.server.stop() == 0
        for reloading in reloads:
            assert reloading.result().returncode != 0
    assert site.server.gone()


def test_cpus_that_are_not_there_are_refused_in_words(
    site: Site, load: Load, wait_until: WaitUntil
) -> None:
    site.configure({"m": {"path": "m.py", "cpus": ["4095"]}})
    done = site.reload()
    assert done.returncode == 1
    assert "the configuration names CPUs" in done.stderr
    goes_on(load, wait_until)
