"""Outputs as models write them, and what they mean."""

# ruff: noqa: E501 (an output is easier to read on one line)

from __future__ import annotations

from parsing.driver import Call, Case, Item, Thought

PARIS = '{"city": "Paris"}'
HERMES = ("<tool_call>", "</tool_call>")
NASTY = '{"path": "a.py", "content": "x = \\"<tool_call>{}</tool_call> [TOOL_CALLS] <think>\\" # ✓ \\u00e9 \\\\"}'
NESTED = '{"path": "t", "options": {"a": [1, {"b": ["}", "]"]}], "c": {}}, "content": "😀"}'


def _json_family() -> list[Case]:
    """The same objects behind each format's own markup."""
    frames = {
        "hermes": ("<tool_call>\n", "\n</tool_call>", "\n", HERMES),
        "generic": ("<tool_call>\n", "\n</tool_call>", "\n", HERMES),
        "granite": ("<|tool_call|>[", "]", ", ", ("<|tool_call|>",)),
        "phi4": ("<|tool_call|>[", "]<|/tool_call|>", ", ", ("<|tool_call|>", "<|/tool_call|>")),
        "minimax-m1": ("<tool_calls>\n", "\n</tool_calls>", "\n", ("<tool_calls>", "</tool_calls>")),
        "mistral": ("[TOOL_CALLS] [", "]", ", ", ("[TOOL_CALLS]",)),
        "llama3": ("<|python_tag|>", "", "; ", ("<|python_tag|>",)),
    }
    each = {"hermes", "generic"}
    cases = []
    for format, (open_, close, between, markers) in frames.items():

        def framed(
            *objects: str, open_: str = open_, close: str = close, between: str = between, format: str = format
        ) -> str:
            if format in each:
                return "\n".join(open_ + text + close for text in objects)
            return open_ + between.join(objects) + close

        def case(
            name: str, text: str, *expected: Item, format: str = format, markers: tuple[str, ...] = markers
        ) -> Case:
            quoted = name in {"nasty", "double encoded", "not json"}
            return Case(format, name, text, expected, markers=markers, quoted=quoted)

        weather = f'{{"name": "get_weather", "arguments": {PARIS}}}'
        cases += [
            case("one", framed(weather), Call("get_weather", PARIS)),
            case(
                "compact",
                framed('{"name":"get_weather","arguments":{"city":"東京"}}'),
                Call("get_weather", '{"city":"東京"}'),
            ),
            case("text before", "Let me look.\n\n" + framed(weather), "Let me look.", Call("get_weather", PARIS)),
            case(
                "two",
                framed(weather, '{"name": "get_time", "arguments": {}}'),
                Call("get_weather", PARIS),
                Call("get_time", "{}"),
            ),
            case(
                "three and text after",
                "  Ok. " + framed(weather, weather, weather) + "\n  Done.  ",
                "  Ok.",
                *[Call("get_weather", PARIS)] * 3,
                "Done.  ",
            ),
            case("no arguments", framed('{"name": "get_time"}'), Call("get_time", "{}")),
            case("null arguments", framed('{"name": "get_time", "arguments": null}'), Call("get_time", "{}")),
            case("nasty", framed(f'{{"name": "write_file", "arguments": {NASTY}}}'), Call("write_file", NASTY)),
            case("nested", framed(f'{{"name": "write_file", "arguments": {NESTED}}}'), Call("write_file", NESTED)),
            case(
                "arguments first",
                framed(f'{{"arguments": {PARIS}, "name": "get_weather"}}'),
                Call("get_weather", PARIS),
            ),
            case("parameters", framed(f'{{"name": "get_weather", "parameters": {PARIS}}}'), Call("get_weather", PARIS)),
            case(
                "openai shape",
                framed(f'{{"type": "function", "function": {{"name": "get_weather", "arguments": {PARIS}}}}}'),
                Call("get_weather", PARIS),
            ),
            case(
                "double encoded",
                framed('{"name": "get_weather", "arguments": "{\\"city\\": \\"Zo\\u00eb \\ud83d\\ude00\\\\n\\"}"}'),
                Call("get_weather", '{"city": "Zoë 😀\\n"}'),
            ),
            case(
                "unknown name",
                framed('{"name": "no_such_tool", "arguments": {"a": 1}}'),
                Call("no_such_tool", '{"a": 1}'),
            ),
            case("escaped name", framed('{"name": "get\\u005ftime", "arguments": {}}'), Call("get_time", "{}")),
            case(
                "id",
                framed(f'{{"id": "abc123XYZ", "name": "get_weather", "arguments": {PARIS}}}'),
                Call("get_weather", PARIS, "abc123XYZ"),
            ),
            case("not json", open_ + "oops, no call", (open_ + "oops, no call")),
            case("only text", "No call here, 1 < 2 and [a] {b}.", "No call here, 1 < 2 and [a] {b}."),
        ]
    return cases


