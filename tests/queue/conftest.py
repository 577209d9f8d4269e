"""Failed assertions of the state machine show their values, as in test files."""

import pytest

pytest.register_assert_rewrite(
    "tests.queue.machine", "tests.queue.machine_claims", "tests.queue.machine_steering"
)
