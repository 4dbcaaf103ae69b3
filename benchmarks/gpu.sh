#!/usr/bin/env bash
# Everything that a machine with a GPU can show, in one call of at most ten minutes.
#
#     benchmarks/gpu.sh [FOLDER]        JSON files and a log of each part; default: gpu-results
#     DEVICE=cpu benchmarks/gpu.sh      a dry run without a GPU: the same commands, small sizes
#
# A part that fails or takes too long is listed at the end, and the others run all the same.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=${1:-gpu-results}
device=${DEVICE:-cuda}
python=${PYTHON:-$([ -x .venv/bin/python ] && echo .venv/bin/python || echo python3)}
mkdir -p "$folder"
export PYTHONUNBUFFERED=1
failed='' done_parts=''
most=${MOST_SECONDS:-590} # of everything: what no time is left for is listed as failed

part() { # part NAME SECONDS COMMAND...; parts.json tells how each one ended
  local name=$1 seconds=$2 start=$SECONDS status=0
  shift 2
  [ "$seconds" -lt $((most - SECONDS)) ] || seconds=$((most - SECONDS))
  if [ "$seconds" -lt 5 ]; then
    status=124
    echo 'no time was left' > "$folder/$name.log"
  else
    timeout -k 5 "$seconds" "$@" > "$folder/$name.log" 2>&1 || status=$?
  fi
  if [ "$status" = 0 ]; then
    echo "$name: $((SECONDS - start)) s"
  else
    echo "$name: exit status $status after $((SECONDS - start)) s, see $folder/$name.log"
    failed="$failed $name"
  fi
  done_parts="$done_parts${done_parts:+,
}\"$name\": {\"status\": $status, \"seconds\": $((SECONDS - start))}"
  printf '{\n%s\n}\n' "$done_parts" > "$folder/parts.json"
}

bench() { # bench NAME SECONDS WHAT OVERRIDES...
  local name=$1 seconds=$2
  shift 2
  part "$name" "$seconds" "$python" -m agents.cli bench "$@" "device=$device" "out=$folder/$name.json"
}

if [ "$device" = cpu ]; then
  rows='2' large='2' through='[env]' problems='[flat]' cases=2 agents='[dqn]' marker='not slow'
  tests='tests/kernels/test_kernels_dispatch.py'
  quick=(clock.repeats=1 clock.warmup=0 clock.shortest=0 clock.singles=1)
else
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv > "$folder/device.csv" ||
    echo 'nvidia-smi failed: is there a GPU?' >&2
  rows='1024 16384 65536' large='64 1024' through='[env,captured]' problems='[A,B,flat,batch]'
  cases=100 agents='[dqn,ppo]' marker='gpu' tests='tests/gpu'
  quick=(clock.repeats=3 clock.longest=20)
fi

part tests 160 "$python" -m pytest -q -p no:cacheprovider -m "$marker" "$tests"
bench kernel 60 kernel "bench.problems=$problems" "bench.cases=$cases" "${quick[@]}"
for n in $rows; do # one file each, so that a part that takes too long loses itself alone
  bench "step_cuboid_online_$n" 25 step env=cuboid_online "bench.rows=[$n]" "bench.through=$through" "${quick[@]}"
done
for n in $large; do
  bench "step_irregular_$n" 35 step env=irregular_com_hull "bench.rows=[$n]" "bench.through=$through" "${quick[@]}"
  bench "step_irregular_paper_$n" 45 step env=irregular_paper "bench.rows=[$n]" "${quick[@]}"
done
bench train 90 train "bench.agents=$agents" env=irregular_com_hull bench.updates=1 "${quick[@]}"
part host_reads 45 "$python" benchmarks/host_reads.py --agents dqn --presets irregular --cycles 2 \
  --device "$device" --out "$folder/host_reads.json"

echo "results: $folder"
if [ -n "$failed" ]; then
  echo "failed:$failed" >&2
  exit 1
fi