def _hermes() -> list[Case]:
    def case(
        name: str, text: str, *expected: Item, quoted: bool = False, reasoning: str = "none", opened: bool = False
    ) -> Case:
        return Case("hermes", name, text, expected, quoted=quoted, reasoning=reasoning, opened=opened, markers=HERMES)

    return [
        case(
            "missing brace",
            '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}</tool_call>',
            Call("get_weather", PARIS),
        ),
        case(
            "cut brackets",
            '<tool_call>{"name": "f", "arguments": {"a": [1</tool_call> after',
            Call("f", '{"a": [1'),
            "after",
        ),
        case("two objects", '<tool_call>{"name": "a"}\n{"name": "b"}</tool_call>', Call("a", "{}"), Call("b", "{}")),
        case("second is no call", '<tool_call>{"name": "a"}\n{"x": 1}</tool_call>', Call("a", "{}"), '{"x": 1}'),
        case(
            "text in the tag",
            '<tool_call>{"name": "a"} and so on </tool_call> end',
            Call("a", "{}"),
            "and so on",
            "end",
        ),
        case("stray close", "The tag </tool_call> ends a call.", "The tag </tool_call> ends a call.", quoted=True),
        case("quoted open", "Use <tool_call> for calls.", "Use <tool_call> for calls.", quoted=True),
        case(
            "quoted, then used",
            'Write <tool_call> like <tool_call>{"name": "a"}</tool_call>',
            "Write <tool_call> like",
            Call("a", "{}"),
            quoted=True,
        ),
        case("no name", '<tool_call>{"a": 1}</tool_call>', '<tool_call>{"a": 1}</tool_call>', quoted=True),
        case("arguments as text", '<tool_call>{"name": "f", "arguments": "Paris"}</tool_call>', Call("f", '"Paris"')),
        case("empty text", '<tool_call>{"name": "f", "arguments": ""}</tool_call>', Call("f", "{}")),
        case(
            "reasoning and calls",
            '<think>\nWhich city? </th\n</think>\n\nLet me see.\n<tool_call>\n{"name": "get_time"}\n</tool_call>\n'
            "<think>again</think>\nDone.",
            Thought("Which city? </th"),
            "Let me see.",
            Call("get_time", "{}"),
            Thought("again"),
            "Done.",
            reasoning="think",
        ),
        case(
            "tags in arguments",
            '<tool_call>{"name": "f", "arguments": {"t": "<think>x</think>"}}</tool_call>',
            Call("f", '{"t": "<think>x</think>"}'),
            reasoning="think",
        ),
        case(
            "call in thoughts",
            '<think>I could <tool_call>{"name": "f"}</tool_call></think>No.',
            Thought('I could <tool_call>{"name": "f"}</tool_call>'),
            "No.",
            reasoning="think",
            quoted=True,
        ),
        case(
            "opened by the prompt",
            'Hm.\n</think>\n\n<tool_call>{"name": "f"}</tool_call>',
            Thought("Hm."),
            Call("f", "{}"),
            reasoning="think",
            opened=True,
        ),
        case(
            "odd numbers",
            '<tool_call>{"name": "f", "arguments": {"a": 1e400, "b": NaN}}</tool_call>',
            Call("f", '{"a": 1e400, "b": NaN}'),
        ),
        case("cut at the start", '<tool_call>{"name": "get_wea', '<tool_call>{"name": "get_wea', quoted=True),
        case(
            "cut in arguments", '<tool_call>{"name": "f", "arguments": {"a": "b', Call("f", '{"a": "b', complete=False)
        ),
    ]


