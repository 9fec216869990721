"""One worker process: ``python -m tophit.compare.worker FOLDER STORAGE PARENT``."""

import os
import signal
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported

from tophit import interrupts
from tophit.compare.work import work
from tophit.errors import Interrupted, TophitError


def main() -> None:
    """Work until nothing is left; a signal stops after the current step, with a checkpoint."""
    interrupts.watch(signal.SIGINT, signal.SIGTERM)
    try:
        folder, storage, parent = sys.argv[1:]
        work(folder, storage, int(parent))
    except Interrupted as stop:
        sys.exit(stop.exit_code)
    except KeyboardInterrupt:
        sys.exit(Interrupted.exit_code)
    except TophitError as error:
        print(f"Worker: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
