"""last_arriver, in every language that has it."""

import matmul_cases as cases


class TestLastArriver(cases.ArrivalTests):
    name = "last_arriver"
