"""Small hand-written plans that the runner can execute."""

import json

CASE = "case-1"


def a_plan(body: str, **header: object) -> bytes:
    """Return a plan: a header that matches the body as far as needed, and the body."""
    fields = {
        "case": CASE,
        "workload": "hand-made",
        "backend": "cpu",
        "threads": 1,
        "training": False,
        "samples_per_step": 1,
        "parameter_bytes": 1,
        "activation_bytes": 1,
        "body_bytes": len(body),
        "ops": [
            {"name": "all", "kind": "matmul", "flops": 1, "read_bytes": 1, "write_bytes": 1},
        ],
        **header,
    }
    head = json.dumps(fields).encode() + b"\n"
    return b"farmhand-plan 1 %d\n" % len(head) + head + body.encode()


def a_body(  # one word per line of the grammar
    lists: str,
    training: int = 0,
    threads: int = 1,
    samples: int = 1,
    evaluate: int = 0,
    loss: int = -1,
    arena: int = 1 << 20,
) -> str:
    """Return a body: the lines that every body has around its streams, tensors and operations."""
    names = ("parameter", "gradient", "state", "activation", "input")
    arenas = "".join(f"arena {name} {arena}\n" for name in names)
    return (
        f"farmhand-body 1\ncase {CASE}\nbackend cpu\nthreads {threads}\ntraining {training}\n"
        f"samples {samples}\nseed 7\nevaluate {evaluate}\n{arenas}{lists}loss {loss}\nend\n"
    )


def product(size: int = 64, threads: int = 1) -> bytes:
    """Return a plan for c = a b."""
    bytes_each = 4 * size * size
    place = (bytes_each + 63) // 64 * 64
    lists = (
        f"tensor 0 float input 0 2 {size} {size} uniform 1\n"
        f"tensor 1 float input {place} 2 {size} {size} uniform 1\n"
        f"tensor 2 float activation 0 2 {size} {size} none\n"
        "op forward 0 sgemm 0 1 : 2 : 0 0 :\n"
    )
    return a_plan(a_body(lists, threads=threads, arena=2 * place), threads=threads)


def perceptron(
    batch: int = 8, rate: float = 0.1, threads: int = 1, evaluate: int = 0, samples: int = 32
) -> bytes:
    """Return a plan for two layers that learn four classes, with backward pass and update."""
    lists = f"""\
stream 0 float {samples} 1 16 rows 4 |
stream 1 index {samples} 0 label 4 |
tensor 0 float input 0 2 {batch} 16 none
tensor 1 index input 16384 1 {batch} none
tensor 2 float parameter 0 2 32 16 uniform 0.25
tensor 3 float parameter 4096 1 32 zero
tensor 4 float parameter 8192 2 4 32 uniform 0.2
tensor 5 float parameter 12288 1 4 zero
tensor 6 float gradient 0 2 32 16 none
tensor 7 float gradient 4096 1 32 none
tensor 8 float gradient 8192 2 4 32 none
tensor 9 float gradient 12288 1 4 none
tensor 10 float activation 0 2 {batch} 32 none
tensor 11 float activation 65536 2 {batch} 4 none
tensor 12 float activation 131072 2 {batch} 4 none
tensor 13 float activation 196608 1 1 none
tensor 14 float activation 262144 2 {batch} 4 none
tensor 15 float activation 327680 2 {batch} 32 none
tensor 16 float activation 393216 1 1 none
op load -1 load : 0 : 0 0 {batch} : 1 0
op load -1 load : 1 : 1 0 {batch} : 1 0
op forward 0 linear_forward 0 2 3 : 10 : :
op forward 1 relu_forward 10 : 10 : :
op forward 2 linear_forward 10 4 5 : 11 : :
op forward 3 softmax_cross_entropy 11 1 : 12 13 : :
op backward 4 softmax_cross_entropy_gradient 12 1 : 14 : :
op backward 5 linear_weight_gradient 10 14 : 8 : :
op backward 5 row_bias_gradient 14 : 9 : :
op backward 6 linear_input_gradient 4 14 : 15 : :
op backward 7 relu_gradient 10 15 : 15 : :
op backward 8 linear_weight_gradient 0 15 : 6 : :
op backward 8 row_bias_gradient 15 : 7 : :
op update 9 sgd 2 6 : 2 : : {rate} 0
op update 9 sgd 3 7 : 3 : : {rate} 0
op update 9 sgd 4 8 : 4 : : {rate} 0
op update 9 sgd 5 9 : 5 : : {rate} 0
op evaluate -1 linear_forward 0 2 3 : 10 : :
op evaluate -1 relu_forward 10 : 10 : :
op evaluate -1 linear_forward 10 4 5 : 11 : :
op evaluate -1 accuracy 11 1 : 16 : :
"""
    body = a_body(lists, 1, threads, batch, evaluate, 13)
    return a_plan(body, threads=threads, training=True, samples_per_step=batch, ops=_OPS)


_OPS = [
    {"name": name, "kind": kind, "flops": 1_000_000, "read_bytes": 4096, "write_bytes": 4096}
    for name, kind in (
        ("one.forward", "matmul"),
        ("relu.forward", "elementwise"),
        ("two.forward", "matmul"),
        ("loss.forward", "reduce"),
        ("loss.gradient", "elementwise"),
        ("two.weight_gradient", "matmul"),
        ("two.input_gradient", "matmul"),
        ("relu.gradient", "elementwise"),
        ("one.weight_gradient", "matmul"),
        ("update", "update"),
    )
]
