"""The command on a tiny model made here: tables, JSON, a harness's plan, and one-line failures."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from millstream.bench.errors import BenchError
from millstream.bench.plan import Case, Plan
from millstream.bench.run import Options, run_benchmark
from millstream.cli.bench import bench
from millstream.cli.errors import CliError
from support.tiny_models import TinyShape, build_tiny_model

app = typer.Typer(callback=lambda: None)
app.add_typer(bench, name="bench")


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("htp", "No such command 'htp'. Did you mean 'http'?"),
        ("servise", "No such command 'servise'. Did you mean 'service'?"),
        ("nothing", "no model or file named 'nothing'"),
        ("apl.gguf", "no such file: apl.gguf"),
    ],
)
def test_a_mistyped_command_is_not_taken_for_a_model(
    word: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLSTREAM_HOME", str(tmp_path))
    result = CliRunner().invoke(app, ["bench", word])
    assert result.exit_code != 0
    assert told in result.output + str(result.exception)


def test_a_model_that_is_called_nearly_as_a_command_is_measured(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLSTREAM_HOME", str(tmp_path))
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "apis.gguf").symlink_to(model)
    # A plan that is not there stops the benchmark of the engine before it begins.
    result = CliRunner().invoke(app, ["bench", "apis", "--plan", str(tmp_path / "none.json")])
    assert "none.json" in str(result.exception)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A llama of one layer, width 64, random weights, context 512, 300 tokens: bytes, one merge, fillers."""
    path = tmp_path_factory.mktemp("bench") / "tiny.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(512)
    writer.add_block_count(1)
    writer.add_embedding_length(64)
    writer.add_feed_forward_length(96)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    letters = [chr(code) for code in (*range(33, 127), *range(161, 173), *range(174, 256), *range(256, 324))]
    writer.add_token_list([*letters, "t0", *(f"filler {i}" for i in range(43))])
    writer.add_token_merges(["t 0"])
    rng = np.random.default_rng(3)
    shapes = {
        "token_embd": (300, 64),
        "output_norm": (64,),
        "blk.0.attn_norm": (64,),
        "blk.0.attn_q": (64, 64),
        "blk.0.attn_k": (32, 64),
        "blk.0.attn_v": (32, 64),
        "blk.0.attn_output": (64, 64),
        "blk.0.ffn_norm": (64,),
        "blk.0.ffn_gate": (96, 64),
        "blk.0.ffn_up": (96, 64),
        "blk.0.ffn_down": (64, 96),
    }
    for name, shape in shapes.items():
        values = rng.standard_normal(shape).astype(np.float32)
        if len(shape) == 1:
            writer.add_tensor(f"{name}.weight", values)
        else:
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(f"{name}.weight", gguf.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


UNWANTED = ("numpy", "llguidance", "jinja2", "tokenizers", "asyncio", "rich", "tomllib", "statistics")
"""What a plan does not need: whoever waits for the first token would wait for it."""


def test_a_plan_imports_nothing_that_it_does_not_need(plan: Path) -> None:
    program = (
        "import json, sys\n"
        "from millstream.cli.app import app\n"
        "app(['bench', '--json', '--plan', sys.argv[1], '--threads', '2'], standalone_mode=False)\n"
        f"print(json.dumps([name for name in {UNWANTED!r} if name in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", program, str(plan)], capture_output=True, text=True, check=True)
    line, unwanted = map(json.loads, done.stdout.splitlines())
    assert len(line["check_ids"]) == 16
    assert unwanted == []


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["bench", *arguments], catch_exceptions=True)


@pytest.fixture
def plan(tmp_path: Path, model: Path) -> Path:
    """As a harness writes it; the model is named by the plan alone."""
    path = tmp_path / "plan.json"
    cases = [
        {"name": "check", "kind": "check", "new_tokens": 16, "reps": [[[5, 6, 7, 8]]]},
        {"name": "pp90", "kind": "prefill", "new_tokens": 1, "reps": [[list(range(90))], [list(range(90))]]},
        {"name": "tg x3", "kind": "decode", "new_tokens": 8, "reps": [[[1] * 20, [2] * 20, [3] * 20]]},
    ]
    path.write_text(json.dumps({"t0": 1.0, "threads": 1, "models": {"gguf_q4_1": str(model)}, "cases": cases}))
    return path


