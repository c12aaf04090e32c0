"""From a step's definition to the body of a plan: tensors with a place in memory, and operations.

The one rule: nothing is decided on the phone. Who outlives whom, who may share whose bytes and what
runs after what is settled here, and the engine follows the list (kernels/engine/engine.h).
"""

from workloads.lowering.body import Body
from workloads.lowering.memory import Memory, memory_of_body
from workloads.lowering.step import body_of, memory_of

__all__ = ["Body", "Memory", "body_of", "memory_of", "memory_of_body"]
