#!/bin/sh
# A service on ModelArts Lite Server (轻量算力节点), by docker. Usage: lite_server.sh MODELS METHOD [CARD…]
# MODELS is a folder with target/ and draft/, METHOD a file of env/, CARD a number of npu-smi's (0).
# IMAGE is taken from the environment, and so is every ASCEND_SPEC_…, which goes before the file's.
set -eu
if [ $# -lt 2 ]; then
  echo "usage: lite_server.sh MODELS METHOD [CARD…]" >&2
  exit 2
fi
models=$1 settings="$(dirname "$0")/env/$2.env" name=speculation-$2
shift 2
[ -d "$models" ] || { echo "lite_server.sh: no folder $models" >&2; exit 2; }
[ -f "$settings" ] || { echo "lite_server.sh: no file $settings" >&2; exit 2; }
[ $# -gt 0 ] || set -- 0
cards=$#
for card do
  set -- "$@" --device "/dev/davinci$card"
  shift
done
# With --env and a name alone docker takes the value from here, so that a key is on no command line.
names='BEGIN { for (n in ENVIRON) if (n ~ /^ASCEND_SPEC_[A-Za-z0-9_]+$/ && ENVIRON[n] != "") print n }'
for setting in $(awk "$names" | sort); do
  set -- "$@" --env "$setting"
done
exec docker run --detach --name "$name" --net=host --shm-size=1g "$@" \
  --device /dev/davinci_manager --device /dev/devmm_svm --device /dev/hisi_hdc \
  -v /usr/local/Ascend/driver:/usr/local/Ascend/driver:ro \
  -v /etc/ascend_install.info:/etc/ascend_install.info:ro \
  -v /usr/local/sbin/npu-smi:/usr/local/sbin/npu-smi:ro \
  -v /var/log/npu/:/usr/slog \
  -v "$models:/home/mind/model:ro" \
  --env-file "$settings" \
  --env "ASCEND_SPEC_ARG_TENSOR_PARALLEL_SIZE=${ASCEND_SPEC_ARG_TENSOR_PARALLEL_SIZE:-$cards}" \
  "${IMAGE:-registry.example.com/vllm-ascend-spec:ascend}"
