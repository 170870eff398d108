"""Detection from chat templates, names, and the parts of a parser."""

from __future__ import annotations

import pytest

from millstream.parsing.reasoning.split import ReasoningSplit
from millstream.parsing.registry import create_parser, detect_tool_format
from millstream.parsing.scan.machine import Machine
from parsing.driver import TOOLS

# The telling lines of the families' templates.
TEMPLATES = {
    "hermes": 'return a json object within <tool_call></tool_call>:\\n<tool_call>\\n{"name": <function-name>',
    "qwen3-coder": "<tool_call>\\n<function=example_function_name>\\n<parameter=example_parameter_1>",
    "seed-oss": "<seed:tool_call>\\n<function=example_function_name>\\n<parameter=example_parameter_1>",
    "glm": "<tool_call>{function-name}\n<arg_key>{arg-key-1}</arg_key>\n<arg_value>{arg-value-1}</arg_value>",
    "minimax-m2": "{%- set toolcall_begin_token = '<minimax:tool_call>' -%}<invoke name=\"tool-name-1\">",
    "minimax-m1": '<tool_calls>\\n{"name": <tool-name>, "arguments": <args-json-object>}\\n</tool_calls>',
    "mistral": "{{- '[TOOL_CALLS]' + tool_call.function.name }}",
    "deepseek-v3": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + tool['type'] + '<｜tool▁sep｜>' + '\\n' + '```json'",
    "deepseek-v3.1": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>'+ tool['function']['name'] + '<｜tool▁sep｜>'",
    "deepseek-v3.2": "<｜DSML｜function_calls>",
    "harmony": '{{- "<|start|>assistant<|channel|>analysis<|message|>" + message.thinking }}',
    "kimi": "<|tool_calls_section_begin|><|tool_call_begin|>{{ id }}<|tool_call_argument_begin|>",
    "phi4": "{{ '<|' + message['role'] + '|>' + message['content'] + '<|tool|>' + message['tools'] + '<|/tool|>' }}",
    "granite": "{{- '<|start_of_role|>assistant<|end_of_role|><|tool_call|>' }}",
    "llama3": "{{- '<|python_tag|>' + tool_call.name + '.call(' }} {\"name\": function name, \"parameters\": …",
    "pythonic": "{{- '<|tool_call_start|>[' + calls + ']<|tool_call_end|>' -}}",
    "gemma": "```tool_code",
    "gemma4": "{{- '<|tool_call>call:' + function['name'] + '{' -}}",
    "generic": "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endfor %}",
}


@pytest.mark.parametrize(("name", "source"), TEMPLATES.items(), ids=TEMPLATES)
def test_detection(name: str, source: str) -> None:
    assert detect_tool_format(source) == name


def test_detection_by_control_tokens() -> None:
    assert detect_tool_format("", ["[TOOL_CALLS]", "[INST]"]) == "mistral"
    assert detect_tool_format("", ["<|python_start|>"]) == "pythonic"
    assert detect_tool_format("") == "generic"


def test_parts() -> None:
    assert isinstance(create_parser("hermes", "none", TOOLS), Machine)
    assert isinstance(create_parser("hermes", "think", TOOLS), ReasoningSplit)
    assert isinstance(create_parser("harmony", "think", TOOLS), Machine)


def test_unknown_names() -> None:
    with pytest.raises(KeyError):
        create_parser("nope", "none", TOOLS)
    with pytest.raises(KeyError):
        create_parser("hermes", "nope", TOOLS)
