"""cluster, in every language that has it."""

import matmul_cases


class TestCluster(matmul_cases.MatmulTests):
    name = "cluster"
