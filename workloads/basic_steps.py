"""The matrix product by itself: what every engine is measured by first."""

from dataclasses import dataclass

from workloads.work import FLOAT_BYTES, Op, Step, Work


@dataclass(frozen=True)
class Product(Step):
    """C = A B, of m x n values and depth k."""

    m: int
    n: int
    k: int

    @property
    def work(self) -> Work:
        """One product."""
        m, n, k = self.m, self.n, self.k
        product = Op(
            name="sgemm",
            kind="matmul",
            flops=2 * m * n * k,
            read_bytes=FLOAT_BYTES * (m * k + k * n),
            write_bytes=FLOAT_BYTES * m * n,
        )
        return Work(
            ops=(product,),
            training=False,
            samples_per_step=1,
            parameter_bytes=FLOAT_BYTES * k * n,
            activation_bytes=FLOAT_BYTES * (m * k + m * n),
            macs=m * n * k,
        )

    @property
    def meaning(self) -> None:
        """The price says it all."""
