"""Write golden token ids with Transformers as the oracle: ``python make_golden.py MODEL.gguf…``.

Needs transformers, torch and gguf.

The ordinary tests compare against the files written here, without Transformers.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

TEXTS = [
    "", " ", "  ", "\n", "\n\n", "\t", "a", "Hello", "Hello world", " Hello world",
    "Hello  world", "Hello world ",
    "Hello, world! How are you?", "The quick brown fox jumps over the lazy dog.",
    "I'm you're he'll we've they'd it's",
    "I'M YOU'RE HE'LL WE'VE", "don't 'quoted' \"double\" `tick`", "ALL CAPS TEXT",
    "camelCaseIdentifier snake_case_name",
    "123", "1234567890", "3.14159265", "1,000,000.00", "2026-11-29T21:15:05Z", "v1.2.3-rc4",
    "0xDEADBEEF", "1e-10",
    "٠١٢٣ ४५६ 七八九", "½ ² ³ ① Ⅷ", "naïve café résumé", "nai\u0308ve cafe\u0301", "Ångström Å Å", "ﬁ ﬂ ligatures",
    "Straße Größe über", "¿Qué tal? ¡Muy bien!", "Привет, как дела?", "Γειά σου Κόσμε",
    "שלום עולם", "مرحبا بالعالم",
    "नमस्ते दुनिया", "สวัสดีชาวโลก", "你好，世界！", "日本語のテキストです。", "안녕하세요 세계",
    "日本語English混在テキスト",
    "🙂", "👍🏽 👨‍👩‍👧‍👦 🏳️‍🌈 🇫🇷", "text🙂text 🙂 text", "\u200b\u200d\ufeff",
    "\u00a0non\u00a0breaking", "e\u0301\u0302\u0303",
    "𝒜𝒷𝒸 𝟙𝟚𝟛", "\U0001f9ff\U00020000", "   leading", "trailing   ", "in   the    middle     of      it",
    " \n \n\n \n\n\n ", "\t\tindented\n\t\t\tmore", "line one\nline two\r\nline three\rline four",
    "a\n\n\n\nb", "\r\n\r\n",
    "def f(x):\n    return x + 1\n\n\nclass A:\n\tpass\n", "for (int i = 0; i < n; ++i) { a[i] *= 2; }",
    "SELECT * FROM t WHERE a = 'b' AND c != \"d\";", '{"key": [1, 2.5, true, null], "s": "\\u00e9\\n"}',
    "<html><body class=\"x\">&nbsp;</body></html>", "https://example.com/path?q=1&r=2#frag", "user@example.com",
    "C:\\Users\\name\\file.txt", "/usr/local/bin/python3.11", "$100 €200 £300 ¥400", "50% off!!!",
    "a+b=c; x^2 ~ y|z",
    "#hashtag @mention", "...", "… — – ‘ ’ “ ”", "!!!???", "()[]{}<>", "****bold**** __under__",
    "| a | b |\n|---|---|",
    "```python\nprint('hi')\n```", "$$\\int_0^1 x^2 dx = \\frac{1}{3}$$", "\\n is not a newline",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "supercalifragilisticexpialidocious", "antidisestablishmentarianism's",
    "ha" * 40, "ab " * 30, " " * 33, "\n" * 33, "=" * 50, "0" * 25, "\u0000\u0001\u001f\u007f",
    "ÿþý", "\u2028\u2029",
    "<|im_start|>user\nhi<|im_end|>\n", "<|im_start|><|im_start|>", "a<|im_end|>b",
    "<|endoftext|>", " <|endoftext|> ",
    "<bos>text<eos>", "<start_of_turn>user\nhi<end_of_turn>\n<start_of_turn>model\n", "<unused7> <pad> <unk>",
    "<tool_call>\n{\"name\": \"f\"}\n</tool_call>", "<table><tr>x</tr></table>",
    "[multimodal] <start_of_image>",
    "<|im_start", "|im_end|>", "< |im_end|>", "<|fim_prefix|>def<|fim_suffix|>x<|fim_middle|>",
    "<s>[INST] hi [/INST]</s>",
    "<0x41><0x0A>", "▁▁ ▁a", "Ġword ĊĊ", "[PAD151700]",
]  # fmt: skip


def main(paths: list[str]) -> None:
    from transformers import AutoTokenizer

    for path in map(Path, paths):
        tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
        cases = [{"text": text, "ids": tokenizer.encode(text, add_special_tokens=False)} for text in TEXTS]
        lines = ",\n".join(json.dumps(case) for case in cases)
        (Path(__file__).parent / f"{path.stem}.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main(sys.argv[1:])
