"""tilus' kernels with a mistake put into their Programs, in the interpreter, which has to find it.

with mutants.launched(WithoutLock()), pytest.raises(Race):
    kernel.launch(a, b, config=config)
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import mock

from tilus.ir.functors import IRRewriter
from tilus.ir.instructions import SyncThreadsInst
from tilus.ir.prog import Program
from tilus.ir.stmt import InstStmt, SeqStmt

from triton_vs_tilus.kernels_tilus import interpreter, launching
from triton_vs_tilus.kernels_tilus.interpreter import Schedule


@contextmanager
def launched(mutation: Callable[[Program], Program], schedule: Schedule | None = None) -> Iterator[None]:
    """Within it launchers launch, as they do by themselves, a Program in which `mutation` has changed something."""

    def launch(script, *args):
        program = interpreter.transpile(script, *args)
        mutant = mutation(program)
        assert str(mutant) != str(program)  # else nothing was left out, and nothing can be found
        interpreter.run_program(mutant, *args, schedule=schedule)

    with mock.patch.object(launching, "launch", launch):
        yield


def holds(stmt, instruction) -> bool:
    return isinstance(stmt, InstStmt) and isinstance(stmt.inst, instruction)


class WithoutSync(IRRewriter):
    """Without the syncs of all threads that stand between two statements, or None, that `between` accepts."""

    def visit_SeqStmt(self, stmt):
        stmt = super().visit_SeqStmt(stmt)
        places = zip((None, *stmt.seq[:-1]), stmt.seq, (*stmt.seq[1:], None), strict=True)
        return SeqStmt(
            tuple(
                part
                for before, part, after in places
                if not (holds(part, SyncThreadsInst) and self.between(before, after))
            )
        )