def _bare_hermes() -> list[Case]:
    """Calls without tags, and answers in JSON that look like them."""
    weather = f'{{"name": "get_weather", "arguments": {PARIS}}}'
    answers = [
        '{"city": "Paris", "name": "get_time"}',
        '{"name": "Ann", "arguments": {}}',
        '{"name": "get_weather"}',
        '{"name": "get_weather", "arguments": null}',
        '{"name": "get_weather", "city": "Paris"}',
        '{"name": "get_weather", "arguments": "Paris"}',
        '{"name": "get_weather", "arguments": [1]}',
        '{"arguments": {"a": {"b": "c"}}, "names": 1}',
        '{"name": "get_weather", "arguments',
        '[{"name": "get_weather", "arguments": {}}]',
        f"Here it is: {weather}",
    ]

    def cases(format: str) -> list[Case]:
        def case(name: str, text: str, *expected: Item, reasoning: str = "none") -> Case:
            return Case(format, name, text, expected, markers=HERMES, reasoning=reasoning)

        return [
            case("bare", weather, Call("get_weather", PARIS)),
            case(
                "bare, indented",
                f'{{\n  "name": "get_weather",\n  "arguments": {PARIS}\n}}',
                Call("get_weather", PARIS),
            ),
            case("bare and text", '\n{"name": "get_time"}\nThere.', Call("get_time", "{}"), "There."),
            case(
                "bare, two",
                f'{weather}\n{{"name": "get_time", "arguments": {{}}}}',
                Call("get_weather", PARIS),
                Call("get_time", "{}"),
            ),
            case(
                "bare, arguments first", f'{{"arguments": {PARIS}, "name": "get_weather"}}', Call("get_weather", PARIS)
            ),
            case("bare, openai shape", f'{{"type": "function", "function": {weather}}}', Call("get_weather", PARIS)),
            case(
                "bare after thoughts",
                f"<think>Hm.</think>\n{weather}",
                Thought("Hm."),
                Call("get_weather", PARIS),
                reasoning="think",
            ),
            case("fence", f"Sure:\n```json\n{weather}\n```\nOk", "Sure:", Call("get_weather", PARIS), "Ok"),
            case("fence alone", f"```json\n{weather}\n```", Call("get_weather", PARIS)),
            case("fenced answer", 'So:\n```json\n{"a": 1}\n```\n', 'So:\n```json\n{"a": 1}\n```\n'),
            case("fenced list", "```json\n[1, 2]\n```", "```json\n[1, 2]\n```"),
            case(
                "fenced record",
                '```json\n{"name": "get_weather", "age": 3}\n```',
                '```json\n{"name": "get_weather", "age": 3}\n```',
            ),
            *[case(f"answer {text}", text, text) for text in answers],
        ]

    return [*cases("hermes"), *cases("generic")]


def _llama3() -> list[Case]:
    def case(name: str, text: str, *expected: Item, quoted: bool = False) -> Case:
        return Case("llama3", name, text, expected, quoted=quoted, markers=("<|python_tag|>",))

    return [
        case("bare", f'{{"name": "get_weather", "parameters": {PARIS}}}', Call("get_weather", PARIS)),
        case(
            "bare, several",
            '{"name": "get_time", "parameters": {}}; {"name": "get_weather", "parameters": {"city": "Oslo"}}',
            Call("get_time", "{}"),
            Call("get_weather", '{"city": "Oslo"}'),
        ),
        case("function key", '{"type": "function", "function": "get_time", "parameters": {}}', Call("get_time", "{}")),
        case("answer in json", '{"answer": {"name": "get_time"}}', '{"answer": {"name": "get_time"}}'),
        case("in the middle", 'See {"name": "get_time"}', 'See {"name": "get_time"}'),
        case("code", "<|python_tag|>print(1)", "<|python_tag|>print(1)", quoted=True),
        case("second unknown", '{"name": "get_time"}; {"name": "x"}', Call("get_time", "{}"), '{"name": "x"}'),
    ]