def test_the_line_that_a_harness_reads(plan: Path) -> None:
    result = invoke("--json", "--plan", str(plan), "--threads", "1")
    assert result.exit_code == 0, result.output
    line = json.loads(result.stdout.splitlines()[-1])
    assert line["engine"].startswith("millstream ")
    assert line["weights"] == "q8_0"
    assert line["first_token_s"] > line["load_s"] > 1e9  # counted from the plan's t0, one second after 1970
    assert len(line["check_ids"]) == 16
    assert all(0 <= token < 300 for token in line["check_ids"])
    assert {name: len(rates) for name, rates in line["cases"].items()} == {"pp90": 2, "tg x3": 1}
    assert all(rate > 0 for rates in line["cases"].values() for rate in rates)
    again = json.loads(invoke("--json", "--plan", str(plan)).stdout.splitlines()[-1])
    assert again["check_ids"] == line["check_ids"]


def test_tables_of_a_plan(plan: Path) -> None:
    result = invoke("--plan", str(plan), "--threads", "1")
    assert result.exit_code == 0, result.output
    for text in ("pp90", "tg x3", "q8_0", "KV cache"):
        assert text in result.stdout


def test_names_of_cases_are_shown_as_they_are(plan: Path) -> None:
    plan.write_text(plan.read_text().replace("pp90", "[bold]pp[/90]"))
    result = invoke("--plan", str(plan), "--threads", "1")
    assert result.exit_code == 0, result.output
    assert "[bold]pp[/90]" in result.stdout


def test_memory_that_a_plan_lacks_is_named(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise MemoryError("std::bad_alloc")

    monkeypatch.setattr("millstream.engine.loading.build_core", refuse)
    plan = Plan([Case("check", "check", 400, [[[1]] * 10_000])])
    with pytest.raises(BenchError, match=r"573 MB for the keys and values of the plan"):
        run_benchmark(model, Options(plan=plan, threads=1, extras=False))


def test_without_a_plan_everything_is_measured(model: Path) -> None:
    """Every standard case that fits, the machine, the loop's Python, and a server of its own."""
    result = invoke(str(model), "--json", "--quick", "--threads", "1")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert list(report["results"]["rates"]) == ["pp128", "tg x1", "tg x4", "tg x8", "tg x16", "tg x32"]
    assert report["bandwidth"]["best"] > 0
    assert report["overhead"]["sequences"] == 16
    assert 0 < report["overhead"]["native_seconds"] < report["overhead"]["step_seconds"]
    assert report["server"]["ready_s"] > 0
    assert report["server"]["engine_bytes"] > 1 << 20
    assert report["peak_bytes"] >= report["resident_bytes"] > report["kv_bytes"] + report["weight_bytes"]


def test_failures_have_a_reason(tmp_path: Path, plan: Path) -> None:
    junk = tmp_path / "junk.gguf"
    junk.write_bytes(b"not a model")
    for arguments in ([str(junk)], ["--plan", str(tmp_path / "none.json")], [str(junk), "--plan", str(plan)]):
        result = invoke(*arguments)
        assert isinstance(result.exception, CliError)
        assert result.exception.message


def test_a_plan_beyond_the_context_is_refused(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "long.json"
    case = {"name": "pp512", "kind": "prefill", "new_tokens": 1, "reps": [[[1] * 512]]}
    path.write_text(json.dumps({"cases": [case]}))
    result = invoke(str(model), "--plan", str(path))
    assert isinstance(result.exception, CliError)
    assert "513" in result.exception.message


@pytest.mark.parametrize("context", [1, 40, 64])
def test_a_model_with_a_tiny_context_is_measured(tmp_path: Path, context: int) -> None:
    """The first generation, which no plan names, is no longer than the context."""
    model = build_tiny_model(tmp_path / "short.gguf", types="Q8_0", shape=TinyShape(context=context))
    report = run_benchmark(model, Options(threads=1, extras=False, plan=Plan([])))
    assert report.results.rates == {}
    if context > 1:
        plan = Plan([Case("check", "check", 1, [[[1] * (context - 1)]])])
        assert len(run_benchmark(model, Options(threads=1, extras=False, plan=plan)).results.check_ids) == 1


def test_token_ids_outside_the_vocabulary_are_refused(model: Path) -> None:
    with pytest.raises(BenchError, match="refused"):
        run_benchmark(model, Options(plan=Plan([Case("pp", "prefill", 1, [[[300]]])]), threads=1, extras=False))
