"""``ringbatch doctor`` on this host, and on what can be made of it: less memory, fewer
descriptors, a port that is taken, an engine that was killed."""

import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest
from tiers import exhaustive

from ringbatch.engine.config.document import bundled
from ringbatch.engine.config.settings import ServerConfig
from ringbatch.engine.doctor.examination import CHECKS, gather, judge
from ringbatch.engine.doctor.facts import WakeUps
from ringbatch.engine.doctor.host_files import HostFiles
from ringbatch.engine.doctor.probes import doors, features
from ringbatch.shm.shm_objects import DIRECTORY, dead_engine_objects

APART: Final = f"ringbatch-doctor-{os.getpid()}"
PROGRAM: Final = f"""
import sys
from ringbatch.shm import shm_objects
shm_objects.PREFIX = {APART!r}
from ringbatch.engine.__main__ import main
sys.exit(main())
"""
"""The command, with names in /dev/shm apart from those of all other engines."""
AS_NOBODY: Final = f"""
import email.parser, encodings.idna, os, sys
import ringbatch.engine.command.cli
import ringbatch.engine.doctor.examination
from ringbatch.engine.__main__ import main
from ringbatch.shm import shm_objects
shm_objects.PREFIX = {APART!r}
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
sys.exit(main())
"""
"""Program that runs the doctor as an ordinary user.

That user may not be allowed to read where Python lies.
"""
NOT_FINE: Final = ("warning", "error")
HELD: Final = f"""
import sys
from ringbatch.shm import shm_objects
shm_objects.PREFIX = {APART!r}
from ringbatch.shm.layout import PAGE, Layout
from ringbatch.shm.segment import Segment
layout = Layout(lanes=1, slots=2, lane_bytes=PAGE, workers=1, models=1, model_table_bytes=PAGE)
segment = Segment.create(layout, ())
print(segment.name, flush=True)
sys.stdin.read()
"""
"""A supervisor, as far as /dev/shm knows."""


def doctor(
    *arguments: str | Path,
    program: tuple[str | Path, ...] = (sys.executable, "-c", PROGRAM),
    **options: Any,
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*program, "doctor", *arguments], capture_output=True, text=True, check=False, **options
    )


def findings_of(*arguments: str | Path, **options: Any) -> dict[str, list[dict[str, str]]]:
    """Run the doctor, which must not fail itself, and return its findings by check."""
    done = doctor(*arguments, "--json", **options)
    assert done.stderr == ""
    document = json.loads(done.stdout)
    by_check: dict[str, list[dict[str, str]]] = {}
    for finding in document["findings"]:
        by_check.setdefault(finding["check"], []).append(finding)
    assert "doctor" not in by_check
    errors = [f for f in document["findings"] if f["level"] == "error"]
    assert done.returncode == bool(errors)
    return by_check


