"""The training steps of EMDL'21 (doi 10.1145/3469116.3470009): its models, optimizers, CPU job.

Three of its models cannot learn as they were coded. Their textbook networks have the same shapes.
"""

from collections.abc import Callable
from functools import partial

from workloads.graph import Model
from workloads.models.alexnet import emdl_alexnet
from workloads.models.googlenet import emdl_googlenet
from workloads.models.lenet import emdl_lenet
from workloads.models.mobilenetv2 import emdl_mobilenetv2
from workloads.models.squeezenet import emdl_squeezenet
from workloads.training import SGD, TrainingStep, training_step

MODELS: dict[str, Callable[[], Model]] = {
    "lenet": emdl_lenet,
    "alexnet": emdl_alexnet,
    "squeezenet": emdl_squeezenet,
    "googlenet": emdl_googlenet,
    "mobilenetv2": emdl_mobilenetv2,
    "squeezenet-textbook": partial(emdl_squeezenet, textbook=True),
    "googlenet-textbook": partial(emdl_googlenet, textbook=True),
    "mobilenetv2-textbook": partial(emdl_mobilenetv2, "emdl-mobilenetv2-textbook"),
}
# The study lowered its learning rate slowly; within the steps of a run it is constant. With one or
# two generated samples per batch this rate diverges, so it is lowered with the batch.
LARGEST_BATCH = 16  # of the study
OPTIMIZER = SGD(learning_rate=0.01, momentum=0.9, weight_decay=5e-4)
OPTIMIZERS = {"mobilenetv2": SGD(learning_rate=1e-5, momentum=0.9, weight_decay=4e-5)}


def cpu_job() -> TrainingStep:
    """Return the job that the study ran on every core set and clock, which it does not name.

    We take it to be one step of AlexNet with 16 samples. The job took 2.0 s and 3.55 W on four big
    cores at the highest clock; that step took 2.27 s and 3.6 W above idle on a Meizu 16T, and no
    other step whose power is known comes near to both.
    """
    return training_step(emdl_alexnet(), 16, OPTIMIZER)
