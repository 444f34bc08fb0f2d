"""Requirements of .ci/emulation on its machine, and the machines that .ci/wheels knows."""

import os
import subprocess
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[1]
ABLE: Final = (
    "uname() { echo x86_64; }",
    "can_make_chroot() { :; }",
    "qemu() { echo /usr/bin/qemu-aarch64-static; }",
    "register_qemu() { :; }",
)


def bash(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", f". .ci/pythons; . .ci/emulation; {script}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("instead", "words"),
    [
        ("uname() { echo aarch64; }", "a machine of another kind: this one is AArch64"),
        ("can_make_chroot() { echo 'it needs root' >&2; return 1; }", "it needs root"),
        ("qemu() { return 1; }", "qemu (on Debian: qemu-user-static)"),
        ("register_qemu() { return 1; }", "binfmt_misc, which this machine does not allow"),
    ],
)
def test_a_machine_that_cannot_emulate_names_its_needs(instead: str, words: str) -> None:
    found = bash("; ".join([*ABLE, instead, "can_emulate"]))
    assert (found.returncode, found.stdout) == (1, "")
    assert words in found.stderr


def test_a_machine_with_all_of_it_can_emulate() -> None:
    found = bash("; ".join([*ABLE, "can_emulate"]))
    assert (found.returncode, found.stderr) == (0, "")


@pytest.mark.parametrize(("says", "status"), [("statically linked", 0), ("libc.so.6 => /lib", 1)])
def test_qemu_must_not_need_libraries_that_a_debian_in_a_folder_lacks(
    tmp_path: Path, says: str, status: int
) -> None:
    program = tmp_path / "qemu-aarch64-static"
    program.touch(mode=0o755)
    found = bash(f"PATH={tmp_path}:$PATH; ldd() {{ echo '{says}'; }}; qemu")
    assert found.returncode == status
    assert found.stdout == ("" if status else f"{program}\n")


def test_every_python_of_a_debian_for_arm64_is_one_that_wheels_are_made_for() -> None:
    found = bash('printf "%s\\n" "${!arm_suites[@]}" -- "${supported[@]}"').stdout.split()
    at = found.index("--")
    assert found[:at]
    assert set(found[:at]) <= set(found[at + 1 :])


def test_dependencies_are_compiled_for_pythons_of_such_a_debian_alone() -> None:
    found = bash('printf "%s\n" "${!arm_unbuilt[@]}" -- "${!arm_suites[@]}"').stdout.split()
    at = found.index("--")
    assert set(found[:at]) <= set(found[at + 1 :])


@pytest.mark.parametrize("flags", [("--arch", "riscv64"), ("--arch", "aarch64", "--tests")])
def test_wheels_for_an_untestable_machine_are_refused(flags: tuple[str, ...]) -> None:
    found = subprocess.run(
        [ROOT / ".ci/wheels", *flags],
        env=os.environ | {"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (found.returncode, found.stdout) == (2, "")
    assert "--arch is aarch64 or left out, and goes without --tests" in found.stderr
