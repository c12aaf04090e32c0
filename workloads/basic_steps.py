"""Steps without a model: a matrix product, nothing at all, and a step of an external program."""

from dataclasses import dataclass

from workloads.step_cost import FLOAT_BYTES, Op, Step, StepCost


class _BasicStep(Step):
    """A step that its workload, its parameters and its cost identify."""

    @property
    def identity(self) -> None:
        """Nothing beyond the cost."""


@dataclass(frozen=True)
class MatmulStep(_BasicStep):
    """One matrix product C = A B: C has m x n values, the inner dimension is k."""

    m: int
    n: int
    k: int

    @property
    def cost(self) -> StepCost:
        """The cost of one product."""
        m, n, k = self.m, self.n, self.k
        product = Op(
            name="sgemm",
            kind="matmul",
            flops=2 * m * n * k,
            read_bytes=FLOAT_BYTES * (m * k + k * n),
            write_bytes=FLOAT_BYTES * m * n,
        )
        return StepCost(
            ops=(product,),
            training=False,
            samples_per_step=1,
            parameter_bytes=FLOAT_BYTES * k * n,
            activation_bytes=FLOAT_BYTES * (m * k + m * n),
            macs=m * n * k,
        )


@dataclass(frozen=True)
class OpaqueStep(_BasicStep):
    """A step whose operations are not known: that of an external program, or none at all."""

    training: bool = False
    samples: int = 0

    @property
    def cost(self) -> StepCost:
        """No known operation; only the samples are counted."""
        return StepCost((), self.training, self.samples, parameter_bytes=0, activation_bytes=0)