def _mistral() -> list[Case]:
    markers = ("[TOOL_CALLS]", "[CALL_ID]", "[ARGS]", "[THINK]", "[/THINK]")

    def case(name: str, text: str, *expected: Item, quoted: bool = False, reasoning: str = "none") -> Case:
        return Case("mistral", name, text, expected, quoted=quoted, reasoning=reasoning, markers=markers)

    return [
        case("named", f"[TOOL_CALLS]get_weather[ARGS]{PARIS}", Call("get_weather", PARIS)),
        case("named, without separator", f"[TOOL_CALLS]get_weather{PARIS}", Call("get_weather", PARIS)),
        case(
            "named, with ids",
            f"Ok.[TOOL_CALLS]get_weather[CALL_ID]VvvODy9mT[ARGS]{PARIS}[TOOL_CALLS]get_time[CALL_ID]aaaaaaaa1[ARGS]{{}}",
            "Ok.",
            Call("get_weather", PARIS, "VvvODy9mT"),
            Call("get_time", "{}", "aaaaaaaa1"),
        ),
        case("named, nasty", f"[TOOL_CALLS]write_file[ARGS]{NASTY}", Call("write_file", NASTY), quoted=True),
        case(
            "named, cut list",
            '[TOOL_CALLS]a[ARGS]{"x": [1, [2[TOOL_CALLS]b[ARGS]{}',
            Call("a", '{"x": [1, [2'),
            Call("b", "{}"),
        ),
        case("no call", "[TOOL_CALLS] is a token.", "[TOOL_CALLS] is a token.", quoted=True),
        case(
            "thoughts",
            f"[THINK]First, [look].[/THINK]Ok.[TOOL_CALLS]get_weather[ARGS]{PARIS}",
            Thought("First, [look]."),
            "Ok.",
            Call("get_weather", PARIS),
            reasoning="mistral",
        ),
    ]


def _deepseek() -> list[Case]:
    begin, end = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
    call, sep, call_end = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
    markers = (begin, end, call, sep, call_end)

    def v3(name: str, arguments: str) -> str:
        return f"{call}function{sep}{name}\n```json\n{arguments}\n```{call_end}"

    def v31(name: str, arguments: str) -> str:
        return f"{call}{name}{sep}{arguments}{call_end}"

    cases: list[Case] = []
    for format, write in (("deepseek-v3", v3), ("deepseek-v3.1", v31)):
        cases += [
            Case(
                format,
                "one",
                f"Let me see.\n\n{begin}{write('get_weather', PARIS)}{end}",
                ["Let me see.", Call("get_weather", PARIS)],
                markers=markers,
            ),
            Case(
                format,
                "three",
                f"{begin}{write('get_weather', PARIS)}\n{write('write_file', NESTED)}\n{write('get_time', '{}')}{end} Bye",
                [Call("get_weather", PARIS), Call("write_file", NESTED), Call("get_time", "{}"), "Bye"],
                markers=markers,
            ),
            Case(
                format, "nasty", f"{begin}{write('write_file', NASTY)}{end}", [Call("write_file", NASTY)], quoted=True
            ),
            Case(
                format,
                "after thoughts",
                f"Two cities.\n</think>\n\n{begin}{write('get_weather', PARIS)}{end}",
                [Thought("Two cities."), Call("get_weather", PARIS)],
                reasoning="deepseek",
                opened=True,
                markers=markers,
            ),
            Case(
                format,
                "unclosed",
                f'{begin}{call}f{sep}{{"a": [1{call_end}{end}',
                [Call("f", '{"a": [1')],
                markers=markers,
            ),
            Case(format, "empty list", f"{begin}{end}", [f"{begin}{end}"], quoted=True),
        ]
    return cases


