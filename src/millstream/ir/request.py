"""The provider-neutral request. Surfaces decode into it; providers read nothing else.

Every default is neutral: a field that the caller did not set changes nothing of what the model says.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Role = Literal["system", "developer", "user", "assistant", "tool"]


class ToolCall(msgspec.Struct, frozen=True):
    """A call an assistant made earlier in the conversation. ``arguments`` is JSON text."""

    id: str
    name: str
    arguments: str


class Message(msgspec.Struct, frozen=True):
    """One turn. Text parts are joined by the surface, so ``content`` is plain text."""

    role: Role
    content: str = ""
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None


class Tool(msgspec.Struct, frozen=True):
    """A function that the model may call; ``parameters`` is a JSON schema."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ToolChoice(msgspec.Struct, frozen=True):
    """``names`` narrows the choice to these tools (empty: all that were declared)."""

    mode: Literal["auto", "none", "required"] = "auto"
    names: tuple[str, ...] = ()


class ResponseFormat(msgspec.Struct, frozen=True):
    """What shape the visible text must have.

    ``schema`` goes with ``json_schema``, ``pattern`` with ``regex`` (a regular expression) and ``grammar`` (Lark).
    ``strict`` None leaves the choice to the server, which enforces the schema in any case.
    """

    kind: Literal["text", "json_object", "json_schema", "regex", "grammar"] = "text"
    schema: dict[str, Any] | bool | None = None
    pattern: str | None = None
    name: str | None = None
    strict: bool | None = None


class Sampling(msgspec.Struct, frozen=True):
    """How tokens are drawn.

    ``temperature`` 0 is greedy. ``top_k`` 0, ``top_p`` 1 and ``min_p`` 0 switch their filter off. The repetition
    penalty looks at prompt and output, presence and frequency penalties at the output only. ``seed`` None: the server
    draws one. ``max_tokens`` None: up to the end of the context.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict[int, float] = {}
    seed: int | None = None
    max_tokens: int | None = None
    min_tokens: int = 0
    ignore_eos: bool = False
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()


class Output(msgspec.Struct, frozen=True):
    """What the deltas carry besides text. ``logprobs``: number of alternatives per position, None for no logprobs."""

    logprobs: int | None = None
    token_ids: bool = False


PRIORITY_RANGE = (-100, 100)
"""Classes that a request may name."""


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """How a request is served; nothing of it changes a token of the answer.

    ``priority``: lower is served first; None: the request names none, which is 0. ``timeout``: seconds after which the
    answer ends; None: never. ``speculation``: whether tokens may be drafted from what was read and written.
    """

    priority: int | None = None
    timeout: float | None = None
    speculation: bool = True


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation to be continued by ``n`` independent choices. ``reasoning_budget``: tokens after which the
    reasoning at the beginning of an answer is ended; None: it takes what it takes."""

    model: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    parallel_tool_calls: bool = True
    response_format: ResponseFormat = ResponseFormat()
    template_kwargs: dict[str, Any] = {}
    sampling: Sampling = Sampling()
    output: Output = Output()
    reasoning_effort: str | None = None
    reasoning_budget: int | None = None
    n: int = 1
    tenant: str = ""
    service: Service = Service()

    @property
    def choices(self) -> int:
        """Number of choices in the answer."""
        return self.n


class CompletionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Raw texts or token ids to be continued, without a chat template: ``n`` choices of each prompt.

    Choice ``k * n + c`` is choice c of prompt k. ``echo``: each choice begins with its prompt (then
    ``sampling.max_tokens`` may be 0: nothing is generated). ``best_of``: draw so many per prompt and answer with the
    ``n`` whose tokens have the highest mean log probability. ``suffix``: what follows the text to be filled in.
    """

    model: str
    prompts: tuple[str | tuple[int, ...], ...]
    echo: bool = False
    best_of: int | None = None
    suffix: str | None = None
    sampling: Sampling = Sampling()
    output: Output = Output()
    n: int = 1
    tenant: str = ""
    service: Service = Service()

    @property
    def choices(self) -> int:
        """Number of choices in the answer."""
        return self.n * len(self.prompts)


class EmbeddingRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Texts or token ids that are each to become one vector. ``dimensions``: keep so many leading components."""

    model: str
    inputs: tuple[str | tuple[int, ...], ...]
    dimensions: int | None = None
    tenant: str = ""
    service: Service = Service()


Request = ChatRequest | CompletionRequest
