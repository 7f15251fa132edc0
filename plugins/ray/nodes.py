"""What the nodes of a cluster must have in common: versions, and folders."""

import contextlib
import importlib.metadata
import os
import platform
import secrets
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from t2t_keras.errors import UserError, first_line

from .cluster import alive_nodes

_SECONDS_TO_ANSWER = 25.0
# Of larger files only the size and some pieces are compared. That is enough: the
# checksums of the weights are in small files, and loading the weights verifies them.
_COMPARED_BYTES = 1 << 20


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
    paths = [str(Path(path)) for path in read]
    with _tokens(written) as tokens:
        _, _, fingerprints = _probe()([], paths, _COMPARED_BYTES)
        expected = Report(own_versions(), tokens, fingerprints)
        for name, report in _ask(list(tokens), paths):
            if mistake := difference(name, expected, report):
                raise UserError(f"--cluster: {mistake}")


class Report(NamedTuple):
    """What a node has.

    Attributes:
        versions: the version of each program; None: it is not installed.
        tokens: the contents of the files of `_tokens`, by path.
        fingerprints: the checksums and sizes of other files, by path.
    """

    versions: dict[str, str | None]
    tokens: dict[str, str]
    fingerprints: dict[str, str]


def own_versions() -> dict[str, str | None]:
    """Returns the versions that must be the same on all nodes."""
    return {
        "t2t_keras": importlib.metadata.version("t2t_keras"),
        "Python": ".".join(platform.python_version_tuple()[:2]),
    }


def difference(node: str, expected: Report, report: Report) -> str | None:
    """Returns what is wrong with a node; None: nothing.

    Args:
        node: its name.
        expected: what it should have.
        report: what it has.
    """
    for program in ("Python", "t2t_keras"):
        local_version = expected.versions[program]
        version = report.versions[program]
        if version is None:
            return (
                f"node {node} has no {program}; install version {local_version} there, "
                "as on this machine"
            )
        if version != local_version:
            return (
                f"node {node} has {program} {version}, and this machine "
                f"{local_version}; install the same version on all nodes"
            )
    for path, content in expected.tokens.items():
        if report.tokens.get(path) != content:
            return (
                f"node {node} does not share the folder {os.path.dirname(path)}; name "
                "one on a disk that all nodes share"
            )
    for path, fingerprint in expected.fingerprints.items():
        if report.fingerprints.get(path) != fingerprint:
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


_Facts: TypeAlias = tuple[dict[str, str | None], dict[str, str], dict[str, str]]


def _probe() -> Callable[[list[str], list[str], int], _Facts]:
    """Returns the function that a node runs, which returns the fields of `Report`.

    Ray sends a function that is made in another one as code, so that it runs where
    t2t_keras is absent or different.
    """

    def report(tokens: list[str], paths: list[str], compared_bytes: int) -> _Facts:
        import hashlib
        import importlib.metadata
        import os
        import platform

        version = None
        for distribution in importlib.metadata.distributions(name="t2t_keras"):
            version = distribution.version
            break
        python = ".".join(platform.python_version_tuple()[:2])
        contents = {}
        for path in filter(os.path.isfile, tokens):
            with open(path, encoding="utf-8") as file:
                contents[path] = file.read()
        fingerprints = {}
        for path in filter(os.path.isfile, paths):
            size = os.path.getsize(path)
            pieces = 16 if size > compared_bytes else 1
            length = compared_bytes // pieces
            digest = hashlib.sha256()
            with open(path, "rb") as binary:
                for index in range(pieces):
                    binary.seek((size - length) * index // max(pieces - 1, 1))
                    digest.update(binary.read(length))
            fingerprints[path] = f"{digest.hexdigest()} {size}"
        return {"Python": python, "t2t_keras": version}, contents, fingerprints

    return report


def _ask(tokens: list[str], paths: list[str]) -> list[tuple[str, Report]]:
    """Returns the name of each node and what it reports."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    probe = ray.remote(_probe())
    waiting = {}
    for node in alive_nodes():
        if node["Resources"].get("CPU"):
            name = f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})"
            strategy = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            probe_here = probe.options(
                num_cpus=0, scheduling_strategy=strategy, max_retries=0
            )
            waiting[probe_here.remote(tokens, paths, _COMPARED_BYTES)] = name
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
            reports.append((waiting[reference], Report(*ray.get(reference))))
        except ray.exceptions.RayError as error:
            raise UserError(
                f"--cluster: node {waiting[reference]} cannot run a task: "
                f"{first_line(error)}; remove it from the cluster, or start it again"
            ) from None
    return reports
