"""Conversations that no server has seen before: drawn from a seed, so that every server of a round gets the same."""

from __future__ import annotations

import random

from millstream.bench.http.workload import Conversation, Workload

_TOPICS = (
    "how bread rises",
    "the history of the bicycle",
    "why leaves change colour",
    "the life of a honey bee",
    "how a refrigerator cools",
    "the causes of earthquakes",
    "how glass is made",
    "the phases of the moon",
    "how a piano sounds",
    "the migration of birds",
    "how tides arise",
    "the work of a glacier",
)
_ASKS = (
    "Explain {topic} to a beginner, step by step and at length.",
    "Write a detailed essay about {topic}, with examples.",
    "Give a long and careful introduction to {topic}.",
)
_WHO = ("The committee", "A customer", "The engineer on duty", "Our supplier", "The auditor", "The night shift")
_DID = ("reported", "confirmed", "rejected", "measured", "postponed", "approved", "repaired", "compared")
_WHAT = (
    "the pressure in the second pump",
    "a delayed shipment of valves",
    "the revised travel policy",
    "the calibration of the scales",
    "the minutes of the last meeting",
    "a fault in the cooling circuit",
    "an invoice without a reference",
)
_HOW = (
    "after a short discussion",
    "before the end of the week",
    "because the earlier figures did not agree",
    "with the help of another site",
    "although nobody had asked for it",
    "during the second visit",
)


def conversations(workload: Workload, seed: int) -> list[Conversation]:
    """The conversations of one round, ``workload.requests`` of them."""
    chance = random.Random(seed)
    if workload.conversations:
        given = workload.conversations
        return [given[at % len(given)] for at in range(workload.requests)]
    if workload.prompts == "shared":
        notes = f"Handbook {chance.randrange(10**6)}. Answer in full sentences by these notes. "
        system = {"role": "system", "content": notes + _prose(chance, workload.words)}
        return [[system, *_question(chance)] for _ in range(workload.requests)]
    if workload.prompts == "documents":
        return [_documents(chance, workload.words) for _ in range(workload.requests)]
    return [_question(chance) for _ in range(workload.requests)]


def _question(chance: random.Random) -> Conversation:
    text = chance.choice(_ASKS).format(topic=chance.choice(_TOPICS))
    return [{"role": "user", "content": f"({chance.randrange(10**6)}) {text}"}]


def _documents(chance: random.Random, words: int) -> Conversation:
    parts = [f"[File {chance.randrange(10**6)}]\n{_prose(chance, max(1, words // 4))}" for _ in range(4)]
    return [{"role": "user", "content": "\n\n".join([*parts, "Write a long summary of what was reported above."])}]


def _prose(chance: random.Random, words: int) -> str:
    sentences: list[str] = []
    count = 0
    while count < words:
        choices = (chance.choice(_WHO), chance.choice(_DID), chance.choice(_WHAT), chance.choice(_HOW))
        sentences.append(" ".join(choices) + f", case {chance.randrange(10_000)}.")
        count += sentences[-1].count(" ") + 1
    return " ".join(sentences)
