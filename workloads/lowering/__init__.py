"""Lowering: from a step's definition to the body of a plan that the engine on the phone executes.

Nothing is decided on the phone. The order of operations, the lifetime of every tensor and its
offset in memory are fixed here; the engine executes the list (kernels/engine/engine.h).
"""

from workloads.lowering.memory_planner import MemoryBreakdown, body_memory
from workloads.lowering.plan_body import PlanBody
from workloads.lowering.planned_ops import PlannedOp, planned_ops
from workloads.lowering.step_lowering import lower_step, step_memory

__all__ = ["MemoryBreakdown", "PlanBody", "PlannedOp", "body_memory", "lower_step"]
__all__ += ["planned_ops", "step_memory"]
