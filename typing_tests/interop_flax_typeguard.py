"""`leafwise.interop.flax` and `leafwise.interop.typeguard`: decorators keep what they decorate."""

from typing import assert_type

from leafwise.interop import flax
from leafwise.interop.typeguard import typechecked


@typechecked
def half(x: int, *, scale: float = 1.0) -> float:
    return x / 2 * scale


assert_type(half(1), float)
half("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
half(1, 2.0)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
flax.register_serialization()
flax.register_serialization(allow_opaque=True)
flax.register_nnx_data()
flax.register_nnx_data(int)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
flax.register_serialization(allow_opaque=1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
