"""The full fence on the processor at hand: no load overtakes an earlier store."""

import mmap
import subprocess
import sys
from pathlib import Path

from tiers import exhaustive

ROUNDS = 100_000
GIVE_UP_S = 4
COLD_BYTES = 1 << 26
BLOCK_BYTES = 1 << 10
"""Stored before each round's word to memory that is in no cache, so that the word's store waits in
the store buffer behind it. Without that, Python takes longer to load than the store to arrive, and
even without the fence no round of a million goes wrong."""
LINE = 128
"""Bytes between words, so that each has a cache-line pair of its own."""

ROUND = """
import mmap, signal, sys, time
from ringbatch.shm.memory_order import full_fence
own, fenced, rounds, give_up_s, line, cold_bytes, block_bytes = map(int, sys.argv[2:])
other = 1 - own
over = 1 << 40
# If the other process ends too early, only this alarm ends the wait for it.
signal.alarm(20 * give_up_s)
with open(sys.argv[1], "r+b") as file:
    words = memoryview(mmap.mmap(file.fileno(), 0)).cast("Q")
line //= 8
OWN_START, OTHER_START = own * line, other * line
OWN, OTHER = (2 + own) * line, (2 + other) * line
cold, block, at = bytearray(cold_bytes), bytes(block_bytes), 0
give_up_at = time.monotonic() + give_up_s
for number in range(1, rounds + 1):
    if own == 0 and number % 256 == 0 and time.monotonic() > give_up_at:
        break
    words[OWN_START] = number
    while (start := words[OTHER_START]) < number:
        pass
    if start == over:
        break
    at = (at + 4096 + block_bytes) % (cold_bytes - block_bytes)
    cold[at : at + block_bytes] = block
    words[OWN] = number
    if fenced:
        full_fence()
    seen = words[OTHER]
    words[4 * line + 2 * number + own] = 1 + (seen < number)
words[OWN_START] = over
"""
"""Dekker's pattern, round by round: each of two stores, fences, and loads what the other stored.

Both start a round when both are there. What is stored is the round's number, so that nothing need
be set back. Each writes into a word of its own per round 1 where it saw the other's store, else 2.
"""


def run(path: Path, *, fenced: bool) -> tuple[int, int]:
    """Run two processes: how many rounds there were, and in how many neither saw the other."""
    path.write_bytes(bytes(5 * LINE + 16 * (ROUNDS + 1)))
    numbers = (int(fenced), ROUNDS, GIVE_UP_S, LINE, COLD_BYTES, BLOCK_BYTES)
    processes = [
        subprocess.Popen([sys.executable, "-c", ROUND, str(path), str(own), *map(str, numbers)])
        for own in range(2)
    ]
    try:
        assert [process.wait() for process in processes] == [0, 0]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    with path.open("r+b") as file:
        words = memoryview(mmap.mmap(file.fileno(), 0)).cast("Q")
    first = 4 * LINE // 8
    pairs = [tuple(words[first + 2 * n : first + 2 * n + 2]) for n in range(1, ROUNDS + 1)]
    found = [pair for pair in pairs if 0 not in pair]
    return len(found), found.count((2, 2))


@exhaustive
def test_with_the_fence_one_of_two_processes_always_sees_the_other(tmp_path: Path) -> None:
    for fenced in (False, True):
        rounds, both_missed = run(tmp_path / "words", fenced=fenced)
        how = "with" if fenced else "without"
        print(f"{how} the fence neither saw the other in {both_missed} of {rounds:,} rounds")
    assert rounds
    assert both_missed == 0
