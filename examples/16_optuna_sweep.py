"""A search for settings with Optuna; each trial is an ordinary run, which `packing runs` lists.

pip install optuna
python examples/16_optuna_sweep.py
packing runs sweep
"""

import json
from pathlib import Path

import optuna

from agents.cli.main import main as packing


def main(
    trials: int = 8, frames: int = 4096, folder: str = "sweep", overrides: tuple[str, ...] = ()
) -> float:
    def utilization(trial: optuna.Trial) -> float:
        lr = trial.suggest_float("agent.lr", 1e-4, 1e-2, log=True)
        epsilon = trial.suggest_float("agent.epsilon_end", 0.0, 0.1)
        run = Path(folder) / f"{trial.number:03d}"
        command = [
            "train", "env=cuboid_online", "env.num_envs=32", f"trainer.frames={frames}",
            f"agent.lr={lr}", f"agent.epsilon_end={epsilon}", f"run_dir={run}",
            "evaluation.instances=32", "evaluation.heuristics=[]", *overrides,
        ]  # fmt: skip
        if packing(command) != 0:
            raise optuna.TrialPruned  # for example because the loss was not finite
        results = json.loads((run / "results.json").read_text())
        return results["policies"]["dqn"]["summary"]["utilization"]["mean"]

    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=0))
    study.optimize(utilization, n_trials=trials)
    print(f"best utilization {study.best_value:.3f} with {study.best_params}")
    return study.best_value


if __name__ == "__main__":
    main()