def _tagged() -> list[Case]:
    code = 'def f():\n    return "</parameter>" + "<function=x>"\n'
    qwen = ("<tool_call>", "</tool_call>")

    def q(name: str, text: str, *expected: Item, quoted: bool = False) -> Case:
        return Case("qwen3-coder", name, text, expected, quoted=quoted, markers=qwen)

    def parameter(key: str, value: str) -> str:
        return f"<parameter={key}>\n{value}\n</parameter>\n"

    def call(name: str, *parameters: str) -> str:
        return f"<tool_call>\n<function={name}>\n{''.join(parameters)}</function>\n</tool_call>"

    weather = call("get_weather", parameter("city", "Paris"), parameter("days", "3"))
    cases = [
        q("one", weather, Call("get_weather", '{"city": "Paris", "days": 3}')),
        q(
            "two with text",
            f"I look.\n\n{weather}\n{call('get_time')}\nDone",
            "I look.",
            Call("get_weather", '{"city": "Paris", "days": 3}'),
            Call("get_time", "{}"),
            "Done",
        ),
        q(
            "code",
            call("write_file", parameter("content", code)),
            Call("write_file", '{"content": "def f():\\n    return \\"</parameter>\\" + \\"<function=x>\\"\\n"}'),
            quoted=True,
        ),
        q(
            "types",
            call(
                "get_weather",
                parameter("city", "7"),
                parameter("days", "many"),
                parameter("precise", "True"),
                parameter("unit", "celsius"),
            ),
            Call("get_weather", '{"city": "7", "days": "many", "precise": true, "unit": "celsius"}'),
        ),
        q(
            "null or text",
            call("write_file", parameter("mode", "null")) + call("write_file", parameter("mode", "12")),
            Call("write_file", '{"mode": null}'),
            Call("write_file", '{"mode": "12"}'),
        ),
        q(
            "object",
            call("write_file", parameter("options", '{"a": [1, 2]}'), parameter("extra", "x y")),
            Call("write_file", '{"options": {"a": [1, 2]}, "extra": "x y"}'),
        ),
        q(
            "json",
            f'<tool_call>\n{{"name": "get_weather", "arguments": {PARIS}}}\n</tool_call>',
            Call("get_weather", PARIS),
        ),
        q("no outer tag", "<function=get_time>\n</function>", Call("get_time", "{}")),
        q("unclosed function", "<tool_call>\n<function=get_time>\n</tool_call>\nhm", Call("get_time", "{}"), "hm"),
        q("no call", "<tool_call>\nhello</tool_call>", "<tool_call>\nhello</tool_call>", quoted=True),
        q("empty text", call("get_weather", "<parameter=city>\n</parameter>\n"), Call("get_weather", '{"city": ""}')),
        q("broken tag", "<function=get_time>\n<parameter=a b>", Call("get_time", "{}"), "<parameter=a b>"),
        Case(
            "seed-oss",
            "one",
            weather.replace("tool_call>", "seed:tool_call>"),
            [Call("get_weather", '{"city": "Paris", "days": 3}')],
            markers=("<seed:tool_call>", "</seed:tool_call>"),
        ),
    ]
    for format, dsml in (("minimax-m2", False), ("deepseek-v3.2", True)):
        tag = "｜DSML｜" if dsml else ""
        outer = "｜DSML｜function_calls" if dsml else "minimax:tool_call"
        text, other = (' string="true"', ' string="false"') if dsml else ("", "")
        body = (
            f'<{outer}>\n<{tag}invoke name="get_weather">\n<{tag}parameter name="city"{text}>Paris</{tag}parameter>\n'
            f'<{tag}parameter name="days"{other}>3</{tag}parameter>\n</{tag}invoke>\n'
            f'<{tag}invoke name="write_file">\n<{tag}parameter name="content"{text}> a\n<b>\n </{tag}parameter>\n'
            f"</{tag}invoke>\n</{outer}>"
        )
        expected = [
            "Hi",
            Call("get_weather", '{"city": "Paris", "days": 3}'),
            Call("write_file", '{"content": " a\\n<b>\\n "}'),
        ]
        cases.append(Case(format, "two", f"Hi\n{body}\n", expected, markers=(f"<{outer}>", f"</{outer}>")))
    return cases


def _glm() -> list[Case]:
    def call(name: str, *pairs: tuple[str, str], newline: str = "\n") -> str:
        members = "".join(
            f"{newline}<arg_key>{key}</arg_key>{newline}<arg_value>{value}</arg_value>" for key, value in pairs
        )
        return f"<tool_call>{name}{members}{newline}</tool_call>"

    markers = ("<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")
    weather = Call("get_weather", '{"city": "Paris", "days": 3}')
    pairs = (("city", "Paris"), ("days", "3"))
    return [
        Case("glm", "one", call("get_weather", *pairs), [weather], markers=markers),
        Case("glm", "no newlines", call("get_weather", *pairs, newline=""), [weather], markers=markers),
        Case(
            "glm",
            "two with thoughts",
            f"<think>So.</think>\nI look.\n{call('get_weather', *pairs)}\n{call('get_time')}",
            [Thought("So."), "I look.", weather, Call("get_time", "{}")],
            reasoning="think",
            markers=markers,
        ),
        Case(
            "glm",
            "own markup in a value",
            call("write_file", ("content", "</arg_value> and </tool_call>"), ("path", " x ")),
            [Call("write_file", '{"content": "</arg_value> and </tool_call>", "path": " x "}')],
            quoted=True,
        ),
        Case("glm", "prose", "The <tool_call> tag is nice", ["The <tool_call> tag is nice"], quoted=True),
        Case(
            "glm",
            "odd member",
            "<tool_call>f\n<arg_key>a</arg_key>oops</tool_call>",
            [Call("f", "{}"), "<arg_key>a</arg_key>oops"],
            quoted=True,
        ),
    ]


