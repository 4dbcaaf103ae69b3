"""Drawing and updating priorities is one graph, without a read, and without a growing state."""

import torch
from tensordict import TensorDict, TensorDictBase
from tests.tracing.detectors import run_as_one_graph, run_on_fake_tensors, run_profiled
from torchrl.data import LazyTensorStorage

from agents.replay import DevicePrioritizedSampler


def sampler_in_use() -> tuple[DevicePrioritizedSampler, LazyTensorStorage, TensorDict]:
    torch.manual_seed(0)
    storage = LazyTensorStorage(200, compilable=True)
    storage.set(torch.arange(150), TensorDict({"number": torch.arange(150)}, [150]))
    sampler = DevicePrioritizedSampler(200, beta_frames=100)
    sampler.mark_update(torch.arange(150), storage=storage)
    root = TensorDict({"index": torch.arange(32), "error": torch.rand(32)}, [32])
    return sampler, storage, root


def test_one_graph_with_the_same_draws() -> None:
    def run(compiled: bool) -> tuple[TensorDictBase, torch.Tensor]:
        sampler, _, root = sampler_in_use()

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


def test_nothing_is_read() -> None:
    sampler, storage, root = sampler_in_use()

    def loop(td: TensorDictBase) -> TensorDictBase:
        index, info = sampler.sample(storage, 32)
        sampler.set_frames(50)
        sampler.update_priority(index, info["priority_weight"])
        return td.set("index", index)

    run_profiled(loop, root, 5)
    sampler, storage, root = sampler_in_use()

    def draw(td: TensorDictBase) -> TensorDictBase:
        return td.set("index", sampler.sample(storage, 32)[0])

    run_on_fake_tensors(draw, root)
