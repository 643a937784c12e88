"""Reports of what JAX traced and compiled while a program ran: as page, trace and table."""
