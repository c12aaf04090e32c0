"""Runs MobileNetV2 forward with LiteRT's interpreter: inference, no training.

The model is written here as a .tflite file with random weights and folded batch norms, so neither
TensorFlow nor a download is needed. engine_steps.py times and prints the steps.
"""

from typing import Any

from engine_steps import (
    CLASSES,
    IMAGES,
    Conv,
    import_engine,
    make_batches,
    mobilenetv2_blocks,
    read_options,
    run_steps,
)

PACKAGE = "ai-edge-litert==2.3.0"
np: Any = import_engine("numpy", PACKAGE)
flatbuffers: Any = import_engine("flatbuffers", PACKAGE)
schema: Any = import_engine("ai_edge_litert.schema_py_generated", PACKAGE)
interpreter: Any = import_engine("ai_edge_litert.interpreter", PACKAGE)
KINDS = ("CONV_2D", "DEPTHWISE_CONV_2D", "ADD", "MEAN", "FULLY_CONNECTED")


class TfliteModel:
    """Tensors and operators of a model that is written step by step."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.buffers = [_filled(schema.BufferT())]  # by convention the first one is empty
        self.tensors: list[Any] = []
        self.operators: list[Any] = []
        self.rng = np.random.default_rng(11)
        self.image = self.tensor(shape)

    def tensor(self, shape: tuple[int, ...], values: Any = None) -> int:
        """Add a tensor, constant if it has values, and return its number."""
        is_index = values is not None and values.dtype == np.int32
        kind = schema.TensorType.INT32 if is_index else schema.TensorType.FLOAT32
        buffer = 0
        if values is not None:
            buffer = len(self.buffers)
            data = np.frombuffer(values.tobytes(), np.uint8)
            self.buffers.append(_filled(schema.BufferT(), data=data))
        name = f"tensor{len(self.tensors)}"
        parts = {"shape": list(shape), "type": kind, "buffer": buffer, "name": name}
        self.tensors.append(_filled(schema.TensorT(), **parts))
        return len(self.tensors) - 1

    def weights(self, shape: tuple[int, ...], n_in: int) -> int:
        """Add random weights that keep the size of the values."""
        values = self.rng.normal(0, (2 / n_in) ** 0.5, shape).astype(np.float32)
        return self.tensor(shape, values)

    def operator(self, kind: str, inputs: list[int], shape: tuple[int, ...], options: Any) -> int:
        """Add an operator and return the number of its output."""
        output = self.tensor(shape)
        options_type = type(options).__name__.removesuffix("T")
        self.operators.append(
            _filled(
                schema.OperatorT(),
                opcodeIndex=KINDS.index(kind),
                inputs=inputs,
                outputs=[output],
                builtinOptionsType=getattr(schema.BuiltinOptions, options_type),
                builtinOptions=options,
            )
        )
        return output

    def content(self, output: int) -> bytes:
        """Return the .tflite file."""
        codes = [getattr(schema.BuiltinOperator, kind) for kind in KINDS]
        graph = _filled(
            schema.SubGraphT(),
            tensors=self.tensors,
            inputs=[self.image],
            outputs=[output],
            operators=self.operators,
        )
        model = _filled(
            schema.ModelT(),
            version=3,
            operatorCodes=[
                _filled(schema.OperatorCodeT(), builtinCode=n, deprecatedBuiltinCode=n, version=1)
                for n in codes
            ],
            subgraphs=[graph],
            buffers=self.buffers,
        )
        builder = flatbuffers.Builder(16 * 1024 * 1024)
        builder.Finish(model.Pack(builder), b"TFL3")
        return bytes(builder.Output())


def _filled(part: Any, **values: Any) -> Any:
    for name, value in values.items():
        setattr(part, name, value)
    return part


def _add_convolution(model: TfliteModel, x: int, conv: Conv) -> int:
    batch, height, width, _ = model.tensors[x].shape
    shape = (batch, -(-height // conv.stride), -(-width // conv.stride), conv.channels)
    relu6 = schema.ActivationFunctionType.RELU6
    common = {"padding": schema.Padding.SAME, "strideW": conv.stride, "strideH": conv.stride}
    common |= {"dilationWFactor": 1, "dilationHFactor": 1}
    common |= {"fusedActivationFunction": relu6 if conv.relu6 else 0}
    window = (conv.kernel, conv.kernel)
    if conv.groups > 1:
        weights = model.weights((1, *window, conv.channels), conv.kernel**2)
        options = _filled(schema.DepthwiseConv2DOptionsT(), depthMultiplier=1, **common)
    else:
        n_in = conv.channels_in * conv.kernel**2
        weights = model.weights((conv.channels, *window, conv.channels_in), n_in)
        options = _filled(schema.Conv2DOptionsT(), **common)
    bias = model.tensor((conv.channels,), np.zeros(conv.channels, np.float32))
    kind = "DEPTHWISE_CONV_2D" if conv.groups > 1 else "CONV_2D"
    return model.operator(kind, [x, weights, bias], shape, options)


def build_model(batch: int, side: int) -> bytes:
    """Return MobileNetV2 as a .tflite file."""
    model = TfliteModel((batch, side, side, 3))
    x = model.image
    for block in mobilenetv2_blocks():
        first = x
        for conv in block.convolutions:
            x = _add_convolution(model, x, conv)
        if block.residual:
            x = model.operator("ADD", [x, first], model.tensors[x].shape, schema.AddOptionsT())
    axes = model.tensor((2,), np.array([1, 2], np.int32))
    x = model.operator("MEAN", [x, axes], (batch, 1280), schema.ReducerOptionsT())
    weights = model.weights((CLASSES, 1280), 1280)
    bias = model.tensor((CLASSES,), np.zeros(CLASSES, np.float32))
    options = schema.FullyConnectedOptionsT()
    scores = model.operator("FULLY_CONNECTED", [x, weights, bias], (batch, CLASSES), options)
    return model.content(scores)


def main() -> None:
    """Write the model and run it."""
    options = read_options(*IMAGES)
    content = build_model(options.batch_size, options.image_size)
    runner = interpreter.Interpreter(model_content=content, num_threads=options.threads)
    runner.allocate_tensors()
    image, scores = runner.get_input_details()[0], runner.get_output_details()[0]
    batches = [
        np.ascontiguousarray(images.transpose(0, 2, 3, 1))
        for images, _ in make_batches(options.batch_size, options.image_size)
    ]

    def step(number: int) -> None:
        runner.set_tensor(image["index"], batches[number])
        runner.invoke()
        if not np.isfinite(runner.get_tensor(scores["index"])).all():
            raise SystemExit("LiteRT returned scores that are not finite")

    run_steps(options, step)


if __name__ == "__main__":
    main()
