"""Values of clients in this process: the population has them sparsely, and past a limit on disk."""

from __future__ import annotations

import numpy as np
import torch

from rookery.engines.local import BLOCK_ROWS, Pool


def test_population_state_is_sparse_grows_without_moving_and_goes_to_disk_past_its_limit() -> None:
    row = 8 * 4
    for limit in (1 << 30, 2 * BLOCK_ROWS * row):
        pool, r = Pool(10_000, limit), np.random.default_rng(0)
        truth: dict[int, float] = {}
        for t in range(6):
            clients = np.sort(r.choice(10_000, 900, replace=False))
            pool.write(clients, torch.full((900, 8), float(t)) + torch.from_numpy(clients.astype(np.float32))[:, None])
            truth.update({int(c): t + float(c) for c in clients})
        seen = np.asarray(sorted(truth))
        assert pool.used == len(seen) < 6 * 900
        assert torch.equal(pool.read(seen)[:, 3], torch.tensor([truth[int(c)] for c in seen]))
        assert not pool.seen(np.setdiff1d(np.arange(10_000), seen)).any()
        assert len(pool.blocks) == -(-pool.used // BLOCK_ROWS) > 2
