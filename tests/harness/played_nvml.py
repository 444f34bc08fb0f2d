"""NVML, played: the names of the module pynvml that are used, with devices made up by a test."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final, TypeVar
from uuid import UUID

T = TypeVar("T")
UUID_A: Final = 0x604AC76C_D9CF_FEF3_62E9_D92044AB6E52
UUID_B: Final = 0x00000000_0000_0001_0000_000000000002
GIB: Final = 1 << 30


def spelled(uuid: int, kind: str = "GPU") -> str:
    """Return a UUID as nvidia-smi spells it."""
    return f"{kind}-{UUID(int=uuid)}"


@dataclass(frozen=True)
class Board:
    """A device or a MIG instance; what is in `lacks` NVML does not tell of it.

    Attributes:
        busy: in per cent.
        bits: why it is slow.
        parent: the UUID of the board, of a MIG instance.
        mig, persistence: modes, 1 if they are on.
    """

    busy: int = 87
    used: int = 12 * GIB
    total: int = 80 * GIB
    celsius: int = 61
    bits: int = 0
    parent: str = ""
    mig: int = 0
    persistence: int = 1
    lacks: frozenset[str] = field(default_factory=frozenset)


class NVMLError(Exception):
    """Error of the simulated pynvml."""


class PlayedNvml:
    """The module.

    Args:
        boards: by their UUIDs, as nvidia-smi spells them.
        refuses: error of `nvmlInit`.
    """

    NVMLError = NVMLError
    NVML_TEMPERATURE_GPU = 0
    nvmlClocksThrottleReasonGpuIdle = 0x1
    nvmlClocksThrottleReasonApplicationsClocksSetting = 0x2
    nvmlClocksThrottleReasonSwPowerCap = 0x4
    nvmlClocksThrottleReasonHwSlowdown = 0x8
    nvmlClocksThrottleReasonSyncBoost = 0x10
    nvmlClocksThrottleReasonSwThermalSlowdown = 0x20
    nvmlClocksThrottleReasonHwThermalSlowdown = 0x40
    nvmlClocksThrottleReasonHwPowerBrakeSlowdown = 0x80

    def __init__(self, boards: Mapping[str, Board], refuses: str = "") -> None:
        self.boards = dict(boards)
        self.refuses = refuses
        self.asked: list[str] = []

    def nvmlInit(self) -> None:
        if self.refuses:
            raise NVMLError(self.refuses)

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.65.06"

    def nvmlDeviceGetCount(self) -> int:
        return len(self._whole)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        return self._whole[index]

    def nvmlDeviceGetName(self, handle: str) -> str:
        return self._ask(handle, "name", lambda _: "NVIDIA H100 80GB HBM3")

    def nvmlDeviceGetMigMode(self, handle: str) -> list[int]:
        return self._ask(handle, "mig", lambda board: [board.mig, board.mig])

    def nvmlDeviceGetPersistenceMode(self, handle: str) -> int:
        return self._ask(handle, "persistence", lambda board: board.persistence)

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        self.asked.append(uuid)
        if uuid not in self.boards:
            raise NVMLError("Not Found")
        return uuid

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, handle: str) -> str:
        return self._ask(handle, "parent", lambda board: board.parent)

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> Any:
        return self._ask(handle, "busy", lambda board: SimpleNamespace(gpu=board.busy, memory=1))

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> Any:
        return self._ask(
            handle,
            "memory",
            lambda board: SimpleNamespace(
                used=board.used, total=board.total, free=board.total - board.used
            ),
        )

    def nvmlDeviceGetTemperature(self, handle: str, sensor: int) -> int:
        assert sensor == self.NVML_TEMPERATURE_GPU
        return self._ask(handle, "celsius", lambda board: board.celsius)

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: str) -> int:
        return self._ask(handle, "bits", lambda board: board.bits)

    @property
    def _whole(self) -> list[str]:
        return [uuid for uuid in self.boards if uuid.startswith("GPU-")]

    def _ask(self, handle: str, query: str, tell: Callable[[Board], T]) -> T:
        board = self.boards.get(handle)
        if board is None:
            raise NVMLError("GPU is lost")
        if query in board.lacks:
            raise NVMLError("Not Supported")
        return tell(board)
