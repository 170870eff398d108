"""The options of the commands that answer on the terminal, written once: `talking` puts them into a command."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from millstream.cli.options import (
    ActivationsOption,
    ContextOption,
    EngineOptions,
    FrequencyOption,
    KvCacheOption,
    KvTypeOption,
    MaxTokensOption,
    MinPOption,
    ModelOption,
    NoFetchOption,
    PresenceOption,
    RepetitionOption,
    SeedOption,
    StatsOption,
    StopOption,
    SystemOption,
    TemperatureOption,
    ThreadsOption,
    TopKOption,
    TopPOption,
)
from millstream.cli.shared import shared

if TYPE_CHECKING:
    from millstream.ir.request import Sampling


class Talk(NamedTuple):
    """What the options say. ``fetch``: a model that is not here may be fetched; ``stats``: print counts and speed."""

    model: str | None
    system: str | None
    stats: bool
    fetch: bool
    sampling: Sampling
    engine: EngineOptions


def read_talk(
    model: ModelOption = None,
    system: SystemOption = None,
    stats: StatsOption = False,
    no_fetch: NoFetchOption = False,
    temperature: TemperatureOption = 1.0,
    top_k: TopKOption = 0,
    top_p: TopPOption = 1.0,
    min_p: MinPOption = 0.0,
    repetition_penalty: RepetitionOption = 1.0,
    presence_penalty: PresenceOption = 0.0,
    frequency_penalty: FrequencyOption = 0.0,
    seed: SeedOption = None,
    max_tokens: MaxTokensOption = None,
    stop: StopOption = None,
    threads: ThreadsOption = 0,
    ctx: ContextOption = None,
    kv_cache: KvCacheOption = None,
    kv_type: KvTypeOption = "f16",
    activations: ActivationsOption = "int12",
) -> Talk:
    """The options as a command line has them."""
    from millstream.cli.sampling import sampling_of

    sampling = sampling_of(
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        presence_penalty=presence_penalty,
        frequency_penalty=frequency_penalty,
        seed=seed,
        max_tokens=max_tokens,
        stop=stop or None,
    )
    engine = EngineOptions(
        threads=threads,
        context_length=ctx,
        kv_cache=kv_cache,
        kv_type=kv_type,
        activations=activations,
        max_sequences=1,
    )
    return Talk(model, system, stats, not no_fetch, sampling, engine)


talking = shared(read_talk, "talk")
"""The command with the options of `read_talk` in the place of its parameter ``talk``."""
