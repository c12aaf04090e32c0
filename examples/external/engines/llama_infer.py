"""Generates tokens with llama.cpp (the package xllamacpp): inference, no training.

The model is written here as a .gguf file: a small decoder of the architecture llama with random
weights, about 3.5 M parameters in float32. One step generates a number of tokens after a prompt of
four; engine_steps.py times and prints the steps.
"""

import tempfile
from typing import Any

from engine_steps import import_engine, read_options, run_steps

PACKAGE = "xllamacpp==2026.10.11549 gguf==0.19.0"
np: Any = import_engine("numpy", PACKAGE)
gguf: Any = import_engine("gguf", PACKAGE)
xllamacpp: Any = import_engine("xllamacpp", PACKAGE)
LAYERS, WIDTH, HEADS, WIDE, CONTEXT = 4, 256, 4, 704, 4608
BYTES = tuple(f"<0x{number:02X}>" for number in range(256))
TOKENS = ("<unk>", "<s>", "</s>", *BYTES, *(f"word{number}" for number in range(253)))
TOKEN_TYPES = (2, 3, 3, *(6 for _ in BYTES), *(1 for _ in range(253)))  # unknown, control, byte


def write_model(path: str) -> None:
    """Write the model."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(WIDE)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(len(TOKENS))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(list(TOKENS))
    writer.add_token_scores([0.0] * len(TOKENS))
    writer.add_token_types(list(TOKEN_TYPES))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    rng = np.random.default_rng(11)
    for name, shape in _tensor_shapes().items():
        values = rng.normal(0, shape[-1] ** -0.5, shape) if len(shape) > 1 else np.ones(shape)
        writer.add_tensor(f"{name}.weight", values.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _tensor_shapes() -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {"token_embd": (len(TOKENS), WIDTH)}
    shapes |= {"output_norm": (WIDTH,), "output": (len(TOKENS), WIDTH)}
    for number in range(LAYERS):
        block = f"blk.{number}."
        shapes |= {f"{block}{name}_norm": (WIDTH,) for name in ("attn", "ffn")}
        shapes |= {f"{block}attn_{name}": (WIDTH, WIDTH) for name in ("q", "k", "v", "output")}
        shapes |= {f"{block}ffn_{name}": (WIDE, WIDTH) for name in ("gate", "up")}
        shapes[f"{block}ffn_down"] = (WIDTH, WIDE)
    return shapes


def main() -> None:
    """Write the model, load it and generate."""
    options = read_options("tokens")
    settings = xllamacpp.CommonParams()
    settings.n_ctx, settings.n_parallel, settings.n_gpu_layers = CONTEXT, 1, 0
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = options.threads
    settings.verbosity = 0
    with tempfile.TemporaryDirectory() as folder:
        settings.model.path = f"{folder}/model.gguf"
        write_model(settings.model.path)
        server = xllamacpp.Server(settings)
    request = {"prompt": [1, 5, 6, 7], "n_predict": options.tokens, "ignore_eos": True}
    request |= {"temperature": 0, "cache_prompt": False}

    def step(_: int) -> None:
        answer = server.handle_completions(request)
        predicted = answer.get("timings", {}).get("predicted_n")
        if predicted != options.tokens:
            raise SystemExit(f"llama.cpp generated {predicted} tokens of {options.tokens}")

    run_steps(options, step)


if __name__ == "__main__":
    main()
