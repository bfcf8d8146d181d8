"""The mistakes that a Script can make. Every message ends with the block and the place in the Script."""


class KernelError(Exception):
    """A mistake in a Script, or a part of it that the interpreter does not know."""

    located = False

    def at(self, where: str) -> "KernelError":
        """This error with the block and the place appended; only once, as the innermost place is the right one."""
        if not self.located:
            self.args = (f"{self}\n  {where}",)
            self.located = True
        return self


class Unsupported(KernelError):
    """The interpreter does not know this instruction, function or use."""


class OutOfBounds(KernelError):
    """An access outside of its tensor that no bounds check masks."""


class Uninitialized(KernelError):
    """A read of memory or of a register that nothing has written."""


class PendingCopy(KernelError):
    """A shared tensor is read, written or freed while a copy_async into it may still be under way."""


class PendingProduct(KernelError):
    """An accumulator is read or written, or an operand is written or freed, while a wgmma may still be under way."""


class MissingFence(KernelError):
    """A wgmma reads, or TMA overwrites, what threads have written, with no fence between."""


class MissingSync(KernelError):
    """Two threads of one block access an element of shared memory, one of them writing, with no sync between."""


class UseAfterFree(KernelError):
    """A shared tensor is used after free_shared."""


class BarrierOverlap(KernelError):
    """tilus 0.2.0 gives an mbarrier memory that a shared tensor has as well."""


class Divergent(KernelError):
    """Other threads read a scalar that only some have assigned, or several threads do one atomic."""


class WrongThreads(KernelError):
    """An instruction by a group of threads that it, or tilus' emitter of it, does not take."""


class Overflow(KernelError):
    """A signed integer leaves the range of its type."""


class Race(KernelError):
    """Nothing orders two accesses to an element of global memory, one of them a write."""


class Deadlock(KernelError):
    """Every resident block waits."""


class NotClean(KernelError):
    """A global tensor allocated with requires_clean is not all zeros after the launch."""


class KernelWarning(UserWarning):
    """A KernelError of a kind that is made a warning."""
