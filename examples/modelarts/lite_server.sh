#!/bin/sh
# A service on ModelArts Lite Server (轻量算力节点), by docker. Usage: lite_server.sh MODELS METHOD [CARD…]
# MODELS is a folder with target/ and draft/, METHOD a file of env/, CARD a number of npu-smi's (0).
# IMAGE, ASCEND_SPEC_PORT, ASCEND_SPEC_NAME and ASCEND_SPEC_API_KEY are taken from the environment.
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
exec docker run --detach --name "$name" --net=host --shm-size=1g "$@" \
  --device /dev/davinci_manager --device /dev/devmm_svm --device /dev/hisi_hdc \
  -v /usr/local/Ascend/driver:/usr/local/Ascend/driver:ro \
  -v /etc/ascend_install.info:/etc/ascend_install.info:ro \
  -v /usr/local/sbin/npu-smi:/usr/local/sbin/npu-smi:ro \
  -v /var/log/npu/:/usr/slog \
  -v "$models:/home/mind/model:ro" \
  --env-file "$settings" \
  --env ASCEND_SPEC_PORT --env ASCEND_SPEC_NAME --env ASCEND_SPEC_API_KEY \
  --env "ASCEND_SPEC_ARG_TENSOR_PARALLEL_SIZE=$cards" \
  "${IMAGE:-registry.example.com/vllm-ascend-spec:ascend}"
