"""The benchmark: a clock, a referee and a journal. Imports `common` and the kernel packages; nothing imports it."""
