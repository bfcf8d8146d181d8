"""Files that others read meanwhile: refused by name."""

__all__ = ["InvalidFile"]


class InvalidFile(Exception):
    """A file is not what it has to be: its name, what is wrong with it. No ValueError: nobody passes over it who means
    something else."""
