"""decompose_k, in every language that has it."""

import matmul_cases


class TestDecomposeK(matmul_cases.MatmulTests):
    name = "decompose_k"
