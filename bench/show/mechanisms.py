"""What the page takes from the notes: mechanisms, what each language lacks, drawings."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from triton_vs_tilus.bench.rows.queries import ROOT

NOTES = ROOT / "notes"
SURE = ("measured", "inferred", "open")
SECTION = re.compile(r"^## Mechanisms?\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
CELLS = re.compile(r"(?<!\\)\|")
MARKER = re.compile(r"<!--.*?-->")
LINK = re.compile(r"\[([^]]*)\]\(([^)]*)\)")
# Parentheses that hold only links: "([18](tilus_hopper.md), [history](history.md#sliced_k))".
REFERENCE = re.compile(r"(?<=\()\[[^]]*\]\([^)]*\)(?:, \[[^]]*\]\([^)]*\))*(?=\))")
QUOTED = re.compile(r"`([^`]*)`|\*\*([^*]+)\*\*|\*([^*\s][^*]*)\*")


@dataclass(frozen=True)
class Mechanism:
    """A line of a note's table, without Markdown. sure: of the words in SURE one, or two for parts of it."""

    note: str
    difference: str
    explanation: str
    sure: str
    shown_by: str


def mechanisms(folder: Path = NOTES) -> Iterator[Mechanism]:
    """Of all notes by name. Raises ValueError for a line that has not four cells or does not say how sure it is."""
    for path in sorted(folder.glob("*.md")):
        for section in SECTION.findall(path.read_text()):
            lines = [line for line in section.splitlines() if line.startswith("|")]
            for line in lines[2:]:  # below the header and its rule
                cells = [plain(cell) for cell in CELLS.split(line.strip())[1:-1]]
                if len(cells) != 4 or not any(word in cells[2] for word in SURE):
                    raise ValueError(f"{path.name}: a mechanism has 4 cells, the third of {', '.join(SURE)}: {line}")
                yield Mechanism(path.stem, *cells)


def needs(folder: Path = NOTES) -> tuple[str, list[str], list[list[str]]]:
    """Who has what a split-K author needs, without Markdown: the first paragraph of languages.md, and the header and
    lines of the table below it."""
    _, told, table, *_ = (folder / "languages.md").read_text().split("\n\n")
    header, _, *lines = ([plain(cell) for cell in CELLS.split(line.strip())[1:-1]] for line in table.splitlines())
    return plain(" ".join(told.split())), header, lines


def plain(text: str) -> str:
    """Markdown without markers, links, emphasis and quotes. A reference, which no longer is a link, names its file."""
    text = REFERENCE.sub(lambda found: LINK.sub(_reference, found[0]), MARKER.sub("", text))
    text = LINK.sub(r"\1", text)
    return QUOTED.sub(lambda found: found[1] or found[2] or found[3] or "", text).replace(r"\|", "|").strip()


def _reference(link: re.Match[str]) -> str:
    """'tilus_hopper.md, 18' of [18](tilus_hopper.md), 'history.md' of [history](history.md#sliced_k)."""
    text, file = link[1], Path(link[2].partition("#")[0])
    if "." in text or text.startswith("`"):  # names a file or a function already
        return text
    if text == file.stem:
        return file.name
    return f"{file.name}, {text}" if text.isdigit() else f"{text}, {file.name}"


def drawing(name: str, folder: Path = NOTES) -> str:
    """The drawing under 'Who moves what' of a kernel's note; empty where there is none."""
    path = folder / f"{name}.md"
    found = re.search(r"^## Who moves what\n+```\n(.*?)\n```", path.read_text(), re.M | re.S) if path.exists() else None
    return found[1] if found else ""
