# After "CheckpointManager" in the documentation of Orbax (orbax.readthedocs.io): asynchronous saves, max_to_keep.
import os
import time

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp

STEPS = 600


@jax.jit
def update(state, x):
    def loss_fn(params):
        return jnp.mean((x @ params["w"] + params["b"] - x) ** 2)

    loss, grads = jax.value_and_grad(loss_fn)(state["params"])
    params = jax.tree.map(lambda p, g: p - 0.01 * g, state["params"], grads)
    return {"params": params, "step": state["step"] + 1}, loss


def main():
    state = {"params": {"w": jnp.zeros((128, 128)), "b": jnp.zeros((128,))}, "step": jnp.zeros((), jnp.int32)}
    options = ocp.CheckpointManagerOptions(max_to_keep=3, save_interval_steps=50)
    with ocp.CheckpointManager(os.path.abspath("checkpoints"), options=options) as mngr:
        start = 0
        if mngr.latest_step() is not None:
            start = mngr.latest_step()
            state = mngr.restore(start, args=ocp.args.StandardRestore(state))
            print(f"restored step {start}")
        else:
            print("starting from scratch")
        for step in range(start + 1, STEPS + 1):
            state, loss = update(state, jax.random.normal(jax.random.key(step), (32, 128)))
            time.sleep(0.06)
            mngr.save(step, args=ocp.args.StandardSave(state))
            if step % 25 == 0:
                print(f"step {step}: loss {loss:.5f}")
        mngr.wait_until_finished()
    print("done")


if __name__ == "__main__":
    main()
