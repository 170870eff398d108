"""The reference implementation: Transformers in float32 on the dequantised weights of a GGUF file."""
