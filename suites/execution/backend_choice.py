"""Choose the backend that a command or a call names."""

from importlib.util import find_spec

from ...audit.wording import nearest
from ..config.source import ConfigError
from ..results.environment import cores
from .backend import Backend
from .local_backend import LocalBackend

BACKENDS = {"local": "processes of this machine", "dask": "a Dask cluster", "ray": "a Ray cluster"}
_MODULES = {"dask": "distributed", "ray": "ray"}


def chosen_backend(name: str, *, address: str | None = None, jobs: int | None = None) -> Backend:
    """Return the backend of this name, not yet entered.

    Args:
        address: of a cluster that runs already; None starts workers on this machine.
        jobs: number of processes on this machine; by default one per core.

    Raises:
        ConfigError: an unknown name, an address or a number of processes that does not apply, or a library that is not
            installed.
    """
    if not isinstance(name, str) or name not in BACKENDS:
        raise ConfigError(f"unknown backend {name!r}; known: {nearest(str(name), BACKENDS)}")
    if address is not None and (name == "local" or not isinstance(address, str) or not address):
        raise ConfigError(f"address must be that of a running cluster, for the backends dask and ray, got {address!r}")
    if address is not None and jobs is not None:
        raise ConfigError("jobs is the number of processes on this machine; a cluster with an address has its own")
    if name == "local":
        return LocalBackend(jobs or cores())
    if find_spec(_MODULES[name]) is None:
        raise ConfigError(f'the backend {name} is not installed: pip install "fedassay[{name}]"')
    if name == "dask":
        from .dask_backend import DaskBackend

        return DaskBackend(address, jobs or cores())
    from .ray_backend import RayBackend

    return RayBackend(address, jobs or cores())
