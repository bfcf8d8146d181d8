"""How the partial sums of a product split along K meet. The second axis of every table, beside the language."""

from enum import Enum


class Protocol(str, Enum):
    """The value is the name in tables; the comment is the contract."""

    # Every split writes an fp32 partial [S, M, N]; a second launch sums them and applies the epilogue.
    # Deterministic; 2 launches; S*M*N*4 bytes written and read again.
    SEPARATE = "separate"
    # As SEPARATE, with the second launch set up while the first still runs (programmatic dependent launch). Apart,
    # so that a comparison of languages does not set one that has it against one that has not.
    SEPARATE_PDL = "separate+pdl"
    # The splits of a tile take turns, in split order, each adding to what stands there; the last applies the
    # epilogue. Deterministic; 1 launch; a chain of S hand-overs through L2.
    SERIAL = "serial"
    # Left to the library: cuBLAS picks its own algorithm per shape.
    LIBRARY = "library"
    # Not told: a candidate's author knows.
    UNKNOWN = "unknown"
