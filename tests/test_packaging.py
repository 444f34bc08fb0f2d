"""Installed package: the names it takes, its files, and the commands README.md promises."""

import importlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from configparser import ConfigParser
from pathlib import Path

import pytest
from tiers import exhaustive

ROOT = Path(__file__).parents[1]
CI_RUN = ROOT / ".ci" / "run"
PACKAGES = ("ringbatch.bench", "ringbatch.engine", "ringbatch.frontend", "ringbatch.shm")
BARE_NAMES = {"engine", "frontend", "shm"}
README_MARKS = ("demo", "test", "compiled")


@pytest.fixture(scope="session")
def version() -> str:
    """The version of the installed distribution; where only a development link is, a skip."""
    try:
        return importlib.metadata.version("ringbatch")
    except importlib.metadata.PackageNotFoundError:
        if os.environ.get("CI"):
            pytest.fail("ringbatch is not installed, and CI tests what is installed")
        pytest.skip("ringbatch is not installed as a distribution here, only linked")


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def strays(names: list[str]) -> list[str]:
    """Return the files that do not belong into a wheel of ringbatch."""
    ours = re.compile(r"ringbatch(/(bench|engine|frontend|shm)|-[^/]+\.dist-info)/.+")
    top = {"ringbatch/__init__.py", "ringbatch/__main__.py", "ringbatch/py.typed"}
    return [name for name in names if name not in top and not ours.fullmatch(name)]


def readme_command(readme: str, mark: str) -> str:
    """The fenced block right after a mark; the same that .ci/run finds, found another way."""
    found = re.findall(rf"(?ms)^<!-- ci:{mark} -->\n```\w*\n(.*?)\n```$", readme)
    assert len(found) == 1, f"{len(found)} blocks are marked ci:{mark}"
    return str(found[0])


def test_every_folder_with_modules_is_a_package_that_is_installed() -> None:
    settings = ConfigParser()
    settings.read(ROOT / "setup.cfg")
    listed = {name for name in settings["options"]["packages"].split() if name.count(".")}
    folders = ("engine", "frontend", "shm")
    there = {
        ".".join(["ringbatch", *found.parent.relative_to(ROOT).parts])
        for folder in folders
        for found in (ROOT / folder).rglob("__init__.py")
    }
    assert {name for name in listed if name.split(".")[1] in folders} == there


# The installed distribution


def test_the_version_has_three_numbers(version: str) -> None:
    assert re.match(r"\d+\.\d+\.\d+", version)


def test_the_command_tells_the_version(version: str, tmp_path: Path) -> None:
    completed = run(Path(sysconfig.get_path("scripts"), "ringbatch"), "--version", cwd=tmp_path)
    assert completed.returncode == 0, completed.stderr
    assert version in completed.stdout.split()


def test_only_the_namespace_is_installed(version: str) -> None:
    files = importlib.metadata.files("ringbatch")
    assert files
    # The command lies outside site-packages, and so starts with "..".
    installed = [str(file) for file in files if file.parts[0] != ".."]
    # An editable installation has links to the tree instead, and pip may have compiled modules.
    passed_over = ("__editable__", "__pycache__")
    assert strays([name for name in installed if not any(w in name for w in passed_over)]) == []


@pytest.mark.parametrize("package", PACKAGES)
def test_each_package_says_that_it_is_typed(package: str) -> None:
    file = importlib.import_module(package).__file__
    assert file is not None
    assert Path(file).with_name("py.typed").exists()


def test_importing_all_of_it_takes_no_bare_name(tmp_path: Path) -> None:
    code = f"import sys, {', '.join(PACKAGES)}; print(*sys.modules)"
    completed = run(sys.executable, "-c", code, cwd=tmp_path)
    assert completed.returncode == 0, completed.stderr
    assert BARE_NAMES & set(completed.stdout.split()) == set()


def test_no_test_took_a_bare_name() -> None:
    assert BARE_NAMES & sys.modules.keys() == set()


# The wheel of this tree


