"""A model with the shape of a real one and random weights, to measure speed at sizes of which no file is at hand:

cd tests && python -m support.random_model /tmp/1b.gguf --shape llama-1b --type Q4_K
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from support.tiny_models import TYPES, TinyShape, build_tiny_model, vocab_size

SHAPES = {
    # Llama 3.2 1B.
    "llama-1b": TinyShape(
        hidden=2048, heads=32, kv_heads=8, head_dim=64, intermediate=8192, layers=16, context=16384, rope_theta=5e5,
        norm_eps=1e-5, unused_tokens=128_256 - vocab_size(),
    ),
    # Nothing is a power of two, the vocabulary is odd, and three query heads share one of keys.
    "odd": TinyShape(
        hidden=1120, heads=21, kv_heads=7, head_dim=96, intermediate=3040, layers=9, context=8192, norm_eps=1e-5,
        unused_tokens=20_011 - vocab_size(),
    ),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", type=Path)
    parser.add_argument("--shape", choices=SHAPES, default="llama-1b")
    parser.add_argument("--type", choices=TYPES, default="Q4_K", dest="tensor_type")
    parser.add_argument("--layers", type=int, help="fewer or more than the shape has")
    args = parser.parse_args()
    shape = SHAPES[args.shape]
    if args.layers:
        shape = replace(shape, layers=args.layers)
    build_tiny_model(args.path, family="llama", types=args.tensor_type, shape=shape)


if __name__ == "__main__":
    main()
