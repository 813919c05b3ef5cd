#!/bin/sh
# A service with method draft_model; every setting comes from the environment, see docs/modelarts.md.
set -eu
export ASCEND_SPEC_METHOD="${ASCEND_SPEC_METHOD:-draft_model}" ASCEND_SPEC_TOKENS="${ASCEND_SPEC_TOKENS:-5}"
exec "${PYTHON:-python3}" "$(dirname "$0")/start.py"
