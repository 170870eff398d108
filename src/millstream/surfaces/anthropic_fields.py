"""The request fields of the Anthropic surface, held against requests and printed in docs/api.md."""

from __future__ import annotations

from millstream.surfaces import service
from millstream.surfaces.fields import field_table, honoured, ignored, refused

MESSAGES_FIELDS = field_table(
    (
        honoured("model", "Required; one of `/v1/models`."),
        honoured(
            "messages",
            "Required. Roles user, assistant and system, the last one assistant never: an answer is always a new turn. "
            "Content: a string or blocks. `text`; `thinking` (any signature is taken); `tool_use`; `tool_result` with "
            "a string or `text` blocks, `is_error` puts a line `[tool error]` before it; `tool_reference`, "
            "`tool_addition` and `tool_removal` change what tools are offered. `redacted_thinking` and the blocks of "
            "Anthropic's own tools (`server_tool_use`, `web_search_tool_result` …) are left out. Images, documents and "
            "all other blocks are refused by path. Turns of one role in a row become one; a system turn stays where it "
            "is, and with `clear_at: next_user_message` goes after the next user turn; its "
            "`output_config` is ignored.",
        ),
        honoured(
            "max_tokens", "Required, at least 1. What the window does not hold is no error: the answer ends there."
        ),
        honoured(
            "system",
            "A string or text blocks, joined with an empty line. Lines `x-anthropic-…` at the beginning of a block, "
            "which differ from request to request, are left out, so that the prefix cache holds.",
        ),
        honoured("stop_sequences", "Up to 16 strings, 4096 characters in all; the one that ended the answer is told."),
        honoured("temperature", "0 to 1, default 1; 0 is greedy."),
        honoured("top_p", "Above 0, up to 1; default 1."),
        honoured("top_k", "0 (default): off."),
        honoured("stream", "Server-sent events as the text is generated."),
        honoured(
            "thinking",
            "`enabled` and `adaptive` set the template's `enable_thinking` (and `thinking`) to true, `disabled` to "
            "false; without it the template decides. `budget_tokens` (at least 1): after so many tokens the reasoning "
            "at the beginning of the answer is ended, and the answer goes on; the template gets it as "
            "`thinking_budget` too. With a model that does not reason it changes nothing. `display: omitted` leaves "
            "the text out and puts it in the signature, from which it is read when the block is sent again; any other "
            "display shows it whole.",
        ),
        honoured(
            "output_config",
            "`effort` is given to the chat template as `reasoning_effort`, which may not read it. `format`: a "
            "`json_schema` that the text must satisfy. `task_budget` is ignored.",
        ),
        honoured("output_format", "The older name of `output_config.format`, which wins."),
        honoured(
            "tools",
            "Tools with an `input_schema` (`type` custom or none). Tools of Anthropic's servers without a schema "
            "(`web_search_…`, `bash_…`, `text_editor_…`, `computer_…`, `code_execution_…`, any other type) are left "
            "out with an `x-millstream-warning` header, and refused where `tool_choice` forces them. A tool with "
            "`defer_loading` is offered once a `tool_reference` or `tool_addition` names it.",
        ),
        honoured("tool_choice", "auto, any, tool (by name) or none; `disable_parallel_tool_use`."),
        *service.FIELDS,
        ignored("metadata", "Names an end user; changes nothing of the answer."),
        ignored("service_tier", "There is one tier."),
        ignored("speed", "There is one speed."),
        ignored("cache_control", "A hint; the prefix cache works without, here and in every block."),
        ignored("context_management", "A prompt is never edited by the server."),
        ignored("betas", "As the `anthropic-beta` header: nothing here depends on it."),
        ignored("anthropic_beta", "The same under the name that some clouds use."),
        ignored("anthropic_version", "There is one version."),
        ignored("inference_geo", "The model runs here."),
        ignored("diagnostics", "A request for explanations of cache misses; none are given."),
        ignored("billing_policy", "Nothing is billed."),
        ignored("user_profile_id", "Names an end user; changes nothing of the answer."),
        ignored("workspace_id", "There are no workspaces."),
        ignored("fallbacks", "Models to try instead; a request goes to the model it names."),
        ignored("fallback_credit_token", "Nothing is billed."),
        refused("container", "there are no containers."),
        refused("mcp_servers", "the server calls no MCP servers; give their tools in `tools`.", []),
        refused("compaction", "conversations are not compacted."),
        refused("thread", "conversations are not stored; the SDKs' tool runners then go on without."),
    ),
    surface="Messages",
)
