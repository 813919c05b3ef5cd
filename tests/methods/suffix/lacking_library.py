"""A library whose own needs are missing."""

import no_such_module  # type: ignore[import-not-found]  # noqa: F401
