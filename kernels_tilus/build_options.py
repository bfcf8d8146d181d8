"""What decides how a program is compiled, and stands in no program's text: a build option.

tilus finds a program in its cache by a hash of its text and of its build options. What this package's files register
with tilus, or replace in it, is in neither: without the option, a program would be found that was built before such a
file changed.

Importing this module changes tilus for the process; `launching` imports it, and so does every kernel.
"""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

import tilus.drivers
from tilus.drivers import BuildOptions

# What a file of this package imports or calls that changes how tilus compiles.
_CHANGES_THE_COMPILER = re.compile(rb"tilus\.backends|tilus\.hidet\.backend|register_primitive_function")


def compiler_changes() -> str:
    """12 hex digits of the files of this package that change how tilus compiles."""
    texts = [path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py"))]
    return hashlib.sha256(b"\0".join(filter(_CHANGES_THE_COMPILER.search, texts))).hexdigest()[:12]


@dataclass(frozen=True)
class OptionsOfThisPackage(BuildOptions):
    compiler_changes: str = compiler_changes()


tilus.drivers.BuildOptions = OptionsOfThisPackage
