"""The one error type that travels through every layer; a surface turns it into its own envelope."""

from __future__ import annotations

from collections.abc import Sequence

MESSAGE_LENGTH = 1000
PARAM_LENGTH = 256
"""Characters that an error says at most, as it quotes what strangers sent."""


class ApiError(Exception):
    """A failure that a client is told about.

    Attributes:
        message: what is wrong, where, and what to do; safe to show to the client.
        type: error class in OpenAI's vocabulary, such as ``invalid_request_error`` or ``server_error``.
        code: machine-readable cause, such as ``context_length_exceeded``; ``None`` if there is no narrower word.
        status: HTTP status if no byte of the answer has been sent yet.
        param: the request field at fault, as a path (``messages[2].content``).
        retry_after: seconds after which the same request may succeed (429 and 503).
    """

    def __init__(
        self,
        message: str,
        *,
        type: str = "invalid_request_error",
        code: str | None = None,
        status: int = 400,
        param: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = clipped(message, MESSAGE_LENGTH)
        self.type = type
        self.code = code
        self.status = status
        self.param = None if param is None else param[:PARAM_LENGTH]
        self.retry_after = retry_after


def clipped(text: str, length: int) -> str:
    """At most so many characters of a text; what is cut ends with ``…``."""
    return text if len(text) <= length else text[: length - 1] + "…"


def invalid(message: str, *, param: str | None = None, code: str | None = None) -> ApiError:
    """A 400: the request cannot be honoured as it stands."""
    return ApiError(message, param=param, code=code)


def missing(path: str) -> ApiError:
    """A 400 for a field that has to be there."""
    return invalid(f"{path} is required.", param=path, code="missing_required_parameter")


class ContextLengthExceeded(ApiError):
    """The prompt does not fit the context, or leaves no room in it for even one token of an answer; a 400 that names
    both numbers.

    ``at_least``: the prompt was not counted to its end. ``answered``: whether an answer was to follow.
    """

    def __init__(
        self, prompt_tokens: int, context_length: int, *, param: str, at_least: bool = False, answered: bool = True
    ) -> None:
        count = f"at least {prompt_tokens}" if at_least else str(prompt_tokens)
        room = ", which leaves no room for an answer" if answered else ""
        super().__init__(
            # Clients tell this case by "maximum context length is" (litellm) or "prompt is too long" (LangChain).
            f"This model's maximum context length is {context_length} tokens, but the prompt is too long: it alone has "
            f"{count} tokens{room}. Shorten it.",
            code="context_length_exceeded",
            param=param,
        )
        self.prompt_tokens = prompt_tokens
        self.context_length = context_length
        self.at_least = at_least


def context_length_exceeded(
    prompt_tokens: int,
    context_length: int,
    *,
    param: str = "messages",
    at_least: bool = False,
    answered: bool = True,
) -> ApiError:
    """See `ContextLengthExceeded`."""
    return ContextLengthExceeded(prompt_tokens, context_length, param=param, at_least=at_least, answered=answered)


class ModelNotFound(ApiError):
    """A 404. ``name``: the model that was asked for; ``instead``: what there is."""

    def __init__(self, name: str, instead: str) -> None:
        message = f"The model {name[:128]!r} is not served here. {instead}"
        super().__init__(message, code="model_not_found", status=404, param="model")
        self.name = name


def model_not_found(name: str, served: Sequence[str]) -> ModelNotFound:
    """A 404 that lists what is served."""
    return ModelNotFound(name, f"Served: {', '.join(served) or 'none'}.")


def model_loading(name: str) -> ApiError:
    """A 503: the model will answer in a while."""
    return ApiError(
        f"The model {name[:128]!r} is being loaded. Try again in a few seconds.",
        type="server_error",
        code="model_loading",
        status=503,
        retry_after=5.0,
    )


def no_model() -> ApiError:
    """A 503: nothing is loaded."""
    return ApiError("No model is loaded.", type="server_error", code="no_model", status=503)


def overloaded(message: str, *, retry_after: float) -> ApiError:
    """A 429: the queue is full; the same request may be sent again later."""
    return ApiError(message, type="rate_limit_exceeded", code="queue_full", status=429, retry_after=retry_after)


ENGINE_LOST = "engine_lost"
"""Code of the failure after which there will be no engine any more."""


def engine_lost(message: str) -> ApiError:
    """A 503: there is no engine, and there will be none."""
    return ApiError(message, type="server_error", code=ENGINE_LOST, status=503)


def engine_failed(message: str, *, retry_after: float | None = None) -> ApiError:
    """A 503: the engine is not there or failed while it worked on the request."""
    return ApiError(message, type="server_error", code="engine_error", status=503, retry_after=retry_after)
