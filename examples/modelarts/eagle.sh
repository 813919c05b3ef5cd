#!/bin/sh
# A service with method eagle; every setting comes from the environment, see docs/modelarts.md.
set -eu
export ASCEND_SPEC_METHOD="${ASCEND_SPEC_METHOD:-eagle}" ASCEND_SPEC_TOKENS="${ASCEND_SPEC_TOKENS:-3}"
exec "${PYTHON:-python3}" "$(dirname "$0")/start.py"
