#!/bin/sh
# Legacy: the start script of ModelArts' old online services (在线服务（旧版）), which are offline.
# It lies in the model's folder, beside target/, draft/, cert.pem and key.pem; there HTTPS is a must.
set -eu
folder="$(cd "$(dirname "$0")" && pwd)"
export ASCEND_SPEC_MODEL="${ASCEND_SPEC_MODEL:-$folder/target}"
export ASCEND_SPEC_METHOD="${ASCEND_SPEC_METHOD:-eagle}" ASCEND_SPEC_TOKENS="${ASCEND_SPEC_TOKENS:-3}"
export ASCEND_SPEC_DRAFT="${ASCEND_SPEC_DRAFT-$folder/draft}"
export ASCEND_SPEC_CERT="${ASCEND_SPEC_CERT:-$folder/cert.pem}"
export ASCEND_SPEC_KEY="${ASCEND_SPEC_KEY:-$folder/key.pem}"
exec /opt/vllm-ascend-spec/entry.sh python3 /opt/vllm-ascend-spec/start.py
