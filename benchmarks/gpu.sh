#!/usr/bin/env bash
# All measurements for a machine with one GPU, in one call of at most ten minutes.
#
#     benchmarks/gpu.sh [FOLDER]        default: gpu-results
#     DEVICE=cpu benchmarks/gpu.sh      a rehearsal without a GPU: the same commands, small sizes
#
# FOLDER/results.tgz holds a JSON file and a log of each part. It is rewritten after every part, so
# an interrupted call loses only one part. Nothing is installed. The most important parts come first:
# correctness, captured and eager steps, kernels, training. A part that fails or takes too long is
# listed at the end, and the others still run. If the first step fails, no other part runs.
set -uo pipefail
mkdir -p "${1:-gpu-results}"
folder=$(cd "${1:-gpu-results}" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/.."
device=${DEVICE:-cuda}
python=${PYTHON:-$([ -x .venv/bin/python ] && echo .venv/bin/python || echo python3)}
most=${MOST_SECONDS:-560} # for all parts; a part for which no time is left is listed as failed
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
plugins=$results/plugins
mkdir "$plugins" # tests then compare with torch's own operations; numba would compile for minutes
echo "import sys; sys.modules['numba'] = None" > "$plugins/no_numba.py"
export PYTHONUNBUFFERED=1 PYTHONPATH="$PWD/src:$plugins${PYTHONPATH:+:$PYTHONPATH}"
export CUBLAS_WORKSPACE_CONFIG=:4096:8 # otherwise matrix products may differ from run to run
failed='' ended=''
patience=1
if [ "$device" = cpu ]; then
  patience=4 most=$((4 * most)) # the first step may compile, beside other programs
fi

part() { # part NAME SECONDS COMMAND...; parts.json records how each part ended
  local name=$1 seconds=$(($2 * patience)) start=$SECONDS status=0
  shift 2
  [ "$seconds" -lt $((most - SECONDS)) ] || seconds=$((most - SECONDS))
  if [ "$seconds" -lt 5 ]; then
    status=124
    echo 'no time was left' > "$results/$name.log"
  else
    timeout -k 5 "$seconds" "$@" > "$results/$name.log" 2>&1 || status=$?
  fi
  echo "== $name: exit status $status after $((SECONDS - start)) s, $SECONDS s in all"
  tail -n "${LINES_SHOWN:-6}" "$results/$name.log"
  [ "$status" = 0 ] || failed="$failed $name"
  ended="$ended${ended:+,
}\"$name\": {\"status\": $status, \"seconds\": $((SECONDS - start))}"
  printf '{\n%s\n}\n' "$ended" > "$results/parts.json"
  tar czf "$folder/results.tgz" -C "$results" .
  return $status
}

bench() { # bench NAME SECONDS WHAT OVERRIDES...
  local name=$1 seconds=$2
  shift 2
  part "$name" "$seconds" "$python" -m agents.cli bench "$@" \
    "device=$device" "out=$results/$name.json" "${clock[@]}"
}

steps() { # steps PRESET ROWS SECONDS [THROUGH]
  # On a CPU all of these step the same small cuboids: once is enough.
  [ "$device" = cpu ] && compgen -G "$results/step_*.json" > /dev/null && return
  bench "step_$1_$2" "$3" step "env=$1" "bench.rows=[$2]" "bench.kernels=[$backend]" \
    bench.actions=[random_legal] "bench.through=[${4:-$through}]"
}

if [ "$device" = cpu ]; then
  # Small cuboids stand for the presets of other items, whose steps take seconds without a GPU.
  backend=eager through=env large=4 middle=3 few=2 small=2
  problems=flat frames=64 environments=2 jobs=0
  items=cuboid_online paper=cuboid_online hull=cuboid_online
  learners=(bench.agents=[ppo] env.num_envs=2 agent.batch_size=16 bench.frames=16)
  clock=(clock.repeats=1 clock.warmup=0 clock.shortest=0 clock.singles=1)
else
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv > "$results/device.csv" ||
    echo 'nvidia-smi failed: is there a GPU?' >&2
  backend=triton through=captured,env large=65536 middle=16384 few=256 small=1024
  problems=batch frames=3e6 environments=4096 jobs=12
  items=irregular paper=irregular_paper hull=irregular_com_hull
  learners=(bench.agents=[dqn,ppo])
  clock=(clock.repeats=3 clock.longest=20)
fi

LINES_SHOWN=9 part smoke 90 "$python" -c "
import torch
from packing_env.tasks import make_env
for name in ('cuboid_online', '$items'):
    env = make_env(name, $few, '$device', pool_size=8)
    rewards = env.rollout(9)['next', 'reward']
    print(name, env.engine.name, rewards.device, rewards.sum().item())
" || exit 1
LINES_SHOWN=40 part tests 190 "$python" -m pytest -n "$jobs" --dist worksteal -p no_numba \
  -p no:cacheprovider   -W default -q -ra --tb=line -m gpu tests/gpu
steps cuboid_online "$large" 40
steps cuboid_online "$small" 30
steps "$hull" "$small" 40
steps "$items" "$small" 40
bench kernel 40 kernel "bench.problems=[$problems]" "bench.kernels=[$backend]" bench.baselines=[]
part train 60 "$python" -m agents.cli train "device=$device" env=cuboid_online \
  "env.num_envs=$environments" "trainer.frames=$frames" "trainer.log_every=$frames" \
  "run_dir=$results/train"
steps "$paper" "$few" 40 env # its captured step would need three transitions of memory
steps cuboid_online "$middle" 30
bench updates 60 train "env=$hull" bench.updates=1 "${learners[@]}"
part host_reads 45 "$python" benchmarks/host_reads.py --agents dqn --presets "$items" --cycles 2 \
  --updates 1 --device "$device" --out "$results/host_reads.json"

tar czf "$folder/results.tgz" -C "$results" .
echo "results: $folder/results.tgz"
if [ -n "$failed" ]; then
  echo "failed:$failed" >&2
  exit 1
fi
