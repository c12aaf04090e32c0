"""Trains MobileNetV2 with MNN's Python package; engine_steps.py times and prints the steps.

By default MNN's Python package trains nothing, silently: it must evaluate lazily, in mode 0.
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

PACKAGE = "MNN==3.6.1 numpy"
F: Any = import_engine("MNN.expr", PACKAGE)
np: Any = import_engine("numpy", PACKAGE)
nn: Any = import_engine("MNN.nn", PACKAGE)
optim: Any = import_engine("MNN.optim", PACKAGE)


class Network(nn.Module):
    """MobileNetV2."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks: list[tuple[list[tuple[Any, Any, bool]], bool]] = []
        for block in mobilenetv2_blocks():
            self.blocks.append(([self._add(conv) for conv in block.convolutions], block.residual))
        self.classifier = nn.linear(1280, CLASSES, True)

    def _add(self, conv: Conv) -> tuple[Any, Any, bool]:
        layer = nn.conv(
            conv.channels_in,
            conv.channels,
            [conv.kernel, conv.kernel],
            stride=[conv.stride, conv.stride],
            depthwise=conv.groups > 1,
            bias=False,
            padding_mode=F.Padding_Mode.SAME,
        )
        norm = nn.batch_norm(conv.channels, 4, 0.999, 1e-5)
        number = len(vars(self))
        setattr(self, f"conv{number}", layer)  # MNN finds layers by attributes
        setattr(self, f"norm{number}", norm)
        return layer, norm, conv.relu6

    def forward(self, image: Any) -> Any:
        """Return the scores of the classes."""
        x = image
        for layers, residual in self.blocks:
            first = x
            for layer, norm, relu6 in layers:
                x = norm(layer(x))
                x = F.relu6(x) if relu6 else x
            x = x + first if residual else x
        x = F.reduce_mean(F.convert(x, F.NCHW), [2, 3])
        return self.classifier(F.reshape(x, [image.shape[0], -1]))


def main() -> None:
    """Build the network and run the steps."""
    options = read_options(*IMAGES)
    F.lazy_eval(True)
    F.set_lazy_mode(0)
    F.set_thread_number(options.threads)
    batches = make_batches(options.batch_size, options.image_size)
    network = Network()
    network.train(True)
    optimizer = optim.SGD(network, 0.001, 0.9, 0.0001)

    def step(number: int) -> float:
        image, label = batches[number]
        inputs = F.convert(F.const(image, list(image.shape), F.NCHW), F.NC4HW4)
        labels = F.const(label.astype(np.int32), [len(label)], F.NCHW, F.int)
        predicted = F.softmax(network.forward(inputs), 1)
        loss = nn.loss.cross_entropy(predicted, F.one_hot(labels, CLASSES))
        if not optimizer.step(loss):
            raise SystemExit("MNN's optimizer reports that it changed nothing")
        return float(loss.read())

    run_steps(options, step)


if __name__ == "__main__":
    main()
