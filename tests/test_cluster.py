"""cluster, in every language that has it; and that Triton cannot have it."""

import re
import subprocess
import sys
from pathlib import Path

import matmul_cases


class TestCluster(matmul_cases.MatmulTests):
    name = "cluster"


def test_triton_compiles_nothing_that_reads_a_peers_shared_memory_or_loads_a_tile_for_two():
    """Where a newer one does, the twin can be written."""
    script = Path(__file__).with_name("triton_across_blocks.py")
    said = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True).stdout
    assert "tl.sum: reads 0 times" in said
    assert re.search(r"tl.dot of tiles that TMA loads: reads 0 times, multicasts 0 times, has [1-9]\d* wgmma", said)
    assert said.count("reads") + said.count("error: ") + said.count("Assertion ") == 5
    assert said.count("reads") == 2
