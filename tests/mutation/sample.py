"""Choose some of the mutations of a session of cosmic-ray: `sample.py SESSION NUMBER`."""

import random
import sys

from cosmic_ray.work_db import use_db
from cosmic_ray.work_item import WorkerOutcome, WorkItem, WorkResult


def _place(item: WorkItem) -> str:
    """Return what is the same in every session: job ids are not."""
    return repr(item.mutations)


def main(session: str, number: int) -> None:
    """Skip all but so many mutations, always the same ones."""
    with use_db(session) as database:
        pending = sorted(database.pending_work_items, key=_place)
        chosen = random.Random(0).sample(pending, min(number, len(pending)))
        kept = {item.job_id for item in chosen}
        for item in pending:
            if item.job_id not in kept:
                skipped = WorkResult(worker_outcome=WorkerOutcome.SKIPPED)
                database.set_result(item.job_id, skipped)
    print(f"{len(kept)} of {len(pending)} mutations")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
