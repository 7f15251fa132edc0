"""`t2t serve` on a Ray cluster: replicas of a model behind the proxies of Ray Serve.

    pip install ".[serve]" "ray[serve]>=2.60,<3"  # on all nodes
    export PYTHONPATH=/shared/ray_serve           # a copy of this folder, on all nodes
    ray start --head       # on one node; `ray start --address HOST:PORT` on the others
    serve deploy /shared/ray_serve/config.yaml

`config.yaml` names the model and the number of replicas; docs/scaling.md tells more. A
replica is the application of `t2t serve`, with its batches, queues and limits.
"""

import asyncio
from pathlib import Path
from typing import TypedDict

from ray import get_runtime_context, serve
from starlette.applications import Starlette

from t2t_keras import UserError, load
from t2t_keras.plugins.ray.bulk_worker import limit_cores
from t2t_keras.plugins.server.app import make_app
from t2t_keras.plugins.server.requests import Limits
from t2t_keras.plugins.server.served_model import ServedModel
from t2t_keras.plugins.server.versions import FixedModel, missing_part

_WAIT_SECONDS = 0.05


class Args(TypedDict):
    """The entry `args` of `config.yaml`.

    Attributes:
        folder: the folder of the numbered exports, at the same path on all nodes. Its
            name is that of the model in URLs.
        version: the number of the export that is served.
    """

    folder: str
    version: int


class TranslationServer:
    """A replica; Ray Serve adds the attribute `app`, what `make_app` returned."""

    app: Starlette

    async def check_health(self) -> None:
        """Returns when the model has translated a sentence.

        Ray Serve sends no requests to a replica before its first check.

        Raises:
            Exception: the model cannot be loaded.
        """
        manager = self.app.state.service.manager
        while not manager.is_ready:
            if manager.failure is not None:
                raise manager.failure
            await asyncio.sleep(_WAIT_SECONDS)


def build(args: Args) -> serve.Application:
    """Returns the application.

    Args:
        args: see `Args`.

    Raises:
        UserError: there is no complete export of this version; the previous version is
            still served.
    """
    folder = Path(args["folder"])
    version = args["version"]
    path = folder / str(version)
    if reason := missing_part(path):
        raise UserError(reason)

    def make() -> Starlette:
        resources = get_runtime_context().get_assigned_resources()
        limit_cores(max(int(resources.get("CPU", 1)), 1))
        source = FixedModel(lambda: ServedModel(load(path)), version)
        return make_app({folder.name: source}, Limits())

    return serve.deployment(serve.ingress(make)(TranslationServer)).bind()
