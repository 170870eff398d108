"""The request fields of the OpenAI surfaces: one table each, held against requests and printed in docs/api.md."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from millstream.surfaces import service
from millstream.surfaces.fields import FieldTable, field_table, honoured, ignored, markdown_table, refused

SAMPLING = (
    honoured("temperature", "0 to 2, default 1; 0 is greedy."),
    honoured("top_p", "Above 0, up to 1; default 1."),
    honoured("top_k", "0 or -1 (default): off."),
    honoured("min_p", "0 to 1, default 0."),
    honoured("repetition_penalty", "Above 0, up to 10; default 1; over prompt and output."),
    honoured("presence_penalty", "-2 to 2, default 0; over the output."),
    honoured("frequency_penalty", "-2 to 2, default 0; over the output."),
    honoured("logit_bias", "Token id (a string of digits) to a bias of -100 to 100."),
    honoured("seed", "A signed 64-bit integer. The same seed gives the same tokens, whatever else the server does."),
    honoured("stop", "A string or up to 16 of them, 4096 characters in all; none is ever part of the text."),
    honoured("stop_token_ids", "Token ids that end the answer, at most 4096."),
    honoured("min_tokens", "No end of turn before this many tokens; default 0."),
    honoured("ignore_eos", "Go on after the model ended its turn; default false."),
)
_OUTPUT = (
    honoured("n", "Number of choices, 1 to 128 (the operator may set less)."),
    honoured("stream", "Server-sent events as the text is generated."),
    honoured(
        "stream_options",
        "`include_usage`: one usage chunk after the last finish. `continuous_usage_stats`: usage so far in each chunk. "
        "`include_obfuscation` changes nothing: chunks are never padded. Only with `stream`.",
    ),
    honoured("return_token_ids", "`token_ids` in every choice."),
    *service.FIELDS,
)
_IGNORED = (
    ignored("user", "Names an end user; changes nothing of the answer."),
    ignored("safety_identifier", "Names an end user; changes nothing of the answer."),
    ignored("prompt_cache_key", "A routing hint; the prefix cache works without."),
    ignored("prompt_cache_options", "A hint; the prefix cache works without."),
    ignored("prompt_cache_retention", "A hint; the prefix cache works without."),
    ignored("cache_prompt", "llama.cpp's switch; the prefix cache is always on and changes no token."),
)
_VENDOR = (
    refused("use_beam_search", "there is no beam search.", False),
    refused("length_penalty", "there is no beam search.", 1),
    refused("include_stop_str_in_output", "a stop string is never part of the text.", False),
    refused("skip_special_tokens", "control tokens are never part of the text.", True),
    refused("spaces_between_special_tokens", "control tokens are never part of the text.", True, False),
    refused("prompt_logprobs", "use `echo` with `logprobs` of completions."),
    refused("truncate_prompt_tokens", "a prompt is never cut."),
    refused("typical_p", "there is no typical sampling.", 1),
    refused("mirostat", "there is no mirostat sampling.", 0),
    refused("guided_json", "use `response_format` of chat completions."),
    refused("guided_regex", "use `response_format` of chat completions."),
    refused("guided_choice", "use `response_format` of chat completions."),
    refused("guided_grammar", "use `response_format` of chat completions."),
    refused("structured_outputs", "use `response_format` of chat completions."),
    refused("grammar", "use `response_format` of chat completions.", ""),
)

CHAT_FIELDS = field_table(
    (
        honoured("model", "Required; one of `/v1/models`."),
        honoured(
            "messages",
            "Required. Roles system, developer, user, assistant, tool. Content: a string or a list of text parts, "
            "joined without a separator; assistant content may be null. Image, audio and file parts are refused by "
            "path. `reasoning_content` (or `reasoning`), `tool_calls`, `tool_call_id`, `name` and `refusal` are read; "
            "other keys of a message (`annotations`, ids, cache marks), which clients replay from earlier answers, "
            "are ignored.",
        ),
        honoured("max_completion_tokens", "At least 1; default: up to the end of the context."),
        honoured("max_tokens", "The older name; `max_completion_tokens` wins."),
        *SAMPLING,
        *_OUTPUT,
        honoured("logprobs", "true: log probability of each token under the model's own distribution."),
        honoured("top_logprobs", "0 to 20 alternatives per token; only with `logprobs`."),
        honoured("chat_template_kwargs", "Variables for the chat template."),
        honoured(
            "reasoning_effort",
            "Given to the chat template, which may not read it.",
        ),
        honoured(
            "thinking_token_budget",
            "0 or more: after so many tokens the reasoning at the beginning of the answer is ended, and the answer "
            "goes on. With a model that does not reason it changes nothing.",
        ),
        honoured(
            "tools",
            "Functions. Names: 1 to 64 letters, digits, `_` and `-`, each once. `parameters` is the JSON schema of an "
            "object; `strict: true` holds arguments to it, and so does every `tool_choice` that requires a call.",
        ),
        honoured(
            "tool_choice",
            '`"none"`, `"auto"` (default), `"required"`, one function by name, or `allowed_tools`. A required call is '
            "enforced by a grammar, whatever form the model writes calls in.",
        ),
        honoured("parallel_tool_calls", "false: generation ends after the first call. Default true."),
        honoured(
            "response_format",
            '`text`, `json_object`, `json_schema`, and as extensions `{"type": "regex", "pattern": …}` and '
            '`{"type": "grammar", "grammar": …}` (Lark, llguidance\'s dialect). Enforced, whatever `strict` says; '
            "a schema that cannot be enforced is a 400. `oneOf` is taken as `anyOf`. Reasoning stays free.",
        ),
        refused("functions", "deprecated by its inventor; use `tools`.", []),
        refused("function_call", "deprecated by its inventor; use `tool_choice`.", "none", "auto"),
        refused("best_of", "choices are not ranked; use `n`.", 1),
        refused("modalities", "answers are text.", ["text"], []),
        refused("audio", "answers are text."),
        refused("prediction", "predicted outputs are not used."),
        refused("web_search_options", "the server does not search the web."),
        refused("moderation", "the server does not moderate."),
        refused("verbosity", "the models served here have no verbosity control.", "medium"),
        refused("add_generation_prompt", "the assistant's turn is always opened.", True),
        refused("continue_final_message", "the assistant's turn is always a new one.", False),
        refused("chat_template", "the model's own template is used."),
        honoured("store", "true: the completion is kept, see stored completions. Default false."),
        honoured(
            "metadata",
            "Only with `store`: up to 16 pairs, keys up to 64 and values up to 512 characters, kept with the answer.",
        ),
        honoured(
            "service_tier",
            "`auto`, `default`, `flex`, `scale`, `priority` or `fast`. There is one tier: the answer and each of its "
            "chunks then say `default`.",
        ),
        *_IGNORED,
        *_VENDOR,
    ),
    surface="chat completions",
)

COMPLETION_FIELDS = field_table(
    (
        honoured("model", "Required; one of `/v1/models`."),
        honoured(
            "prompt",
            "Required: a string, a list of strings, a list of token ids, or a list of such lists. Choice `c` of prompt "
            '`p` has index `p * n + c`. Prompts times `n` (or `best_of`) may be 128 at most. An empty prompt (`""`, '
            '`[""]`, `[[]]`) begins a text, if the model has a token for that; an empty list (`[]`) is refused.',
        ),
        honoured("max_tokens", "At least 1; default 16. With `echo` also 0: the prompt and nothing else."),
        *SAMPLING,
        *_OUTPUT,
        honoured("logprobs", "Number of alternatives per token, 0 to 20."),
        honoured(
            "echo", "true: each text begins with its prompt; with `logprobs` also the log probabilities of its tokens."
        ),
        honoured(
            "best_of",
            "Draw so many choices per prompt and answer with the `n` that have the highest mean log probability, best "
            "first. Usage counts all that were drawn. Not with `stream`, unless it equals `n`.",
        ),
        honoured(
            "suffix",
            "The text after the one to be filled in. Only for models with fill-in-the-middle tokens, such as "
            "Qwen2.5-Coder; refused for others.",
        ),
        ignored("metadata", "Labels of stored answers; completions are not stored."),
        ignored("store", "Completions are not stored."),
        ignored("service_tier", "There is one tier."),
        *_IGNORED,
        *_VENDOR,
    ),
    surface="completions",
)

EMBEDDING_FIELDS = field_table(
    (
        honoured(
            "input",
            "Required: a string, a list of strings, a list of token ids, or a list of such lists; 2048 at most, each "
            'no longer than the context. What is empty (`""`, `[""]`, `[[]]`, `[]`) is refused.',
        ),
        honoured("model", "Required; one of `/v1/models`."),
        honoured("encoding_format", "`float` (default), or `base64`: the vector as little-endian float32."),
        honoured("dimensions", "Keep so many leading components and scale to length 1 again; 1 to the model's own."),
        *service.QUEUE_FIELDS,
        ignored("user", "Names an end user; changes nothing of the answer."),
    ),
    surface="embeddings",
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
