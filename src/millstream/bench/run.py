"""One benchmark run: load the model, run the plan, look at memory and at what the machine could do."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from millstream.bench.errors import BenchError
from millstream.bench.plan import Plan, standard_plan
from millstream.bench.system import CpuMeter, peak_resident_bytes, resident_bytes, seconds_alive
from millstream.engine.config import Activations, KvType

if TYPE_CHECKING:  # the model begins to load before what measures it is imported
    from millstream.bench.engine import CaseResults, Overhead
    from millstream.bench.limits import Bandwidth
    from millstream.bench.server import ServerStart
    from millstream.bench.structured import Structured
    from millstream.engine.core import EngineCore
    from millstream.engine.protocol import EngineInfo

_LEAST_SEQUENCES = 16
"""The engine has room for so many, whatever the plan runs."""
_FIRST_PROMPT = 64
"""Tokens of the prompt of the first generation, which makes one more; fewer if the context is shorter."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """``plan`` None: the standard plan, ``quick`` a shorter form of it. ``extras``: also measure the machine's memory
    bandwidth, the share of Python in a step and the start of a server. ``step_tokens`` None: the engine's default."""

    plan: Plan | None = None
    threads: int = 0
    kv_type: KvType = "f16"
    activations: Activations = "int12"
    step_tokens: int | None = None
    quick: bool = False
    extras: bool = True


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was measured. ``load_s`` and ``first_token_s`` count from the start of the process.
    ``others_busy``: share of all processors that other programs used while the plan ran."""

    model: str
    weights: str
    file_bytes: int
    isa: str
    threads: int
    weight_bytes: int
    kv_bytes: int
    kv_type: KvType
    activations: Activations
    load_s: float
    first_token_s: float
    resident_bytes: int
    peak_bytes: int
    plan: Plan
    results: CaseResults
    others_busy: float
    overhead: Overhead | None = None
    structured: Structured | None = None
    bandwidth: Bandwidth | None = None
    server: ServerStart | None = None

    def adapter_line(self) -> dict[str, Any]:
        """The object that a harness for several engines reads: names, times and tokens per second of every sample."""
        from millstream import __version__

        return {
            "engine": f"millstream {__version__}",
            "weights": self.weights,
            "load_s": self.load_s,
            "first_token_s": self.first_token_s,
            "check_ids": self.results.check_ids,
            "cases": self.results.rates,
            "isa": self.isa,
            "threads": self.threads,
            "weight_bytes": self.weight_bytes,
            "kv_bytes": self.kv_bytes,
            "kv_type": self.kv_type,
            "activations": self.activations,
            "peak_rss_bytes": self.peak_bytes,
            "others_busy": self.others_busy,
        }


def run_benchmark(path: Path, options: Options, *, on_stage: Callable[[str], None] = lambda stage: None) -> Report:
    """Measure the model in ``path``. ``on_stage`` is told what is being measured.

    Raises:
        BenchError, ModelFileError: there is nothing to measure, with the reason.
    """
    started = options.plan.t0 if options.plan and options.plan.t0 is not None else time.time() - seconds_alive()
    on_stage("loading")
    core, info, plan, weights = _load(path, options)
    loaded = time.time()
    from millstream.bench.engine import run_plan, run_together

    run_together(core, [[100 % info.vocab_size] * max(min(_FIRST_PROMPT, info.context_length - 1), 1)], 1)
    first_token = time.time()
    extras = overhead = structured = bandwidth = server = None
    if options.extras:
        from millstream.bench.extras import Extras

        extras = Extras(path, info, on_stage)
        server = extras.server(threads=options.threads)
    meter = CpuMeter()
    results = run_plan(core, plan, on_case=on_stage)
    others_busy = meter.others()
    if extras is not None:
        overhead = extras.overhead(core)
        structured = extras.structured(core, rounds=1 if options.quick else 3)
    resident, peak = resident_bytes(), peak_resident_bytes()
    del core
    if extras is not None:
        bandwidth = extras.bandwidth()
    return Report(
        model=info.model,
        weights=weights,
        file_bytes=path.stat().st_size,
        isa=info.isa,
        threads=info.threads,
        weight_bytes=info.weight_bytes,
        kv_bytes=info.kv_bytes,
        kv_type=info.kv_type,
        activations=info.activations,
        load_s=loaded - started,
        first_token_s=first_token - started,
        resident_bytes=resident,
        peak_bytes=peak,
        plan=plan,
        results=results,
        others_busy=others_busy,
        overhead=overhead,
        structured=structured,
        bandwidth=bandwidth,
        server=server,
    )


def _load(path: Path, options: Options) -> tuple[EngineCore, EngineInfo, Plan, str]:
    """The engine with a KV cache that just holds the plan, and without the prefix cache."""
    from millstream.engine.config import EngineConfig
    from millstream.engine.loading import build_core
    from millstream.engine.sizing import kv_bytes_per_token
    from millstream.ir.sizes import size
    from millstream.models.ggml import TENSOR_TYPES
    from millstream.models.loader import load_model_file
    from millstream.native import BLOCK_SIZE, strings_end

    with load_model_file(path, strings_end=strings_end) as file:
        spec = file.spec
        volume: Counter[int] = Counter()
        for weight in file.weights:
            volume[weight.tensor.ggml_type] += weight.rows * weight.cols
        plan = options.plan or standard_plan(
            vocab_size=spec.vocab_size, context_length=spec.context_length, quick=options.quick
        )
        longest = max((case.longest for case in plan.cases), default=0)
        if longest > spec.context_length:
            raise BenchError(f"the plan needs {longest} tokens of context, but the model has {spec.context_length}")
        tokens = max(plan.kv_tokens(BLOCK_SIZE), 2 * _FIRST_PROMPT)
        most = max([_LEAST_SEQUENCES, *(case.sequences for case in plan.cases)])
        if options.extras:
            from millstream.bench.extras import MOST_SEQUENCES, kv_tokens

            tokens, most = max(tokens, kv_tokens(BLOCK_SIZE)), max(most, MOST_SEQUENCES)
        config = EngineConfig(
            model_path=os.fspath(path),
            model_name=path.stem,
            kv_bytes=tokens * kv_bytes_per_token(spec, options.kv_type),
            kv_type=options.kv_type,
            activations=options.activations,
            threads=options.threads,
            prefix_cache=False,
            max_sequences=most,
            max_waiting=most,
        )
        if options.step_tokens is not None:
            config = msgspec.structs.replace(config, step_tokens=options.step_tokens)
        try:
            core, info = build_core(file, config)
        except MemoryError:
            kv = tokens * kv_bytes_per_token(spec, options.kv_type)
            raise BenchError(
                f"not enough memory: beside the weights, {size(kv)} for the keys and values of the plan are needed. "
                "Run fewer or shorter sequences together."
            ) from None
        except (ValueError, RuntimeError, OSError) as error:
            raise BenchError(str(error) or type(error).__name__) from None
    return core, info, plan, TENSOR_TYPES[volume.most_common(1)[0][0]].name.lower()
