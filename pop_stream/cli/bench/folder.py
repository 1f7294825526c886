"""Where a benchmark keeps data and logs."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def data_folder(bench_options: Path | None) -> Iterator[Path]:
    """The wanted folder, made if need be; without one, a folder that is removed at the end."""
    if bench_options is not None:
        yield bench_options.absolute()
        return
    made = Path(tempfile.mkdtemp(prefix="pop-stream-bench-"))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
