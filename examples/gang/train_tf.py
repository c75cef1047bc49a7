"""Trains a small network on all ranks with MultiWorkerMirroredStrategy, from TF_CONFIG, and resumes.

A loop of our own: Keras 3 does not know this strategy. Worker 0 saves; each rank loads the newest
checkpoint when it starts.
"""

import json
import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import numpy
import tensorflow as tf

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 200
strategy = tf.distribute.MultiWorkerMirroredStrategy()
task = json.loads(os.environ["TF_CONFIG"])["task"]
world = strategy.num_replicas_in_sync
folder = pathlib.Path(os.environ.get("LAMP_CHECKPOINT_DIR", "checkpoints"))
folder.mkdir(parents=True, exist_ok=True)
newest = folder / "state.npz"
saved = numpy.load(newest) if newest.exists() else {"step": 0, "weights": numpy.zeros((16, 1))}
step = int(saved["step"])
print(f"{task['type']} {task['index']} of {world} begins at step {step}", flush=True)

with strategy.scope():
    weights = tf.Variable(tf.cast(saved["weights"], tf.float32))
wanted = tf.reshape(tf.range(16, dtype=tf.float32) / 16, (16, 1))


@tf.function
def train():
    def one():
        inputs = tf.random.normal((64, 16))
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((inputs @ weights - inputs @ wanted) ** 2)
        gradient = tape.gradient(loss, weights)
        context = tf.distribute.get_replica_context()
        weights.assign_sub(0.1 * context.all_reduce("MEAN", gradient))
        return loss

    return strategy.reduce("MEAN", strategy.run(one), axis=None)


while step < STEPS:
    loss = float(train())
    step += 1
    if task["index"] != 0:
        continue
    if step % 20 == 0 or step == STEPS:
        part = folder / "part.npz"
        numpy.savez(part, step=step, weights=weights.numpy())
        part.replace(newest)
    with open(os.environ.get("LAMP_PROGRESS", os.devnull), "a") as progress:
        progress.write(json.dumps({"step": step, "total": STEPS, "loss": loss}) + "\n")
print(f"{task['type']} {task['index']} finished at step {step}, loss {loss:.4f}", flush=True)
