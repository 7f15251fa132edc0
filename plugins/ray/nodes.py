"""What the nodes of a cluster must have in common: versions, and folders."""

import contextlib
import importlib.metadata
import os
import platform
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from t2t_keras.errors import UserError, first_line

from .cluster import alive_nodes

_SECONDS_TO_ANSWER = 25.0


def require_same_nodes(
    read: Sequence[str | Path] = (), written: Sequence[str | Path] = ()
) -> None:
    """Refuses nodes that cannot do a part of the work.

    Only nodes with cores are asked, because the others get no workers.

    Args:
        read: files that every node must have.
        written: folders that every node must share with this machine.

    Raises:
        UserError: a node has another version of t2t_keras or Python, does not have a
            path, or does not answer.
    """
    with _tokens(written) as tokens:
        sizes = {str(path): Path(path).stat().st_size for path in read}
        expected = own_versions() | {"tokens": tokens, "sizes": sizes}
        for name, report in _ask(list(tokens), list(sizes)):
            if mistake := difference(name, expected, report):
                raise UserError(f"--cluster: {mistake}")


def own_versions() -> dict[str, Any]:
    """Returns the versions that must be the same on all nodes."""
    return {
        "t2t_keras": importlib.metadata.version("t2t_keras"),
        "Python": ".".join(platform.python_version_tuple()[:2]),
    }


def difference(
    node: str, expected: Mapping[str, Any], report: Mapping[str, Any]
) -> str | None:
    """Returns what is wrong with a node; None: nothing.

    Args:
        node: its name.
        expected: what it should report; see `_probe`.
        report: what it reports.
    """
    for program in ("Python", "t2t_keras"):
        if report[program] is None:
            return (
                f"node {node} has no {program}; install version {expected[program]} "
                "there, as on this machine"
            )
        if report[program] != expected[program]:
            return (
                f"node {node} has {program} {report[program]}, and this machine "
                f"{expected[program]}; install the same version on all nodes"
            )
    for path, content in expected["tokens"].items():
        if report["tokens"].get(path) != content:
            return (
                f"node {node} does not share the folder {os.path.dirname(path)}; name "
                "one on a disk that all nodes share"
            )
    for path, size in expected["sizes"].items():
        if report["sizes"].get(path) != size:
            return (
                f"node {node} does not have {path} as this machine has it; put it on a "
                "disk that all nodes share, or copy it to all"
            )
    return None


@contextlib.contextmanager
def _tokens(folders: Sequence[str | Path]) -> Iterator[dict[str, str]]:
    """Writes a file into each folder; yields the contents by path."""
    tokens = {}
    try:
        for folder in folders:
            path = Path(folder, f".shared-{secrets.token_hex(8)}")
            tokens[str(path)] = secrets.token_hex(8)
            path.write_text(tokens[str(path)], encoding="utf-8")
        yield tokens
    finally:
        for name in tokens:
            Path(name).unlink(missing_ok=True)


def _probe() -> Callable[[list[str], list[str]], dict[str, Any]]:
    """Returns the function that a node runs.

    Ray sends a function that is made in another one as code, so that it runs where
    t2t_keras is absent or different.
    """

    def report(tokens: list[str], paths: list[str]) -> dict[str, Any]:
        import importlib.metadata
        import os
        import platform

        versions: dict[str, Any] = {
            "Python": ".".join(platform.python_version_tuple()[:2]),
            "t2t_keras": None,
            "tokens": {},
            "sizes": {},
        }
        for distribution in importlib.metadata.distributions(name="t2t_keras"):
            versions["t2t_keras"] = distribution.version
            break
        for path in tokens:
            if os.path.isfile(path):
                with open(path, encoding="utf-8") as file:
                    versions["tokens"][path] = file.read()
        for path in paths:
            if os.path.isfile(path):
                versions["sizes"][path] = os.path.getsize(path)
        return versions

    return report


def _ask(tokens: list[str], paths: list[str]) -> list[tuple[str, dict[str, Any]]]:
    """Returns the name of each node and what it reports."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    probe = ray.remote(_probe())
    waiting = {}
    for node in alive_nodes():
        if node["Resources"].get("CPU"):
            name = f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})"
            place = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            probe_here = probe.options(
                num_cpus=0, scheduling_strategy=place, max_retries=0
            )
            waiting[probe_here.remote(tokens, paths)] = name
    done, late = ray.wait(
        list(waiting), num_returns=len(waiting), timeout=_SECONDS_TO_ANSWER
    )
    if late:
        raise UserError(
            f"--cluster: node {waiting[late[0]]} did not answer in "
            f"{_SECONDS_TO_ANSWER:.0f} s; remove it from the cluster, or start it again"
        )
    reports = []
    for reference in done:
        try:
            reports.append((waiting[reference], ray.get(reference)))
        except ray.exceptions.RayError as error:
            raise UserError(
                f"--cluster: node {waiting[reference]} cannot run a task: "
                f"{first_line(error)}; remove it from the cluster, or start it again"
            ) from None
    return reports
