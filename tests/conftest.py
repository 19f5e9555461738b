"""Where the tests find real data, which of them run together, how many threads they take."""

import gc
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

try:  # a machine with a GPU may have no more than torch and pytest
    from hypothesis import HealthCheck, settings
except ImportError:
    pass
else:
    # The same examples every time, on machines however slow. `--hypothesis-profile=search` looks
    # for new ones.
    SLOW = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
    settings.register_profile("repeatable", derandomize=True, **SLOW)
    settings.register_profile("search", **SLOW)
    settings.load_profile("repeatable")

torch.set_num_threads(1)  # the same sums on any number of cores


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Send the tests of an xdist_group to one worker, with pytest 9.2, too.

    pytest-xdist 3.8 appends the group to a test's id in a field that pytest 9.2 no longer reads.
    """
    for item in items:
        grouped = vars(item).get("_nodeid", item.nodeid)
        if grouped != item.nodeid:
            item._id = type(item._id).parse(grouped)


def pytest_collection_finish() -> None:
    """Spare the garbage collector all modules and tests, which live to the end."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Every test starts from the same random state, in whatever order and process it runs."""
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data: $TOOSURE_TEST_DATA, or shared/data beside the checkout."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("TOOSURE_TEST_DATA", default))
    if not (folder / "logits").is_dir():
        pytest.skip(f"no real data at {folder}; set TOOSURE_TEST_DATA to test on it")
    return folder


@pytest.fixture(scope="session")
def ray_token() -> Iterator[None]:
    """One token for all clusters of this process, since Ray reads it only once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
        yield


@pytest.fixture
def fixture_f() -> tuple[torch.Tensor, torch.Tensor]:
    """Four rows of three classes whose every figure is known by hand."""
    logits = [[2, 0.5, -1], [0.2, 1, 0.1], [-0.5, 0, 3], [1.2, 1, -0.3]]
    return torch.tensor(logits, dtype=torch.float64), torch.tensor([0, 2, 2, 1])