@pytest.fixture(scope="session")
def wheel_names(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Names of the files in a wheel built from a clean copy of the tree.

    A copy, because a build leaves its output beside the sources and a later one packs it again.
    pip fetches the build system, as it did to install this very tree; nothing else is fetched.
    """
    tree = tmp_path_factory.mktemp("tree") / "ringbatch"
    generated = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "*.egg-info")
    shutil.copytree(ROOT, tree, ignore=generated, symlinks=True)
    output = tmp_path_factory.mktemp("wheel")
    pip = (sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet", "--wheel-dir", output)
    built = run(*pip, ".", cwd=tree)
    assert built.returncode == 0, built.stderr
    (wheel,) = output.glob("ringbatch-*.whl")
    return zipfile.ZipFile(wheel).namelist()


@exhaustive
def test_the_wheel_holds_ringbatch_and_nothing_else(wheel_names: list[str]) -> None:
    assert strays(wheel_names) == []


@exhaustive
def test_the_wheel_holds_every_module_of_the_tree(wheel_names: list[str]) -> None:
    modules = {
        f"ringbatch/{path.relative_to(ROOT)}"
        for package in BARE_NAMES
        for path in (ROOT / package).rglob("*.py")
    }
    beside = ROOT / "bench"
    modules |= {str(path.relative_to(beside)) for path in (beside / "ringbatch").rglob("*.py")}
    modules |= {f"ringbatch/{path.name}" for path in (ROOT / "top").glob("*.py")}
    assert modules - set(wheel_names) == set()


@exhaustive
def test_the_wheel_says_of_each_package_that_it_is_typed(wheel_names: list[str]) -> None:
    typed = {name for name in wheel_names if name.endswith("py.typed")}
    packages = ("ringbatch", *PACKAGES)
    assert typed == {f"{package.replace('.', '/')}/py.typed" for package in packages}


@exhaustive
def test_the_wheel_carries_the_weights_of_the_digits_model(wheel_names: list[str]) -> None:
    assert [name for name in wheel_names if name.endswith(".npz")] == [
        "ringbatch/engine/demo/digits.npz"
    ]


@exhaustive
def test_the_wheel_carries_the_descriptors_of_grpc_s_messages(wheel_names: list[str]) -> None:
    descriptors = [path for path in (ROOT / "frontend" / "grpc").iterdir() if path.suffix != ".py"]
    expected = {f"ringbatch/frontend/grpc/{path.name}" for path in descriptors if path.is_file()}
    assert "ringbatch/frontend/grpc/messages.pb" in expected
    assert expected <= set(wheel_names)


@exhaustive
def test_the_wheel_carries_the_page_and_the_licence_of_its_charts(wheel_names: list[str]) -> None:
    assets = {path.name for path in (ROOT / "frontend" / "page" / "assets").iterdir()}
    carried = {
        name.rpartition("/")[2]
        for name in wheel_names
        if name.startswith("ringbatch/frontend/page/assets/")
    }
    assert {"page.html", "page.js", "page.css", "uPlot.iife.min.js", "uPlot.LICENSE"} <= assets
    assert carried == assets


@exhaustive
def test_the_wheel_carries_the_licence(wheel_names: list[str]) -> None:
    assert [name for name in wheel_names if name.endswith("/LICENSE")]


@pytest.mark.parametrize(
    "name",
    [
        "engine/collector/batching.py",
        "ringbatch/extra/x.py",
        "ringbatch/engine.py",
        "ringbatch/top.py",
        "ringbatch/__init__.pyi",
        "tests/conftest.py",
        "build/lib/ringbatch/shm/ring.py",
        "ringbatch_other/shm/ring.py",
    ],
)
def test_a_stray_file_in_a_wheel_is_reported(name: str) -> None:
    ours = ["ringbatch/__init__.py", "ringbatch/shm/ring.py", "ringbatch-0.1.0.dist-info/METADATA"]
    assert strays([*ours, name]) == [name]


# The commands of README.md and of CONTRIBUTING.md


@pytest.mark.parametrize("mark", README_MARKS)
def test_ci_runs_the_command_that_the_readme_gives(mark: str) -> None:
    completed = run(CI_RUN, "command", mark, cwd=ROOT)
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout == readme_command((ROOT / "README.md").read_text(), mark) + "\n"
    assert re.search(rf"run_readme_command {mark}\b", CI_RUN.read_text())


@pytest.mark.parametrize(
    ("mark", "steps"),
    [
        ("demo", ["python3 -m venv", "pip install", "ringbatch demo"]),
        ("test", ["python3 -m venv", "pip install", "pytest"]),
        ("compiled", ["python3 -m venv", "RINGBATCH_COMPILE=1", "pytest"]),
    ],
)
def test_a_readme_command_is_one_line_that_installs_and_runs(mark: str, steps: list[str]) -> None:
    command = readme_command((ROOT / "README.md").read_text(), mark)
    parts = command.split(" && ")
    assert "\n" not in command
    assert len(parts) == len(steps)
    assert [step for part, step in zip(parts, steps, strict=True) if step not in part] == []


def test_ci_runs_the_commands_of_contributing() -> None:
    """All but the tests of every run, which are README's."""
    text, script = (ROOT / "CONTRIBUTING.md").read_text(), CI_RUN.read_text()
    marks = re.findall(r"<!-- ci:(\w+) -->\n```sh", text)
    unmarked = re.findall(r"(?<!-->\n)```sh\n(.*?)\n```", text, re.DOTALL)
    assert marks == ["edit", "file", "check", "proofs"]
    assert all(f"contributing {mark}\n" in script for mark in marks)
    assert [command.split("/")[-1] for command in unmarked] == [
        readme_command((ROOT / "README.md").read_text(), "test").split("/")[-1]
    ]


def test_the_files_that_contributing_names_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    named = set(re.findall(r"`((?:engine|frontend|shm|tests)/[\w./]+)`", text))
    assert len(named) > 20
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


@pytest.mark.parametrize(
    "readme",
    [
        "no mark at all",
        "<!-- ci:test -->\n\n```\nnot right after it\n```\n",
        "<!-- ci:test -->\n```\n```\n",
        "<!-- ci:test -->\n```\nnever closed\n",
        "<!-- ci:test -->\n```\none\n```\n<!-- ci:test -->\n```\ntwo\n```\n",
        "<!-- ci:demo -->\n```\nanother mark\n```\n",
    ],
)
def test_ci_refuses_a_readme_without_exactly_one_marked_block(tmp_path: Path, readme: str) -> None:
    (tmp_path / "README.md").write_text(readme)
    (tmp_path / ".ci").mkdir()
    completed = run(shutil.copy(CI_RUN, tmp_path / ".ci"), "command", "test", cwd=tmp_path)
    assert completed.returncode != 0
    assert (
        "README.md: there must be one fenced block right after <!-- ci:test -->" in completed.stderr
    )
