"""The fields of a Responses request: held against requests and printed in docs/api.md."""

from __future__ import annotations

from millstream.surfaces import service
from millstream.surfaces.fields import Field, field_table

HOSTED_TOOLS = (
    "web_search",
    "web_search_2025_08_26",
    "web_search_preview",
    "web_search_preview_2025_03_11",
    "file_search",
    "code_interpreter",
    "computer",
    "computer_use",
    "computer_use_preview",
    "mcp",
    "image_generation",
    "local_shell",
    "shell",
    "apply_patch",
    "tool_search",
    "programmatic_tool_calling",
)
"""Tools that OpenAI runs itself. They are left out of the prompt, and the answer says so in a header."""


def _honoured(name: str, note: str) -> Field:
    return Field(name, "honoured", note)


def _refused(name: str, note: str, *neutral: object) -> Field:
    return Field(name, "refused", note, neutral)


def _ignored(name: str, note: str) -> Field:
    return Field(name, "ignored", note)


_SAMPLING = (
    _honoured("temperature", "0 to 2, default 1; 0 is greedy."),
    _honoured("top_p", "Above 0, up to 1; default 1."),
    _honoured("top_k", "0 or -1 (default): off."),
    _honoured("min_p", "0 to 1, default 0."),
    _honoured("repetition_penalty", "Above 0, up to 10; default 1; over prompt and output."),
    _honoured("presence_penalty", "-2 to 2, default 0; over the output."),
    _honoured("frequency_penalty", "-2 to 2, default 0; over the output."),
    _honoured("seed", "A signed 64-bit integer. The same seed gives the same tokens."),
    _honoured("stop", "A string or up to 16 of them, 4096 characters in all; none is ever part of the text."),
)

RESPONSES_FIELDS = field_table(
    (
        _honoured("model", "Required; one of `/v1/models`."),
        _honoured(
            "input",
            "Required (unless `previous_response_id` is given): a string or a list of items. Items: messages of the "
            "roles user, system, developer, assistant (with or without `type`; a string or text parts), "
            "`function_call`, `function_call_output`, `custom_tool_call`, `custom_tool_call_output`, `reasoning`, "
            "`item_reference` (to an item of a stored answer). Calls of hosted tools in earlier answers are left out "
            "(the header `x-millstream-warning` names them); other items, images, audio and files are refused by path.",
        ),
        _honoured("instructions", "A system message before everything else; not inherited by later answers."),
        _honoured("previous_response_id", "Input and output of that stored answer, and of those before it, go first."),
        _honoured("store", "Default true: the answer can be continued, retrieved and deleted until it is evicted."),
        _honoured(
            "tools",
            "`function`, `custom` (the format's grammar is told to the model, not enforced) and `namespace` (its tools "
            "get joined names in the prompt and their own in the answer). Hosted tools ("
            + ", ".join(f"`{name}`" for name in HOSTED_TOOLS)
            + ") are left out; the header `x-millstream-warning` names them.",
        ),
        _honoured(
            "tool_choice",
            "`auto`, `none`, `required`, a `function` or `custom` tool by name, `allowed_tools`. A hosted tool is "
            "refused.",
        ),
        _honoured("parallel_tool_calls", "false: at most one call. Default true."),
        _honoured("max_tool_calls", "Counts calls of hosted tools, of which there are none."),
        _honoured("text", "`format`: text, json_object or json_schema. `verbosity` is ignored."),
        _honoured(
            "reasoning",
            "`effort` is given to the chat template (`none` also as `enable_thinking: false`), which may not read it. "
            "`summary`: the reasoning itself is sent as the summary too; nothing else summarises it. "
            "`generate_summary` is its older name; `context` and `mode` are ignored.",
        ),
        _honoured("max_output_tokens", "At least 1; default: up to the end of the context. Reasoning counts."),
        *_SAMPLING,
        _honoured("top_logprobs", "0 to 20 alternatives per token; above 0 it includes the log probabilities."),
        _honoured(
            "include",
            "`message.output_text.logprobs`; `reasoning.encrypted_content` (the reasoning in a form that comes back "
            "unchanged; it is not encrypted). What belongs to hosted tools is never there.",
        ),
        _honoured(
            "truncation",
            "`disabled` (default): a prompt that is too long is refused. `auto`: the oldest turns are left out until "
            "it fits; system and developer messages and the last user message stay.",
        ),
        _honoured("metadata", "Up to 16 pairs, keys up to 64 and values up to 512 characters; echoed and stored."),
        _honoured("stream", "Server-sent events as the text is generated."),
        _honoured("chat_template_kwargs", "Variables for the chat template."),
        *service.FIELDS,
        _refused("background", "answers are not made in the background.", False),
        _refused("background_options", "answers are not made in the background."),
        _refused("conversation", "there are no conversation objects; use `previous_response_id`."),
        _refused("prompt", "there are no stored prompts."),
        _refused("context_management", "contexts are not compacted.", []),
        _refused("moderation", "the server does not moderate."),
        _ignored("stream_options", "`include_obfuscation`: nothing is padded."),
        _ignored("user", "Names an end user; echoed, changes nothing of the answer."),
        _ignored("safety_identifier", "Names an end user; echoed, changes nothing of the answer."),
        _ignored("prompt_cache_key", "A routing hint; echoed; the prefix cache works without."),
        _ignored("prompt_cache_options", "A hint; the prefix cache works without."),
        _ignored("prompt_cache_retention", "A hint; the prefix cache works without."),
        _ignored("client_metadata", "Labels of the client."),
        _ignored("service_tier", "There is one tier."),
        _ignored("access_programs", "There are none."),
        _ignored("image", "There are no images."),
    )
)

INCLUDABLE = (
    "message.output_text.logprobs",
    "reasoning.encrypted_content",
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
)
