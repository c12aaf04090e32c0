"""The deep Q-network of Atari (Mnih et al. 2015): what is each of 18 actions worth on this screen?

The values of the next screen come from a second network, which keeps its first parameters: the
authors renew it every 10,000 steps, and no run is that long.
"""

from functools import cache

from workloads.data import constant, images, labels, personal_images
from workloads.graph import Model, Node, Stated
from workloads.layers import (
    Conv2d,
    Flatten,
    Linear,
    MeanSquaredError,
    ReLU,
    TemporalDifference,
)

SCREENS = (4, 84, 84)  # the last four, in grey
ACTIONS = 18
SOURCE = "Mnih et al. 2015, 18 actions: 1,693,362 parameters by hand"


def network(name: str, feed: str, trainable: bool = True) -> tuple[Node, ...]:
    """Three convolutions and two full connections, which end in a value for every action."""
    convs = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
    nodes: list[Node] = []
    for at, (channels, kernel, stride) in enumerate(convs, start=1):
        conv = Conv2d(channels, kernel, stride, trainable=trainable)
        nodes.append(Node(f"{name}.conv{at}", conv, () if nodes else (feed,)))
        nodes.append(Node(f"{name}.relu{at}", ReLU()))
    return (
        *nodes,
        Node(f"{name}.flatten", Flatten()),
        Node(f"{name}.fc1", Linear(512, trainable=trainable)),
        Node(f"{name}.relu4", ReLU()),
        Node(name, Linear(ACTIONS, trainable=trainable)),
    )


@cache
def dqn() -> Model:
    """Both networks, and what the values should have been."""
    taken = ("values", "following", "action", "reward")
    return Model(
        "dqn",
        {"screen": SCREENS, "next_screen": SCREENS, "action": (), "reward": ()},
        (
            *network("values", "screen"),
            *network("following", "next_screen", trainable=False),
            Node("loss", TemporalDifference(discount=0.99), taken),
        ),
        Stated(2 * 1_693_362, 2 * 9_352_192, f"{SOURCE}, twice"),
        data={
            "screen": images(ACTIONS),
            "next_screen": personal_images(ACTIONS, 0),  # much like it, and another one
            "action": labels(ACTIONS),
            "reward": constant(1.0),
        },
    )


@cache
def acting() -> Model:
    """One network alone, as it is used to choose an action; its loss is not asked for."""
    return Model(
        "dqn acting",
        {"screen": SCREENS},
        (*network("values", "screen"), Node("loss", MeanSquaredError())),
        Stated(1_693_362, 9_352_192, SOURCE),
        data={"screen": images(ACTIONS)},
    )
