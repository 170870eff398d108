"""The request fields of the OpenAI surfaces: one table each, held against requests and printed in docs/api.md."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from millstream.surfaces import service
from millstream.surfaces.fields import Field, FieldTable, field_table, markdown_table


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
    _honoured("logit_bias", "Token id (a string of digits) to a bias of -100 to 100."),
    _honoured("seed", "A signed 64-bit integer. The same seed gives the same tokens, whatever else the server does."),
    _honoured("stop", "A string or up to 16 of them, 4096 characters in all; none is ever part of the text."),
    _honoured("stop_token_ids", "Token ids that end the answer, at most 4096."),
    _honoured("min_tokens", "No end of turn before this many tokens; default 0."),
    _honoured("ignore_eos", "Go on after the model ended its turn; default false."),
)
_OUTPUT = (
    _honoured("n", "Number of choices, 1 to 128 (the operator may set less)."),
    _honoured("stream", "Server-sent events as the text is generated."),
    _honoured(
        "stream_options",
        "`include_usage`: one usage chunk after the last finish. `continuous_usage_stats`: usage so far in each chunk. "
        "`include_obfuscation` changes nothing: chunks are never padded. Only with `stream`.",
    ),
    _honoured("return_token_ids", "`token_ids` in every choice."),
    *service.FIELDS,
)
_IGNORED = (
    _ignored("user", "Names an end user; changes nothing of the answer."),
    _ignored("metadata", "Labels for stored answers; nothing is stored."),
    _ignored("store", "Nothing is stored."),
    _ignored("service_tier", "There is one tier."),
    _ignored("safety_identifier", "Names an end user; changes nothing of the answer."),
    _ignored("prompt_cache_key", "A routing hint; the prefix cache works without."),
    _ignored("prompt_cache_options", "A hint; the prefix cache works without."),
    _ignored("prompt_cache_retention", "A hint; the prefix cache works without."),
    _ignored("cache_prompt", "llama.cpp's switch; the prefix cache is always on and changes no token."),
)
_VENDOR = (
    _refused("use_beam_search", "there is no beam search.", False),
    _refused("length_penalty", "there is no beam search.", 1),
    _refused("include_stop_str_in_output", "a stop string is never part of the text.", False),
    _refused("skip_special_tokens", "control tokens are never part of the text.", True),
    _refused("spaces_between_special_tokens", "control tokens are never part of the text.", True, False),
    _refused("prompt_logprobs", "log probabilities of the prompt are not computed."),
    _refused("truncate_prompt_tokens", "a prompt is never cut."),
    _refused("typical_p", "there is no typical sampling.", 1),
    _refused("mirostat", "there is no mirostat sampling.", 0),
    _refused("guided_json", "use `response_format` of chat completions."),
    _refused("guided_regex", "use `response_format` of chat completions."),
    _refused("guided_choice", "use `response_format` of chat completions."),
    _refused("guided_grammar", "use `response_format` of chat completions."),
    _refused("structured_outputs", "use `response_format` of chat completions."),
    _refused("grammar", "use `response_format` of chat completions.", ""),
)

CHAT_FIELDS = field_table(
    (
        _honoured("model", "Required; one of `/v1/models`."),
        _honoured(
            "messages",
            "Required. Roles system, developer, user, assistant, tool. Content: a string or a list of text parts, "
            "joined without a separator; assistant content may be null. Image, audio and file parts are refused by "
            "path. `reasoning_content` (or `reasoning`), `tool_calls`, `tool_call_id`, `name` and `refusal` are read; "
            "other keys of a message (`annotations`, ids, cache marks), which clients replay from earlier answers, "
            "are ignored.",
        ),
        _honoured("max_completion_tokens", "At least 1; default: up to the end of the context."),
        _honoured("max_tokens", "The older name; `max_completion_tokens` wins."),
        *_SAMPLING,
        *_OUTPUT,
        _honoured("logprobs", "true: log probability of each token under the model's own distribution."),
        _honoured("top_logprobs", "0 to 20 alternatives per token; only with `logprobs`."),
        _honoured("chat_template_kwargs", "Variables for the chat template."),
        _honoured(
            "reasoning_effort",
            "Given to the chat template, which may not read it.",
        ),
        _honoured(
            "tools",
            "Functions. Names: 1 to 64 letters, digits, `_` and `-`, each once. `parameters` is the JSON schema of an "
            "object; `strict: true` holds arguments to it, and so does every `tool_choice` that requires a call.",
        ),
        _honoured(
            "tool_choice",
            '`"none"`, `"auto"` (default), `"required"`, one function by name, or `allowed_tools`. A required call is '
            "enforced by a grammar, with any model but those that write calls as gpt-oss does (refused there).",
        ),
        _honoured("parallel_tool_calls", "false: generation ends after the first call. Default true."),
        _honoured(
            "response_format",
            '`text`, `json_object`, `json_schema`, and as extensions `{"type": "regex", "pattern": …}` and '
            '`{"type": "grammar", "grammar": …}` (Lark, llguidance\'s dialect). Enforced, whatever `strict` says; '
            "a schema that cannot be enforced is a 400. `oneOf` is taken as `anyOf`. Reasoning stays free.",
        ),
        _refused("functions", "deprecated by its inventor; use `tools`.", []),
        _refused("function_call", "deprecated by its inventor; use `tool_choice`.", "none", "auto"),
        _refused("best_of", "choices are not ranked; use `n`.", 1),
        _refused("modalities", "answers are text.", ["text"], []),
        _refused("audio", "answers are text."),
        _refused("prediction", "predicted outputs are not used."),
        _refused("web_search_options", "the server does not search the web."),
        _refused("moderation", "the server does not moderate."),
        _refused("verbosity", "the models served here have no verbosity control.", "medium"),
        _refused("add_generation_prompt", "the assistant's turn is always opened.", True),
        _refused("continue_final_message", "the assistant's turn is always a new one.", False),
        _refused("chat_template", "the model's own template is used."),
        *_IGNORED,
        *_VENDOR,
    )
)

COMPLETION_FIELDS = field_table(
    (
        _honoured("model", "Required; one of `/v1/models`."),
        _honoured(
            "prompt",
            "Required: a string, a list of strings, a list of token ids, or a list of such lists. Choice `c` of prompt "
            "`p` has index `p * n + c`. Prompts times `n` (or `best_of`) may be 128 at most.",
        ),
        _honoured("max_tokens", "At least 1; default 16. With `echo` also 0: the prompt and nothing else."),
        *_SAMPLING,
        *_OUTPUT,
        _honoured("logprobs", "Number of alternatives per token, 0 to 20."),
        _honoured("echo", "true: each text begins with its prompt. Not together with `logprobs`."),
        _honoured(
            "best_of",
            "Draw so many choices per prompt and answer with the `n` that have the highest mean log probability, best "
            "first. Usage counts all that were drawn. Not with `stream`, unless it equals `n`.",
        ),
        _honoured(
            "suffix",
            "The text after the one to be filled in. Only for models with fill-in-the-middle tokens, such as "
            "Qwen2.5-Coder; refused for others.",
        ),
        *_IGNORED,
        *_VENDOR,
    )
)

EMBEDDING_FIELDS = field_table(
    (
        _honoured(
            "input",
            "Required: a string, a list of strings, a list of token ids, or a list of such lists; none empty, 2048 at "
            "most, each no longer than the context.",
        ),
        _honoured("model", "Required; one of `/v1/models`."),
        _honoured("encoding_format", "`float` (default), or `base64`: the vector as little-endian float32."),
        _honoured("dimensions", "Keep so many leading components and scale to length 1 again; 1 to the model's own."),
        *service.QUEUE_FIELDS,
        _ignored("user", "Names an end user; changes nothing of the answer."),
    )
)

PRINTED = {
    "chat-fields": CHAT_FIELDS,
    "completion-fields": COMPLETION_FIELDS,
    "embedding-fields": EMBEDDING_FIELDS,
}
"""Where docs/api.md holds which table: between `<!-- name -->` and `<!-- end -->`."""


def main(path: str, printed: Mapping[str, FieldTable] = PRINTED) -> None:
    """Print the tables into a page."""
    page = Path(path)
    text = page.read_text(encoding="utf-8")
    for mark, table in printed.items():
        begin, end = f"<!-- {mark} -->\n", "<!-- end -->"
        head, rest = text.split(begin)
        text = head + begin + markdown_table(table) + end + rest.partition(end)[2]
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
