"""Memory that a step frees stays in the process for the next step."""

import os
import platform

import pytest
from tests.commands import run_program

PROGRAM = """
import ctypes, resource, sys
from agents.training import process

if sys.argv[1] == "tuned":
    process.tune()
lib = ctypes.CDLL(None)
lib.malloc.restype = ctypes.c_void_p
lib.malloc.argtypes, lib.free.argtypes = [ctypes.c_size_t], [ctypes.c_void_p]


def step():
    blocks = [lib.malloc(size << 20) for size in (6, 1, 9, 6, 2)]
    for block, size in zip(blocks, (6, 1, 9, 6, 2)):
        ctypes.memset(block, 1, size << 20)
    for block in blocks:
        lib.free(block)


step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(4):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's allocator")


def faults(how: str, **variables: str) -> int:
    """Return the page faults while the same memory is allocated and freed again."""
    plain = {
        key: value for key, value in os.environ.items() if not key.startswith(("MALLOC_", "GLIBC_"))
    }
    return int(run_program(PROGRAM, how, env=plain | variables).stdout)


@glibc
def test_freed_memory_is_kept() -> None:
    assert faults("tuned") < 100 < faults("untuned")