def _python() -> list[Case]:
    p = "pythonic"
    start, end = "<|python_start|>", "<|python_end|>"
    return [
        Case(p, "one", "[get_weather(city='Paris', days=3)]", [Call("get_weather", '{"city": "Paris", "days": 3}')]),
        Case(
            p,
            "two",
            '[get_time(), get_weather(city="Oslo")]',
            [Call("get_time", "{}"), Call("get_weather", '{"city": "Oslo"}')],
        ),
        Case(
            p,
            "values",
            "[write_file(options={'a': [1, -2.5, (True, None)], 'b': {}, 3: 1_000,}, content='it\\'s \"x\"\\n\\u00e9\\x41', mode=None)]",
            [
                Call(
                    "write_file",
                    '{"options": {"a": [1, -2.5, [true, null]], "b": {}, "3": 1000}, "content": "it\'s \\"x\\"\\néA", "mode": null}',
                )
            ],
        ),
        Case(
            p,
            "triple quotes",
            "[write_file(content='''a'b\n''', path=\"\")]",
            [Call("write_file", '{"content": "a\'b\\n", "path": ""}')],
        ),
        Case(
            p,
            "positional",
            "[get_weather('Paris', 3, unit=r'c\\n')]",
            [Call("get_weather", '{"city": "Paris", "days": 3, "unit": "c\\\\n"}')],
        ),
        Case(
            p,
            "marked",
            f"Ok {start}[anything(a=1)]{end} bye",
            ["Ok", Call("anything", '{"a": 1}'), "bye"],
            markers=(start, end),
        ),
        Case(
            p,
            "lfm2",
            '<|tool_call_start|>[get_time(zone="CET")]<|tool_call_end|>',
            [Call("get_time", '{"zone": "CET"}')],
            markers=("<|tool_call_start|>", "<|tool_call_end|>"),
        ),
        Case(
            p,
            "olmo",
            "<function_calls>get_time()\nget_weather(city='a')</function_calls>",
            [Call("get_time", "{}"), Call("get_weather", '{"city": "a"}')],
        ),
        Case(p, "json", f'{{"name": "get_weather", "parameters": {PARIS}}}', [Call("get_weather", PARIS)]),
        Case(p, "marked json", f'{start} {{"name": "f", "parameters": {PARIS}}}{end}', [Call("f", PARIS)]),
        Case(p, "a list", "[1, 2, 3] are numbers", ["[1, 2, 3] are numbers"]),
        Case(p, "a link", "[get_weather](http://x) is a tool", ["[get_weather](http://x) is a tool"]),
        Case(p, "unknown", "[foo(a=1)]", ["[foo(a=1)]"]),
        Case(p, "broken", "[get_weather(city=!)] hm", [Call("get_weather", '{"city": '), "!)] hm"]),
        Case(
            p,
            "own markup",
            f"[write_file(content='{end}]')]",
            [Call("write_file", f'{{"content": "{end}]"}}')],
            quoted=True,
        ),
        Case(
            "gemma",
            "code",
            "Sure.\n```tool_code\nprint(get_weather(city='Paris'))\n```\nThere",
            ["Sure.", Call("get_weather", PARIS), "There"],
        ),
        Case("gemma", "two", "```tool_code\nget_time()\nget_time()\n```", [Call("get_time", "{}")] * 2),
        Case("gemma", "json", f'{{"name": "get_weather", "parameters": {PARIS}}}', [Call("get_weather", PARIS)]),
        Case(
            "gemma",
            "fence",
            f'```json\n{{"name": "get_weather", "parameters": {PARIS}}}\n```',
            [Call("get_weather", PARIS)],
        ),
        Case(
            "gemma", "tool_call fence", f'```tool_call\n{{"name": "x", "parameters": {PARIS}}}\n```', [Call("x", PARIS)]
        ),
        Case("gemma", "list", "[get_time()]", [Call("get_time", "{}")]),
        Case("gemma", "code answer", "```python\nprint(1)\n```", ["```python\nprint(1)\n```"]),
        Case(
            "gemma4",
            "native",
            'Hm <|tool_call>call:write_file{path:<|"|>a"b<|"|>,options:{n:1.5,deep:[true,<|"|>x<|"|>]}}<tool_call|><|tool_call>call:get_time{}<tool_call|>',
            [
                "Hm",
                Call("write_file", '{"path": "a\\"b", "options": {"n": 1.5, "deep": [true, "x"]}}'),
                Call("get_time", "{}"),
            ],
            markers=("<|tool_call>", "<tool_call|>", '<|"|>'),
        ),
        Case(
            "gemma4",
            "function gemma",
            "<start_function_call>call:get_weather{city:<escape>Paris<escape>,unit:celsius}<end_function_call>",
            [Call("get_weather", '{"city": "Paris", "unit": "celsius"}')],
            markers=("<start_function_call>", "<end_function_call>", "<escape>"),
        ),
    ]


