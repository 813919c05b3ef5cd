#!/bin/sh
# A service with method mtp; every setting comes from the environment, see docs/modelarts.md.
set -eu
export ASCEND_SPEC_METHOD="${ASCEND_SPEC_METHOD:-mtp}" ASCEND_SPEC_TOKENS="${ASCEND_SPEC_TOKENS:-1}"
exec "${PYTHON:-python3}" "$(dirname "$0")/start.py"
