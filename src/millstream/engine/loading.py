"""Loads a model and builds the engine around it.

A small model is repacked in the time that Python needs for its imports. Both run side by side: what the weights do not
need, the scheduler and all that runs steps, is imported once they have begun to load.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Generic, TypeVar

from millstream.engine.config import EngineConfig
from millstream.engine.memory import memory_need
from millstream.engine.protocol import EngineInfo
from millstream.engine.sizing import available_memory, plan_kv, token_cost
from millstream.models.loader import ModelFile, build_native, load_model_file
from millstream.native import BLOCK_SIZE, Model, active_isa, strings_end

if TYPE_CHECKING:
    from millstream.engine.core import EngineCore

T = TypeVar("T")


def load_core(config: EngineConfig) -> tuple[EngineCore, EngineInfo]:
    """Load the model and build everything around it.

    Raises:
        ModelFileError, ValueError, RuntimeError, MemoryError: with a message for the person who starts the engine.
    """
    with load_model_file(config.model_path, strings_end=strings_end) as model_file:
        return build_core(model_file, config)


def build_core(model_file: ModelFile, config: EngineConfig) -> tuple[EngineCore, EngineInfo]:
    """As `load_core`, of a file that is open: that of ``config``, which may be closed afterwards."""
    isa = active_isa()
    spec = model_file.spec
    blocks, context = _plan(model_file, config)
    with Beside(lambda: _build(model_file, config, blocks)) as building:
        from millstream.engine.constraints import FileConstraints
        from millstream.engine.core import EngineCore
        from millstream.engine.runner import NativeRunner
        from millstream.scheduler.places import SchedulerConfig
        from millstream.scheduler.scheduler import Scheduler

        model = building.result()
    scheduler = Scheduler(
        SchedulerConfig(
            kv_blocks=blocks,
            block_size=BLOCK_SIZE,
            step_tokens=config.step_tokens,
            max_sequences=config.max_sequences,
            max_waiting=config.max_waiting,
            prefix_cache=config.prefix_cache,
            token_cost=token_cost(spec),
        )
    )
    runner = NativeRunner(
        model,
        vocab_size=spec.vocab_size,
        hidden_size=spec.hidden,
        step_tokens=config.step_tokens,
        max_sequences=config.max_sequences,
        max_rows=config.max_rows,
        max_blocks=-(-context // BLOCK_SIZE),
    )
    info = EngineInfo(
        model=config.model_name,
        context_length=context,
        vocab_size=spec.vocab_size,
        kv_tokens=blocks * BLOCK_SIZE,
        block_size=BLOCK_SIZE,
        isa=isa,
        threads=model.threads,
        weight_bytes=model.weight_bytes,
        kv_bytes=model.kv_bytes,
        hidden_size=spec.hidden,
        kv_type=config.kv_type,
        activations=config.activations,
    )
    constraints = FileConstraints(config.model_path)
    return EngineCore(scheduler, runner, constraints, vocab_size=spec.vocab_size), info


def _plan(model_file: ModelFile, config: EngineConfig) -> tuple[int, int]:
    """Blocks of the KV cache, and the context length."""
    need = memory_need(model_file, max_rows=config.max_rows, kv_type=config.kv_type)
    memory = available_memory() if config.memory_bytes is None else config.memory_bytes
    return plan_kv(
        model_file.spec,
        block_size=BLOCK_SIZE,
        context_length=config.context_length,
        kv_bytes=config.kv_bytes,
        free_bytes=memory - need.weights - need.working,
        kv_type=config.kv_type,
    )


def _build(model_file: ModelFile, config: EngineConfig, blocks: int) -> Model:
    return build_native(
        model_file,
        kv_blocks=blocks,
        max_tokens=config.step_tokens,
        max_rows=config.max_rows,
        threads=config.threads,
        kv_type=config.kv_type,
        activations=config.activations,
    )


class Beside(Generic[T]):
    """Runs a function in a thread while the body of the ``with`` does something else. It is over when the body ends,
    unless that ends with an error or is interrupted: then nobody waits for the thread."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self._made: list[T] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="loading", daemon=True)

    def result(self) -> T:
        """What the function returned, once it has; or raises what it raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._made[0]

    def _run(self) -> None:
        try:
            self._made.append(self._function())
        except BaseException as error:
            self._error = error

    def __enter__(self) -> Beside[T]:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._thread.join()