def _channels() -> list[Case]:
    markers = ("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|return|>", "<|call|>")

    def case(name: str, text: str, *expected: Item, quoted: bool = False) -> Case:
        return Case("harmony", name, text, expected, reasoning="harmony", quoted=quoted, markers=markers)

    call = "<|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"
    return [
        case("final", "<|channel|>final<|message|>Hello.<|return|>", "Hello."),
        case(
            "thought and call",
            f"<|channel|>analysis<|message|>Need weather.<|end|>{call}{PARIS}<|call|>",
            Thought("Need weather."),
            Call("get_weather", PARIS),
        ),
        case(
            "recipient in the role",
            f"<|channel|>analysis<|message|>Hm<|end|><|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>{PARIS}<|call|>",
            Thought("Hm"),
            Call("get_weather", PARIS),
        ),
        case(
            "recipient first",
            f" to=functions.get_weather<|channel|>commentary<|message|>{PARIS}",
            Call("get_weather", PARIS),
        ),
        case(
            "preamble and two calls",
            f"<|channel|>commentary<|message|>I will look.<|end|>{call}{PARIS}<|call|>{call}{{}}<|call|>",
            "I will look.",
            Call("get_weather", PARIS),
            Call("get_weather", "{}"),
        ),
        case(
            "own markup",
            f'{call}{{"city": "<|call|><|end|>"}}<|call|>',
            Call("get_weather", '{"city": "<|call|><|end|>"}'),
            quoted=True,
        ),
        case("freeform", "<|channel|>commentary to=python code<|message|>print(1)<|call|>", Call("python", "print(1)")),
        case("empty call", f"{call}<|call|>", Call("get_weather", "{}")),
        case("text after the object", f"{call}{PARIS} ok?<|call|>", Call("get_weather", PARIS), "ok?"),
        case("no channels", "Hello there.", "Hello there."),
        case("forgotten header", "<|channel|>" + "word " * 9, "word " * 9),
        Case("harmony", "no tools", f"{call}{PARIS}<|call|>", [PARIS], tools=(), reasoning="harmony", markers=markers),
        Case(
            "kimi",
            "two",
            "I look.<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>"
            + PARIS
            + "<|tool_call_end|><|tool_call_begin|>functions.get_time:1<|tool_call_argument_begin|>{}<|tool_call_end|>"
            "<|tool_calls_section_end|>",
            [
                "I look.",
                Call("get_weather", PARIS, "functions.get_weather:0"),
                Call("get_time", "{}", "functions.get_time:1"),
            ],
            markers=(
                "<|tool_calls_section_begin|>",
                "<|tool_calls_section_end|>",
                "<|tool_call_begin|>",
                "<|tool_call_end|>",
                "<|tool_call_argument_begin|>",
            ),
        ),
    ]


CASES = [
    *_json_family(),
    *_hermes(),
    *_bare_hermes(),
    *_llama3(),
    *_mistral(),
    *_deepseek(),
    *_tagged(),
    *_glm(),
    *_python(),
    *_channels(),
]
