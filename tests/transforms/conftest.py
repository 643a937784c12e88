"""Let what a row asserts say why it failed, as in a test."""

import pytest

pytest.register_assert_rewrite("tests.transforms.row")
