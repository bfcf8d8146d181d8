"""What each call adds to the CUDA graph that captures it: calls of one kernel on one problem add the same work."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from cuda.bindings import driver

Triple = tuple[int, int, int]


class Node(NamedTuple):
    """Of a CUDA graph. kind: CUDA's; of a kernel also its function's handle, its grid and its block."""

    kind: str
    function: int = 0
    grid: Triple = (0, 0, 0)
    block: Triple = (0, 0, 0)


class Nodes:
    """Those of the graph that a stream is capturing into."""

    def __init__(self, stream: torch.cuda.Stream):
        self._stream = driver.CUstream(stream.cuda_stream)
        self._known: set[int] = set()

    def added(self) -> Counter[Node]:
        """Since this was last asked for. Raises RuntimeError where CUDA does not say."""
        graph = _asked(driver.cuStreamGetCaptureInfo(self._stream))[2]
        new = [node for node in _nodes(graph) if int(node) not in self._known]
        self._known.update(map(int, new))
        return Counter(described for node in new for described in _described(node))


def _nodes(graph: driver.CUgraph) -> list[driver.CUgraphNode]:
    _, count = _asked(driver.cuGraphGetNodes(graph))
    nodes, _ = _asked(driver.cuGraphGetNodes(graph, count)) if count else ([], 0)
    return nodes[:count]


def _described(node: driver.CUgraphNode) -> Iterator[Node]:
    """The node; of a child graph also those within."""
    (kind,) = _asked(driver.cuGraphNodeGetType(node))
    if kind == driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_GRAPH:
        (child,) = _asked(driver.cuGraphChildGraphNodeGetGraph(node))
        for within in _nodes(child):
            yield from _described(within)
    if kind != driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_KERNEL:
        yield Node(kind.name)
        return
    (launch,) = _asked(driver.cuGraphKernelNodeGetParams(node))
    yield Node(
        kind.name,
        int(launch.kern) or int(launch.func),
        (launch.gridDimX, launch.gridDimY, launch.gridDimZ),
        (launch.blockDimX, launch.blockDimY, launch.blockDimZ),
    )


def _asked(answer: tuple[Any, ...]) -> tuple[Any, ...]:
    error, *found = answer
    if error:
        raise RuntimeError(f"CUDA does not say what a graph holds: {error.name}")
    return tuple(found)


def odd_one_out(added: Sequence[Counter[Any]]) -> str:
    """Which of the calls that a graph captured adds other work than the first, in words; '' where none does."""
    for index, nodes in enumerate(added):
        if nodes != added[0]:
            call = f"call {index + 1} of {len(added)} in a CUDA graph adds"
            count, of_first = nodes.total(), added[0].total()
            if count == of_first:
                return f"{call} other nodes to it than the first"
            return f"{call} {count} nodes to it, and the first {of_first}"
    return ""
