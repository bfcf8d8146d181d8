"""What a Script can get wrong. Every message ends in the block and the place in the Script."""


class KernelError(Exception):
    """A mistake in a Script, or something in it that the interpreter does not know."""

    located = False

    def at(self, where: str) -> "KernelError":
        """Appends the block and the place, once: the innermost place is the right one."""
        if not self.located:
            self.args = (f"{self}\n  {where}",)
            self.located = True
        return self


class Unsupported(KernelError):
    """The interpreter does not know this instruction, function or use."""


class OutOfBounds(KernelError):
    """An access outside of its tensor that no bounds check masks."""


class Uninitialized(KernelError):
    """A read of what nothing has written."""


class PendingCopy(KernelError):
    """A shared tensor is read, written or freed while a copy_async into it may still be under way."""


class PendingProduct(KernelError):
    """An accumulator is touched, or an operand in shared memory is written or freed, while a wgmma may still be under
    way."""


class MissingFence(KernelError):
    """A wgmma on what the threads have written, or TMA over it, with no fence between."""


class MissingSync(KernelError):
    """Threads of one block meet in shared memory without a sync between, at least one of them writing."""


class UseAfterFree(KernelError):
    """A shared tensor is used after free_shared."""


class Divergent(KernelError):
    """A scalar that only some threads have assigned is read by others too, or an atomic is done by many threads."""


class Overflow(KernelError):
    """A signed integer leaves the range of its type."""


class Race(KernelError):
    """Two accesses to one element of global memory, one of them a write, that nothing orders."""


class Deadlock(KernelError):
    """Every resident block waits."""


class NotClean(KernelError):
    """A global tensor allocated with requires_clean is not all zeros after the launch."""
