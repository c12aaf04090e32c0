"""A step that learns from a file: the same models over images that somebody brought."""

from dataclasses import replace

from workloads.data import filed_images, filed_labels
from workloads.fault import Refused
from workloads.graph import TARGET, Model
from workloads.training import Inference, Training
from workloads.work import Step

FILED_BATCHES = 16  # of the file; few, so that a run sees them more than once


def from_file(name: str, step: Step) -> Step:
    """The same step over the data file of the run; Refused for what does not learn from images."""
    if isinstance(step, Training) and step.evaluation is None and len(step.passes) == 1:
        (once,) = step.passes
        passes = (replace(once, model=_filed(name, once.model)),)
        return replace(step, passes=passes, batches=FILED_BATCHES)
    if isinstance(step, Inference):
        return replace(step, model=_filed(name, step.model), batches=FILED_BATCHES)
    raise Refused(f"{name} makes its own data: it cannot learn from a file")


def _filed(name: str, model: Model) -> Model:
    shapes = list(model.inputs.values())
    target = model.columns[TARGET]
    if len(shapes) != 1 or len(shapes[0]) != 3 or target.generator != "label":
        raise Refused(f"{name} does not learn the classes of images: it cannot learn from a file")
    (image,) = model.inputs
    return replace(model, data={image: filed_images(0), TARGET: filed_labels(1, target.ints[0])})
