"""Trains MobileNetV2 with ExecuTorch: PyTorch exports one step, ExecuTorch executes it.

Forward and backward pass and SGD run in ExecuTorch's own runtime with its portable kernels, on one
thread; the training module of its Python package is marked experimental. Batch norm is written out,
because ExecuTorch has no kernel for its gradient. engine_steps.py times and prints the steps.
"""

import warnings
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

PACKAGE = "executorch==1.5.1 torch==2.13.0"
torch: Any = import_engine("torch", PACKAGE)
export: Any = import_engine("torch.export", PACKAGE)
joint: Any = import_engine("torch.export.experimental", PACKAGE)
exir: Any = import_engine("executorch.exir", PACKAGE)
training: Any = import_engine("executorch.extension.training", PACKAGE)


class ConvNorm(torch.nn.Module):
    """A convolution and a batch norm that uses the statistics of the batch."""

    def __init__(self, conv: Conv) -> None:
        super().__init__()
        settings = {"stride": conv.stride, "padding": conv.kernel // 2, "groups": conv.groups}
        sizes = (conv.channels_in, conv.channels, conv.kernel)
        self.conv = torch.nn.Conv2d(*sizes, bias=False, **settings)
        torch.nn.init.kaiming_normal_(self.conv.weight, nonlinearity="relu")
        self.scale = torch.nn.Parameter(torch.ones(1, conv.channels, 1, 1))
        self.shift = torch.nn.Parameter(torch.zeros(1, conv.channels, 1, 1))
        self.relu6 = conv.relu6

    def forward(self, x: Any) -> Any:
        """Apply both."""
        x = self.conv(x)
        x = x - x.mean((0, 2, 3), keepdim=True)
        variance = (x * x).mean((0, 2, 3), keepdim=True)
        x = x * torch.rsqrt(variance + 1e-5) * self.scale + self.shift
        return x.clamp(0, 6) if self.relu6 else x


class Network(torch.nn.Module):
    """MobileNetV2 and its loss."""

    def __init__(self) -> None:
        super().__init__()
        blocks = list(mobilenetv2_blocks())
        self.residual = [block.residual for block in blocks]
        self.blocks = torch.nn.ModuleList(
            torch.nn.Sequential(*map(ConvNorm, block.convolutions)) for block in blocks
        )
        self.classifier = torch.nn.Linear(1280, CLASSES)
        self.loss = torch.nn.CrossEntropyLoss()

    def forward(self, image: Any, label: Any) -> Any:
        """Return the loss."""
        x = image
        for block, residual in zip(self.blocks, self.residual, strict=True):
            x = block(x) + x if residual else block(x)
        return self.loss(self.classifier(x.mean((2, 3))), label)


def main() -> None:
    """Export the step and run it."""
    options = read_options(*IMAGES)
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(11)
    batches = [
        (torch.from_numpy(image), torch.from_numpy(label))
        for image, label in make_batches(options.batch_size, options.image_size)
    ]
    exported = joint._export_forward_backward(export.export(Network(), batches[0], strict=True))
    unchecked = exir.EdgeCompileConfig(_check_ir_validity=False)
    program = exir.to_edge(exported, compile_config=unchecked).to_executorch()
    module = training._load_for_executorch_for_training_from_buffer(program.buffer)
    optimizers: list[Any] = []

    def step(number: int) -> float:
        (loss,) = module.forward_backward("forward", batches[number])
        if not optimizers:  # the parameters are known after the first pass
            parameters = module.named_parameters()
            optimizers.append(training.get_sgd_optimizer(parameters, 0.001, 0.9, 0, 1e-4))
        optimizers[0].step(module.named_gradients())
        return float(loss)

    run_steps(options, step)


if __name__ == "__main__":
    main()
