#!/bin/sh
# A service with method suffix; every setting comes from the environment, see docs/modelarts.md.
set -eu
export ASCEND_SPEC_METHOD="${ASCEND_SPEC_METHOD:-suffix}" ASCEND_SPEC_TOKENS="${ASCEND_SPEC_TOKENS:-15}"
exec "${PYTHON:-python3}" "$(dirname "$0")/start.py"