@contextmanager
def supervisor() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that has a segment, and the segment's name."""
    with subprocess.Popen(
        [sys.executable, "-c", HELD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        name = process.stdout.readline().strip()
        try:
            yield process, name
        finally:
            process.kill()
            for left in (*DIRECTORY.glob(f"{APART}.*"), *DIRECTORY.glob(f"sem.{APART}.*")):
                left.unlink(missing_ok=True)


def test_this_host_is_examined_in_words_and_objects() -> None:
    done = doctor("--port", "0")
    assert done.stderr == ""
    assert re.fullmatch(
        r"\d+ errors?, \d+ warnings?, \d+ notes?; \d+ ok", done.stdout.splitlines()[-1]
    )
    found = findings_of("--port", "0")
    assert len(found) >= len(CHECKS)
    for findings in found.values():
        assert all(finding["why"] and finding["found"] for finding in findings)
        assert all(finding["do"] for finding in findings if finding["level"] in NOT_FINE)


@exhaustive
def test_it_leaves_nothing_behind() -> None:
    assert findings_of("--port", "0")["semaphores"][0]["level"] == "ok"
    assert [entry.name for entry in DIRECTORY.iterdir() if f"{APART}." in entry.name] == []


def test_the_doctor_finds_no_fault_in_features_that_engines_use_here() -> None:
    """The tests beside this one start engines here, so nothing that they need is refused."""
    found = features()
    assert (found.semaphores, found.pipes, found.pidfd, found.locks) == ("", "", "", "")
    assert (found.memory_files, found.shared_ports) == ("", "")


def test_the_wake_ups_are_measured() -> None:
    facts, faults = gather(bundled(), HostFiles())
    assert faults == []
    assert isinstance(facts.wake_ups, WakeUps)
    assert facts.wake_ups.count > 0
    assert 0 < facts.wake_ups.median_ns <= facts.wake_ups.p99_ns
    assert [f for f in judge(facts, bundled(), asked=False) if f.check == "doctor"] == []


def test_a_wrong_configuration_is_a_finding_and_the_host_is_examined_all_the_same(
    tmp_path: Path,
) -> None:
    path = tmp_path / "ringbatch.toml"
    path.write_text("[server]\nport = 'x'\nfrontends = 0\n[models.m]\npath = 'none.py'\n")
    found = findings_of("--config", path)
    assert [finding["level"] for finding in found["configuration"]] == ["error"] * 3
    assert "[server] port" in found["configuration"][0]["found"]
    assert "dev-shm" in found


@exhaustive
def test_notices_of_a_configuration_are_notes() -> None:
    found = findings_of("--port", "0", "--max-latency-ms", "5")
    assert [finding["level"] for finding in found["configuration"]] == ["note"]


@pytest.mark.parametrize(
    "arguments", [["--prot", "1"], ["a.py", "b.py"], ["--pid", "1"]], ids=["flag", "two", "pid"]
)
def test_wrong_usage_is_status_2(arguments: list[str]) -> None:
    done = doctor(*arguments)
    assert done.returncode == 2
    assert "usage: ringbatch" in done.stderr


@exhaustive
def test_few_descriptors_are_found() -> None:
    def few() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (300, 300))

    (found,) = findings_of("--port", "0", preexec_fn=few)["open-files"]
    assert found["level"] == "warning"
    assert "serves 44 connections and not 16384" in found["found"]
    assert "LimitNOFILE=" in found["do"]


@pytest.fixture
def anybodys_model() -> Iterator[Path]:
    """A model that every user may read."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        model = Path(folder) / "model.py"
        model.write_text("def predict(instances):\n    return instances\n")
        yield model


@exhaustive
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may be another user")
def test_few_processes_are_found(anybodys_model: Path) -> None:
    def few() -> None:
        resource.setrlimit(resource.RLIMIT_NPROC, (20, 20))

    as_nobody = (sys.executable, "-c", AS_NOBODY)
    (found,) = findings_of(anybodys_model, "--port", "0", program=as_nobody, preexec_fn=few)[
        "processes"
    ]
    assert found["level"] == "error"
    assert "may have 20 processes" in found["found"]
    assert "LimitNPROC=" in found["do"]
    assert findings_of("--port", "0", preexec_fn=few)["processes"][0]["level"] == "ok"


@exhaustive
def test_threads_above_cores_are_found() -> None:
    for arguments, environment in (
        (("--threads", "1000"), {}),
        ((), {"OMP_NUM_THREADS": "1000"}),
    ):
        (found,) = findings_of("--port", "0", *arguments, env={**os.environ, **environment})[
            "threads"
        ]
        assert found["level"] == "warning"
        assert "1000 in all" in found["found"]
        assert "threads" in found["do"]


def test_a_cpu_quota_is_found(tmp_path: Path) -> None:
    """In a made-up control group, as a real one takes privileges that few hosts grant."""
    group = tmp_path / "sys/fs/cgroup/a"
    group.mkdir(parents=True)
    (group / "cpu.max").write_text("50000 100000\n")
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/a\n")
    facts, _ = gather(bundled(), HostFiles(tmp_path))
    (found,) = [f for f in judge(facts, bundled(), asked=False) if f.check == "cpu-quota"]
    assert found.level == "note"
    assert "a quota of 0.5 CPUs" in found.found
    assert "CPUAffinity=" in found.do


def test_a_dead_engine_is_found_and_a_living_one_is_left_alone() -> None:
    with supervisor() as (process, name):
        found = findings_of("--port", "0")
        assert f"(process {process.pid}) serves" in found["engines"][0]["found"]
        assert found["leftovers"][0]["level"] == "ok"
        process.send_signal(signal.SIGKILL)
        process.wait()
        found = findings_of("--port", "0")
        assert "none of this user runs" in found["engines"][0]["found"]
        (left,) = found["leftovers"]
        assert left["level"] == "warning"
        assert name.removeprefix("/") in left["found"]
        assert "the next start removes them" in left["do"]
        assert (DIRECTORY / name.removeprefix("/")).exists()


@exhaustive
def test_a_taken_port_is_found_with_its_owner() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (found,) = findings_of("--port", str(port))["ports"]
    assert found["level"] == "error"
    assert f"process {os.getpid()} (" in found["found"]
    assert "choose another port" in found["do"]


@exhaustive
def test_titles_of_any_bytes_are_printed_on_any_terminal() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        sleep = "import os, time; os.write(1, b'.'); time.sleep(600)"
        with subprocess.Popen(
            [sys.executable, "-c", sleep, b"\xff\xe2\x82"],
            pass_fds=[taken.fileno()],
            stdout=subprocess.PIPE,
        ) as holder:
            assert holder.stdout is not None
            holder.stdout.read(1)
            port = taken.getsockname()[1]
            try:
                ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
                for arguments in ([], ["--json"]):
                    done = doctor("--port", str(port), *arguments, env=ascii_only)
                    assert (done.returncode, done.stderr) == (1, "")
                    # Lines end where the width says.
                    assert f"process {holder.pid} (" in " ".join(done.stdout.split())
            finally:
                holder.kill()


def in_a_mount_namespace(size: str) -> tuple[str | Path, ...]:
    """A program that runs the command with a /dev/shm of its own."""
    script = f'mount -t tmpfs -o size={size} tmpfs /dev/shm && exec "$@"'
    return ("unshare", "-m", "sh", "-c", script, "sh", sys.executable, "-c", PROGRAM)


def can_mount() -> bool:
    try:
        tried = subprocess.run(
            ["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/dev/shm"], capture_output=True
        )
    except OSError:
        return False
    return tried.returncode == 0


mounts: Final = pytest.mark.skipif(not can_mount(), reason="mounts nothing for this user")


@exhaustive
@mounts
@pytest.mark.parametrize(
    ("size", "arguments", "level", "words"),
    [
        ("1m", (), "error", "1.0 MiB free of 1.0 MiB"),
        ("64m", (), "note", "requests of at most 4.0 MiB"),
        ("64m", ("--lane-bytes", "67108864"), "error", "64 MiB free of 64 MiB"),
    ],
)
def test_a_small_dev_shm_is_found(
    size: str, arguments: tuple[str, ...], level: str, words: str
) -> None:
    found = findings_of("--port", "0", *arguments, program=in_a_mount_namespace(size))
    (only,) = found["dev-shm"]
    assert only["level"] == level
    assert words in only["found"]
    assert "make /dev/shm larger" in only["do"]
    assert found["leftovers"][0]["level"] == "ok"


@contextmanager
def control_groups() -> Iterator[list[Path]]:
    """Groups of this host's kernel, below this process's own, with half a CPU and 12 tasks."""
    limits = {"cpu.max": "50000 100000", "cpu.cfs_quota_us": "50000", "pids.max": "12"}
    made: list[Path] = []
    limiting: list[Path] = []
    kept: set[str] = set()
    try:
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            for folder in ("", "unified", controllers):
                group = Path("/sys/fs/cgroup", folder, path.lstrip("/"), APART)
                if not (group.parent / "cgroup.procs").exists():
                    continue
                with suppress(OSError):
                    group.mkdir()
                    made.append(group)
                    own = {limit for limit in limits if (group / limit).exists()}
                    for limit in own:
                        (group / limit).write_text(limits[limit])
                    kept |= own
                    if own:
                        limiting.append(group)
        if not kept & {"cpu.max", "cpu.cfs_quota_us"} or "pids.max" not in kept:
            pytest.skip("no limits of CPU time and tasks can be set here")
        yield limiting
    finally:
        for group in made:
            group.rmdir()


@exhaustive
def test_a_limit_of_a_control_group_is_found() -> None:
    with control_groups() as groups:
        enter = "".join(f"echo $$ >{group}/cgroup.procs; " for group in groups)
        script = f'{enter}exec "$@"'
        program = ("sh", "-c", script, "sh", sys.executable, "-c", PROGRAM)
        found = findings_of("--port", "0", "--threads", "4", program=program)
    (quota,) = found["cpu-quota"]
    assert quota["level"] in ("note", "warning")
    assert "a quota of 0.5 CPUs" in quota["found"]
    assert "CPUAffinity=" in quota["do"]
    (tasks,) = found["processes"]
    assert tasks["level"] == "error"
    assert "(pids.max 12)" in tasks["found"]
    assert "raise TasksMax=" in tasks["do"]


@mounts
def test_without_a_proc_or_a_writable_dev_shm_it_says_so_and_no_more() -> None:
    script = (
        "mount -t tmpfs -o ro tmpfs /dev/shm && mount -t tmpfs tmpfs /sys && "
        'mount -t tmpfs tmpfs /proc && exec "$@"'
    )
    program = ("unshare", "-m", "sh", "-c", script, "sh", sys.executable, "-c", PROGRAM)
    found = findings_of("--port", "0", program=program)
    assert found["semaphores"][0]["level"] == found["proc"][0]["level"] == "error"
    assert found["wake-ups"][0]["level"] == "note"


@exhaustive
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may be another user")
def test_an_ordinary_user_gets_the_findings(anybodys_model: Path) -> None:
    with supervisor() as (_, name):
        found = findings_of(
            anybodys_model, "--port", "0", program=(sys.executable, "-c", AS_NOBODY)
        )
    assert found["semaphores"][0]["level"] == found["pipes"][0]["level"] == "ok"
    assert found["wake-ups"][0]["level"] in ("ok", "note", "warning")
    assert any(name in finding["found"] for finding in found["engines"])


def test_dead_engine_objects_are_those_that_a_sweep_would_remove(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from ringbatch.shm import shm_objects

    monkeypatch.setattr(shm_objects, "PREFIX", APART)
    with supervisor() as (process, _):
        assert dead_engine_objects() == []
        process.kill()
        process.wait()
        ((_, entries),) = dead_engine_objects()
        assert {entry.name for entry in entries} == set(shm_objects.remove_dead_engines())
        assert dead_engine_objects() == []


def test_an_address_that_cannot_be_had_is_named_by_its_own_setting() -> None:
    """The address belongs to documentation (RFC 5737), and to no host."""
    server = ServerConfig(port=0, control_host="203.0.113.1", control_port=1)
    found = {door.key: (door.home, bool(door.refusal)) for door in doors(server, HostFiles())}
    assert found == {"port": ("host", False), "control_port": ("control_host", True)}
