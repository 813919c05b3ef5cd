#!/bin/bash
# Set CANN's environment and what chooses this plugin beside vllm-ascend, then become the command.
# What `docker exec` starts has neither, unless its command begins with this file, too.
for file in /usr/local/Ascend/ascend-toolkit/set_env.sh /usr/local/Ascend/nnal/atb/set_env.sh; do
  if [ -f "$file" ]; then
    # shellcheck disable=SC1090
    source "$file"
  fi
done
set -eu
# Apart, so that its failure ends the start.
plugins=$(vllm-ascend-spec env)
eval "$plugins"
exec "$@"
