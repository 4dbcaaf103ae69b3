"""Drawing and updating priorities is one graph, without a read."""

import torch
from tensordict import TensorDict, TensorDictBase
from tests.tracing.detectors import run_as_one_graph

from agents.replay import DevicePrioritizedSampler


def test_one_graph_with_the_same_draws() -> None:
    def run(compiled: bool) -> tuple[TensorDictBase, torch.Tensor]:
        torch.manual_seed(0)
        sampler = DevicePrioritizedSampler(200, beta_frames=100)
        sampler.mark_update(torch.arange(150))
        root = TensorDict({"index": torch.arange(32), "error": torch.rand(32)}, [32])

        def loop(td: TensorDictBase) -> TensorDictBase:
            sampler.update_priority(td["index"], td["error"])
            sampler.mark_update((td["index"] + 7) % 150)
            index, weight = sampler.draw(32)
            return TensorDict({"index": index, "error": weight}, [32])

        torch.manual_seed(1)
        if compiled:
            root = run_as_one_graph(loop, root, num_steps=10, warmup=2)
        else:
            for _ in range(12):
                root = loop(root)
        return root, sampler._powers

    (found, powers), (expected, other) = run(True), run(False)
    assert torch.equal(found["index"], expected["index"])
    torch.testing.assert_close(found["error"], expected["error"])
    torch.testing.assert_close(powers, other)
