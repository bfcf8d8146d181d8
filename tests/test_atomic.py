"""atomic, in every language that has it."""

import matmul_cases as cases


class TestAtomic(cases.ArrivalTests):
    name = "atomic"
