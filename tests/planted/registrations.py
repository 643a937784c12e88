"""What registers a class of another module; a new process has no reason to import it."""

from leafwise.testing import Law

from .table import planted
from .unregistered import RegisteredElsewhere

planted(Law.FRESH_PROCESS, like="equinox#231: classes that arrive unregistered")(
    RegisteredElsewhere
)
