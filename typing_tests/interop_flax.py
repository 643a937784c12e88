"""`leafwise.interop.flax`: what its functions take."""

from leafwise.interop import flax

flax.register_serialization()
flax.register_serialization()
flax.register_nnx_data()
flax.register_nnx_data(int)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
flax.register_serialization(1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
