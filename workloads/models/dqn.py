"""The deep Q-network for Atari (Mnih et al. 2015), which values each of 18 actions on a screen.

The values of the next screen come from a target network that keeps its initial parameters: the
authors update it every 10,000 steps, and no run is that long.
"""

from functools import cache

from workloads.data_columns import constant, drifting_images, images, labels
from workloads.graph import Model, Node, PublishedSize
from workloads.layers import Conv2d, Flatten, Linear, MeanSquaredError, ReLU, TemporalDifference

SCREENS = (4, 84, 84)  # the last four screens, in grey
ACTIONS = 18
SOURCE = "Mnih et al. 2015, 18 actions: 1,693,362 parameters by hand"


def network(name: str, source: str, trainable: bool = True) -> tuple[Node, ...]:
    """Return three convolutions and two fully connected layers that end in a value per action."""
    convs = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
    nodes: list[Node] = []
    for index, (channels, kernel, stride) in enumerate(convs, start=1):
        conv = Conv2d(channels, kernel, stride, trainable=trainable)
        nodes.append(Node(f"{name}.conv{index}", conv, () if nodes else (source,)))
        nodes.append(Node(f"{name}.relu{index}", ReLU()))
    return (
        *nodes,
        Node(f"{name}.flatten", Flatten()),
        Node(f"{name}.fc1", Linear(512, trainable=trainable)),
        Node(f"{name}.relu4", ReLU()),
        Node(name, Linear(ACTIONS, trainable=trainable)),
    )


@cache
def dqn() -> Model:
    """Return both networks and the temporal-difference loss."""
    loss_inputs = ("online", "target_net", "action", "reward")
    return Model(
        "dqn",
        {"screen": SCREENS, "next_screen": SCREENS, "action": (), "reward": ()},
        (
            *network("online", "screen"),
            *network("target_net", "next_screen", trainable=False),
            Node("loss", TemporalDifference(discount=0.99), loss_inputs),
        ),
        PublishedSize(2 * 1_693_362, 2 * 9_352_192, f"{SOURCE}, twice"),
        data={
            "screen": images(ACTIONS),
            "next_screen": drifting_images(ACTIONS, 0),  # similar to the screen, but different
            "action": labels(ACTIONS),
            "reward": constant(1.0),
        },
    )


@cache
def dqn_policy() -> Model:
    """Return one network alone, as it is used to choose an action; its loss is not computed."""
    return Model(
        "dqn policy",
        {"screen": SCREENS},
        (*network("online", "screen"), Node("loss", MeanSquaredError())),
        PublishedSize(1_693_362, 9_352_192, SOURCE),
        data={"screen": images(ACTIONS)},
    )
