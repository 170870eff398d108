"""What the goldens are computed on: 20 conversations, 20 plain texts to be continued, and one longer text."""

from __future__ import annotations

from pathlib import Path

TEXT = (Path(__file__).parent / "text.txt").read_text(encoding="utf-8")

_SYSTEM = "You answer in one short sentence."

CHATS: list[list[dict[str, str]]] = [
    [{"role": "user", "content": question}]
    for question in (
        "What is the capital of France?",
        "Explain in two sentences why the sky is blue.",
        "Write a haiku about a stone mill beside a stream.",
        "How many minutes are in three and a half hours? Show your working.",
        "Translate to German: The bread is fresh this morning.",
        "List five fruits, separated by commas.",
        "Write a Python function that returns the n-th Fibonacci number.",
        "What does this SQL do? SELECT name, COUNT(*) FROM visits GROUP BY name HAVING COUNT(*) > 3;",
        "Fix the bug: for i in range(len(xs) + 1): print(xs[i])",
        'Give me a JSON object with the keys "name" and "age" for a cat called Momo who is 4.',
        "Was ist der Unterschied zwischen einem Fluss und einem Bach?",
        "¿Cuántos días tiene un año bisiesto?",
        "日本の首都はどこですか。",
        "Name one advantage and one disadvantage of working from home.",
        "Complete the sentence: The old lighthouse keeper climbed the stairs and",
        "Tell me a joke about computers 😀",
    )
] + [
    [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": "Why do leaves turn red in autumn?"}],
    [{"role": "system", "content": "You review C++."}, {"role": "user", "content": "int *p = new int; return *p;"}],
    [
        {"role": "user", "content": "My name is Ada and I keep bees."},
        {"role": "assistant", "content": "Nice to meet you, Ada. How many hives do you have?"},
        {"role": "user", "content": "Seven. What was my name again?"},
    ],
    [
        {"role": "system", "content": _SYSTEM},
        {"role": "user", "content": "2 + 2?"},
        {"role": "assistant", "content": "4."},
        {"role": "user", "content": "And times ten?"},
    ],
]  # fmt: skip

PLAIN: list[str] = [
    "The capital of France is",
    "Once upon a time, in a village by the sea, there lived",
    "Water boils at 100 degrees Celsius because",
    "The three primary colours are",
    "Ingredients for a simple bread:\n- 500 g flour\n-",
    "def fibonacci(n):\n    ",
    "import json\n\nwith open('data.json') as f:\n",
    "SELECT customer_id, SUM(amount) FROM orders",
    "Q: What is the largest planet in the solar system?\nA:",
    "1, 1, 2, 3, 5, 8, 13,",
    "Der schnellste Weg von Berlin nach München ist",
    "La tour Eiffel a été construite en",
    "El agua del río corre hacia",
    "日本で一番高い山は",
    "To whom it may concern,\n\nI am writing to",
    "The mitochondria is the",
    "<html>\n<head>\n<title>",
    "Monday, Tuesday, Wednesday,",
    "In 1969, the first human",
    "The moral of the story is that",
]
