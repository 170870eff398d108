"""What an operator may do with models while the server runs: see, load, unload, fetch.

A request names a model, never a file: the name is looked up in what is served, in the model folder and in the
catalogue.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from millstream.admin.views import ModelState, ModelView
from millstream.hosting.host import ModelHost
from millstream.hosting.opening import ModelLoadError, ModelSource
from millstream.hosting.pulls import Pulls
from millstream.ir.errors import ApiError
from millstream.models.catalogue import CATALOGUE, CatalogueModel
from millstream.models.shelf import ShelfModel, shelf

_Models = Mapping[str, ShelfModel]


class ModelDesk:
    """The models of one host. ``folder`` None: the model folder."""

    def __init__(
        self,
        host: ModelHost,
        pulls: Pulls,
        *,
        folder: Path | None = None,
        catalogue: tuple[CatalogueModel, ...] = CATALOGUE,
    ) -> None:
        self._host = host
        self._pulls = pulls
        self._folder = folder
        self._catalogue = catalogue
        self._named: dict[str, ModelSource] = {}

    def remember(self, source: ModelSource) -> None:
        """A file that the command line named: it may lie anywhere, and can be loaded again by its name."""
        self._named[source.name] = source

    def views(self) -> list[ModelView]:
        """Served models, the default first, then those that are here, then those that can be fetched."""
        models = self._models()
        views = [self._view(name, models) for name in dict.fromkeys((*self._host.names(), *models))]
        return sorted(views, key=lambda view: view.state == "available")

    async def load(self, name: str) -> ModelView:
        """Begin to load a model that is here.

        Raises:
            ApiError: 404 no such name; 409 it is not here, is being unloaded, does not fit into memory or cannot run.
        """
        models = self._models()
        model = self._find(name, models)
        if self._host.is_unloading(name):
            raise _conflict(f"The model {name} is being unloaded. Load it when that is done.", code="model_unloading")
        if self._host.served(name) is None and not self._host.is_loading(name):
            if model.path is None:
                raise _conflict(f"The model {name} is not here. Fetch it first, with a pull.", code="model_not_here")
            source = ModelSource(name, model.path)
            try:
                await self._host.check(source)
            except ModelLoadError as error:
                raise _conflict(f"The model {name} cannot be loaded: {error}.", code="model_not_loadable") from None
            self._host.load(source)
        return self._view(name, models)

    async def unload(self, name: str) -> ModelView:
        """Begin to end a model, or stop loading it.

        Raises:
            ApiError: 404 no such name; 409 it is not loaded.
        """
        models = self._models()
        self._find(name, models)
        if name not in self._host.names():
            raise _conflict(f"The model {name} is not loaded.", code="model_not_loaded")
        self._host.unload(name)
        return self._view(name, models)

    async def pull(self, name: str) -> ModelView:
        """Begin to fetch a model of the catalogue.

        Raises:
            ApiError: 404 no such name; 409 it is no model of the catalogue.
        """
        models = self._models()
        model = self._find(name, models)
        if model.path is None and model.origin is not None:
            self._pulls.start(model.origin)
        elif model.path is None:
            raise _conflict(f"The model {name} is no model of the catalogue and cannot be fetched.", code="no_origin")
        return self._view(name, models)

    async def cancel_pull(self, name: str) -> ModelView:
        """Stop a fetch.

        Raises:
            ApiError: 404 no such name; 409 it is not being fetched.
        """
        self._find(name, self._models())
        if not await self._pulls.cancel(name):
            raise _conflict(f"The model {name} is not being fetched.", code="not_pulling")
        return self._view(name, self._models())

    def _models(self) -> dict[str, ShelfModel]:
        """All that can be named. What the command line named comes before a file of the same name in the folder."""
        found = shelf(self._folder, self._catalogue)
        for source in self._named.values():
            known = found.get(source.name)
            if known is None or known.path != source.path:
                found[source.name] = _outside(source, known)
        for name in self._host.names():  # its file may have been removed
            found.setdefault(name, ShelfModel(name=name, title=name, license="", size=0, path=None))
        return found

    def _find(self, name: str, models: _Models) -> ShelfModel:
        if name in models:
            return models[name]
        raise ApiError(
            f"There is no model {name[:128]!r}. Known: {', '.join(models)}.",
            code="model_not_found",
            status=404,
            param="model",
        )

    def _view(self, name: str, models: _Models) -> ModelView:
        model = models[name]
        served = self._host.served(name)
        info = served.info if served is not None else None
        pull = self._pulls.progress(name)
        failure = self._host.failure(name)
        origin = model.origin
        return ModelView(
            name=name,
            state=self._state(name, model),
            title=model.title,
            license=model.license,
            file_bytes=model.size,
            fetch_bytes=origin.download_bytes if origin is not None else 0,
            fetched_bytes=pull.done if pull is not None else 0,
            context_length=info.context_length if info is not None else 0,
            kv_tokens=info.kv_tokens if info is not None else 0,
            kv_type=info.kv_type if info is not None else "",
            activations=info.activations if info is not None else "",
            open_requests=served.open_requests if served is not None else 0,
            default=name == self._host.default,
            error=failure.reason if failure is not None else self._pulls.error(name),
        )

    def _state(self, name: str, model: ShelfModel) -> ModelState:
        if self._host.is_unloading(name):
            return "unloading"
        if self._host.served(name) is not None:
            return "loaded"
        if self._host.is_loading(name):
            return "loading"
        if self._pulls.progress(name) is not None:
            return "pulling"
        if self._host.failure(name) is not None:
            return "failed"
        return "on_disk" if model.path is not None else "available"


def _outside(source: ModelSource, known: ShelfModel | None) -> ShelfModel:
    """A file that is not in the folder. ``known``: what the listing has under its name, maybe another copy of it."""
    try:
        size, path = source.path.stat().st_size, source.path
    except OSError:
        size, path = 0, None
    if known is not None and known.origin is not None and known.origin.filename == source.path.name:
        return msgspec.structs.replace(known, size=size, path=path)
    return ShelfModel(name=source.name, title=source.path.stem, license="", size=size, path=path)


def _conflict(message: str, *, code: str) -> ApiError:
    return ApiError(message, code=code, status=409, param="model")
