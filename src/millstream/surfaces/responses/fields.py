"""The fields of a Responses request: held against requests and printed in docs/api.md."""

from __future__ import annotations

from millstream.surfaces import service
from millstream.surfaces.fields import field_table, honoured, ignored, refused
from millstream.surfaces.openai_fields import SAMPLING

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


SAMPLED = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "seed",
    "stop",
)
"""Sampling fields that are those of chat."""

RESPONSES_FIELDS = field_table(
    (
        honoured("model", "Required; one of `/v1/models`."),
        honoured(
            "input",
            "Required (unless `previous_response_id` is given): a string or a list of items. Items: messages of the "
            "roles user, system, developer, assistant (with or without `type`; a string or text parts), "
            "`function_call`, `function_call_output`, `custom_tool_call`, `custom_tool_call_output`, `reasoning`, "
            "`item_reference` (to an item of a stored answer). Calls of hosted tools in earlier answers are left out "
            "(the header `x-millstream-warning` names them); other items, images, audio and files are refused by path.",
        ),
        honoured("instructions", "A system message before everything else; not inherited by later answers."),
        honoured("previous_response_id", "Input and output of that stored answer, and of those before it, go first."),
        honoured("store", "Default true: the answer can be continued, retrieved and deleted until it is evicted."),
        honoured(
            "tools",
            "`function`, `custom` (the format's grammar is told to the model, not enforced) and `namespace` (its tools "
            "get joined names in the prompt and their own in the answer). Hosted tools ("
            + ", ".join(f"`{name}`" for name in HOSTED_TOOLS)
            + ") are left out; the header `x-millstream-warning` names them.",
        ),
        honoured(
            "tool_choice",
            "`auto`, `none`, `required`, a `function` or `custom` tool by name, `allowed_tools`. A hosted tool is "
            "refused.",
        ),
        honoured("parallel_tool_calls", "false: at most one call. Default true."),
        honoured("max_tool_calls", "Counts calls of hosted tools, of which there are none."),
        honoured("text", "`format`: text, json_object or json_schema. `verbosity` is ignored."),
        honoured(
            "reasoning",
            "`effort` is given to the chat template (`none` also as `enable_thinking: false`), which may not read it. "
            "`summary`: the reasoning itself is sent as the summary too; nothing else summarises it. "
            "`generate_summary` is its older name; `context` and `mode` are ignored.",
        ),
        honoured("max_output_tokens", "At least 1; default: up to the end of the context. Reasoning counts."),
        *(field for field in SAMPLING if field.name in SAMPLED),
        honoured("top_logprobs", "0 to 20 alternatives per token; above 0 it includes the log probabilities."),
        honoured(
            "include",
            "`message.output_text.logprobs`; `reasoning.encrypted_content` (the reasoning in a form that comes back "
            "unchanged; it is not encrypted). What belongs to hosted tools is never there.",
        ),
        honoured(
            "truncation",
            "`disabled` (default): a prompt that is too long is refused. `auto`: the oldest turns are left out until "
            "it fits; system and developer messages and the last user message stay.",
        ),
        honoured("metadata", "Up to 16 pairs, keys up to 64 and values up to 512 characters; echoed and stored."),
        honoured(
            "service_tier",
            "`auto`, `default`, `flex`, `scale`, `priority` or `fast`. There is one tier: the answer says `default`.",
        ),
        honoured("stream", "Server-sent events as the text is generated."),
        honoured("chat_template_kwargs", "Variables for the chat template."),
        *service.FIELDS,
        refused("background", "answers are not made in the background.", False),
        refused("background_options", "answers are not made in the background."),
        refused("conversation", "there are no conversation objects; use `previous_response_id`."),
        refused("prompt", "there are no stored prompts."),
        refused("context_management", "contexts are not compacted.", []),
        refused("moderation", "the server does not moderate."),
        ignored("stream_options", "`include_obfuscation`: nothing is padded."),
        ignored("user", "Names an end user; echoed, changes nothing of the answer."),
        ignored("safety_identifier", "Names an end user; echoed, changes nothing of the answer."),
        ignored("prompt_cache_key", "A routing hint; echoed; the prefix cache works without."),
        ignored("prompt_cache_options", "A hint; the prefix cache works without."),
        ignored("prompt_cache_retention", "A hint; the prefix cache works without."),
        ignored("client_metadata", "Labels of the client."),
        ignored("access_programs", "There are none."),
        ignored("image", "There are no images."),
    ),
    surface="Responses",
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
