#!/usr/bin/env bash
# Measure again everything that docs/benchmarks.md shows and that needs no GPU.
#
#   benchmarks/page.sh DATA [OUT]
#
# DATA/meshes is a folder of mesh files; OUT is the folder for the results (benchmarks/results).
# Run it in the checkout, on an idle machine, after `make install`. Jumanji is measured only if it
# is installed (pip install jumanji).
set -euo pipefail
[ $# -ge 1 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
data=$1
out=${2:-benchmarks/results}
mkdir -p "$out"
export OMP_NUM_THREADS=1 MKL_NUM_THREADS=1
failed=0

run() { # a failure does not keep the others from running
  echo "== $(date +%T) $*"
  ".venv/bin/$@" || { echo "failed: $*" >&2; failed=1; }
}
packing() { run packing "$@"; }
python() { run python "$@"; }

# 1. The environment
python benchmarks/interfaces.py --rows 1 1024 4096 --out "$out/interfaces.json"
python benchmarks/interfaces.py --rows 1 1024 4096 --stability none --out "$out/interfaces_none.json"
packing bench step env=cuboid_online 'bench.rows=[1]' 'bench.kernels=[numba]' \
  'bench.actions=[random_legal]' out="$out/bench_step_cuboid_online.json"
packing bench step env=irregular_com_hull 'bench.rows=[1,16,64,256]' 'bench.kernels=[numba]' \
  'bench.actions=[random_legal]' out="$out/bench_step_irregular.json"
packing bench step env=irregular_com_hull 'bench.rows=[1,64]' 'bench.kernels=[eager]' \
  'bench.actions=[random_legal]' out="$out/bench_step_irregular_eager.json"
packing bench step env=irregular_paper env.num_visible=1 items=meshes items.paths="$data/meshes" \
  'bench.rows=[1]' 'bench.kernels=[numba]' 'bench.actions=[random_legal]' \
  out="$out/bench_step_meshes.json"
packing bench step env=irregular_paper env.num_visible=1 items=meshes items.paths="$data/meshes" \
  env.stability=com_hull 'bench.rows=[1]' 'bench.kernels=[numba]' 'bench.actions=[random_legal]' \
  out="$out/bench_step_meshes_com_hull.json"
if .venv/bin/python -c 'import jumanji' 2> /dev/null; then
  python benchmarks/jumanji_bin_pack.py --out "$out/jumanji_bin_pack.json"
fi

# 2. Search without maps, kernels, replay
python benchmarks/lowest_search.py --data "$data" --out "$out/bench_search.json"
python benchmarks/drop_formulations.py --out "$out/drop_formulations.json"
python benchmarks/updated_maps.py --out "$out/updated_maps.json"
python benchmarks/replay_operations.py --out "$out/bench_replay.json"

# 3. Training, and host reads
packing bench train 'bench.agents=[dqn,rainbow,iqn,ppo,branching,ddpg,sac,ac_iqn,hierarchical]' \
  env=cuboid_online out="$out/bench_train.json"
python benchmarks/host_reads.py --out "$out/bench_sync.json"

# 4. What takes longest
python benchmarks/sweep_steps.py --env irregular_com_hull --out "$out/bench_sweep_irregular.json"
python benchmarks/scaling_irregular.py --out "$out/scaling_irregular.json"
python benchmarks/one_episode.py --out "$out/bench_seed.json"
python benchmarks/telemetry.py --blocks 60 --out "$out/telemetry.json"
python benchmarks/telemetry.py --agents dqn --blocks 60 --set network.depth=1 network.fold=4 \
  --out "$out/telemetry_small.json"
exit "$failed"
